//! Ends a command: updates the session state, and releases or keeps the server connection.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use evenkeel_engine::timers;
use evenkeel_policy::connection_pool::Condition;
use evenkeel_policy::pins::Pin as SessionPin;
use evenkeel_wire::mysql::flags::Status;

use super::active_request::{ActiveRequest, CommandKind};
use super::from_client::RemainingPayload;
use super::from_server::ScanResult;
use super::retry::ends_transactions;
use super::server::ServerConnection;
use super::{AfterDiscard, ExitReason, Session, Stage};
use crate::counters::work::StatementResult;
use crate::service::activity::SessionActivity;
use crate::service::rules::AppliedRules;
use crate::session::placement::Placement;
use evenkeel_sql::session_state::mysql::{HoldPolicy, StateQuery, TextAnalysis};

/// Time in milliseconds that a client which sends follow-up queries has for the next one, while
/// other clients wait for a connection.
const FOLLOW_UP_MS: u64 = 50;

/// Time in milliseconds for a client that is certain to send a follow-up query; its network latency
/// may be high.
const RESULT_READ_MS: u64 = 1_000;

/// Interval in milliseconds of checks for waiting clients.
const LOOK_MS: u64 = 250;

impl Session<'_> {
    /// Continues the session after a scan of server output.
    pub(super) fn after(&mut self, scan: &ScanResult) -> Result<(), ExitReason> {
        if scan.wants_file {
            self.rest = RemainingPayload::of_file();
            self.stage = Stage::File;
            return Ok(());
        }
        if scan.is_answered {
            return self.end_unit();
        }
        let is_quiet = |server: &ServerConnection| server.conversation.is_quiet();
        if matches!(self.stage, Stage::Preparing)
            && self.core.server.as_deref().is_some_and(is_quiet)
        {
            let out = self.core.worker.take_spare();
            return self.send_command(out, None);
        }
        Ok(())
    }

    /// Ends the command, so that the client may send the next one.
    pub(super) fn end_unit(&mut self) -> Result<(), ExitReason> {
        let active = std::mem::take(&mut self.active);
        self.core.worker.keep_spare(active.command);
        self.stage = Stage::Command;
        if !self.rest.is_over() {
            // The server waits for the rest of a command to which it has already replied.
            return self.server_lost("answered before it received the whole command");
        }
        if matches!(active.what, CommandKind::Binlog) {
            // The connection cannot be used for anything else.
            self.forget_work();
            self.release_server(Condition::Unclean);
            return Ok(());
        }
        self.hold_for_follow_up();
        self.limit_idleness();
        if self.owes_trackers() {
            return Ok(());
        }
        if !self.query_between(active.has_failed) {
            self.show_activity();
        }
        Ok(())
    }

    /// Returns whether the server's last status reports an open transaction.
    fn is_in_transaction(&self) -> bool {
        let is_open =
            |server: &ServerConnection| server.conversation.status().has(Status::IN_TRANSACTION);
        self.core.server.as_deref().is_some_and(is_open)
    }

    /// Updates the session's activity between two commands.
    pub(super) fn show_activity(&self) {
        self.core.set_activity(match self.is_in_transaction() {
            true => SessionActivity::InTransaction,
            false if self.is_free() => SessionActivity::Idle,
            false => SessionActivity::Bound,
        });
    }

    /// Sets the idle limit: the session's `wait_timeout`, which a server would enforce. Evenkeel
    /// enforces it for a session without a server connection.
    pub(super) fn limit_idleness(&self) {
        let limit_ms = self.state.wait_timeout_ms();
        self.core
            .handle
            .set_idle_limit(limit_ms.unwrap_or_default());
    }

    /// Holds the connection briefly in case the client queries state left by the statement next.
    /// The hold is longer if clients do query it and no other client waits for a connection.
    fn hold_for_follow_up(&mut self) {
        self.holding = match self.state.hold(&self.shared.observed_reads) {
            HoldPolicy::Release => None,
            HoldPolicy::Briefly if self.others_wait() => None,
            HoldPolicy::Briefly => Some(after(HoldPolicy::BRIEFLY_MS)),
            HoldPolicy::UntilNextCommand => Some(after(FOLLOW_UP_MS)),
            HoldPolicy::UntilResultIsRead => Some(after(RESULT_READ_MS)),
        };
    }

    /// Ends or extends the hold after its time has expired.
    pub(super) fn hold_expired(&mut self) {
        let hold = self.state.hold(&self.shared.observed_reads);
        let is_expected = matches!(
            hold,
            HoldPolicy::UntilNextCommand | HoldPolicy::UntilResultIsRead
        );
        self.holding = (is_expected && !self.others_wait()).then(|| after(LOOK_MS));
        if self.holding.is_none() && matches!(self.stage, Stage::Command) {
            // The hold may have postponed a state query that an error requires.
            self.query_between(true);
        }
    }

    /// Returns whether another client waits for a connection. Takes a lock, so it must not be
    /// called after each command.
    fn others_wait(&self) -> bool {
        self.core.service.pool_registry.pools.waiting() > 0
    }

    /// Returns whether the server connection holds no state of this client.
    pub(super) fn is_free(&self) -> bool {
        let Some(server) = &self.core.server else {
            return false;
        };
        let is_quiet = server.conversation.is_idle() && server.is_between_replies();
        let is_quiet = is_quiet && !server.shows_trackers;
        is_quiet && self.state.pins.is_empty() && !self.core.keeps_connection() && !self.holds()
    }

    /// Returns whether the connection is held for a follow-up query of the client.
    fn holds(&self) -> bool {
        self.holding.is_some()
    }

    /// Returns whether the connection is held only for a follow-up query. Any other command is
    /// routed again.
    pub(super) fn is_held_for_questions(&self) -> bool {
        let server = self.core.server.as_ref();
        server.is_some_and(|server| server.is_idle())
            && self.state.pins.is_empty()
            && !self.core.keeps_connection()
    }

    /// Returns whether the command leaves results in place for which the connection is held, and
    /// may run on it.
    pub(super) fn stays_for_results(&self) -> bool {
        let nothing = TextAnalysis::default();
        let meaning = self.active.statement.meaning();
        let is_directed = meaning.is_some_and(|meaning| meaning.hint.is_some())
            || self
                .rules
                .as_ref()
                .and_then(AppliedRules::destination)
                .is_some();
        let may_stay = !self.core.acquirer.is_at_replica()
            || matches!(self.active.what, CommandKind::Ping)
            || self.may_be_set_again();
        let analysis = meaning.unwrap_or(&nothing);
        // Before a USE, which may have failed, the client's schema is not selected.
        let has_schema =
            |server: &ServerConnection| server.settings.schema() == self.state.schema();
        let may_stay = may_stay && self.core.server.as_deref().is_some_and(has_schema);
        let observed = &self.shared.observed_reads;
        may_stay && !is_directed && self.state.keeps_results(analysis, observed)
    }

    /// Queries state that only the server knows, unless the session is pinned for another reason.
    /// Returns false if no query is sent.
    fn query_before_release(&mut self, has_failed: bool) -> bool {
        // A query would remove the state for which the connection is held.
        let may_ask = self.holding.is_none();
        let question = self
            .state
            .state_query(&self.shared.observed_reads)
            .filter(|_| may_ask);
        // An error does not indicate whether a transaction is open.
        let is_open = |pin| has_failed && pin == SessionPin::Transaction;
        let is_unsure = may_ask && self.state.pins.iter().any(is_open);
        let is_nothing_asked = question.is_none() && !is_unsure;
        if is_nothing_asked || self.core.keeps_connection() || self.owes_trackers() {
            return false;
        }
        let is_urgent = self.state.must_ask_now();
        let is_queryable = |pin| match pin {
            SessionPin::Settings | SessionPin::InsertId => true,
            SessionPin::Variables => is_urgent,
            pin => is_open(pin),
        };
        if !self.state.pins.iter().all(is_queryable) {
            return false;
        }
        let is_idle = |server: &ServerConnection| server.conversation.is_idle();
        self.core.server.as_deref().is_some_and(is_idle) && self.send_state_query(question)
    }

    /// Queries the server between two commands for state that only it knows. Returns false if no
    /// query is sent.
    pub(super) fn query_between(&mut self, has_failed: bool) -> bool {
        match self.is_in_transaction() {
            true => self.is_doubtful && self.query_status(),
            false => self.query_before_release(has_failed),
        }
    }

    /// Queries whether a transaction is still open after an error of a statement that may have
    /// ended it. A held connection is not queried, since that would remove the held state. Usually
    /// the next command's reply makes the query unnecessary.
    fn query_status(&mut self) -> bool {
        let is_quiet = |server: &ServerConnection| server.conversation.is_quiet();
        let is_quiet = self.core.server.as_deref().is_some_and(is_quiet);
        is_quiet
            && self.holding.is_none()
            && !self.core.keeps_connection()
            && self.send_state_query(None)
    }

    /// Sends a state query, or a status query if `question` is `None`. Requires a server without
    /// outstanding replies.
    fn send_state_query(&mut self, question: Option<StateQuery>) -> bool {
        let Some(server) = &mut self.core.server else {
            return false;
        };
        if !server.core.stream.is_sent() {
            return false;
        }
        let mut out = self.core.worker.take_spare();
        match question {
            Some(question) => {
                let settings = self.state.setting_queries(server.version.number());
                server.query_state(question, &settings, &mut out);
            }
            None => server.ping(&mut out),
        }
        // A failure is reported by the next receive.
        let _ = server.core.stream.send_own(self.core.worker, out);
        let is_question = question.is_some();
        self.stage = Stage::DiscardReply(AfterDiscard::Answered { is_question });
        true
    }

    /// Handles the reply to a state or status query.
    pub(super) fn handle_state_reply(&mut self, is_question: bool) {
        self.is_doubtful = false;
        if let Some(server) = &mut self.core.server {
            let interner = self.core.worker.interner();
            if is_question {
                self.state.query_answered(&mut server.settings, interner);
            }
            let status = server.conversation.status();
            self.state
                .ready(Some(status), &mut server.settings, interner);
            self.count_writes(status);
        }
        self.pins_changed();
        if is_question || !self.query_before_release(false) {
            self.show_activity();
        }
    }

    pub(super) fn release_server(&mut self, condition: Condition) {
        if let Some(server) = self.core.server.take() {
            self.core.acquirer.at = None;
            self.core.acquirer.release(server, condition);
        }
        self.core.acquirer.release_failover_slot();
        self.core.set_activity(SessionActivity::Idle);
    }

    /// Releases the memory of the command and returns the request.
    pub(super) fn drop_unit(&mut self) -> ActiveRequest {
        let mut active = std::mem::take(&mut self.active);
        self.core
            .worker
            .keep_spare(std::mem::take(&mut active.command));
        active
    }

    /// Handles the last packet of a reply, before the client receives it.
    pub(super) fn answered(&mut self, server: &mut ServerConnection, is_ok: bool) {
        let status = server.conversation.status();
        let interner = self.core.worker.interner();
        let known_status = is_ok.then_some(status);
        self.state
            .ready(known_status, &mut server.settings, interner);
        self.statements_hold(server);
        if !server.holds_for_statements() {
            self.statements.hold_nothing();
        }
        self.core.acquirer.release_failover_slot();
        let meaning = self.active.statement.meaning();
        self.is_doubtful = !is_ok && (self.is_doubtful || meaning.is_none_or(ends_transactions));
        self.count_writes(status);
        let ran = self.ran(server, is_ok);
        let is_open = status.has(Status::IN_TRANSACTION);
        self.core
            .acquirer
            .ends_work(self.active.since_us, &ran, !is_open);
    }

    /// Records the writes of an ended transaction, so that the session's next read sees them.
    pub(super) fn count_writes(&mut self, status: Status) {
        let has_written = |at: &Placement| at.written.is_some && !at.is_replica;
        let is_open = status.has(Status::IN_TRANSACTION);
        if !is_open && self.core.acquirer.at.as_ref().is_some_and(has_written) {
            self.wrote();
        }
    }

    /// Returns the statistics of the command. A preparation counts as a statement only if it fails.
    fn ran(&self, server: &mut ServerConnection, is_ok: bool) -> StatementResult {
        let what = &self.active.what;
        let is_statement = what.is_run() || !is_ok && matches!(what, CommandKind::Prepare(_));
        let meaning = self.active.statement.meaning();
        StatementResult {
            digest: is_statement.then(|| meaning.map_or(0, |meaning| meaning.digest)),
            rows_sent: server.boundaries.take_rows(),
            rows_affected: self.active.rows_affected,
            has_failed: !is_ok,
        }
    }
}

pub(super) fn after(ms: u64) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(timers::sleep(Duration::from_millis(ms)))
}
