//! Controls upgrades: hands over to a new process, or takes over from an old one. The old one's
//! sessions count against the limits until they have ended.

mod clusters;
mod counters;
mod drain;
mod holdings;
mod incoming;
mod outgoing;

use std::collections::BTreeSet;
use std::time::Duration;

pub(super) use drain::UpgradeRequest;
use drain::{DelayedUpgrade, Predecessor};
use evenkeel_engine::clock::now_ms;
use holdings::Shares;
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

/// Interval between checks whether the last accept has ended: before the new process may begin, and
/// before the upgrade is reported.
const POLL_INTERVAL_MS: u64 = 1;

/// Interval between reports to the new process, and between checks whether this process may exit.
const REPORT_INTERVAL_MS: u64 = 50;

/// Interval between reports that include counters. Permits are reported more often.
const COUNTS_INTERVAL_MS: u64 = 1_000;

/// Time that the workers have to end their accepts before an upgrade is reported.
const ANSWER_LIMIT_MS: u64 = 1_000;

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
    admin_sockets: Option<AdminSockets>,
    delayed: Option<DelayedUpgrade>,
    pending: Option<PendingUpgrade>,
    successor: Option<ActiveSuccessor>,
    predecessor: Option<Predecessor>,
    /// Permits of each server, by id, that suffice for sessions of pooled services: half of this
    /// process's share.
    shares: Shares,
}

impl Default for Upgrades {
    fn default() -> Self {
        Self {
            from_successor: mpsc::unbounded_channel(),
            from_predecessor: mpsc::unbounded_channel(),
            admin_sockets: None,
            delayed: None,
            pending: None,
            successor: None,
            predecessor: None,
            shares: Shares::new(),
        }
    }
}

/// A takeover that may still fail.
struct PendingUpgrade {
    successor: Successor,
    answer: oneshot::Sender<Reply>,
    /// True if the new process waits for the state.
    is_state_due: bool,
    /// Services near their limit. They accept no clients until the new process does, or has failed.
    paused: Vec<String>,
    /// Ids of servers of which this process keeps half of the free permits. Of the others it keeps
    /// none.
    halved: BTreeSet<u64>,
    /// True if this process received a stop signal. The upgrade ends first.
    is_aborted: bool,
}

/// The process that serves instead of this one.
struct ActiveSuccessor {
    successor: Successor,
    reported: DrainReport,
    next_report_ms: u64,
    next_counts_ms: u64,
    /// True if a stop signal has arrived since the takeover. A service manager sends it to all
    /// processes of the service, and this one is stopping anyway.
    is_stopping: bool,
    /// The command that waits until this process accepts no client. `None`: answered.
    unanswered: Option<Unanswered>,
}

/// An upgrade that has succeeded, and whose command still waits for the reply.
struct Unanswered {
    new_pid: u32,
    /// Time by which the reply is sent even if a worker still accepts.
    by_ms: u64,
    answer: oneshot::Sender<Reply>,
}

impl Upgrades {
    /// Aborts an upgrade in progress, because this process received a stop signal. Returns whether
    /// there is one. Its outcome, and with it the stop, follows within milliseconds.
    pub(super) fn abort(&mut self) -> bool {
        let Some(pending) = &mut self.pending else {
            return false;
        };
        if !pending.is_aborted {
            tracing::info!("stop signal received: upgrade aborted");
            pending.is_aborted = true;
            pending.successor.abort();
        }
        true
    }

    /// Forwards the stop signal to the new process, which already serves.
    fn stop_successor(&mut self, pid: u32) {
        if let Some(successor) = &mut self.successor {
            successor.is_stopping = true;
        }
        tracing::info!(
            "stop signal received: forwarding it to process {pid}, which already serves"
        );
        if let Err(error) = Process::find(pid).signal(Signal::TERM) {
            tracing::error!("cannot stop process {pid}: {error}");
        }
    }

    /// Sends a command to the new process, if one has not taken over yet.
    pub(super) fn send_to_candidate(&self, command: SuccessorCommand) {
        if let Some(pending) = &self.pending {
            pending.successor.send(command);
        }
    }

    /// Returns the time at which the next task is due.
    pub(super) fn due_ms(&self) -> Option<u64> {
        let pending = self.pending.as_ref();
        let successor = self.successor.as_ref();
        let waits = pending.is_some_and(|pending| pending.is_state_due)
            || successor.is_some_and(|successor| successor.unanswered.is_some());
        let poll_ms = waits.then(|| now_ms() + POLL_INTERVAL_MS);
        let report_ms = successor.map(|successor| successor.next_report_ms);
        let times = poll_ms.into_iter().chain(report_ms);
        times.chain(self.drain_poll_due_ms()).min()
    }

    /// Returns whether an upgrade may still fail.
    pub(super) fn is_upgrading(&self) -> bool {
        self.pending.is_some()
    }

    /// Returns whether a stop signal can be ignored: it is the first one since another process took
    /// over.
    pub(super) fn is_stopping_already(&mut self) -> bool {
        let successor = self.successor.as_mut();
        successor.is_some_and(|successor| !std::mem::replace(&mut successor.is_stopping, true))
    }

    /// Returns whether another process writes as well.
    fn are_writes_shared(&self) -> bool {
        self.pending.is_some() || self.successor.is_some() || self.predecessor.is_some()
    }

    /// Returns the command that is to be answered now: this process accepts no client any more, or
    /// the time for that is over.
    fn take_due_answer(&mut self, now_ms: u64, is_accepting: bool) -> Option<Unanswered> {
        let unanswered = &mut self.successor.as_mut()?.unanswered;
        unanswered.take_if(|one| !is_accepting || now_ms >= one.by_ms)
    }

    /// Returns whether the report that is due has the counters. `None`: no report is due.
    pub(super) fn due_report(&self, now_ms: u64) -> Option<bool> {
        let successor = self.successor.as_ref()?;
        let is_due = now_ms >= successor.next_report_ms && successor.successor.is_idle();
        is_due.then_some(now_ms >= successor.next_counts_ms)
    }

    /// Sets the times of the next reports after one was sent.
    pub(super) fn set_next_report(&mut self, now_ms: u64, with_counts: bool) {
        if let Some(successor) = &mut self.successor {
            successor.next_report_ms = now_ms + REPORT_INTERVAL_MS;
            if with_counts {
                successor.next_counts_ms = now_ms + COUNTS_INTERVAL_MS;
            }
        }
    }

    /// Sends what has changed since the last report to the new process.
    pub(super) fn send_report(&mut self, report: &DrainReport) {
        if let Some(successor) = &mut self.successor {
            let changes = Box::new(report.changes_since(&successor.reported));
            successor.reported.merge(changes.as_ref().clone());
            successor.successor.send(SuccessorCommand::Report(changes));
        }
    }
}

impl ControlPlane {
    /// Starts an upgrade, or rejects it. The reply is sent when the outcome is known.
    pub(super) fn upgrade(&mut self, request: UpgradeRequest) {
        if let Some(why) = self.upgrade_obstacle() {
            request.fail(why);
        } else if self.upgrades.predecessor.is_some() {
            self.upgrade_after_drain(request);
        } else {
            self.start_upgrade(request);
        }
    }

    fn start_upgrade(&mut self, request: UpgradeRequest) {
        let limit_ms = request.limit_ms.unwrap_or(LIMIT_MS_DEFAULT);
        let limit = Duration::from_millis(limit_ms.min(LIMIT_MS_MAX));
        let events = self.upgrades.from_successor.0.clone();
        let UpgradeRequest { binary, answer, .. } = request;
        match Successor::start(binary, (limit, self.generation), events) {
            Err(error) => {
                let _ = answer.send(Reply::failed(format!("cannot start upgrade: {error}")));
            }
            Ok(successor) => {
                self.upgrades.pending = Some(PendingUpgrade {
                    successor,
                    answer,
                    is_state_due: false,
                    paused: Vec::new(),
                    halved: BTreeSet::new(),
                    is_aborted: false,
                });
                self.share_writes();
            }
        }
    }

    /// Sets whether another process writes too. With `consistency = "global"`, sessions must see
    /// those writes.
    fn share_writes(&self) {
        let are_shared = self.upgrades.are_writes_shared();
        let databases = self
            .services
            .iter()
            .filter_map(|one| one.service.database());
        for database in databases {
            let writes = database.server_info.writes();
            writes.set_shared(are_shared, evenkeel_engine::clock::now_us());
        }
    }

    fn upgrade_obstacle(&self) -> Option<String> {
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
        let busy = self.upgrades.pending.is_some() || self.upgrades.delayed.is_some();
        busy.then(|| "another upgrade is in progress".to_owned())
    }

    pub(super) fn handle_successor(&mut self, event: SuccessorEvent) {
        let pending = self.upgrades.pending.as_ref();
        let is_aborted = pending.is_some_and(|pending| pending.is_aborted);
        match event {
            SuccessorEvent::SocketsRequested | SuccessorEvent::Ready if is_aborted => {
                self.upgrades.send_to_candidate(SuccessorCommand::Abort);
            }
            SuccessorEvent::SocketsRequested => {
                self.lend_sockets(true);
                let sockets = self.sockets_to_pass();
                self.upgrades
                    .send_to_candidate(SuccessorCommand::Sockets(sockets));
            }
            SuccessorEvent::Ready => {
                self.lend_permits();
                self.send_state_when_due();
            }
            SuccessorEvent::Serving { pid, taken } => {
                self.retire(pid, &taken);
                if is_aborted {
                    self.upgrades.stop_successor(pid);
                }
            }
            SuccessorEvent::EndDraining => self.end_draining(),
            SuccessorEvent::Failed(_) if is_aborted => self.stop_without_successor(),
            SuccessorEvent::Failed(why) => self.fail_upgrade(&why),
            SuccessorEvent::Lost { was_stopped } => self.resume_serving(was_stopped),
        }
        self.share_writes();
    }

    /// Serves again after the new process has exited, unless a stop was intended.
    fn resume_serving(&mut self, was_stopped: bool) {
        let is_intended = was_stopped || self.is_over();
        let successor = &mut self.upgrades.successor;
        let Some(lost) = successor.take_if(|successor| !successor.is_stopping && !is_intended)
        else {
            return;
        };
        self.stop_by_ms = None;
        self.acme.adopt(&self.plan);
        for service in &self.services {
            self.adopt_protocol_plan(service);
        }
        self.holdings().reclaim_permits();
        self.lend_sockets(false);
        let all: Vec<_> = self.services.iter().map(|s| s.plan.name.clone()).collect();
        self.resume_accepting(&all);
        if let Some(admin_sockets) = &mut self.upgrades.admin_sockets {
            admin_sockets.reopen();
        }
        notify::serve_again();
        let pid = std::process::id();
        let what = format!("process {pid} resumed serving");
        let event = NewEvent::new(EventKind::Process, Severity::Error, what);
        self.record_event(event.cause("the new process exited"));
        if let Some(unanswered) = lost.unanswered {
            let why = format!("upgrade failed, process {pid} serves: the new process exited");
            let _ = unanswered.answer.send(Reply::failed(why));
        }
    }

    fn stop_without_successor(&mut self) {
        let Some(pending) = self.upgrades.pending.take() else {
            return;
        };
        self.holdings().reclaim_permits();
        self.lend_sockets(false);
        notify::stopping(self.plan.engine.shutdown_limit_ms);
        self.stop();
        let why = "upgrade aborted: the process received a stop signal";
        let _ = pending.answer.send(Reply::failed(why));
    }

    /// Continues to serve with all limits, because the new process has failed.
    fn fail_upgrade(&mut self, why: &str) {
        let Some(pending) = self.upgrades.pending.take() else {
            return;
        };
        self.holdings().reclaim_permits();
        self.lend_sockets(false);
        self.resume_accepting(&pending.paused);
        let pid = std::process::id();
        let what = format!("upgrade failed, process {pid} continues to serve");
        let event = NewEvent::new(EventKind::Process, Severity::Error, what.clone());
        self.record_event(event.cause(why));
        let reply = Reply::failed(format!("{what}: {why}"));
        let _ = pending.answer.send(reply);
    }

    /// Begins to drain, because the new process serves.
    fn retire(&mut self, new_pid: u32, taken: &[Purpose]) {
        let Some(pending) = self.upgrades.pending.take() else {
            return;
        };
        notify::main_pid(new_pid);
        let limit_ms = self.plan.engine.shutdown_limit_ms;
        let now_ms = now_ms();
        self.stop_by_ms = Some(now_ms + limit_ms);
        self.release_sockets(taken);
        self.acme.stop();
        self.services.iter().for_each(snapshot::shrink_pools);
        if let Some(admin_sockets) = &mut self.upgrades.admin_sockets {
            admin_sockets.close(taken);
        }
        self.upgrades.successor = Some(ActiveSuccessor {
            successor: pending.successor,
            reported: DrainReport::default(),
            next_report_ms: now_ms,
            next_counts_ms: now_ms,
            is_stopping: false,
            unanswered: Some(Unanswered {
                new_pid,
                by_ms: now_ms + ANSWER_LIMIT_MS,
                answer: pending.answer,
            }),
        });
        self.answer_when_retired(now_ms);
    }

    /// Reports the success of the upgrade once this process accepts no client, so that each client
    /// that comes after the reply is one of the new process.
    fn answer_when_retired(&mut self, now_ms: u64) {
        let is_accepting = self.data_plane.is_accepting_any();
        if let Some(due) = self.upgrades.take_due_answer(now_ms, is_accepting) {
            self.report_upgrade(due);
        }
    }

    fn report_upgrade(
        &mut self,
        Unanswered {
            new_pid, answer, ..
        }: Unanswered,
    ) {
        let (pid, sessions) = (std::process::id(), self.sessions());
        let limit_s = self.plan.engine.shutdown_limit_ms as f64 / 1e3;
        let message = format!(
            "pid {new_pid} serves; pid {pid} drains {sessions} sessions within {limit_s} s"
        );
        let what = format!("upgrade complete: {message}");
        self.record_event(NewEvent::new(EventKind::Process, Severity::Info, what));
        // A client that no longer waits is not an error.
        let _ = answer.send(Reply::done(message));
    }

    pub(super) fn run_upgrade_tasks(&mut self, now_ms: u64) {
        self.upgrade_when_drained(now_ms);
        self.send_state_when_due();
        self.answer_when_retired(now_ms);
        self.report_to_successor(now_ms);
    }
}
