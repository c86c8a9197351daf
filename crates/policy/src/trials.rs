//! Which statements are on trial: what one leaves on its connection is read from its text, and the
//! server is asked the first times that it is run whether that was all.

use std::collections::HashMap;

use crate::pins::Pins;

/// So many runs that left nothing make a statement a trusted one.
const RUNS: u8 = 5;

/// So many statements on trial are told apart on one connection.
pub const ON_TRIAL_MAX: usize = 32;

/// So many statements are remembered.
const KNOWN_MAX: usize = 4_096;

/// Servers are asked this often for long, for those who never send a statement twice.
const EACH_MS: u64 = 50;

/// And so often at once.
const AT_ONCE: u64 = 200;

/// What is to be done about a statement that is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Trusted,
    /// Before another client gets its connection, the server is to be asked.
    OnTrial,
    /// It has left more than was read of it: that binds, and the server is to be asked all the
    /// same before another client gets its connection.
    Leaves(Pins),
}

/// The statements of those who send alike, by their digests.
#[derive(Debug, Default)]
pub struct Trials {
    known: HashMap<u64, Standing>,
    /// Of what they call, the verdicts hang on it.
    catalog: u64,
    /// When all questions so far would have been spread evenly.
    due_ms: u64,
    is_off: bool,
}

#[derive(Debug, Clone, Copy)]
enum Standing {
    Passed(u8),
    Leaves(Pins),
}

impl Trials {
    /// A statement is run. `catalog`: which state of what it may call.
    pub fn verdict(&mut self, digest: u64, catalog: u64) -> Verdict {
        if self.catalog != catalog {
            self.catalog = catalog;
            self.known.clear();
        }
        match self.known.get(&digest) {
            Some(Standing::Leaves(pins)) => Verdict::Leaves(*pins),
            _ if self.is_off => Verdict::Trusted,
            Some(Standing::Passed(RUNS)) => Verdict::Trusted,
            _ => Verdict::OnTrial,
        }
    }

    /// Whether the server may be asked behind these statements now, which is charged for. Behind
    /// one that has left something before it always may.
    pub fn may_ask(&mut self, digests: &[u64], now_ms: u64) -> bool {
        if self.leaver(digests).is_some() {
            return true;
        }
        let may = self.due_ms.saturating_sub(now_ms) < EACH_MS * AT_ONCE;
        if may {
            self.due_ms = self.due_ms.max(now_ms) + EACH_MS;
        }
        may
    }

    /// The server was asked behind these statements of one client, and told what they left. True:
    /// it is one of them that has left it, which is known from now on.
    pub fn told(&mut self, digests: &[u64], left: Pins) -> bool {
        if self.known.len() + digests.len() > KNOWN_MAX {
            self.known.clear();
        }
        if left.is_empty() {
            digests.iter().for_each(|digest| self.passed(*digest));
            return false;
        }
        let known = self.leaver(digests);
        let before = known.map_or(Pins::NONE, |(_, pins)| pins);
        let suspect = known.map(|(digest, _)| digest);
        let suspect = suspect.or_else(|| self.suspect(digests));
        if let Some(digest) = suspect {
            let leaves = Standing::Leaves(before.and(left));
            self.known.insert(digest, leaves);
        }
        suspect.is_some()
    }

    /// Whether one of them has left something before.
    pub fn has_leaver(&self, digests: &[u64]) -> bool {
        self.leaver(digests).is_some()
    }

    /// The first of them that has left something before, and what.
    fn leaver(&self, digests: &[u64]) -> Option<(u64, Pins)> {
        let mut found = digests.iter().filter_map(|digest| {
            let standing = self.known.get(digest)?;
            match standing {
                Standing::Leaves(pins) => Some((*digest, *pins)),
                Standing::Passed(_) => None,
            }
        });
        found.next()
    }

    /// Which of them it was: of several the one that has never left nothing. If there are more,
    /// their next runs tell; and where there was no room for all of them, others may have been it.
    fn suspect(&self, digests: &[u64]) -> Option<u64> {
        if digests.len() >= ON_TRIAL_MAX {
            return None;
        }
        if let [only] = digests {
            return Some(*only);
        }
        let is_new = |digest: &&u64| !self.known.contains_key(*digest);
        let mut suspects = digests.iter().filter(is_new);
        suspects
            .next()
            .filter(|_| suspects.next().is_none())
            .copied()
    }

    fn passed(&mut self, digest: u64) {
        let known = self.known.entry(digest).or_insert(Standing::Passed(0));
        if let Standing::Passed(runs) = known {
            *runs = runs.saturating_add(1).min(RUNS);
        }
    }

    /// The servers do not tell: nobody is on trial any more.
    pub fn end(&mut self) {
        self.is_off = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pins::Pin;

    fn passes(trials: &mut Trials, digest: u64, times: u8) {
        for _ in 0..times {
            assert_eq!(trials.verdict(digest, 1), Verdict::OnTrial);
            trials.told(&[digest], Pins::NONE);
        }
    }

    #[test]
    fn a_statement_is_trusted_behind_some_runs_until_what_it_calls_changes() {
        let mut trials = Trials::default();
        passes(&mut trials, 7, RUNS);
        assert_eq!(trials.verdict(7, 1), Verdict::Trusted);
        assert_eq!(trials.verdict(8, 1), Verdict::OnTrial);
        assert_eq!(trials.verdict(7, 2), Verdict::OnTrial);
    }

    #[test]
    fn what_a_statement_alone_has_left_binds_by_it() {
        let (mut trials, lock) = (Trials::default(), Pins::of(&[Pin::NamedLock]));
        assert!(!trials.told(&[7, 8], lock), "it may be either");
        assert_eq!(trials.verdict(7, 0), Verdict::OnTrial);
        assert!(trials.told(&[7], lock));
        assert_eq!(trials.verdict(7, 0), Verdict::Leaves(lock));
        trials.told(&[7], Pins::NONE);
        assert_eq!(trials.verdict(7, 0), Verdict::Leaves(lock), "not each time");
        assert_eq!(trials.verdict(8, 0), Verdict::OnTrial);
    }

    #[test]
    fn among_those_that_have_left_nothing_before_the_new_one_has_left_it() {
        let (mut trials, lock) = (Trials::default(), Pins::of(&[Pin::NamedLock]));
        passes(&mut trials, 8, 1);
        assert!(trials.told(&[8, 7], lock));
        assert_eq!(trials.verdict(7, 1), Verdict::Leaves(lock));
        assert_eq!(trials.verdict(8, 1), Verdict::OnTrial);
        assert!(trials.told(&[8], lock), "this time it was alone");
    }

    #[test]
    fn who_never_sends_a_statement_twice_is_asked_about_now_and_then() {
        let mut trials = Trials::default();
        let asked = |trials: &mut Trials, now_ms| {
            (0..1_000).filter(|_| trials.may_ask(&[7], now_ms)).count()
        };
        assert_eq!(asked(&mut trials, 1_000), 200);
        assert_eq!(asked(&mut trials, 2_000), 20);
        for digest in 1..20_000 {
            trials.told(&[digest], Pins::NONE);
        }
        assert!(trials.known.len() <= KNOWN_MAX);
    }

    #[test]
    fn what_has_left_something_is_asked_about_at_any_pace_and_leaves_all_that_it_ever_left() {
        let (lock, table) = (
            Pins::of(&[Pin::NamedLock]),
            Pins::of(&[Pin::TemporaryTable]),
        );
        let mut trials = Trials::default();
        trials.told(&[7], lock);
        assert!((0..1_000).all(|_| trials.may_ask(&[8, 7], 1_000)));
        assert!(trials.told(&[8, 7], table));
        assert_eq!(trials.verdict(7, 0), Verdict::Leaves(lock.and(table)));
        assert_eq!(trials.verdict(8, 0), Verdict::OnTrial);
    }

    #[test]
    fn of_more_than_are_told_apart_nobody_is_the_one() {
        let mut trials = Trials::default();
        let many: Vec<u64> = (1..=ON_TRIAL_MAX as u64).collect();
        trials.told(&many[1..], Pins::NONE);
        assert!(!trials.told(&many, Pins::of(&[Pin::NamedLock])));
        assert_eq!(trials.verdict(1, 0), Verdict::OnTrial);
    }

    #[test]
    fn nobody_is_on_trial_where_servers_do_not_tell() {
        let (mut trials, lock) = (Trials::default(), Pins::of(&[Pin::NamedLock]));
        trials.told(&[8], lock);
        trials.end();
        assert_eq!(trials.verdict(7, 0), Verdict::Trusted);
        assert_eq!(trials.verdict(8, 0), Verdict::Leaves(lock), "it is known");
    }
}
