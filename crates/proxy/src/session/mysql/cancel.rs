//! Cancels queries with KILL QUERY on a separate connection of the same account, opened outside the
//! pool so that it works while the pool is exhausted.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_engine::timers;

use super::server::ServerConnection;
use super::server_login;
use crate::service::Service;
use crate::upstream::cancel_target::CancelTarget;
use crate::upstream::worker_pool::PoolableConnection;
use crate::worker::Worker;

/// Maximum number of attempts to connect to a server that has no free connection.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);

/// Sends KILL QUERY. Returns false if the server may still execute it.
pub(in crate::session) async fn send(
    worker: &Rc<Worker>,
    service: &Arc<Service>,
    target: &CancelTarget,
) -> bool {
    let Some((number, _)) = *target.key.borrow() else {
        return true;
    };
    let Some(mut connection) = open(worker, service, target).await else {
        return true;
    };
    // Connection ids of another server are unrelated.
    if !connection.core().cancel_target.has_same_key(target) {
        connection.disconnect("host name now resolves to another server");
        return true;
    }
    let text = format!("KILL QUERY {number}");
    let result = connection.run(worker, &[text.as_bytes()]).await;
    if let Err(error_reply) = &result {
        let (server, why) = (&target.pool_handle.server.name, &error_reply.message);
        tracing::debug!(%server, why, "cannot cancel query");
    }
    let is_over = connection.is_idle();
    connection.disconnect("cancel request sent");
    is_over
}

/// Opens the connection. Returns `None` on failure, which is logged.
async fn open(
    worker: &Rc<Worker>,
    service: &Arc<Service>,
    target: &CancelTarget,
) -> Option<Box<ServerConnection>> {
    for tries_left in (0..TRIES).rev() {
        match server_login::open_to_same_peer(worker, service, target).await {
            Ok(connection) => return Some(connection),
            Err(error) if error.is_full() && tries_left > 0 => timers::sleep(PAUSE).await,
            Err(error) => {
                let (server, why) = (&target.pool_handle.server.name, error.message);
                tracing::warn!(%server, why, "cannot cancel query: no server connection available");
                return None;
            }
        }
    }
    None
}
