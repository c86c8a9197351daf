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
        let core = connection.core_mut();
        let pooled = Arc::clone(&core.pooled);
        let (Some(loan), Some(worker)) = (core.loan.take(), self.worker.upgrade()) else {
            return;
        };
        connection.disconnect("cannot be prepared for the client");
        let message = place.expect();
        let (worker_pool, place, home) = (Rc::clone(self), Rc::clone(place), Rc::clone(&worker));
        worker.spawn(async move {
            let opened = Box::pin(C::open(&home, &worker_pool.service, &pooled)).await;
            match opened {
                Ok(mut connection) => {
                    connection.core_mut().loan = Some(loan);
                    worker_pool.bring(connection, message, &place);
                }
                Err(error) => {
                    worker_pool.lose(loan);
                    tell(error, message, &place);
                }
            }
        });
    }

    /// Delivers the connection to the session if it still waits for it.
    fn bring(self: &Rc<Self>, connection: Box<C>, message: u64, place: &WaitSlot<C>) {
        match place.expects(message) {
            true => place.deliver(WaitResult::Connection(connection)),
            false => self.release(connection, Condition::Clean),
        }
    }
}

/// Delivers an error; if the server is full, the session retries, as the pool has other
/// connections.
fn tell<C>(error: ConnectError, message: u64, place: &WaitSlot<C>) {
    if place.expects(message) {
        place.deliver(match error.is_full() {
            true => WaitResult::Again,
            false => WaitResult::Failed(Arc::new(error)),
        });
    }
}
