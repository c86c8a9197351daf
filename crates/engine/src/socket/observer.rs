//! Reads the state of a socket that a task of the session owns, without receiving or sending.

use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::RecvFlags;
use rustix::time::Timespec;

use super::{keep_alive, receive};
use crate::socket::Keepalive;

/// State of a connection in the kernel (TCP_CLOSE of the kernel's tcp_states.h).
const TCP_CLOSE: u8 = 7;

/// A view of a socket. The descriptor stays open as long as the view exists.
pub struct SocketObserver(Rc<socket2::Socket>);

impl SocketObserver {
    pub(super) fn new(socket: &Rc<socket2::Socket>) -> Self {
        Self(Rc::clone(socket))
    }

    /// Enables the kernel's checks of a silent peer. A Unix socket does not need them.
    pub fn keep_alive(&self, keepalive: &Keepalive) {
        let _ = keep_alive(&socket2::SockRef::from(&*self.0), keepalive);
    }

    /// Returns whether the connection has failed, without reading.
    pub fn is_broken(&self) -> bool {
        is_broken(&self.0)
    }

    /// Returns whether the peer has disconnected: the connection has failed, or has ended without
    /// unread data. A peer that sent data and then ended its sending still waits for the reply.
    pub fn has_left(&self) -> bool {
        is_broken(&self.0) || matches!(receive(&self.0, &mut [0; 1], RecvFlags::PEEK), Ok(0))
    }

    /// Returns whether an answer of the peer is due and has been missing for `limit`.
    pub fn is_unanswered(&self, limit: Duration) -> bool {
        is_unanswered(&self.0, limit)
    }

    /// Returns the number of sent bytes that the peer's kernel (for a Unix socket: the peer) has
    /// not taken yet.
    pub fn unread_bytes(&self) -> u64 {
        let mut untaken: libc::c_int = 0;
        #[expect(unsafe_code, reason = "SIOCOUTQ has no safe form in rustix or socket2")]
        // SAFETY: this request writes one int, and receives a pointer to one.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), libc::TIOCOUTQ, &raw mut untaken) };
        if result < 0 {
            return 0;
        }
        u64::try_from(untaken).unwrap_or(0)
    }
}

/// POLLHUP does not count: it is also set when both sides have ended while the last bytes are
/// still unread.
fn is_broken(socket: &socket2::Socket) -> bool {
    poll_now(socket, PollFlags::empty()).contains(PollFlags::ERR)
}

/// Returns whether an answer of the peer is due and has been missing for `limit`. That requires
/// that data was retransmitted, or that more than one zero-window probe was sent, without success.
pub(super) fn is_unanswered(socket: &socket2::Socket, limit: Duration) -> bool {
    let Some(info) = tcp_info(socket) else {
        return false;
    };
    let silent = Duration::from_millis(u64::from(info.tcpi_last_ack_recv)) >= limit;
    silent && (info.tcpi_retransmits > 0 || info.tcpi_probes > 1)
}

/// Returns whether the kernel has closed a TCP connection: after a reset, or after both ends.
pub(super) fn is_closed(socket: &socket2::Socket) -> bool {
    tcp_info(socket).is_some_and(|info| info.tcpi_state == TCP_CLOSE)
}

/// Returns the kernel's information about a TCP connection (tcp(7)), or `None` for another socket.
fn tcp_info(socket: &socket2::Socket) -> Option<libc::tcp_info> {
    let mut info = std::mem::MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).ok()?;
    let fd = socket.as_raw_fd();
    #[expect(unsafe_code, reason = "TCP_INFO has no safe form in rustix or socket2")]
    // SAFETY: pointer and length are of one live value, for which all zeros are valid.
    unsafe {
        let into = info.as_mut_ptr().cast();
        let result = libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, into, &raw mut length);
        (result == 0).then(|| info.assume_init())
    }
}

/// Returns the current result of poll(2): these events, and failures and hang-ups in any case.
pub(super) fn poll_now(socket: &socket2::Socket, events: PollFlags) -> PollFlags {
    let mut questions = [PollFd::new(socket, events)];
    match poll(&mut questions, Some(&Timespec::default())) {
        Ok(1..) => questions[0].revents(),
        _ => PollFlags::empty(),
    }
}
