//! PostgreSQL: the highest timeline of a cluster is remembered, and who was on it.
//!
//! A server on a lower one is not used, also while all that are on the higher one are away. Only
//! an operator lifts that: by a name, or by taking them out of the configuration.

use std::cmp::Ordering;

use super::member::Member;
use super::report::{Postgres, ReplicationState};
use super::{Cluster, PrimaryOverride, Problem};

/// The highest timeline that anybody of a cluster was ever on.
#[derive(Debug, Clone)]
pub(super) struct Fence {
    pub(super) timeline: u32,
    /// Who was on it, the first first; there is always one.
    pub(super) witnesses: Vec<TimelineHolder>,
}

/// A server that was on a timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TimelineHolder {
    /// `None` if another process knew it, and no member has its name.
    pub(super) id: Option<u64>,
    pub(super) name: String,
}

impl Fence {
    /// The first that is remembered to have been on it.
    pub(super) fn seen_at(&self) -> &str {
        self.witnesses.first().map_or("", |one| one.name.as_str())
    }
}

impl Cluster {
    /// Remembers the timeline that a member is on.
    pub(super) fn raise_fence(&mut self, index: usize, said: &ReplicationState) {
        let ReplicationState::Postgres(said) = said else {
            return;
        };
        let member = &self.members[index];
        let witness = TimelineHolder {
            id: Some(member.id),
            name: member.name.clone(),
        };
        self.witness(said.system_id, said.timeline, witness);
    }

    /// Remembers that a server was on a timeline.
    pub(super) fn witness(&mut self, system_id: u64, timeline: u32, witness: TimelineHolder) {
        let fence = self.fences.entry(system_id).or_insert_with(|| Fence {
            timeline,
            witnesses: Vec::new(),
        });
        match timeline.cmp(&fence.timeline) {
            Ordering::Less => {}
            Ordering::Equal if fence.witnesses.contains(&witness) => {}
            Ordering::Equal => fence.witnesses.push(witness),
            Ordering::Greater => {
                *fence = Fence {
                    timeline,
                    witnesses: vec![witness],
                }
            }
        }
    }

    /// Forgets the timelines that only servers were on which are members no more.
    pub(super) fn forget_witnesses(&mut self) {
        let members = &self.members;
        self.fences.retain(|_, fence| {
            fence.witnesses.retain_mut(|witness| {
                let Some(id) = witness.id else { return true };
                let member = members.iter().find(|member| member.id == id);
                if let Some(member) = member {
                    witness.name.clone_from(&member.name);
                }
                member.is_some()
            });
            !fence.witnesses.is_empty()
        });
        self.heed_members();
    }

    /// Remembers what the members are on now.
    fn heed_members(&mut self) {
        for index in 0..self.members.len() {
            if let Some(said) = self.members[index].said.clone() {
                self.raise_fence(index, &said);
            }
        }
    }

    /// Lowers the fence to the named server's timeline if nobody who can be heard is on a higher
    /// one. That is looked at only when the name is given: a name that was in vain must not let an
    /// old primary in as soon as the right one is down.
    pub(super) fn overrule_fence(&mut self, named: &mut PrimaryOverride) {
        let Some(said) = self.member(named.id).and_then(postgres) else {
            return;
        };
        let (system_id, timeline) = (said.system_id, said.timeline);
        let fence = self.fences.get(&system_id);
        let Some(fence) = fence.filter(|fence| fence.timeline > timeline) else {
            return;
        };
        let is_above = |other: &Postgres| other.system_id == system_id && other.timeline > timeline;
        let is_disputed = self.members.iter().filter_map(postgres).any(is_above);
        if said.in_recovery || is_disputed || !self.everyone_spoke() {
            return;
        }
        named.overridden_timeline = Some(fence.timeline);
        self.fences.remove(&system_id);
        self.heed_members();
    }

    /// What an operator took upon himself with a name.
    pub(super) fn overruling(&self) -> Option<Problem> {
        let named = self.named?;
        let (timeline, member) = (named.overridden_timeline?, self.member(named.id)?);
        Some(Problem {
            server: Some(member.id),
            message: format!(
                "{}: selected by the operator although the cluster has reached timeline \
                 {timeline}, which is higher than its own; the higher timeline is now ignored. \
                 Rebuild any server still on timeline {timeline} before it rejoins, or it will be \
                 taken for the primary",
                member.name
            ),
        })
    }
}

fn postgres(member: &Member) -> Option<&Postgres> {
    match &member.said {
        Some(ReplicationState::Postgres(said)) => Some(said),
        _ => None,
    }
}
