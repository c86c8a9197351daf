//! Tracks the session of an HTTP client: the server of its current request, and its time limit.

use std::cell::Cell;
use std::sync::Arc;

use super::{Phase, SessionEvent, SessionHandle};
use crate::server::Server;

/// A session that serves requests, each perhaps at another server.
pub(super) struct Requests {
    /// Id of the server of the current request; zero: there is none.
    server_id: Cell<u64>,
    /// Time of the next [`SessionEvent::Recheck`], in milliseconds of the clock; zero: never.
    deadline_ms: Cell<u64>,
}

impl Requests {
    pub(super) fn is_at(&self, server_id: u64) -> bool {
        self.server_id.get() == server_id
    }
}

/// State of an HTTP client. Without one, these functions do nothing.
impl SessionHandle {
    /// Records that the session serves requests from here on.
    pub(crate) fn serve_requests(&self) {
        self.enter(Phase::Requests(Box::new(Requests {
            server_id: Cell::new(0),
            deadline_ms: Cell::new(0),
        })));
    }

    /// Records the server of the current request; `None`: there is no request.
    pub(crate) fn set_request_server(&self, server: Option<&Arc<Server>>) {
        self.with_requests(|requests| {
            requests.server_id.set(server.map_or(0, |server| server.id));
        });
    }

    /// Sets the time limit of the current step; zero: none.
    pub(crate) fn set_request_deadline(&self, deadline_ms: u64) {
        self.with_requests(|requests| requests.deadline_ms.set(deadline_ms));
    }

    /// Wakes the session when its time limit has passed.
    pub(super) fn sweep_requests(&self, now_ms: u64) {
        let deadline_ms = self.with_requests(|requests| requests.deadline_ms.get());
        if deadline_ms.is_some_and(|deadline_ms| deadline_ms != 0 && now_ms >= deadline_ms) {
            self.notify(SessionEvent::Recheck);
        }
    }

    fn with_requests<T>(&self, read: impl FnOnce(&Requests) -> T) -> Option<T> {
        match &*self.phase.borrow() {
            Phase::Requests(requests) => Some(read(requests)),
            Phase::Detached | Phase::Relaying(_) | Phase::LoggedIn(_) => None,
        }
    }
}
