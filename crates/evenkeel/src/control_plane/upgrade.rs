//! Controls upgrades: hands over to a new process, or takes over from an old one. The old one's
//! sessions count against the limits until they have ended.

mod clusters;
mod counters;
mod drain;
mod incoming;
mod outgoing;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub(super) use drain::Wanted;
use drain::{Predecessor, Waiting};
use evenkeel_proxy::now_ms;
use rustix::process::Signal;
use tokio::sync::{mpsc, oneshot};

use super::ControlPlane;
use super::database::snapshot;
use super::timeline::NewEvent;
use crate::notify;
use crate::status::{EventKind, Reply, Severity};
use crate::upgrade::admin_sockets::AdminSockets;
use crate::upgrade::predecessor_link::PredecessorEvent;
use crate::upgrade::process::Process;
use crate::upgrade::state::{DrainReport, Purpose};
use crate::upgrade::successor::{Successor, SuccessorCommand, SuccessorEvent};
use crate::upgrade::{LIMIT_MS_DEFAULT, LIMIT_MS_MAX};

/// Interval between checks whether the last accept has ended, before the new process may begin.
const LOOK_INTERVAL_MS: u64 = 1;

/// Interval between reports to the new process, and between checks whether this process may exit.
const REPORT_INTERVAL_MS: u64 = 50;

/// Interval between reports that include counters. Permits are reported more often.
const COUNTS_INTERVAL_MS: u64 = 1_000;

/// Process id of a container's first process, whose exit ends all others.
const FIRST_PROCESS: u32 = 1;

/// State of upgrades in the control plane.
pub(super) struct Upgrades {
    pub(super) from_successor: (
        mpsc::UnboundedSender<SuccessorEvent>,
        mpsc::UnboundedReceiver<SuccessorEvent>,
    ),
    pub(super) from_predecessor: (
        mpsc::UnboundedSender<PredecessorEvent>,
        mpsc::UnboundedReceiver<PredecessorEvent>,
    ),
    doors: Option<AdminSockets>,
    waiting: Option<Waiting>,
    under_way: Option<PendingUpgrade>,
    successor: Option<ActiveSuccessor>,
    predecessor: Option<Predecessor>,
    /// Permits of each server, by id, that suffice for sessions of pooled services: half of this
    /// process's share.
    shares: BTreeMap<u64, u32>,
}

impl Default for Upgrades {
    fn default() -> Self {
        Self {
            from_successor: mpsc::unbounded_channel(),
            from_predecessor: mpsc::unbounded_channel(),
            doors: None,
            waiting: None,
            under_way: None,
            successor: None,
            predecessor: None,
            shares: BTreeMap::new(),
        }
    }
}

/// A takeover that may still fail.
struct PendingUpgrade {
    successor: Successor,
    answer: oneshot::Sender<Reply>,
    /// True if the new process waits for the state.
    is_wanted: bool,
    /// Services near their limit. They accept no clients until the new process does, or has failed.
    paused: Vec<String>,
    /// Ids of servers of which this process keeps half of the free permits. Of the others it keeps
    /// none.
    halved: BTreeSet<u64>,
    /// True if this process received a stop signal. The upgrade ends first.
    is_given_up: bool,
}

/// The process that serves instead of this one.
struct ActiveSuccessor {
    successor: Successor,
    told: DrainReport,
    next_report_ms: u64,
    next_counts_ms: u64,
    /// True if a stop signal has arrived since the takeover. A service manager sends it to all
    /// processes of the service, and this one is stopping anyway.
    told_to_stop: bool,
}

impl ControlPlane {
    /// Starts an upgrade, or rejects it. The reply is sent when the outcome is known.
    pub(super) fn upgrade(&mut self, wanted: Wanted) {
        if let Some(why) = self.no_upgrade_because() {
            wanted.fail(why);
        } else if self.upgrades.predecessor.is_some() {
            self.upgrade_after_drain(wanted);
        } else {
            self.start_upgrade(wanted);
        }
    }

    fn start_upgrade(&mut self, wanted: Wanted) {
        let limit_ms = wanted.limit_ms.unwrap_or(LIMIT_MS_DEFAULT);
        let limit = Duration::from_millis(limit_ms.min(LIMIT_MS_MAX));
        let said = self.upgrades.from_successor.0.clone();
        let Wanted { binary, answer, .. } = wanted;
        match Successor::start(binary, (limit, self.generation), said) {
            Err(error) => {
                let _ = answer.send(Reply::failed(format!("cannot start upgrade: {error}")));
            }
            Ok(successor) => {
                self.upgrades.under_way = Some(PendingUpgrade {
                    successor,
                    answer,
                    is_wanted: false,
                    paused: Vec::new(),
                    halved: BTreeSet::new(),
                    is_given_up: false,
                });
                self.share_writes();
            }
        }
    }

    /// Sets whether another process writes too. With `consistency = "global"`, sessions must see
    /// those writes.
    fn share_writes(&self) {
        let upgrades = &self.upgrades;
        let is_successor = upgrades.under_way.is_some() || upgrades.successor.is_some();
        let are_shared = is_successor || upgrades.predecessor.is_some();
        let databases = self
            .services
            .iter()
            .filter_map(|one| one.service.database.as_ref());
        for database in databases {
            let writes = database.knowledge.writes();
            writes.share(are_shared, evenkeel_proxy::now_us());
        }
    }

    fn no_upgrade_because(&self) -> Option<String> {
        if let Some(name) = self.paused_service() {
            // Clients would wait in the old process, which no command reaches after the upgrade.
            return Some(format!(
                "cannot upgrade while {name} is paused: run `evenkeel resume {name}` first"
            ));
        }
        if std::process::id() == FIRST_PROCESS {
            let why = "cannot upgrade as process 1 of a container: the new process would end \
                       together with it. Start the new version as a new container, or run \
                       evenkeel under an init (docker run --init)";
            return Some(why.to_owned());
        }
        if self.stop_by_ms.is_some() {
            return Some("cannot upgrade: the process is shutting down".to_owned());
        }
        let busy = self.upgrades.under_way.is_some() || self.upgrades.waiting.is_some();
        busy.then(|| "another upgrade is in progress".to_owned())
    }

    pub(super) fn hear_successor(&mut self, said: SuccessorEvent) {
        let under_way = self.upgrades.under_way.as_ref();
        let is_given_up = under_way.is_some_and(|under_way| under_way.is_given_up);
        match said {
            SuccessorEvent::Asks | SuccessorEvent::Ready if is_given_up => {
                self.tell_candidate(SuccessorCommand::GiveUp);
            }
            SuccessorEvent::Asks => {
                self.lend_sockets(true);
                let sockets = self.sockets_to_pass();
                self.tell_candidate(SuccessorCommand::Sockets(sockets));
            }
            SuccessorEvent::Ready => {
                self.lend_permits();
                self.send_state_when_due();
            }
            SuccessorEvent::Serving { pid, taken } => {
                self.retire(pid, &taken);
                if is_given_up {
                    self.stop_successor(pid);
                }
            }
            SuccessorEvent::EndDraining => self.end_draining(),
            SuccessorEvent::Failed(_) if is_given_up => self.stop_without_successor(),
            SuccessorEvent::Failed(why) => self.go_on(&why),
            SuccessorEvent::Lost { was_stopped } => self.take_back(was_stopped),
        }
        self.share_writes();
    }

    /// Serves again after the new process has exited, unless a stop was intended.
    fn take_back(&mut self, was_stopped: bool) {
        let is_meant = was_stopped || self.is_over();
        let successor = &mut self.upgrades.successor;
        if successor
            .take_if(|successor| !successor.told_to_stop && !is_meant)
            .is_none()
        {
            return;
        }
        self.stop_by_ms = None;
        for service in &self.services {
            self.adopt_database_plan(service);
        }
        self.take_places_back();
        self.lend_sockets(false);
        let all: Vec<_> = self.services.iter().map(|s| s.plan.name.clone()).collect();
        self.accept_again(&all);
        if let Some(doors) = &mut self.upgrades.doors {
            doors.reopen();
        }
        notify::serve_again();
        let pid = std::process::id();
        let what = format!("process {pid} resumed serving");
        let news = NewEvent::new(EventKind::Process, Severity::Error, what);
        self.tell(news.cause("the new process exited"));
    }

    /// Aborts an upgrade in progress, because this process received a stop signal. Returns whether
    /// there is one. Its outcome, and with it the stop, follows within milliseconds.
    pub(super) fn give_upgrade_up(&mut self) -> bool {
        let Some(under_way) = &mut self.upgrades.under_way else {
            return false;
        };
        if !under_way.is_given_up {
            tracing::info!("stop signal received: upgrade aborted");
            under_way.is_given_up = true;
            under_way.successor.give_up();
        }
        true
    }

    /// Forwards the stop signal to the new process, which already serves.
    fn stop_successor(&mut self, pid: u32) {
        if let Some(successor) = &mut self.upgrades.successor {
            successor.told_to_stop = true;
        }
        tracing::info!(
            "stop signal received: forwarding it to process {pid}, which already serves"
        );
        if let Err(error) = Process::find(pid).signal(Signal::TERM) {
            tracing::error!("cannot stop process {pid}: {error}");
        }
    }

    fn stop_without_successor(&mut self) {
        let Some(under_way) = self.upgrades.under_way.take() else {
            return;
        };
        self.take_places_back();
        self.lend_sockets(false);
        notify::stopping(self.plan.engine.shutdown_limit_ms);
        self.stop();
        let why = "upgrade aborted: the process received a stop signal";
        let _ = under_way.answer.send(Reply::failed(why));
    }

    fn tell_candidate(&self, order: SuccessorCommand) {
        if let Some(under_way) = &self.upgrades.under_way {
            under_way.successor.tell(order);
        }
    }

    /// Continues to serve with all limits, because the new process has failed.
    fn go_on(&mut self, why: &str) {
        let Some(under_way) = self.upgrades.under_way.take() else {
            return;
        };
        self.take_places_back();
        self.lend_sockets(false);
        self.accept_again(&under_way.paused);
        let pid = std::process::id();
        let what = format!("upgrade failed, process {pid} continues to serve");
        let news = NewEvent::new(EventKind::Process, Severity::Error, what.clone());
        self.tell(news.cause(why));
        let reply = Reply::failed(format!("{what}: {why}"));
        let _ = under_way.answer.send(reply);
    }

    /// Begins to drain, because the new process serves.
    fn retire(&mut self, new_pid: u32, taken: &[Purpose]) {
        let Some(under_way) = self.upgrades.under_way.take() else {
            return;
        };
        notify::main_pid(new_pid);
        let limit_ms = self.plan.engine.shutdown_limit_ms;
        let now_ms = now_ms();
        self.stop_by_ms = Some(now_ms + limit_ms);
        self.leave_sockets(taken);
        self.services.iter().for_each(snapshot::lend_sparingly);
        if let Some(doors) = &mut self.upgrades.doors {
            doors.close(taken);
        }
        self.upgrades.successor = Some(ActiveSuccessor {
            successor: under_way.successor,
            told: DrainReport::default(),
            next_report_ms: now_ms,
            next_counts_ms: now_ms,
            told_to_stop: false,
        });
        let (pid, sessions) = (std::process::id(), self.sessions());
        let limit_s = limit_ms as f64 / 1e3;
        let message = format!(
            "pid {new_pid} serves; pid {pid} drains {sessions} sessions within {limit_s} s"
        );
        let what = format!("upgrade complete: {message}");
        self.tell(NewEvent::new(EventKind::Process, Severity::Info, what));
        let _ = under_way.answer.send(Reply::done(message));
    }

    pub(super) fn upgrade_due_ms(&self) -> Option<u64> {
        let waits = self
            .upgrades
            .under_way
            .as_ref()
            .is_some_and(|u| u.is_wanted);
        let look_ms = waits.then(|| now_ms() + LOOK_INTERVAL_MS);
        let report_ms = self
            .upgrades
            .successor
            .as_ref()
            .map(|successor| successor.next_report_ms);
        let times = look_ms.into_iter().chain(report_ms);
        times.chain(self.drain_look_due_ms()).min()
    }

    pub(super) fn do_upgrade_work(&mut self, now_ms: u64) {
        self.upgrade_when_alone(now_ms);
        self.send_state_when_due();
        self.report_to_successor(now_ms);
    }

    pub(super) fn is_upgrading(&self) -> bool {
        self.upgrades.under_way.is_some()
    }

    /// Returns whether a stop signal can be ignored: it is the first one since another process took
    /// over.
    pub(super) fn is_stopping_already(&mut self) -> bool {
        let successor = self.upgrades.successor.as_mut();
        successor.is_some_and(|successor| !std::mem::replace(&mut successor.told_to_stop, true))
    }
}
