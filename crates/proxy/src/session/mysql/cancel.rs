//! How a query is cancelled: KILL QUERY on another connection of the same account. It is opened for
//! that and is no part of a pool, so that it comes through when the pool is in use to the last.

use std::rc::Rc;
use std::sync::Arc;

use super::join;
use crate::engine::worker::Worker;
use crate::service::Service;
use crate::upstream::cancelling::Cancelling;
use crate::upstream::lending::Connection;

/// When it returns the server has carried it out.
pub(in crate::session) async fn send(
    worker: &Rc<Worker>,
    service: &Arc<Service>,
    target: &Cancelling,
) {
    let Some(number) = target.process() else {
        return;
    };
    let Ok(mut connection) = join::open(worker, service, &target.pooled).await else {
        return;
    };
    let text = format!("KILL QUERY {number}");
    if let Err(complaint) = connection.run(worker, &[text.as_bytes()]).await {
        let server = &target.pooled.server.name;
        tracing::debug!(server = %server, why = complaint.message, "a query was not cancelled");
    }
    connection.part("cancel request sent");
}
