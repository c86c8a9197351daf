//! What one worker wants of another one for the sake of a pool.

use std::sync::Arc;

use evenkeel_policy::lending::{Loan, Order, Ticket};

use super::Parcel;
use crate::upstream::join::JoinError;

/// Something to do, or something that comes.
pub(crate) enum Errand {
    /// What the books want done there.
    Order(Order),
    /// A connection for who holds the ticket.
    Take {
        ticket: Ticket,
        loan: Loan,
        parcel: Box<Parcel>,
    },
    /// The connection that was to come has ended: ask once more.
    Again(Ticket),
    /// No connection could be opened.
    Failed(Ticket, Arc<JoinError>),
    /// Idle connections to a database of a server are to be closed.
    Vacate {
        /// The server's id.
        server: u64,
        /// The service's number for the database.
        database: u64,
    },
}
