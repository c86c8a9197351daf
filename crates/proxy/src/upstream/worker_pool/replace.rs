//! Replaces a connection that its session cannot use.

use std::rc::Rc;
use std::sync::Arc;

use evenkeel_policy::connection_pool::Condition;

use super::{PoolableConnection, WaitResult, WaitSlot, WorkerPool, opening};
use crate::upstream::connect_error::ConnectError;

impl<C: PoolableConnection> WorkerPool<C> {
    /// Closes a connection that cannot be prepared for its session, and opens another one that is
    /// delivered to the session: the pool's idle connections may be no better.
    pub(crate) fn replace_connection(
        self: &Rc<Self>,
        mut connection: Box<C>,
        slot: &Rc<WaitSlot<C>>,
    ) {
        let core = connection.core_mut();
        let pool_handle = Arc::clone(&core.pool_handle);
        let (Some(held), Some(worker)) = (core.checkout.take(), self.worker.upgrade()) else {
            return;
        };
        connection.disconnect("cannot be prepared for the client");
        let message = slot.expect_message();
        let (worker_pool, slot, owner) = (Rc::clone(self), Rc::clone(slot), Rc::clone(&worker));
        worker.spawn(async move {
            let opened = opening::open::<C>(&owner, &worker_pool.service, &pool_handle).await;
            match opened {
                Ok(mut connection) => {
                    connection.core_mut().checkout = Some(held);
                    worker_pool.deliver(connection, message, &slot);
                }
                Err(error) => {
                    if let Some(checkout) = held.into_checkout() {
                        worker_pool.release_lost(checkout);
                    }
                    deliver_error(error, message, &slot);
                }
            }
        });
    }

    /// Delivers the connection to the session if it still waits for it.
    fn deliver(self: &Rc<Self>, connection: Box<C>, message: u64, slot: &WaitSlot<C>) {
        match slot.is_expected(message) {
            true => slot.deliver(WaitResult::Connection(connection)),
            false => self.release(connection, Condition::Clean),
        }
    }
}

/// Delivers an error; if the server is full, the session retries, as the pool has other
/// connections.
fn deliver_error<C>(error: ConnectError, message: u64, slot: &WaitSlot<C>) {
    if slot.is_expected(message) {
        slot.deliver(match error.is_full() {
            true => WaitResult::Again,
            false => WaitResult::Failed(Arc::new(error)),
        });
    }
}
