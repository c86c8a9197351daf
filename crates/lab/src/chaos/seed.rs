//! Generates reproducible randomness: each participant has its own stream of one seed.

/// Pseudo-random numbers (xorshift64*, after Vigna).
#[derive(Clone, Debug)]
pub(super) struct ChaosRng(u64);

impl ChaosRng {
    /// Returns the stream of this participant.
    pub(super) fn new(seed: u64, participant: u64) -> ChaosRng {
        let mixed = (seed ^ participant.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut rng = ChaosRng(mixed | 1);
        rng.next();
        rng
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11
    }

    /// Returns a number from 0 to one less than the limit.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_participant_draws_the_same_again_and_another_does_not() {
        let draw = |participant| {
            let mut rng = ChaosRng::new(7, participant);
            (0..20).map(|_| rng.below(1000)).collect::<Vec<u64>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
