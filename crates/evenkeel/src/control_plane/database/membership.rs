//! Describes the roles of a service's servers for the tasks that query them.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_monitor::probe::{Target, Tls};
use evenkeel_proxy::Server;
use evenkeel_proxy::server_info::ServersFault;

use crate::control_plane::endpoint::target;

/// A server that can be queried, and its TLS settings.
#[derive(Debug, Clone)]
pub(super) struct MonitoredServer {
    pub(super) server: Arc<Server>,
    pub(super) tls: Tls,
}

impl MonitoredServer {
    pub(super) fn id(&self) -> u64 {
        self.server.id
    }

    /// Returns the server's address. `None` while its host name is not resolved.
    pub(super) fn target(&self) -> Option<Target> {
        self.server.endpoints().first().map(target)
    }
}

/// Roles of a service's servers at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Membership {
    /// Epoch of the primary.
    pub(super) epoch: u64,
    pub(super) primary: Option<u64>,
    /// Live replicas.
    pub(super) replicas: Vec<u64>,
    /// Live servers that the cluster has not rejected, in the order of the configuration.
    pub(super) up: Vec<u64>,
    /// True if reads go to replicas and must see earlier writes.
    pub(super) tracks: bool,
    /// Reason why no server can be used.
    pub(super) fault: Option<ServersFault>,
}

/// Position query that a server needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PositionTask {
    Nothing,
    /// Queries what the primary has written.
    Sample {
        epoch: u64,
    },
    /// Queries up to which position a replica has applied.
    Follow,
}

impl Membership {
    pub(super) fn task(&self, server_id: u64) -> PositionTask {
        let is_replica = self.replicas.contains(&server_id);
        match self.primary {
            Some(_) if !self.tracks || self.replicas.is_empty() => PositionTask::Nothing,
            Some(primary) if primary == server_id => PositionTask::Sample { epoch: self.epoch },
            Some(_) if is_replica => PositionTask::Follow,
            // Without a primary there are no writes that a replica would have to apply.
            _ => PositionTask::Nothing,
        }
    }

    /// Returns whether it is useless to wait for a server that can be queried.
    pub(super) fn has_lasting_fault(&self) -> bool {
        self.fault.as_ref().is_some_and(|fault| fault.is_lasting)
    }

    /// Returns the servers in the order in which to query what all of them know: the primary, then
    /// its replicas, then the others.
    pub(super) fn by_preference(&self) -> Vec<u64> {
        let mut all = self.up.clone();
        all.sort_by_key(|id| (self.primary != Some(*id), !self.replicas.contains(id)));
        all
    }
}

/// Counts the epochs of primaries.
#[derive(Debug, Default)]
pub(super) struct EpochCounter {
    /// Timeline that each server reported last, by server id.
    timelines: BTreeMap<u64, u32>,
    /// Primary of the current epoch, and its timeline.
    current: Option<(u64, u32)>,
}

impl EpochCounter {
    pub(super) fn record_timeline(&mut self, server_id: u64, timeline: u32) {
        self.timelines.insert(server_id, timeline);
    }

    /// Records the primary and returns whether a new epoch begins: another server is the primary,
    /// or the same one is on another timeline.
    pub(super) fn starts_epoch(&mut self, primary: Option<u64>) -> bool {
        let Some(primary) = primary else { return false };
        let timeline = self.timelines.get(&primary).copied().unwrap_or(0);
        let current = Some((primary, timeline));
        std::mem::replace(&mut self.current, current) != current
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn membership() -> Membership {
        Membership {
            epoch: 4,
            primary: Some(2),
            replicas: vec![1, 3],
            up: vec![1, 2, 3],
            tracks: true,
            fault: None,
        }
    }

    #[test]
    fn the_primary_is_sampled_and_its_replicas_followed_where_reads_are_split() {
        assert_eq!(membership().task(2), PositionTask::Sample { epoch: 4 });
        assert_eq!(membership().task(3), PositionTask::Follow);
        assert_eq!(membership().task(9), PositionTask::Nothing);
        let changes: [fn(&mut Membership); 3] = [
            |membership| membership.tracks = false,
            |membership| membership.primary = None,
            |membership| membership.replicas.clear(),
        ];
        for change in changes {
            let mut membership = membership();
            change(&mut membership);
            assert_eq!(
                (membership.task(2), membership.task(3)),
                (PositionTask::Nothing, PositionTask::Nothing)
            );
        }
    }

    #[test]
    fn the_primary_is_asked_before_its_replicas_and_those_before_the_others() {
        assert_eq!(membership().by_preference(), [2, 1, 3]);
        let up = vec![3];
        assert_eq!(Membership { up, ..membership() }.by_preference(), [3]);
        let up = vec![9, 3, 2];
        assert_eq!(Membership { up, ..membership() }.by_preference(), [2, 3, 9]);
        let alone = Membership {
            primary: None,
            up: vec![9, 3],
            ..membership()
        };
        assert_eq!(alone.by_preference(), [3, 9]);
    }

    #[test]
    fn a_time_begins_with_another_primary_or_another_timeline_and_not_with_a_return() {
        let mut epochs = EpochCounter::default();
        epochs.record_timeline(1, 7);
        assert!(!epochs.starts_epoch(None));
        assert!(epochs.starts_epoch(Some(1)) && !epochs.starts_epoch(Some(1)));
        assert!(!epochs.starts_epoch(None) && !epochs.starts_epoch(Some(1)));
        epochs.record_timeline(2, 8);
        assert!(epochs.starts_epoch(Some(2)));
        assert!(epochs.starts_epoch(Some(1)));
        epochs.record_timeline(1, 9);
        assert!(epochs.starts_epoch(Some(1)));
    }
}
