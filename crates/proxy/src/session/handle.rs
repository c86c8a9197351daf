//! Exposes the state of a live session to other tasks (activity, start time, server), and notifies
//! the session of events that concern it.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Waker};
use std::time::Duration;

use evenkeel_engine::clock;
use evenkeel_policy::pins::{Pin, Pins};

use crate::cancel;
use crate::service::activity::SessionActivity;
use crate::service::database::{DatabaseSnapshot, TimeLimits};
use crate::service::pin_causes::PinCause;
use crate::service::rules::AppliedRules;
use crate::session::live_session::SWEEP_INTERVAL;
use crate::upstream::cancel_target::CancelTarget;
use crate::worker::Worker;
use evenkeel_sql::session_state::PinSource;

/// Number of sessions so far; source of session ids.
static SESSIONS: AtomicU64 = AtomicU64::new(0);

/// State of one session that other tasks may read and change.
pub(crate) struct SessionHandle {
    /// Session id, unique in this process.
    pub(crate) id: u64,
    pub(crate) user: Arc<str>,
    /// Current database.
    database: RefCell<Arc<str>>,
    /// Key that cancels the session's work; `None` if the protocol has no such keys.
    pub(crate) key: Option<cancel::Key>,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) since_ms: u64,
    activity: Cell<SessionActivity>,
    activity_since_ms: Cell<u64>,
    transaction_since_ms: Cell<u64>,
    /// Start of the transaction in microseconds, for the statistics; zero: none has begun.
    transaction_since_us: Cell<u64>,
    target: RefCell<Option<Rc<CancelTarget>>>,
    pins: Cell<Pins>,
    /// Causes of the lasting pins.
    causes: RefCell<Vec<Arc<PinCause>>>,
    /// Idle limit set by the client, in milliseconds; zero: the service's limit applies.
    idle_limit_ms: Cell<u64>,
    /// Time of the next notification, in milliseconds of the clock; zero: never.
    deadline_ms: Cell<u64>,
    /// Query limit set by a rule, in milliseconds; `None`: the service's limit applies, zero: no
    /// limit.
    query_limit_ms: Cell<Option<u64>>,
    /// True if the current query has already been cancelled for exceeding its limit.
    is_timed_out: Cell<bool>,
    cancelled: Cell<bool>,
    /// True if the current query must be cancelled for exceeding its limit.
    overtime: Cell<bool>,
    /// True if the session must stop using its server.
    server_abandoned: Cell<bool>,
    /// True if the session must check that both peers are alive.
    liveness_check_due: Cell<bool>,
    asked_for_life_ms: Cell<u64>,
    called: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// Time limit that a session has exceeded.
pub(crate) enum ExceededLimit {
    /// Query limit: the query must be cancelled.
    Query,
    /// Transaction limit.
    Transaction,
    /// Idle limit of an open transaction.
    IdleInTransaction,
}

impl SessionHandle {
    /// Returns a new session id, unique in this process.
    pub(crate) fn draw_id() -> u64 {
        SESSIONS.fetch_add(1, Relaxed) + 1
    }

    /// Creates the handle of an idle session.
    pub(crate) fn new(
        id: u64,
        user: Arc<str>,
        database: Arc<str>,
        key: Option<cancel::Key>,
        peer: Option<SocketAddr>,
    ) -> Rc<Self> {
        let now_ms = clock::now_ms();
        Rc::new(Self {
            id,
            user,
            database: RefCell::new(database),
            key,
            peer,
            since_ms: now_ms,
            activity: Cell::new(SessionActivity::Idle),
            activity_since_ms: Cell::new(now_ms),
            transaction_since_ms: Cell::new(0),
            transaction_since_us: Cell::new(0),
            target: RefCell::default(),
            pins: Cell::new(Pins::NONE),
            causes: RefCell::default(),
            idle_limit_ms: Cell::new(0),
            deadline_ms: Cell::new(0),
            query_limit_ms: Cell::new(None),
            is_timed_out: Cell::new(false),
            cancelled: Cell::new(false),
            overtime: Cell::new(false),
            server_abandoned: Cell::new(false),
            liveness_check_due: Cell::new(false),
            asked_for_life_ms: Cell::new(now_ms),
            called: Cell::new(false),
            waker: RefCell::default(),
        })
    }

    pub(crate) fn database(&self) -> Arc<str> {
        Arc::clone(&self.database.borrow())
    }

    /// Sets the current database.
    pub(crate) fn set_database(&self, database: Arc<str>) {
        self.database.replace(database);
    }

    pub(crate) fn activity(&self) -> SessionActivity {
        self.activity.get()
    }

    pub(crate) fn activity_since_ms(&self) -> u64 {
        self.activity_since_ms.get()
    }

    pub(crate) fn pins(&self) -> Pins {
        self.pins.get()
    }

    /// Returns the causes of the lasting pins, the oldest first.
    pub(crate) fn causes(&self) -> Vec<Arc<PinCause>> {
        self.causes.borrow().clone()
    }

    /// Sets the pins that hold now. `source` names the cause of new lasting pins. Returns that
    /// cause, if there is one.
    pub(crate) fn set_pins(
        &self,
        pins: Pins,
        source: impl FnOnce(Pins) -> PinSource,
    ) -> Option<Arc<PinCause>> {
        let before = self.pins.replace(pins).lasting();
        let lasting = pins.lasting();
        if before == lasting {
            return None;
        }
        let mut causes = self.causes.borrow_mut();
        causes.retain(|cause| !cause.pins.within(lasting).is_empty());
        let new = lasting.except(before);
        if new.is_empty() {
            return None;
        }
        let PinSource { statement, object } = source(new);
        let cause = Arc::new(PinCause {
            pins: new,
            statement,
            object,
        });
        causes.push(Arc::clone(&cause));
        Some(cause)
    }

    pub(crate) fn is_at(&self, server_id: u64) -> bool {
        let target = self.target.borrow();
        target
            .as_ref()
            .is_some_and(|target| target.pool_handle.server.id == server_id)
    }

    pub(crate) fn target(&self) -> Option<Rc<CancelTarget>> {
        self.target.borrow().clone()
    }

    /// Sets the activity. The time is that of the worker's last sweep, which is as precise as the
    /// limits are.
    pub(crate) fn set_activity(&self, activity: SessionActivity, worker: &Worker) {
        if self.activity.replace(activity) == activity {
            return;
        }
        let now_ms = worker.last_sweep_ms();
        self.activity_since_ms.set(now_ms);
        self.is_timed_out.set(false);
        match activity {
            SessionActivity::Idle | SessionActivity::Bound => {
                self.transaction_since_ms.set(0);
                self.transaction_since_us.set(0);
            }
            SessionActivity::Active if self.transaction_since_ms.get() == 0 => {
                self.transaction_since_ms.set(now_ms);
            }
            _ => {}
        }
    }

    /// Marks the start of a transaction unless one has begun.
    pub(crate) fn begins_transaction(&self, now_us: u64) {
        if self.transaction_since_us.get() == 0 {
            self.transaction_since_us.set(now_us);
        }
    }

    /// Marks the end of a transaction and returns its duration in microseconds. The next one may
    /// have begun.
    pub(crate) fn ends_transaction(&self, now_us: u64) -> u64 {
        let since_us = self.transaction_since_us.replace(now_us);
        now_us.saturating_sub(since_us)
    }

    /// Restarts the time limits, because a request is done and the next one has already been sent.
    pub(crate) fn begins_next(&self, is_transaction: bool, worker: &Worker) {
        let now_ms = worker.last_sweep_ms();
        self.activity_since_ms.set(now_ms);
        self.is_timed_out.set(false);
        if is_transaction {
            self.transaction_since_ms.set(now_ms);
        }
    }

    /// Sets the current server connection.
    pub(crate) fn set_server(&self, target: &Rc<CancelTarget>) {
        self.target.replace(Some(Rc::clone(target)));
    }

    /// Clears the current server connection.
    pub(crate) fn clear_server(&self) {
        self.target.replace(None);
    }

    pub(crate) fn set_idle_limit(&self, limit_ms: u64) {
        self.idle_limit_ms.set(limit_ms);
    }

    /// Returns the shorter of the client's limit and the service's; zero: no limit.
    pub(crate) fn idle_limit(&self, of_service: Duration) -> Duration {
        let of_session = Duration::from_millis(self.idle_limit_ms.get());
        match (of_session.is_zero(), of_service.is_zero()) {
            (true, _) => of_service,
            (false, true) => of_session,
            (false, false) => of_session.min(of_service),
        }
    }

    /// Sets the time limit that the rules give the next query.
    pub(crate) fn limit_query(&self, rules: Option<&AppliedRules>) {
        let limit_ms = rules.and_then(|rules| rules.outcome.timeout_ms);
        self.query_limit_ms.set(limit_ms);
    }

    pub(crate) fn set_deadline(&self, deadline_ms: u64) {
        self.deadline_ms.set(deadline_ms);
    }

    /// Notifies the session of an event that it must handle.
    pub(crate) fn notify(&self) {
        self.called.set(true);
        if let Some(waker) = self.waker.borrow().as_ref() {
            waker.wake_by_ref();
        }
    }

    /// Returns and clears the notification. If there was none, registers the waker.
    pub(crate) fn take_notification(&self, context: &Context<'_>) -> bool {
        if self.called.replace(false) {
            return true;
        }
        let mut waker = self.waker.borrow_mut();
        if !waker
            .as_ref()
            .is_some_and(|known| known.will_wake(context.waker()))
        {
            *waker = Some(context.waker().clone());
        }
        false
    }

    /// Cancels the current work or wait at the client's request.
    pub(crate) fn cancel(&self) {
        self.cancelled.set(true);
        self.notify();
    }

    /// Marks the session's server as failed or no longer the primary.
    pub(crate) fn abandon_server(&self) {
        self.server_abandoned.set(true);
        self.notify();
    }

    pub(crate) fn take_server_abandoned(&self) -> bool {
        self.server_abandoned.replace(false)
    }

    /// Schedules a liveness check at most four times per `limit`, because it costs two system
    /// calls.
    pub(crate) fn request_liveness_check(&self, limit: Duration, now_ms: u64) {
        let since_ms = u128::from(now_ms.saturating_sub(self.asked_for_life_ms.get()));
        if !limit.is_zero() && since_ms >= (limit / 4).as_millis() {
            self.asked_for_life_ms.set(now_ms);
            self.liveness_check_due.set(true);
            self.notify();
        }
    }

    pub(crate) fn take_liveness_check(&self) -> bool {
        self.liveness_check_due.replace(false)
    }

    /// Requests cancellation of a query that exceeds its limit.
    pub(crate) fn request_cancel(&self) {
        self.overtime.set(true);
        self.notify();
    }

    pub(crate) fn take_overtime(&self) -> bool {
        self.overtime.replace(false)
    }

    pub(crate) fn take_cancel(&self) -> bool {
        self.cancelled.replace(false)
    }

    /// Checks the time limits; called twice a second.
    pub(crate) fn exceeded_limit(
        &self,
        view: &DatabaseSnapshot,
        now_ms: u64,
    ) -> Option<ExceededLimit> {
        let deadline_ms = self.deadline_ms.get();
        if deadline_ms != 0 && now_ms >= deadline_ms {
            self.notify();
        }
        if self.pins.get().has(Pin::Replication) {
            // A replication stream never ends, and a base backup or initial copy has no time limit.
            return None;
        }
        let TimeLimits {
            query,
            transaction,
            idle_in_transaction,
            ..
        } = view.time_limits;
        // Times are those of the sweep before the event, hence one interval more.
        let passed = |since_ms: u64, limit: Duration| {
            let since = u128::from(now_ms.saturating_sub(since_ms));
            !limit.is_zero() && since_ms != 0 && since >= (limit + SWEEP_INTERVAL).as_millis()
        };
        let query = self
            .query_limit_ms
            .get()
            .map_or(query, Duration::from_millis);
        if passed(self.transaction_since_ms.get(), transaction) {
            return Some(ExceededLimit::Transaction);
        }
        match self.activity.get() {
            SessionActivity::Active
                if passed(self.activity_since_ms.get(), query)
                    && !self.is_timed_out.replace(true) =>
            {
                Some(ExceededLimit::Query)
            }
            SessionActivity::InTransaction
                if passed(self.activity_since_ms.get(), idle_in_transaction) =>
            {
                Some(ExceededLimit::IdleInTransaction)
            }
            _ => None,
        }
    }
}
