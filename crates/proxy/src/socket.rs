//! Sends and receives on a connected stream socket, with epoll or io_uring.

mod chunk;

use std::cell::RefCell;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::rc::Rc;
use std::time::Duration;

use compio::driver::SharedFd;
use compio::driver::op::{Interest, PollOnce};
use socket2::TcpKeepalive;

use crate::engine::reactor::Readiness;
use crate::engine::ring::{Buffer, MultishotReceive, Ring, RingSocket};
use crate::engine::worker::{Poller, Worker};
use crate::settings::Keepalive;

pub(crate) use chunk::Chunk;

/// Socket of one session on one worker.
pub(crate) struct Socket {
    shared: SharedFd<socket2::Socket>,
    /// Readiness known to the worker's reactor; epoll only.
    readiness: Option<Rc<Readiness>>,
    /// The worker's ring; io_uring only.
    ring: Option<Rc<Ring>>,
    /// Standing requests for users of the `poll_…` functions; io_uring only.
    port: RefCell<Option<Rc<RingSocket>>>,
    /// Bytes that the last send did not take; epoll only.
    rest: RefCell<Vec<u8>>,
}

impl Socket {
    pub(crate) fn new(worker: &Worker, shared: SharedFd<socket2::Socket>) -> io::Result<Self> {
        let (readiness, ring) = match &worker.poller {
            Poller::Epoll(reactor) => (Some(reactor.register(shared.as_raw_fd())?), None),
            Poller::IoUring(ring) => (None, Some(Rc::clone(ring))),
        };
        Ok(Self {
            shared,
            readiness,
            ring,
            port: RefCell::default(),
            rest: RefCell::default(),
        })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.shared.as_raw_fd()
    }

    /// Returns whether it is a Unix socket.
    pub(crate) fn is_local(&self) -> bool {
        let address = self.shared.local_addr();
        address.is_ok_and(|address| address.is_unix())
    }

    /// Returns the peer's address; `None` on a Unix socket.
    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.shared.peer_addr().ok()?.as_socket()
    }

    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        self.shared.local_addr().ok()?.as_socket()
    }

    /// Receives available bytes without waiting. Zero bytes mean that the peer has ended its
    /// sending.
    pub(crate) fn receive_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let received = receive(self.fd(), buffer, 0);
        if let Some(readiness) = &self.readiness {
            readiness.after_receive(&received, buffer.len());
        }
        received
    }

    /// Reads available bytes without removing them from the socket.
    pub(crate) fn peek_now(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let seen = receive(self.fd(), buffer, libc::MSG_PEEK);
        if let (Some(readiness), Err(_)) = (&self.readiness, &seen) {
            readiness.after_receive(&seen, buffer.len());
        }
        seen
    }

    /// Sends as much as the socket takes now, without waiting.
    pub(crate) fn send_now(&self, bytes: &[u8]) -> io::Result<usize> {
        let sent = send_now(self.fd(), bytes);
        if let Some(readiness) = &self.readiness {
            readiness.after_send(&sent);
        }
        sent
    }

    /// Sends all bytes, and waits as long as the peer does not take them.
    pub(crate) async fn send_all(&self, mut bytes: &[u8]) -> io::Result<()> {
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
    pub(crate) async fn readable(&self) -> io::Result<()> {
        match (&self.readiness, &self.ring) {
            (Some(readiness), _) => readiness.readable().await,
            (None, Some(ring)) => {
                ring.poll(&self.shared, libc::POLLIN).await?;
            }
            (None, None) => {}
        }
        Ok(())
    }

    /// Waits until the socket takes bytes again, or has failed.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        const WANTED: i16 = libc::POLLOUT | libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;
        match (&self.readiness, &self.ring) {
            (Some(readiness), _) => readiness.writable().await,
            (None, Some(ring)) => {
                if ring.poll(&self.shared, libc::POLLOUT).await? & WANTED == 0 {
                    // The peer has ended its sending. io_uring would report only that, repeatedly;
                    // epoll does not.
                    let wait = PollOnce::new(self.shared.clone(), Interest::Writable);
                    compio::runtime::submit(wait).await.0?;
                }
            }
            (None, None) => {}
        }
        Ok(())
    }

    /// Waits for the result of a connect(2) in progress.
    pub(crate) async fn connected(&self) -> io::Result<()> {
        let events = poll_now(self.fd(), libc::POLLOUT);
        if events == libc::POLLOUT {
            return Ok(());
        }
        if events & libc::POLLOUT == 0 {
            if let Some(readiness) = &self.readiness {
                readiness.not_writable_yet();
            }
            self.writable().await?;
        }
        self.shared.take_error()?.map_or(Ok(()), Err)
    }

    /// Starts a multishot receive, which uses a buffer of the ring's pool whenever bytes arrive;
    /// io_uring only.
    pub(crate) fn receive_pooled<'a>(&self, ring: &'a Ring) -> MultishotReceive<'a> {
        ring.receive(&self.shared)
    }

    /// Sends as much of a ring buffer as the socket takes now; io_uring only. The send shares one
    /// system call with the other requests of this iteration; `is_quiet` is that of [`Ring::send`].
    pub(crate) async fn send_pooled(
        &self,
        ring: &Ring,
        buffer: Buffer,
        is_quiet: bool,
    ) -> (io::Result<usize>, Option<Buffer>) {
        ring.send(&self.shared, buffer, is_quiet).await
    }

    /// Ends sending on this side; the peer can continue to send.
    pub(crate) fn end_sending(&self) -> io::Result<()> {
        self.shared.shutdown(Shutdown::Write)
    }

    /// Returns whether the peer has reset the connection, even if another call has already received
    /// that error. The kernel returns the error once, and the end of the stream afterwards.
    pub(crate) fn was_reset(&self) -> bool {
        /// TCP_CLOSE of the kernel's tcp_states.h; after a regular end the state would be
        /// TCP_CLOSE_WAIT.
        const CLOSED: u8 = 7;
        let (mut state, mut length) = (0_u8, 1);
        #[expect(unsafe_code, reason = "TCP_INFO has no safe form in std or socket2")]
        // SAFETY: the first byte of tcp_info is the state, and only one byte is requested.
        let result = unsafe {
            libc::getsockopt(
                self.fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                (&raw mut state).cast(),
                &raw mut length,
            )
        };
        result == 0 && state == CLOSED
    }

    /// Enables the kernel's checks of a silent peer. A Unix socket does not need them.
    pub(crate) fn keep_alive(&self, keepalive: &Keepalive) {
        let _ = keep_alive(&socket2::SockRef::from(&*self.shared), keepalive);
    }

    /// Makes closing this socket send a reset instead of an end.
    pub(crate) fn reset_on_close(&self) {
        // Fails only for sockets that cannot be reset.
        let _ = self.shared.set_linger(Some(Duration::ZERO));
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Some(readiness) = &self.readiness {
            readiness.forget();
        }
        if let (Some(ring), Some(port)) = (&self.ring, self.port.get_mut()) {
            ring.close_port(port);
        }
    }
}

/// Sets keepalive; a socket that is not TCP is left unchanged.
///
/// TCP_USER_TIMEOUT is not used: it also ends connections whose peer answers but announces a window
/// of zero for that long. [`is_unanswered`] serves its purpose.
pub(crate) fn keep_alive(socket: &socket2::SockRef<'_>, keepalive: &Keepalive) -> io::Result<()> {
    if keepalive.idle.is_zero() {
        return socket.set_keepalive(false);
    }
    let probes = TcpKeepalive::new()
        .with_time(keepalive.idle)
        .with_interval(keepalive.interval)
        .with_retries(keepalive.probes);
    socket.set_tcp_keepalive(&probes)
}

fn receive(fd: RawFd, buffer: &mut [u8], flags: i32) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | flags;
    #[expect(
        unsafe_code,
        reason = "a receive with MSG_DONTWAIT has no safe form in std"
    )]
    // SAFETY: pointer and length are of one live, exclusively borrowed slice.
    let received = unsafe { libc::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), flags) };
    usize::try_from(received).map_err(|_| io::Error::last_os_error())
}

fn send_now(fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    #[expect(
        unsafe_code,
        reason = "a send with MSG_DONTWAIT has no safe form in std"
    )]
    // SAFETY: pointer and length are of one live slice.
    let sent = unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Returns whether the connection has failed, without reading. POLLHUP does not count: it is also
/// set when both sides have ended while the last bytes are still unread.
pub(crate) fn is_broken(fd: RawFd) -> bool {
    poll_now(fd, 0) & libc::POLLERR != 0
}

/// Returns whether an answer of the peer is due and has been missing for `limit`. That requires
/// that data was retransmitted, or that more than one zero-window probe was sent, without success.
pub(crate) fn is_unanswered(fd: RawFd, limit: Duration) -> bool {
    let Some(info) = tcp_info(fd) else {
        return false;
    };
    let silent = Duration::from_millis(u64::from(info.tcpi_last_ack_recv)) >= limit;
    silent && (info.tcpi_retransmits > 0 || info.tcpi_probes > 1)
}

/// Returns the number of sent bytes that the peer's kernel (for a Unix socket: the peer) has not
/// taken yet.
pub(crate) fn unread_bytes(fd: RawFd) -> u64 {
    let mut untaken: libc::c_int = 0;
    #[expect(unsafe_code, reason = "SIOCOUTQ has no safe form in std or socket2")]
    // SAFETY: this request writes one int, and receives a pointer to one.
    let result = unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut untaken) };
    if result < 0 {
        return 0;
    }
    u64::try_from(untaken).unwrap_or(0)
}

/// Returns the kernel's information about a TCP connection, or `None` for another socket.
fn tcp_info(fd: RawFd) -> Option<libc::tcp_info> {
    let mut info = std::mem::MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).ok()?;
    #[expect(unsafe_code, reason = "TCP_INFO has no safe form in std or socket2")]
    // SAFETY: pointer and length are of one live value, for which all zeros are valid.
    unsafe {
        let into = info.as_mut_ptr().cast();
        let result = libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, into, &raw mut length);
        (result == 0).then(|| info.assume_init())
    }
}

/// Returns whether the peer has disconnected: the connection has failed, or has ended without
/// unread data. A peer that sent data and then ended its sending still waits for the reply.
pub(crate) fn has_left(fd: RawFd) -> bool {
    is_broken(fd) || matches!(receive(fd, &mut [0; 1], libc::MSG_PEEK), Ok(0))
}

/// Returns the current result of poll(2): these events, and failures and hang-ups in any case.
fn poll_now(fd: RawFd, events: i16) -> i16 {
    let mut question = libc::pollfd {
        fd,
        events,
        revents: 0,
    };
    #[expect(unsafe_code, reason = "poll(2) has no safe form in std")]
    // SAFETY: one pollfd, and its count is one.
    let answers = unsafe { libc::poll(&raw mut question, 1, 0) };
    if answers > 0 { question.revents } else { 0 }
}
