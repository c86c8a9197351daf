//! What one worker wants of another one for the sake of a pool.

use std::sync::Arc;

use evenkeel_policy::connection_pool::{Checkout, WaitTicket, WorkerTask};

use super::ConnectionTransfer;
use crate::upstream::server_login::ConnectError;

/// Something to do, or something that comes.
pub(crate) enum PoolMessage {
    /// What the books want done there.
    Order(WorkerTask),
    /// A connection for who holds the ticket.
    Take {
        ticket: WaitTicket,
        loan: Checkout,
        parcel: Box<ConnectionTransfer>,
    },
    /// The connection that was to come has ended: ask once more.
    Again(WaitTicket),
    /// No connection could be opened.
    Failed(WaitTicket, Arc<ConnectError>),
    /// Idle connections to a database of a server are to be closed.
    Vacate {
        /// The server's id.
        server: u64,
        /// The service's number for the database.
        database: u64,
    },
}
