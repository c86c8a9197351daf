//! Numbers drawn by a seed, the same on all platforms.

/// Seeded generator.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn of(seed: u64) -> Self {
        Chance(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a generator with other numbers.
    pub(crate) fn fork(&mut self) -> Self {
        let seed = self.next();
        Chance::of(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.next() as usize % limit
    }

    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// Returns a number of any magnitude between these.
    pub(crate) fn size(&mut self, min: usize, max: usize) -> usize {
        let magnitudes = (max / min.max(1)).ilog2() + 1;
        let max = max >> self.below(magnitudes as usize);
        min + self.below(max.saturating_sub(min) + 1)
    }

    /// Returns bytes that differ between two calls.
    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        let first = self.below(251);
        (0..count).map(|at| ((at + first) % 251) as u8).collect()
    }
}
