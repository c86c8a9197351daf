//! Determines the servers that may execute a session's work, and picks one of them.
//! `policy::causality` defines the required positions, `policy::route` the routing.

use std::sync::Arc;

use evenkeel_engine::{clock, fast_random};
use evenkeel_policy::causality::{
    Candidate, CausalityToken, Consistency, Position, ReadChoice, RequiredPosition, readers,
};
use evenkeel_policy::cluster::Gtids;
use evenkeel_policy::load::Load;
use evenkeel_policy::route::{self, Decision, RouteTarget};
use evenkeel_policy::rules::ServerGroup;
use evenkeel_policy::server_set::{MemberSet, Pick, PickRequest};

use crate::server::Server;
use crate::server_info::{Positions, ServerInfo};
use crate::service::ServiceSnapshot;
use crate::service::database::DatabaseSnapshot;

/// Target server of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PlacementTarget {
    /// Primary.
    Primary,
    /// Server by index in the snapshot, with a load slot of the readers reserved.
    Reader(usize),
    /// Server by index in the snapshot, named by a hint.
    Named(usize),
    /// Server that must first wait until it has replayed the position.
    AfterPosition(usize, Position),
    /// Like [`Self::Reader`], but the server must first wait for everything its cluster has
    /// committed.
    AfterSync(usize),
}

/// Condition that a server must wait for before it executes the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CatchUpTarget {
    /// Server has replayed this position.
    Position(Position),
    /// Server has everything that its cluster has committed.
    Everything,
}

/// Server of a session's connection, with a load slot that is released on drop.
pub(super) struct Placement {
    pub(super) server: Arc<Server>,
    pub(super) is_replica: bool,
    load: Arc<Load>,
    pub(super) epoch: u64,
    /// Writes of a MySQL session that have not been counted yet.
    pub(super) written: UncommittedWrites,
}

/// Writes that a session may have made at a server.
#[derive(Default)]
pub(super) struct UncommittedWrites {
    /// True if there may be writes, perhaps not committed yet.
    pub(super) is_some: bool,
    /// GTIDs of the writes that the server has reported.
    pub(super) gtids: Option<Gtids>,
    /// True if there may be writes whose GTIDs were not reported.
    pub(super) is_partial: bool,
}

impl PlacementTarget {
    /// Returns the server's index in the snapshot; `None`: there is no primary.
    pub(super) fn index(&self, database: &DatabaseSnapshot) -> Option<usize> {
        match self {
            PlacementTarget::Primary => database.primary,
            PlacementTarget::Reader(index)
            | PlacementTarget::Named(index)
            | PlacementTarget::AfterPosition(index, _)
            | PlacementTarget::AfterSync(index) => Some(*index),
        }
    }

    /// Releases the reserved load slot of a target that is not used.
    pub(super) fn forgo(self, database: &DatabaseSnapshot) {
        if let PlacementTarget::Reader(index) | PlacementTarget::AfterSync(index) = self {
            database.server_loads[index].release();
        }
    }
}

impl Placement {
    /// Creates a placement at a server of the snapshot. `is_reserved`: its load slot is already
    /// reserved.
    pub(super) fn new(view: &ServiceSnapshot, index: usize, is_reserved: bool) -> Option<Self> {
        let database = view.database()?;
        let load = Arc::clone(&database.server_loads[index]);
        if !is_reserved {
            // There is no limit here: the slot only counts load.
            let _ = load.try_reserve();
        }
        Some(Self {
            server: Arc::clone(&view.servers[index]),
            is_replica: database.primary != Some(index),
            load,
            epoch: database.epoch,
            written: UncommittedWrites::default(),
        })
    }
}

impl Drop for Placement {
    fn drop(&mut self) {
        self.load.release();
    }
}

/// Read to be placed.
pub(super) struct ReadRequest<'a> {
    pub(super) server_info: &'a ServerInfo,
    /// Causality token: the session's writes.
    pub(super) token: &'a mut CausalityToken,
    /// Servers that have failed the read.
    pub(super) tried: &'a [u64],
    /// Servers permitted by a rule; `None`: all.
    pub(super) among: Option<&'a ServerGroup>,
    /// True if a lagging replica may be made to wait: if that fails, the read can be retried on
    /// another server.
    pub(super) may_wait: bool,
}

/// Servers that may serve a read.
pub(super) struct ReadCandidates {
    primary: Option<usize>,
    readers: ReadChoice,
    soon: Option<(usize, Position)>,
    /// Servers that have failed the read.
    failed: MemberSet,
    may_wait: bool,
    now_us: u64,
}

impl ReadRequest<'_> {
    /// Determines the candidates from the current server positions.
    pub(super) fn candidates(
        self,
        view: &ServiceSnapshot,
        database: &DatabaseSnapshot,
    ) -> ReadCandidates {
        let positions = self.server_info.positions();
        let mut written;
        let requires = match database.consistency {
            Consistency::Eventual => RequiredPosition::Nothing,
            Consistency::ReadYourWrites => {
                self.token
                    .assume_writes_before(database.writes_recorded_since_us, database.epoch);
                required_position(self.token, &positions, database.epoch)
            }
            Consistency::Global => {
                let writes = self.server_info.writes();
                written = writes.token(database.epoch, clock::now_us());
                required_position(&mut written, &positions, database.epoch)
            }
        };
        let candidates = view
            .servers
            .iter()
            .enumerate()
            .map(|(index, server)| Candidate {
                is_primary: database.primary == Some(index),
                is_replica: database.replicas[index],
                is_tried: self.tried.contains(&server.id)
                    || self.among.is_some_and(|group| !group.has(index)),
                replica: match database.spares[index] {
                    true => positions.replica(server.id).without_wait_support(),
                    false => positions.replica(server.id),
                },
            });
        let now_us = clock::now_us();
        let readers = readers(requires, candidates, now_us, &database.causality);
        let soon = match (requires, readers.soonest) {
            (RequiredPosition::Position(position), Some(index)) if self.may_wait => {
                Some((index, position.clone()))
            }
            _ => None,
        };
        ReadCandidates {
            primary: database.primary,
            readers,
            soon,
            failed: indexes_of(self.tried, view),
            may_wait: self.may_wait,
            now_us,
        }
    }
}

/// Returns the snapshot indexes of these servers.
fn indexes_of(servers: &[u64], view: &ServiceSnapshot) -> MemberSet {
    let mut indexes = MemberSet::none();
    for id in servers {
        let position = view.servers.iter().position(|server| server.id == *id);
        position.into_iter().for_each(|index| indexes.insert(index));
    }
    indexes
}

/// Returns the required position. Writes get a position once the primary's has been sampled.
fn required_position<'a>(
    token: &'a mut CausalityToken,
    positions: &Positions,
    epoch: u64,
) -> RequiredPosition<'a> {
    if let Some(sample) = &positions.sample {
        token.apply_sample(sample);
    }
    token.requires(epoch)
}

impl ReadCandidates {
    /// Returns the availability for the router.
    pub(super) fn availability(&self) -> route::ServerAvailability {
        route::ServerAvailability {
            primary: self.primary,
            replicas: self.readers.replicas,
            replicas_fresh: self.readers.fresh + usize::from(self.soon.is_some()) + self.waiting(),
        }
    }

    /// Requests sampling of positions if a read finds replicas but none fresh enough. Work that
    /// goes to the primary anyway needs no positions.
    pub(super) fn want_positions(&self, decision: &Decision, server_info: &ServerInfo) {
        if decision.is_read && self.readers.fresh == 0 && self.readers.replicas > 0 {
            server_info.track().request_positions(self.now_us);
        }
    }

    /// Returns whether a hint may select the server: it takes part in the service and has not
    /// failed the read.
    fn may_be_named(&self, database: &DatabaseSnapshot, index: usize) -> bool {
        let takes_part = database.primary == Some(index) || database.replicas[index];
        takes_part && !self.failed.contains(index)
    }

    /// Returns the number of replicas that qualify after waiting for everything committed.
    fn waiting(&self) -> usize {
        match self.may_wait {
            true => self.readers.fresh_after_sync,
            false => 0,
        }
    }

    /// Returns the placement for the router's decision. `key` identifies the client for balancing;
    /// `has_room` returns whether a server has a free connection.
    pub(super) fn place(
        mut self,
        target: RouteTarget,
        database: &DatabaseSnapshot,
        key: u64,
        has_room: impl Fn(usize) -> bool,
    ) -> PlacementTarget {
        match (target, self.soon.take()) {
            (RouteTarget::Primary, _) => PlacementTarget::Primary,
            (RouteTarget::Server(index), _) if self.may_be_named(database, index) => {
                PlacementTarget::Named(index)
            }
            (RouteTarget::Server(_), _) => PlacementTarget::Primary,
            (RouteTarget::Readers { .. }, Some((index, position))) => {
                PlacementTarget::AfterPosition(index, position)
            }
            (RouteTarget::Readers { and_primary }, None) => {
                self.pick(database, and_primary, key, has_room)
            }
        }
    }

    /// Picks a server for a read by the service's balancing.
    fn pick(
        self,
        database: &DatabaseSnapshot,
        and_primary: bool,
        key: u64,
        has_room: impl Fn(usize) -> bool,
    ) -> PlacementTarget {
        let waits = self.waiting() > 0;
        let mut barred = match waits {
            true => self.readers.barred_waiting,
            false => self.readers.barred,
        };
        if let Some(primary) = database.primary.filter(|_| !and_primary) {
            barred.insert(primary);
        }
        let found = match picked(&barred, database, (key, self.now_us)) {
            Some(first) if has_room(first) => Some(first),
            Some(first) => Some(less_busy(
                first,
                barred,
                database,
                (key, self.now_us),
                has_room,
            )),
            None => pick_spare(&barred, database, has_room),
        };
        match found {
            Some(index) if waits && database.primary != Some(index) => {
                PlacementTarget::AfterSync(index)
            }
            Some(index) => PlacementTarget::Reader(index),
            None => PlacementTarget::Primary,
        }
    }
}

/// Picks another server with a free connection if all of the first one's are in use. Those may
/// belong to clients whose work is blocked there.
fn less_busy(
    first: usize,
    mut barred: MemberSet,
    database: &DatabaseSnapshot,
    key: (u64, u64),
    has_room: impl Fn(usize) -> bool,
) -> usize {
    barred.insert(first);
    while let Some(next) = picked(&barred, database, key) {
        if has_room(next) {
            database.server_loads[first].release();
            return next;
        }
        database.server_loads[next].release();
        barred.insert(next);
    }
    let Some(spare) = pick_spare(&barred, database, has_room) else {
        return first;
    };
    database.server_loads[first].release();
    spare
}

/// Picks a spare replica with a free connection, and reserves its load slot.
fn pick_spare(
    barred: &MemberSet,
    database: &DatabaseSnapshot,
    has_room: impl Fn(usize) -> bool,
) -> Option<usize> {
    let mut spares = (0..database.spares.len()).filter(|index| database.spares[*index]);
    let found = spares.find(|index| !barred.contains(*index) && has_room(*index))?;
    // There is no limit here: the slot only counts load.
    let _ = database.server_loads[found].try_reserve();
    Some(found)
}

/// Picks a server by the service's balancing, and reserves its load slot.
fn picked(
    barred: &MemberSet,
    database: &DatabaseSnapshot,
    (key, now_us): (u64, u64),
) -> Option<usize> {
    let request = PickRequest {
        key,
        tried: barred,
        random: fast_random(),
        now_us,
    };
    match database.readers.pick(&request) {
        Pick::Server(index) if !barred.contains(index) => Some(index),
        Pick::Server(index) => {
            database.server_loads[index].release();
            None
        }
        Pick::AllFull | Pick::NoneUp => None,
    }
}
