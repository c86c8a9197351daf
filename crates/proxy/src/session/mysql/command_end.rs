//! The end of a command: what the session is like behind it, and what becomes of its connection.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use evenkeel_policy::connection_pool::Condition;
use evenkeel_policy::pins::Pin as Bond;
use evenkeel_wire::mysql::flags::Status;

use super::active_request::{ActiveRequest, CommandKind};
use super::from_client::RemainingPayload;
use super::from_server::ScanResult;
use super::retry::ends_transactions;
use super::server::ServerConnection;
use super::{AfterDiscard, ExitReason, Session, Stage};
use crate::counters::work::StatementResult;
use crate::session::handle::SessionActivity;
use crate::session::placement::Placement;
use crate::session_state::mysql::{HoldPolicy, StateQuery};

/// How long a client that asks at all has time to ask, while others wait for a connection.
const ASKED_MS: u64 = 50;

/// The same of one that will ask: it may be far away.
const PROMISED_MS: u64 = 1_000;

/// How often it is looked whether others wait.
const LOOK_MS: u64 = 250;

impl Session<'_> {
    /// What follows from it.
    pub(super) fn after(&mut self, walked: &ScanResult) -> Result<(), ExitReason> {
        if walked.wants_file {
            self.rest = RemainingPayload::of_file();
            self.stage = Stage::File;
            return Ok(());
        }
        if walked.is_answered {
            return self.end_unit();
        }
        let is_quiet = |server: &ServerConnection| server.conversation.is_quiet();
        if matches!(self.stage, Stage::Preparing) && self.server.as_deref().is_some_and(is_quiet) {
            let out = self.worker.spare();
            return self.send_command(out, None);
        }
        Ok(())
    }

    /// The command is over: its client may send the next one.
    pub(super) fn end_unit(&mut self) -> Result<(), ExitReason> {
        let unit = std::mem::take(&mut self.unit);
        self.worker.keep_spare(unit.command);
        self.stage = Stage::Command;
        if !self.rest.is_over() {
            // It waits for the rest of a command that it has answered already.
            return self.server_lost("answered before it received the whole command");
        }
        if matches!(unit.what, CommandKind::Binlog) {
            // It is no use for anything else.
            self.forget_work();
            self.let_go(Condition::Unclean);
            return Ok(());
        }
        self.hold_for_follow_up();
        self.limit_idleness();
        if self.owes_trackers() {
            return Ok(());
        }
        if !self.asks_between(unit.has_failed) {
            self.shows();
        }
        Ok(())
    }

    /// As its server has said last.
    fn is_in_transaction(&self) -> bool {
        let is_open =
            |server: &ServerConnection| server.conversation.status().has(Status::IN_TRANSACTION);
        self.server.as_deref().is_some_and(is_open)
    }

    /// What it does between two commands.
    pub(super) fn shows(&self) {
        self.does(match self.is_in_transaction() {
            true => SessionActivity::InTransaction,
            false if self.is_free() => SessionActivity::Idle,
            false => SessionActivity::Bound,
        });
    }

    /// A server ends a session by its `wait_timeout`; one that has none is ended by us.
    pub(super) fn limit_idleness(&self) {
        let limit_ms = self.journal.wait_timeout_ms();
        self.card.set_idle_limit(limit_ms.unwrap_or_default());
    }

    /// Perhaps its client asks next what the statement has left on the connection: that is kept for
    /// a moment, and longer where clients do ask and nobody waits for one.
    fn hold_for_follow_up(&mut self) {
        self.holding = match self.journal.hold(&self.shared.asked) {
            HoldPolicy::No => None,
            HoldPolicy::Briefly if self.others_wait() => None,
            HoldPolicy::Briefly => Some(after(HoldPolicy::BRIEFLY_MS)),
            HoldPolicy::UntilNext => Some(after(ASKED_MS)),
            HoldPolicy::Promised => Some(after(PROMISED_MS)),
        };
    }

    /// That moment is over.
    pub(super) fn hold_expired(&mut self) {
        let hold = self.journal.hold(&self.shared.asked);
        let is_asked = matches!(hold, HoldPolicy::UntilNext | HoldPolicy::Promised);
        self.holding = (is_asked && !self.others_wait()).then(|| after(LOOK_MS));
        if self.holding.is_none() && matches!(self.stage, Stage::Command) {
            // An error may have kept it, and its question was put off.
            self.asks_between(true);
        }
    }

    /// Whether another client waits for a connection. Looks under a lock: not after each command.
    fn others_wait(&self) -> bool {
        self.service.lender.books.waiting() > 0
    }

    /// Whether nothing of this client is on its connection.
    pub(super) fn is_free(&self) -> bool {
        let Some(server) = &self.server else {
            return false;
        };
        let is_quiet = server.conversation.is_idle() && server.is_between_replies();
        let is_quiet = is_quiet && !server.shows_trackers;
        is_quiet && self.journal.pins.is_empty() && !self.keeps_connection() && !self.holds()
    }

    /// What the last statement left there may be asked for by the next one.
    fn holds(&self) -> bool {
        self.holding.is_some()
    }

    /// Only that keeps it: the next command wants something else, and goes where it belongs.
    pub(super) fn is_held_for_questions(&self) -> bool {
        let server = self.server.as_ref();
        server.is_some_and(|server| server.is_idle())
            && self.journal.pins.is_empty()
            && !self.keeps_connection()
    }

    /// What its server knows better is asked, if nothing else binds the session. False: nothing is.
    fn asks_before_release(&mut self, has_failed: bool) -> bool {
        // It would take away what the connection is kept for.
        let may_ask = self.holding.is_none();
        let question = self
            .journal
            .question(&self.shared.asked)
            .filter(|_| may_ask);
        // An error does not say whether a transaction is open.
        let is_open = |pin| has_failed && pin == Bond::Transaction;
        let is_unsure = may_ask && self.journal.pins.iter().any(is_open);
        let is_nothing_asked = question.is_none() && !is_unsure;
        if is_nothing_asked || self.keeps_connection() || self.owes_trackers() {
            return false;
        }
        let is_told = |pin| matches!(pin, Bond::Settings | Bond::InsertId) || is_open(pin);
        if !self.journal.pins.iter().all(is_told) {
            return false;
        }
        let is_idle = |server: &ServerConnection| server.conversation.is_idle();
        self.server.as_deref().is_some_and(is_idle) && self.asks(question)
    }

    /// Between two commands its server is asked what only that knows. False: it is not.
    pub(super) fn asks_between(&mut self, has_failed: bool) -> bool {
        match self.is_in_transaction() {
            true => self.is_doubtful && self.asks_status(),
            false => self.asks_before_release(has_failed),
        }
    }

    /// Whether a transaction is still open, behind an error of what may have ended it. It would
    /// take away what the connection is kept for; and mostly the next command tells.
    fn asks_status(&mut self) -> bool {
        let is_quiet = |server: &ServerConnection| server.conversation.is_quiet();
        let is_quiet = self.server.as_deref().is_some_and(is_quiet);
        is_quiet && self.holding.is_none() && !self.keeps_connection() && self.asks(None)
    }

    /// Asks its server, of which nothing is owed; without a question only how the session is.
    fn asks(&mut self, question: Option<StateQuery>) -> bool {
        let Some(server) = &mut self.server else {
            return false;
        };
        if !server.lent.stream.is_sent() {
            return false;
        }
        let mut out = self.worker.spare();
        match question {
            Some(question) => server.ask_question(question, &mut out),
            None => server.ask_status(&mut out),
        }
        // If it fails, the next receive says so.
        let _ = server.lent.stream.send_own(self.worker, out);
        let is_question = question.is_some();
        self.stage = Stage::DiscardReply(AfterDiscard::Answered { is_question });
        true
    }

    /// The server has told what it was asked.
    pub(super) fn told(&mut self, is_question: bool) {
        self.is_doubtful = false;
        if let Some(server) = &mut self.server {
            let interner = self.worker.interner();
            if is_question {
                self.journal.answered(&mut server.settings, interner);
            }
            let status = server.conversation.status();
            self.journal
                .ready(Some(status), &mut server.settings, interner);
            self.counts_writes(status);
        }
        self.pins_changed();
        if is_question || !self.asks_before_release(false) {
            self.shows();
        }
    }

    pub(super) fn let_go(&mut self, condition: Condition) {
        if let Some(server) = self.server.take() {
            self.borrower.at = None;
            self.borrower.give_back(server, condition);
        }
        self.borrower.release_failover_slot();
        self.does(SessionActivity::Idle);
    }

    /// The command's bytes are not needed any more.
    pub(super) fn drop_unit(&mut self) -> ActiveRequest {
        let mut unit = std::mem::take(&mut self.unit);
        self.worker.keep_spare(std::mem::take(&mut unit.command));
        unit
    }

    /// The last packet of an answer: what the session is like behind it, before its client knows.
    pub(super) fn answered(&mut self, server: &mut ServerConnection, is_ok: bool) {
        let status = server.conversation.status();
        let interner = self.worker.interner();
        let told = is_ok.then_some(status);
        self.journal.ready(told, &mut server.settings, interner);
        self.statements_hold(server);
        if !server.holds_for_statements() {
            self.numbers.hold_nothing();
        }
        self.borrower.release_failover_slot();
        let meaning = self.unit.sense.meaning();
        self.is_doubtful = !is_ok && (self.is_doubtful || meaning.is_none_or(ends_transactions));
        self.counts_writes(status);
        let ran = self.ran(server, is_ok);
        let is_open = status.has(Status::IN_TRANSACTION);
        self.borrower.ends_work(self.unit.since_us, &ran, !is_open);
    }

    /// Behind a transaction its next read must find what it wrote.
    pub(super) fn counts_writes(&mut self, status: Status) {
        let has_written = |at: &Placement| at.written.is_some && !at.is_replica;
        let is_open = status.has(Status::IN_TRANSACTION);
        if !is_open && self.borrower.at.as_ref().is_some_and(has_written) {
            self.wrote();
        }
    }

    /// What the command was, for the figures. To prepare a statement counts as one only if it
    /// fails.
    fn ran(&self, server: &mut ServerConnection, is_ok: bool) -> StatementResult {
        let what = &self.unit.what;
        let is_statement = what.is_run() || !is_ok && matches!(what, CommandKind::Prepare(_));
        let meaning = self.unit.sense.meaning();
        StatementResult {
            digest: is_statement.then(|| meaning.map_or(0, |meaning| meaning.digest)),
            rows_sent: server.boundaries.take_rows(),
            rows_affected: self.unit.rows_affected,
            has_failed: !is_ok,
        }
    }
}

pub(super) fn after(ms: u64) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(compio::time::sleep(Duration::from_millis(ms)))
}
