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
    pub(super) last_report: LastReport,
    /// Last reported state. `None` once the server is down, or replies without its role and is not
    /// the primary.
    pub(super) status: Option<ReplicationState>,
    /// Time of the query of the last report; after a failure, later than that of any reply still in
    /// transit.
    pub(super) queried_ms: u64,
    /// Time when the last report arrived.
    pub(super) received_ms: u64,
    pub(super) claim: Option<Claim>,
    /// Time since which the server is known to take writes and to replicate from no server; kept
    /// while it is unavailable.
    pub(super) writing: Option<Writing>,
    /// Time since which the server reports that it is not connected to its source.
    pub(super) disconnected_ms: Option<u64>,
    /// Lag when it was last known and there was a primary.
    pub(super) lag: Lag,
    /// Time of that query.
    pub(super) lag_at_ms: u64,
    /// Time of the last query at which all its replication threads ran.
    pub(super) running_ms: Option<u64>,
    pub(super) errant: Errant,
    /// True if the server does not respond over a new connection, and has not since.
    pub(super) is_silent: bool,
}

/// Last known fact about a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LastReport {
    /// The server was not queried yet.
    Pending,
    /// The server is down.
    Down,
    /// The server responds, but does not report its role.
    RoleUnknown(String),
    /// The server reported its role.
    Received,
}

/// Uninterrupted claim to take writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Claim {
    /// Identity of the server, where it has one: another server at the same address starts its own
    /// claim.
    pub(super) identity: String,
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
    identity: String,
    pub(super) since_ms: u64,
}

impl Member {
    pub(super) fn new(id: u64, name: String) -> Member {
        Member {
            id,
            name,
            last_report: LastReport::Pending,
            status: None,
            queried_ms: 0,
            received_ms: 0,
            claim: None,
            writing: None,
            disconnected_ms: None,
            lag: Lag::UNKNOWN,
            lag_at_ms: 0,
            running_ms: None,
            errant: Errant::default(),
            is_silent: false,
        }
    }

    /// Applies a report. Returns true if another server replies at this address, or another run of
    /// it, so that a primary must be verified again.
    pub(super) fn receive(&mut self, now_ms: u64, report: RoleReport) -> bool {
        let old = self.claim.take();
        let status = claim_of(&report.status);
        let is_another = match (&old, &status) {
            (Some(old), Some((identity, epoch))) => {
                old.identity != *identity
                    || (old.epoch != *epoch && is_of_one_epoch(&report.status))
            }
            _ => false,
        };
        self.claim = status.map(|(identity, epoch)| match old {
            Some(old) if old.identity == identity && old.epoch == epoch => Claim {
                verified: old.verified || report.fresh && report.queried_ms >= old.noticed_ms,
                ..old
            },
            _ => Claim {
                identity,
                epoch,
                noticed_ms: now_ms,
                verified: false,
                held: false,
            },
        });
        self.writing = self.writing_since(now_ms, &report.status);
        self.disconnected_ms =
            is_disconnected(&report.status).then(|| self.disconnected_ms.unwrap_or(now_ms));
        self.last_report = LastReport::Received;
        self.is_silent = false;
        self.queried_ms = report.queried_ms;
        self.received_ms = now_ms;
        if !replication::is_halted(&report.status) {
            self.running_ms = Some(report.queried_ms);
        }
        self.status = Some(report.status);
        is_another
    }

    /// Returns the identity and the time since which the server takes writes and replicates from no
    /// server, or `None` if it does not. The claim must be up to date.
    fn writing_since(&mut self, now_ms: u64, status: &ReplicationState) -> Option<Writing> {
        let is_replica =
            matches!(status, ReplicationState::Replication(one) if replication::replicates(one));
        let identity = &self.claim.as_ref().filter(|_| !is_replica)?.identity;
        let since = self
            .writing
            .take()
            .filter(|since| since.identity == *identity);
        since.or_else(|| {
            Some(Writing {
                identity: identity.clone(),
                since_ms: now_ms,
            })
        })
    }

    /// Records a reply without the role; `is_kept` keeps the last reported state.
    pub(super) fn set_role_unknown(&mut self, why: String, is_kept: bool) {
        self.last_report = LastReport::RoleUnknown(why);
        self.is_silent = false;
        if !is_kept {
            self.status = None;
            self.claim = None;
        }
    }

    pub(super) fn set_down(&mut self, now_ms: u64) {
        self.last_report = LastReport::Down;
        self.is_silent = false;
        self.queried_ms = self.queried_ms.max(now_ms);
        self.status = None;
        self.claim = None;
        self.running_ms = None;
        self.errant = Errant::default();
    }

    /// Returns whether its threads ran a moment ago: switching the source stops them briefly.
    pub(super) fn ran_recently(&self) -> bool {
        let since_ms = |running_ms| self.queried_ms.saturating_sub(running_ms);
        self.running_ms
            .is_some_and(|running_ms| since_ms(running_ms) < HOLD_MS)
    }

    /// Returns the reported lag or, for a moment, its maximum by the report before. A lag cannot
    /// grow faster than time passes, and figures are unknown or wrong while a replica connects to
    /// another server.
    pub(super) fn plausible_lag(&self, lag: Lag) -> Lag {
        let since_ms = self.queried_ms.saturating_sub(self.lag_at_ms);
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
fn claim_of(status: &ReplicationState) -> Option<(String, u64)> {
    match status {
        ReplicationState::Postgres(status) => postgres::claim_of(status),
        ReplicationState::Replication(status) => replication::claim_of(status),
        ReplicationState::Galera(status) => galera::claim_of(status),
        ReplicationState::Group(status) => group::claim_of(status),
    }
}

/// Returns whether a server that takes writes keeps its epoch as long as it does. Not so if members
/// of a group change, or replication is set up or ended, while the primary continues.
fn is_of_one_epoch(status: &ReplicationState) -> bool {
    match status {
        ReplicationState::Postgres(_) | ReplicationState::Galera(_) => true,
        ReplicationState::Replication(_) | ReplicationState::Group(_) => false,
    }
}

/// Returns whether a replica has no connection to its source.
fn is_disconnected(status: &ReplicationState) -> bool {
    match status {
        ReplicationState::Postgres(status) => status.in_recovery && !status.streaming,
        ReplicationState::Replication(status) => status
            .replica
            .as_ref()
            .is_some_and(|threads| threads.receiver != Receiver::Connected),
        ReplicationState::Galera(_) | ReplicationState::Group(_) => false,
    }
}
