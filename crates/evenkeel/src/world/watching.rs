//! Asks one server for its role, over and over, as a task of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use evenkeel_proxy::Server;
use evenkeel_proxy::watch::{WatchError, Watcher};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use super::probing::{Report, target};
use crate::config::Address;

/// While a cluster has no primary: the next one must not wait for our next question.
const HUNTING_INTERVAL_MS: u64 = 25;

/// A server that answered a moment ago and does not now is asked anew at once, and then this often.
const AWAY_INTERVAL_MS: u64 = 100;

/// The task that asks one server; it ends when this is dropped.
pub(super) struct Watching {
    pace: Arc<Pace>,
    task: JoinHandle<()>,
}

/// What the world asks of the task.
#[derive(Debug, Default)]
struct Pace {
    interval_ms: AtomicU64,
    hunting: AtomicBool,
    /// The next question must go over a connection of its own.
    fresh: AtomicBool,
    now: Notify,
}

impl Watching {
    pub(super) fn start(
        address: Address,
        server: Arc<Server>,
        watcher: Watcher,
        times: Times,
        reports: mpsc::Sender<Report>,
    ) -> Self {
        let pace = Arc::new(Pace {
            interval_ms: AtomicU64::new(times.interval_ms),
            ..Pace::default()
        });
        let asking = Asking {
            address,
            server,
            watcher,
            timeout: Duration::from_millis(times.timeout_ms),
            pace: Arc::clone(&pace),
            reports,
            answered: false,
        };
        let task = tokio::spawn(asking.go_on());
        Self { pace, task }
    }

    /// The next question goes over a new connection, at once or in its turn.
    pub(super) fn verify(&self, at_once: bool) {
        self.pace.fresh.store(true, Relaxed);
        if at_once {
            self.pace.now.notify_one();
        }
    }

    /// Whether the cluster lacks a primary: then every moment counts.
    pub(super) fn hunt(&self, hunting: bool) {
        if self.pace.hunting.swap(hunting, Relaxed) != hunting && hunting {
            self.pace.now.notify_one();
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Between two questions, and for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) interval_ms: u64,
    pub(super) timeout_ms: u64,
}

struct Asking {
    address: Address,
    server: Arc<Server>,
    watcher: Watcher,
    timeout: Duration,
    pace: Arc<Pace>,
    reports: mpsc::Sender<Report>,
    /// The last question was answered, so that the next may go over the same connection.
    answered: bool,
}

impl Asking {
    async fn go_on(mut self) {
        loop {
            let outcome = self.ask().await;
            let away = matches!(outcome, Err(WatchError::Away(_)));
            // What broke may have been the old connection only: the server itself is asked first.
            let only_the_connection = away && std::mem::replace(&mut self.answered, !away);
            if only_the_connection {
                continue;
            }
            let report = Report::Said(self.address.clone(), outcome);
            if self.reports.send(report).await.is_err() {
                return;
            }
            self.pause(away).await;
        }
    }

    async fn ask(&mut self) -> Result<evenkeel_policy::cluster::Report, WatchError> {
        let fresh = self.pace.fresh.swap(false, Relaxed);
        let endpoint = self.server.endpoints().first().map(target);
        match endpoint {
            Some(target) => self.watcher.ask(&target, fresh, self.timeout).await,
            None => Err(WatchError::Away("its name is not resolved".to_owned())),
        }
    }

    async fn pause(&mut self, away: bool) {
        let mut interval_ms = self.pace.interval_ms.load(Relaxed);
        if self.pace.hunting.load(Relaxed) {
            interval_ms = interval_ms.min(HUNTING_INTERVAL_MS);
        }
        if away {
            interval_ms = interval_ms.max(AWAY_INTERVAL_MS);
        }
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(interval_ms)) => {}
            () = self.pace.now.notified() => {}
            () = self.watcher.closed() => {}
        }
    }
}
