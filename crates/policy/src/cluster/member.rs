//! Tracks one server of a cluster: its last report, and its claim to be the primary.

use super::replication::Errant;
use super::report::{Receiver, ReplicationState, RoleReport};
use super::{Lag, galera, group, postgres, replication};

/// Time for which a bad report of a replica is doubted after a good one.
const HOLD_MS: u64 = 1_000;

/// Resolution of the lag on servers that report it in whole seconds.
const WHOLE_SECOND_MS: u64 = 1_000;

/// Known state of a member.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) id: u64,
    pub(super) name: String,
    pub(super) word: LastReport,
    /// Last reported state. `None` once the server is down, or replies without its role and is not
    /// the primary.
    pub(super) said: Option<ReplicationState>,
    /// Time of the query of the last report; after a failure, later than that of any reply still in
    /// transit.
    pub(super) word_ms: u64,
    /// Time when the last report arrived.
    pub(super) heard_ms: u64,
    pub(super) claim: Option<Claim>,
    /// Time since which the server is known to take writes and to replicate from no server; kept
    /// while it is unavailable.
    pub(super) writing: Option<Writing>,
    /// Time since which the server reports that it is not connected to its source.
    pub(super) apart_ms: Option<u64>,
    /// Lag when it was last known and there was a primary.
    pub(super) lag: Lag,
    /// Time of that query.
    pub(super) lag_at_ms: u64,
    /// Time of the last query at which all its replication threads ran.
    pub(super) ran_ms: Option<u64>,
    pub(super) errant: Errant,
    /// True if the server does not respond over a new connection, and has not since.
    pub(super) is_silent: bool,
}

/// Last known fact about a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LastReport {
    /// The server was not queried yet.
    Unasked,
    /// The server is down.
    Lost,
    /// The server responds, but does not report its role.
    Mute(String),
    /// The server reported its role.
    Said,
}

/// Uninterrupted claim to take writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claim {
    /// Identity of the server, where it has one: another server at the same address starts its own
    /// claim.
    pub(super) who: String,
    /// Timeline or view: a different one starts a new claim. A primary remains primary during its
    /// verification, unless its kind of server cannot change epochs while it takes writes.
    pub(super) epoch: u64,
    /// Time when the claim was first received.
    pub(super) noticed_ms: u64,
    /// True if the claim was repeated over a fresh connection, in reply to a query sent after it
    /// was first received.
    pub(super) verified: bool,
    /// True if the server was the primary during the claim.
    pub(super) held: bool,
}

/// Server that takes writes and replicates from no server.
#[derive(Debug, Clone)]
pub(super) struct Writing {
    /// Identity, like in its claim.
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

    /// Applies a report. Returns true if another server replies at this address, or another run of
    /// it, so that a primary must be verified again.
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

    /// Returns the identity and the time since which the server takes writes and replicates from no
    /// server, or `None` if it does not. The claim must be up to date.
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

    /// Records a reply without the role; `stays` keeps the last reported state.
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

    /// Returns whether its threads ran a moment ago: switching the source stops them briefly.
    pub(super) fn just_ran(&self) -> bool {
        let since_ms = |ran_ms| self.word_ms.saturating_sub(ran_ms);
        self.ran_ms.is_some_and(|ran_ms| since_ms(ran_ms) < HOLD_MS)
    }

    /// Returns the reported lag or, for a moment, its maximum by the report before. A lag cannot
    /// grow faster than time passes, and figures are unknown or wrong while a replica connects to
    /// another server.
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

/// Returns the identity and the epoch of a server that claims to take writes.
fn claim_of(said: &ReplicationState) -> Option<(String, u64)> {
    match said {
        ReplicationState::Postgres(said) => postgres::claim_of(said),
        ReplicationState::Replication(said) => replication::claim_of(said),
        ReplicationState::Galera(said) => galera::claim_of(said),
        ReplicationState::Group(said) => group::claim_of(said),
    }
}

/// Returns whether a server that takes writes keeps its epoch as long as it does. Not so if members
/// of a group change, or replication is set up or ended, while the primary continues.
fn is_of_one_epoch(said: &ReplicationState) -> bool {
    match said {
        ReplicationState::Postgres(_) | ReplicationState::Galera(_) => true,
        ReplicationState::Replication(_) | ReplicationState::Group(_) => false,
    }
}

/// Returns whether a replica has no connection to its source.
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
