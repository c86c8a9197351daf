//! Forwards a server's replies to the client and applies their effects to the session.

use evenkeel_engine::socket::Chunk;
use evenkeel_policy::connection_pool::Condition;
use evenkeel_policy::pins::{Pin, UnpinEvent};
use evenkeel_policy::route::retry::{FailureKind, Progress, Retry};
use evenkeel_wire::postgres::TransactionStatus;
use evenkeel_wire::postgres::backend::SqlState;
use evenkeel_wire::postgres::conversation::{Delivery, DueAction, ReplyOutcome, RequestToken};
use evenkeel_wire::postgres::server_scanner::{Event, Step};
use evenkeel_wire::stream_editor::StreamEditor;

use super::error_reply::ErrorReply;
use super::from_client::will_end;
use super::pending_effects::discards_sequences;
use super::prepared::{forget_statements, is_missing, is_of_old_plan};
use super::retry::{failure_of, failure_of_error, warns_of_end};
use super::scan_result::ScanResult;
use super::sequences::SequenceState;
use super::server::ServerConnection;
use super::tokens::{NAMED_FOR_QUERY, statement_of};
use super::{ExitReason, Session, Stage};
use crate::error_catalog::COPY_UNDECIDABLE;
use crate::session::input::ServerInput;
use crate::session::pinning;
use evenkeel_sql::session_state::analysis::EffectKind;

impl Session<'_> {
    pub(super) fn receive(&mut self, chunk: Chunk<'_>) -> Result<(), ExitReason> {
        let Some((mut server, mut input)) = self.core.take_input(chunk) else {
            return Ok(());
        };
        let scan = self.scan(&mut server, &mut input);
        self.core.server = Some(server);
        if let Stage::Rescue(target) = self.stage {
            input.discard(self.core.worker);
            return self.end_rescue(target, &scan);
        }
        if let Some(failure) = scan.failure
            && let Retry::On(resend) = self.retry_after(failure)
        {
            input.discard(self.core.worker);
            return self.begin_retry(failure, resend, &scan);
        }
        let is_over = |server: &ServerConnection| server.conversation.pending_count() == 0;
        if (scan.is_ready || scan.ours_ended) && self.core.server.as_deref().is_some_and(is_over) {
            self.statements.settled();
        }
        self.note_commit(&scan);
        self.pass_on(input, scan.warning)?;
        if scan.is_undecidable {
            return Err(ExitReason::Fatal(ErrorReply::new(&COPY_UNDECIDABLE)));
        }
        if scan.has_left {
            return self.release_server(Condition::Unclean);
        }
        if let Some(why) = scan.broken {
            return self.server_lost(&why);
        }
        self.after(&scan)
    }

    /// Decides on the delivery of each byte. Returns whether the input is forwarded unchanged.
    fn scan(&mut self, server: &mut ServerConnection, input: &mut ServerInput<'_>) -> ScanResult {
        let mut scan = ScanResult::default();
        let mut flight = input.editor();
        loop {
            let remainder = server.boundaries.remainder();
            match server.boundaries.next(flight.rest()) {
                Step::Event {
                    passed,
                    event,
                    length,
                } => {
                    self.let_pass(server, &mut flight, passed, remainder);
                    self.give_due(server, &mut flight);
                    server.passing = self.event(server, &event, &mut scan);
                    if warns_of_end(&event) && server.passing == Delivery::Forward {
                        scan.warning += length;
                    }
                    deliver(&mut flight, server.passing, length);
                }
                Step::Wait { passed, .. } => {
                    self.let_pass(server, &mut flight, passed, remainder);
                    break;
                }
                Step::Invalid(fault) => {
                    scan.broken = Some(fault.to_string());
                    break;
                }
            }
            if scan.broken.is_some() {
                break;
            }
        }
        if !server.conversation.is_reply_pending() && server.boundaries.is_at_border() {
            self.give_due(server, &mut flight);
        }
        input.is_whole = flight.settle(&mut server.core.held);
        scan
    }

    /// Delivers rows and COPY data like the reply they belong to, after Evenkeel's due replies.
    fn let_pass(
        &mut self,
        server: &mut ServerConnection,
        flight: &mut StreamEditor<'_, '_>,
        passed: usize,
        remainder: usize,
    ) {
        let of_last = remainder.min(passed);
        self.hear_rows(flight.rest().get(..passed).unwrap_or_default());
        deliver(flight, server.passing, of_last);
        if passed > of_last {
            self.give_due(server, flight);
            server.passing = server.conversation.delivery();
            deliver(flight, server.passing, passed - of_last);
        }
    }

    /// Writes Evenkeel's own due replies, and undoes requests that an error discarded.
    fn give_due(&mut self, server: &mut ServerConnection, flight: &mut StreamEditor<'_, '_>) {
        while let Some(due) = server.conversation.due() {
            match due {
                DueAction::Answer(answer, token) => {
                    self.answer_given(token);
                    let status = server.conversation.status();
                    answer.write(flight.writer(), status);
                }
                due => self.passed_over(due, server),
            }
        }
    }

    fn event(
        &mut self,
        server: &mut ServerConnection,
        event: &Event<'_>,
        scan: &mut ScanResult,
    ) -> Delivery {
        if self.replicates() {
            return self.hear_replication(server, event, scan);
        }
        let was_idle = scan.is_ready && server.conversation.is_idle();
        let reply = match server.conversation.reply(event) {
            Ok(reply) => reply,
            Err(out_of_sync) => {
                scan.broken = Some(out_of_sync.to_string());
                return Delivery::Discard;
            }
        };
        self.hear_answer(server, event);
        if let Event::ParameterStatus(report) = event {
            return self.reported(server, *report, reply.delivery);
        }
        let is_reported = matches!(
            reply.outcome,
            ReplyOutcome::Ready | ReplyOutcome::Failed { .. }
        );
        scan.is_undecidable |= is_reported && !server.conversation.is_certain();
        match reply.outcome {
            ReplyOutcome::Parsed(token) => self.prepared(server, token, reply.delivery),
            ReplyOutcome::Closed(token) => self.answered(server, token, reply.delivery),
            ReplyOutcome::Nothing => {}
            ReplyOutcome::Suspended(token) => {
                self.active.has_done |= reply.delivery == Delivery::Forward;
                let _ = self.completed(server, token, 0);
            }
            ReplyOutcome::Completed { token, nth } => {
                let nth = usize::try_from(nth).unwrap_or(usize::MAX);
                if reply.delivery == Delivery::Forward {
                    self.has_done(event, nth);
                }
                scan.has_committed |= self.completed(server, token, nth);
            }
            ReplyOutcome::Ready => {
                scan.is_ready = true;
                self.ready(server);
            }
            ReplyOutcome::OursEnded(_) => {
                scan.ours_ended = true;
                self.settle(server);
            }
            ReplyOutcome::Failed { token, sqlstate } => {
                token.inspect(|token| self.request_failed(server, *token));
                if reply.delivery == Delivery::Discard || matches!(self.stage, Stage::Preparing(_))
                {
                    self.keep_own_error(event);
                    self.is_not_as_asked(server);
                    return Delivery::Discard;
                }
                self.doubt_statements(server, (sqlstate, token), event);
                self.failed(token, sqlstate, scan);
            }
            ReplyOutcome::Fatal(_) if self.is_nothing_to_its_client(was_idle) => {
                scan.has_left = was_idle || self.is_asking_only();
                scan.broken = Some("closed the connection".to_owned());
                return Delivery::Discard;
            }
            ReplyOutcome::Fatal(sqlstate) => {
                self.active.fatal_was_sent = reply.delivery == Delivery::Forward;
                self.handle_final_error(event, sqlstate, scan);
            }
        }
        reply.delivery
    }

    /// Returns whether a server's final error concerns no request of the client.
    fn is_nothing_to_its_client(&self, was_idle: bool) -> bool {
        let is_ours = self.is_preparing() || self.is_asking_only();
        is_ours || was_idle && self.may_go_on_elsewhere()
    }

    /// Marks prepared statements as outdated if the error suggests it.
    fn doubt_statements(
        &mut self,
        server: &mut ServerConnection,
        (sqlstate, token): (SqlState, Option<RequestToken>),
        event: &Event<'_>,
    ) {
        let is_old = is_of_old_plan(sqlstate, event);
        if is_old {
            self.account.plans_changed();
        }
        if is_old || is_missing(sqlstate, token) {
            server.prepared.outdate();
        }
    }

    fn handle_final_error(&mut self, event: &Event<'_>, sqlstate: SqlState, scan: &mut ScanResult) {
        scan.fails(failure_of(sqlstate));
        scan.broken = Some("closed the connection".to_owned());
        if !self.active.fatal_was_sent {
            self.keep_own_error(event);
        }
    }

    fn has_done(&mut self, event: &Event<'_>, nth: usize) {
        self.active.has_done = true;
        if let Event::CommandComplete(tag) = event {
            self.pending.completed(*tag, nth);
        }
    }

    /// Applies the effects of a completed or suspended statement. Returns whether it was a COMMIT.
    fn completed(
        &mut self,
        server: &mut ServerConnection,
        token: RequestToken,
        statement: usize,
    ) -> bool {
        self.statements.answered(token.0);
        self.unnamed.done(token);
        let Some(meaning) = self.effects.completed(token) else {
            return false;
        };
        self.state.succeeded(meaning, statement);
        self.listening
            .iter_mut()
            .for_each(|one| one.completed(meaning, statement));
        pinning::pin_by(self.core.handle, self.state.pins, meaning.source.as_deref());
        forget_statements(meaning, (token, statement), server, &mut self.statements);
        if discards_sequences(meaning, statement) {
            server.sequence_state = SequenceState::None;
            self.sequences.inherits_others = false;
            self.sequences.used_nextval = false;
        }
        let effects = meaning.effects_of(statement);
        effects
            .iter()
            .any(|effect| effect.kind == EffectKind::Commit)
    }

    fn prepared(&mut self, server: &mut ServerConnection, token: RequestToken, delivery: Delivery) {
        if let Some(id) = statement_of(token) {
            self.account.known.history.parsed.add(id);
        }
        self.answered(server, token, delivery);
    }

    /// Records that the server has completed a Parse or Close.
    fn answered(&mut self, server: &mut ServerConnection, token: RequestToken, delivery: Delivery) {
        if token.0 != 0 {
            server.given.closed(token.0);
        }
        self.unnamed.done(token);
        if delivery == Delivery::Forward {
            // The same statement may be prepared for another name.
            self.statements.answered(token.0);
        }
        if let Some(id) = statement_of(token) {
            server.prepared.confirm(id);
        }
    }

    fn failed(&mut self, token: Option<RequestToken>, sqlstate: SqlState, scan: &mut ScanResult) {
        self.pending.failed();
        self.portals.failed();
        self.listening.iter_mut().for_each(|one| one.failed());
        let is_for_query = |token: &RequestToken| token.0 & NAMED_FOR_QUERY != 0;
        scan.unnamed_query = scan.unnamed_query.or(token.filter(is_for_query));
        let meaning = token.and_then(|token| self.effects.completed(token));
        self.state.failed(meaning);
        match is_missing(sqlstate, token) {
            true => scan.fails(FailureKind::Unprepared),
            false => scan.fails(failure_of_error(sqlstate)),
        }
        if matches!(&sqlstate.0, b"25006" | b"57P01" | b"57P02" | b"57P03") {
            self.core.acquirer.request_role_check();
        }
    }

    fn is_not_as_asked(&mut self, server: &mut ServerConnection) {
        // The failed request may have been DISCARD SEQUENCES.
        (server.sequence_state, self.sequences.inherits_others) = (SequenceState::Mixed, true);
    }

    fn reported(
        &mut self,
        server: &mut ServerConnection,
        report: Option<(&[u8], &[u8])>,
        delivery: Delivery,
    ) -> Delivery {
        let Some((name, value)) = report else {
            self.pin_for(
                Pin::Settings,
                "a reported setting that is longer than is followed",
            );
            return delivery;
        };
        let interner = self.core.worker.interner();
        server.hear_setting(name, value, interner);
        if delivery == Delivery::Discard {
            return Delivery::Discard;
        }
        self.core.handle.hear_setting(name, value);
        match self.state.reported.record_report(name, value, interner) {
            true => Delivery::Forward,
            false => Delivery::Discard,
        }
    }

    fn ready(&mut self, server: &mut ServerConnection) {
        if !self.pending.is_as_read() {
            self.pin_for(
                Pin::Unknown,
                "a text of which the server ran more than was read",
            );
            self.active.writes();
        }
        let ran = self.pending.ended();
        if let Some(database_change) = &mut self.database_change {
            database_change.record_reply(ran.has_failed);
        }
        self.core.acquirer.release_failover_slot();
        let status = server.conversation.status();
        let is_idle = status == TransactionStatus::Idle;
        let interner = self.core.worker.interner();
        self.must_restore_startup |= self.state.ready(status, &mut server.settings, interner);
        if is_idle {
            self.state.pins.release(UnpinEvent::TransactionEnded);
            self.transaction_ended();
        }
        self.note_sequences(server);
        self.pins_changed();
        self.settle(server);
        self.active.since_us = self
            .core
            .acquirer
            .ends_work(self.active.since_us, &ran, is_idle);
        if server.conversation.pending_count() > 0 {
            self.core.handle.begins_next(self.core.worker);
        }
        if is_idle && self.active.may_write() && self.core.acquirer.is_at_primary() {
            self.wrote();
        }
    }

    /// Settles all pending state once no reply is outstanding.
    fn settle(&mut self, server: &mut ServerConnection) {
        if server.conversation.pending_count() > 0 {
            return;
        }
        server.prepared.settled();
        self.unnamed.settle();
        self.effects.settled();
        self.pending.settled();
        self.database_change = None;
        if server.conversation.status() == TransactionStatus::Idle {
            self.portals.clear();
        }
        if server.conversation.is_quiet() {
            self.effects.discards_ended();
        }
        if server.conversation.is_idle() {
            self.settings_settled();
        }
    }

    /// Forwards the client's bytes; `warning` bytes of them reply to no request.
    fn pass_on(&mut self, input: ServerInput<'_>, warning: usize) -> Result<(), ExitReason> {
        let length = input.length();
        if length == 0 {
            input.discard(self.core.worker);
            return Ok(());
        }
        if self.active.progress < Progress::Answered && length > warning {
            self.active.progress = Progress::Answered;
            self.active.cannot_run_again();
        }
        Ok(self.core.forward(input)?)
    }

    fn after(&mut self, scan: &ScanResult) -> Result<(), ExitReason> {
        if scan.ours_ended && matches!(self.stage, Stage::Preparing(_)) {
            let went_well = self.refused_setting.1.is_empty();
            return self.settings_placed(went_well);
        }
        if scan.ours_ended && self.is_asking() {
            return self.take_answer();
        }
        if scan.is_ready {
            self.active.is_sent = false;
            self.end_wait_for_replies();
            return self.release_if_idle();
        }
        if scan.unnamed_query.is_some() {
            self.end_skipped_query()?;
        }
        // After an error the server skips everything up to a Sync, which may be held.
        if !self.core.server.as_deref().is_some_and(will_end) {
            self.end_wait_for_replies();
        }
        let is_quiet = |server: &ServerConnection| server.conversation.is_quiet();
        if scan.ours_ended && self.core.server.as_deref().is_some_and(is_quiet) {
            return self.release_if_idle();
        }
        // There may be capacity for held input of a batch longer than what may be in flight.
        if !self.pending_input.is_empty() && self.takes_more() {
            self.continue_soon();
        }
        Ok(())
    }
}

fn deliver(flight: &mut StreamEditor<'_, '_>, delivery: Delivery, length: usize) {
    match delivery {
        Delivery::Forward => flight.keep(length),
        Delivery::Discard => flight.drop(length),
    }
}
