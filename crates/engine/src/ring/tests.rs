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
