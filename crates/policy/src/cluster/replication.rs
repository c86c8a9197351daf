//! Applies the rules of MySQL and MariaDB replication: the server that has all transactions of the
//! others wins.
//!
//! A primary that does not respond cannot block a server that was promoted after its last report
//! and has every transaction of that report.
//!
//! A server that is writable and replicates is a misconfigured replica, unless no other server can
//! be the primary. Several of them are a ring, and an operator must choose. The source's name is
//! never used to identify it: names differ.

use super::conflict::{Candidate, ClaimedRole, ConflictResult, listed, stale, uncontested};
use super::gtid::{Comparison, Gtids};
use super::member::LastReport;
use super::report::{Receiver, Replication, ReplicationState};
use super::{Cluster, Lag, Member, Problem};

/// Length to which sets are truncated in messages.
const SET_LENGTH_MAX: usize = 200;

/// Transactions of a replica that the primary does not have.
///
/// The two are queried at different times. So the transactions of the replica are kept until the
/// primary has replied to a later query.
#[derive(Debug, Clone, Default)]
pub(super) struct Errant {
    suspect: Option<(u64, Gtids)>,
    pub(super) message: Option<String>,
}

impl Errant {
    pub(super) fn check(&mut self, replica: &Member, primary: &Member) {
        let old = std::mem::take(self);
        let (Some(own), Some(theirs)) = (executed(replica), executed(primary)) else {
            return;
        };
        // Transactions that are gone after a rebuild, or that the primary has by now, are no longer
        // suspect.
        let is_open =
            |(_, suspect): &(u64, Gtids)| own.contains(suspect) && !theirs.contains(suspect);
        let kept = old.suspect.filter(is_open);
        let message = kept.as_ref().and(old.message);
        let now = || (replica.received_ms, own.clone());
        let Some((at_ms, suspect)) = kept.or_else(|| (!theirs.contains(own)).then(now)) else {
            return;
        };
        let is_proved = primary.queried_ms >= at_ms;
        let missing = suspect.count_not_in(theirs).filter(|_| is_proved);
        let proved = missing.map(|missing| {
            format!(
                "has {missing} that the primary {} does not have (errant transactions): cannot \
                 replicate safely; rebuild it, or apply them on the primary",
                primary.name
            )
        });
        self.message = proved.or(message);
        self.suspect = Some((at_ms, suspect));
    }
}

fn executed(member: &Member) -> Option<&Gtids> {
    match &member.status {
        Some(ReplicationState::Replication(status)) => Some(&status.executed),
        _ => None,
    }
}

/// Returns identity and epoch of a claim. The end of replication starts a new claim: from then on
/// no transactions of other servers arrive.
pub(super) fn claim_of(status: &Replication) -> Option<(String, u64)> {
    let epoch = u64::from(!replicates(status));
    (!status.read_only).then(|| (status.server_identity.clone(), epoch))
}

pub(super) fn replicates(status: &Replication) -> bool {
    let threads = status.replica.as_ref();
    threads.is_some_and(|threads| threads.applier_runs || threads.receiver != Receiver::Stopped)
}

pub(super) fn claimed_role(status: &Replication) -> ClaimedRole {
    if !status.read_only {
        return ClaimedRole::Claims;
    }
    let Some(threads) = &status.replica else {
        return ClaimedRole::Unfit("read_only is ON, but replication is not configured".to_owned());
    };
    let stopped = match (threads.applier_runs, threads.receiver) {
        (false, _) => "applier",
        (true, Receiver::Stopped) => "receiver",
        _ => return ClaimedRole::Follows,
    };
    let colon = if threads.error.is_empty() { "" } else { ": " };
    ClaimedRole::Unfit(format!(
        "{stopped} thread is not running{colon}{}",
        threads.error
    ))
}

/// Returns whether a replica reports that one of its threads is stopped.
pub(super) fn is_halted(status: &ReplicationState) -> bool {
    let ReplicationState::Replication(status) = status else {
        return false;
    };
    let threads = status.replica.as_ref();
    status.read_only
        && threads.is_some_and(|one| !one.applier_runs || one.receiver == Receiver::Stopped)
}

/// Returns a replica's reported lag; unknown while its source is not available.
pub(super) fn lag(status: &Replication) -> Lag {
    let ms = status.replica.as_ref().and_then(|threads| threads.lag_ms);
    Lag { ms, bytes: None }
}

/// Returns the server whose set contains all others; otherwise none wins.
pub(super) fn resolve_conflict(candidates: &[Candidate<'_>]) -> ConflictResult {
    if let [only] = candidates {
        return uncontested(only.id);
    }
    let others = |of: &Candidate<'_>| {
        let id = of.id;
        candidates.iter().filter(move |one| one.id != id)
    };
    let is_ahead = |one: &&Candidate<'_>| {
        let mut others = others(one);
        others
            .all(|other| replaces(one, other) || set(one).compare(set(other)) == Comparison::Ahead)
    };
    let Some(winner) = candidates.iter().find(is_ahead) else {
        return ConflictResult::Tied {
            message: tie(candidates),
            losers: Vec::new(),
            stale: stale(candidates),
        };
    };
    let is_stale =
        |one: &&Candidate<'_>| one.queried_ms < winner.claim.noticed_ms && !replaces(winner, one);
    ConflictResult::Won {
        winner: winner.id,
        losers: others(winner)
            .map(|one| (one.id, behind(one, winner)))
            .collect(),
        stale: others(winner).filter(is_stale).map(|one| one.id).collect(),
    }
}

fn set<'a>(candidate: &Candidate<'a>) -> &'a Gtids {
    static NOTHING: Gtids = Gtids::EMPTY;
    match candidate.status {
        ReplicationState::Replication(status) => &status.executed,
        _ => &NOTHING,
    }
}

/// Returns whether an unresponsive server need not be queried again: its writes since its last
/// report are unknown, and remain so if it has failed.
fn replaces(one: &Candidate<'_>, silent: &Candidate<'_>) -> bool {
    silent.is_silent && one.succeeds(silent) && set(one).contains(set(silent))
}

fn behind(one: &Candidate<'_>, winner: &Candidate<'_>) -> String {
    if replaces(winner, one) {
        return format!(
            "stopped responding; {} has accepted writes since",
            winner.name
        );
    }
    let missing = set(winner).count_not_in(set(one));
    let missing = missing.map_or(String::new(), |missing| missing.to_string());
    format!(
        "claims to be the primary, but lacks {missing} that {} has: make it a replica of {} \
         (read_only = ON)",
        winner.name, winner.name
    )
}

fn tie(candidates: &[Candidate<'_>]) -> String {
    let names: Vec<&str> = candidates.iter().map(|one| one.name).collect();
    let sets: Vec<String> = candidates
        .iter()
        .map(|one| format!("{} has {}", one.name, shortened(&set(one).to_string())))
        .collect();
    let mut lacks = Vec::new();
    for one in candidates {
        for other in candidates {
            if let Some(missing) = set(one).count_not_in(set(other)) {
                lacks.push(format!("{} lacks {missing} of {}", other.name, one.name));
            }
        }
    }
    let lacks = match lacks.is_empty() {
        true => "all sets are equal".to_owned(),
        false => lacks.join("; "),
    };
    format!(
        "{} all accept writes, and none is ahead of all the others ({}; {lacks}): no primary. Set \
         read_only = ON on the wrong ones, or choose the right one: `evenkeel primary SERVER`",
        listed(&names),
        sets.join(", ")
    )
}

fn shortened(set: &str) -> String {
    match set.char_indices().nth(SET_LENGTH_MAX) {
        None => set.to_owned(),
        Some((end, _)) => format!("{}…", &set[..end]),
    }
}

impl Cluster {
    /// Marks servers that are writable and replicate as replicas, unless one of them is the only
    /// possible primary. Returns the problems.
    pub(super) fn demote_writable_replicas(
        &self,
        claimed_roles: &mut [ClaimedRole],
    ) -> Vec<Problem> {
        let claims = |index: &usize| claimed_roles[*index] == ClaimedRole::Claims;
        let writable: Vec<usize> = (0..claimed_roles.len()).filter(claims).collect();
        let (mut soft, mut firm): (Vec<usize>, Vec<usize>) = writable
            .into_iter()
            .partition(|&index| self.is_writable_replica(index));
        if firm.is_empty() {
            // A primary that began to replicate remains one as long as no other server can be.
            let is_primary = |&index: &usize| self.primary == Some(self.members[index].id);
            (firm, soft) = soft.into_iter().partition(is_primary);
        }
        let all_heard = self
            .members
            .iter()
            .all(|one| one.last_report == LastReport::Received);
        if soft.is_empty() || (firm.is_empty() && soft.len() == 1 && all_heard) {
            return Vec::new();
        }
        for &index in &soft {
            claimed_roles[index] = ClaimedRole::Follows;
        }
        if firm.is_empty() && soft.len() > 1 {
            let names: Vec<&str> = soft
                .iter()
                .map(|&at| self.members[at].name.as_str())
                .collect();
            return vec![Problem {
                server: None,
                message: match self.dead_primary() {
                    Some(dead) => orphans(dead, &names),
                    None => ring(&names),
                },
            }];
        }
        let warning = |&index: &usize| Problem {
            server: Some(self.members[index].id),
            message: writable_replica(&self.members[index]),
        };
        soft.iter().map(warning).collect()
    }

    /// Returns the last primary if it is down.
    fn dead_primary(&self) -> Option<&str> {
        let last = self.member(self.last_primary?)?;
        (last.last_report == LastReport::Down).then_some(last.name.as_str())
    }

    fn is_writable_replica(&self, index: usize) -> bool {
        let member = &self.members[index];
        // A former primary may have writes that no other server has: it remains a claimant.
        let was_primary = member.claim.as_ref().is_some_and(|claim| claim.held);
        let chosen = was_primary || self.is_selected(member.id);
        let status = member.status.as_ref();
        !chosen
            && matches!(status, Some(ReplicationState::Replication(status)) if replicates(status))
    }

    /// Refuses servers that share an identity: one is a clone of the other, and their transactions
    /// are indistinguishable. Neither becomes the primary.
    pub(super) fn refuse_clones(&self, claimed_roles: &mut [ClaimedRole]) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (index, member) in self.members.iter().enumerate() {
            let Some((identity, twins)) = self.twins(index) else {
                continue;
            };
            let message = format!(
                "duplicate server id {identity}, also used by {}: a cloned data directory, or one \
                 server listed twice; give each its own server_id (MySQL: remove auto.cnf)",
                listed(&twins)
            );
            if claimed_roles[index] == ClaimedRole::Claims && self.primary != Some(member.id) {
                claimed_roles[index] = ClaimedRole::Unfit(message.clone());
            }
            problems.push(Problem {
                server: Some(member.id),
                message: format!("{}: {message}", member.name),
            });
        }
        problems
    }

    fn twins(&self, index: usize) -> Option<(&str, Vec<&str>)> {
        let own = identity(&self.members[index])?;
        let others = self.members.iter().enumerate();
        let twins: Vec<&str> = others
            .filter(|(at, other)| *at != index && identity(other) == Some(own))
            .map(|(_, other)| other.name.as_str())
            .collect();
        (!twins.is_empty()).then_some((own, twins))
    }
}

fn identity(member: &Member) -> Option<&str> {
    match &member.status {
        Some(ReplicationState::Replication(status)) => Some(&status.server_identity),
        _ => None,
    }
}

fn ring(names: &[&str]) -> String {
    format!(
        "{} all accept writes and all replicate (ring or multi-primary replication). Choose the \
         server to use: `evenkeel primary SERVER`",
        listed(names)
    )
}

fn orphans(dead: &str, names: &[&str]) -> String {
    format!(
        "primary {dead} is down and no replica was promoted: {} accept writes, but all of them \
         replicate. Promote one (stop its replication), or choose it: `evenkeel primary SERVER`; \
         set read_only = ON on those that stay replicas",
        listed(names)
    )
}

fn writable_replica(member: &Member) -> String {
    let source = match &member.status {
        Some(ReplicationState::Replication(status)) => {
            status.replica.as_ref().map(|one| one.source.as_str())
        }
        _ => None,
    };
    format!(
        "{}: accepts writes although it replicates from {}. If it is a replica, set read_only = \
         ON; if it is the new primary, stop its replication or choose it: `evenkeel primary {}`",
        member.name,
        source.unwrap_or("another server"),
        member.name
    )
}
