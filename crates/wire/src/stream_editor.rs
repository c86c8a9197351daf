//! Edits one piece of input on its way to the other side: parts are kept, dropped or replaced.
//!
//! Most input is forwarded unchanged, and then no byte is copied: the caller sends the memory that
//! it has. From the first edit on, the kept parts are copied to the output.

/// Editor of one piece of input, from front to back.
#[derive(Debug)]
pub struct StreamEditor<'i, 'o> {
    input: &'i [u8],
    out: &'o mut Vec<u8>,
    /// Offset up to which the input is decided.
    at: usize,
    /// Offset up to which the kept input has been copied to `out`.
    copied: usize,
    edited: bool,
}

/// Bytes to send after editing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EditOutcome<'i> {
    /// These bytes, which are the decided part of the input, unchanged.
    Whole(&'i [u8]),
    /// The contents of `out`, which may be empty.
    Edited,
}

impl<'i, 'o> StreamEditor<'i, 'o> {
    /// Creates an editor with no input decided. Existing contents of `out` are sent first.
    #[must_use]
    pub fn new(input: &'i [u8], out: &'o mut Vec<u8>) -> Self {
        let edited = !out.is_empty();
        StreamEditor {
            input,
            out,
            at: 0,
            copied: 0,
            edited,
        }
    }

    /// Returns how many bytes of the input have been decided.
    #[must_use]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Returns the undecided rest of the input.
    #[must_use]
    pub fn rest(&self) -> &'i [u8] {
        self.input.get(self.at..).unwrap_or_default()
    }

    /// Keeps the next `count` bytes unchanged.
    #[inline]
    pub fn keep(&mut self, count: usize) {
        debug_assert!(count <= self.rest().len(), "more than there is");
        self.at = self.at.saturating_add(count).min(self.input.len());
    }

    /// Drops the next `count` bytes.
    pub fn drop(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        self.copy();
        self.keep(count);
        self.copied = self.at;
    }

    /// Inserts `bytes` at the current position.
    pub fn insert(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.writer().extend_from_slice(bytes);
        }
    }

    /// Returns a buffer; bytes appended to it are inserted at the current position.
    pub fn writer(&mut self) -> &mut Vec<u8> {
        self.copy();
        self.out
    }

    /// Finishes editing: the rest of the input stays undecided.
    pub fn finish(mut self) -> EditOutcome<'i> {
        if !self.edited {
            return EditOutcome::Whole(self.input.get(..self.at).unwrap_or_default());
        }
        self.copy();
        EditOutcome::Edited
    }

    /// Finishes editing, and appends the undecided rest to `held` to wait for more. Returns true if
    /// all of the input is forwarded unchanged. If false, send the contents of `out`, which may be
    /// empty.
    pub fn settle(mut self, held: &mut Vec<u8>) -> bool {
        if !self.edited && self.rest().is_empty() {
            return true;
        }
        self.copy();
        held.extend_from_slice(self.rest());
        false
    }

    /// Copies the kept bytes that have not been copied yet.
    fn copy(&mut self) {
        let kept = self.input.get(self.copied..self.at);
        self.out.extend_from_slice(kept.unwrap_or_default());
        self.copied = self.at;
        self.edited = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seeded generator; deterministic on all platforms.
    struct Chance(u64);

    impl Chance {
        fn below(&mut self, limit: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            usize::try_from(self.0 % limit as u64).unwrap()
        }
    }

    #[test]
    fn any_edits_give_what_was_kept_and_inserted_in_its_order() {
        let (mut whole, mut edited) = (0, 0);
        for seed in 1..=5_000_u64 {
            let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            let input: Vec<u8> = (0..chance.below(200)).map(|n| n as u8).collect();
            let mut out = b"before".repeat(usize::from(chance.below(8) == 0));
            let mut expect = out.clone();
            let mut is_whole = out.is_empty();
            let mut editor = StreamEditor::new(&input, &mut out);
            for _ in 0..chance.below(6) {
                let count = chance.below(editor.rest().len() + 1);
                match chance.below(6) {
                    0 => {
                        is_whole &= count == 0;
                        editor.drop(count);
                    }
                    1 => {
                        let bytes = &b"inserted"[..chance.below(9)];
                        is_whole &= bytes.is_empty();
                        expect.extend_from_slice(bytes);
                        editor.insert(bytes);
                    }
                    2 if chance.below(4) == 0 => {
                        is_whole = false;
                        editor.writer();
                    }
                    _ => {
                        expect.extend_from_slice(&editor.rest()[..count]);
                        editor.keep(count);
                    }
                }
            }
            let at = editor.at();
            match editor.finish() {
                EditOutcome::Whole(bytes) => {
                    whole += 1;
                    assert!(is_whole && out.is_empty(), "seed {seed}");
                    assert_eq!(bytes, &input[..at], "seed {seed}");
                    assert_eq!(bytes, expect, "seed {seed}");
                }
                EditOutcome::Edited => {
                    edited += 1;
                    assert!(!is_whole, "seed {seed}: copied without need");
                    assert_eq!(out, expect, "seed {seed}");
                }
            }
        }
        assert!(whole > 1_000 && edited > 1_000, "{whole} {edited}");
    }

    #[test]
    fn what_goes_on_as_it_is_is_the_very_memory_that_came() {
        let (input, mut out) = (vec![7_u8; 100], Vec::new());
        let mut editor = StreamEditor::new(&input, &mut out);
        editor.keep(60);
        editor.drop(0);
        editor.insert(b"");
        editor.keep(30);
        let EditOutcome::Whole(bytes) = editor.finish() else {
            panic!("edited")
        };
        assert_eq!(bytes.as_ptr_range().start, input.as_ptr());
        assert_eq!((bytes.len(), out.capacity()), (90, 0));
    }

    #[test]
    fn what_waits_for_more_is_held_and_what_is_decided_goes() {
        for (kept, dropped, whole, sent, waits) in [
            (4, 0, true, &b""[..], &b""[..]),
            (3, 0, false, b"abc", b"d"),
            (2, 1, false, b"ab", b"d"),
            (3, 1, false, b"abc", b""),
            (0, 0, false, b"", b"abcd"),
        ] {
            let (mut out, mut held) = (Vec::new(), Vec::new());
            let mut editor = StreamEditor::new(b"abcd", &mut out);
            editor.keep(kept);
            editor.drop(dropped);
            assert_eq!(editor.settle(&mut held), whole);
            assert_eq!((&*out, &*held), (sent, waits));
        }
    }
}
