//! Generates reproducible pseudo-random numbers.

use std::env;
use std::ops::Range;

/// Returns the seeds of the random conversations of a test: `EVENKEEL_CONVERSATIONS`, which is a
/// number of them or a range such as `490..500`, or the `usual` number.
pub(crate) fn conversations(usual: u64) -> Range<u64> {
    let Ok(text) = env::var("EVENKEEL_CONVERSATIONS") else {
        return 0..usual;
    };
    let number = |text: &str| {
        text.parse()
            .expect("EVENKEEL_CONVERSATIONS is a number or a range")
    };
    match text.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => 0..number(&text),
    }
}

/// Knuth's MMIX generator.
#[derive(Clone)]
pub(crate) struct TestRng(pub(crate) u64);

impl TestRng {
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    /// Returns an index into a list of that length; 0 if it is empty.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        let end = u64::try_from(length).unwrap_or(u64::MAX);
        usize::try_from(self.below(end.max(1))).expect("it is less than a length")
    }

    pub(crate) fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.index(all.len())]
    }
}
