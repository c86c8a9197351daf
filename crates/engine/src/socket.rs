//! Sends and receives on a connected stream socket, with epoll or io_uring.

mod chunk;
mod observer;
mod peek;
mod raw;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::net::RecvFlags;
use socket2::TcpKeepalive;

use crate::reactor::Readiness;
use crate::ring::{Buffer, MultishotReceive, Ring, RingRequest, RingSocket};
use crate::worker::{Poller, Worker};

pub use chunk::Chunk;
pub use observer::SocketObserver;
pub(crate) use raw::RawSocket;

/// TCP keepalive (tcp(7)) and the limit for unanswered bytes, on both sides of each session.
#[derive(Debug, Clone, Copy)]
pub struct Keepalive {
    /// Silence before the first probe (TCP_KEEPIDLE). Zero disables keepalive.
    pub idle: Duration,
    /// Time between probes (TCP_KEEPINTVL).
    pub interval: Duration,
    /// Unanswered probes until the peer is considered dead (TCP_KEEPCNT).
    pub probes: u32,
    /// Time without acknowledgement of sent data after which the peer is considered dead. Zero: the
    /// kernel's default.
    pub user_timeout: Duration,
}

/// Socket of one session on one worker.
pub struct Socket {
    raw: RawSocket,
    driver: SocketDriver,
}

/// State of a socket at its worker's poller.
enum SocketDriver {
    /// Readiness that the reactor knows.
    Epoll(Rc<Readiness>),
    /// The worker's ring, and the standing requests for users of the `poll_…` functions.
    IoUring(Rc<Ring>, RefCell<Option<Rc<RingSocket>>>),
}

impl Socket {
    /// Takes over a socket that is connected or connecting.
    pub fn new(worker: &Worker, socket: socket2::Socket) -> io::Result<Self> {
        let driver = match &worker.poller {
            Poller::Epoll(reactor) => SocketDriver::Epoll(reactor.register(socket.as_fd())?),
            Poller::IoUring(ring) => SocketDriver::IoUring(Rc::clone(ring), RefCell::default()),
        };
        let raw = RawSocket::Kernel(Rc::new(socket));
        Ok(Self { raw, driver })
    }

    /// Creates a socket whose kernel and peer are a script, with the state that epoll would report.
    #[cfg(any(test, feature = "scripted"))]
    pub(crate) fn scripted(
        script: Rc<crate::scripted::ScriptedSocket>,
        readiness: Rc<Readiness>,
    ) -> Self {
        Self {
            raw: RawSocket::Scripted(script),
            driver: SocketDriver::Epoll(readiness),
        }
    }

    /// Returns the readiness; `None` on io_uring.
    fn readiness(&self) -> Option<&Readiness> {
        match &self.driver {
            SocketDriver::Epoll(readiness) => Some(readiness),
            SocketDriver::IoUring(..) => None,
        }
    }

    /// Returns a view of the socket's state, which keeps its descriptor open.
    pub fn observer(&self) -> SocketObserver {
        SocketObserver::new(&self.raw)
    }

    /// Returns whether an answer of the peer is due and has been missing for `limit`.
    pub fn is_unanswered(&self, limit: Duration) -> bool {
        self.raw.is_unanswered(limit)
    }

    /// Returns whether it is a Unix socket.
    pub fn is_local(&self) -> bool {
        let address = self.raw.local_address();
        address.is_some_and(|address| address.is_unix())
    }

    /// Returns the peer's address; `None` on a Unix socket.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.raw.peer()?.as_socket()
    }

    /// Returns the own address; `None` on a Unix socket.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.raw.local_address()?.as_socket()
    }

    /// Receives available bytes without waiting. Zero bytes mean that the peer has ended its
    /// sending.
    pub fn receive_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let received = self.raw.receive(buffer, RecvFlags::empty());
        if let Some(readiness) = self.readiness() {
            readiness.after_receive(&received, buffer.len());
        }
        received
    }

    /// Appends available bytes without waiting, up to a length of `length_max`, which must exceed
    /// the length. Zero bytes mean that the peer has ended its sending.
    pub fn receive_more(&self, bytes: &mut Vec<u8>, length_max: usize) -> io::Result<usize> {
        let wanted = length_max - bytes.len();
        let received = self.raw.receive_more(bytes, length_max);
        if let Some(readiness) = self.readiness() {
            readiness.after_receive(&received, wanted);
        }
        received
    }

    /// Reads available bytes without removing them from the socket.
    pub fn peek_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let seen = self.raw.receive(buffer, RecvFlags::PEEK);
        if let (Some(readiness), Err(_)) = (self.readiness(), &seen) {
            readiness.after_receive(&seen, buffer.len());
        }
        seen
    }

    /// Sends as much as the socket takes now, without waiting.
    pub fn send_now(&self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.raw.send(bytes);
        if let Some(readiness) = self.readiness() {
            readiness.after_send(&sent);
        }
        sent
    }

    /// Sends all bytes, and waits as long as the peer does not take them.
    pub async fn send_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.send_now(bytes) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable().await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits until a receive returns data, the end or an error.
    pub async fn readable(&self) -> io::Result<()> {
        match &self.driver {
            SocketDriver::Epoll(readiness) => readiness.readable().await,
            SocketDriver::IoUring(ring, _) => {
                ring.poll(self.raw.kernel(), libc::POLLIN).await?;
            }
        }
        Ok(())
    }

    /// Waits until the socket takes bytes again, or has failed.
    pub async fn writable(&self) -> io::Result<()> {
        const WANTED: i16 = libc::POLLOUT | libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;
        match &self.driver {
            SocketDriver::Epoll(readiness) => readiness.writable().await,
            SocketDriver::IoUring(ring, _) => {
                let socket = self.raw.kernel();
                if ring.poll(socket, libc::POLLOUT).await? & WANTED == 0 {
                    // The peer has ended its sending, which each poll of io_uring would report
                    // immediately.
                    ring.poll_until(socket, WANTED).await?;
                }
            }
        }
        Ok(())
    }

    /// Waits for the result of a connect(2) in progress.
    pub async fn connected(&self) -> io::Result<()> {
        let events = self.raw.poll_now(PollFlags::OUT);
        if events == PollFlags::OUT {
            return Ok(());
        }
        if !events.contains(PollFlags::OUT) {
            if let Some(readiness) = self.readiness() {
                readiness.not_writable_yet();
            }
            self.writable().await?;
        }
        self.raw.take_error()?.map_or(Ok(()), Err)
    }

    /// Starts a multishot receive, which uses a buffer of the ring's pool whenever bytes arrive;
    /// io_uring only.
    pub(crate) fn receive_pooled<'a>(&self, ring: &'a Ring) -> MultishotReceive<'a> {
        ring.receive(self.raw.kernel())
    }

    /// Sends as much of a ring buffer as the socket takes now; io_uring only. The send shares one
    /// system call with the other requests of this iteration; `is_quiet` is that of [`Ring::send`].
    pub(crate) fn send_pooled<'a>(
        &self,
        ring: &'a Ring,
        buffer: Buffer,
        is_quiet: bool,
    ) -> RingRequest<'a> {
        ring.send(self.raw.kernel(), buffer, is_quiet)
    }

    /// Ends sending on this side; the peer can continue to send.
    pub fn end_sending(&self) -> io::Result<()> {
        self.raw.end_sending()
    }

    /// Returns whether the peer has reset the connection, even if another call has already received
    /// that error. The kernel returns the error once, and the end of the stream afterwards.
    pub fn was_reset(&self) -> bool {
        // After a regular end the state would be TCP_CLOSE_WAIT.
        self.raw.is_closed()
    }

    /// Enables the kernel's checks of a silent peer. A Unix socket does not need them.
    pub fn keep_alive(&self, keepalive: &Keepalive) {
        self.raw.keep_alive(keepalive);
    }

    /// Makes closing this socket send a reset instead of an end.
    pub fn reset_on_close(&self) {
        self.raw.reset_on_close();
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        match &mut self.driver {
            SocketDriver::Epoll(readiness) => readiness.forget(),
            SocketDriver::IoUring(ring, port) => {
                if let Some(port) = port.get_mut() {
                    ring.close_port(port);
                }
            }
        }
    }
}

/// Sets keepalive; a socket that is not TCP is left unchanged.
///
/// TCP_USER_TIMEOUT is not used: it also ends connections whose peer answers but announces a window
/// of zero for that long. [`Socket::is_unanswered`] serves its purpose.
pub fn keep_alive(socket: &socket2::SockRef<'_>, keepalive: &Keepalive) -> io::Result<()> {
    if keepalive.idle.is_zero() {
        return socket.set_keepalive(false);
    }
    let probes = TcpKeepalive::new()
        .with_time(keepalive.idle)
        .with_interval(keepalive.interval)
        .with_retries(keepalive.probes);
    socket.set_tcp_keepalive(&probes)
}
