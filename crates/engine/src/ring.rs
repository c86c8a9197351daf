//! Runs the worker's io_uring: receives, sends and polls of sessions, without an allocation for
//! each.
//!
//! All system calls of a turn are one io_uring_enter(2): it submits the sessions' requests and
//! returns completions.

mod buffers;
mod entry;
mod multishot;
pub(crate) mod ring_socket;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use io_uring::IoUring;
use io_uring::types::{SubmitArgs, Timespec};
use slab::Slab;

use crate::batching::Batching;
use crate::panics::Indivisible;
use crate::spare_buffers::SpareBuffers;
use crate::wakeup::Wakeup;
pub(crate) use buffers::Buffer;
use buffers::Buffers;
use entry::Entry;
use multishot::{MULTISHOT, MultishotState, poll_events};
pub(crate) use multishot::{MultishotAccept, MultishotReceive, Next};
pub(crate) use ring_socket::RingSocket;

/// Number of buffers that the kernel may fill for one worker. 512 kB in all: enough for 64
/// concurrently active sessions; beyond that, sessions read into memory of their own.
const POOL_BUFFERS: u16 = 128;

/// Size of each buffer. Queries and their replies are smaller; bulk transfers use larger buffers.
pub(crate) const POOL_BUFFER_BYTES: usize = 4 * 1024;

/// Requests per turn; more requests cause a turn of their own.
const SUBMISSIONS: u32 = 512;

/// Completions that may wait; the kernel keeps any others.
const COMPLETIONS: u32 = 4 * 1024;

/// The key of the poll for wake-ups of the worker, which is not a task's.
const WAKEUP: u64 = u64::MAX;

/// The key of requests whose completion is ignored.
const NOBODY: u64 = u64::MAX - 1;

/// One worker's ring.
pub(crate) struct Ring {
    uring: RefCell<IoUring>,
    /// Requests for which the submission queue had no space, in order.
    unsubmitted: RefCell<VecDeque<Entry>>,
    requests: RefCell<Slab<Request>>,
    multishots: RefCell<Slab<MultishotState>>,
    ports: RefCell<Slab<Rc<RingSocket>>>,
    spare_buffers: SpareBuffers,
    /// Keys and numbers of this turn's quiet sends.
    quiet_sends: RefCell<Vec<(usize, u64)>>,
    /// Ring sockets with a quiet send in this turn.
    quiet_ports: RefCell<Vec<Rc<RingSocket>>>,
    /// Number of the last quiet send.
    quiet_number: Cell<u64>,
    buffers: Rc<Buffers>,
    answers: RefCell<Vec<(u64, i32, u32)>>,
    batching: Batching,
    wakeup: Arc<Wakeup>,
}

/// A request in progress. It owns the memory that the kernel reads or writes until the completion.
struct Request {
    state: State,
    _socket: Rc<socket2::Socket>,
    buffer: Option<Buffer>,
    /// Number of a quiet send: its slot may be used by another request later. Zero: not quiet.
    quiet_number: u64,
}

enum State {
    Asked(Option<Waker>),
    Answered(i32),
    /// The requester was dropped; the completion is ignored.
    Orphaned,
}

impl Ring {
    /// Creates a ring that also watches the worker's wake-ups.
    pub(crate) fn new(wakeup: &Arc<Wakeup>) -> io::Result<Self> {
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            // A turn that does not wait learns from this flag whether there are events.
            .setup_taskrun_flag()
            .setup_cqsize(COMPLETIONS)
            .build(SUBMISSIONS)?;
        let buffers = Rc::new(Buffers::register(&uring)?);
        let ring = Self {
            uring: RefCell::new(uring),
            unsubmitted: RefCell::default(),
            requests: RefCell::default(),
            multishots: RefCell::default(),
            ports: RefCell::default(),
            spare_buffers: SpareBuffers::default(),
            quiet_sends: RefCell::default(),
            quiet_number: Cell::new(0),
            quiet_ports: RefCell::default(),
            buffers,
            answers: RefCell::default(),
            batching: Batching::new(),
            wakeup: Arc::clone(wakeup),
        };
        ring.watch_wakeup();
        Ok(ring)
    }

    /// Checks whether the kernel has what a ring needs: the pool of buffers is newer than io_uring.
    pub(crate) fn check() -> io::Result<()> {
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .build(1)?;
        Buffers::check(&uring)
    }

    /// Sends as much of a buffer as the socket takes now, within the system call of the turn.
    ///
    /// A quiet send completes only if some bytes remain, so that a successful one does not end the
    /// wait of the turn; its success is known when another event has ended the wait. It suits tasks
    /// that have no work before another event.
    pub(crate) fn send(
        &self,
        socket: &Rc<socket2::Socket>,
        buffer: Buffer,
        is_quiet: bool,
    ) -> RingRequest<'_> {
        // MSG_WAITALL: a partial send is a failure, with the number of sent bytes as its result.
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        // SAFETY: the bytes are in the ring's pool, whose memory is never freed; the request keeps
        // the buffer, so that it is not used for other bytes before the completion.
        #[expect(unsafe_code, reason = "the kernel reads the bytes later")]
        let entry = unsafe { Entry::send(&**socket, &buffer, flags) };
        if !is_quiet {
            return self.start_request(entry, socket, Some(buffer), 0);
        }
        let number = self.quiet_number.get() + 1;
        self.quiet_number.set(number);
        let asked = self.start_request(entry.quiet(), socket, Some(buffer), number);
        self.quiet_sends.borrow_mut().push((asked.key, number));
        asked
    }

    /// Waits for events of poll(2), for a failure, or for the peer's end, which io_uring always
    /// adds: the result distinguishes them.
    pub(crate) async fn poll(&self, socket: &Rc<socket2::Socket>, events: i16) -> io::Result<i16> {
        self.start_poll(socket, events).await.0.map(poll_events)
    }

    fn start_poll(&self, socket: &Rc<socket2::Socket>, events: i16) -> RingRequest<'_> {
        self.start_request(Entry::poll(&**socket, events), socket, None, 0)
    }

    fn start_request(
        &self,
        entry: Entry,
        socket: &Rc<socket2::Socket>,
        buffer: Option<Buffer>,
        quiet_number: u64,
    ) -> RingRequest<'_> {
        let _change = Indivisible::begin();
        let key = self.requests.borrow_mut().insert(Request {
            state: State::Asked(None),
            _socket: Rc::clone(socket),
            buffer,
            quiet_number,
        });
        self.submit(entry.key(key as u64));
        RingRequest {
            ring: self,
            key,
            over: false,
        }
    }

    /// Submits a request with the next system call of the turn.
    fn submit(&self, entry: Entry) {
        let mut unsubmitted = self.unsubmitted.borrow_mut();
        if !unsubmitted.is_empty() {
            return unsubmitted.push_back(entry);
        }
        let mut uring = self.uring.borrow_mut();
        let Err(entry) = entry.push(&mut uring.submission()) else {
            return;
        };
        // Full: the kernel takes the queue, unless completions have to be collected first.
        let _ = uring.submit();
        if let Err(entry) = entry.push(&mut uring.submission()) {
            unsubmitted.push_back(entry);
        }
    }

    /// Moves waiting requests to the submission queue as far as it has space.
    fn refill(&self) {
        let mut unsubmitted = self.unsubmitted.borrow_mut();
        if unsubmitted.is_empty() {
            return;
        }
        let mut uring = self.uring.borrow_mut();
        let mut queue = uring.submission();
        while let Some(entry) = unsubmitted.pop_front() {
            if let Err(entry) = entry.push(&mut queue) {
                return unsubmitted.push_front(entry);
            }
        }
    }

    fn cancel(&self, key: u64) {
        self.submit(Entry::cancel(key).key(NOBODY));
    }

    fn watch_wakeup(&self) {
        let event = self.wakeup.as_fd().as_raw_fd();
        self.submit(Entry::poll(&event, libc::POLLIN).key(WAKEUP));
    }

    /// Submits requests, waits for completions and wakes the requesters.
    pub(crate) fn poll_once(&self, timeout: Option<Duration>) {
        self.refill();
        let has_more = !self.unsubmitted.borrow().is_empty();
        self.enter(if has_more || self.awaits_quiet_port() {
            Some(Duration::ZERO)
        } else {
            timeout
        });
        let mut answers = self.answers.take();
        self.collect(&mut answers);
        let mut is_woken = false;
        for (key, result, flags) in answers.drain(..) {
            match key {
                WAKEUP => is_woken = true,
                NOBODY => {}
                _ if key & ring_socket::PORT != 0 => self.deliver_to_port(key, result, flags),
                _ if key & MULTISHOT != 0 => self.deliver_multishot(key, result, flags),
                _ => self.deliver(key as usize, result),
            }
        }
        self.answers.replace(answers);
        self.settle_quiet_sends();
        if is_woken {
            self.wakeup.reset();
            self.watch_wakeup();
        }
    }

    fn enter(&self, timeout: Option<Duration>) {
        let uring = self.uring.borrow();
        if timeout == Some(Duration::ZERO) {
            // To wait for an event and no time, the kernel would arm a timer and put the thread to
            // sleep until it expires.
            let _ = uring.submit();
            return;
        }
        let (events, timeout) = self.batching.next_wait(timeout);
        let time = timeout.map(Timespec::from);
        let args = match &time {
            Some(time) => SubmitArgs::new().timespec(time),
            None => SubmitArgs::new(),
        };
        // Timeouts and signals are no errors, and a full completion queue is emptied next.
        let _ = uring.submitter().submit_with_args(events, &args);
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
    ///
    /// A send with MSG_DONTWAIT ends while the kernel takes it from the submission queue, and a
    /// partial one has a completion. Once that queue is empty and all completions are collected,
    /// a send without one has therefore sent everything.
    fn settle_quiet_sends(&self) {
        let is_taken = self.uring.borrow_mut().submission().is_empty();
        if !is_taken || !self.unsubmitted.borrow().is_empty() {
            return;
        }
        self.settle_quiet_ports();
        let mut sends = self.quiet_sends.take();
        for (key, number) in sends.drain(..) {
            if let Some(length) = self.unanswered(key, number) {
                self.deliver(key, length);
            }
        }
        self.quiet_sends.replace(sends);
    }

    /// Returns the length of a quiet send that has no completion.
    fn unanswered(&self, key: usize, number: u64) -> Option<i32> {
        let requests = self.requests.borrow();
        let request = requests.get(key).filter(|one| one.quiet_number == number)?;
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

impl Drop for Ring {
    /// Keeps the memory of sends in progress for ever: the kernel closes a ring asynchronously, and
    /// may read it after this. A ring lives as long as its worker, which ends with the process.
    fn drop(&mut self) {
        for (_, port) in self.ports.get_mut() {
            port.keep_payload();
        }
        for (_, request) in self.requests.get_mut() {
            std::mem::forget(request.buffer.take());
        }
    }
}

/// A request that a task waits for. If dropped, it is canceled, and its memory stays until the
/// kernel has completed it.
pub(crate) struct RingRequest<'a> {
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
    /// The result, and the buffer of a send.
    type Output = (io::Result<usize>, Option<Buffer>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let _change = Indivisible::begin();
        let mut requests = self.ring.requests.borrow_mut();
        let request = &mut requests[self.key];
        match &mut request.state {
            State::Answered(result) => {
                let result = *result;
                let request = requests.remove(self.key);
                drop(requests);
                self.over = true;
                Poll::Ready((checked(result), request.buffer))
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
        let _change = Indivisible::begin();
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
