//! Runs one worker: a thread with its own poller, tasks and timers.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::Driver;
use crate::executor::Executor;
use crate::panics::Indivisible;
use crate::reactor::Reactor;
use crate::ring::Ring;
use crate::spare_buffers::SpareBuffers;
use crate::timers;
use crate::wakeup::Wakeup;

/// The epoll driver's one receive buffer per worker.
const SCRATCH_BYTES: usize = 64 * 1024;

/// Bytes per receive after a full receive: large enough that the system calls of a bulk transfer
/// are negligible, small enough that a worker with many of them stays in the cache.
pub(crate) const LARGE_BYTES: usize = 64 * 1024;

/// Number of large buffers kept for the next bulk transfer; more are freed.
const LARGE_BUFFERS_KEPT: usize = 8;

/// One worker, as the tasks on it see it.
pub struct Worker {
    index: usize,
    pub(crate) poller: Poller,
    executor: Executor,
    pub(crate) scratch: RefCell<Box<[u8]>>,
    large_buffers: RefCell<Vec<Box<[u8]>>>,
    spare_buffers: SpareBuffers,
    is_stopped: Cell<bool>,
}

impl Worker {
    /// Prepares a worker on its own thread; all fallible steps happen here.
    pub(crate) fn new(index: usize, driver: Driver) -> io::Result<Rc<Self>> {
        let wakeup = Arc::new(Wakeup::new()?);
        let poller = match driver {
            Driver::Epoll => Poller::Epoll(Reactor::new(&wakeup)?),
            Driver::IoUring => Poller::IoUring(Rc::new(Ring::new(&wakeup)?)),
        };
        let scratch_bytes = match &poller {
            Poller::Epoll(_) => SCRATCH_BYTES,
            Poller::IoUring(_) => 0,
        };
        Ok(Rc::new(Self {
            index,
            poller,
            executor: Executor::new(&wakeup),
            scratch: RefCell::new(vec![0; scratch_bytes].into_boxed_slice()),
            large_buffers: RefCell::default(),
            spare_buffers: SpareBuffers::default(),
            is_stopped: Cell::new(false),
        }))
    }

    /// Returns the worker's number, from zero.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Starts a task. If it panics, it ends alone.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.executor.spawn(task);
    }

    /// Starts a task that the worker's sessions need. If it panics, the process ends.
    pub fn spawn_vital(&self, task: impl Future<Output = ()> + 'static) {
        self.spawn(async move {
            let _serves_all = Indivisible::begin();
            task.await;
        });
    }

    /// Returns a buffer for bulk transfers, which is released on drop.
    pub(crate) fn large_buffer(&self) -> LargeBuffer<'_> {
        let kept = self.large_buffers.borrow_mut().pop();
        let bytes = kept.unwrap_or_else(|| vec![0; LARGE_BYTES].into_boxed_slice());
        LargeBuffer {
            worker: self,
            bytes,
        }
    }

    /// Returns empty memory for a send.
    pub fn take_spare(&self) -> Vec<u8> {
        match &self.poller {
            Poller::IoUring(ring) => ring.take_spare(),
            Poller::Epoll(_) => self.spare_buffers.take(),
        }
    }

    /// Takes memory back.
    pub fn keep_spare(&self, bytes: Vec<u8>) {
        match &self.poller {
            Poller::IoUring(ring) => ring.keep_spare(bytes),
            Poller::Epoll(_) => self.spare_buffers.keep(bytes),
        }
    }

    pub(crate) fn stop(&self) {
        self.is_stopped.set(true);
    }

    /// Runs the tasks until the worker is stopped.
    pub(crate) fn run(&self) {
        let _serves_all = Indivisible::begin();
        while !self.is_stopped.get() {
            self.run_turn();
        }
    }

    /// Runs the tasks that have work now. Returns whether any has work left.
    #[cfg(any(test, feature = "scripted"))]
    pub(crate) fn run_ready(&self) -> bool {
        self.executor.run();
        self.executor.has_runnable()
    }

    /// Runs the tasks that have work, then waits for more.
    fn run_turn(&self) {
        self.executor.run();
        let next_timer = timers::wake_due();
        let timeout = match self.executor.has_runnable() {
            true => Some(Duration::ZERO),
            false => next_timer,
        };
        self.poller.poll_once(timeout);
    }
}

/// Mechanism that a worker waits with.
pub(crate) enum Poller {
    Epoll(Reactor),
    IoUring(Rc<Ring>),
}

impl Poller {
    pub(crate) fn poll_once(&self, timeout: Option<Duration>) {
        match self {
            Self::Epoll(reactor) => reactor.poll_once(timeout),
            Self::IoUring(ring) => ring.poll_once(timeout),
        }
    }
}

/// A buffer for bulk transfers.
pub(crate) struct LargeBuffer<'a> {
    worker: &'a Worker,
    bytes: Box<[u8]>,
}

impl std::ops::Deref for LargeBuffer<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl std::ops::DerefMut for LargeBuffer<'_> {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

impl Drop for LargeBuffer<'_> {
    fn drop(&mut self) {
        let mut kept = self.worker.large_buffers.borrow_mut();
        if kept.len() < LARGE_BUFFERS_KEPT {
            kept.push(std::mem::take(&mut self.bytes));
        }
    }
}
