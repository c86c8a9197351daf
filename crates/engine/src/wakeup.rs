//! Ends the wait of a worker from another thread, by eventfd(2).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use rustix::event::{EventfdFlags, eventfd};

/// Wakes one worker.
pub(crate) struct Wakeup {
    event: OwnedFd,
    /// True from the first wake-up until the worker takes it: further ones cost no system call.
    is_pending: AtomicBool,
}

impl Wakeup {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self {
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            is_pending: AtomicBool::new(false),
        })
    }

    /// Makes the descriptor readable, which ends the worker's wait.
    pub(crate) fn wake(&self) {
        if !self.is_pending.swap(true, SeqCst) {
            // Fails only if the counter is full: then the descriptor is readable.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    /// Takes the wake-ups so far. Returns whether there were any. Work that was queued before
    /// them must be looked for afterwards.
    pub(crate) fn take(&self) -> bool {
        self.is_pending.load(SeqCst) && self.is_pending.swap(false, SeqCst)
    }

    /// Makes the descriptor unreadable again, after the poller has reported it.
    pub(crate) fn reset(&self) {
        // It may have been read already.
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }
}

impl AsFd for Wakeup {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
