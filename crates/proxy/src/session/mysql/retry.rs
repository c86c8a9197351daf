//! Handles the failure of a server: retries the command on another server if the client has
//! received no part of a reply, and otherwise reports the loss.

use evenkeel_engine::clock;
use evenkeel_policy::connection_pool::Condition;
use evenkeel_policy::failover_queue::PrimaryError;
use evenkeel_policy::pins::{Pin, Pins, UnpinEvent};
use evenkeel_policy::route::retry::{Attempt, FailureKind, may_run_again};
use evenkeel_policy::route::{RoutedStatement, StatementClass};
use evenkeel_wire::mysql::backend::ErrorReport;
use evenkeel_wire::mysql::flags::Status;

use super::active_request::CommandKind;
use super::error_reply::ErrorReply;
use super::from_server::ScanResult;
use super::query_text::within;
use super::server::ServerConnection;
use super::{AfterDiscard, ExitReason, Session, Stage};
use crate::error_catalog;
use crate::service::activity::SessionActivity;
use crate::session_state::mysql::{Effect, EffectKind, TextAnalysis};

/// Maximum number of retries; a command that fails repeatedly has a cause of its own.
const RETRIES_MAX: u32 = 3;

/// Returns whether and how an error affects retries ("Server Error Message Reference").
pub(super) fn failure_of(report: &ErrorReport<'_>) -> FailureKind {
    if report.is_read_only() {
        return FailureKind::ReadOnly;
    }
    if report.is_without_cluster() {
        return FailureKind::TurnedAway;
    }
    if report.is_unread() {
        return FailureKind::NotRead;
    }
    match report.code {
        // ER_CON_COUNT_ERROR
        1040 => FailureKind::TurnedAway,
        // ER_SERVER_SHUTDOWN and ER_CONNECTION_KILLED may interrupt a statement, and not every
        // engine rolls back its changes; ER_NORMAL_SHUTDOWN.
        1053 | 1077 | 1927 => FailureKind::Broken,
        _ => FailureKind::Error,
    }
}

impl Session<'_> {
    /// Returns whether a failed command is retried without notifying the client.
    pub(super) fn may_retry(&self, failure: FailureKind) -> bool {
        let Some(at) = &self.acquirer.at else {
            return false;
        };
        // Preparing a statement executes nothing.
        let is_read = self.active.is_read || matches!(self.active.what, CommandKind::Prepare(_));
        let attempt = Attempt {
            on_replica: at.is_replica,
            is_read,
            is_held: self.is_bound(),
            reached_server: self.active.reached_server,
            reached_client: self.active.reached_client,
            is_kept: self.active.is_kept,
        };
        // A rejected write was not executed, unless a part of it could have been committed before.
        let may_be_partial = failure == FailureKind::TurnedAway || !at.is_replica;
        let may_have_run = failure != FailureKind::NotRead && may_be_partial;
        let is_doubtful = may_have_run && !is_read && !self.active.is_atomic;
        let is_new = self.active.retries < RETRIES_MAX;
        is_new && !is_doubtful && may_run_again(failure, &attempt)
    }

    /// Returns whether the session was pinned to its connection before the current command.
    fn is_bound(&self) -> bool {
        self.keeps_connection() || !self.active.pins_before.is_empty()
    }

    pub(super) fn begin_retry(
        &mut self,
        failure: FailureKind,
        scan: ScanResult,
    ) -> Result<(), ExitReason> {
        self.stats().rescued.add(1);
        if let Some(at) = &self.acquirer.at
            && failure != FailureKind::NotRead
        {
            // The lag of a replica is already known.
            if failure != FailureKind::NotFresh {
                self.service.server_info.request_role_check(at.server.id);
            }
            self.active.tried.push(at.server.id);
        }
        // A write that a primary turned away waits for another primary.
        let is_write = failure == FailureKind::TurnedAway && !self.active.is_read;
        self.active.primary_only |= is_write || failure == FailureKind::ReadOnly;
        self.active.is_late |= failure == FailureKind::NotFresh;
        self.active.retries += 1;
        self.forget_work();
        self.stage = Stage::DiscardReply(AfterDiscard::RunAgain);
        self.swallowed(scan)
    }

    /// Retries the read on the primary after the replica failed to catch up in time. Its further
    /// output is discarded with the connection.
    pub(super) fn waited_long_enough(&mut self) -> Result<(), ExitReason> {
        self.active.wait_timer = None;
        if !self.may_retry(FailureKind::NotFresh) {
            return Ok(());
        }
        if let Some(server) = self.server.take() {
            self.acquirer.release(server, Condition::Unclean);
        }
        self.begin_retry(FailureKind::NotFresh, ScanResult::default())
    }

    /// Discards the effects that the command would have had on the session state.
    pub(super) fn forget_work(&mut self) {
        self.state.connection_lost();
        self.is_doubtful = false;
        self.pins_changed();
    }

    /// Handles the rejection of one of Evenkeel's own commands. The client's command is not
    /// executed; if it was already sent, its reply is discarded.
    pub(super) fn handle_own_rejection(
        &mut self,
        error_reply: ErrorReply,
        scan: ScanResult,
    ) -> Result<(), ExitReason> {
        if self.active.reached_server && !self.rest.is_over() {
            return self.refused_in_part(error_reply);
        }
        let may_move = self.active.is_kept && !self.was_bound();
        let is_new = self.active.retries < RETRIES_MAX && may_move;
        let is_over = scan.broken.is_some();
        // The primary may have data that the replica does not have yet, or never will.
        let leaves = is_new && self.acquirer.is_at_replica();
        let may_do_otherwise = leaves || self.active.missing.is_some() && self.can_be_placed();
        let then = match (may_do_otherwise || is_over) && is_new {
            true => {
                self.active.retries += 1;
                if leaves && !is_over {
                    self.active.is_late = true;
                    self.unfit_since_ms = Some(clock::now_ms());
                }
                self.forget_work();
                AfterDiscard::RunAgain
            }
            false => AfterDiscard::SendError(error_reply),
        };
        self.stage = Stage::DiscardReply(then);
        self.swallowed(scan)
    }

    /// Handles the rejection of one of Evenkeel's own commands after a part of the client's command
    /// was sent. The server waits for the rest, which must not be executed.
    fn refused_in_part(&mut self, error_reply: ErrorReply) -> Result<(), ExitReason> {
        let is_bound = self.was_bound();
        self.forget_work();
        self.release_server(Condition::Unclean);
        if is_bound {
            return Err(ExitReason::Fatal(
                ErrorReply::new(&error_catalog::PINNED_CONNECTION_LOST).detail(error_reply.message),
            ));
        }
        self.refuse(error_reply)
    }

    /// Returns whether the rejected settings can be applied in another way.
    fn can_be_placed(&mut self) -> bool {
        self.server.is_some() && self.state.restore_failed(self.worker.interner())
    }

    /// Continues after output was discarded, and acts once all of it has been.
    pub(super) fn swallowed(&mut self, scan: ScanResult) -> Result<(), ExitReason> {
        if let Some(why) = scan.broken {
            return self.server_lost(&why);
        }
        let is_quiet = |server: &ServerConnection| server.conversation.is_quiet();
        if !self.server.as_deref().is_none_or(is_quiet) {
            return Ok(());
        }
        let stage = std::mem::replace(&mut self.stage, Stage::Command);
        let Stage::DiscardReply(then) = stage else {
            return Ok(());
        };
        self.swallowed_all(then)
    }

    fn swallowed_all(&mut self, then: AfterDiscard) -> Result<(), ExitReason> {
        match then {
            AfterDiscard::RunAgain => {
                let condition = match self.active.missing.is_some() {
                    true => Condition::Unclean,
                    false => Condition::Clean,
                };
                self.run_again(condition)
            }
            AfterDiscard::SendError(error_reply) => self.send_refusal(error_reply),
            AfterDiscard::Renewed { is_clean } => self.renewed(is_clean),
            AfterDiscard::Answered { is_question } => {
                self.handle_state_reply(is_question);
                Ok(())
            }
            AfterDiscard::TookBack { is_whole } => {
                self.took_back(is_whole);
                Ok(())
            }
            AfterDiscard::Unanswered => {
                self.show_activity();
                Ok(())
            }
        }
    }

    /// Completes COM_RESET_CONNECTION. State that the reset keeps is dropped with the connection.
    fn renewed(&mut self, is_clean: bool) -> Result<(), ExitReason> {
        let mut left = self.state.pins;
        left.release(UnpinEvent::ResetConnection);
        // The role remains active, and no other connection has it.
        let has_role = self.state.pins.has(Pin::Role);
        if has_role {
            left.add(Pin::Role);
        }
        if has_role && !(is_clean && self.server.is_some()) {
            return Err(ExitReason::Fatal(ErrorReply::new(
                &error_catalog::PINNED_CONNECTION_LOST,
            )));
        }
        self.count_writes(Status::default());
        self.begin_anew();
        if is_clean && (self.keeps_connection() || has_role) {
            self.state.keep(left);
            self.pins_changed();
        } else {
            let is_good = self.server.as_ref().is_some_and(|one| one.can_be_renewed());
            self.release_server(match is_clean && left.is_empty() && is_good {
                true => Condition::Clean,
                false => Condition::Unclean,
            });
        }
        self.answer_ok();
        Ok(())
    }

    /// Returns whether the session was pinned to its connection before the command.
    fn was_bound(&self) -> bool {
        let pins = match self.active.reached_server {
            true => self.active.pins_before,
            false => self.state.pins,
        };
        !pins.is_empty() || self.keeps_connection()
    }

    /// Reports the rejection of one of Evenkeel's own commands. A connection that the session was
    /// pinned to is kept: its transaction is open and unaffected.
    fn send_refusal(&mut self, error_reply: ErrorReply) -> Result<(), ExitReason> {
        let is_bound = self.was_bound();
        let wanted = self.within();
        let is_in_place = |server: &ServerConnection| {
            within(server.settings.schema(), server.settings.settings()) == wanted
        };
        let is_usable = self.server.as_deref().is_some_and(is_in_place);
        if is_bound && !is_usable {
            return Err(ExitReason::Fatal(
                ErrorReply::new(&error_catalog::PINNED_CONNECTION_LOST).detail(error_reply.message),
            ));
        }
        if !is_bound {
            self.forget_work();
            self.release_server(Condition::Unclean);
        }
        self.refuse(error_reply)
    }

    /// Retries the command on another connection.
    fn run_again(&mut self, condition: Condition) -> Result<(), ExitReason> {
        let was_primary = self.acquirer.is_at_primary();
        self.acquirer.at = None;
        if let Some(server) = self.server.take() {
            let condition = match server.is_idle() {
                true => condition,
                false => Condition::Unclean,
            };
            self.acquirer.release(server, condition);
        }
        let active = &mut self.active;
        (active.reached_server, active.missing, active.wait) = (false, None, None);
        active.wait_timer = None;
        active.results = 0;
        active.has_failed = false;
        active.word.clear();
        self.stage = Stage::Command;
        if was_primary && self.active.primary_only {
            let got = self.acquirer.wait_for_another_primary();
            return self.follow(got);
        }
        // Another connection, possibly to the same server; if that server is down, the attempt will
        // fail.
        self.try_again()
    }

    /// Handles a server connection that failed or can no longer be parsed.
    pub(super) fn server_lost(&mut self, why: &str) -> Result<(), ExitReason> {
        let Some(server) = self.server.take() else {
            return Ok(());
        };
        if let Some(at) = &self.acquirer.at {
            self.service.server_info.request_role_check(at.server.id);
            at.server.counters.resets.add(1);
        }
        tracing::debug!(
            server = %server.core.pool_handle.server.name,
            why,
            "lost server connection"
        );
        let is_open = server.conversation.status().has(Status::IN_TRANSACTION);
        let is_in_reply = server.is_in_reply() || self.active.reached_client;
        self.acquirer.release(server, Condition::Unclean);
        let stage = std::mem::replace(&mut self.stage, Stage::Command);
        match stage {
            Stage::DiscardReply(AfterDiscard::RunAgain) => self.run_again(Condition::Unclean),
            Stage::DiscardReply(
                then @ (AfterDiscard::SendError(_) | AfterDiscard::Renewed { .. }),
            ) => self.swallowed_all(then),
            Stage::Preparing if self.active.is_kept && !is_open && !self.was_bound() => {
                self.active.missing = None;
                self.try_elsewhere()
            }
            Stage::Preparing => self.report_loss(is_open, why),
            Stage::Answer | Stage::File | Stage::Streaming if is_in_reply => {
                Err(ExitReason::ServerBroke(why.to_owned()))
            }
            Stage::Answer if self.may_retry(FailureKind::Broken) => {
                self.begin_retry(FailureKind::Broken, ScanResult::default())
            }
            Stage::Answer | Stage::File | Stage::Streaming => self.report_loss(is_open, why),
            stage @ Stage::Killing(..) => {
                self.stage = stage;
                self.handle_idle_loss(is_open, why)
            }
            _ => self.handle_idle_loss(is_open, why),
        }
    }

    /// Handles the loss of the server connection while no command was active.
    fn handle_idle_loss(&mut self, is_open: bool, why: &str) -> Result<(), ExitReason> {
        let detail = self.loss_detail(why);
        let pins = self.has_pins_besides_transaction();
        // This includes a transaction whose modes are set but which has not begun.
        let is_open = is_open || self.state.pins.has(Pin::Transaction);
        let error = self.loss_error(is_open);
        self.may_have_written();
        self.acquirer.at = None;
        self.forget_work();
        self.set_activity(SessionActivity::Idle);
        if pins {
            self.stats().transactions_lost.add(1);
            return Err(ExitReason::Unasked(
                ErrorReply::new(&error_catalog::PINNED_CONNECTION_LOST).detail(detail),
            ));
        }
        if is_open {
            self.stats().transactions_lost.add(1);
            self.postponed_error = Some(ErrorReply::from_primary_error(error).detail(detail));
        }
        Ok(())
    }

    /// Reports the loss of the server connection during a command that cannot be retried.
    fn report_loss(&mut self, is_open: bool, why: &str) -> Result<(), ExitReason> {
        self.may_have_written();
        let detail = self.loss_detail(why);
        let pins = self.has_pins_besides_transaction();
        let may_have_ended = self.active.reached_server
            && self
                .active
                .statement
                .meaning()
                .is_none_or(ends_transactions);
        let error = self.loss_error(is_open && !may_have_ended);
        self.stats()
            .transactions_lost
            .add(u64::from(is_open || pins));
        self.acquirer.at = None;
        self.forget_work();
        if pins {
            return Err(ExitReason::Fatal(
                ErrorReply::new(&error_catalog::PINNED_CONNECTION_LOST).detail(detail),
            ));
        }
        self.refuse(ErrorReply::from_primary_error(error).detail(detail))
    }

    /// Records a possible write on the lost server, so that the session's next read sees it.
    fn may_have_written(&mut self) {
        let Some(at) = &mut self.acquirer.at else {
            return;
        };
        at.written.is_some |= self.active.may_write;
        at.written.is_partial = true;
        self.count_writes(Status::default());
    }

    /// Returns the error for a lost transaction. Only one that was certainly not committed may be
    /// retried.
    fn loss_error(&self, is_open: bool) -> PrimaryError {
        match is_open && !self.is_doubtful {
            true => PrimaryError::TransactionLost,
            false => PrimaryError::OutcomeUnknown,
        }
    }

    /// Returns whether more than a transaction is lost with the connection.
    fn has_pins_besides_transaction(&self) -> bool {
        let of_work = [Pin::Transaction, Pin::AutocommitOff];
        let mut others = Pin::ALL.into_iter().filter(|pin| !of_work.contains(pin));
        let pins: Pins = self.state.pins;
        self.keeps_connection() || others.any(|pin| pins.has(pin))
    }

    fn loss_detail(&self, why: &str) -> String {
        let name = self.acquirer.server().map_or("", |server| &server.name);
        format!("server {name}: {why}")
    }
}

/// Returns whether a transaction may have ended with the statements, by commit or rollback.
pub(super) fn ends_transactions(meaning: &TextAnalysis) -> bool {
    let goes_on = |one: &RoutedStatement| {
        let kinds = [
            StatementClass::Empty,
            StatementClass::Read,
            StatementClass::Write,
            StatementClass::Setting,
        ];
        kinds.contains(&one.kind)
    };
    // `SET autocommit = 1` commits the open transaction.
    let commits = |effect: &Effect| effect.kind == EffectKind::SetVariable((*b"autocommit").into());
    !meaning.statements.iter().all(goes_on) || meaning.effects.iter().any(commits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_tells_whether_it_has_run_anything() {
        let said = |code: u16, message: &'static [u8], is_unasked: bool| {
            let sqlstate = None;
            failure_of(&ErrorReport {
                code,
                sqlstate,
                message,
                is_unasked,
            })
        };
        let of = |code, message| said(code, message, false);
        assert_eq!(said(4031, b"disconnected", true), FailureKind::NotRead);
        assert_eq!(of(4031, b"Referenced trigger"), FailureKind::Error);
        assert_eq!(of(1053, b"Server shutdown"), FailureKind::Broken);
        assert_eq!(of(1040, b"Too many connections"), FailureKind::TurnedAway);
        assert_eq!(of(1047, b"WSREP has not yet"), FailureKind::TurnedAway);
        assert_eq!(of(1290, b"--read-only option"), FailureKind::ReadOnly);
        assert_eq!(of(1062, b"Duplicate entry"), FailureKind::Error);
    }
}
