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
        if let Some(ReplicationState::Postgres(said)) = &primary.said {
            self.track.add(primary.word_ms, said.lsn);
        }
    }

    /// Compares every replica's transactions with the primary's.
    pub(super) fn look_for_errants(&mut self) {
        let Some(primary) = self.primary.and_then(|id| self.index_of(id)) else {
            return;
        };
        for index in 0..self.members.len() {
            if index != primary {
                let mut errant = std::mem::take(&mut self.members[index].errant);
                errant.look(&self.members[index], &self.members[primary]);
                self.members[index].errant = errant;
            }
        }
    }

    /// Builds the roles.
    pub(super) fn tell(&mut self, found: DecisionInput) {
        let mut all = self.cluster_problems(&found);
        let DecisionInput {
            stands,
            problems,
            ruling,
        } = found;
        all.extend(problems);
        let mut roles = Vec::with_capacity(stands.len());
        for (index, stand) in stands.iter().enumerate() {
            let lag = self.lag(&self.members[index]);
            let role = self.role(index, stand, &ruling, lag);
            let is_guess = self.is_lag_guessed(&self.members[index]);
            let member = &mut self.members[index];
            let is_known = lag.ms.is_some() && !is_guess && role == Role::Replica(lag);
            if is_known && self.primary.is_some() && member.apart_ms.is_none() {
                (member.lag, member.lag_at_ms) = (lag, member.word_ms);
            }
            all.extend(member_problem(member, stand, &role, &ruling));
            roles.push((member.id, role));
        }
        self.verdict = ClusterRoles {
            primary: self.primary,
            roles,
            verify: ruling.verify,
            problems: all,
        };
    }

    fn role(&self, index: usize, stand: &ClaimedRole, ruling: &PrimaryDecision, lag: Lag) -> Role {
        let member = &self.members[index];
        if self.primary == Some(member.id) {
            return Role::Primary;
        }
        let refused = ruling.refused.iter().find(|(id, _)| *id == member.id);
        match (stand, refused) {
            (ClaimedRole::Unknown, _) => Role::Unknown,
            (ClaimedRole::Unfit(why) | ClaimedRole::Refused(why), _) => Role::Unfit(why.clone()),
            (_, Some((_, why))) => Role::Unfit(why.clone()),
            (ClaimedRole::Claims | ClaimedRole::Follows, None) => {
                match member.said.as_ref().and_then(galera::is_behind) {
                    Some(why) => Role::Spare(why.to_owned()),
                    None => Role::Replica(member.believed(lag)),
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
                .apart_ms
                .is_some_and(|apart_ms| primary.word_ms < apart_ms)
        });
        match (
            &member.said,
            primary.and_then(|primary| primary.said.as_ref()),
        ) {
            (Some(ReplicationState::Galera(_)), _) => Lag {
                ms: Some(0),
                bytes: None,
            },
            (Some(ReplicationState::Group(said)), _) => Lag {
                ms: said.lag_ms,
                bytes: None,
            },
            (Some(ReplicationState::Replication(said)), _) if member.apart_ms.is_none() => {
                replication::lag(said)
            }
            (Some(ReplicationState::Postgres(_) | ReplicationState::Replication(_)), _)
                if is_alone =>
            {
                member.lag
            }
            (Some(ReplicationState::Postgres(said)), Some(ReplicationState::Postgres(primary))) => {
                let lag = postgres::lag(member.word_ms, said, primary, &self.track);
                match member.apart_ms {
                    None => lag,
                    Some(_) => Lag { ms: None, ..lag },
                }
            }
            _ => Lag::UNKNOWN,
        }
    }

    /// Returns whether a replica's position could not be compared with the primary's.
    fn is_lag_guessed(&self, member: &Member) -> bool {
        let primary = self.primary.and_then(|id| self.member(id)?.said.as_ref());
        match (&member.said, primary) {
            (Some(ReplicationState::Postgres(said)), Some(ReplicationState::Postgres(primary))) => {
                !self.track.compares(member.word_ms, said, primary)
            }
            _ => false,
        }
    }

    /// Returns the reason for a missing primary, and the state of an override.
    fn cluster_problems(&self, found: &DecisionInput) -> Vec<Problem> {
        let mut problems: Vec<Problem> = self.lapse.iter().cloned().collect();
        problems.extend(self.unheard_name(&found.stands));
        problems.extend(self.overruling());
        if let Some(message) = &found.ruling.problem {
            problems.push(Problem {
                server: None,
                message: message.clone(),
            });
        }
        let mut told = problems.iter().chain(&found.problems);
        let is_told = told.any(|problem| problem.server.is_none());
        let is_settled = found.ruling.verify.is_empty() && self.everyone_spoke();
        if self.primary.is_none() && is_settled && !is_told {
            problems.push(Problem {
                server: None,
                message: self.nobody(&found.stands),
            });
        }
        problems
    }

    /// Returns the problem of an override for a server that cannot be the primary, or not yet.
    fn unheard_name(&self, stands: &[ClaimedRole]) -> Option<Problem> {
        let named = self.named?;
        let index = self.index_of(named.id)?;
        if stands[index] == ClaimedRole::Claims {
            return None;
        }
        let name = &self.members[index].name;
        Some(Problem {
            server: Some(named.id),
            message: format!(
                "{name}: selected as primary by the operator, but not usable: {}; takes effect \
                 once it accepts writes",
                condition(&self.members[index], &stands[index])
            ),
        })
    }

    fn nobody(&self, stands: &[ClaimedRole]) -> String {
        let conditions: Vec<String> = self
            .members
            .iter()
            .zip(stands)
            .map(|(member, stand)| format!("{}: {}", member.name, condition(member, stand)))
            .collect();
        format!(
            "no server accepts writes ({}): promote one of them",
            conditions.join("; ")
        )
    }
}

/// Returns a member's state in a few words.
fn condition(member: &Member, stand: &ClaimedRole) -> String {
    match stand {
        ClaimedRole::Unknown if member.word == LastReport::Unasked => "not checked yet".to_owned(),
        ClaimedRole::Unknown => "down".to_owned(),
        ClaimedRole::Claims => "accepts writes".to_owned(),
        ClaimedRole::Follows => "replica".to_owned(),
        ClaimedRole::Unfit(why) | ClaimedRole::Refused(why) => why.clone(),
    }
}

/// Returns the problem of one member.
fn member_problem(
    member: &Member,
    stand: &ClaimedRole,
    role: &Role,
    ruling: &PrimaryDecision,
) -> Option<Problem> {
    let refused = ruling.refused.iter().find(|(id, _)| *id == member.id);
    let message = match (stand, role, &member.word) {
        (ClaimedRole::Refused(why), _, _) => why.clone(),
        (_, Role::Primary, LastReport::Mute(why)) => format!(
            "role can no longer be determined: {why}; it remains the primary until another server \
             claims to be"
        ),
        (_, Role::Replica(_), _) => member.errant.message.clone()?,
        _ if ruling.is_final => refused?.1.clone(),
        _ => return None,
    };
    Some(Problem {
        server: Some(member.id),
        message: format!("{}: {message}", member.name),
    })
}
