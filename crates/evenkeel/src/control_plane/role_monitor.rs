//! Queries one server's role repeatedly, in a task of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use evenkeel_config::plan::Address;
use evenkeel_monitor::{RoleMonitor, WatchError};
use evenkeel_proxy::Server;
use evenkeel_wire::proxy_header::ProxyVersion;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use super::endpoint::target;
use super::monitor_event::MonitorEvent;
use super::traffic_check::{await_silence, with_traffic_check};

/// Interval while a cluster has no primary: the next primary must not wait for the next query.
const URGENT_INTERVAL_MS: u64 = 25;

/// Longest use of the short interval. A cluster that waits for an operator is queried less often.
const URGENT_LIMIT: Duration = Duration::from_secs(60);

/// Interval for an unreachable server. One that responded to its previous query is first queried
/// again immediately.
const UNREACHABLE_INTERVAL_MS: u64 = 100;

/// Increasing intervals for a server that rejects the login or cannot report its role: each query
/// is a login.
const REFUSED_INTERVALS_MS: [u64; 4] = [100, 250, 1_000, 5_000];

/// Shortest interval between two queries to a server whose role sessions doubt.
const CHECK_INTERVAL_MS: u64 = 10;

/// Time limit of a second query: a stopping server closes its connections first, and may accept new
/// ones for another second without responding.
const SILENCE_MS: u64 = 150;

/// Longest silence towards all clients. After it, a server does not keep its role against another
/// server's claim, and an accepted connection does not count as a sign of life.
const VETO_MS: u64 = 300;

/// Task that queries one server. Dropping this ends it.
pub(super) struct RoleMonitorTask {
    schedule: Arc<RoleQuerySchedule>,
    task: JoinHandle<()>,
}

/// Requests of the control plane to the task.
#[derive(Debug, Default)]
struct RoleQuerySchedule {
    interval_ms: AtomicU64,
    is_urgent: AtomicBool,
    /// True if the next query must use a new connection.
    must_reconnect: AtomicBool,
    wake: Notify,
    /// Aborts a query in progress, which is repeated over a new connection.
    reconnect: Notify,
    /// True if another server takes over the role unless this one still claims it in its next
    /// response.
    is_contested: AtomicBool,
    /// Signals that traffic contradicts the last role report.
    check_requested: Notify,
}

impl RoleMonitorTask {
    pub(super) fn start(
        address: Address,
        server: Arc<Server>,
        monitor: RoleMonitor,
        settings: RoleQuerySettings,
        reports: mpsc::Sender<MonitorEvent>,
    ) -> Self {
        let schedule = Arc::new(RoleQuerySchedule {
            interval_ms: AtomicU64::new(settings.interval_ms),
            ..RoleQuerySchedule::default()
        });
        let query_loop = RoleQueryLoop {
            address,
            server,
            monitor,
            timeout: Duration::from_millis(settings.timeout_ms),
            schedule: Arc::clone(&schedule),
            proxy_header: settings.proxy_header,
            reports,
            answered: false,
            failures: 0,
            urgent_since: None,
        };
        let task = tokio::spawn(query_loop.run());
        Self { schedule, task }
    }

    /// Queries the role over a new connection, immediately or at the next regular query.
    pub(super) fn verify(&self, is_immediate: bool) {
        self.schedule.must_reconnect.store(true, Relaxed);
        if is_immediate {
            self.schedule.reconnect.notify_one();
        }
    }

    /// Records that another server claims the role: silence at the next query is then reported
    /// after `VETO_MS`.
    pub(super) fn contest(&self) {
        self.schedule.is_contested.store(true, Relaxed);
    }

    /// Queries the role soon, since traffic contradicts the last report.
    pub(super) fn request_check(&self) {
        self.schedule.check_requested.notify_one();
    }

    /// Sets whether the cluster lacks a primary, which shortens the interval.
    pub(super) fn set_urgent(&self, is_urgent: bool) {
        if self.schedule.is_urgent.swap(is_urgent, Relaxed) != is_urgent && is_urgent {
            self.schedule.wake.notify_one();
        }
    }
}

impl Drop for RoleMonitorTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Waits for a doubt, and for the shortest interval, so that many doubts cause few queries. Each
/// doubt is followed by a query.
async fn wait_for_check(schedule: &RoleQuerySchedule) {
    let asked = Instant::now();
    schedule.check_requested.notified().await;
    let interval = Duration::from_millis(CHECK_INTERVAL_MS);
    tokio::time::sleep_until((asked + interval).into()).await;
}

/// Interval between two queries, time limit of one, and PROXY header of their connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RoleQuerySettings {
    pub(super) interval_ms: u64,
    pub(super) timeout_ms: u64,
    pub(super) proxy_header: Option<ProxyVersion>,
}

type Outcome = Result<evenkeel_policy::cluster::RoleReport, WatchError>;

fn is_away(outcome: &Outcome) -> bool {
    matches!(outcome, Err(WatchError::Away(_)))
}

struct RoleQueryLoop {
    address: Address,
    server: Arc<Server>,
    monitor: RoleMonitor,
    timeout: Duration,
    schedule: Arc<RoleQuerySchedule>,
    proxy_header: Option<ProxyVersion>,
    reports: mpsc::Sender<MonitorEvent>,
    /// True if the last query was answered, so that the next one may use the same connection.
    answered: bool,
    /// Consecutive responses without a role.
    failures: usize,
    urgent_since: Option<Instant>,
}

impl RoleQueryLoop {
    async fn run(mut self) {
        loop {
            let schedule = Arc::clone(&self.schedule);
            let outcome = tokio::select! {
                biased;
                () = schedule.reconnect.notified() => continue,
                outcome = self.query_with_retry() => outcome,
            };
            let Some(outcome) = outcome else {
                // The last report stays valid: the server responds to clients, and is slow only for
                // the monitor.
                self.pause(false).await;
                continue;
            };
            let away = is_away(&outcome);
            self.answered = !away;
            self.failures = match outcome.is_ok() || away {
                true => 0,
                false => self.failures + 1,
            };
            let report = MonitorEvent::RoleReport(self.address.clone(), outcome);
            if self.reports.send(report).await.is_err() {
                return;
            }
            self.pause(away).await;
        }
    }

    /// Queries the role, and again over a new connection if the old one failed, before the server
    /// counts as unreachable. `None`: the server is busy.
    async fn query_with_retry(&mut self) -> Option<Outcome> {
        let since = Instant::now();
        let (outcome, is_busy) = self.query_once().await;
        if is_busy && is_away(&outcome) {
            return None;
        }
        let was_answered = std::mem::replace(&mut self.answered, true);
        if is_away(&outcome) && was_answered {
            let was_closed = since.elapsed() < self.timeout;
            return Some(self.query_reconnected(was_closed).await);
        }
        Some(outcome)
    }

    /// Returns the response, and whether the server responded to clients while none arrived.
    async fn query_once(&mut self) -> (Outcome, bool) {
        let (server, timeout) = (Arc::clone(&self.server), self.timeout);
        let is_new = self.schedule.must_reconnect.load(Relaxed) || !self.monitor.is_connected();
        // An established connection may be slow for a moment.
        let patience = match self.schedule.is_contested.swap(false, Relaxed) || is_new {
            true => Duration::from_millis(VETO_MS),
            false => timeout / 2,
        };
        let (address, reports) = (self.address.clone(), self.reports.clone());
        let query = with_traffic_check(&server, timeout, self.query());
        tokio::pin!(query);
        tokio::select! {
            answered = &mut query => return answered,
            () = await_silence(&server, patience) => {}
        }
        // The receiver is dropped only when the process ends.
        let _ = reports.send(MonitorEvent::FellSilent(address)).await;
        query.await
    }

    async fn query(&mut self) -> Outcome {
        let must_reconnect = self.schedule.must_reconnect.swap(false, Relaxed);
        let endpoint = self.server.endpoints().first().map(target);
        match endpoint {
            Some(mut target) => {
                target.proxy_header = self.proxy_header;
                self.monitor
                    .ask(&target, must_reconnect, self.timeout)
                    .await
            }
            None => Err(WatchError::Away("host name not resolved".to_owned())),
        }
    }

    /// Queries the role over a new connection. After a closed connection, as opposed to a slow one,
    /// silence is reported early.
    async fn query_reconnected(&mut self, was_closed: bool) -> Outcome {
        let silence = Duration::from_millis(SILENCE_MS);
        let (address, reports) = (self.address.clone(), self.reports.clone());
        let query = self.query();
        tokio::pin!(query);
        let outcome = match tokio::time::timeout(silence, &mut query).await {
            Ok(outcome) if !is_away(&outcome) || !was_closed => return outcome,
            Ok(outcome) => Some(outcome),
            Err(_) => None,
        };
        if was_closed {
            // The receiver is dropped only when the process ends.
            let _ = reports.send(MonitorEvent::FellSilent(address)).await;
        }
        match outcome {
            Some(outcome) => outcome,
            None => query.await,
        }
    }

    async fn pause(&mut self, away: bool) {
        let interval_ms = self.interval_ms(away);
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(interval_ms)) => {}
            () = self.schedule.wake.notified() => {}
            () = self.schedule.reconnect.notified() => {}
            () = wait_for_check(&self.schedule) => {}
            () = self.monitor.closed() => {}
        }
    }

    fn interval_ms(&mut self, away: bool) -> u64 {
        if let Some(last) = self.failures.checked_sub(1) {
            let longest = REFUSED_INTERVALS_MS.len() - 1;
            return REFUSED_INTERVALS_MS[last.min(longest)];
        }
        let interval_ms = self.schedule.interval_ms.load(Relaxed);
        let is_urgent = self.schedule.is_urgent.load(Relaxed);
        let since = is_urgent.then(|| self.urgent_since.unwrap_or_else(Instant::now));
        self.urgent_since = since;
        let is_urgent_now = since.is_some_and(|since| since.elapsed() < URGENT_LIMIT);
        match (away, is_urgent_now) {
            (false, true) => interval_ms.min(URGENT_INTERVAL_MS),
            (true, true) => UNREACHABLE_INTERVAL_MS,
            (true, false) => interval_ms.max(UNREACHABLE_INTERVAL_MS),
            (false, false) => interval_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use evenkeel_monitor::probe::{AccountSource, MonitorAccount, Tls};
    use evenkeel_policy::Load;
    use evenkeel_proxy::Endpoint;
    use evenkeel_wire::SqlProtocol;

    use super::*;

    fn query_loop(reports: mpsc::Sender<MonitorEvent>, port: u16) -> RoleQueryLoop {
        let server = Server::new(1, "db".into(), Arc::new(Load::new(None)), 1);
        server.set_endpoints(vec![Endpoint::Tcp(([127, 0, 0, 1], port).into())]);
        let account = MonitorAccount {
            user: "monitor".to_owned(),
            password: String::new(),
            database: None,
            source: AccountSource::Service,
        };
        RoleQueryLoop {
            address: Address::Tcp {
                host: "127.0.0.1".to_owned(),
                port,
            },
            server: Arc::new(server),
            monitor: RoleMonitor::new(SqlProtocol::Mysql, account, Tls::Off, None, || 0).unwrap(),
            timeout: Duration::from_secs(2),
            schedule: Arc::default(),
            proxy_header: None,
            reports,
            answered: false,
            failures: 0,
            urgent_since: None,
        }
    }

    #[tokio::test]
    async fn who_takes_a_connection_and_says_nothing_is_told_of_long_before_the_time_is_over() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (reports, mut events) = mpsc::channel(1);
        let mut query_loop = query_loop(reports, port);
        let begun = Instant::now();
        let asked = tokio::spawn(async move { query_loop.query_once().await.0 });
        let report = events.recv().await.unwrap();
        assert!(matches!(report, MonitorEvent::FellSilent(_)), "{report:?}");
        assert!(
            begun.elapsed() < Duration::from_secs(1),
            "{:?}",
            begun.elapsed()
        );
        assert!(is_away(&asked.await.unwrap()));
    }
}
