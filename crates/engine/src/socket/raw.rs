//! Calls the kernel for a socket, or in a test the script that stands in for it.

use std::io;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{RecvFlags, SendFlags};
use rustix::time::Timespec;
use socket2::SockAddr;

use super::Keepalive;
#[cfg(any(test, feature = "scripted"))]
use crate::scripted::ScriptedSocket;

/// State of a connection in the kernel (TCP_CLOSE of the kernel's tcp_states.h).
const TCP_CLOSE: u8 = 7;

/// A stream socket below the drivers. Every call returns immediately.
#[derive(Clone)]
pub(crate) enum RawSocket {
    /// A socket of the kernel.
    Kernel(Rc<socket2::Socket>),
    /// A script instead of the kernel and the peer.
    #[cfg(any(test, feature = "scripted"))]
    Scripted(Rc<ScriptedSocket>),
}

impl RawSocket {
    /// Returns the socket for requests to a ring, which knows no other sockets.
    pub(super) fn kernel(&self) -> &Rc<socket2::Socket> {
        match self {
            Self::Kernel(socket) => socket,
            #[cfg(any(test, feature = "scripted"))]
            Self::Scripted(_) => unreachable!("a script is used as with epoll"),
        }
    }

    pub(super) fn receive(&self, buffer: &mut [u8], flags: RecvFlags) -> io::Result<usize> {
        match self {
            Self::Kernel(socket) => {
                let flags = RecvFlags::DONTWAIT | flags;
                let (received, _) = rustix::net::recv(socket, buffer, flags)?;
                Ok(received)
            }
            #[cfg(any(test, feature = "scripted"))]
            Self::Scripted(script) => script.receive(buffer, flags.contains(RecvFlags::PEEK)),
        }
    }

    /// Appends received bytes, up to a length of `length_max`, which must exceed the length.
    pub(super) fn receive_more(&self, bytes: &mut Vec<u8>, length_max: usize) -> io::Result<usize> {
        let length = bytes.len();
        bytes.reserve_exact(length_max - length);
        if let Self::Kernel(socket) = self
            && bytes.capacity() == length_max
        {
            let flags = RecvFlags::DONTWAIT;
            let (received, _) = rustix::net::recv(socket, spare_capacity(bytes), flags)?;
            return Ok(received);
        }
        bytes.resize(length_max, 0);
        let received = self.receive(&mut bytes[length..], RecvFlags::empty());
        bytes.truncate(length + *received.as_ref().unwrap_or(&0));
        received
    }

    pub(crate) fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Kernel(socket) => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                Ok(rustix::net::send(socket, bytes, flags)?)
            }
            #[cfg(any(test, feature = "scripted"))]
            Self::Scripted(script) => script.send(bytes),
        }
    }

    /// Sends bytes that wait for more, or for the end, to share a segment with them (MSG_MORE).
    pub(super) fn send_before_more(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Kernel(socket) => {
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL | SendFlags::MORE;
                Ok(rustix::net::send(socket, bytes, flags)?)
            }
            #[cfg(any(test, feature = "scripted"))]
            Self::Scripted(script) => script.send(bytes),
        }
    }

    /// Returns the current result of poll(2): these events, and failures and hang-ups in any case.
    pub(super) fn poll_now(&self, events: PollFlags) -> PollFlags {
        let socket = match self {
            Self::Kernel(socket) => socket,
            #[cfg(any(test, feature = "scripted"))]
            Self::Scripted(script) => return script.poll_now(events),
        };
        let mut questions = [PollFd::new(&**socket, events)];
        match poll(&mut questions, Some(&Timespec::default())) {
            Ok(1..) => questions[0].revents(),
            _ => PollFlags::empty(),
        }
    }

    /// Returns and clears the error of the socket.
    pub(super) fn take_error(&self) -> io::Result<Option<io::Error>> {
        match self {
            Self::Kernel(socket) => socket.take_error(),
            #[cfg(any(test, feature = "scripted"))]
            Self::Scripted(script) => Ok(script.take_error()),
        }
    }

    pub(super) fn end_sending(&self) -> io::Result<()> {
        match self {
            Self::Kernel(socket) => socket.shutdown(Shutdown::Write),
            #[cfg(any(test, feature = "scripted"))]
            Self::Scripted(script) => script.end_sending(),
        }
    }

    pub(super) fn reset_on_close(&self) {
        match self {
            // Fails only for sockets that cannot be reset.
            Self::Kernel(socket) => drop(socket.set_linger(Some(Duration::ZERO))),
            #[cfg(any(test, feature = "scripted"))]
            Self::Scripted(script) => script.reset_on_close(),
        }
    }

    pub(super) fn keep_alive(&self, keepalive: &Keepalive) {
        match self {
            Self::Kernel(socket) => {
                let _ = super::keep_alive(&socket2::SockRef::from(&**socket), keepalive);
            }
            #[cfg(any(test, feature = "scripted"))]
            Self::Scripted(_) => {}
        }
    }

    pub(super) fn peer(&self) -> Option<SockAddr> {
        match self {
            Self::Kernel(socket) => socket.peer_addr().ok(),
            #[cfg(any(test, feature = "scripted"))]
            Self::Scripted(_) => None,
        }
    }

    pub(super) fn local_address(&self) -> Option<SockAddr> {
        match self {
            Self::Kernel(socket) => socket.local_addr().ok(),
            #[cfg(any(test, feature = "scripted"))]
            Self::Scripted(_) => None,
        }
    }

    /// Returns whether the connection has failed. POLLHUP does not count: it is also set when both
    /// sides have ended while the last bytes are still unread.
    pub(super) fn is_broken(&self) -> bool {
        self.poll_now(PollFlags::empty()).contains(PollFlags::ERR)
    }

    /// Returns whether an answer of the peer is due and has been missing for `limit`. That requires
    /// that data was retransmitted, or that more than one zero-window probe was sent, without
    /// success.
    pub(super) fn is_unanswered(&self, limit: Duration) -> bool {
        let socket = match self {
            Self::Kernel(socket) => socket,
            #[cfg(any(test, feature = "scripted"))]
            Self::Scripted(script) => return script.is_unanswered(),
        };
        let Some(info) = tcp_info(socket) else {
            return false;
        };
        let silent = Duration::from_millis(u64::from(info.tcpi_last_ack_recv)) >= limit;
        silent && (info.tcpi_retransmits > 0 || info.tcpi_probes > 1)
    }

    /// Returns whether the kernel has closed a TCP connection: after a reset, or after both ends.
    pub(super) fn is_closed(&self) -> bool {
        match self {
            Self::Kernel(socket) => {
                tcp_info(socket).is_some_and(|info| info.tcpi_state == TCP_CLOSE)
            }
            #[cfg(any(test, feature = "scripted"))]
            Self::Scripted(script) => script.is_closed(),
        }
    }

    /// Returns the number of sent bytes that the peer's kernel (for a Unix socket: the peer) has
    /// not taken yet.
    pub(super) fn unread_bytes(&self) -> u64 {
        let socket = match self {
            Self::Kernel(socket) => socket,
            #[cfg(any(test, feature = "scripted"))]
            Self::Scripted(script) => return script.unread_bytes(),
        };
        let mut untaken: libc::c_int = 0;
        #[expect(unsafe_code, reason = "SIOCOUTQ has no safe form in rustix or socket2")]
        // SAFETY: this request writes one int, and receives a pointer to one.
        let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut untaken) };
        if result < 0 {
            return 0;
        }
        u64::try_from(untaken).unwrap_or(0)
    }
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

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// TO SEE THIS RED: receive into the whole spare capacity. Bytes of the next message would then
    /// be taken for a part of this one.
    #[test]
    fn no_more_is_received_than_requested_whatever_the_capacity() {
        let stream = socket2::Type::STREAM;
        let (ours, theirs) = socket2::Socket::pair(socket2::Domain::UNIX, stream, None).unwrap();
        (&theirs).write_all(b"abcdefghijklmnop").unwrap();
        let socket = RawSocket::Kernel(Rc::new(ours));
        for (capacity, expected) in [(0, "xabcd"), (5, "xefgh"), (100, "xijkl")] {
            let mut bytes = Vec::with_capacity(capacity);
            bytes.push(b'x');
            assert_eq!(socket.receive_more(&mut bytes, 5).unwrap(), 4);
            assert_eq!(bytes, expected.as_bytes());
        }
        let mut rest = b"x".to_vec();
        assert_eq!(socket.receive_more(&mut rest, 100).unwrap(), 4);
        assert_eq!(rest, b"xmnop");
        let empty = socket.receive_more(&mut rest, 100).unwrap_err();
        assert_eq!(
            (empty.kind(), &*rest),
            (io::ErrorKind::WouldBlock, &b"xmnop"[..])
        );
    }
}
