//! Where the work of a session may run: the servers of a view as its reads find them, and the one
//! that it goes to. What they must have is `policy::causality`'s to say, where it goes
//! `policy::route`'s.

use std::sync::Arc;

use evenkeel_policy::causality::{
    Candidate, CausalityToken, Consistency, Position, ReadChoice, RequiredPosition, readers,
};
use evenkeel_policy::cluster::Gtids;
use evenkeel_policy::load::Load;
use evenkeel_policy::route::{self, Decision, RouteTarget};
use evenkeel_policy::rules::ServerGroup;
use evenkeel_policy::server_set::{MemberSet, Pick, PickRequest};

use crate::clock;
use crate::fast_random::fast_random;
use crate::server::Server;
use crate::server_info::{Positions, ServerInfo};
use crate::service::ServiceSnapshot;
use crate::service::database::DatabaseSnapshot;

/// Where work is to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PlacementTarget {
    /// Wherever writes go.
    Primary,
    /// At one of the view's servers, whose place among those that read is taken.
    Reader(usize),
    /// At this one of the view's servers, because a hint says so.
    Named(usize),
    /// At this one, which will have what must be seen: it is to wait for that first.
    AfterPosition(usize, Position),
    /// As [`Wanted::Reader`], once that has waited for all that its cluster has committed.
    AfterSync(usize),
}

/// What a server is to wait for before it does anything else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CatchUpTarget {
    /// That it is as far as this.
    Position(Position),
    /// That it has all that its cluster has committed.
    Everything,
}

/// Where a session's connection goes.
pub(super) struct Placement {
    pub(super) server: Arc<Server>,
    pub(super) is_replica: bool,
    busy: Arc<Load>,
    pub(super) epoch: u64,
    /// By a MySQL session, since that was last counted.
    pub(super) written: UncommittedWrites,
}

/// What may have been written at a server.
#[derive(Default)]
pub(super) struct UncommittedWrites {
    /// There may be something, perhaps not committed yet.
    pub(super) is_some: bool,
    /// Where in its log the server has put it, as far as it has told.
    pub(super) told: Option<Gtids>,
    /// It may have put there what it has not told of.
    pub(super) is_partial: bool,
}

impl PlacementTarget {
    /// The server's place in the view; `None`: there is no primary.
    pub(super) fn index(&self, own: &DatabaseSnapshot) -> Option<usize> {
        match self {
            PlacementTarget::Primary => own.primary,
            PlacementTarget::Reader(index)
            | PlacementTarget::Named(index)
            | PlacementTarget::AfterPosition(index, _)
            | PlacementTarget::AfterSync(index) => Some(*index),
        }
    }

    /// It is not gone there: the place that was taken is free again.
    pub(super) fn forgo(self, own: &DatabaseSnapshot) {
        if let PlacementTarget::Reader(index) | PlacementTarget::AfterSync(index) = self {
            own.busy[index].release();
        }
    }
}

impl Placement {
    /// A server of the view; `is_reserved`: its place among those that read is taken already.
    pub(super) fn new(view: &ServiceSnapshot, index: usize, is_reserved: bool) -> Option<Self> {
        let own = view.database.as_ref()?;
        let busy = Arc::clone(&own.busy[index]);
        if !is_reserved {
            // Without a limit: it only counts.
            let _ = busy.try_reserve();
        }
        Some(Self {
            server: Arc::clone(&view.servers[index]),
            is_replica: own.primary != Some(index),
            busy,
            epoch: own.epoch,
            written: UncommittedWrites::default(),
        })
    }
}

impl Drop for Placement {
    fn drop(&mut self) {
        self.busy.release();
    }
}

/// A read that is to be placed.
pub(super) struct ReadRequest<'a> {
    pub(super) knowledge: &'a ServerInfo,
    /// What its session wrote.
    pub(super) token: &'a mut CausalityToken,
    /// Servers that failed it.
    pub(super) tried: &'a [u64],
    /// The servers that a rule leaves; `None`: all.
    pub(super) among: Option<&'a ServerGroup>,
    /// A replica that is late may be told to wait: if that does not help, the read can be run
    /// elsewhere.
    pub(super) may_wait: bool,
}

/// The servers as a read finds them.
pub(super) struct ReadCandidates {
    primary: Option<usize>,
    readers: ReadChoice,
    soon: Option<(usize, Position)>,
    /// Those that have failed the read.
    failed: MemberSet,
    may_wait: bool,
    now_us: u64,
}

impl ReadRequest<'_> {
    /// Looks at the servers, as they are known at this moment.
    pub(super) fn look(self, view: &ServiceSnapshot, own: &DatabaseSnapshot) -> ReadCandidates {
        let positions = self.knowledge.positions();
        let mut written;
        let requires = match own.consistency {
            Consistency::Eventual => RequiredPosition::Nothing,
            Consistency::ReadYourWrites => {
                self.token
                    .assume_writes_before(own.noted_since_us, own.epoch);
                settled(self.token, &positions, own.epoch)
            }
            Consistency::Global => {
                let writes = self.knowledge.writes();
                written = writes.token(own.epoch, clock::now_us());
                settled(&mut written, &positions, own.epoch)
            }
        };
        let candidates = view
            .servers
            .iter()
            .enumerate()
            .map(|(index, server)| Candidate {
                is_primary: own.primary == Some(index),
                is_replica: own.replicas[index],
                is_tried: self.tried.contains(&server.id)
                    || self.among.is_some_and(|group| !group.has(index)),
                replica: match own.spares[index] {
                    true => positions.replica(server.id).at_once(),
                    false => positions.replica(server.id),
                },
            });
        let now_us = clock::now_us();
        let readers = readers(requires, candidates, now_us, &own.causality);
        let soon = match (requires, readers.soonest) {
            (RequiredPosition::Position(position), Some(index)) if self.may_wait => {
                Some((index, position.clone()))
            }
            _ => None,
        };
        ReadCandidates {
            primary: own.primary,
            readers,
            soon,
            failed: places_of(self.tried, view),
            may_wait: self.may_wait,
            now_us,
        }
    }
}

/// Where the view has these servers.
fn places_of(servers: &[u64], view: &ServiceSnapshot) -> MemberSet {
    let mut places = MemberSet::none();
    for id in servers {
        let place = view.servers.iter().position(|server| server.id == *id);
        place.into_iter().for_each(|index| places.insert(index));
    }
    places
}

/// What was written has a position once the primary was asked for one.
fn settled<'a>(
    token: &'a mut CausalityToken,
    positions: &Positions,
    epoch: u64,
) -> RequiredPosition<'a> {
    if let Some(sample) = &positions.sample {
        token.settle(sample);
    }
    token.requires(epoch)
}

impl ReadCandidates {
    /// For the router.
    pub(super) fn seen(&self) -> route::ServerAvailability {
        route::ServerAvailability {
            primary: self.primary,
            replicas: self.readers.replicas,
            replicas_fresh: self.readers.fresh + usize::from(self.soon.is_some()) + self.waiting(),
        }
    }

    /// A read that no replica may serve yet makes their positions worth asking for; what goes to
    /// the primary anyway does not.
    pub(super) fn want_positions(&self, decision: &Decision, knowledge: &ServerInfo) {
        if decision.is_read && self.readers.fresh == 0 && self.readers.replicas > 0 {
            knowledge.track().want(self.now_us);
        }
    }

    /// A hint is not followed to one that takes nobody, or has failed the read.
    fn may_be_named(&self, own: &DatabaseSnapshot, index: usize) -> bool {
        let takes_part = own.primary == Some(index) || own.replicas[index];
        takes_part && !self.failed.contains(index)
    }

    /// How many replicas will do that have waited for all that is committed.
    fn waiting(&self) -> usize {
        match self.may_wait {
            true => self.readers.causal,
            false => 0,
        }
    }

    /// Where that is what the router has decided on. `key`: who reads, for the balance; `has_room`
    /// says of a server whether its connections are not all in use.
    pub(super) fn place(
        mut self,
        target: RouteTarget,
        own: &DatabaseSnapshot,
        key: u64,
        has_room: impl Fn(usize) -> bool,
    ) -> PlacementTarget {
        match (target, self.soon.take()) {
            (RouteTarget::Primary, _) => PlacementTarget::Primary,
            (RouteTarget::Server(index), _) if self.may_be_named(own, index) => {
                PlacementTarget::Named(index)
            }
            (RouteTarget::Server(_), _) => PlacementTarget::Primary,
            (RouteTarget::Readers { .. }, Some((index, position))) => {
                PlacementTarget::AfterPosition(index, position)
            }
            (RouteTarget::Readers { and_primary }, None) => {
                self.pick(own, and_primary, key, has_room)
            }
        }
    }

    /// One of those that may serve a read, as the service balances them.
    fn pick(
        self,
        own: &DatabaseSnapshot,
        and_primary: bool,
        key: u64,
        has_room: impl Fn(usize) -> bool,
    ) -> PlacementTarget {
        let waits = self.waiting() > 0;
        let mut barred = match waits {
            true => self.readers.barred_waiting,
            false => self.readers.barred,
        };
        if let Some(primary) = own.primary.filter(|_| !and_primary) {
            barred.insert(primary);
        }
        let found = match picked(&barred, own, (key, self.now_us)) {
            Some(first) if has_room(first) => Some(first),
            Some(first) => Some(roomier(first, barred, own, (key, self.now_us), has_room)),
            None => spare(&barred, own, has_room),
        };
        match found {
            Some(index) if waits && own.primary != Some(index) => PlacementTarget::AfterSync(index),
            Some(index) => PlacementTarget::Reader(index),
            None => PlacementTarget::Primary,
        }
    }
}

/// Another one that has a connection for a read, if all of the first one's are in use: they may be
/// with clients whose work stands still there.
fn roomier(
    first: usize,
    mut barred: MemberSet,
    own: &DatabaseSnapshot,
    who: (u64, u64),
    has_room: impl Fn(usize) -> bool,
) -> usize {
    barred.insert(first);
    while let Some(next) = picked(&barred, own, who) {
        if has_room(next) {
            own.busy[first].release();
            return next;
        }
        own.busy[next].release();
        barred.insert(next);
    }
    let Some(spare) = spare(&barred, own, has_room) else {
        return first;
    };
    own.busy[first].release();
    spare
}

/// One that is behind the others, but has a connection for a read; its place is taken.
fn spare(
    barred: &MemberSet,
    own: &DatabaseSnapshot,
    has_room: impl Fn(usize) -> bool,
) -> Option<usize> {
    let mut spares = (0..own.spares.len()).filter(|index| own.spares[*index]);
    let found = spares.find(|index| !barred.contains(*index) && has_room(*index))?;
    // Without a limit: it only counts.
    let _ = own.busy[found].try_reserve();
    Some(found)
}

/// As the service balances them; its place is taken.
fn picked(barred: &MemberSet, own: &DatabaseSnapshot, (key, now_us): (u64, u64)) -> Option<usize> {
    let request = PickRequest {
        key,
        tried: barred,
        random: fast_random(),
        now_us,
    };
    match own.readers.pick(&request) {
        Pick::Server(index) if !barred.contains(index) => Some(index),
        Pick::Server(index) => {
            own.busy[index].release();
            None
        }
        Pick::AllFull | Pick::NoneUp => None,
    }
}
