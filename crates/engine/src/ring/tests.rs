//! Tests quiet sends with a kernel: the meaning of a missing completion.

use std::pin::pin;

use super::*;

const MESSAGE_BYTES: usize = 4000;

struct Rig {
    ring: Ring,
}

impl Rig {
    fn new() -> Option<Self> {
        let wakeup = Arc::new(Wakeup::new().unwrap());
        match Ring::new(&wakeup) {
            Ok(ring) => Some(Self { ring }),
            Err(error) => {
                println!("skipped: no io_uring here: {error}");
                None
            }
        }
    }

    /// Returns a message in a buffer of the ring.
    fn received(&self) -> Buffer {
        let (from, to) = pair();
        from.send(&[7; MESSAGE_BYTES]).unwrap();
        let mut receiving = self.ring.receive(&Rc::new(to));
        self.ring.poll_once(None);
        match ready(receiving.next()) {
            Some(Next::Bytes(buffer)) => buffer,
            _ => panic!("nothing was received"),
        }
    }

    /// Sends the message and runs one turn, which the socket of another pair ends.
    fn send(&self, to: &Rc<socket2::Socket>) -> Option<usize> {
        let buffer = self.received();
        let (other, watched) = pair();
        let watched = Rc::new(watched);
        let mut sending = pin!(self.ring.send(to, buffer, true));
        let mut other_event = pin!(self.ring.poll(&watched, libc::POLLIN));
        assert!(ready(sending.as_mut()).is_none());
        assert!(ready(other_event.as_mut()).is_none());
        other.send(b"!").unwrap();
        self.ring.poll_once(Some(Duration::from_secs(5)));
        ready(sending).map(|(sent, _)| match sent {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            sent => sent.unwrap(),
        })
    }
}

fn pair() -> (socket2::Socket, socket2::Socket) {
    socket2::Socket::pair(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap()
}

/// Returns sockets that take a part of a message if there is no space for all of it.
fn tcp_pair_with_little_room() -> (socket2::Socket, socket2::Socket) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().into();
    let listener = socket2::Socket::from(listener);
    listener.set_recv_buffer_size(2000).unwrap();
    let client = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    client.set_send_buffer_size(2000).unwrap();
    client.connect(&address).unwrap();
    (client, listener.accept().unwrap().0)
}

fn ready<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

#[test]
fn the_silence_of_a_quiet_send_means_that_all_went_out() {
    let Some(rig) = Rig::new() else { return };
    let (to, peer) = pair();
    assert_eq!(rig.send(&Rc::new(to)), Some(MESSAGE_BYTES));
    let mut bytes = vec![0; MESSAGE_BYTES + 1];
    let count = std::io::Read::read(&mut &peer, &mut bytes).unwrap();
    assert!(bytes[..count] == [7; MESSAGE_BYTES], "{count} bytes");
}

/// Fails if MSG_WAITALL is removed.
#[test]
fn a_quiet_send_that_falls_short_says_how_much_went_out() {
    let Some(rig) = Rig::new() else { return };
    let (to, peer) = tcp_pair_with_little_room();
    let to = Rc::new(to);
    let mut said_bytes = 0;
    loop {
        let sent = rig.send(&to).unwrap();
        said_bytes += sent;
        if sent < MESSAGE_BYTES {
            break;
        }
    }
    drop(to);
    let mut received = Vec::new();
    std::io::Read::read_to_end(&mut &peer, &mut received).unwrap();
    assert_eq!(received.len(), said_bytes);
}

impl Rig {
    /// Opens a ring socket that receives nothing.
    fn port(&self, socket: socket2::Socket) -> Rc<RingSocket> {
        self.ring.open_port(&Rc::new(socket))
    }

    fn start_send(&self, port: &Rc<RingSocket>, length: usize) {
        let payload = ring_socket::Payload::Own(vec![7; length]);
        self.ring.start_send(port, payload).unwrap();
    }

    fn is_sent(&self, port: &RingSocket) -> bool {
        let context = Context::from_waker(Waker::noop());
        match self.ring.poll_sent(port, &context) {
            Poll::Ready(sent) => sent.map(|()| true).unwrap(),
            Poll::Pending => false,
        }
    }
}

fn read_available(peer: &socket2::Socket) -> usize {
    let mut bytes = vec![0; 1 << 20];
    let count = std::io::Read::read(&mut &*peer, &mut bytes).unwrap();
    assert!(bytes[..count].iter().all(|byte| *byte == 7));
    count
}

#[test]
fn a_send_that_no_task_awaits_does_not_end_the_wait() {
    let Some(rig) = Rig::new() else { return };
    let (to, peer) = pair();
    let port = rig.port(to);
    rig.start_send(&port, MESSAGE_BYTES);
    let context = Context::from_waker(Waker::noop());
    assert!(rig.ring.poll_sent_silently(&port, &context).is_pending());
    let (began, wait) = (std::time::Instant::now(), Duration::from_millis(50));
    rig.ring.poll_once(Some(wait));
    assert!(began.elapsed() >= wait, "{:?}", began.elapsed());
    assert!(rig.is_sent(&port));
    assert_eq!(read_available(&peer), MESSAGE_BYTES);
}

#[test]
fn a_send_that_a_task_awaits_ends_the_wait() {
    let Some(rig) = Rig::new() else { return };
    let (to, peer) = pair();
    let port = rig.port(to);
    rig.start_send(&port, MESSAGE_BYTES);
    assert!(!rig.is_sent(&port));
    let began = std::time::Instant::now();
    rig.ring.poll_once(Some(Duration::from_mins(1)));
    assert!(began.elapsed() < Duration::from_secs(30));
    assert!(rig.is_sent(&port));
    assert_eq!(read_available(&peer), MESSAGE_BYTES);
}

#[test]
fn the_rest_of_a_partial_send_follows_when_the_peer_has_received() {
    let Some(rig) = Rig::new() else { return };
    let (to, peer) = tcp_pair_with_little_room();
    peer.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let port = rig.port(to);
    let mut started_bytes = 0;
    while started_bytes == 0 || rig.is_sent(&port) {
        rig.start_send(&port, MESSAGE_BYTES);
        started_bytes += MESSAGE_BYTES;
        rig.ring.poll_once(Some(Duration::from_millis(1)));
        rig.ring.poll_once(Some(Duration::from_millis(1)));
    }
    let mut received_bytes = 0;
    while received_bytes < started_bytes {
        received_bytes += read_available(&peer);
        rig.ring.poll_once(Some(Duration::from_millis(1)));
    }
    rig.ring.poll_once(Some(Duration::from_millis(1)));
    assert!(rig.is_sent(&port));
    assert_eq!(received_bytes, started_bytes);
}

#[test]
fn a_ring_socket_that_is_closed_with_a_send_in_progress_is_removed_after_it() {
    let Some(rig) = Rig::new() else { return };
    let (to, peer) = pair();
    let port = rig.port(to);
    rig.start_send(&port, MESSAGE_BYTES);
    rig.ring.close_port(&port);
    assert_eq!(rig.ring.ports.borrow().len(), 1);
    rig.ring.poll_once(Some(Duration::from_secs(5)));
    assert_eq!(rig.ring.ports.borrow().len(), 0);
    assert_eq!(read_available(&peer), MESSAGE_BYTES);
}
