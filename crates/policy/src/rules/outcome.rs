//! Stores the result of the rules for a statement, small enough to keep with it.

use super::{RULES_MAX, RuleAction};

/// Result for a statement; rules are identified by their indices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RuleOutcome {
    /// Bit set of the rules that match, up to the first active one.
    fits: u128,
    /// Rule whose destination applies.
    pub(super) to: Option<u8>,
    /// Time limit in ms; zero means no limit, `None` that no rule sets one.
    pub timeout_ms: Option<u64>,
    /// Rule that rejects the statement.
    pub(super) reject: Option<u8>,
}

impl RuleOutcome {
    /// Returns the rules that match, in order: those that are not active, then the one that
    /// decides.
    pub fn fitting(&self) -> impl Iterator<Item = usize> {
        let fits = self.fits;
        (0..RULES_MAX).filter(move |index| fits >> index & 1 == 1)
    }

    /// Returns whether the statement is rejected.
    #[must_use]
    pub fn is_refused(&self) -> bool {
        self.reject.is_some()
    }

    pub(super) fn note(&mut self, index: usize) {
        self.fits |= 1 << index;
    }

    pub(super) fn decide(&mut self, index: usize, then: &RuleAction) {
        // Cannot overflow: the index is less than `RULES_MAX`.
        let index = index as u8;
        self.to = then.to.is_some().then_some(index);
        self.reject = then.reject.is_some().then_some(index);
        self.timeout_ms = then.timeout_ms;
    }

    /// Combines both outcomes, with the given destination.
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
