//! Handles a server's failure: retries the request if `policy::route::retry` decides so, and
//! otherwise reports the error.

use evenkeel_policy::connection_pool::Condition;
use evenkeel_policy::route::retry::{
    Attempt, FailedServer, FailureKind, Progress, RequestEffect, Resend, Retry, RetryTarget,
    SetupFailure, after_failure, after_setup_failure,
};
use evenkeel_wire::postgres::TransactionStatus;
use evenkeel_wire::postgres::backend::{ErrorReport, SqlState};
use evenkeel_wire::postgres::build;
use evenkeel_wire::postgres::client_scanner::ClientScanner;
use evenkeel_wire::postgres::server_scanner::Event;

use super::active_request::Access;
use super::error_reply::ErrorReply;
use super::scan_result::ScanResult;
use super::server::ServerConnection;
use super::{ActiveRequest, ExitReason, ServerEnded, Session, Stage, TEXT_LENGTH_MAX};
use crate::error_catalog;
use crate::service::activity::SessionActivity;
use crate::session::acquirer::{AcquireError, AcquireOutcome};
use crate::session::handle::SessionEvent;

/// Returns how the server's error affects a retry (appendix A of the manual), if the server ends
/// the connection with it.
pub(super) fn failure_of(sqlstate: SqlState) -> FailureKind {
    match &sqlstate.0 {
        b"25006" => FailureKind::ReadOnly,
        // Unsupported by standbys: a role's default isolation level, or unlogged tables. On a
        // primary the client's request is the cause.
        b"40001" | b"40P01" | b"0A000" => FailureKind::RecoveryConflict,
        // Undefined table, column, function, object or schema; a missing privilege; a text that is
        // no value of an enum.
        b"42P01" | b"42703" | b"42883" | b"42704" | b"3F000" | b"42501" | b"22P02" => {
            FailureKind::NotThereYet
        }
        // Idle timeout: it expired before the server read the request.
        b"57P05" => FailureKind::NotRead,
        b"57P01" | b"57P02" | b"57P03" | b"53300" => FailureKind::Terminated,
        _ => FailureKind::Error,
    }
}

/// Like [`failure_of`], for an error after which the connection continues. It may then stem from
/// another server that a statement queried, or from RAISE in a function: parts of the request may
/// have been executed.
pub(super) fn failure_of_error(sqlstate: SqlState) -> FailureKind {
    match failure_of(sqlstate) {
        FailureKind::Terminated | FailureKind::NotRead => FailureKind::Broken,
        failure => failure,
    }
}

/// Returns whether the notice warns of an immediate shutdown or the crash of a server process: no
/// more replies follow.
pub(super) fn warns_of_end(event: &Event<'_>) -> bool {
    let is_last = |report: &ErrorReport<'_>| matches!(&report.sqlstate().0, b"57P01" | b"57P02");
    matches!(event, Event::Notice(report) if is_last(report))
}

impl Session<'_> {
    /// Returns whether and where the failed request is retried without the client's knowledge.
    pub(super) fn retry_after(&self, failure: FailureKind) -> Retry {
        if self.core.acquirer.at.is_none() {
            return Retry::No;
        }
        let kept = self.active.kept.as_ref();
        after_failure(
            failure,
            &Attempt {
                is_held: !self.state.pins.is_empty() || self.core.keeps_connection(),
                is_kept: kept.is_some_and(|kept| !kept.is_empty()),
                progress: self.active.progress,
                ..self.attempt_without_connection()
            },
        )
    }

    /// Returns the facts about a request of which nothing was sent, and whose connection has no
    /// state of the session yet.
    fn attempt_without_connection(&self) -> Attempt {
        let active = &self.active;
        let primary = match self.is_in_recovery() {
            true => FailedServer::ReadOnlyPrimary,
            false => FailedServer::Primary,
        };
        Attempt {
            effect: match active.access {
                Access::Reads => RequestEffect::Reads,
                Access::Unclassified | Access::Writes => RequestEffect::Writes,
            },
            atomicity: active.atomicity,
            has_done: active.has_done,
            is_held: false,
            is_kept: true,
            progress: Progress::Unsent,
            ..active.retries.attempt(&self.core.acquirer, primary)
        }
    }

    /// Acquires another connection for the request, of which nothing was sent. Returns `None` if it
    /// must not be retried.
    pub(super) fn retry_after_setup(
        &mut self,
        failure: SetupFailure,
    ) -> Option<Result<(), ExitReason>> {
        let retry = after_setup_failure(failure, &self.attempt_without_connection());
        let Retry::On(resend) = retry else {
            return None;
        };
        self.active.retries.note(resend, &self.core.acquirer);
        self.core.acquirer.at = None;
        Some(match resend.target.waits_for_primary() {
            true => {
                let outcome = self.core.acquirer.wait_for_another_primary();
                self.follow(outcome)
            }
            false => self.follow(AcquireOutcome::Reroute),
        })
    }

    /// Returns whether the server last reported that it is a standby (PostgreSQL 14 and later).
    pub(super) fn is_in_recovery(&self) -> bool {
        let reported = self.core.server.iter().flat_map(|server| &server.reported);
        let mut reports = reported.filter(|(name, _)| &**name == b"in_hot_standby");
        reports.any(|(_, value)| &**value == b"on")
    }

    /// Undoes the assumed effects of the request, and retries it.
    pub(super) fn begin_retry(
        &mut self,
        failure: FailureKind,
        resend: Resend,
        scan: &ScanResult,
    ) -> Result<(), ExitReason> {
        self.core.acquirer.note_retry(failure);
        self.active.retries.note(resend, &self.core.acquirer);
        self.state.pins = evenkeel_policy::pins::Pins::NONE;
        self.effects.settled();
        self.statements.undone();
        self.unnamed.undo();
        self.state.connection_lost();
        self.stage = Stage::Rescue(resend.target);
        self.end_rescue(resend.target, scan)
    }

    /// Discards the rest of the failed request's replies, then retries it.
    pub(super) fn end_rescue(
        &mut self,
        target: RetryTarget,
        scan: &ScanResult,
    ) -> Result<(), ExitReason> {
        // The client waits for a reply, and sends the Sync that the server waits for only after it.
        let awaits_sync = |server: &ServerConnection| server.conversation.awaits_sync();
        if scan.broken.is_some() || self.core.server.as_deref().is_some_and(awaits_sync) {
            return self.run_again(target, Condition::Unclean);
        }
        if scan.is_ready {
            // Statements completed before the failure may be committed, and their effects were not
            // recorded.
            let condition = match self.active.has_done {
                true => Condition::Unclean,
                false => Condition::Clean,
            };
            return self.run_again(target, condition);
        }
        Ok(())
    }

    fn run_again(&mut self, target: RetryTarget, condition: Condition) -> Result<(), ExitReason> {
        self.core
            .release_failed(ServerConnection::is_idle, condition);
        let kept = self.active.kept.take().unwrap_or_default();
        let behind = std::mem::replace(&mut self.pending_input, kept);
        self.pending_input.extend_from_slice(&behind);
        let retries = std::mem::take(&mut self.active.retries);
        self.active = ActiveRequest::new();
        self.active.retries = retries;
        // The kept bytes begin with a message, even if part of its last one had been sent.
        self.scanner = ClientScanner::new(TEXT_LENGTH_MAX);
        self.stage = Stage::Ready;
        self.forget_connection();
        if target.waits_for_primary() {
            let got = self.core.acquirer.wait_for_another_primary();
            return self.follow(got);
        }
        // The next connection may be to the same server: a failure is detected then.
        self.go_on()
    }

    /// Handles a server connection that failed or is out of sync.
    pub(super) fn server_lost(&mut self, why: &str) -> Result<(), ExitReason> {
        if self.is_asking_only() {
            // The client already has its reply.
            return self.release_server(Condition::Unclean);
        }
        let Some(server) = self.core.take_lost_server(why) else {
            return Ok(());
        };
        let is_transaction = server.conversation.status() != TransactionStatus::Idle;
        let is_in_message = server.is_in_message();
        let was_preparing = self.is_preparing();
        let stage = std::mem::replace(&mut self.stage, Stage::Ready);
        self.core.acquirer.release(server, Condition::Unclean);
        if was_preparing {
            return self.retry_or_deny(SetupFailure::Lost, &AcquireError::NO_PRIMARY);
        }
        if let Stage::Rescue(target) = stage {
            return self.run_again(target, Condition::Unclean);
        }
        if is_in_message {
            return Err(ExitReason::ServerBroke(why.to_owned()));
        }
        if let Retry::On(resend) = self.retry_after(FailureKind::Broken) {
            let scan = ScanResult {
                broken: Some(String::new()),
                ..ScanResult::default()
            };
            return self.begin_retry(FailureKind::Broken, resend, &scan);
        }
        self.report_loss(is_transaction, why)
    }

    pub(super) fn report_loss(
        &mut self,
        is_transaction: bool,
        why: &str,
    ) -> Result<(), ExitReason> {
        if self.active.may_write() && self.core.acquirer.is_at_primary() {
            // The write may have been executed: later reads must see it then.
            self.wrote();
        }
        let server = self
            .core
            .acquirer
            .at
            .take()
            .map(|at| at.server.name.to_string());
        let server = server.unwrap_or_default();
        let is_bound = !self.state.pins.is_empty() || self.core.keeps_connection();
        let detail = format!("server {server}: {why}");
        if self.active.fatal_was_sent {
            self.core
                .stats()
                .transactions_lost
                .add(u64::from(is_transaction));
            return Err(ExitReason::Other(ServerEnded(detail)));
        }
        // The rest of a batch that has begun after it would be taken for a batch of its own.
        let is_all = self.active.is_sent && !self.pending.has_begun();
        let is_single = is_all && self.pending.under_way() == 1;
        // The transaction may be committed, and must not be reported as one to retry.
        let is_transaction = is_transaction && !self.effects.may_end_transaction();
        if is_transaction || is_bound || !is_single {
            self.core.stats().transactions_lost.add(1);
            let entry = match is_transaction {
                true => &error_catalog::TERMINATED_IN_TRANSACTION,
                false => &error_catalog::PINNED_CONNECTION_LOST,
            };
            let error_reply = ErrorReply::new(entry).detail(detail);
            return Err(ExitReason::Fatal(error_reply));
        }
        // A single query or batch: the client continues after an error.
        self.state.connection_lost();
        self.active = ActiveRequest::new();
        self.forget_connection();
        self.core.acquirer.release_failover_slot();
        self.core.set_activity(SessionActivity::Idle);
        self.statements.undo_unanswered();
        self.unnamed.undo();
        self.effects.settled();
        let out = self.core.answers();
        let error = evenkeel_policy::failover_queue::PrimaryError::OutcomeUnknown;
        ErrorReply::from_primary_error(error)
            .detail(detail)
            .write_error(out);
        build::ready_for_query(out, TransactionStatus::Idle);
        self.core.handle.notify(SessionEvent::Recheck);
        Ok(())
    }
}
