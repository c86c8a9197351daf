//! Manages the ring's pool of receive buffers: the kernel takes one when bytes arrive, and gets it
//! back when its holder drops it.

use std::cell::Cell;
use std::io;
use std::ops::Deref;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering::Release};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;

use crate::ring::{POOL_BUFFER_BYTES, POOL_BUFFERS};

/// Each worker's ring has one group.
pub(super) const BUFFER_GROUP: u16 = 0;

/// Memory shared with the kernel. It is never freed: a worker lives as long as the process, and the
/// kernel may still write when a ring is closed.
pub(super) struct Buffers {
    entries: NonNull<BufRingEntry>,
    memory: NonNull<u8>,
    tail: Cell<u16>,
}

/// The kernel requires the entries on a page of their own; on some machines that is 64 kB.
#[repr(C, align(65536))]
struct Entries([u8; BYTES]);

const BYTES: usize = POOL_BUFFERS as usize * size_of::<BufRingEntry>();

impl Buffers {
    pub(super) fn register(uring: &IoUring) -> io::Result<Self> {
        let entries = NonNull::from(Box::leak(Box::new(Entries([0; BYTES])))).cast();
        let memory = vec![0_u8; usize::from(POOL_BUFFERS) * POOL_BUFFER_BYTES].leak();
        let memory = NonNull::from(memory).cast();
        let address = entries.as_ptr() as u64;
        // SAFETY: the entries are page-aligned, as many as said, and never freed.
        #[expect(unsafe_code, reason = "the kernel is given memory to write to")]
        unsafe {
            let submitter = uring.submitter();
            submitter.register_buf_ring_with_flags(address, POOL_BUFFERS, BUFFER_GROUP, 0)?;
        }
        let buffers = Self {
            entries,
            memory,
            tail: Cell::new(0),
        };
        (0..POOL_BUFFERS).for_each(|id| buffers.release(id));
        Ok(buffers)
    }

    /// Checks whether the kernel accepts a pool of buffers: registers the smallest one.
    pub(super) fn check(uring: &IoUring) -> io::Result<()> {
        let entries = Box::new(Entries([0; BYTES]));
        let address = NonNull::from(&*entries).as_ptr() as u64;
        // SAFETY: the entries are page-aligned, and outlive the registration. No request uses
        // them, so the kernel writes nowhere.
        #[expect(unsafe_code, reason = "the kernel is given memory to write to")]
        unsafe {
            let submitter = uring.submitter();
            submitter.register_buf_ring_with_flags(address, 1, BUFFER_GROUP, 0)?;
        }
        let removed = uring.submitter().unregister_buf_ring(BUFFER_GROUP);
        if removed.is_err() {
            // The registration ends with the ring, which may be later than this function.
            Box::leak(entries);
        }
        removed
    }

    fn start_of(&self, id: u16) -> *mut u8 {
        let offset = usize::from(id) * POOL_BUFFER_BYTES;
        // SAFETY: ids are below POOL_BUFFERS, so this stays within the memory.
        #[expect(unsafe_code, reason = "buffers are parts of one allocation")]
        unsafe {
            self.memory.as_ptr().add(offset)
        }
    }

    fn release(&self, id: u16) {
        let tail = self.tail.get();
        let slot = usize::from(tail % POOL_BUFFERS);
        // SAFETY: the kernel's head has passed the slot, since there are no more buffers than
        // slots; the tail is the one field that both sides access, and it is written last.
        #[expect(unsafe_code, reason = "the entries are shared with the kernel")]
        unsafe {
            let entry = &mut *self.entries.as_ptr().add(slot);
            entry.set_addr(self.start_of(id) as u64);
            entry.set_len(POOL_BUFFER_BYTES as u32);
            entry.set_bid(id);
            let shared = BufRingEntry::tail(self.entries.as_ptr()).cast::<AtomicU16>();
            (*shared).store(tail.wrapping_add(1), Release);
        }
        self.tail.set(tail.wrapping_add(1));
    }
}

/// Received bytes in a buffer of the ring, which gets it back on drop.
pub(crate) struct Buffer {
    buffers: Rc<Buffers>,
    id: u16,
    length: usize,
}

impl Buffer {
    pub(super) fn new(buffers: &Rc<Buffers>, id: u16, length: usize) -> Self {
        Self {
            buffers: Rc::clone(buffers),
            id,
            length,
        }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the kernel wrote `length` bytes here, and does not touch them before the drop.
        #[expect(unsafe_code, reason = "the kernel filled it")]
        unsafe {
            std::slice::from_raw_parts(self.buffers.start_of(self.id), self.length)
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.buffers.release(self.id);
    }
}
