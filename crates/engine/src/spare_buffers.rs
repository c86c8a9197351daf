//! Keeps memory of completed sends for later ones.

use std::cell::RefCell;

/// Maximum size of kept buffers, in bytes; larger ones are freed.
const BYTES_MAX: usize = 16 * 1024;

/// Maximum number of kept buffers; more are freed.
const COUNT_MAX: usize = 64;

/// One worker's spare memory.
#[derive(Default)]
pub(crate) struct SpareBuffers(RefCell<Vec<Vec<u8>>>);

impl SpareBuffers {
    /// Returns an empty buffer.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes a buffer back.
    pub(crate) fn keep(&self, mut bytes: Vec<u8>) {
        let mut kept = self.0.borrow_mut();
        if kept.len() < COUNT_MAX && (1..=BYTES_MAX).contains(&bytes.capacity()) {
            bytes.clear();
            kept.push(bytes);
        }
    }
}
