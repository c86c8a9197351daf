//! Derives the role and the lag of every member from the decision, and the problems to report.

use super::conflict::ClaimedRole;
use super::decide::{DecisionInput, PrimaryDecision};
use super::member::LastReport;
use super::report::ReplicationState;
use super::{Cluster, ClusterRoles, Lag, Member, Problem, Role, galera, postgres, replication};

impl Cluster {
    /// Records the primary's position and its time.
    pub(super) fn remember_position(&mut self) {
        let Some(primary) = self.primary.and_then(|id| self.index_of(id)) else {
            return;
        };
        let primary = &self.members[primary];
        if let Some(ReplicationState::Postgres(status)) = &primary.status {
            self.lsn_history.add(primary.queried_ms, status.lsn);
        }
    }

    /// Compares every replica's transactions with the primary's.
    pub(super) fn check_errants(&mut self) {
        let Some(primary) = self.primary.and_then(|id| self.index_of(id)) else {
            return;
        };
        for index in 0..self.members.len() {
            if index != primary {
                let mut errant = std::mem::take(&mut self.members[index].errant);
                errant.check(&self.members[index], &self.members[primary]);
                self.members[index].errant = errant;
            }
        }
    }

    /// Builds the roles.
    pub(super) fn build_roles(&mut self, input: DecisionInput) {
        let mut all = self.cluster_problems(&input);
        let DecisionInput {
            claimed_roles,
            problems,
            decision,
        } = input;
        all.extend(problems);
        let mut roles = Vec::with_capacity(claimed_roles.len());
        for (index, claimed_role) in claimed_roles.iter().enumerate() {
            let lag = self.lag(&self.members[index]);
            let role = self.role(index, claimed_role, &decision, lag);
            let is_guess = self.is_lag_guessed(&self.members[index]);
            let member = &mut self.members[index];
            let is_known = lag.ms.is_some() && !is_guess && role == Role::Replica(lag);
            if is_known && self.primary.is_some() && member.disconnected_ms.is_none() {
                (member.lag, member.lag_at_ms) = (lag, member.queried_ms);
            }
            all.extend(member_problem(member, claimed_role, &role, &decision));
            roles.push((member.id, role));
        }
        self.roles = ClusterRoles {
            primary: self.primary,
            roles,
            verify: decision.verify,
            problems: all,
        };
    }

    fn role(
        &self,
        index: usize,
        claimed_role: &ClaimedRole,
        decision: &PrimaryDecision,
        lag: Lag,
    ) -> Role {
        let member = &self.members[index];
        if self.primary == Some(member.id) {
            return Role::Primary;
        }
        let refused = decision.refused.iter().find(|(id, _)| *id == member.id);
        match (claimed_role, refused) {
            (ClaimedRole::Unknown, _) => Role::Unknown,
            (ClaimedRole::Unfit(why) | ClaimedRole::Refused(why), _) => Role::Unfit(why.clone()),
            (_, Some((_, why))) => Role::Unfit(why.clone()),
            (ClaimedRole::Claims | ClaimedRole::Follows, None) => {
                match member.status.as_ref().and_then(galera::is_behind) {
                    Some(why) => Role::Spare(why.to_owned()),
                    None => Role::Replica(member.plausible_lag(lag)),
                }
            }
        }
    }

    /// Returns the lag of a server that serves reads. Without a primary the last known lag applies.
    /// It also applies to a replica that lost its source, until the primary is known to be alive.
    fn lag(&self, member: &Member) -> Lag {
        let primary = self.primary.and_then(|id| self.member(id));
        let is_alone = primary.is_none_or(|primary| {
            member
                .disconnected_ms
                .is_some_and(|disconnected_ms| primary.queried_ms < disconnected_ms)
        });
        match (
            &member.status,
            primary.and_then(|primary| primary.status.as_ref()),
        ) {
            (Some(ReplicationState::Galera(_)), _) => Lag {
                ms: Some(0),
                bytes: None,
            },
            (Some(ReplicationState::Group(status)), _) => Lag {
                ms: status.lag_ms,
                bytes: None,
            },
            (Some(ReplicationState::Replication(status)), _)
                if member.disconnected_ms.is_none() =>
            {
                replication::lag(status)
            }
            (Some(ReplicationState::Postgres(_) | ReplicationState::Replication(_)), _)
                if is_alone =>
            {
                member.lag
            }
            (
                Some(ReplicationState::Postgres(status)),
                Some(ReplicationState::Postgres(primary)),
            ) => {
                let lag = postgres::lag(member.queried_ms, status, primary, &self.lsn_history);
                match member.disconnected_ms {
                    None => lag,
                    Some(_) => Lag { ms: None, ..lag },
                }
            }
            _ => Lag::UNKNOWN,
        }
    }

    /// Returns whether a replica's position could not be compared with the primary's.
    fn is_lag_guessed(&self, member: &Member) -> bool {
        let primary = self.primary.and_then(|id| self.member(id)?.status.as_ref());
        match (&member.status, primary) {
            (
                Some(ReplicationState::Postgres(status)),
                Some(ReplicationState::Postgres(primary)),
            ) => !self
                .lsn_history
                .can_compare(member.queried_ms, status, primary),
            _ => false,
        }
    }

    /// Returns the reason for a missing primary, and the state of an override.
    fn cluster_problems(&self, input: &DecisionInput) -> Vec<Problem> {
        let mut problems: Vec<Problem> = self.override_problem.iter().cloned().collect();
        problems.extend(self.pending_override(&input.claimed_roles));
        problems.extend(self.fence_problem());
        if let Some(message) = &input.decision.problem {
            problems.push(Problem {
                server: None,
                message: message.clone(),
            });
        }
        let mut reported = problems.iter().chain(&input.problems);
        let is_reported = reported.any(|problem| problem.server.is_none());
        let is_settled = input.decision.verify.is_empty() && self.have_all_reported();
        if self.primary.is_none() && is_settled && !is_reported {
            problems.push(Problem {
                server: None,
                message: self.no_primary_message(&input.claimed_roles),
            });
        }
        problems
    }

    /// Returns the problem of an override for a server that cannot be the primary, or not yet.
    fn pending_override(&self, claimed_roles: &[ClaimedRole]) -> Option<Problem> {
        let selected = self.selected?;
        let index = self.index_of(selected.id)?;
        if claimed_roles[index] == ClaimedRole::Claims {
            return None;
        }
        let name = &self.members[index].name;
        Some(Problem {
            server: Some(selected.id),
            message: format!(
                "{name}: the operator's override has no effect yet ({}); it takes effect once the \
                 server accepts writes",
                condition(&self.members[index], &claimed_roles[index])
            ),
        })
    }

    fn no_primary_message(&self, claimed_roles: &[ClaimedRole]) -> String {
        let conditions: Vec<String> = self
            .members
            .iter()
            .zip(claimed_roles)
            .map(|(member, claimed_role)| {
                format!("{}: {}", member.name, condition(member, claimed_role))
            })
            .collect();
        format!(
            "no server accepts writes ({}): promote one of them",
            conditions.join("; ")
        )
    }
}

/// Returns a member's state in a few words.
fn condition(member: &Member, claimed_role: &ClaimedRole) -> String {
    match claimed_role {
        ClaimedRole::Unknown if member.last_report == LastReport::Pending => {
            "not checked yet".to_owned()
        }
        ClaimedRole::Unknown => "down".to_owned(),
        ClaimedRole::Claims => "accepts writes".to_owned(),
        ClaimedRole::Follows => "replica".to_owned(),
        ClaimedRole::Unfit(why) | ClaimedRole::Refused(why) => why.clone(),
    }
}

/// Returns the problem of one member.
fn member_problem(
    member: &Member,
    claimed_role: &ClaimedRole,
    role: &Role,
    decision: &PrimaryDecision,
) -> Option<Problem> {
    let refused = decision.refused.iter().find(|(id, _)| *id == member.id);
    let message = match (claimed_role, role, &member.last_report) {
        (ClaimedRole::Refused(why), _, _) => why.clone(),
        (_, Role::Primary, LastReport::RoleUnknown(why)) => format!(
            "role can no longer be determined: {why}; it remains the primary until another server \
             claims to be"
        ),
        (_, Role::Replica(_), _) => member.errant.message.clone()?,
        _ if decision.is_final => refused?.1.clone(),
        _ => return None,
    };
    Some(Problem {
        server: Some(member.id),
        message: format!("{}: {message}", member.name),
    })
}
