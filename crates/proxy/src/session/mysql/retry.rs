//! Handles the failure of a server: retries the command if `policy::route::retry` decides so, and
//! otherwise reports the loss.

use evenkeel_engine::clock;
use evenkeel_policy::connection_pool::Condition;
use evenkeel_policy::failover_queue::PrimaryError;
use evenkeel_policy::pins::{Pin, Pins, UnpinEvent};
use evenkeel_policy::route::retry::{
    Attempt, FailedServer, FailureKind, Progress, Resend, Retry, RetryTarget, SetupFailure,
    after_failure, after_setup_failure,
};
use evenkeel_policy::route::{RoutedStatement, StatementClass};
use evenkeel_wire::mysql::flags::Status;

use super::error_reply::ErrorReply;
use super::from_server::ScanResult;
use super::query_text::within;
use super::server::ServerConnection;
use super::{AfterDiscard, ExitReason, MysqlExit, Session, Stage};
use crate::error_catalog;
use crate::service::activity::SessionActivity;
use crate::session::acquirer::AcquireOutcome;
use evenkeel_sql::session_state::mysql::{Effect, EffectKind, TextAnalysis};

impl Session<'_> {
    /// Returns whether and where the failed command is retried without the client's knowledge.
    pub(super) fn retry_after(&self, failure: FailureKind) -> Retry {
        match self.core.acquirer.at {
            Some(_) => after_failure(failure, &self.attempt()),
            None => Retry::No,
        }
    }

    /// Returns the facts that decide on a retry.
    fn attempt(&self) -> Attempt {
        let active = &self.active;
        // The error numbers of FailureKind::ReadOnly report the server's mode.
        let primary = FailedServer::ReadOnlyPrimary;
        Attempt {
            effect: self.effect(),
            atomicity: active.atomicity,
            has_done: active.results > 0,
            is_held: self.was_bound(),
            is_kept: active.is_kept,
            progress: active.progress,
            ..active.retries.attempt(&self.core.acquirer, primary)
        }
    }

    pub(super) fn begin_retry(
        &mut self,
        failure: FailureKind,
        resend: Resend,
        scan: ScanResult,
    ) -> Result<(), ExitReason> {
        self.core.acquirer.note_retry(failure);
        self.active.retries.note(resend, &self.core.acquirer);
        self.forget_work();
        self.stage = Stage::DiscardReply(AfterDiscard::RunAgain(resend.target));
        self.swallowed(scan)
    }

    /// Acquires another connection for a command for which none could be opened. Returns `None` if
    /// it must not be retried.
    pub(super) fn retry_unsent(&mut self, failure: SetupFailure) -> Option<Result<(), ExitReason>> {
        // No connection has state of the session, and all of the received command is held.
        let attempt = Attempt {
            is_held: false,
            is_kept: true,
            ..self.attempt()
        };
        self.retry_after_setup(failure, &attempt)
    }

    /// Acquires another connection for a command that was not sent. Returns `None` if it must not
    /// be retried.
    fn retry_after_setup(
        &mut self,
        failure: SetupFailure,
        attempt: &Attempt,
    ) -> Option<Result<(), ExitReason>> {
        let retry = after_setup_failure(failure, attempt);
        let Retry::On(resend) = retry else {
            return None;
        };
        self.active.retries.note(resend, &self.core.acquirer);
        self.active.missing = None;
        self.core.acquirer.at = None;
        let outcome = match resend.target.waits_for_primary() {
            true => self.core.acquirer.wait_for_another_primary(),
            false => AcquireOutcome::Reroute,
        };
        Some(self.follow(outcome))
    }

    /// Retries the read on the primary after the replica failed to catch up in time. Its further
    /// output is discarded with the connection.
    pub(super) fn waited_long_enough(&mut self) -> Result<(), ExitReason> {
        self.active.wait_timer = None;
        let Retry::On(resend) = self.retry_after(FailureKind::NotFresh) else {
            return Ok(());
        };
        if let Some(server) = self.core.server.take() {
            self.core.acquirer.release(server, Condition::Unclean);
        }
        self.begin_retry(FailureKind::NotFresh, resend, ScanResult::default())
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
        if self.active.progress > Progress::Unsent && !self.rest.is_over() {
            return self.refused_in_part(error_reply);
        }
        let then = match self.retry_after_rejection(scan.broken.is_some()) {
            Retry::On(resend) => {
                self.active.retries.note(resend, &self.core.acquirer);
                if resend.target == RetryTarget::PrimaryForRead {
                    self.unfit_since_ms = Some(clock::now_ms());
                }
                self.forget_work();
                AfterDiscard::RunAgain(resend.target)
            }
            Retry::No => AfterDiscard::SendError(error_reply),
        };
        self.stage = Stage::DiscardReply(then);
        self.swallowed(scan)
    }

    /// Returns whether and where the command is retried after a rejection. `is_over`: the server
    /// ended the connection.
    fn retry_after_rejection(&mut self, is_over: bool) -> Retry {
        let failure = match is_over {
            true => SetupFailure::Ended,
            false => SetupFailure::Rejected,
        };
        let retry = after_setup_failure(failure, &self.attempt());
        let is_rejected = retry == Retry::No && failure == SetupFailure::Rejected;
        if is_rejected && self.active.missing.is_some() && self.can_be_placed() {
            return after_setup_failure(SetupFailure::Replaced, &self.attempt());
        }
        retry
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
        self.core.server.is_some() && self.state.restore_failed(self.core.worker.interner())
    }

    /// Continues after output was discarded, and acts once all of it has been.
    pub(super) fn swallowed(&mut self, scan: ScanResult) -> Result<(), ExitReason> {
        if let Some(why) = scan.broken {
            return self.server_lost(&why);
        }
        let is_quiet = |server: &ServerConnection| server.conversation.is_quiet();
        if !self.core.server.as_deref().is_none_or(is_quiet) {
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
            AfterDiscard::RunAgain(target) => {
                let condition = match self.active.missing.is_some() {
                    true => Condition::Unclean,
                    false => Condition::Clean,
                };
                self.run_again(target, condition)
            }
            AfterDiscard::SendError(error_reply) => self.send_refusal(error_reply),
            AfterDiscard::Renewed { is_clean } => self.renewed(is_clean),
            AfterDiscard::Answered { is_question } => {
                self.handle_state_reply(is_question);
                Ok(())
            }
            AfterDiscard::Listed(listing) => {
                self.user_variables_listed(&listing);
                Ok(())
            }
            AfterDiscard::TookBack { is_whole } => {
                self.took_back(is_whole);
                Ok(())
            }
            AfterDiscard::Unanswered => {
                self.state.query_failed();
                self.pins_changed();
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
        if has_role && !(is_clean && self.core.server.is_some()) {
            return Err(ExitReason::Fatal(ErrorReply::new(
                &error_catalog::PINNED_CONNECTION_LOST,
            )));
        }
        self.count_writes(Status::default());
        self.begin_anew();
        if is_clean && (self.core.keeps_connection() || has_role) {
            self.state.keep(left);
            self.pins_changed();
        } else {
            let is_good = self
                .core
                .server
                .as_ref()
                .is_some_and(|one| one.can_be_renewed());
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
        let pins = match self.active.progress {
            Progress::Unsent => self.state.pins,
            Progress::Sent | Progress::Answered => self.active.pins_before,
        };
        !pins.is_empty() || self.core.keeps_connection()
    }

    /// Reports the rejection of one of Evenkeel's own commands. A connection that the session was
    /// pinned to is kept: its transaction is open and unaffected.
    fn send_refusal(&mut self, error_reply: ErrorReply) -> Result<(), ExitReason> {
        let is_bound = self.was_bound();
        let wanted = self.within();
        let is_in_place = |server: &ServerConnection| {
            within(server.settings.schema(), server.settings.settings()) == wanted
        };
        let is_usable = self.core.server.as_deref().is_some_and(is_in_place);
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
    fn run_again(&mut self, target: RetryTarget, condition: Condition) -> Result<(), ExitReason> {
        self.core
            .release_failed(ServerConnection::is_idle, condition);
        let active = &mut self.active;
        active.progress = Progress::Unsent;
        (active.missing, active.wait) = (None, None);
        active.wait_timer = None;
        (active.results, active.rows_affected) = (0, 0);
        active.has_failed = false;
        active.word.clear();
        self.stage = Stage::Command;
        if target.waits_for_primary() {
            let got = self.core.acquirer.wait_for_another_primary();
            return self.follow(got);
        }
        // Another connection, possibly to the same server; if that server is down, the attempt will
        // fail.
        self.try_again()
    }

    /// Handles a server connection that failed or can no longer be parsed.
    pub(super) fn server_lost(&mut self, why: &str) -> Result<(), ExitReason> {
        let Some(server) = self.core.take_lost_server(why) else {
            return Ok(());
        };
        let is_open = server.conversation.status().has(Status::IN_TRANSACTION);
        let is_answered = self.active.progress == Progress::Answered;
        let is_in_reply = server.is_in_reply() || is_answered;
        self.core.acquirer.release(server, Condition::Unclean);
        let stage = std::mem::replace(&mut self.stage, Stage::Command);
        match stage {
            Stage::DiscardReply(AfterDiscard::RunAgain(target)) => {
                self.run_again(target, Condition::Unclean)
            }
            Stage::DiscardReply(
                then @ (AfterDiscard::SendError(_) | AfterDiscard::Renewed { .. }),
            ) => self.swallowed_all(then),
            Stage::Preparing => {
                let mut attempt = self.attempt();
                attempt.is_held |= is_open;
                match self.retry_after_setup(SetupFailure::Lost, &attempt) {
                    Some(result) => result,
                    None => self.report_loss(is_open, why),
                }
            }
            Stage::Answer | Stage::File | Stage::Streaming if is_in_reply => {
                Err(ExitReason::ServerBroke(why.to_owned()))
            }
            Stage::Answer => match self.retry_after(FailureKind::Broken) {
                Retry::On(resend) => {
                    self.begin_retry(FailureKind::Broken, resend, ScanResult::default())
                }
                Retry::No => self.report_loss(is_open, why),
            },
            Stage::File | Stage::Streaming => self.report_loss(is_open, why),
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
        self.core.acquirer.at = None;
        self.forget_work();
        self.core.set_activity(SessionActivity::Idle);
        if pins {
            self.core.stats().transactions_lost.add(1);
            return Err(ExitReason::Other(MysqlExit::Unasked(
                ErrorReply::new(&error_catalog::PINNED_CONNECTION_LOST).detail(detail),
            )));
        }
        if is_open {
            self.core.stats().transactions_lost.add(1);
            self.postponed_error = Some(ErrorReply::from_primary_error(error).detail(detail));
        }
        Ok(())
    }

    /// Reports the loss of the server connection during a command that cannot be retried.
    fn report_loss(&mut self, is_open: bool, why: &str) -> Result<(), ExitReason> {
        self.may_have_written();
        let detail = self.loss_detail(why);
        let pins = self.has_pins_besides_transaction();
        let may_have_ended = self.active.progress > Progress::Unsent
            && self
                .active
                .statement
                .meaning()
                .is_none_or(ends_transactions);
        let error = self.loss_error(is_open && !may_have_ended);
        self.core
            .stats()
            .transactions_lost
            .add(u64::from(is_open || pins));
        self.core.acquirer.at = None;
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
        let Some(at) = &mut self.core.acquirer.at else {
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
        self.core.keeps_connection() || others.any(|pin| pins.has(pin))
    }

    fn loss_detail(&self, why: &str) -> String {
        let name = self
            .core
            .acquirer
            .server()
            .map_or("", |server| &server.name);
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
