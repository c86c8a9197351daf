//! Builds requests for the ring. Only these functions make an [`Entry`], so that a request whose
//! memory could vanish cannot be submitted by safe code.

use std::os::fd::AsRawFd;

use io_uring::types::Fd;
use io_uring::{opcode, squeue};

use super::buffers::BUFFER_GROUP;

/// `IORING_RECVSEND_POLL_FIRST` of io_uring_enter(2): wait for data before the first try.
const POLL_FIRST: u16 = 1;

/// `IORING_RECV_MULTISHOT` of io_uring_enter(2).
const MULTISHOT: u16 = 1 << 1;

/// A request to the kernel. The memory that it names stays until its completion.
pub(super) struct Entry(squeue::Entry);

impl Entry {
    /// Polls once for events of poll(2).
    pub(super) fn poll(fd: &impl AsRawFd, events: i16) -> Self {
        Self(opcode::PollAdd::new(Fd(fd.as_raw_fd()), poll_mask(events)).build())
    }

    /// Polls for events of poll(2) until it is canceled: one completion for each change.
    pub(super) fn poll_changes(fd: &impl AsRawFd, events: i16) -> Self {
        let entry = opcode::PollAdd::new(Fd(fd.as_raw_fd()), poll_mask(events));
        Self(entry.multi(true).build())
    }

    /// Cancels the request with this key.
    pub(super) fn cancel(key: u64) -> Self {
        Self(opcode::AsyncCancel::new(key).build())
    }

    /// Accepts clients until it is canceled or fails.
    pub(super) fn accept(fd: &impl AsRawFd) -> Self {
        let entry = opcode::AcceptMulti::new(Fd(fd.as_raw_fd()));
        Self(entry.flags(libc::SOCK_CLOEXEC).build())
    }

    /// Receives once into a buffer of the ring; `poll_first`: the socket is known to be empty.
    pub(super) fn receive(fd: &impl AsRawFd, poll_first: bool) -> Self {
        let flags = if poll_first { POLL_FIRST } else { 0 };
        Self(receive(fd, flags))
    }

    /// Receives into buffers of the ring until it is canceled or fails, or until no buffer is free.
    pub(super) fn receive_always(fd: &impl AsRawFd) -> Self {
        Self(receive(fd, MULTISHOT | POLL_FIRST))
    }

    /// Sends bytes with flags of send(2).
    ///
    /// # Safety
    ///
    /// The bytes stay where they are, unchanged, until the request is completed.
    #[expect(
        unsafe_code,
        reason = "the kernel reads the bytes after the return of this function"
    )]
    pub(super) unsafe fn send(fd: &impl AsRawFd, bytes: &[u8], flags: i32) -> Self {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let entry = opcode::Send::new(Fd(fd.as_raw_fd()), bytes.as_ptr(), length);
        Self(entry.flags(flags).build())
    }

    /// Omits the completion of a success.
    pub(super) fn quiet(self) -> Self {
        Self(self.0.flags(squeue::Flags::SKIP_SUCCESS))
    }

    /// Sets the key that completions carry.
    pub(super) fn key(self, key: u64) -> Self {
        Self(self.0.user_data(key))
    }

    /// Adds the request to the submission queue. Returns it if the queue is full.
    pub(super) fn push(self, queue: &mut squeue::SubmissionQueue<'_>) -> Result<(), Self> {
        // SAFETY: the functions above are the only source of entries. All but `send` name no memory
        // but the ring's pool, which is never freed; the caller of `send` has promised the rest.
        #[expect(unsafe_code, reason = "the queue cannot know how long memory lives")]
        let pushed = unsafe { queue.push(&self.0) };
        pushed.map_err(|_| self)
    }
}

fn poll_mask(events: i16) -> u32 {
    u32::from(events.cast_unsigned())
}

fn receive(fd: &impl AsRawFd, flags: u16) -> squeue::Entry {
    opcode::Recv::new(Fd(fd.as_raw_fd()), std::ptr::null_mut(), 0)
        .buf_group(BUFFER_GROUP)
        .ioprio(flags)
        .build()
        .flags(squeue::Flags::BUFFER_SELECT)
}
