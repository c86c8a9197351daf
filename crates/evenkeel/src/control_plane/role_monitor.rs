//! Queries one server's role repeatedly, in a task of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use evenkeel_proxy::Server;
use evenkeel_proxy::monitor::{RoleMonitor, WatchError};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use super::probing::{MonitorEvent, target};
use super::traffic_check::{gives_nothing, with_traffic_check};
use crate::config::Address;

/// Interval while a cluster has no primary: the next primary must not wait for the next query.
const HUNTING_INTERVAL_MS: u64 = 25;

/// Longest use of the short interval. A cluster that waits for an operator is queried less often.
const HUNTING_LIMIT: Duration = Duration::from_secs(60);

/// Interval for an unreachable server. One that responded to its previous query is first queried
/// again immediately.
const AWAY_INTERVAL_MS: u64 = 100;

/// Increasing intervals for a server that rejects the login or cannot report its role: each query
/// is a login.
const REFUSED_INTERVALS_MS: [u64; 4] = [100, 250, 1_000, 5_000];

/// Shortest interval between two queries to a server whose role sessions doubt.
const DOUBTED_INTERVAL_MS: u64 = 10;

/// Time limit of a second query: a stopping server closes its connections first, and may accept new
/// ones for another second without responding.
const SILENCE_MS: u64 = 150;

/// Longest silence towards all clients. After it, a server does not keep its role against another
/// server's claim, and an accepted connection does not count as a sign of life.
const VETO_MS: u64 = 300;

/// Task that queries one server. Dropping this ends it.
pub(super) struct RoleMonitorTask {
    pace: Arc<RoleQuerySchedule>,
    task: JoinHandle<()>,
}

/// Requests of the control plane to the task.
#[derive(Debug, Default)]
struct RoleQuerySchedule {
    interval_ms: AtomicU64,
    hunting: AtomicBool,
    /// True if the next query must use a new connection.
    fresh: AtomicBool,
    now: Notify,
    /// Aborts a query in progress, which is repeated over a new connection.
    anew: Notify,
    /// True if another server takes over the role unless this one still claims it in its next
    /// response.
    contested: AtomicBool,
    /// Signals that traffic contradicts the last role report.
    doubted: Notify,
}

impl RoleMonitorTask {
    pub(super) fn start(
        address: Address,
        server: Arc<Server>,
        watcher: RoleMonitor,
        times: Times,
        reports: mpsc::Sender<MonitorEvent>,
    ) -> Self {
        let pace = Arc::new(RoleQuerySchedule {
            interval_ms: AtomicU64::new(times.interval_ms),
            ..RoleQuerySchedule::default()
        });
        let asking = RoleQueryLoop {
            address,
            server,
            watcher,
            timeout: Duration::from_millis(times.timeout_ms),
            pace: Arc::clone(&pace),
            reports,
            answered: false,
            refusals: 0,
            hunting_since: None,
        };
        let task = tokio::spawn(asking.go_on());
        Self { pace, task }
    }

    /// Queries the role over a new connection, immediately or at the next regular query.
    pub(super) fn verify(&self, at_once: bool) {
        self.pace.fresh.store(true, Relaxed);
        if at_once {
            self.pace.anew.notify_one();
        }
    }

    /// Records that another server claims the role: silence at the next query is then reported
    /// after `VETO_MS`.
    pub(super) fn contest(&self) {
        self.pace.contested.store(true, Relaxed);
    }

    /// Queries the role soon, since traffic contradicts the last report.
    pub(super) fn doubt(&self) {
        self.pace.doubted.notify_one();
    }

    /// Sets whether the cluster lacks a primary, which shortens the interval.
    pub(super) fn hunt(&self, hunting: bool) {
        if self.pace.hunting.swap(hunting, Relaxed) != hunting && hunting {
            self.pace.now.notify_one();
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
async fn doubted(pace: &RoleQuerySchedule) {
    let asked = Instant::now();
    pace.doubted.notified().await;
    let apart = Duration::from_millis(DOUBTED_INTERVAL_MS);
    tokio::time::sleep_until((asked + apart).into()).await;
}

/// Interval between two queries, and time limit of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) interval_ms: u64,
    pub(super) timeout_ms: u64,
}

type Outcome = Result<evenkeel_policy::cluster::RoleReport, WatchError>;

fn is_away(outcome: &Outcome) -> bool {
    matches!(outcome, Err(WatchError::Away(_)))
}

struct RoleQueryLoop {
    address: Address,
    server: Arc<Server>,
    watcher: RoleMonitor,
    timeout: Duration,
    pace: Arc<RoleQuerySchedule>,
    reports: mpsc::Sender<MonitorEvent>,
    /// True if the last query was answered, so that the next one may use the same connection.
    answered: bool,
    /// Consecutive responses without a role.
    refusals: usize,
    hunting_since: Option<Instant>,
}

impl RoleQueryLoop {
    async fn go_on(mut self) {
        loop {
            let pace = Arc::clone(&self.pace);
            let outcome = tokio::select! {
                biased;
                () = pace.anew.notified() => continue,
                outcome = self.ask_twice() => outcome,
            };
            let Some(outcome) = outcome else {
                // The last report stays valid: the server responds to clients, and is slow only for
                // the monitor.
                self.pause(false).await;
                continue;
            };
            let away = is_away(&outcome);
            self.answered = !away;
            self.refusals = match outcome.is_ok() || away {
                true => 0,
                false => self.refusals + 1,
            };
            let report = MonitorEvent::RuleText(self.address.clone(), outcome);
            if self.reports.send(report).await.is_err() {
                return;
            }
            self.pause(away).await;
        }
    }

    /// Queries the role, and again over a new connection if the old one failed, before the server
    /// counts as unreachable. `None`: the server is busy.
    async fn ask_twice(&mut self) -> Option<Outcome> {
        let since = Instant::now();
        let (outcome, is_busy) = self.ask_once().await;
        if is_busy && is_away(&outcome) {
            return None;
        }
        let was_answered = std::mem::replace(&mut self.answered, true);
        if is_away(&outcome) && was_answered {
            let was_closed = since.elapsed() < self.timeout;
            return Some(self.ask_anew(was_closed).await);
        }
        Some(outcome)
    }

    /// Returns the response, and whether the server responded to clients while none arrived.
    async fn ask_once(&mut self) -> (Outcome, bool) {
        let (server, timeout) = (Arc::clone(&self.server), self.timeout);
        let is_new = self.pace.fresh.load(Relaxed) || !self.watcher.is_connected();
        // An established connection may be slow for a moment.
        let patience = match self.pace.contested.swap(false, Relaxed) || is_new {
            true => Duration::from_millis(VETO_MS),
            false => timeout / 2,
        };
        let (address, reports) = (self.address.clone(), self.reports.clone());
        let asking = with_traffic_check(&server, timeout, self.ask());
        tokio::pin!(asking);
        tokio::select! {
            answered = &mut asking => return answered,
            () = gives_nothing(&server, patience) => {}
        }
        // The receiver is dropped only when the process ends.
        let _ = reports.send(MonitorEvent::FellSilent(address)).await;
        asking.await
    }

    async fn ask(&mut self) -> Outcome {
        let fresh = self.pace.fresh.swap(false, Relaxed);
        let endpoint = self.server.endpoints().first().map(target);
        match endpoint {
            Some(target) => self.watcher.ask(&target, fresh, self.timeout).await,
            None => Err(WatchError::Away("host name not resolved".to_owned())),
        }
    }

    /// Queries the role over a new connection. After a closed connection, as opposed to a slow one,
    /// silence is reported early.
    async fn ask_anew(&mut self, was_closed: bool) -> Outcome {
        let silence = Duration::from_millis(SILENCE_MS);
        let (address, reports) = (self.address.clone(), self.reports.clone());
        let asking = self.ask();
        tokio::pin!(asking);
        let outcome = match tokio::time::timeout(silence, &mut asking).await {
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
            None => asking.await,
        }
    }

    async fn pause(&mut self, away: bool) {
        let interval_ms = self.interval_ms(away);
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(interval_ms)) => {}
            () = self.pace.now.notified() => {}
            () = self.pace.anew.notified() => {}
            () = doubted(&self.pace) => {}
            () = self.watcher.closed() => {}
        }
    }

    fn interval_ms(&mut self, away: bool) -> u64 {
        if let Some(last) = self.refusals.checked_sub(1) {
            let longest = REFUSED_INTERVALS_MS.len() - 1;
            return REFUSED_INTERVALS_MS[last.min(longest)];
        }
        let interval_ms = self.pace.interval_ms.load(Relaxed);
        let hunting = self.pace.hunting.load(Relaxed);
        let since = hunting.then(|| self.hunting_since.unwrap_or_else(Instant::now));
        self.hunting_since = since;
        let hurries = since.is_some_and(|since| since.elapsed() < HUNTING_LIMIT);
        match (away, hurries) {
            (false, true) => interval_ms.min(HUNTING_INTERVAL_MS),
            (true, true) => AWAY_INTERVAL_MS,
            (true, false) => interval_ms.max(AWAY_INTERVAL_MS),
            (false, false) => interval_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use evenkeel_policy::Load;
    use evenkeel_proxy::Endpoint;
    use evenkeel_proxy::monitor::Database;
    use evenkeel_proxy::probe::{MonitorAccount, Tls};

    use super::*;

    fn asking(reports: mpsc::Sender<MonitorEvent>, port: u16) -> RoleQueryLoop {
        let server = Server::new(1, "db".into(), Arc::new(Load::new(None)), 1);
        server.set_endpoints(vec![Endpoint::Tcp(([127, 0, 0, 1], port).into())]);
        let account = MonitorAccount {
            user: "monitor".to_owned(),
            password: String::new(),
            database: None,
        };
        RoleQueryLoop {
            address: Address::Tcp {
                host: "127.0.0.1".to_owned(),
                port,
            },
            server: Arc::new(server),
            watcher: RoleMonitor::new(Database::Mysql, account, Tls::Off, None).unwrap(),
            timeout: Duration::from_secs(2),
            pace: Arc::default(),
            reports,
            answered: false,
            refusals: 0,
            hunting_since: None,
        }
    }

    #[tokio::test]
    async fn who_takes_a_connection_and_says_nothing_is_told_of_long_before_the_time_is_over() {
        let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = deaf.local_addr().unwrap().port();
        let (reports, mut told) = mpsc::channel(1);
        let mut asking = asking(reports, port);
        let begun = Instant::now();
        let asked = tokio::spawn(async move { asking.ask_once().await.0 });
        let report = told.recv().await.unwrap();
        assert!(matches!(report, MonitorEvent::FellSilent(_)), "{report:?}");
        assert!(
            begun.elapsed() < Duration::from_secs(1),
            "{:?}",
            begun.elapsed()
        );
        assert!(is_away(&asked.await.unwrap()));
    }
}
