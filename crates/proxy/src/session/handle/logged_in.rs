//! Describes the client of a database that has logged in: who it is, what it does and since when,
//! its server connection, its pins, and its time limits.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_engine::clock;
use evenkeel_policy::pins::{Pin, Pins};

use super::events::PendingEvents;
use super::{Phase, SWEEP_INTERVAL, SessionEvent, SessionHandle};
use crate::cancel;
use crate::record::TerminationReason;
use crate::service::ServiceSnapshot;
use crate::service::activity::SessionActivity;
use crate::service::database::TimeLimits;
use crate::service::pin_causes::PinCause;
use crate::service::rules::AppliedRules;
use crate::upstream::cancel_target::CancelTarget;
use crate::worker::Worker;
use evenkeel_sql::session_state::PinSource;

/// Identity of a logged-in client.
pub(crate) struct Login {
    /// Session id, unique in this process.
    pub(crate) id: u64,
    pub(crate) user: Arc<str>,
    /// Current database.
    pub(crate) database: Arc<str>,
    /// Key that cancels the session's work; `None` if the protocol has no such keys.
    pub(crate) key: Option<cancel::Key>,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) application: ApplicationName,
}

/// Name that the client's program gives itself: PostgreSQL's `application_name`, the connection
/// attribute `program_name` of MySQL. Empty if it gives none.
#[derive(Debug, Clone, Default)]
pub(crate) struct ApplicationName(Option<Arc<str>>);

/// Maximum length of such a name in bytes, as on a PostgreSQL server.
const APPLICATION_LENGTH_MAX: usize = 63;

impl ApplicationName {
    pub(crate) fn new(name: &[u8]) -> Self {
        let name = String::from_utf8_lossy(name);
        let name = &name[..name.floor_char_boundary(APPLICATION_LENGTH_MAX)];
        Self((!name.is_empty()).then(|| name.into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }
}

/// State of a session whose client has logged in.
pub(super) struct LoggedIn {
    login: Login,
    since_ms: u64,
    activity: Activity,
    /// Start of the transaction in microseconds; zero: none has begun.
    transaction_since_us: u64,
    /// Current server connection.
    target: Option<Rc<CancelTarget>>,
    pins: Pins,
    /// Causes of the lasting pins.
    causes: Vec<Arc<PinCause>>,
    /// Idle limit set by the client, in milliseconds; zero: the service's limit applies.
    idle_limit_ms: u64,
    /// Time of the next [`SessionEvent::Recheck`], in milliseconds of the clock; zero: never.
    deadline_ms: u64,
    /// Query limit set by a rule, in milliseconds; `None`: the service's limit applies, zero: no
    /// limit.
    query_limit_ms: Option<u64>,
    /// Time of the last [`SessionEvent::LivenessCheck`].
    liveness_check_ms: u64,
}

/// Current activity, and the time of the sweep before it began.
struct Activity {
    kind: SessionActivity,
    since_ms: u64,
    /// True if the query has been cancelled for exceeding its limit.
    is_overtime: bool,
}

/// Time limit that a session has exceeded.
enum ExceededLimit {
    /// The query must be cancelled.
    Query,
    /// The session ends.
    Session(TerminationReason),
}

/// Snapshot of a logged-in client's session, for the status.
pub(crate) struct LoginInfo {
    pub(crate) id: u64,
    pub(crate) user: Arc<str>,
    pub(crate) database: Arc<str>,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) application: ApplicationName,
    pub(crate) since_ms: u64,
    pub(crate) activity: SessionActivity,
    pub(crate) activity_since_ms: u64,
    pub(crate) target: Option<Rc<CancelTarget>>,
    pub(crate) pins: Pins,
    pub(crate) causes: Vec<Arc<PinCause>>,
}

impl Activity {
    fn new(kind: SessionActivity, since_ms: u64) -> Self {
        Self {
            kind,
            since_ms,
            is_overtime: false,
        }
    }
}

impl LoggedIn {
    fn new(login: Login) -> Self {
        let now_ms = clock::now_ms();
        Self {
            login,
            since_ms: now_ms,
            activity: Activity::new(SessionActivity::Idle, now_ms),
            transaction_since_us: 0,
            target: None,
            pins: Pins::NONE,
            causes: Vec::new(),
            idle_limit_ms: 0,
            deadline_ms: 0,
            query_limit_ms: None,
            liveness_check_ms: now_ms,
        }
    }

    pub(super) fn is_at(&self, server_id: u64) -> bool {
        let target = self.target.as_ref();
        target.is_some_and(|target| target.pool_handle.server.id == server_id)
    }

    fn set_activity(&mut self, kind: SessionActivity, now_ms: u64) {
        if self.activity.kind == kind {
            return;
        }
        self.activity = Activity::new(kind, now_ms);
        if matches!(kind, SessionActivity::Idle | SessionActivity::Bound) {
            self.transaction_since_us = 0;
        }
    }

    /// Removes the causes of pins that do not hold any more. Returns the new lasting pins.
    fn set_pins(&mut self, pins: Pins) -> Pins {
        let before = std::mem::replace(&mut self.pins, pins).lasting();
        let lasting = pins.lasting();
        if before == lasting {
            return Pins::NONE;
        }
        self.causes
            .retain(|cause| !cause.pins.within(lasting).is_empty());
        lasting.except(before)
    }

    /// Checks the limits. Returns the events that are due, and the reason to end the session.
    fn check_limits(
        &mut self,
        view: &ServiceSnapshot,
        silent_ms: u128,
        now_ms: u64,
    ) -> (PendingEvents, Option<TerminationReason>) {
        let mut events = PendingEvents::default();
        if self.deadline_ms != 0 && now_ms >= self.deadline_ms {
            events.add(SessionEvent::Recheck);
        }
        if self.is_liveness_check_due(view.settings.keepalive.user_timeout, now_ms) {
            events.add(SessionEvent::LivenessCheck);
        }
        let own = view.database();
        let exceeded = own.and_then(|own| self.exceeded_limit(&own.time_limits, now_ms));
        let ending = match exceeded {
            Some(ExceededLimit::Query) => {
                self.activity.is_overtime = true;
                events.add(SessionEvent::QueryOvertime);
                None
            }
            Some(ExceededLimit::Session(ending)) => Some(ending),
            None => None,
        };
        let is_idle = || self.is_idle_too_long(view.settings.idle_timeout, silent_ms);
        let ending = ending.or_else(|| is_idle().then_some(TerminationReason::IdleTimeout));
        (events, ending)
    }

    /// Returns true at most four times per `limit`, because the check costs two system calls.
    fn is_liveness_check_due(&mut self, limit: Duration, now_ms: u64) -> bool {
        let since_ms = u128::from(now_ms.saturating_sub(self.liveness_check_ms));
        let is_due = !limit.is_zero() && since_ms >= (limit / 4).as_millis();
        if is_due {
            self.liveness_check_ms = now_ms;
        }
        is_due
    }

    fn is_idle_too_long(&self, of_service: Duration, silent_ms: u128) -> bool {
        let is_idle = matches!(
            self.activity.kind,
            SessionActivity::Idle | SessionActivity::Bound
        );
        let limit = self.idle_limit(of_service);
        is_idle && !limit.is_zero() && silent_ms >= (limit + SWEEP_INTERVAL).as_millis()
    }

    /// Returns the shorter of the client's limit and the service's; zero: no limit.
    fn idle_limit(&self, of_service: Duration) -> Duration {
        let of_session = Duration::from_millis(self.idle_limit_ms);
        match (of_session.is_zero(), of_service.is_zero()) {
            (true, _) => of_service,
            (false, true) => of_session,
            (false, false) => of_session.min(of_service),
        }
    }

    fn exceeded_limit(&self, limits: &TimeLimits, now_ms: u64) -> Option<ExceededLimit> {
        if self.pins.has(Pin::Replication) {
            // A replication stream never ends, and a base backup or initial copy has no time limit.
            return None;
        }
        let passed = |since_ms: u64, limit: Duration| {
            let since = u128::from(now_ms.saturating_sub(since_ms));
            !limit.is_zero() && since >= limit.as_millis()
        };
        let began_us = self.transaction_since_us;
        if began_us != 0 && passed(began_us / 1_000, limits.transaction) {
            let ending = TerminationReason::TransactionTimeout;
            return Some(ExceededLimit::Session(ending));
        }
        // The activity's time is that of the sweep before it, hence one interval more.
        let since_ms = self.activity.since_ms + SWEEP_INTERVAL.as_millis() as u64;
        match self.activity.kind {
            SessionActivity::Active if !self.activity.is_overtime => {
                let of_rule = self.query_limit_ms.map(Duration::from_millis);
                let limit = of_rule.unwrap_or(limits.query);
                passed(since_ms, limit).then_some(ExceededLimit::Query)
            }
            SessionActivity::InTransaction => {
                let ending = TerminationReason::IdleInTransaction;
                passed(since_ms, limits.idle_in_transaction)
                    .then_some(ExceededLimit::Session(ending))
            }
            _ => None,
        }
    }
}

/// State of a logged-in client. Without one, the functions that read return an empty value, and
/// those that write do nothing.
impl SessionHandle {
    /// Records that a client has logged in.
    pub(crate) fn log_in(&self, login: Login) {
        self.enter(Phase::LoggedIn(Box::new(LoggedIn::new(login))));
    }

    /// Records that the session of a logged-in client has ended.
    pub(crate) fn log_out(&self) {
        self.detach();
    }

    /// Returns the session's id, unique in this process; zero before the login.
    pub(crate) fn session_id(&self) -> u64 {
        self.logged_in().map_or(0, |client| client.login.id)
    }

    /// Returns the state of a logged-in client for the status.
    pub(crate) fn login_info(&self) -> Option<LoginInfo> {
        self.logged_in().map(|client| LoginInfo {
            id: client.login.id,
            user: Arc::clone(&client.login.user),
            database: Arc::clone(&client.login.database),
            peer: client.login.peer,
            application: client.login.application.clone(),
            since_ms: client.since_ms,
            activity: client.activity.kind,
            activity_since_ms: client.activity.since_ms,
            target: client.target.clone(),
            pins: client.pins,
            causes: client.causes.clone(),
        })
    }

    /// Returns whether a client with this identity is logged in.
    pub(crate) fn is_login(&self, is_meant: impl FnOnce(&Login) -> bool) -> bool {
        self.logged_in()
            .is_some_and(|client| is_meant(&client.login))
    }

    /// Returns a value from the client's key for cancel requests; `None` if it has none.
    pub(crate) fn with_key<T>(&self, read: impl FnOnce(&cancel::Key) -> T) -> Option<T> {
        let client = self.logged_in()?;
        client.login.key.as_ref().map(read)
    }

    /// Returns the name of the current database.
    pub(crate) fn database(&self) -> Arc<str> {
        self.logged_in()
            .map(|client| Arc::clone(&client.login.database))
            .unwrap_or_default()
    }

    /// Records a setting that the client has changed, if it is the name of the client's program.
    pub(crate) fn hear_setting(&self, name: &[u8], value: &[u8]) {
        if name == b"application_name"
            && let Some(mut client) = self.logged_in_mut()
        {
            client.login.application = ApplicationName::new(value);
        }
    }

    /// Sets the current database.
    pub(crate) fn set_database(&self, database: Arc<str>) {
        if let Some(mut client) = self.logged_in_mut() {
            client.login.database = database;
        }
    }

    /// Returns the activity and the pins of a logged-in client.
    pub(crate) fn activity(&self) -> Option<(SessionActivity, Pins)> {
        self.logged_in()
            .map(|client| (client.activity.kind, client.pins))
    }

    /// Sets the activity. The time is that of the worker's last sweep, which is as precise as the
    /// limits are.
    pub(crate) fn set_activity(&self, kind: SessionActivity, worker: &Worker) {
        if let Some(mut client) = self.logged_in_mut() {
            client.set_activity(kind, worker.last_sweep_ms());
        }
    }

    /// Marks the start of a transaction unless one has begun.
    pub(crate) fn begins_transaction(&self, now_us: u64) {
        if let Some(mut client) = self.logged_in_mut()
            && client.transaction_since_us == 0
        {
            client.transaction_since_us = now_us;
        }
    }

    /// Marks the end of a transaction and returns its duration in microseconds. The next one may
    /// have begun.
    pub(crate) fn ends_transaction(&self, now_us: u64) -> u64 {
        let since_us = self.logged_in_mut().map_or(now_us, |mut client| {
            std::mem::replace(&mut client.transaction_since_us, now_us)
        });
        now_us.saturating_sub(since_us)
    }

    /// Restarts the limit of a query, because one is done and the next one has already been sent.
    pub(crate) fn begins_next(&self, worker: &Worker) {
        if let Some(mut client) = self.logged_in_mut() {
            client.activity = Activity::new(client.activity.kind, worker.last_sweep_ms());
        }
    }

    /// Sets the pins that hold now. `source` names the cause of new lasting pins. Returns that
    /// cause, if there is one.
    pub(crate) fn set_pins(
        &self,
        pins: Pins,
        source: impl FnOnce(Pins) -> PinSource,
    ) -> Option<Arc<PinCause>> {
        let new = self.logged_in_mut()?.set_pins(pins);
        if new.is_empty() {
            return None;
        }
        let PinSource { statement, object } = source(new);
        let cause = Arc::new(PinCause {
            pins: new,
            statement,
            object,
        });
        self.logged_in_mut()?.causes.push(Arc::clone(&cause));
        Some(cause)
    }

    /// Returns the current server connection.
    pub(crate) fn target(&self) -> Option<Rc<CancelTarget>> {
        self.logged_in()?.target.clone()
    }

    /// Sets the current server connection.
    pub(crate) fn set_target(&self, target: Option<&Rc<CancelTarget>>) {
        if let Some(mut client) = self.logged_in_mut() {
            client.target = target.map(Rc::clone);
        }
    }

    /// Sets the idle limit of the client, in milliseconds; zero: the service's limit applies.
    pub(crate) fn set_idle_limit(&self, limit_ms: u64) {
        if let Some(mut client) = self.logged_in_mut() {
            client.idle_limit_ms = limit_ms;
        }
    }

    /// Sets the time limit that the rules give the next query.
    pub(crate) fn limit_query(&self, rules: Option<&AppliedRules>) {
        if let Some(mut client) = self.logged_in_mut() {
            client.query_limit_ms = rules.and_then(|rules| rules.outcome.timeout_ms);
        }
    }

    /// Sets the time of the next [`SessionEvent::Recheck`]; zero: none.
    pub(crate) fn set_deadline(&self, deadline_ms: u64) {
        if let Some(mut client) = self.logged_in_mut() {
            client.deadline_ms = deadline_ms;
        }
    }

    /// Checks the limits of a logged-in client's session.
    pub(super) fn sweep_logged_in(&self, now_ms: u64) {
        let Some(mut client) = self.logged_in_mut() else {
            return;
        };
        let silent_ms = self.silent_ms(now_ms);
        let (events, ending) = client.check_limits(&self.service.snapshot(), silent_ms, now_ms);
        drop(client);
        self.notify_all(events);
        if let Some(ending) = ending {
            self.cut(ending);
        }
    }
}
