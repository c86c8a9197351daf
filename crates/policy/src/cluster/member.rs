//! One server of a cluster: its last word, and since when it claims to be the primary.

use super::replication::Errant;
use super::report::{Receiver, ReplicationState, RoleReport};
use super::{Lag, galera, group, postgres, replication};

/// How long a bad word of a replica is doubted after a good one.
const HOLD_MS: u64 = 1_000;

/// Some servers tell their lag in whole seconds.
const WHOLE_SECOND_MS: u64 = 1_000;

/// What is known of a member.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) word: LastReport,
    /// What it said last; nothing once it is lost, or mute and not the primary.
    pub(super) said: Option<ReplicationState>,
    /// When its last word was asked for; later than that of any answer that is still on its way
    /// from a server that was lost.
    pub(super) word_ms: u64,
    /// When its last word came.
    pub(super) heard_ms: u64,
    pub(super) claim: Option<Claim>,
    /// Since when it takes writes and replicates from nobody, as far as it was heard: also while
    /// it is away.
    pub(super) writing: Option<Writing>,
    /// Since when it says that it is not connected to its source.
    pub(super) apart_ms: Option<u64>,
    /// How far behind it was when that was last known and there was a primary.
    pub(super) lag: Lag,
    /// When it was asked for that.
    pub(super) lag_at_ms: u64,
    /// When it was last asked and all its replication threads ran.
    pub(super) ran_ms: Option<u64>,
    pub(super) errant: Errant,
    /// It does not answer over a new connection, and has not since.
    pub(super) is_silent: bool,
}

/// The last thing that became known of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LastReport {
    /// It was not asked yet.
    Unasked,
    /// It is down.
    Lost,
    /// It answers, but not what it is.
    Mute(String),
    /// It said what it is.
    Said,
}

/// "I take writes", said without a break.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claim {
    /// The server by its own identity, where it has one: another one behind the same address
    /// begins a claim of its own.
    pub(super) who: String,
    /// Timeline or view: another one begins a claim of its own. A primary stays one while it is
    /// asked again, unless its kind cannot change that while it takes writes.
    pub(super) epoch: u64,
    /// When it was first heard.
    pub(super) noticed_ms: u64,
    /// It was repeated, over a fresh connection, to a question asked after it was first heard.
    pub(super) verified: bool,
    /// It was the primary while it claimed.
    pub(super) held: bool,
}

/// A server that takes writes and replicates from nobody.
#[derive(Debug, Clone)]
pub(super) struct Writing {
    /// As in its claim.
    who: String,
    pub(super) since_ms: u64,
}

impl Member {
    pub(super) fn new(id: u64, name: String) -> Member {
        Member {
            id,
            name,
            word: LastReport::Unasked,
            said: None,
            word_ms: 0,
            heard_ms: 0,
            claim: None,
            writing: None,
            apart_ms: None,
            lag: Lag::UNKNOWN,
            lag_at_ms: 0,
            ran_ms: None,
            errant: Errant::default(),
            is_silent: false,
        }
    }

    /// Takes an answer in; true if another server than before answers here, or another run of it,
    /// so that a primary has to prove anew that it is one.
    pub(super) fn hear(&mut self, now_ms: u64, report: RoleReport) -> bool {
        let old = self.claim.take();
        let said = claim_of(&report.said);
        let is_another = match (&old, &said) {
            (Some(old), Some((who, epoch))) => {
                old.who != *who || (old.epoch != *epoch && is_of_one_epoch(&report.said))
            }
            _ => false,
        };
        self.claim = said.map(|(who, epoch)| match old {
            Some(old) if old.who == who && old.epoch == epoch => Claim {
                verified: old.verified || report.fresh && report.asked_ms >= old.noticed_ms,
                ..old
            },
            _ => Claim {
                who,
                epoch,
                noticed_ms: now_ms,
                verified: false,
                held: false,
            },
        });
        self.writing = self.writing_by(now_ms, &report.said);
        self.apart_ms = is_apart(&report.said).then(|| self.apart_ms.unwrap_or(now_ms));
        self.word = LastReport::Said;
        self.is_silent = false;
        self.word_ms = report.asked_ms;
        self.heard_ms = now_ms;
        if !replication::is_halted(&report.said) {
            self.ran_ms = Some(report.asked_ms);
        }
        self.said = Some(report.said);
        is_another
    }

    /// Its claim has been heard.
    fn writing_by(&mut self, now_ms: u64, said: &ReplicationState) -> Option<Writing> {
        let is_replica =
            matches!(said, ReplicationState::Replication(said) if replication::replicates(said));
        let who = &self.claim.as_ref().filter(|_| !is_replica)?.who;
        let since = self.writing.take().filter(|since| since.who == *who);
        since.or_else(|| {
            Some(Writing {
                who: who.clone(),
                since_ms: now_ms,
            })
        })
    }

    /// It could not tell what it is; `stays` keeps what it said.
    pub(super) fn fall_mute(&mut self, why: String, stays: bool) {
        self.word = LastReport::Mute(why);
        self.is_silent = false;
        if !stays {
            self.said = None;
            self.claim = None;
        }
    }

    pub(super) fn lose(&mut self, now_ms: u64) {
        self.word = LastReport::Lost;
        self.is_silent = false;
        self.word_ms = self.word_ms.max(now_ms);
        self.said = None;
        self.claim = None;
        self.ran_ms = None;
        self.errant = Errant::default();
    }

    /// Whether its threads ran a moment ago: pointing it to another server stops them briefly.
    pub(super) fn just_ran(&self) -> bool {
        let since_ms = |ran_ms| self.word_ms.saturating_sub(ran_ms);
        self.ran_ms.is_some_and(|ran_ms| since_ms(ran_ms) < HOLD_MS)
    }

    /// What it says of its lag, or for a moment what it can be at most, by what it said before:
    /// nobody falls behind faster than time passes, and figures are unknown or nonsense while a
    /// replica connects to another server.
    pub(super) fn believed(&self, lag: Lag) -> Lag {
        let since_ms = self.word_ms.saturating_sub(self.lag_at_ms);
        let Some(known_ms) = self.lag.ms.filter(|_| since_ms < HOLD_MS) else {
            return lag;
        };
        let at_most_ms = known_ms.saturating_add(since_ms);
        let is_credible = |ms| ms <= at_most_ms.saturating_add(WHOLE_SECOND_MS);
        match lag.ms.is_some_and(is_credible) {
            true => lag,
            false => Lag {
                ms: Some(at_most_ms),
                ..lag
            },
        }
    }
}

/// Whether a server says that it takes writes: who it is, and in which epoch.
fn claim_of(said: &ReplicationState) -> Option<(String, u64)> {
    match said {
        ReplicationState::Postgres(said) => postgres::claim_of(said),
        ReplicationState::Replication(said) => replication::claim_of(said),
        ReplicationState::Galera(said) => galera::claim_of(said),
        ReplicationState::Group(said) => group::claim_of(said),
    }
}

/// Whether a server that takes writes stays in its epoch for as long as it does. The members of a
/// group change, and replication is set up and ended, under a primary that goes on.
fn is_of_one_epoch(said: &ReplicationState) -> bool {
    match said {
        ReplicationState::Postgres(_) | ReplicationState::Galera(_) => true,
        ReplicationState::Replication(_) | ReplicationState::Group(_) => false,
    }
}

/// Whether a replica is without a connection to its source.
fn is_apart(said: &ReplicationState) -> bool {
    match said {
        ReplicationState::Postgres(said) => said.in_recovery && !said.streaming,
        ReplicationState::Replication(said) => said
            .replica
            .as_ref()
            .is_some_and(|threads| threads.receiver != Receiver::Connected),
        ReplicationState::Galera(_) | ReplicationState::Group(_) => false,
    }
}
