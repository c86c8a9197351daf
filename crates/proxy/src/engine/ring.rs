//! Runs the worker's io_uring: receives, sends and polls of sessions, without an allocation for
//! each.
//!
//! All system calls of a turn are one io_uring_enter(2): it submits the sessions' requests and
//! returns completions.

mod buffers;
mod multishot;
pub(crate) mod ring_socket;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use compio::driver::SharedFd;
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use slab::Slab;

use super::spare_buffers::SpareBuffers;
pub(crate) use buffers::Buffer;
use buffers::Buffers;
pub(crate) use multishot::{MultishotReceive, Next};
use multishot::{MultishotState, RECEIVING};
pub(crate) use ring_socket::RingSocket;

/// Requests per turn; more requests cause a turn of their own.
const SUBMISSIONS: u32 = 512;

/// Completions that may wait; the kernel keeps any others.
const COMPLETIONS: u32 = 4 * 1024;

/// The key of the runtime's own descriptor, which is not a session's.
const RUNTIME: u64 = u64::MAX;

/// The key of requests whose completion is ignored.
const NOBODY: u64 = u64::MAX - 1;

/// One worker's ring.
pub(crate) struct Ring {
    uring: RefCell<IoUring>,
    requests: RefCell<Slab<Request>>,
    streams: RefCell<Slab<MultishotState>>,
    ports: RefCell<Slab<Rc<RingSocket>>>,
    spare_buffers: SpareBuffers,
    /// Keys of this turn's quiet sends.
    quiet_sends: RefCell<Vec<usize>>,
    buffers: Rc<Buffers>,
    answers: RefCell<Vec<(u64, i32, u32)>>,
    runtime: RawFd,
}

/// A request in progress. It owns the memory that the kernel reads or writes until the completion.
struct Request {
    state: State,
    _socket: SharedFd<socket2::Socket>,
    buffer: Option<Buffer>,
}

enum State {
    Asked(Option<Waker>),
    Answered(i32),
    /// The requester was dropped; the completion is ignored.
    Orphaned,
}

impl Ring {
    /// Creates a ring that also watches the runtime's descriptor.
    pub(crate) fn new(runtime: RawFd) -> io::Result<Self> {
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_cqsize(COMPLETIONS)
            .build(SUBMISSIONS)?;
        let buffers = Rc::new(Buffers::register(&uring)?);
        let ring = Self {
            uring: RefCell::new(uring),
            requests: RefCell::default(),
            streams: RefCell::default(),
            ports: RefCell::default(),
            spare_buffers: SpareBuffers::default(),
            quiet_sends: RefCell::default(),
            buffers,
            answers: RefCell::default(),
            runtime,
        };
        ring.watch_runtime();
        Ok(ring)
    }

    /// Sends as much of a buffer as the socket takes now, within the system call of the turn.
    ///
    /// A quiet send completes only if some bytes remain, so that a successful one does not end the
    /// wait of the turn; its success is known when another event has ended the wait. It suits tasks
    /// that have no work before another event.
    pub(crate) async fn send(
        &self,
        socket: &SharedFd<socket2::Socket>,
        buffer: Buffer,
        is_quiet: bool,
    ) -> (io::Result<usize>, Option<Buffer>) {
        let length = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        // MSG_WAITALL: a partial send is a failure, with the number of sent bytes as its result.
        let mut entry = opcode::Send::new(Fd(socket.as_raw_fd()), buffer.as_ptr(), length)
            .flags(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
            .build();
        if is_quiet {
            entry = entry.flags(squeue::Flags::SKIP_SUCCESS);
        }
        let asked = self.start_request(entry, socket, Some(buffer));
        if is_quiet {
            self.quiet_sends.borrow_mut().push(asked.key);
        }
        let (result, buffer) = asked.await;
        (checked(result), buffer)
    }

    /// Waits for events of poll(2), for a failure, or for the peer's end, which io_uring always
    /// adds: the result distinguishes them.
    pub(crate) async fn poll(
        &self,
        socket: &SharedFd<socket2::Socket>,
        events: i16,
    ) -> io::Result<i16> {
        let answer = checked(self.start_poll(socket, events).await.0)?;
        Ok(i16::try_from(answer & 0x7fff).unwrap_or(i16::MAX))
    }

    fn start_poll(&self, socket: &SharedFd<socket2::Socket>, events: i16) -> RingRequest<'_> {
        let events = u32::from(events.cast_unsigned());
        let entry = opcode::PollAdd::new(Fd(socket.as_raw_fd()), events).build();
        self.start_request(entry, socket, None)
    }

    fn start_request(
        &self,
        entry: squeue::Entry,
        socket: &SharedFd<socket2::Socket>,
        buffer: Option<Buffer>,
    ) -> RingRequest<'_> {
        let key = self.requests.borrow_mut().insert(Request {
            state: State::Asked(None),
            _socket: socket.clone(),
            buffer,
        });
        self.submit(&entry.user_data(key as u64));
        RingRequest {
            ring: self,
            key,
            over: false,
        }
    }

    fn submit(&self, entry: &squeue::Entry) {
        let mut uring = self.uring.borrow_mut();
        loop {
            // SAFETY: what the entry points to is owned by its request until the answer is in.
            #[expect(unsafe_code, reason = "the ring cannot know how long memory lives")]
            let pushed = unsafe { uring.submission().push(entry) };
            if pushed.is_ok() {
                return;
            }
            // Full: an error leaves the queue as it is, and the next try returns it again.
            let _ = uring.submit();
        }
    }

    fn cancel(&self, key: u64) {
        let cancel = opcode::AsyncCancel::new(key).build();
        self.submit(&cancel.user_data(NOBODY));
    }

    fn watch_runtime(&self) {
        let events = u32::from(libc::POLLIN.cast_unsigned());
        let entry = opcode::PollAdd::new(Fd(self.runtime), events).build();
        self.submit(&entry.user_data(RUNTIME));
    }

    /// Submits requests, waits for completions and wakes the requesters. Returns true if the
    /// runtime has work.
    pub(crate) fn poll_once(&self, timeout: Option<Duration>) -> bool {
        self.enter(timeout);
        let mut answers = self.answers.take();
        self.collect(&mut answers);
        let mut is_runtime_ready = false;
        for (key, result, flags) in answers.drain(..) {
            match key {
                RUNTIME => is_runtime_ready = true,
                NOBODY => {}
                _ if key & ring_socket::PORT != 0 => self.deliver_to_port(key, result, flags),
                _ if key & RECEIVING != 0 => self.received(key, result, flags),
                _ => self.deliver(key as usize, result),
            }
        }
        self.answers.replace(answers);
        self.settle_quiet_sends();
        if is_runtime_ready {
            self.watch_runtime();
        }
        is_runtime_ready
    }

    fn enter(&self, timeout: Option<Duration>) {
        let uring = self.uring.borrow();
        let time = timeout.map(Timespec::from);
        let args = match &time {
            Some(time) => SubmitArgs::new().timespec(time),
            None => SubmitArgs::new(),
        };
        // Timeouts and signals are no errors, and a full completion queue is emptied next.
        let _ = uring.submitter().submit_with_args(1, &args);
    }

    /// Takes all completions, including those that did not fit: a missing one is significant, too.
    fn collect(&self, answers: &mut Vec<(u64, i32, u32)>) {
        let mut uring = self.uring.borrow_mut();
        loop {
            let said = uring.completion();
            answers
                .extend(said.map(|answer| (answer.user_data(), answer.result(), answer.flags())));
            if !uring.submission().cq_overflow() {
                return;
            }
            // Fetches completions that did not fit.
            let _ = uring.submit();
        }
    }

    /// Marks quiet sends without a completion as fully sent.
    fn settle_quiet_sends(&self) {
        if !self.uring.borrow_mut().submission().is_empty() {
            return;
        }
        let mut sends = self.quiet_sends.take();
        for key in sends.drain(..) {
            if let Some(length) = self.unanswered(key) {
                self.deliver(key, length);
            }
        }
        self.quiet_sends.replace(sends);
    }

    /// Returns the length of a quiet send that has no completion.
    fn unanswered(&self, key: usize) -> Option<i32> {
        let requests = self.requests.borrow();
        let request = requests.get(key)?;
        let is_answered = matches!(request.state, State::Answered(_));
        let buffer = request.buffer.as_ref().filter(|_| !is_answered)?;
        i32::try_from(buffer.len()).ok()
    }

    fn deliver(&self, key: usize, result: i32) {
        let mut requests = self.requests.borrow_mut();
        let Some(request) = requests.get_mut(key) else {
            return;
        };
        match std::mem::replace(&mut request.state, State::Answered(result)) {
            State::Asked(waker) => {
                drop(requests);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            State::Answered(_) | State::Orphaned => {
                let orphan = requests.remove(key);
                drop(requests);
                drop(orphan);
            }
        }
    }
}

/// A request that a task waits for. If dropped, it is canceled, and its memory stays until the
/// kernel has completed it.
struct RingRequest<'a> {
    ring: &'a Ring,
    key: usize,
    over: bool,
}

impl RingRequest<'_> {
    fn is_answered(&self) -> bool {
        let requests = self.ring.requests.borrow();
        matches!(requests[self.key].state, State::Answered(_))
    }
}

impl Future for RingRequest<'_> {
    type Output = (i32, Option<Buffer>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut requests = self.ring.requests.borrow_mut();
        let request = &mut requests[self.key];
        match &mut request.state {
            State::Answered(result) => {
                let result = *result;
                let request = requests.remove(self.key);
                drop(requests);
                self.over = true;
                Poll::Ready((result, request.buffer))
            }
            State::Asked(waker) => {
                if !waker
                    .as_ref()
                    .is_some_and(|known| known.will_wake(context.waker()))
                {
                    *waker = Some(context.waker().clone());
                }
                Poll::Pending
            }
            State::Orphaned => Poll::Pending,
        }
    }
}

impl Drop for RingRequest<'_> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let mut requests = self.ring.requests.borrow_mut();
        let request = &mut requests[self.key];
        if matches!(request.state, State::Answered(_)) {
            let orphan = requests.remove(self.key);
            drop(requests);
            return drop(orphan);
        }
        request.state = State::Orphaned;
        drop(requests);
        self.ring.cancel(self.key as u64);
    }
}

fn checked(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}
