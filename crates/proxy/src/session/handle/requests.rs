//! Tracks the session of an HTTP client: the server of its current request, and its time limit.

use std::cell::Cell;

use super::{Phase, SessionEvent, SessionHandle};

/// Silence in milliseconds after which an idle client of a draining service is disconnected. A
/// client with requests learns it from its next response, so that no request is lost.
const DRAINED_AFTER_MS: u128 = 1_000;

/// A session that serves requests, each perhaps at another server.
pub(super) struct Requests {
    /// Server of the current request. `None`: there is no request at a server.
    at: Cell<Option<RequestServer>>,
    /// Time of the next [`SessionEvent::Recheck`], in milliseconds of the clock; zero: never.
    deadline_ms: Cell<u64>,
}

/// Server of a request, and the service whose servers answer it: the client's own, or the one that
/// a route leads to.
#[derive(Clone, Copy)]
pub(crate) struct RequestServer {
    pub(crate) service_id: u64,
    pub(crate) server_id: u64,
}

impl Requests {
    pub(super) fn is_at(&self, server_id: u64) -> bool {
        self.at.get().is_some_and(|at| at.server_id == server_id)
    }

    /// Returns the id of the service whose servers answer the current request.
    pub(super) fn service_id(&self) -> Option<u64> {
        self.at.get().map(|at| at.service_id)
    }
}

/// State of an HTTP client. Without one, these functions do nothing.
impl SessionHandle {
    /// Records that the session serves requests from here on.
    pub(crate) fn serve_requests(&self) {
        self.enter(Phase::Requests(Box::new(Requests {
            at: Cell::new(None),
            deadline_ms: Cell::new(0),
        })));
    }

    /// Records the server of the current request; `None`: there is no request.
    pub(crate) fn set_request_server(&self, at: Option<RequestServer>) {
        self.with_requests(|requests| requests.at.set(at));
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
        let is_unserved = self.with_requests(|requests| requests.at.get().is_none());
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
