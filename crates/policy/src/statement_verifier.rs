//! Decides which statements are verified. The state that a statement leaves is predicted from its
//! text, and the server is queried after its first runs to confirm the prediction.

use std::collections::HashMap;

use crate::pins::Pins;

/// Number of runs without leftover state after which a statement is trusted.
const RUNS: u8 = 5;

/// Maximum number of statements under verification that are distinguished on one connection.
pub const ON_TRIAL_MAX: usize = 32;

/// Maximum number of statements that are remembered.
const KNOWN_MAX: usize = 4_096;

/// Average interval of queries to the servers, for clients that never repeat a statement.
const EACH_MS: u64 = 50;

/// Maximum number of such queries in a burst.
const AT_ONCE: u64 = 200;

/// Action required for a statement that is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerificationStatus {
    /// No action.
    Trusted,
    /// The server must be queried before another client gets the connection.
    OnTrial,
    /// The statement is known to leave more than predicted, which pins. The server must still be
    /// queried before another client gets the connection.
    Leaves(Pins),
}

/// Statements of clients that send alike, by digest.
#[derive(Debug, Default)]
pub struct StatementVerifier {
    known: HashMap<u64, StatementRecord>,
    /// State of the catalog of callable objects; the results depend on it.
    catalog: u64,
    /// Time until which the queries so far would last if spread evenly.
    due_ms: u64,
    is_off: bool,
}

/// Result of a statement's runs so far.
#[derive(Debug, Clone, Copy)]
enum StatementRecord {
    /// Consecutive runs that left no state.
    Passed(u8),
    /// Leftover state was found after one of its runs, but another statement may have left it.
    /// Holds the consecutive runs since then that left no state.
    Suspected(u8),
    /// State that certainly this statement has left.
    Leaves(Pins),
}

/// State of a connection after statements under verification, as the server reports it.
#[derive(Debug, Clone, Copy)]
pub struct Finding {
    /// State that was found.
    pub left: Pins,
    /// True if the connection held no such state before its client got it, and all statements since
    /// are among these, or trusted.
    pub is_certain: bool,
}

impl StatementVerifier {
    /// Returns the action for a statement that is run. `catalog` identifies the state of the
    /// catalog.
    pub fn status(&mut self, digest: u64, catalog: u64) -> VerificationStatus {
        if self.catalog != catalog {
            self.forget();
            self.catalog = catalog;
        }
        match self.known.get(&digest) {
            Some(StatementRecord::Leaves(pins)) => VerificationStatus::Leaves(*pins),
            _ if self.is_off => VerificationStatus::Trusted,
            Some(StatementRecord::Passed(RUNS)) => VerificationStatus::Trusted,
            _ => VerificationStatus::OnTrial,
        }
    }

    /// Drops all results, so that statements are verified again. Called after a change of the
    /// catalog, and when an operator renews the connections.
    pub fn forget(&mut self) {
        self.known.clear();
        self.is_off = false;
    }

    /// Returns whether the server may be queried after these statements now, and charges the
    /// budget. Always true after a statement that left state before, or may have.
    pub fn may_check(&mut self, digests: &[u64], now_ms: u64) -> bool {
        let is_due = |digest: &u64| {
            let entry = self.known.get(digest);
            matches!(
                entry,
                Some(StatementRecord::Leaves(_) | StatementRecord::Suspected(_))
            )
        };
        if digests.iter().any(is_due) {
            return true;
        }
        let may = self.due_ms.saturating_sub(now_ms) < EACH_MS * AT_ONCE;
        if may {
            self.due_ms = self.due_ms.max(now_ms) + EACH_MS;
        }
        may
    }

    /// Records the state found after these statements of one client. Returns the statement that
    /// left it if that is certain, and remembers it. Otherwise all of them are suspected, and their
    /// next runs decide.
    pub fn record(&mut self, digests: &[u64], finding: Finding) -> Option<u64> {
        if self.known.len() + digests.len() > KNOWN_MAX {
            self.known.clear();
        }
        if finding.left.is_empty() {
            digests.iter().for_each(|digest| self.passed(*digest));
            return None;
        }
        let known = self.leaver(digests);
        let before = known.map_or(Pins::NONE, |(_, pins)| pins);
        let candidate = known.map(|(digest, _)| digest);
        let candidate = candidate.or_else(|| self.only_suspect(digests));
        let culprit = candidate.filter(|_| finding.is_certain);
        match culprit {
            Some(digest) => {
                let leaves = StatementRecord::Leaves(before.and(finding.left));
                self.known.insert(digest, leaves);
            }
            None => digests.iter().for_each(|digest| self.suspect(*digest)),
        }
        culprit
    }

    /// Returns whether one of them has left state before.
    pub fn has_leaver(&self, digests: &[u64]) -> bool {
        self.leaver(digests).is_some()
    }

    /// Returns the first of them that has left state before, with that state.
    fn leaver(&self, digests: &[u64]) -> Option<(u64, Pins)> {
        let mut found = digests.iter().filter_map(|digest| {
            let entry = self.known.get(digest)?;
            match entry {
                StatementRecord::Leaves(pins) => Some((*digest, *pins)),
                StatementRecord::Passed(_) | StatementRecord::Suspected(_) => None,
            }
        });
        found.next()
    }

    /// Returns the statement that must have left the state: the only one, or the only one without a
    /// clean run. If the list was full, an unlisted statement may have left it.
    fn only_suspect(&self, digests: &[u64]) -> Option<u64> {
        if digests.len() >= ON_TRIAL_MAX {
            return None;
        }
        if let [only] = digests {
            return Some(*only);
        }
        let has_passed = |digest: &u64| {
            let entry = self.known.get(digest);
            matches!(
                entry,
                Some(StatementRecord::Passed(1..) | StatementRecord::Suspected(1..))
            )
        };
        let mut suspects = digests.iter().filter(|digest| !has_passed(digest));
        suspects
            .next()
            .filter(|_| suspects.next().is_none())
            .copied()
    }

    fn passed(&mut self, digest: u64) {
        let known = self
            .known
            .entry(digest)
            .or_insert(StatementRecord::Passed(0));
        match known {
            StatementRecord::Passed(runs) => *runs = runs.saturating_add(1).min(RUNS),
            StatementRecord::Suspected(runs) if *runs + 1 >= RUNS => {
                *known = StatementRecord::Passed(RUNS)
            }
            StatementRecord::Suspected(runs) => *runs += 1,
            StatementRecord::Leaves(_) => {}
        }
    }

    fn suspect(&mut self, digest: u64) {
        let known = self
            .known
            .entry(digest)
            .or_insert(StatementRecord::Suspected(0));
        if !matches!(known, StatementRecord::Leaves(_)) {
            *known = StatementRecord::Suspected(0);
        }
    }

    /// Stops the verification: the servers do not answer the query.
    pub fn end(&mut self) {
        self.is_off = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pins::Pin;

    const LOCK: Pins = Pins::of(&[Pin::NamedLock]);
    const TABLE: Pins = Pins::of(&[Pin::TemporaryTable]);

    /// Returns state that these statements must have left: the connection held none before.
    fn left(left: Pins) -> Finding {
        Finding {
            left,
            is_certain: true,
        }
    }

    /// Returns state that an earlier statement may have left.
    fn met(left: Pins) -> Finding {
        Finding {
            left,
            is_certain: false,
        }
    }

    const NOTHING: Finding = Finding {
        left: Pins::NONE,
        is_certain: true,
    };

    fn passes(trials: &mut StatementVerifier, digest: u64, times: u8) {
        for _ in 0..times {
            assert_eq!(trials.status(digest, 1), VerificationStatus::OnTrial);
            trials.record(&[digest], NOTHING);
        }
    }

    #[test]
    fn a_statement_is_trusted_after_some_runs_until_what_it_calls_changes() {
        let mut trials = StatementVerifier::default();
        passes(&mut trials, 7, RUNS);
        assert_eq!(trials.status(7, 1), VerificationStatus::Trusted);
        assert_eq!(trials.status(8, 1), VerificationStatus::OnTrial);
        assert_eq!(trials.status(7, 2), VerificationStatus::OnTrial);
    }

    #[test]
    fn state_that_a_statement_alone_has_left_pins_by_it() {
        let mut trials = StatementVerifier::default();
        assert_eq!(trials.record(&[7, 8], left(LOCK)), None, "it may be either");
        assert_eq!(trials.status(7, 0), VerificationStatus::OnTrial);
        assert_eq!(trials.record(&[7], left(LOCK)), Some(7));
        assert_eq!(trials.status(7, 0), VerificationStatus::Leaves(LOCK));
        trials.record(&[7], NOTHING);
        assert_eq!(
            trials.status(7, 0),
            VerificationStatus::Leaves(LOCK),
            "not each time"
        );
        assert_eq!(trials.status(8, 0), VerificationStatus::OnTrial);
    }

    #[test]
    fn among_statements_that_left_nothing_before_the_new_one_has_left_it() {
        let mut trials = StatementVerifier::default();
        passes(&mut trials, 8, 1);
        assert_eq!(trials.record(&[8, 7], left(LOCK)), Some(7));
        assert_eq!(trials.status(7, 1), VerificationStatus::Leaves(LOCK));
        assert_eq!(trials.status(8, 1), VerificationStatus::OnTrial);
        assert_eq!(trials.record(&[8], left(LOCK)), Some(8), "it was alone");
    }

    #[test]
    fn state_that_an_earlier_statement_may_have_left_condemns_none() {
        let mut trials = StatementVerifier::default();
        assert_eq!(trials.record(&[7], met(LOCK)), None);
        assert_eq!(trials.status(7, 0), VerificationStatus::OnTrial);
        assert!(
            (0..1_000).all(|_| trials.may_check(&[7], 1_000)),
            "suspected"
        );
        for _ in 0..RUNS {
            trials.record(&[7], NOTHING);
        }
        assert_eq!(trials.status(7, 0), VerificationStatus::Trusted);
        trials.record(&[8], left(LOCK));
        trials.record(&[8], met(TABLE));
        assert_eq!(trials.status(8, 0), VerificationStatus::Leaves(LOCK));
    }

    #[test]
    fn verdicts_are_forgotten_when_connections_are_renewed() {
        let mut trials = StatementVerifier::default();
        trials.record(&[7], left(LOCK));
        trials.end();
        trials.forget();
        assert_eq!(trials.status(7, 0), VerificationStatus::OnTrial);
    }

    #[test]
    fn clients_that_never_repeat_a_statement_are_asked_about_at_a_limited_rate() {
        let mut trials = StatementVerifier::default();
        let asked = |trials: &mut StatementVerifier, now_ms| {
            (0..1_000)
                .filter(|_| trials.may_check(&[7], now_ms))
                .count()
        };
        assert_eq!(asked(&mut trials, 1_000), 200);
        assert_eq!(asked(&mut trials, 2_000), 20);
        for digest in 1..20_000 {
            trials.record(&[digest], NOTHING);
        }
        assert!(trials.known.len() <= KNOWN_MAX);
    }

    #[test]
    fn a_statement_that_left_something_is_asked_about_each_time_and_keeps_all_its_pins() {
        let mut trials = StatementVerifier::default();
        trials.record(&[7], left(LOCK));
        assert!((0..1_000).all(|_| trials.may_check(&[8, 7], 1_000)));
        assert_eq!(trials.record(&[8, 7], left(TABLE)), Some(7));
        assert_eq!(
            trials.status(7, 0),
            VerificationStatus::Leaves(LOCK.and(TABLE))
        );
        assert_eq!(trials.status(8, 0), VerificationStatus::OnTrial);
    }

    #[test]
    fn of_more_than_are_told_apart_none_is_condemned() {
        let mut trials = StatementVerifier::default();
        let many: Vec<u64> = (1..=ON_TRIAL_MAX as u64).collect();
        trials.record(&many[1..], NOTHING);
        assert_eq!(trials.record(&many, left(LOCK)), None);
        assert_eq!(trials.status(1, 0), VerificationStatus::OnTrial);
    }

    #[test]
    fn no_statement_is_on_trial_where_servers_do_not_answer() {
        let mut trials = StatementVerifier::default();
        trials.record(&[8], left(LOCK));
        trials.end();
        assert_eq!(trials.status(7, 0), VerificationStatus::Trusted);
        assert_eq!(
            trials.status(8, 0),
            VerificationStatus::Leaves(LOCK),
            "it is known"
        );
    }
}
