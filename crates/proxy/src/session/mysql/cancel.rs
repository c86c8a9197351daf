//! How a query is cancelled: KILL QUERY on another connection of the same account. It is opened for
//! that and is no part of a pool, so that it comes through when the pool is in use to the last.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::server::ServerConnection;
use super::server_login;
use crate::engine::worker::Worker;
use crate::service::Service;
use crate::upstream::cancel_target::CancelTarget;
use crate::upstream::worker_pool::PoolableConnection;

/// A server that has no connection to give is asked again, so often in all.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);

/// False: it may still be carried out.
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
    // Another server has connections of the same numbers.
    if !connection.lent().cancels.is_of_the_same_server(target) {
        connection.disconnect("host name now resolves to another server");
        return true;
    }
    let text = format!("KILL QUERY {number}");
    let told = connection.run(worker, &[text.as_bytes()]).await;
    if let Err(complaint) = &told {
        let (server, why) = (&target.pooled.server.name, &complaint.message);
        tracing::debug!(%server, why, "cannot cancel query");
    }
    let is_over = connection.is_idle();
    connection.disconnect("cancel request sent");
    is_over
}

/// `None`: it was not to be had, which an operator can read.
async fn open(
    worker: &Rc<Worker>,
    service: &Arc<Service>,
    target: &CancelTarget,
) -> Option<Box<ServerConnection>> {
    for tries_left in (0..TRIES).rev() {
        match server_login::open_to_same_peer(worker, service, target).await {
            Ok(connection) => return Some(connection),
            Err(error) if error.is_full() && tries_left > 0 => compio::time::sleep(PAUSE).await,
            Err(error) => {
                let (server, why) = (&target.pooled.server.name, error.message);
                tracing::warn!(%server, why, "cannot cancel query: no server connection available");
                return None;
            }
        }
    }
    None
}
