//! Offers the connection that a session keeps between transactions to waiting clients.

use std::task::Context;

use super::Acquirer;
use crate::upstream::worker_pool::PoolableConnection;

impl<C: PoolableConnection> Acquirer<'_, C> {
    /// Offers the connection that the session keeps between transactions. If a client needs it, the
    /// session finds out whether it must keep it.
    pub(in crate::session) fn offer(&self, connection: &C) {
        self.worker_pool.offer(connection, &self.offer);
    }

    /// Ends the offer, because the connection is used again, was released, or must be kept.
    pub(in crate::session) fn end_offer(&self) {
        self.worker_pool.end_offer(&self.offer);
    }

    /// Returns true once when a client needs the connection that is offered.
    pub(in crate::session) fn poll_offer_accepted(&self, context: &Context<'_>) -> bool {
        self.offer.poll_accepted(context)
    }
}
