//! Asks one server for its role, over and over, as a task of its own.

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

/// While a cluster has no primary: the next one must not wait for our next question.
const HUNTING_INTERVAL_MS: u64 = 25;

/// For so long; who waits for an operator need not be asked as often.
const HUNTING_LIMIT: Duration = Duration::from_secs(60);

/// A server that answered a moment ago and does not now is asked anew at once, and then this often.
const AWAY_INTERVAL_MS: u64 = 100;

/// One that lets nobody in, or cannot tell, is asked less and less: each time is a login.
const REFUSED_INTERVALS_MS: [u64; 4] = [100, 250, 1_000, 5_000];

/// One whose role is doubted is asked no more often than this.
const DOUBTED_INTERVAL_MS: u64 = 10;

/// A server that ends closes its connections first, and may take new ones for a second yet without
/// a word.
const SILENCE_MS: u64 = 150;

/// Who says nothing for so long, to nobody, neither keeps its place against another server that
/// claims it, nor is taken to live because it takes a connection.
const VETO_MS: u64 = 300;

/// The task that asks one server; it ends when this is dropped.
pub(super) struct RoleMonitorTask {
    pace: Arc<RoleQuerySchedule>,
    task: JoinHandle<()>,
}

/// What the world asks of the task.
#[derive(Debug, Default)]
struct RoleQuerySchedule {
    interval_ms: AtomicU64,
    hunting: AtomicBool,
    /// The next question must go over a connection of its own.
    fresh: AtomicBool,
    now: Notify,
    /// So must one that is under way.
    anew: Notify,
    /// Another server would take its place but for what it says to the next question.
    contested: AtomicBool,
    /// Somebody saw something that does not fit what the server said last.
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

    /// The next question goes over a new connection, at once or in its turn.
    pub(super) fn verify(&self, at_once: bool) {
        self.pace.fresh.store(true, Relaxed);
        if at_once {
            self.pace.anew.notify_one();
        }
    }

    /// Another server claims its place: what it says when it is verified is wanted soon or never.
    pub(super) fn contest(&self) {
        self.pace.contested.store(true, Relaxed);
    }

    /// Something in the traffic does not fit what it said last: it is asked soon.
    pub(super) fn doubt(&self) {
        self.pace.doubted.notify_one();
    }

    /// Whether the cluster lacks a primary: then every moment counts.
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

/// Doubts come in crowds, and each is asked for after it came: but not one by one.
async fn doubted(pace: &RoleQuerySchedule) {
    let asked = Instant::now();
    pace.doubted.notified().await;
    let apart = Duration::from_millis(DOUBTED_INTERVAL_MS);
    tokio::time::sleep_until((asked + apart).into()).await;
}

/// Between two questions, and for one.
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
    /// The last question was answered, so that the next may go over the same connection.
    answered: bool,
    /// Answers in a row that told nothing.
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
                // What it said before holds: it works for clients, and is only slow for us.
                self.pause(false).await;
                continue;
            };
            let away = is_away(&outcome);
            self.answered = !away;
            self.refusals = match outcome.is_ok() || away {
                true => 0,
                false => self.refusals + 1,
            };
            let report = MonitorEvent::Said(self.address.clone(), outcome);
            if self.reports.send(report).await.is_err() {
                return;
            }
            self.pause(away).await;
        }
    }

    /// Nothing: it is busy. What broke may have been the old connection only, so that the server
    /// itself is asked before it is said to be away.
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

    /// An answer, and whether clients got some while it did not come.
    async fn ask_once(&mut self) -> (Outcome, bool) {
        let (server, timeout) = (Arc::clone(&self.server), self.timeout);
        let is_new = self.pace.fresh.load(Relaxed) || !self.watcher.is_connected();
        // Over a connection that worked until now it may be slow for a moment.
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
        // The world is gone only when the process ends.
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

    /// Asks over a new connection. One that was closed and not merely slow is told soon.
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
            // The world is gone only when the process ends.
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
