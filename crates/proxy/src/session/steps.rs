//! Runs the steps of sessions, and checks their peers.

use std::task::{Context, Poll};

use evenkeel_engine::stream::Stream;

use crate::service::Service;

/// Steps that one session may take before it yields to the worker's other sessions.
const STEPS_MAX: usize = 64;

/// Runs a session's steps, up to `STEPS_MAX` at a time. A step returns false if none is possible
/// now.
pub(super) fn poll_steps<E>(
    context: &mut Context<'_>,
    mut step: impl FnMut(&mut Context<'_>) -> Result<bool, E>,
) -> Poll<E> {
    for _ in 0..STEPS_MAX {
        match step(context) {
            Ok(true) => {}
            Ok(false) => return Poll::Pending,
            Err(end) => return Poll::Ready(end),
        }
    }
    context.waker().wake_by_ref();
    Poll::Pending
}

/// Peer that vanished without closing its connection, and the description of that.
pub(super) enum VanishedPeer {
    Client(String),
    Server(String),
}

/// Returns the peer of a session that has not responded within the service's limit, if there is
/// one.
pub(super) fn vanished_peer(
    service: &Service,
    client: &Stream,
    server: Option<&Stream>,
) -> Option<VanishedPeer> {
    let limit = service.snapshot().settings.keepalive.user_timeout;
    let why = || format!("no response for {} ms (user_timeout_ms)", limit.as_millis());
    if client.is_unanswered(limit) {
        return Some(VanishedPeer::Client(why()));
    }
    let is_dead = server.is_some_and(|server| server.is_unanswered(limit));
    is_dead.then(|| VanishedPeer::Server(why()))
}
