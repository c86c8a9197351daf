//! Replaces a connection that its session cannot use.

use std::rc::Rc;
use std::sync::Arc;

use evenkeel_policy::connection_pool::Condition;

use super::{PoolableConnection, WaitResult, WaitSlot, WorkerPool};
use crate::upstream::server_login::ConnectError;

impl<C: PoolableConnection> WorkerPool<C> {
    /// Closes a connection that cannot be prepared for its session, and opens another one that is
    /// delivered to the session: the pool's idle connections may be no better.
    pub(crate) fn replace_connection(
        self: &Rc<Self>,
        mut connection: Box<C>,
        place: &Rc<WaitSlot<C>>,
    ) {
        let lent = connection.lent_mut();
        let pooled = Arc::clone(&lent.pooled);
        let (Some(loan), Some(worker)) = (lent.loan.take(), self.worker.upgrade()) else {
            return;
        };
        connection.disconnect("cannot be prepared for the client");
        let errand = place.expect();
        let (lending, place, home) = (Rc::clone(self), Rc::clone(place), Rc::clone(&worker));
        worker.spawn(async move {
            let opened = Box::pin(C::open(&home, &lending.service, &pooled)).await;
            match opened {
                Ok(mut connection) => {
                    connection.lent_mut().loan = Some(loan);
                    lending.bring(connection, errand, &place);
                }
                Err(error) => {
                    lending.lose(loan);
                    tell(error, errand, &place);
                }
            }
        });
    }

    /// Delivers the connection to the session if it still waits for it.
    fn bring(self: &Rc<Self>, connection: Box<C>, errand: u64, place: &WaitSlot<C>) {
        match place.expects(errand) {
            true => place.deliver(WaitResult::Connection(connection)),
            false => self.give_back(connection, Condition::Clean),
        }
    }
}

/// Delivers an error; if the server is full, the session retries, as the pool has other
/// connections.
fn tell<C>(error: ConnectError, errand: u64, place: &WaitSlot<C>) {
    if place.expects(errand) {
        place.deliver(match error.is_full() {
            true => WaitResult::Again,
            false => WaitResult::Failed(Arc::new(error)),
        });
    }
}
