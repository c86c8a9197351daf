//! Keeps a server out for a while that answered badly, though its probes pass.

/// Maximum multiple of the shortest ejection.
const STEPS_MAX: u64 = 8;

/// Latest ejection of a server.
#[derive(Debug, Clone, Default)]
pub(super) struct Ejection {
    until_ms: u64,
    /// Ejections in short succession; each lasts longer than the one before.
    steps: u64,
}

impl Ejection {
    /// Begins an ejection. The shortest one lasts `step_ms`.
    ///
    /// If it did not grow, a server that always answers badly would get clients each time that its
    /// probes pass. An ejection that follows the one before after a long time lasts `step_ms`
    /// again.
    pub(super) fn begin(&mut self, now_ms: u64, step_ms: u64) {
        let forgotten_ms = self
            .until_ms
            .saturating_add(step_ms.saturating_mul(STEPS_MAX));
        if now_ms >= forgotten_ms {
            self.steps = 0;
        }
        self.steps = (self.steps + 1).min(STEPS_MAX);
        self.until_ms = now_ms.saturating_add(step_ms.saturating_mul(self.steps));
    }

    /// Returns whether it still lasts.
    pub(super) fn lasts(&self, now_ms: u64) -> bool {
        now_ms < self.until_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_ejection_lasts_longer_until_one_comes_late() {
        let mut ejection = Ejection::default();
        assert!(!ejection.lasts(0));
        let mut now_ms = 1_000;
        for steps in [1, 2, 3, 4, 5, 6, 7, 8, 8] {
            ejection.begin(now_ms, 100);
            assert!(ejection.lasts(now_ms + steps * 100 - 1));
            now_ms += steps * 100;
            assert!(!ejection.lasts(now_ms));
            now_ms += 799;
        }
        ejection.begin(now_ms + 1, 100);
        assert!(!ejection.lasts(now_ms + 101));
    }
}
