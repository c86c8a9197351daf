//! Acquires a server connection for a session, and sends the state that the connection requires
//! before the command.

use evenkeel_policy::causality::Consistency;
use evenkeel_policy::route::retry::SetupFailure;
use evenkeel_policy::route::{RoutedStatement, StatementClass};
use evenkeel_wire::mysql::frame::HEADER_LENGTH;
use evenkeel_wire::mysql::frontend;
use evenkeel_wire::mysql::rewrite::Transcoder;

use super::active_request::{ActiveRequest, CommandKind, CommandStatement, Missing};
use super::command_end::after;
use super::error_reply::ErrorReply;
use super::server::{Ask, ServerConnection};
use super::{ExitReason, Session, Stage};
use crate::error_catalog;
use crate::service::ServiceSnapshot;
use crate::service::activity::SessionActivity;
use crate::session::acquirer::{AcquireError, AcquireOutcome};
use crate::session::core::WaitEnd;
use crate::session::handle::SessionEvent;
use crate::session::placement::{CatchUpTarget, PlacementTarget};
use crate::upstream::connect_error::ConnectErrorKind;
use evenkeel_sql::session_state::mysql::{ResultReads, SettingsDiff, TextForm, settings_diff};

impl Session<'_> {
    /// Requests a connection for the command. Returns true if one was acquired.
    pub(super) fn acquire(
        &mut self,
        wanted: PlacementTarget,
        view: &ServiceSnapshot,
    ) -> Result<bool, ExitReason> {
        let outcome = self.core.acquirer.acquire(&wanted, view);
        self.active.wait = match wanted {
            PlacementTarget::AfterPosition(_, position) => Some(CatchUpTarget::Position(position)),
            PlacementTarget::AfterSync(_) => Some(CatchUpTarget::Everything),
            _ if self.must_catch_up(view) => Some(CatchUpTarget::Everything),
            _ => None,
        };
        match outcome {
            AcquireOutcome::Server(server) => Ok(self.accept_server(server)),
            outcome => self.follow(outcome).map(|()| false),
        }
    }

    /// Returns whether the session reached a new primary that may not have applied its earlier
    /// writes (Galera).
    fn must_catch_up(&self, view: &ServiceSnapshot) -> bool {
        let (Some(database), Some(at)) = (view.database(), &self.core.acquirer.at) else {
            return false;
        };
        let positions = || self.core.service.server_info.positions();
        let is_first = || {
            positions()
                .sample
                .as_ref()
                .is_none_or(|one| one.epoch != database.epoch)
        };
        let may_lack = match database.consistency {
            Consistency::Eventual => false,
            Consistency::ReadYourWrites => self.token.wrote_before_epoch(database.epoch),
            Consistency::Global => {
                self.core.service.server_info.writes().last_us() > 0 && is_first()
            }
        };
        may_lack && !at.is_replica && positions().is_causal(at.server.id)
    }

    /// Routes the command again and sends it to the chosen server; its bytes must be kept.
    pub(super) fn try_again(&mut self) -> Result<(), ExitReason> {
        let view = self.core.permit.service().snapshot();
        let wanted = self.decide(&view);
        match self.acquire(wanted, &view)? {
            true => self.launch(None),
            false => Ok(()),
        }
    }

    /// Continues the command according to the outcome of an acquisition.
    pub(super) fn follow(
        &mut self,
        outcome: AcquireOutcome<ServerConnection>,
    ) -> Result<(), ExitReason> {
        self.stage = Stage::Command;
        match outcome {
            AcquireOutcome::Server(server) => match self.accept_server(server) {
                true => self.launch(None),
                false => Ok(()),
            },
            AcquireOutcome::Pending => {
                self.stage = Stage::Waiting;
                Ok(())
            }
            AcquireOutcome::Reroute => self.try_again(),
            AcquireOutcome::Failed(failure, error) => self.retry_or_deny(failure, &error),
            AcquireOutcome::Denied(error) => self.denied(&error),
        }
    }

    fn denied(&mut self, error: &AcquireError) -> Result<(), ExitReason> {
        let error_reply = ErrorReply::from_acquire_error(error);
        match error {
            // The credentials of the session are no longer valid.
            AcquireError::ConnectFailed(error)
                if error.kind == ConnectErrorKind::Refused
                    && error_reply.code.sqlstate == *b"28000" =>
            {
                Err(ExitReason::Fatal(error_reply))
            }
            _ => self.refuse(error_reply),
        }
    }

    /// Acquires another connection for work of which nothing was sent, or denies it.
    fn retry_or_deny(
        &mut self,
        failure: SetupFailure,
        error: &AcquireError,
    ) -> Result<(), ExitReason> {
        match self.retry_unsent(failure) {
            Some(result) => result,
            None => self.denied(error),
        }
    }

    /// Takes over an acquired connection. Returns false if the connection cannot be prepared for
    /// this client; a replacement is then requested.
    fn accept_server(&mut self, server: Box<ServerConnection>) -> bool {
        if !self.compare(&server) {
            self.core.acquirer.exchange(server);
            self.stage = Stage::Waiting;
            return false;
        }
        self.active.since_us = self.core.begins_work(&server);
        self.transcoder = Transcoder::new(server.agreed, self.handshake.agreed);
        self.stage = Stage::Command;
        self.core.server = Some(server);
        true
    }

    /// Determines the settings that the session has and the connection lacks. Returns false if the
    /// connection cannot be prepared for this client.
    pub(super) fn compare(&mut self, server: &ServerConnection) -> bool {
        let meaning = self.active.statement.meaning();
        let observed = &self.shared.observed_reads;
        let needs = meaning.map_or(ResultReads::NONE, |meaning| observed.needs(meaning));
        let mut sql = Vec::new();
        self.active.missing =
            match settings_diff(&server.settings, &mut self.state, needs, &mut sql) {
                SettingsDiff::Nothing => None,
                // The current schema does not matter to a command that changes it.
                SettingsDiff::Put { .. } if sql.is_empty() && self.goes_to_other_schema() => None,
                SettingsDiff::Put { schema } => Some(Missing {
                    schema,
                    sql,
                    owed: 0,
                }),
                SettingsDiff::Unfit => return false,
            };
        true
    }

    /// Returns whether the command changes the schema; the current schema may no longer exist.
    fn goes_to_other_schema(&self) -> bool {
        if self.core.keeps_connection() {
            return false;
        }
        let command = &self.active.command;
        let payload = command.get(HEADER_LENGTH..).unwrap_or_default();
        match frontend::request(payload, self.handshake.agreed) {
            Ok(frontend::Request::InitDb(_)) => true,
            Ok(frontend::Request::Query { text, .. }) => {
                let meaning = self.active.statement.meaning();
                let is_one = meaning.is_some_and(|meaning| meaning.statements.len() == 1);
                let first = text.trim_ascii_start().get(..4);
                is_one && first.is_some_and(|first| first.eq_ignore_ascii_case(b"USE "))
            }
            _ => false,
        }
    }

    /// Sends the requests that must precede the command. Returns true if the command must wait for
    /// their replies.
    pub(super) fn ask_ahead(&mut self, out: &mut Vec<u8>) -> Result<bool, ExitReason> {
        let is_harmless = self.is_harmless();
        let several = self.wants_several();
        let counts = self.state.must_count();
        let statement = self.lacks_statement();
        let statement = statement.map(|statement| (statement, self.within()));
        let Some(server) = &mut self.core.server else {
            return Ok(true);
        };
        server.close_statements(out);
        let mut must_wait = false;
        if let Some(missing) = &mut self.active.missing {
            if let Some(schema) = &missing.schema {
                server.select_schema(Ask::Settings, schema, out);
                missing.owed += 1;
            }
            if counts {
                server.query(Ask::Other, b"SELECT 0 LIMIT 0", out);
            }
            if !missing.sql.is_empty() {
                server.query(Ask::Settings, &missing.sql, out);
                missing.owed += 1;
            }
            must_wait = !is_harmless;
        }
        if let Some(several) = several.filter(|several| *several != server.takes_several) {
            server.set_multi_statements(several, out);
        }
        if let Some((statement, now)) = statement {
            Self::prepare_in_context(server, &statement, &now, out);
            must_wait = true;
        }
        if let Some(awaited) = &self.active.wait {
            let view = self.core.permit.service().snapshot();
            let wait_ms = view
                .database()
                .map_or(0, |database| database.causality.wait_ms);
            let text = super::catch_up::text(server.version.mariadb, awaited, wait_ms);
            server.query(Ask::Wait, text.as_bytes(), out);
            must_wait |= !self.active.is_read;
            // The cluster's own limit is 30 seconds, and no statement can change it.
            if *awaited == CatchUpTarget::Everything && self.core.acquirer.is_at_replica() {
                self.active.wait_timer = Some(after(wait_ms));
            }
        }
        self.show_trackers(out);
        Ok(must_wait)
    }

    /// Returns whether the server must accept several statements in one text; `None` if either is
    /// acceptable.
    fn wants_several(&self) -> Option<bool> {
        let (CommandKind::Query, CommandStatement::Text(meaning)) =
            (&self.active.what, &self.active.statement)
        else {
            return None;
        };
        // An unparsable text may contain several statements.
        let is_known = |one: &RoutedStatement| {
            one.kind != StatementClass::Unknown && meaning.form != TextForm::StoredProgram
        };
        let is_one = matches!(&*meaning.statements, [one] if is_known(one));
        (!is_one).then_some(self.takes_several)
    }

    /// Records that the server applied one setting request.
    pub(super) fn setting_placed(&mut self, server: &mut ServerConnection) {
        let Some(missing) = &mut self.active.missing else {
            return;
        };
        missing.owed = missing.owed.saturating_sub(1);
        if missing.owed == 0 {
            self.active.missing = None;
            let interner = self.core.worker.interner();
            self.state.restored(&mut server.settings, interner);
        }
    }

    /// Rejects the command without executing it; the session continues with the next command.
    pub(super) fn refuse(&mut self, error_reply: ErrorReply) -> Result<(), ExitReason> {
        self.stage = Stage::Command;
        let command = std::mem::take(&mut self.active.command);
        let ActiveRequest { what, .. } = self.drop_unit();
        self.record_types(&what, &command);
        self.core.worker.keep_spare(command);
        self.core.acquirer.release_failover_slot();
        if self.core.server.is_none() {
            self.core.acquirer.at = None;
            self.core.set_activity(SessionActivity::Idle);
        }
        match what {
            // COM_STMT_SEND_LONG_DATA has no reply, even on failure; the execution receives the
            // error.
            CommandKind::LongData(number) => {
                if let Some(named) = self.statements.get_mut(number) {
                    named.lacks_data = true;
                }
            }
            CommandKind::Execute(number) | CommandKind::Bulk(number) => {
                self.discard_long_data(number);
                self.reply_error(error_reply);
            }
            _ => self.reply_error(error_reply),
        }
        Ok(())
    }

    /// Handles an event from outside. After any of them the wait of the session is checked.
    pub(super) fn handle_event(&mut self, event: SessionEvent) -> Result<(), ExitReason> {
        if let Some(why) = self.core.loss_by(event)? {
            return self.server_lost(&why);
        }
        match self.core.wait_end(event) {
            Some(WaitEnd::Cancelled) => {
                self.refuse(ErrorReply::new(&error_catalog::QUERY_INTERRUPTED))
            }
            Some(WaitEnd::TimedOut) => self.refuse(ErrorReply::new(&error_catalog::POOL_TIMEOUT)),
            Some(WaitEnd::Reroute) => self.try_reroute(),
            None => Ok(()),
        }
    }

    /// Reroutes the command if that is now better than to continue waiting.
    fn try_reroute(&mut self) -> Result<(), ExitReason> {
        let view = self.core.permit.service().snapshot();
        let wanted = self.decide(&view);
        match self.core.acquirer.reroute_to(wanted, &view) {
            true => self.follow(AcquireOutcome::Reroute),
            false => Ok(()),
        }
    }
}
