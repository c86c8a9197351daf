//! Receives repeatedly with one request: the kernel takes a buffer of the ring whenever bytes
//! arrive.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::io;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::task::{Poll, Waker};

use compio::driver::SharedFd;
use io_uring::types::Fd;
use io_uring::{cqueue, opcode, squeue};

use super::buffers::BUFFER_GROUP;
use super::{Buffer, Ring, RingRequest, checked};

/// Flag in the keys of multishot requests.
pub(super) const RECEIVING: u64 = 1 << 32;

/// `IORING_RECVSEND_POLL_FIRST` of io_uring_enter(2): wait for data before the first try.
pub(super) const POLL_FIRST: u16 = 1;

/// `IORING_RECV_MULTISHOT` of io_uring_enter(2).
const MULTISHOT: u16 = 1 << 1;

/// The ring's state of a multishot request.
pub(super) struct MultishotState {
    /// Results in order; `None` is the peer's end.
    arrived: VecDeque<io::Result<Option<Buffer>>>,
    /// True if the kernel will report no more.
    is_over: bool,
    is_orphan: bool,
    waker: Option<Waker>,
    _socket: SharedFd<socket2::Socket>,
}

/// A request to receive until the peer's end, a failure or a stop. If dropped, it is canceled, and
/// data that still arrives is lost.
pub(crate) struct MultishotReceive<'a> {
    ring: &'a Ring,
    key: usize,
    /// Separate poll for the peer's end or failure: if it coincides with the last bytes, the kernel
    /// may not report it after them (seen with Unix sockets on Linux 6.18).
    hangup: Option<RingRequest<'a>>,
}

impl Ring {
    /// Starts to receive.
    pub(crate) fn receive(&self, socket: &SharedFd<socket2::Socket>) -> MultishotReceive<'_> {
        let key = self.streams.borrow_mut().insert(MultishotState {
            arrived: VecDeque::new(),
            is_over: false,
            is_orphan: false,
            waker: None,
            _socket: socket.clone(),
        });
        let entry = opcode::Recv::new(Fd(socket.as_raw_fd()), std::ptr::null_mut(), 0)
            .buf_group(BUFFER_GROUP)
            .ioprio(MULTISHOT | POLL_FIRST)
            .build()
            .flags(squeue::Flags::BUFFER_SELECT)
            .user_data(key as u64 | RECEIVING);
        self.submit(&entry);
        MultishotReceive {
            ring: self,
            key,
            hangup: Some(self.start_poll(socket, libc::POLLRDHUP)),
        }
    }

    pub(super) fn received(&self, key: u64, result: i32, flags: u32) {
        let buffer = cqueue::buffer_select(flags)
            .map(|id| Buffer::new(&self.buffers, id, usize::try_from(result).unwrap_or(0)));
        let arrived = checked(result).map(|count| buffer.filter(|_| count > 0));
        let key = (key & !RECEIVING) as usize;
        let mut streams = self.streams.borrow_mut();
        let Some(stream) = streams.get_mut(key) else {
            return;
        };
        stream.is_over = !cqueue::more(flags);
        if stream.is_orphan {
            let over = stream.is_over.then(|| streams.remove(key));
            drop(streams);
            return drop(over);
        }
        stream.arrived.push_back(arrived);
        if let Some(waker) = stream.waker.take() {
            drop(streams);
            waker.wake();
        }
    }
}

impl MultishotReceive<'_> {
    /// Waits for the next result.
    pub(crate) async fn next(&mut self) -> Next {
        poll_fn(|context| {
            let mut streams = self.ring.streams.borrow_mut();
            let stream = &mut streams[self.key];
            if let Some(arrived) = stream.arrived.pop_front() {
                return Poll::Ready(Next::of(arrived));
            }
            if stream.is_over {
                return Poll::Ready(Next::Stopped);
            }
            let known = stream.waker.as_ref();
            if !known.is_some_and(|known| known.will_wake(context.waker())) {
                stream.waker = Some(context.waker().clone());
            }
            drop(streams);
            let hangup = self.hangup.as_mut();
            if hangup.is_some_and(|hangup| Pin::new(hangup).poll(context).is_ready()) {
                self.hangup = None;
                self.stop();
            }
            Poll::Pending
        })
        .await
    }

    /// Returns whether [`Self::next`] has no result yet.
    pub(crate) fn must_wait(&self) -> bool {
        let stream = &self.ring.streams.borrow()[self.key];
        let has_hung_up = self.hangup.as_ref().is_some_and(RingRequest::is_answered);
        stream.arrived.is_empty() && !stream.is_over && !has_hung_up
    }

    /// Requests the kernel to stop; data that has arrived by then can still be taken.
    pub(crate) fn stop(&self) {
        if !self.ring.streams.borrow()[self.key].is_over {
            self.ring.cancel(self.key as u64 | RECEIVING);
        }
    }
}

/// Result of a request to receive.
pub(crate) enum Next {
    Bytes(Buffer),
    /// The peer has ended its sending.
    End,
    /// No further data: the request was stopped, the peer hung up, or the ring had no free buffer.
    Stopped,
    Failed(io::Error),
}

impl Next {
    fn of(arrived: io::Result<Option<Buffer>>) -> Self {
        match arrived {
            Ok(Some(buffer)) => Self::Bytes(buffer),
            Ok(None) => Self::End,
            Err(error) => match error.raw_os_error() {
                Some(libc::ECANCELED | libc::ENOBUFS) => Self::Stopped,
                _ => Self::Failed(error),
            },
        }
    }
}

impl Drop for MultishotReceive<'_> {
    fn drop(&mut self) {
        let mut streams = self.ring.streams.borrow_mut();
        let stream = &mut streams[self.key];
        if stream.is_over {
            let over = streams.remove(self.key);
            drop(streams);
            return drop(over);
        }
        stream.is_orphan = true;
        let late = std::mem::take(&mut stream.arrived);
        drop(streams);
        drop(late);
        self.ring.cancel(self.key as u64 | RECEIVING);
    }
}
