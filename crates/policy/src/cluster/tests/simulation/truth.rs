//! Simulates the real state of the servers of a cluster: they crash, become isolated, are promoted,
//! and return.

use crate::cluster::report::{
    Galera, GaleraState, Group, MemberState, Postgres, Receiver, ReplicaThreads, Replication,
    ReplicationState,
};
use crate::cluster::{ClusterRoles, Gtids};

use super::Random;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Postgres,
    Replication,
    Galera,
    Group,
}

/// Server with its current state.
pub(super) struct Server {
    pub(super) up: bool,
    /// True if the monitor reaches it.
    pub(super) reachable: bool,
    pub(super) status: ReplicationState,
    /// Group Replication: true if the other members do not reach it.
    isolated: bool,
    /// MariaDB: the highest sequence number that it executed, by server.
    executed: Vec<u64>,
}

pub(super) struct Truth {
    pub(super) kind: Kind,
    pub(super) servers: Vec<Server>,
    view: u64,
}

impl Truth {
    pub(super) fn new(kind: Kind, count: usize) -> Truth {
        let servers = (0..count)
            .map(|index| Server {
                up: true,
                reachable: true,
                status: status(kind, index, count),
                isolated: false,
                executed: vec![0; count],
            })
            .collect();
        Truth {
            kind,
            servers,
            view: 1,
        }
    }

    pub(super) fn is_heard(&self, index: usize) -> bool {
        self.servers[index].up && self.servers[index].reachable
    }

    /// Applies a random event to a server.
    pub(super) fn step(&mut self, random: &mut Random) {
        let index = random.below(self.servers.len() as u64) as usize;
        match random.below(12) {
            0 => self.servers[index].crash_or_start(),
            1 => self.servers[index].reachable ^= true,
            2 => self.promote(index, random),
            3 => self.demote(index),
            4 => self.servers[index].isolated ^= true,
            _ => self.go_on(index, random),
        }
        if self.kind == Kind::Group && random.below(3) == 0 {
            self.regroup();
        }
    }

    /// Ends all faults. One server becomes the primary: `chosen`, or the one that the group elects.
    pub(super) fn heal(&mut self, chosen: usize) {
        for index in 0..self.servers.len() {
            let server = &mut self.servers[index];
            (server.up, server.reachable, server.isolated) = (true, true, false);
            if index != chosen {
                self.demote(index);
            }
            if let ReplicationState::Galera(status) = &mut self.servers[index].status {
                (status.state, status.in_primary_component) = (GaleraState::Synced, true);
                status.read_only = index != chosen;
            }
        }
        self.promote(chosen, &mut Random(1));
        if let ReplicationState::Replication(status) = &mut self.servers[chosen].status {
            status.replica = None;
        }
        let top = self.highest_timeline();
        if let ReplicationState::Postgres(status) = &mut self.servers[chosen].status {
            (status.in_recovery, status.timeline) = (false, top + 1);
        }
        self.regroup();
    }

    fn promote(&mut self, index: usize, random: &mut Random) {
        match &mut self.servers[index].status {
            ReplicationState::Postgres(status) if status.in_recovery => {
                // Sometimes an operator only removes standby.signal: no new timeline.
                status.timeline += u32::from(random.below(6) != 0);
                status.in_recovery = false;
                status.streaming = false;
            }
            ReplicationState::Replication(status) => {
                status.read_only = false;
                // Sometimes an operator forgets to stop the replication.
                if random.below(4) != 0 {
                    status.replica = None;
                }
            }
            ReplicationState::Galera(status) => status.read_only = false,
            ReplicationState::Postgres(_) | ReplicationState::Group(_) => {}
        }
    }

    fn demote(&mut self, index: usize) {
        let top = self.highest_timeline();
        match &mut self.servers[index].status {
            ReplicationState::Postgres(status) => {
                (status.in_recovery, status.streaming, status.timeline) = (true, true, top);
            }
            ReplicationState::Replication(status) => {
                status.read_only = true;
                status.replica = Some(threads());
            }
            ReplicationState::Galera(status) => status.read_only = true,
            ReplicationState::Group(_) => {}
        }
    }

    fn highest_timeline(&self) -> u32 {
        let timelines = self.servers.iter().map(|server| match &server.status {
            ReplicationState::Postgres(status) => status.timeline,
            _ => 0,
        });
        timelines.max().unwrap_or(0)
    }

    /// Adds writes to a server that takes them, or lets it follow one that does.
    fn go_on(&mut self, index: usize, random: &mut Random) {
        let source = random.below(self.servers.len() as u64) as usize;
        let source_executed = self.servers[source].executed.clone();
        let source_writes = self.claims(source);
        let next = self
            .servers
            .iter()
            .flat_map(|one| &one.executed)
            .max()
            .unwrap_or(&0)
            + 1;
        let server = &mut self.servers[index];
        match &mut server.status {
            ReplicationState::Postgres(status) => status.lsn += random.below(100),
            ReplicationState::Replication(status) if !status.read_only => {
                server.executed[index] = next
            }
            ReplicationState::Replication(_) if source_writes => {
                for (own, theirs) in server.executed.iter_mut().zip(&source_executed) {
                    *own = (*own).max(*theirs);
                }
            }
            ReplicationState::Replication(_) | ReplicationState::Group(_) => {}
            ReplicationState::Galera(status) => {
                let states = [GaleraState::Synced, GaleraState::Donor, GaleraState::Joined];
                status.state = states[random.below(3) as usize];
                status.in_primary_component = random.below(4) != 0;
            }
        }
        server.tell_executed();
    }

    /// Forms a view of the members that see each other, if they are the majority.
    fn regroup(&mut self) {
        if self.kind != Kind::Group {
            return;
        }
        let together: Vec<usize> = (0..self.servers.len())
            .filter(|&index| self.servers[index].up && !self.servers[index].isolated)
            .collect();
        let has_quorum = together.len() * 2 > self.servers.len();
        self.view += u64::from(has_quorum);
        let old = together.iter().find(|&&index| self.claims(index));
        let elected = old.or(together.first()).copied();
        let (count, view) = (together.len() as u32, self.view);
        for (index, server) in self.servers.iter_mut().enumerate() {
            let ReplicationState::Group(status) = &mut server.status else {
                continue;
            };
            match (together.contains(&index), has_quorum) {
                (true, true) => {
                    (status.state, status.view) = (MemberState::Online, view);
                    (status.members, status.members_reachable) = (count, count);
                    status.is_primary = Some(index) == elected;
                    status.read_only = !status.is_primary;
                }
                (true, false) => status.members_reachable = count,
                (false, _) if !server.up => {
                    (status.state, status.is_primary, status.read_only) =
                        (MemberState::Offline, false, true);
                }
                (false, _) => status.members_reachable = 1,
            }
        }
    }

    /// Returns whether a server claims to take writes; a second implementation.
    pub(super) fn claims(&self, index: usize) -> bool {
        claims(&self.servers[index].status)
    }

    /// Returns the right decision after every server has reported; a second implementation. `None`
    /// means no primary; several mean that each of them may be the primary. `held` are those that
    /// were the primary during their present claim, `superseded` those that yield to an unavailable
    /// one.
    pub(super) fn right(
        &self,
        timeline_heard: u32,
        (held, superseded): (&[bool], &[usize]),
        primary: Option<u64>,
    ) -> Vec<usize> {
        let claiming: Vec<usize> = (0..self.servers.len())
            .filter(|&index| self.is_heard(index) && self.claims(index))
            .filter(|index| !superseded.contains(index))
            .collect();
        match self.kind {
            Kind::Galera => {
                let mut synced = claiming.clone();
                synced.retain(|&index| is_synced(&self.servers[index].status));
                if synced.is_empty() { claiming } else { synced }
            }
            Kind::Postgres => sole(self.of_timeline(claiming, timeline_heard)),
            Kind::Replication => self.right_of_sets(claiming, held, primary),
            Kind::Group => {
                let view = |index: usize| match &self.servers[index].status {
                    ReplicationState::Group(status) => status.view,
                    _ => 0,
                };
                let latest = claiming.iter().map(|&index| view(index)).max();
                let of_latest = claiming
                    .into_iter()
                    .filter(|&one| Some(view(one)) == latest);
                of_latest.collect()
            }
        }
    }

    fn right_of_sets(
        &self,
        claiming: Vec<usize>,
        held: &[bool],
        primary: Option<u64>,
    ) -> Vec<usize> {
        let is_soft = |&index: &usize| replicates(&self.servers[index].status) && !held[index];
        let (soft, firm): (Vec<usize>, Vec<usize>) = claiming.into_iter().partition(is_soft);
        let stays = |index: &&usize| primary == Some(**index as u64);
        if let (true, Some(&stays)) = (firm.is_empty(), soft.iter().find(stays)) {
            return vec![stays];
        }
        if firm.is_empty() {
            let all_heard = (0..self.servers.len()).all(|index| self.is_heard(index));
            return if all_heard { sole(soft) } else { Vec::new() };
        }
        let is_right = |&&one: &&usize| {
            let mut others = firm.iter().filter(|&&other| other != one);
            others.all(|&other| self.is_ahead(one, other))
        };
        firm.iter().filter(is_right).copied().collect()
    }

    fn of_timeline(&self, claiming: Vec<usize>, timeline: u32) -> Vec<usize> {
        let is_on = |index: &usize| match &self.servers[*index].status {
            ReplicationState::Postgres(status) => status.timeline == timeline,
            _ => false,
        };
        claiming.into_iter().filter(is_on).collect()
    }

    fn is_ahead(&self, one: usize, other: usize) -> bool {
        let (one, other) = (&self.servers[one].executed, &self.servers[other].executed);
        one != other && one.iter().zip(other).all(|(one, other)| one >= other)
    }
}

impl Server {
    /// Stops or starts the server. Another run of it counts as another server.
    fn crash_or_start(&mut self) {
        self.up ^= true;
        match &mut self.status {
            ReplicationState::Postgres(status) => status.started.push('1'),
            ReplicationState::Galera(status) => status.server_identity.push('1'),
            ReplicationState::Replication(_) | ReplicationState::Group(_) => {}
        }
    }

    fn tell_executed(&mut self) {
        if let ReplicationState::Replication(status) = &mut self.status {
            let positions = self.executed.iter().zip(0u32..).filter(|(at, _)| **at > 0);
            status.executed = Gtids::mariadb(positions.map(|(&at, server)| (0, server, at)));
        }
    }
}

fn sole(servers: Vec<usize>) -> Vec<usize> {
    match servers[..] {
        [_] => servers,
        _ => Vec::new(),
    }
}

/// Returns whether a Galera node is synced.
pub(super) fn is_synced(status: &ReplicationState) -> bool {
    matches!(status, ReplicationState::Galera(status) if status.state == GaleraState::Synced)
}

/// Returns the identity and the epoch of a claim.
pub(super) fn who(status: &ReplicationState) -> (String, u64) {
    match status {
        ReplicationState::Postgres(status) => (status.started.clone(), status.timeline.into()),
        ReplicationState::Replication(of) => {
            (of.server_identity.clone(), replicates(status).into())
        }
        ReplicationState::Galera(status) => (status.server_identity.clone(), 0),
        ReplicationState::Group(status) => (status.server_identity.clone(), status.view),
    }
}

pub(super) fn claims(status: &ReplicationState) -> bool {
    match status {
        ReplicationState::Postgres(status) => !status.in_recovery,
        ReplicationState::Replication(status) => !status.read_only,
        ReplicationState::Galera(status) => {
            status.in_primary_component && status.state != GaleraState::Joining && !status.read_only
        }
        ReplicationState::Group(status) => {
            status.is_primary
                && !status.read_only
                && status.state == MemberState::Online
                && status.members_reachable * 2 > status.members
        }
    }
}

/// Returns whether a server has replication threads.
pub(super) fn replicates(status: &ReplicationState) -> bool {
    matches!(status, ReplicationState::Replication(status) if status.replica.is_some())
}

/// Returns whether the result names one of these, or no server if there are none.
pub(super) fn agrees(roles: &ClusterRoles, right: &[usize]) -> bool {
    match roles.primary {
        None => right.is_empty(),
        Some(primary) => right.contains(&(primary as usize)),
    }
}

fn status(kind: Kind, index: usize, count: usize) -> ReplicationState {
    let is_first = index == 0;
    match kind {
        Kind::Postgres => ReplicationState::Postgres(Postgres {
            system_id: 7,
            started: "1".to_owned(),
            timeline: 1,
            in_recovery: !is_first,
            lsn: 10,
            streaming: !is_first,
            replay_age_ms: Some(5),
            read_only_by_default: false,
        }),
        Kind::Replication => ReplicationState::Replication(Replication {
            server_identity: index.to_string(),
            read_only: !is_first,
            executed: Gtids::default(),
            visible: Gtids::default(),
            replica: (!is_first).then(threads),
        }),
        Kind::Galera => ReplicationState::Galera(Galera {
            server_identity: index.to_string(),
            cluster_uuid: "c".to_owned(),
            in_primary_component: true,
            state: GaleraState::Synced,
            ready: true,
            set_aside: false,
            read_only: false,
            receive_queue: 0,
            causal: true,
        }),
        Kind::Group => ReplicationState::Group(Group {
            group_name: "g".to_owned(),
            server_identity: index.to_string(),
            state: MemberState::Online,
            is_primary: is_first,
            read_only: !is_first,
            members: count as u32,
            members_reachable: count as u32,
            primaries: 1,
            incarnation: "17952095631563150".to_owned(),
            view: 1,
            applier_queue: 0,
            lag_ms: Some(1),
            visible: Gtids::default(),
        }),
    }
}

fn threads() -> ReplicaThreads {
    ReplicaThreads {
        source: "somewhere:3306".to_owned(),
        receiver: Receiver::Connected,
        applier_runs: true,
        lag_ms: Some(0),
        error: String::new(),
    }
}
