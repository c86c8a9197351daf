//! What the decision makes of every member: its role, its lag, and what an operator must know.

use super::contest::Stand;
use super::decide::{Finding, Ruling};
use super::member::Word;
use super::report::Said;
use super::{Cluster, Lag, Member, Problem, Role, Verdict, galera, postgres, replication};

impl Cluster {
    /// Keeps where the primary was when.
    pub(super) fn remember_position(&mut self) {
        let Some(primary) = self.primary.and_then(|id| self.index_of(id)) else {
            return;
        };
        let primary = &self.members[primary];
        if let Some(Said::Postgres(said)) = &primary.said {
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

    /// Writes the verdict.
    pub(super) fn tell(&mut self, found: Finding) {
        let mut all = self.cluster_problems(&found);
        let Finding {
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
        self.verdict = Verdict {
            primary: self.primary,
            roles,
            verify: ruling.verify,
            problems: all,
        };
    }

    fn role(&self, index: usize, stand: &Stand, ruling: &Ruling, lag: Lag) -> Role {
        let member = &self.members[index];
        if self.primary == Some(member.id) {
            return Role::Primary;
        }
        let refused = ruling.refused.iter().find(|(id, _)| *id == member.id);
        match (stand, refused) {
            (Stand::Unknown, _) => Role::Unknown,
            (Stand::Unfit(why) | Stand::Refused(why), _) => Role::Unfit(why.clone()),
            (_, Some((_, why))) => Role::Unfit(why.clone()),
            (Stand::Claims | Stand::Follows, None) => {
                match member.said.as_ref().and_then(galera::is_behind) {
                    Some(why) => Role::Spare(why.to_owned()),
                    None => Role::Replica(member.believed(lag)),
                }
            }
        }
    }

    /// How far behind a server is that serves reads. Without a primary it is as far behind as it
    /// last was; a replica that lost its source is so too, until the primary is known to live on.
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
            (Some(Said::Galera(_)), _) => Lag {
                ms: Some(0),
                bytes: None,
            },
            (Some(Said::Group(said)), _) => Lag {
                ms: said.lag_ms,
                bytes: None,
            },
            (Some(Said::Replication(said)), _) if member.apart_ms.is_none() => {
                replication::lag(said)
            }
            (Some(Said::Postgres(_) | Said::Replication(_)), _) if is_alone => member.lag,
            (Some(Said::Postgres(said)), Some(Said::Postgres(primary))) => {
                let lag = postgres::lag(member.word_ms, said, primary, &self.track);
                match member.apart_ms {
                    None => lag,
                    Some(_) => Lag { ms: None, ..lag },
                }
            }
            _ => Lag::UNKNOWN,
        }
    }

    /// Whether a replica's position could not be held against the primary's.
    fn is_lag_guessed(&self, member: &Member) -> bool {
        let primary = self.primary.and_then(|id| self.member(id)?.said.as_ref());
        match (&member.said, primary) {
            (Some(Said::Postgres(said)), Some(Said::Postgres(primary))) => {
                !self.track.compares(member.word_ms, said, primary)
            }
            _ => false,
        }
    }

    /// Why there is no primary, and what became of an operator's word.
    fn cluster_problems(&self, found: &Finding) -> Vec<Problem> {
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

    /// An operator named a server that cannot be the primary, or not yet.
    fn unheard_name(&self, stands: &[Stand]) -> Option<Problem> {
        let named = self.named?;
        let index = self.index_of(named.id)?;
        if stands[index] == Stand::Claims {
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

    fn nobody(&self, stands: &[Stand]) -> String {
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

/// A member's state in a few words.
fn condition(member: &Member, stand: &Stand) -> String {
    match stand {
        Stand::Unknown if member.word == Word::Unasked => "not checked yet".to_owned(),
        Stand::Unknown => "down".to_owned(),
        Stand::Claims => "accepts writes".to_owned(),
        Stand::Follows => "replica".to_owned(),
        Stand::Unfit(why) | Stand::Refused(why) => why.clone(),
    }
}

/// What an operator must know of one member.
fn member_problem(member: &Member, stand: &Stand, role: &Role, ruling: &Ruling) -> Option<Problem> {
    let refused = ruling.refused.iter().find(|(id, _)| *id == member.id);
    let message = match (stand, role, &member.word) {
        (Stand::Refused(why), _, _) => why.clone(),
        (_, Role::Primary, Word::Mute(why)) => format!(
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
