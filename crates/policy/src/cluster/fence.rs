//! Remembers the highest timeline of a PostgreSQL cluster, and which servers were on it.
//!
//! A server on a lower timeline does not become the primary, even while all servers of the higher
//! one are unavailable. Only an operator lifts that: by an override, or by removing those servers
//! from the configuration.

use std::cmp::Ordering;

use super::member::Member;
use super::report::{Postgres, ReplicationState};
use super::{Cluster, PrimaryOverride, Problem};

/// Highest timeline that any server of a cluster was on.
#[derive(Debug, Clone)]
pub(super) struct Fence {
    pub(super) timeline: u32,
    /// Servers that were on it, the earliest first; never empty.
    pub(super) witnesses: Vec<TimelineHolder>,
}

/// Server that was on a timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TimelineHolder {
    /// Member; `None` if another process knew it, and no member has its name.
    pub(super) id: Option<u64>,
    pub(super) name: String,
}

impl Fence {
    /// Returns the first known server on it.
    pub(super) fn seen_at(&self) -> &str {
        self.witnesses.first().map_or("", |one| one.name.as_str())
    }
}

impl Cluster {
    /// Records the timeline of a member.
    pub(super) fn raise_fence(&mut self, index: usize, status: &ReplicationState) {
        let ReplicationState::Postgres(status) = status else {
            return;
        };
        let member = &self.members[index];
        let witness = TimelineHolder {
            id: Some(member.id),
            name: member.name.clone(),
        };
        self.add_witness(status.system_id, status.timeline, witness);
    }

    /// Records that a server was on a timeline.
    pub(super) fn add_witness(&mut self, system_id: u64, timeline: u32, witness: TimelineHolder) {
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

    /// Forgets servers that are no longer members, and timelines without a remaining server. Then
    /// records the timelines of all members again.
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
        self.observe_members();
    }

    /// Records the timelines of all members.
    fn observe_members(&mut self) {
        for index in 0..self.members.len() {
            if let Some(status) = self.members[index].status.clone() {
                self.raise_fence(index, &status);
            }
        }
    }

    /// Lowers the fence to the timeline of the override's server, if that is not in recovery and no
    /// member reports a higher one. All members must have reported or be down. Checked only when
    /// the override is set. An override without effect must not admit an old primary as soon as the
    /// right one is down.
    pub(super) fn override_fence(&mut self, selected: &mut PrimaryOverride) {
        let Some(status) = self.member(selected.id).and_then(postgres) else {
            return;
        };
        let (system_id, timeline) = (status.system_id, status.timeline);
        let fence = self.fences.get(&system_id);
        let Some(fence) = fence.filter(|fence| fence.timeline > timeline) else {
            return;
        };
        let is_above = |other: &Postgres| other.system_id == system_id && other.timeline > timeline;
        let is_disputed = self.members.iter().filter_map(postgres).any(is_above);
        if status.in_recovery || is_disputed || !self.have_all_reported() {
            return;
        }
        selected.overridden_timeline = Some(fence.timeline);
        self.fences.remove(&system_id);
        self.observe_members();
    }

    /// Returns the problem to report while an override ignores a higher timeline.
    pub(super) fn fence_problem(&self) -> Option<Problem> {
        let selected = self.selected?;
        let (timeline, member) = (selected.overridden_timeline?, self.member(selected.id)?);
        Some(Problem {
            server: Some(member.id),
            message: format!(
                "{}: the operator's override names this server although the cluster has reached \
                 timeline {timeline}, which is higher than its own; the higher timeline is now \
                 ignored. Rebuild any server still on timeline {timeline} before it rejoins, or it \
                 will be taken for the primary",
                member.name
            ),
        })
    }
}

fn postgres(member: &Member) -> Option<&Postgres> {
    match &member.status {
        Some(ReplicationState::Postgres(status)) => Some(status),
        _ => None,
    }
}
