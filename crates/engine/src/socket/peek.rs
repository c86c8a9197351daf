//! Looks at a peer's first bytes without taking them from the socket.

use std::io;
use std::ops::ControlFlow;

use rustix::net::RecvFlags;

use super::{Socket, SocketDriver};

/// Events of poll(2) after which no further bytes come.
const ENDED: i16 = libc::POLLRDHUP | libc::POLLHUP | libc::POLLERR;

impl Socket {
    /// Waits until the peer's first bytes allow a decision. They stay in the socket: the next
    /// receive returns them. No memory is held during the wait.
    ///
    /// `decide` gets all bytes that have arrived, up to `length_max`, each time there are more.
    /// Returns `None` if the peer has ended its sending, or has sent `length_max` bytes, without a
    /// decision.
    ///
    /// # Errors
    ///
    /// The connection has failed, and no byte is left in the socket.
    pub async fn peek_until<T>(
        &self,
        length_max: usize,
        mut decide: impl FnMut(&[u8]) -> Option<T>,
    ) -> io::Result<Option<T>> {
        self.readable().await?;
        if let ControlFlow::Break(outcome) = self.look(length_max, &mut decide)? {
            return Ok(outcome);
        }
        match &self.driver {
            SocketDriver::Epoll(readiness) => {
                // All bytes are there when the end is known.
                while !readiness.has_ended() {
                    readiness.not_readable();
                    readiness.readable().await;
                    if let ControlFlow::Break(outcome) = self.look(length_max, &mut decide)? {
                        return Ok(outcome);
                    }
                }
                Ok(None)
            }
            SocketDriver::IoUring(ring, _) => loop {
                let changes = ring.poll_changes(self.raw.kernel(), libc::POLLIN);
                while let Some(events) = changes.next().await {
                    let has_ended = events? & ENDED != 0;
                    match self.look(length_max, &mut decide)? {
                        ControlFlow::Break(outcome) => return Ok(outcome),
                        ControlFlow::Continue(()) if has_ended => return Ok(None),
                        ControlFlow::Continue(()) => {}
                    }
                }
            },
        }
    }

    /// Shows the bytes in the socket to `decide`. Breaks with its decision, or with `None` if there
    /// will be no more bytes to decide on.
    fn look<T>(
        &self,
        length_max: usize,
        decide: &mut impl FnMut(&[u8]) -> Option<T>,
    ) -> io::Result<ControlFlow<Option<T>>> {
        let mut bytes = vec![0; length_max];
        let count = match self.raw.receive(&mut bytes, RecvFlags::PEEK) {
            Ok(0) => return Ok(ControlFlow::Break(None)),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(ControlFlow::Continue(()));
            }
            Err(error) => return Err(error),
        };
        let decision = decide(&bytes[..count]);
        Ok(match decision.is_some() || count == length_max {
            true => ControlFlow::Break(decision),
            false => ControlFlow::Continue(()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::io::Write;
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::rc::Rc;
    use std::time::Duration;

    use super::*;
    use crate::engine::Driver;
    use crate::worker::Worker;

    const LENGTH_MAX: usize = 8;

    /// A task that waits for a line end in the first bytes of a peer.
    struct Rig {
        worker: Rc<Worker>,
        peer: TcpStream,
        outcome: Rc<RefCell<Option<io::Result<Option<usize>>>>>,
        /// Texts that the task was shown.
        shown: Rc<RefCell<Vec<Vec<u8>>>>,
        /// Text that the task received after its decision.
        received: Rc<RefCell<Vec<u8>>>,
    }

    impl Rig {
        fn new(driver: Driver) -> Option<Self> {
            let worker = Worker::new(0, driver).ok()?;
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            peer.set_nodelay(true).unwrap();
            let (own, _) = listener.accept().unwrap();
            own.set_nonblocking(true).unwrap();
            let socket = Socket::new(&worker, own.into()).unwrap();
            let rig = Self {
                worker,
                peer,
                outcome: Rc::default(),
                shown: Rc::default(),
                received: Rc::default(),
            };
            let (outcome, shown) = (Rc::clone(&rig.outcome), Rc::clone(&rig.shown));
            let received = Rc::clone(&rig.received);
            rig.worker.spawn(async move {
                let decide = |bytes: &[u8]| {
                    shown.borrow_mut().push(bytes.to_vec());
                    bytes.iter().position(|byte| *byte == b'\n')
                };
                let decided = socket.peek_until(LENGTH_MAX, decide).await;
                let mut bytes = [0; 64];
                socket.readable().await.unwrap();
                let count = socket.receive_now(&mut bytes).unwrap_or(0);
                received.borrow_mut().extend_from_slice(&bytes[..count]);
                outcome.replace(Some(decided));
            });
            rig.turn();
            Some(rig)
        }

        fn turn(&self) {
            for _ in 0..20 {
                self.worker.run_ready();
                self.worker.poller.poll_once(Some(Duration::from_millis(1)));
            }
        }

        fn send(&self, bytes: &[u8]) {
            (&self.peer).write_all(bytes).unwrap();
            self.turn();
        }

        fn outcome(&self) -> Option<Option<usize>> {
            self.turn();
            let outcome = self.outcome.borrow_mut().take()?;
            Some(outcome.unwrap())
        }
    }

    fn on_both(check: impl Fn(Rig)) {
        for driver in [Driver::Epoll, Driver::IoUring] {
            match Rig::new(driver) {
                Some(rig) => check(rig),
                None => println!("skipped: no {} here", driver.name()),
            }
        }
    }

    /// TO SEE THIS RED: receive without `RecvFlags::PEEK`.
    #[test]
    fn bytes_are_shown_as_they_arrive_and_stay_in_the_socket() {
        on_both(|rig| {
            for part in [b"a", b"b", b"c"] {
                rig.send(part);
                assert!(rig.outcome().is_none());
            }
            rig.send(b"\nrest");
            assert_eq!(rig.outcome(), Some(Some(3)));
            assert_eq!(*rig.received.borrow(), b"abc\nrest");
            let shown = rig.shown.borrow();
            assert_eq!(shown.first().unwrap(), b"a");
            assert!(shown.len() <= 6, "shown without a change: {shown:?}");
        });
    }

    #[test]
    fn an_end_or_too_many_bytes_leave_it_undecided() {
        on_both(|rig| {
            rig.send(b"ab");
            rig.peer.shutdown(Shutdown::Write).unwrap();
            assert_eq!(rig.outcome(), Some(None));
            assert_eq!(*rig.received.borrow(), b"ab");
        });
        on_both(|rig| {
            rig.peer.shutdown(Shutdown::Write).unwrap();
            assert_eq!(rig.outcome(), Some(None));
        });
        on_both(|rig| {
            rig.send(b"1234");
            assert!(rig.outcome().is_none());
            rig.send(b"56789");
            assert_eq!(rig.outcome(), Some(None));
            assert_eq!(*rig.received.borrow(), b"123456789");
        });
    }
}
