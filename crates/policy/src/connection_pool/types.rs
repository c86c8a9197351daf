//! Types exchanged between clients, workers and the shared pools.

use std::sync::Arc;

use super::shared_pools::Pool;

/// Settings of a service's connection pools. For a time limit, zero milliseconds means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolSettings {
    /// Number of idle connections that each pool in use keeps warm, over all workers.
    pub min_idle: u32,
    /// Time after which an idle connection beyond `min_idle` is closed.
    pub idle_ms: u64,
    /// Lifetime after which a connection is closed when it is idle; up to a fifth less by chance,
    /// so that connections opened together do not close together.
    pub lifetime_ms: u64,
    /// Maximum time that a client waits.
    pub wait_ms: u64,
    /// Maximum number of waiting clients of the service.
    pub queue_length: usize,
    /// Clients of the same worker are served first. Exception: a client of another worker has
    /// waited longer by this plus half of their own wait. Moving a connection to another worker is
    /// expensive.
    pub cross_worker_wait_ms: u64,
    /// Time that a client waits for a connection of its own worker, if connections return there
    /// frequently, before an idle one is moved from another worker.
    pub local_wait_ms: u64,
    /// A client that needs another pool's connection closed is served first after waiting longer by
    /// this: a new connection is more expensive.
    pub eviction_wait_ms: u64,
    /// Connection for a client whose worker has no idle one.
    pub preference: Preference,
}

/// Connection for a client whose worker has no idle one, while other workers have some. The other
/// kind is the second choice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Preference {
    /// An idle one is moved from another worker: a new one costs the server a login.
    #[default]
    Moved,
    /// A new one is opened: clients that stay on their workers would move it with each request.
    New,
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
            preference: Preference::Moved,
        }
    }
}

/// Key of interchangeable connections. The caller assigns the numbers; equal numbers mean equal
/// values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolKey {
    /// Server of the connections.
    pub server: u64,
    /// User of the login.
    pub user: u64,
    /// Generation of the login's credential, increased by a password change.
    pub generation: u64,
    /// Database, if a connection cannot change it; otherwise constant.
    pub database: u64,
    /// Further identity: parameters agreed on at login, or the one client that the connection
    /// serves.
    pub identity: u64,
}

/// Scope of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LimitScope {
    /// All connections of the service.
    Service,
    /// Connections of a user.
    User(u64),
    /// Connections to a database.
    Database(u64),
}

/// Limits of a new pool; [`crate::permits::UNLIMITED`] means no limit. The limits of its user and
/// database are already in force if another pool set them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolLimits {
    /// Limit of the pool itself.
    pub pool: u32,
    /// Limit of all connections of the user.
    pub user: u32,
    /// Limit of all connections to the database.
    pub database: u32,
}

/// Connection in use. The holder must release it or report it as closed: it counts until then.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a connection that is not released counts for ever"]
pub struct Checkout {
    /// Worker's number of the connection. A worker that receives it from another one sets its own
    /// number.
    pub connection: u32,
    /// Number of the pool: a shared pointer would change a reference count at each checkout.
    pub(super) pool: u64,
    pub(super) expires_ms: u64,
}

/// Position of a client in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaitTicket {
    /// Number that increases over the whole service: lower means earlier.
    pub number: u64,
    /// Worker of the client.
    pub worker: usize,
    pub(super) pool: u64,
}

/// Decision about a client that requests a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum AcquireDecision {
    /// The client gets this connection.
    Take(Checkout),
    /// The client waits; the tasks provide a connection as far as possible.
    Wait {
        /// Identifies the client when its connection is available.
        ticket: WaitTicket,
        /// Time when the client must stop waiting and cancel the ticket.
        until_ms: u64,
    },
    /// Waiting cannot succeed.
    Refuse(PoolRefusal),
}

/// Reason for which a client must not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolRefusal {
    /// The queue is full.
    QueueFull,
    /// A limit is zero: the client would wait forever.
    LimitIsZero,
    /// The credential or the server was removed.
    Outdated,
}

/// Task for a worker.
#[derive(Debug, Clone)]
pub struct WorkerTask {
    /// Worker that must execute the task.
    pub worker: usize,
    /// Pool of the connection.
    pub pool: Arc<Pool>,
    /// Kind of the task.
    pub task: TaskKind,
}

/// Kind of a worker's task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskKind {
    /// Open a connection, for which permits are reserved. Then call `IdlePool::opened` or
    /// `IdlePool::connect_failed`.
    Connect,
    /// Hand over an idle connection to a client of another worker: `IdlePool::hand_over_idle`.
    HandOverIdle,
    /// Check the waiting clients again at a given time: `IdlePool::recheck`.
    Recheck {
        /// Time of the check.
        at_ms: u64,
    },
    /// Close an idle connection to release its permits: `IdlePool::evict`.
    Evict {
        /// Pool whose client waits for the permits.
        on_behalf: u64,
    },
    /// Let a session that offers its connection find out whether it needs it:
    /// `IdlePool::accept_offer`.
    AcceptOffer {
        /// Pool whose client waits for the connection or its permits.
        on_behalf: u64,
    },
}

/// Condition of a released connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Idle by its protocol, no reply pending, no data buffered, no pin.
    Clean,
    /// Any other state, or unknown.
    Unclean,
}

/// Reason for closing a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// The connection is not known to be idle and clean.
    Unclean,
    /// The connection's lifetime has elapsed.
    TooOld,
    /// The connection was idle for too long.
    TooIdle,
    /// More connections are open than a lowered limit allows.
    OverLimit,
    /// The connection's credential or server is outdated.
    Outdated,
    /// Another pool's client needs its permit.
    MakeRoom,
    /// The connection's database must have no sessions.
    DatabaseChanged,
}

impl CloseReason {
    /// Returns the text for the log and the status.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            CloseReason::Unclean => "session state could not be reset",
            CloseReason::TooOld => "lifetime_ms reached",
            CloseReason::TooIdle => "idle_ms reached",
            CloseReason::OverLimit => "connection limit exceeded",
            CloseReason::Outdated => "credentials or server changed",
            CloseReason::MakeRoom => "closed to make room for another pool",
            CloseReason::DatabaseChanged => "its database is dropped, renamed or copied",
        }
    }
}

/// Connection that is being closed: it counts until `IdlePool::closed` is called.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a connection that is not reported closed counts for ever"]
pub struct ClosingConnection {
    /// Worker's number of the connection.
    pub connection: u32,
    /// Reason for closing it.
    pub why: CloseReason,
    pub(super) pool: u64,
    pub(super) on_behalf: Option<u64>,
}

/// Reason for which a connection could not be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenFailure {
    /// The attempt failed; the client that has waited longest is notified.
    Failed,
    /// The server is full ("too many connections") and is not retried for a while. No client is
    /// notified; waiting clients continue to wait.
    Full {
        /// Time without further attempts.
        pause_ms: u64,
    },
}

/// Result of canceling a ticket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelOutcome {
    /// The client no longer waits.
    Left,
    /// Too late: a connection (or the report of a failure) is on its way and must be accepted.
    Answered,
}
