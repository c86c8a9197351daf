//! Decides after each event: evaluates the claims, resolves conflicts, and sets the primary.

use super::conflict::{Candidate, ClaimedRole, ConflictResult};
use super::identity::ClusterScope;
use super::member::LastReport;
use super::report::ReplicationState;
use super::{Cluster, Member, Problem, conflict, galera, group, postgres, replication};

/// Result of evaluating the claims.
#[derive(Debug, Default)]
pub(super) struct PrimaryDecision {
    pub(super) primary: Option<u64>,
    pub(super) verify: Vec<u64>,
    /// Claimants that do not become the primary, with reasons.
    pub(super) refused: Vec<(u64, String)>,
    /// True if the refused ones are wrong, and not only too early.
    pub(super) is_final: bool,
    /// Reason for which no server can be the primary until an operator acts.
    pub(super) problem: Option<String>,
}

/// Input from which a decision is reported.
pub(super) struct DecisionInput {
    /// Role that each member claims, in order.
    pub(super) claimed_roles: Vec<ClaimedRole>,
    pub(super) problems: Vec<Problem>,
    pub(super) decision: PrimaryDecision,
}

impl Cluster {
    /// Derives the whole decision again from the known state.
    pub(super) fn decide(&mut self) {
        let mut input = self.evaluate();
        if self.set_primary(input.decision.primary) {
            // The roles of servers depend on the current primary.
            input = self.evaluate();
            self.set_primary(input.decision.primary);
        }
        self.remember_position();
        self.remember_predecessor();
        self.check_errants();
        self.build_roles(input);
    }

    fn evaluate(&mut self) -> DecisionInput {
        loop {
            let scope = self.scope();
            let (claimed_roles, problems) = self.claimed_roles(&scope);
            if self.is_override_over(&claimed_roles) {
                self.drop_override("no longer accepts writes");
                continue;
            }
            let decision = self.decide_primary(&scope, &claimed_roles);
            return DecisionInput {
                claimed_roles,
                problems,
                decision,
            };
        }
    }

    /// Returns the role that each member's own report implies, in order.
    fn claimed_roles(&self, scope: &ClusterScope) -> (Vec<ClaimedRole>, Vec<Problem>) {
        let mut claimed_roles: Vec<ClaimedRole> = self
            .members
            .iter()
            .map(|member| self.claimed_role(member, scope))
            .collect();
        let mut problems = self.demote_writable_replicas(&mut claimed_roles);
        problems.extend(self.refuse_clones(&mut claimed_roles));
        (claimed_roles, problems)
    }

    fn claimed_role(&self, member: &Member, scope: &ClusterScope) -> ClaimedRole {
        let is_primary = self.primary == Some(member.id);
        let status = match (&member.last_report, &member.status) {
            (LastReport::Pending | LastReport::Down, _) | (LastReport::Received, None) => {
                return ClaimedRole::Unknown;
            }
            (LastReport::RoleUnknown(_), Some(status)) if is_primary => status,
            (LastReport::RoleUnknown(why), _) => {
                return ClaimedRole::Refused(format!("role unknown: {why}"));
            }
            (LastReport::Received, Some(status)) => status,
        };
        if let Some(why) = self.foreign(status, scope) {
            return ClaimedRole::Refused(why);
        }
        // Another node of Galera may take the writes immediately; in other clusters a primary is
        // only replaced by a promoted server.
        if member.is_silent && (!is_primary || matches!(status, ReplicationState::Galera(_))) {
            let why = "does not respond on a new connection";
            return ClaimedRole::Unfit(why.to_owned());
        }
        match status {
            ReplicationState::Postgres(status) => {
                postgres::claimed_role(&member.name, status, self.fences.get(&status.system_id))
            }
            ReplicationState::Replication(_)
                if replication::is_halted(status) && member.ran_recently() =>
            {
                ClaimedRole::Follows
            }
            ReplicationState::Replication(status) => match replication::claimed_role(status) {
                ClaimedRole::Claims => self
                    .superseded_reason(member)
                    .map_or(ClaimedRole::Claims, ClaimedRole::Refused),
                claimed_role => claimed_role,
            },
            ReplicationState::Galera(status) => galera::claimed_role(status),
            ReplicationState::Group(status) => group::claimed_role(status),
        }
    }

    /// Returns whether the server of the override has claimed and no longer does.
    fn is_override_over(&mut self, claimed_roles: &[ClaimedRole]) -> bool {
        let Some(selected) = self.selected else {
            return false;
        };
        let Some(index) = self.index_of(selected.id) else {
            return true;
        };
        let claims = claimed_roles[index] == ClaimedRole::Claims;
        if claims {
            self.selected = Some(super::PrimaryOverride {
                held: true,
                ..selected
            });
        }
        selected.held && !claims && self.members[index].last_report == LastReport::Received
    }

    fn candidates(&self, claimed_roles: &[ClaimedRole]) -> Vec<Candidate<'_>> {
        let claiming = self
            .members
            .iter()
            .zip(claimed_roles)
            .filter(|(_, claimed_role)| **claimed_role == ClaimedRole::Claims);
        let all: Vec<Candidate<'_>> = claiming
            .filter_map(|(member, _)| {
                Some(Candidate {
                    id: member.id,
                    name: &member.name,
                    status: member.status.as_ref()?,
                    queried_ms: member.queried_ms,
                    claim: member.claim.as_ref()?,
                    is_primary: self.primary == Some(member.id),
                    is_silent: member.is_silent,
                })
            })
            .collect();
        // A primary that no longer reports its role yields to any verified claimant since then.
        let is_role_unknown = |one: &Candidate<'_>| {
            let member = self.member(one.id);
            member.is_some_and(|member| matches!(member.last_report, LastReport::RoleUnknown(_)))
        };
        let stays = |one: &&Candidate<'_>| {
            !is_role_unknown(one) || !all.iter().any(|other| other.succeeds(one))
        };
        all.iter().filter(stays).copied().collect()
    }

    fn decide_primary(
        &self,
        scope: &ClusterScope,
        claimed_roles: &[ClaimedRole],
    ) -> PrimaryDecision {
        let candidates = self.candidates(claimed_roles);
        if let ClusterScope::Tied(_) = scope
            && !self.have_all_reported()
        {
            return pending(&candidates, Vec::new());
        }
        if let ClusterScope::Tied(message) = scope {
            return tied(&candidates, message.clone(), Vec::new());
        }
        match self.resolve_conflict(&candidates) {
            None => PrimaryDecision::default(),
            Some(ConflictResult::Won {
                winner,
                losers,
                stale,
            }) => self.decide_winner(&candidates, winner, losers, stale),
            Some(ConflictResult::Tied {
                message,
                losers,
                stale,
            }) => {
                let verify = unverified(&candidates, &stale, |_| true);
                match verify.is_empty() {
                    true => tied(&candidates, message, losers),
                    false => pending(&candidates, verify),
                }
            }
        }
    }

    fn resolve_conflict(&self, candidates: &[Candidate<'_>]) -> Option<ConflictResult> {
        if let Some(selected) = candidates.iter().find(|one| self.is_selected(one.id)) {
            return Some(decide_by_override(selected, candidates));
        }
        match candidates.first()?.status {
            ReplicationState::Postgres(_) => Some(postgres::resolve_conflict(candidates)),
            ReplicationState::Replication(_) => Some(replication::resolve_conflict(candidates)),
            ReplicationState::Galera(_) => galera::resolve_conflict(candidates),
            ReplicationState::Group(_) => group::resolve_conflict(candidates),
        }
    }

    fn decide_winner(
        &self,
        candidates: &[Candidate<'_>],
        winner: u64,
        losers: Vec<(u64, String)>,
        stale: Vec<u64>,
    ) -> PrimaryDecision {
        let mut decision = PrimaryDecision {
            primary: Some(winner),
            is_final: self.were_queried_since(winner, &losers),
            refused: losers,
            ..PrimaryDecision::default()
        };
        let verify = unverified(candidates, &stale, |one| one.id == winner);
        if self.primary == Some(winner) {
            // The primary does not change: only its own claim must be verified, not those of the
            // other claimants.
            decision.verify = verify.into_iter().filter(|one| *one == winner).collect();
            return decision;
        }
        if !verify.is_empty() {
            return pending(candidates, verify);
        }
        if !self.have_all_reported() {
            decision = pending(candidates, Vec::new());
            decision.refused = vec![(winner, self.awaited_servers_message())];
        }
        decision
    }

    /// Returns whether the losers were queried after the winner's claim was noticed. Before that,
    /// it is unknown whether they are wrong or merely outdated. An override needs no such query.
    fn were_queried_since(&self, winner: u64, losers: &[(u64, String)]) -> bool {
        let winner = self.member(winner).filter(|one| !self.is_selected(one.id));
        let claimed_ms = winner.and_then(|one| Some(one.claim.as_ref()?.noticed_ms));
        let mut losers = losers.iter().filter_map(|(id, _)| self.member(*id));
        losers.all(|one| claimed_ms.is_none_or(|claimed_ms| one.queried_ms >= claimed_ms))
    }

    /// Returns the servers that the start waits for.
    fn awaited_servers_message(&self) -> String {
        let awaited = self
            .members
            .iter()
            .filter(|one| one.last_report == LastReport::Pending);
        let names: Vec<&str> = awaited.map(|one| one.name.as_str()).collect();
        format!(
            "accepts writes, but cannot become the primary until these servers have responded or \
             are known to be down: {}",
            conflict::listed(&names)
        )
    }

    /// Sets the primary; every change goes through here. Returns true if it changed.
    pub(super) fn set_primary(&mut self, primary: Option<u64>) -> bool {
        if self.primary == primary {
            return false;
        }
        self.primary = primary;
        self.last_primary = primary.or(self.last_primary);
        self.lsn_history.clear();
        let queried_ms = primary.and_then(|id| Some(self.member(id)?.queried_ms));
        for member in &mut self.members {
            member.errant = replication::Errant::default();
            // From now on the replica must find the new primary.
            member.lag_at_ms = queried_ms.unwrap_or(member.lag_at_ms);
            if let Some(claim) = member.claim.as_mut().filter(|_| primary == Some(member.id)) {
                claim.held = true;
            }
        }
        let status = primary.and_then(|id| self.member(id)?.status.as_ref());
        if let Some(identity) = status.and_then(super::ClusterIdentity::of) {
            self.identity = Some(identity);
        }
        true
    }
}

/// Decides for the claimant that the override names. The others are wrong, or replicas for now
/// where several may take writes.
fn decide_by_override(selected: &Candidate<'_>, candidates: &[Candidate<'_>]) -> ConflictResult {
    let is_wrong = |one: &&Candidate<'_>| match one.status {
        ReplicationState::Postgres(_) => true,
        ReplicationState::Replication(status) => !replication::replicates(status),
        ReplicationState::Galera(_) | ReplicationState::Group(_) => false,
    };
    let others = candidates
        .iter()
        .filter(|one| one.id != selected.id)
        .filter(is_wrong);
    let why = format!(
        "claims to be the primary, but the operator's override names {}",
        selected.name
    );
    ConflictResult::Won {
        winner: selected.id,
        losers: others.map(|one| (one.id, why.clone())).collect(),
        stale: Vec::new(),
    }
}

/// Returns the servers that must be queried (again) before the result counts.
fn unverified(
    candidates: &[Candidate<'_>],
    stale: &[u64],
    must_verify: impl Fn(&Candidate<'_>) -> bool,
) -> Vec<u64> {
    let is_unverified =
        |one: &&Candidate<'_>| (must_verify(one) && !one.claim.verified) || stale.contains(&one.id);
    candidates
        .iter()
        .filter(is_unverified)
        .map(|one| one.id)
        .collect()
}

/// Returns a pending decision: the current primary remains as long as it claims.
fn pending(candidates: &[Candidate<'_>], verify: Vec<u64>) -> PrimaryDecision {
    let current = candidates
        .iter()
        .find(|one| one.is_primary)
        .map(|one| one.id);
    // A node of Galera serves reads, regardless of the writer.
    let is_refused = |one: &&Candidate<'_>| {
        !one.is_primary && !matches!(one.status, ReplicationState::Galera(_))
    };
    let others = candidates.iter().filter(is_refused);
    let why = "accepts writes; checked again before it is used as the primary";
    PrimaryDecision {
        primary: current,
        refused: others.map(|one| (one.id, why.to_owned())).collect(),
        verify,
        ..PrimaryDecision::default()
    }
}

fn tied(
    candidates: &[Candidate<'_>],
    message: String,
    losers: Vec<(u64, String)>,
) -> PrimaryDecision {
    let is_loser = |id| losers.iter().any(|(one, _)| *one == id);
    let among = candidates.iter().filter(|one| !is_loser(one.id));
    let why = "claims to be the primary, as do other servers (see the cluster problem)";
    let mut refused: Vec<(u64, String)> = among.map(|one| (one.id, why.to_owned())).collect();
    refused.extend(losers);
    PrimaryDecision {
        refused,
        problem: Some(message),
        ..PrimaryDecision::default()
    }
}
