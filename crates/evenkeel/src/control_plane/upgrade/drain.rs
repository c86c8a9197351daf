//! Handles the draining process on the side of the new one: rejects an upgrade while it runs, or
//! ends its drain first.

use std::path::PathBuf;
use std::time::Duration;

use evenkeel_engine::clock::now_ms;
use tokio::sync::oneshot;

use super::Upgrades;
use crate::control_plane::ControlPlane;
use crate::control_plane::clock::now_unix_ms;
use crate::status::{Reply, UpgradeStatus, age};
use crate::upgrade::predecessor_link::{PredecessorEvent, PredecessorLink};
use crate::upgrade::process::Process;
use crate::upgrade::state::DrainReport;

/// Time that the draining process has to exit after the request to end its drain.
const END_LIMIT_MS: u64 = 5_000;

/// Interval between checks whether it has exited.
const POLL_INTERVAL_MS: u64 = 10;

/// An upgrade requested over the control socket.
pub(in crate::control_plane) struct UpgradeRequest {
    /// Program of the new process. `None`: the program of this process.
    pub(in crate::control_plane) binary: Option<PathBuf>,
    /// Time limit from the start of the new process to its first client. `None`: the default.
    pub(in crate::control_plane) limit_ms: Option<u64>,
    /// True if the sessions of the draining process are terminated first.
    pub(in crate::control_plane) end_draining: bool,
    pub(in crate::control_plane) answer: oneshot::Sender<Reply>,
}

impl UpgradeRequest {
    pub(super) fn fail(self, why: String) {
        // A client that no longer waits is not an error.
        let _ = self.answer.send(Reply::failed(why));
    }
}

/// An upgrade that starts when the draining process has exited.
pub(super) struct DelayedUpgrade {
    request: UpgradeRequest,
    by_ms: u64,
}

/// The process whose sessions finish while this one serves.
pub(super) struct Predecessor {
    pub(super) pid: u32,
    pub(super) report: DrainReport,
    /// Connection to that process. `None` before this process serves, or if the connection failed.
    /// Then `report` counts until this process exits, or an upgrade detects the other one's exit.
    pub(super) link: Option<PredecessorLink>,
    process: Process,
}

impl Predecessor {
    pub(super) fn new(pid: u32, report: DrainReport) -> Predecessor {
        Predecessor {
            pid,
            report,
            link: None,
            process: Process::find(pid),
        }
    }

    fn has_exited(&self) -> bool {
        self.process.ends_within(Duration::ZERO)
    }

    /// Age of the oldest session, in milliseconds.
    fn oldest_session_ms(&self) -> Option<u64> {
        let oldest_unix_ms = self.report.oldest_unix_ms?;
        Some(now_unix_ms().saturating_sub(oldest_unix_ms))
    }

    fn draining_error(&self) -> String {
        let (pid, sessions) = (self.pid, self.report.sessions);
        let plural = if sessions == 1 { "" } else { "s" };
        let oldest = match self.oldest_session_ms() {
            Some(oldest_ms) if sessions > 0 => format!(", oldest {}", age(oldest_ms)),
            _ => String::new(),
        };
        format!(
            "cannot upgrade while process {pid} is draining ({sessions} session{plural}{oldest}): \
             wait until it exits, or run `evenkeel upgrade --end-draining` to terminate its sessions"
        )
    }

    fn end(&self) -> Result<(), String> {
        let requested = match &self.link {
            Some(link) => link.end_draining().map_err(|error| error.to_string()),
            None => Err("no connection".to_owned()),
        };
        let pid = self.pid;
        requested.map_err(|error| {
            format!(
                "cannot upgrade: cannot request the end of draining process {pid}: {error}: \
                 terminate it with `kill -KILL {pid}`, then upgrade"
            )
        })
    }

    fn timeout_error(&self) -> String {
        let pid = self.pid;
        format!(
            "cannot upgrade: draining process {pid} did not exit within {END_LIMIT_MS} ms: resume \
             it with `kill -CONT {pid}` if it is stopped, or terminate it with `kill -KILL {pid}`, \
             then upgrade"
        )
    }
}

impl Upgrades {
    /// Returns the time of the next check whether the draining process has exited.
    pub(super) fn drain_poll_due_ms(&self) -> Option<u64> {
        let delayed = self.delayed.as_ref();
        delayed.map(|delayed| delayed.by_ms.min(now_ms() + POLL_INTERVAL_MS))
    }

    /// Reports a stop signal to the draining process, which must not serve in place of this one.
    pub(in crate::control_plane) fn notify_predecessor(&self) {
        let draining = self.predecessor.as_ref();
        if let Some(link) = draining.and_then(|draining| draining.link.as_ref()) {
            link.send_stopping();
        }
    }

    /// Returns the state of the draining process.
    pub(in crate::control_plane) fn status(&self) -> Vec<UpgradeStatus> {
        let draining = self.predecessor.iter();
        draining
            .map(|draining| UpgradeStatus {
                draining_pid: draining.pid,
                sessions_left: draining.report.sessions,
                oldest_session_ms: draining.oldest_session_ms(),
                left_ms: draining.report.left_ms,
            })
            .collect()
    }
}

impl ControlPlane {
    pub(super) fn upgrade_after_drain(&mut self, request: UpgradeRequest) {
        let Some(draining) = &self.upgrades.predecessor else {
            return;
        };
        // The last report of a process that has exited may still be on its way.
        if !draining.has_exited() {
            let requested = match request.end_draining {
                true => draining.end(),
                false => Err(draining.draining_error()),
            };
            if let Err(why) = requested {
                return request.fail(why);
            }
            tracing::info!("process {} is to end its drain now", draining.pid);
        }
        self.upgrades.delayed = Some(DelayedUpgrade {
            request,
            by_ms: now_ms() + END_LIMIT_MS,
        });
    }

    /// Starts the waiting upgrade once no process is draining, or rejects it at its limit.
    pub(super) fn upgrade_when_drained(&mut self, now_ms: u64) {
        let Some(delayed) = self.upgrades.delayed.take() else {
            return;
        };
        let is_late = now_ms >= delayed.by_ms;
        let draining = self.upgrades.predecessor.as_ref();
        // Without a connection no message reports that the process has exited.
        if draining.is_some_and(|one| (is_late || one.link.is_none()) && one.has_exited()) {
            self.handle_predecessor(PredecessorEvent::Gone);
        }
        match &self.upgrades.predecessor {
            Some(draining) if self.stop_by_ms.is_none() => match is_late {
                true => delayed.request.fail(draining.timeout_error()),
                false => self.upgrades.delayed = Some(delayed),
            },
            _ => self.upgrade(delayed.request),
        }
    }

    /// Ends the drain of this process at the request of the new one.
    pub(super) fn end_draining(&mut self) {
        if self.upgrades.successor.is_some() {
            tracing::info!("the new process ends the drain of this one");
            self.stop_by_ms = Some(now_ms());
        }
    }
}
