//! What the data plane tells the control plane.

use crate::record::Record;

/// Something the control plane wants to know of. When it does not keep up, events are dropped and
/// counted, never waited for.
#[derive(Debug)]
pub enum Event {
    /// A sign of a server's health seen in the traffic.
    Sign {
        /// [`Server::id`](crate::Server::id).
        server_id: u64,
        /// What was seen.
        sign: PassiveFailure,
    },
    /// A connection has ended.
    Ended(Box<Record>),
    /// Clients cannot be accepted at the moment, and why; said at each try, ten times a second.
    AcceptFailed(String),
}

/// A sign of a server's health.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PassiveFailure {
    /// A connect failed.
    ConnectFailed(String),
    /// It closed a connection before it had sent a byte.
    ClosedBeforeAnyByte,
}
