//! Decides about a pool of server connections: which client gets one, which clients wait, and which
//! connections open or close.
//!
//! Each worker owns its connections and keeps the idle ones in an [`IdlePool`]. State that workers
//! share is in the [`SharedPools`] of their service. Connections are numbers chosen by the worker.
//! This module opens, moves and closes none. Every call returns what must be done, and pushes
//! [`WorkerTask`]s, which the caller delivers to the workers that they name.
//!
//! While no client waits, acquire and release use only the idle pool, one counter that only this
//! worker writes, and one counter that workers only read. As soon as a client waits anywhere in the
//! service, everything goes through the lock of the shared pools. A worker writes its counter of
//! idle connections before it checks for waiting clients. A client registers as waiting before idle
//! connections are checked. So at least one of the two sees the other.
//!
//! A client never waits while there is an idle connection or a free permit: it gets the first
//! connection that becomes available. A connection being opened is not assigned until it is open;
//! it then goes to the client that has waited longest.
//!
//! A session that keeps its connection between transactions may offer it. If a client waits and
//! nothing else can serve it, an offer is taken up: the session finds out whether it needs the
//! connection, and releases it if it does not. Offers are counted like idle connections.
//!
//! Times are milliseconds of one monotonic clock.

mod assign;
mod idle_lists;
mod idle_pool;
mod limits;
mod maintenance;
mod queue;
mod shared_pools;
mod sync;
mod types;

#[cfg(test)]
mod model;
#[cfg(test)]
pub(crate) mod tests;

pub use idle_pool::{IdlePool, ReleaseDecision};
pub use shared_pools::{Pool, PoolStats, SharedPools};
pub use types::{
    AcquireDecision, CancelOutcome, Checkout, CloseReason, ClosingConnection, Condition,
    LimitScope, OpenFailure, PoolKey, PoolLimits, PoolRefusal, PoolSettings, Preference, TaskKind,
    WaitTicket, WorkerTask,
};
