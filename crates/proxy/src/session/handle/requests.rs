//! Tracks the session of an HTTP client: the server of its current request, and its time limit.

use std::cell::Cell;
use std::sync::Arc;

use super::{Phase, SessionEvent, SessionHandle};
use crate::server::Server;

/// Silence in milliseconds after which an idle client of a draining service is disconnected. A
/// client with requests learns it from its next response, so that no request is lost.
const DRAINED_AFTER_MS: u128 = 1_000;

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

    /// Returns whether the time limit of the current step has passed.
    pub(crate) fn is_request_overdue(&self, now_ms: u64) -> bool {
        let deadline_ms = self.with_requests(|requests| requests.deadline_ms.get());
        deadline_ms.is_some_and(|deadline_ms| deadline_ms != 0 && now_ms >= deadline_ms)
    }

    /// Wakes the session when its time limit has passed, or when it is idle and the service drains.
    pub(super) fn sweep_requests(&self, now_ms: u64) {
        let is_unserved = self.with_requests(|requests| requests.server_id.get() == 0);
        let is_surplus = is_unserved == Some(true)
            && self.silent_ms(now_ms) >= DRAINED_AFTER_MS
            && self.service.http().is_some_and(|http| http.is_draining());
        if is_surplus || self.is_request_overdue(now_ms) {
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
