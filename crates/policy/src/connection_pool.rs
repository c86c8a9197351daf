//! The books of a pool of server connections: who may have one, who waits, who gets the next.
//!
//! Each worker owns its connections and keeps its idle ones at a [`Desk`]; what workers share is in
//! the [`Books`] of their service. Connections are numbers that the worker chose. Nothing here
//! opens, moves or closes any: every call returns what is to be done, and pushes [`Order`]s, which
//! the caller delivers to the workers that they name.
//!
//! While nobody waits, lending and taking back touch the desk, one counter that only this worker
//! writes, and one that all only read. As soon as anybody waits, anywhere in the service, all goes
//! through the lock of the books: the counter of this worker's idle connections is written before
//! it looks whether anybody waits, and who begins to wait says so before he looks for idle ones, so
//! that at least one of the two sees the other.
//!
//! A client never waits while there is an idle connection or a free place: it gets what comes
//! first. A connection that opens is nobody's until it is open; then it goes to who waits longest.
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
    LimitScope, OpenFailure, PoolKey, PoolLimits, PoolRefusal, PoolSettings, TaskKind, WaitTicket,
    WorkerTask,
};
