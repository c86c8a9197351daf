//! What the rules say of a statement, small enough to be kept with it.

use super::{RULES_MAX, RuleAction};

/// What is done with a statement; rules are meant by their places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RuleOutcome {
    /// The rules that fit, up to the first active one: bit by bit.
    fits: u128,
    /// Whose destination holds.
    pub(super) to: Option<u8>,
    /// How long it may take, milliseconds; zero: as long as it likes. `None`: nothing is said.
    pub timeout_ms: Option<u64>,
    /// Which rule refuses it.
    pub(super) reject: Option<u8>,
}

impl RuleOutcome {
    /// The rules that fit, in their order: those that are not active, then the one that decides.
    pub fn fitting(&self) -> impl Iterator<Item = usize> {
        let fits = self.fits;
        (0..RULES_MAX).filter(move |index| fits >> index & 1 == 1)
    }

    /// Whether it is refused.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.reject.is_some()
    }

    pub(super) fn note(&mut self, index: usize) {
        self.fits |= 1 << index;
    }

    pub(super) fn decide(&mut self, index: usize, then: &RuleAction) {
        // RULES_MAX fits.
        let index = index as u8;
        self.to = then.to.is_some().then_some(index);
        self.reject = then.reject.is_some().then_some(index);
        self.timeout_ms = then.timeout_ms;
    }

    /// What both say, and whose destination holds.
    pub(super) fn and(self, other: RuleOutcome, to: Option<u8>) -> RuleOutcome {
        let limits = [self.timeout_ms, other.timeout_ms];
        let no_limit_last = |limit: &u64| limit.wrapping_sub(1);
        RuleOutcome {
            fits: self.fits | other.fits,
            to,
            timeout_ms: limits.into_iter().flatten().min_by_key(no_limit_last),
            reject: self.reject.or(other.reject),
        }
    }
}
