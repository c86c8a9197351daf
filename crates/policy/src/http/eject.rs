//! Judges the outcome of a request as a sign of its server's health; `policy::health` counts the
//! signs and takes servers out.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::health::{BadAnswer, PassiveFailure};

/// Minimum time between two signs of a server that are passed on.
const PAUSE_MS: u64 = 20;

/// Outcome of a request at a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The answer was received completely, or until the client left.
    Answered {
        /// Status of the final answer.
        status: u16,
    },
    /// The connection ended within the answer.
    Cut,
    /// The connection ended before the first byte of the answer.
    NoAnswer {
        /// True if the connection had carried a request before.
        was_reused: bool,
    },
    /// The answer did not begin within the time limit.
    Late,
}

/// Sign of a server's health.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// The server works: ends a series of failures.
    Served,
    /// The server failed.
    Failed(PassiveFailure),
    /// The outcome shows nothing.
    None,
}

/// Returns the sign of an outcome.
///
/// A reused connection that ends before an answer was idle too long, which is no failure. A status
/// that is about the request (RFC 9110 §15.6.2, §15.6.6; RFC 6585 §6) is none either.
pub fn sign(outcome: Outcome) -> Sign {
    let bad = |why| Sign::Failed(PassiveFailure::BadAnswer(why));
    match outcome {
        Outcome::Answered {
            status: 501 | 505 | 511,
        } => Sign::Served,
        Outcome::Answered { status: 500..=599 } => bad(BadAnswer::ServerError),
        Outcome::Answered { .. } => Sign::Served,
        Outcome::Cut => bad(BadAnswer::Cut),
        Outcome::Late => bad(BadAnswer::Late),
        Outcome::NoAnswer { was_reused: true } => Sign::None,
        Outcome::NoAnswer { was_reused: false } => {
            Sign::Failed(PassiveFailure::ClosedBeforeAnyByte)
        }
    }
}

/// Limits the bad answers of a server that workers report, which may be as many as its requests.
#[derive(Debug, Default)]
pub struct SignGate {
    /// Time from which the next sign is passed on.
    open_from_ms: AtomicU64,
}

impl SignGate {
    /// Returns whether a sign is to be reported now.
    pub fn passes(&self, now_ms: u64) -> bool {
        let claimed = |from_ms| (now_ms >= from_ms).then(|| now_ms.saturating_add(PAUSE_MS));
        self.open_from_ms
            .fetch_update(Relaxed, Relaxed, claimed)
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_a_failure_if_it_reports_one_of_the_server() {
        let failed = Sign::Failed(PassiveFailure::BadAnswer(BadAnswer::ServerError));
        for status in [200, 304, 404, 429, 499, 501, 505, 511, 600] {
            assert_eq!(sign(Outcome::Answered { status }), Sign::Served, "{status}");
        }
        for status in [500, 502, 503, 504, 507, 520, 599] {
            assert_eq!(sign(Outcome::Answered { status }), failed, "{status}");
        }
    }

    #[test]
    fn a_connection_that_ends_is_a_failure_unless_it_was_idle() {
        let failed = |failure| Sign::Failed(failure);
        let outcome = Outcome::NoAnswer { was_reused: false };
        assert_eq!(sign(outcome), failed(PassiveFailure::ClosedBeforeAnyByte));
        assert_eq!(sign(Outcome::NoAnswer { was_reused: true }), Sign::None);
        let bad = |why| failed(PassiveFailure::BadAnswer(why));
        assert_eq!(sign(Outcome::Cut), bad(BadAnswer::Cut));
        assert_eq!(sign(Outcome::Late), bad(BadAnswer::Late));
    }

    #[test]
    fn fifty_signs_a_second_are_passed_on() {
        let gate = SignGate::default();
        let passed = (5_000..6_000).filter(|&now_ms| gate.passes(now_ms));
        assert_eq!(passed.count(), 50);
    }
}
