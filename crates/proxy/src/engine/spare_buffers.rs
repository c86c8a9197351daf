//! Memory of sends that are over, for those that come next.

use std::cell::RefCell;

/// Larger pieces go back to the allocator.
const BYTES_MAX: usize = 16 * 1024;

/// More pieces do, too.
const COUNT_MAX: usize = 64;

/// One worker's spare memory.
#[derive(Default)]
pub(crate) struct SpareBuffers(RefCell<Vec<Vec<u8>>>);

impl SpareBuffers {
    /// An empty piece.
    pub(crate) fn take(&self) -> Vec<u8> {
        self.0.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes a piece back.
    pub(crate) fn keep(&self, mut bytes: Vec<u8>) {
        let mut kept = self.0.borrow_mut();
        if kept.len() < COUNT_MAX && (1..=BYTES_MAX).contains(&bytes.capacity()) {
            bytes.clear();
            kept.push(bytes);
        }
    }
}
