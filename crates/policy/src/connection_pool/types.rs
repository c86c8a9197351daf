//! The words in which clients, workers and the books speak with each other.

use std::sync::Arc;

use super::shared_pools::Pool;

/// How a service's connections are lent. Zero milliseconds for a limit means: none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolSettings {
    /// Idle connections that each pool in use keeps warm, over all workers.
    pub min_idle: u32,
    /// An idle connection beyond `min_idle` is closed after this.
    pub idle_ms: u64,
    /// A connection is closed, when it is idle, after this long; less up to a fifth, by chance, so
    /// that those opened together are not closed together.
    pub lifetime_ms: u64,
    /// A client waits this long at most.
    pub wait_ms: u64,
    /// Clients of the service that may wait at a time.
    pub queue_length: usize,
    /// Clients of the same worker come first, unless one elsewhere has waited longer by this and
    /// half of their own wait: moving a connection to another worker has its price.
    pub cross_worker_wait_ms: u64,
    /// A client waits this long for a connection of its own worker, if they come back there all the
    /// time, before an idle one is moved from another worker.
    pub local_wait_ms: u64,
    /// A client that needs another pool's connection closed to make room for its own comes first
    /// when it has waited this much longer: a new connection has a higher price.
    pub eviction_wait_ms: u64,
}

impl Default for PoolSettings {
    fn default() -> PoolSettings {
        PoolSettings {
            min_idle: 0,
            idle_ms: 600_000,
            lifetime_ms: 3_600_000,
            wait_ms: 10_000,
            queue_length: 10_000,
            cross_worker_wait_ms: 5,
            local_wait_ms: 1,
            eviction_wait_ms: 50,
        }
    }
}

/// What makes connections interchangeable. The numbers are the caller's; equal means the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolKey {
    /// The server that it goes to.
    pub server: u64,
    /// Who it is logged in as.
    pub user: u64,
    /// The credential that it was logged in with: a password change makes the next one.
    pub generation: u64,
    /// The database, where a connection cannot change it; else always the same.
    pub database: u64,
    /// What else it is: what was agreed on in its login, or that it is for one client alone.
    pub identity: u64,
}

/// What a limit holds for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitScope {
    /// All connections of the service.
    Service,
    /// Those of a user.
    User(u64),
    /// Those to a database.
    Database(u64),
}

/// The limits under which a new pool comes; [`crate::places::UNLIMITED`] is none. Those of its user
/// and database hold already if another pool brought them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolLimits {
    /// For the pool itself.
    pub pool: u32,
    /// For all of its user's.
    pub user: u32,
    /// For all of its database's.
    pub database: u32,
}

/// A connection in use. Given back or told closed in the end: it counts until then.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a connection that is not given back counts for ever"]
pub struct Checkout {
    /// The worker's number for it. A worker that gets it from another one writes its own here.
    pub connection: u32,
    /// The number of its pool: a shared pointer would be counted at each loan.
    pub(super) pool: u64,
    pub(super) expires_ms: u64,
}

/// A place in the queue: who waits, at which worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaitTicket {
    /// Rises over the whole service: lower has come earlier.
    pub number: u64,
    /// Where the client is.
    pub worker: usize,
    pub(super) pool: u64,
}

/// The answer to a client that wants a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum AcquireDecision {
    /// Here is one.
    Take(Checkout),
    /// Wait; the orders see to it that one comes, as far as that can be seen to.
    Wait {
        /// Names the client when its connection comes.
        ticket: WaitTicket,
        /// When to give up, and cancel the ticket.
        until_ms: u64,
    },
    /// No use in waiting.
    Refuse(PoolRefusal),
}

/// Why a client need not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolRefusal {
    /// As many wait as may.
    QueueFull,
    /// A limit is zero: it would wait for ever.
    LimitIsZero,
    /// The credential, or the server, is gone.
    Outdated,
}

/// Something for a worker to do.
#[derive(Debug, Clone)]
pub struct WorkerTask {
    /// Who is to do it.
    pub worker: usize,
    /// With a connection of which pool.
    pub pool: Arc<Pool>,
    /// What.
    pub task: TaskKind,
}

/// What a worker is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskKind {
    /// Open a connection; a place is reserved. Then `Desk::opened` or `Desk::connect_failed`.
    Connect,
    /// Give an idle connection to who waits elsewhere: `Desk::give_idle`.
    HandOverIdle,
    /// At this moment, look again after who waits: `Desk::look_again`.
    Recheck {
        /// When.
        at_ms: u64,
    },
    /// Close an idle connection to make room: `Desk::evict`.
    Evict {
        /// The pool whose client waits for the room.
        on_behalf: u64,
    },
}

/// In what state a connection comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Idle by its protocol, nothing owed, nothing buffered, no pin held.
    Clean,
    /// Anything else, or it cannot be told.
    Unclean,
}

/// Why a connection is to be closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// It cannot be told to be idle and clean.
    Unclean,
    /// Its lifetime is over.
    TooOld,
    /// Not used for long.
    TooIdle,
    /// More are open than a lowered limit allows.
    OverLimit,
    /// Its credential or its server is no longer current.
    Outdated,
    /// The place is needed for another pool's client.
    MakeRoom,
    /// Its database is to be without sessions.
    Vacated,
}

impl CloseReason {
    /// For the log and the status.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            CloseReason::Unclean => "session state could not be reset",
            CloseReason::TooOld => "lifetime_ms reached",
            CloseReason::TooIdle => "idle_ms reached",
            CloseReason::OverLimit => "connection limit exceeded",
            CloseReason::Outdated => "credentials or server changed",
            CloseReason::MakeRoom => "closed to make room for another pool",
            CloseReason::Vacated => "its database is dropped, renamed or copied",
        }
    }
}

/// A connection that is being closed: it counts until `Desk::closed` is told.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a connection that is not told closed counts for ever"]
pub struct ClosingConnection {
    /// Its number.
    pub connection: u32,
    /// Why.
    pub why: CloseReason,
    pub(super) pool: u64,
    pub(super) on_behalf: Option<u64>,
}

/// Why a connection could not be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenFailure {
    /// It failed; the client that has waited longest is told so.
    Failed,
    /// The server has no room now ("too many connections"): not tried again for so long. Nobody is
    /// told; who waits goes on waiting.
    Full {
        /// How long the server is left alone.
        pause_ms: u64,
    },
}

/// What became of a ticket that was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelOutcome {
    /// It waits no more.
    Left,
    /// Too late: a connection (or word of a failure) is on its way, and must be taken.
    Answered,
}
