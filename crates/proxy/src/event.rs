//! Defines the events that the data plane reports to the control plane.

use crate::record::Record;

/// An event for the control plane. If it is too slow, events are dropped and counted, never waited
/// for.
#[derive(Debug)]
pub enum Event {
    /// An observation about a server's health in the traffic.
    Sign {
        /// [`Server::id`](crate::Server::id).
        server_id: u64,
        /// The observation.
        sign: PassiveFailure,
    },
    /// A connection has ended.
    Ended(Box<Record>),
    /// Clients currently cannot be accepted, with the reason; reported at each try, ten times a
    /// second.
    AcceptFailed(String),
}

/// A sign of a server's health.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PassiveFailure {
    /// A connect failed.
    ConnectFailed(String),
    /// The server closed a connection before it had sent a byte.
    ClosedBeforeAnyByte,
    /// A request failed.
    Request(evenkeel_policy::health::PassiveFailure),
}
