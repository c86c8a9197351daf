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
    pub(super) stands: Vec<ClaimedRole>,
    pub(super) problems: Vec<Problem>,
    pub(super) ruling: PrimaryDecision,
}

impl Cluster {
    /// Derives the whole decision again from the known state.
    pub(super) fn decide(&mut self) {
        let mut found = self.consider();
        if self.set_primary(found.ruling.primary) {
            // The roles of servers depend on the current primary.
            found = self.consider();
            self.set_primary(found.ruling.primary);
        }
        self.remember_position();
        self.remember_succession();
        self.look_for_errants();
        self.tell(found);
    }

    fn consider(&mut self) -> DecisionInput {
        loop {
            let scope = self.scope();
            let (stands, problems) = self.stands(&scope);
            if self.name_is_over(&stands) {
                self.drop_override("no longer accepts writes");
                continue;
            }
            let ruling = self.rule(&scope, &stands);
            return DecisionInput {
                stands,
                problems,
                ruling,
            };
        }
    }

    /// Returns the role that each member's own report implies, in order.
    fn stands(&self, scope: &ClusterScope) -> (Vec<ClaimedRole>, Vec<Problem>) {
        let mut stands: Vec<ClaimedRole> = self
            .members
            .iter()
            .map(|member| self.stand(member, scope))
            .collect();
        let mut problems = self.sift_writable_replicas(&mut stands);
        problems.extend(self.refuse_clones(&mut stands));
        (stands, problems)
    }

    fn stand(&self, member: &Member, scope: &ClusterScope) -> ClaimedRole {
        let is_primary = self.primary == Some(member.id);
        let said = match (&member.word, &member.said) {
            (LastReport::Unasked | LastReport::Lost, _) | (LastReport::Said, None) => {
                return ClaimedRole::Unknown;
            }
            (LastReport::Mute(_), Some(said)) if is_primary => said,
            (LastReport::Mute(why), _) => {
                return ClaimedRole::Refused(format!("role unknown: {why}"));
            }
            (LastReport::Said, Some(said)) => said,
        };
        if let Some(why) = self.foreign(said, scope) {
            return ClaimedRole::Refused(why);
        }
        // Another node of Galera may take the writes immediately; in other clusters a primary is
        // only replaced by a promoted server.
        if member.is_silent && (!is_primary || matches!(said, ReplicationState::Galera(_))) {
            let why = "does not respond on a new connection";
            return ClaimedRole::Unfit(why.to_owned());
        }
        match said {
            ReplicationState::Postgres(said) => {
                postgres::stand(&member.name, said, self.fences.get(&said.system_id))
            }
            ReplicationState::Replication(_)
                if replication::is_halted(said) && member.just_ran() =>
            {
                ClaimedRole::Follows
            }
            ReplicationState::Replication(said) => match replication::stand(said) {
                ClaimedRole::Claims => self
                    .outdone(member)
                    .map_or(ClaimedRole::Claims, ClaimedRole::Refused),
                stand => stand,
            },
            ReplicationState::Galera(said) => galera::stand(said),
            ReplicationState::Group(said) => group::stand(said),
        }
    }

    /// Returns whether the server of the override has claimed and no longer does.
    fn name_is_over(&mut self, stands: &[ClaimedRole]) -> bool {
        let Some(named) = self.named else {
            return false;
        };
        let Some(index) = self.index_of(named.id) else {
            return true;
        };
        let claims = stands[index] == ClaimedRole::Claims;
        if claims {
            self.named = Some(super::PrimaryOverride {
                held: true,
                ..named
            });
        }
        named.held && !claims && self.members[index].word == LastReport::Said
    }

    fn candidates(&self, stands: &[ClaimedRole]) -> Vec<Candidate<'_>> {
        let claiming = self
            .members
            .iter()
            .zip(stands)
            .filter(|(_, stand)| **stand == ClaimedRole::Claims);
        let all: Vec<Candidate<'_>> = claiming
            .filter_map(|(member, _)| {
                Some(Candidate {
                    id: member.id,
                    name: &member.name,
                    said: member.said.as_ref()?,
                    asked_ms: member.word_ms,
                    claim: member.claim.as_ref()?,
                    is_primary: self.primary == Some(member.id),
                    is_silent: member.is_silent,
                })
            })
            .collect();
        // A primary that no longer reports its role yields to any verified claimant since then.
        let is_mute = |one: &Candidate<'_>| {
            let member = self.member(one.id);
            member.is_some_and(|member| matches!(member.word, LastReport::Mute(_)))
        };
        let stays =
            |one: &&Candidate<'_>| !is_mute(one) || !all.iter().any(|other| other.succeeds(one));
        all.iter().filter(stays).copied().collect()
    }

    fn rule(&self, scope: &ClusterScope, stands: &[ClaimedRole]) -> PrimaryDecision {
        let candidates = self.candidates(stands);
        if let ClusterScope::Tied(_) = scope
            && !self.everyone_spoke()
        {
            return pending(&candidates, Vec::new());
        }
        if let ClusterScope::Tied(message) = scope {
            return tied(&candidates, message.clone(), Vec::new());
        }
        match self.contest(&candidates) {
            None => PrimaryDecision::default(),
            Some(ConflictResult::Won {
                winner,
                beaten,
                stale,
            }) => self.won(&candidates, winner, beaten, stale),
            Some(ConflictResult::Tied {
                message,
                beaten,
                stale,
            }) => {
                let verify = unproved(&candidates, &stale, |_| true);
                match verify.is_empty() {
                    true => tied(&candidates, message, beaten),
                    false => pending(&candidates, verify),
                }
            }
        }
    }

    fn contest(&self, candidates: &[Candidate<'_>]) -> Option<ConflictResult> {
        if let Some(named) = candidates.iter().find(|one| self.named_is(one.id)) {
            return Some(by_word(named, candidates));
        }
        match candidates.first()?.said {
            ReplicationState::Postgres(_) => Some(postgres::contest(candidates)),
            ReplicationState::Replication(_) => Some(replication::contest(candidates)),
            ReplicationState::Galera(_) => galera::contest(candidates),
            ReplicationState::Group(_) => group::contest(candidates),
        }
    }

    fn won(
        &self,
        candidates: &[Candidate<'_>],
        winner: u64,
        beaten: Vec<(u64, String)>,
        stale: Vec<u64>,
    ) -> PrimaryDecision {
        let mut ruling = PrimaryDecision {
            primary: Some(winner),
            is_final: self.were_asked_since(winner, &beaten),
            refused: beaten,
            ..PrimaryDecision::default()
        };
        let verify = unproved(candidates, &stale, |one| one.id == winner);
        if self.primary == Some(winner) {
            // The primary does not change: only its own claim must be verified, not those of the
            // other claimants.
            ruling.verify = verify.into_iter().filter(|one| *one == winner).collect();
            return ruling;
        }
        if !verify.is_empty() {
            return pending(candidates, verify);
        }
        if !self.everyone_spoke() {
            ruling = pending(candidates, Vec::new());
            ruling.refused = vec![(winner, self.waits())];
        }
        ruling
    }

    /// Returns whether the losers were queried after the winner's claim was noticed. Before that,
    /// it is unknown whether they are wrong or merely outdated. An override needs no such query.
    fn were_asked_since(&self, winner: u64, beaten: &[(u64, String)]) -> bool {
        let winner = self.member(winner).filter(|one| !self.named_is(one.id));
        let claimed_ms = winner.and_then(|one| Some(one.claim.as_ref()?.noticed_ms));
        let mut beaten = beaten.iter().filter_map(|(id, _)| self.member(*id));
        beaten.all(|one| claimed_ms.is_none_or(|claimed_ms| one.word_ms >= claimed_ms))
    }

    /// Returns the servers that the start waits for.
    fn waits(&self) -> String {
        let unasked = self
            .members
            .iter()
            .filter(|one| one.word == LastReport::Unasked);
        let names: Vec<&str> = unasked.map(|one| one.name.as_str()).collect();
        format!(
            "accepts writes; not used until these servers respond or are down: {}",
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
        self.track.clear();
        let seated_ms = primary.and_then(|id| Some(self.member(id)?.word_ms));
        for member in &mut self.members {
            member.errant = replication::Errant::default();
            // From now on the replica must find the new primary.
            member.lag_at_ms = seated_ms.unwrap_or(member.lag_at_ms);
            if let Some(claim) = member.claim.as_mut().filter(|_| primary == Some(member.id)) {
                claim.held = true;
            }
        }
        let said = primary.and_then(|id| self.member(id)?.said.as_ref());
        if let Some(identity) = said.and_then(super::ClusterIdentity::of) {
            self.identity = Some(identity);
        }
        true
    }
}

/// Decides for the claimant that an operator named. The others are wrong, or replicas for now where
/// several may take writes.
fn by_word(named: &Candidate<'_>, candidates: &[Candidate<'_>]) -> ConflictResult {
    let is_wrong = |one: &&Candidate<'_>| match one.said {
        ReplicationState::Postgres(_) => true,
        ReplicationState::Replication(said) => !replication::replicates(said),
        ReplicationState::Galera(_) | ReplicationState::Group(_) => false,
    };
    let others = candidates
        .iter()
        .filter(|one| one.id != named.id)
        .filter(is_wrong);
    let why = format!(
        "claims to be the primary, but the operator selected {}",
        named.name
    );
    ConflictResult::Won {
        winner: named.id,
        beaten: others.map(|one| (one.id, why.clone())).collect(),
        stale: Vec::new(),
    }
}

/// Returns the servers that must be queried (again) before the result counts.
fn unproved(
    candidates: &[Candidate<'_>],
    stale: &[u64],
    must: impl Fn(&Candidate<'_>) -> bool,
) -> Vec<u64> {
    let is_unproved =
        |one: &&Candidate<'_>| (must(one) && !one.claim.verified) || stale.contains(&one.id);
    candidates
        .iter()
        .filter(is_unproved)
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
    let is_refused =
        |one: &&Candidate<'_>| !one.is_primary && !matches!(one.said, ReplicationState::Galera(_));
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
    beaten: Vec<(u64, String)>,
) -> PrimaryDecision {
    let is_beaten = |id| beaten.iter().any(|(one, _)| *one == id);
    let among = candidates.iter().filter(|one| !is_beaten(one.id));
    let why = "claims to be the primary, as do other servers (see the cluster problem)";
    let mut refused: Vec<(u64, String)> = among.map(|one| (one.id, why.to_owned())).collect();
    refused.extend(beaten);
    PrimaryDecision {
        refused,
        problem: Some(message),
        ..PrimaryDecision::default()
    }
}
