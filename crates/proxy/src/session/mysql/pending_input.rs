//! Buffers input that a client has sent in advance.

use std::mem::take;

/// Bytes that have not been processed. Commands are taken one at a time without moving the bytes
/// after them.
#[derive(Debug, Default)]
pub(super) struct PendingInput {
    bytes: Vec<u8>,
    /// Number of bytes at the beginning that have been taken.
    taken: usize,
}

impl PendingInput {
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(self.taken..).unwrap_or_default()
    }

    pub(super) fn len(&self) -> usize {
        self.bytes().len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes().is_empty()
    }

    /// Appends input. `spare`: provides a buffer if there is none.
    pub(super) fn push(&mut self, more: &[u8], spare: impl FnOnce() -> Vec<u8>) {
        if more.is_empty() {
            return;
        }
        if self.bytes.capacity() == 0 {
            self.bytes = spare();
        }
        if self.taken > self.bytes.len() / 2 {
            self.bytes.drain(..take(&mut self.taken));
        }
        self.bytes.extend_from_slice(more);
    }

    /// Takes the first `count` bytes, or all if there are fewer. `spare`: provides a buffer if
    /// bytes remain.
    pub(super) fn take(&mut self, count: usize, spare: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
        let first = self.bytes().get(..count);
        if let Some(first) = first.filter(|first| first.len() < self.len()) {
            let mut out = spare();
            out.extend_from_slice(first);
            self.taken += count;
            return out;
        }
        let mut all = take(&mut self.bytes);
        all.drain(..take(&mut self.taken));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_held_is_taken_in_its_order_whatever_comes_meanwhile() {
        let mut held = PendingInput::default();
        let (mut came, mut taken) = (0_u8, Vec::new());
        for round in 0..200_usize {
            let more: Vec<u8> = (0..round % 7).map(|n| came.wrapping_add(n as u8)).collect();
            came = came.wrapping_add(more.len() as u8);
            held.push(&more, Vec::new);
            taken.extend(held.take(round % 5, Vec::new));
        }
        taken.extend(held.take(usize::MAX, Vec::new));
        assert!(held.is_empty() && held.bytes.capacity() == 0, "no memory");
        let counted = taken.iter().zip((0..=u8::MAX).cycle());
        assert!(taken.len() > 500 && counted.clone().all(|(one, count)| *one == count));
    }

    /// The limit is no measurement: copying the rest at each take would exceed it.
    #[test]
    fn taking_little_of_much_costs_little() {
        let mut held = PendingInput::default();
        held.push(&vec![7; 8 * 1024 * 1024], Vec::new);
        let begin = std::time::Instant::now();
        let (mut out, mut count) = (Vec::new(), 0);
        while !held.is_empty() {
            out = held.take(5, || std::mem::take(&mut out));
            out.clear();
            count += 1;
        }
        assert_eq!(count, 8 * 1024 * 1024 / 5 + 1);
        assert!(begin.elapsed().as_secs() < 20, "{:?}", begin.elapsed());
    }
}
