//! Defines the messages that workers exchange about a pool.

use std::sync::Arc;

use evenkeel_engine::engine::Workers;
use evenkeel_policy::connection_pool::{Checkout, WaitTicket, WorkerTask};

use super::{ConnectionTransfer, WorkerPools};
use crate::upstream::connect_error::ConnectError;
use crate::worker::Worker;

/// A task for another worker, or a delivery to it.
pub(crate) enum PoolMessage {
    /// A task from the shared pools.
    Task(WorkerTask),
    /// A connection for the holder of the ticket.
    Take {
        ticket: WaitTicket,
        checkout: Checkout,
        transfer: Box<ConnectionTransfer>,
    },
    /// The expected connection has ended: repeat the request.
    Again(WaitTicket),
    /// No connection could be opened.
    Failed(WaitTicket, Arc<ConnectError>),
    /// Requests to close idle connections to a database of a server.
    CloseIdle {
        /// Server id.
        server: u64,
        /// The service's number for the database.
        database: u64,
    },
}

impl PoolMessage {
    /// Sends the message to a worker. A worker that has ended has no clients, and needs none.
    pub(crate) fn send(self, workers: &Workers<Worker>, to: usize, service_id: u64) {
        workers.run(to, move |worker| {
            worker
                .local::<WorkerPools>()
                .handle_message(worker, service_id, self);
        });
    }
}
