//! The worker's io_uring: receives, sends and polls of sessions, without an allocation for each.
//!
//! All system calls of a turn are one io_uring_enter(2): what the sessions have asked for goes in,
//! what has been done comes out.

mod buffers;

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
use io_uring::{IoUring, cqueue, opcode, squeue};
use slab::Slab;

pub(crate) use buffers::Buffer;
use buffers::{BUFFER_GROUP, Buffers};

/// Requests per turn; more make a turn of their own.
const SUBMISSIONS: u32 = 512;

/// Answers that may wait; the kernel keeps what does not fit.
const COMPLETIONS: u32 = 4 * 1024;

/// The key of the runtime's own descriptor, which is no session's.
const RUNTIME: u64 = u64::MAX;

/// The key of requests whose answer nobody wants.
const NOBODY: u64 = u64::MAX - 1;

/// `IORING_RECVSEND_POLL_FIRST` of io_uring_enter(2): do not try before there is something.
const POLL_FIRST: u16 = 1;

/// One worker's ring.
pub(crate) struct Ring {
    uring: RefCell<IoUring>,
    requests: RefCell<Slab<Request>>,
    buffers: Rc<Buffers>,
    answers: RefCell<Vec<(u64, i32, u32)>>,
    runtime: RawFd,
}

/// A request under way. What the kernel reads or writes lives here until it has answered.
struct Request {
    state: State,
    _socket: SharedFd<socket2::Socket>,
    buffer: Option<Buffer>,
}

enum State {
    Asked(Option<Waker>),
    Answered(i32, u32),
    /// Whoever asked is gone; the answer is thrown away.
    Orphaned,
}

impl Ring {
    /// A ring that also watches the runtime's descriptor.
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
            buffers,
            answers: RefCell::default(),
            runtime,
        };
        ring.watch_runtime();
        Ok(ring)
    }

    /// Receives into a buffer of the ring, taken when bytes are there; zero bytes are the end.
    pub(crate) async fn receive(
        &self,
        socket: &SharedFd<socket2::Socket>,
        is_drained: bool,
    ) -> (io::Result<Option<Buffer>>, bool) {
        let entry = opcode::Recv::new(Fd(socket.as_raw_fd()), std::ptr::null_mut(), 0)
            .buf_group(BUFFER_GROUP)
            .ioprio(if is_drained { POLL_FIRST } else { 0 })
            .build()
            .flags(squeue::Flags::BUFFER_SELECT);
        let (result, flags, _) = self.ask(entry, socket, None).await;
        let buffer = cqueue::buffer_select(flags)
            .map(|id| Buffer::new(&self.buffers, id, usize::try_from(result).unwrap_or(0)));
        let received = checked(result).map(|count| buffer.filter(|_| count > 0));
        (received, !cqueue::sock_nonempty(flags))
    }

    /// Sends a buffer as far as the socket takes it now.
    pub(crate) async fn send(
        &self,
        socket: &SharedFd<socket2::Socket>,
        buffer: Buffer,
    ) -> (io::Result<usize>, Option<Buffer>) {
        let length = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
        let entry = opcode::Send::new(Fd(socket.as_raw_fd()), buffer.as_ptr(), length)
            .flags(libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
            .build();
        let (result, _, buffer) = self.ask(entry, socket, Some(buffer)).await;
        (checked(result), buffer)
    }

    /// Waits for events of poll(2), or for a failure, or for the peer's end, which io_uring adds
    /// unasked: the answer says which it was.
    pub(crate) async fn poll(
        &self,
        socket: &SharedFd<socket2::Socket>,
        events: i16,
    ) -> io::Result<i16> {
        let events = u32::from(events.cast_unsigned());
        let entry = opcode::PollAdd::new(Fd(socket.as_raw_fd()), events).build();
        let answer = checked(self.ask(entry, socket, None).await.0)?;
        Ok(i16::try_from(answer & 0x7fff).unwrap_or(i16::MAX))
    }

    fn ask(
        &self,
        entry: squeue::Entry,
        socket: &SharedFd<socket2::Socket>,
        buffer: Option<Buffer>,
    ) -> Asked<'_> {
        let key = self.requests.borrow_mut().insert(Request {
            state: State::Asked(None),
            _socket: socket.clone(),
            buffer,
        });
        self.submit(&entry.user_data(key as u64));
        Asked {
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
            // Full: an error leaves the queue as it is, and the next try says so again.
            let _ = uring.submit();
        }
    }

    fn watch_runtime(&self) {
        let events = u32::from(libc::POLLIN.cast_unsigned());
        let entry = opcode::PollAdd::new(Fd(self.runtime), events).build();
        self.submit(&entry.user_data(RUNTIME));
    }

    /// Submits what was asked, waits for answers and wakes who asked. True if the runtime has
    /// something to do.
    pub(crate) fn turn(&self, timeout: Option<Duration>) -> bool {
        self.enter(timeout);
        let mut answers = self.answers.take();
        answers.extend(
            self.uring
                .borrow_mut()
                .completion()
                .map(|answer| (answer.user_data(), answer.result(), answer.flags())),
        );
        let mut is_runtime_ready = false;
        for (key, result, flags) in answers.drain(..) {
            match key {
                RUNTIME => is_runtime_ready = true,
                NOBODY => {}
                _ => self.deliver(key, result, flags),
            }
        }
        self.answers.replace(answers);
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
        // Time-outs and signals are no errors, and a full completion queue is emptied next.
        let _ = uring.submitter().submit_with_args(1, &args);
    }

    fn deliver(&self, key: u64, result: i32, flags: u32) {
        let mut requests = self.requests.borrow_mut();
        let Some(request) = usize::try_from(key)
            .ok()
            .and_then(|key| requests.get_mut(key))
        else {
            return;
        };
        let answered = State::Answered(result, flags);
        match std::mem::replace(&mut request.state, answered) {
            State::Asked(waker) => {
                drop(requests);
                if let Some(waker) = waker {
                    waker.wake();
                }
            }
            State::Answered(..) | State::Orphaned => {
                let orphan = requests.remove(key as usize);
                drop(requests);
                if let Some(id) = cqueue::buffer_select(flags) {
                    drop(Buffer::new(&self.buffers, id, 0));
                }
                drop(orphan);
            }
        }
    }
}

/// A request that somebody waits for. Given up, it is cancelled, and its memory stays until the
/// kernel has answered.
struct Asked<'a> {
    ring: &'a Ring,
    key: usize,
    over: bool,
}

impl Future for Asked<'_> {
    type Output = (i32, u32, Option<Buffer>);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut requests = self.ring.requests.borrow_mut();
        let request = &mut requests[self.key];
        match &mut request.state {
            State::Answered(result, flags) => {
                let (result, flags) = (*result, *flags);
                let request = requests.remove(self.key);
                drop(requests);
                self.over = true;
                Poll::Ready((result, flags, request.buffer))
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

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        let mut requests = self.ring.requests.borrow_mut();
        let request = &mut requests[self.key];
        if let State::Answered(_, flags) = request.state {
            let orphan = requests.remove(self.key);
            drop(requests);
            if let Some(id) = cqueue::buffer_select(flags) {
                drop(Buffer::new(&self.ring.buffers, id, 0));
            }
            return drop(orphan);
        }
        request.state = State::Orphaned;
        drop(requests);
        let cancel = opcode::AsyncCancel::new(self.key as u64).build();
        self.ring.submit(&cancel.user_data(NOBODY));
    }
}

fn checked(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}
