//! Forwards server output to the client: removes replies to Evenkeel's own commands, converts
//! formats that differ between both sides, and tracks the session state.

use std::sync::Arc;

use evenkeel_engine::socket::Chunk;
use evenkeel_policy::route::retry::{FailureKind, Progress, Retry};
use evenkeel_wire::mysql::backend::ErrorReport;
use evenkeel_wire::mysql::conversation::{Delivery, ReplyOutcome};
use evenkeel_wire::mysql::frame::HEADER_LENGTH;
use evenkeel_wire::mysql::rewrite::Rewrite;
use evenkeel_wire::mysql::server_scanner::{Event, ExpectedReply, HELD_LENGTH_MAX, Step};
use evenkeel_wire::mysql::{Parsed, frame};
use evenkeel_wire::stream_editor::StreamEditor;

use super::active_request::CommandKind;
use super::error_reply::ErrorReply;
use super::failure::failure_of;
use super::server::{Ask, ServerConnection};
use super::{AfterDiscard, ExitReason, Session, Stage};
use crate::error_catalog;
use crate::session::input::ServerInput;

/// Maximum length in bytes of the kept result of a wait or tracker query.
const WORD_LENGTH_MAX: usize = 4 * 1024;

/// Result of a scan of server output.
#[derive(Default)]
pub(super) struct ScanResult {
    /// True if the client's command has received its complete reply.
    pub(super) is_answered: bool,
    /// Failure that may permit a retry on another server.
    pub(super) failure: Option<FailureKind>,
    /// Error with which the server rejected a command of Evenkeel.
    pub(super) refused: Option<ErrorReply>,
    /// Reason why the connection ends or cannot be parsed further.
    pub(super) broken: Option<String>,
    pub(super) wants_file: bool,
}

impl Session<'_> {
    pub(super) fn receive(&mut self, chunk: Chunk<'_>) -> Result<(), ExitReason> {
        let Some((mut server, mut input)) = self.core.take_input(chunk) else {
            return Ok(());
        };
        let mut scan = self.scan(&mut server, &mut input);
        self.core.server = Some(server);
        if matches!(self.stage, Stage::DiscardReply(_)) {
            input.discard(self.core.worker);
            return self.swallowed(scan);
        }
        let is_ahead = matches!(self.stage, Stage::Preparing | Stage::Answer);
        if let Some(error_reply) = scan.refused.take().filter(|_| is_ahead) {
            input.discard(self.core.worker);
            return self.handle_own_rejection(error_reply, scan);
        }
        if let Some(failure) = scan.failure
            && let Retry::On(resend) = self.retry_after(failure)
        {
            input.discard(self.core.worker);
            return self.begin_retry(failure, resend, scan);
        }
        if scan.failure == Some(FailureKind::NotFresh) {
            input.discard(self.core.worker);
            let reply = ErrorReply::new(&error_catalog::REPLICA_TOO_LATE);
            return self.handle_own_rejection(reply, scan);
        }
        self.pass_on(input)?;
        match scan.broken {
            Some(why) if scan.is_answered => {
                self.end_unit()?;
                self.server_lost(&why)
            }
            Some(why) => self.server_lost(&why),
            None => self.after(&scan),
        }
    }

    /// Decides for each byte whether to forward it. Returns true if the input is forwarded
    /// unchanged.
    fn scan(&mut self, server: &mut ServerConnection, input: &mut ServerInput<'_>) -> ScanResult {
        let mut scan = ScanResult::default();
        let mut flight = input.editor();
        loop {
            self.cut_rest(server, &mut flight);
            let rest = flight.rest();
            let Some(answer) = server.conversation.expected_reply() else {
                if !rest.is_empty() {
                    scan.broken = Some(last_word(rest));
                }
                break;
            };
            match server.boundaries.next(rest, answer) {
                Step::Event {
                    passed,
                    event,
                    length,
                } => {
                    self.pass(server, &mut flight, passed, &scan);
                    let packet = &rest[passed..passed + length];
                    self.event(server, &mut flight, (&event, packet), &mut scan);
                }
                Step::Wait { passed, .. } => {
                    self.pass(server, &mut flight, passed, &scan);
                    break;
                }
                Step::Invalid(fault) => scan.broken = Some(fault.to_string()),
            }
            if scan.broken.is_some() {
                break;
            }
        }
        input.is_whole = flight.settle(&mut server.core.held);
        scan
    }

    /// Forwards or drops the rest of a packet of which only the beginning was held.
    fn cut_rest(&mut self, server: &mut ServerConnection, flight: &mut StreamEditor<'_, '_>) {
        let length = server.remainder.min(flight.rest().len());
        if length == 0 {
            return;
        }
        server.remainder -= length;
        // The expected reply does not matter within a packet.
        let rest = flight.rest().get(..length).unwrap_or_default();
        let _ = server.boundaries.next(rest, ExpectedReply::Simple);
        match server.passing {
            Delivery::Forward => keep(&mut self.transcoder, flight, length),
            Delivery::Discard => flight.drop(length),
        }
    }

    /// Forwards or drops rows and definitions.
    fn pass(
        &mut self,
        server: &ServerConnection,
        flight: &mut StreamEditor<'_, '_>,
        passed: usize,
        scan: &ScanResult,
    ) {
        if passed == 0 {
            return;
        }
        let is_own = server.conversation.delivery() == Delivery::Discard;
        let is_kept = match is_own {
            true => self.active.wait.is_some() || self.takes_back(),
            false => self.answers_lock(),
        };
        let word = flight.rest().get(..passed).unwrap_or_default();
        if is_own {
            self.hear_user_variables(word);
        }
        if is_kept && self.active.word.len() + passed <= WORD_LENGTH_MAX {
            self.active.word.extend_from_slice(word);
        }
        match self.delivery(server, scan) {
            Delivery::Forward => keep(&mut self.transcoder, flight, passed),
            Delivery::Discard => flight.drop(passed),
        }
    }

    fn delivery(&self, server: &ServerConnection, scan: &ScanResult) -> Delivery {
        let is_nobody_s = matches!(self.stage, Stage::DiscardReply(_))
            || scan.refused.is_some()
            || scan.failure == Some(FailureKind::NotFresh);
        match is_nobody_s {
            true => Delivery::Discard,
            false => server.conversation.delivery(),
        }
    }

    /// Handles a packet that affects the state, or a boundary between packets.
    fn event(
        &mut self,
        server: &mut ServerConnection,
        flight: &mut StreamEditor<'_, '_>,
        (event, packet): (&Event<'_>, &[u8]),
        scan: &mut ScanResult,
    ) {
        let delivery = self.delivery(server, scan);
        server.passing = delivery;
        server.remainder = remainder(packet);
        let interner = self.core.worker.interner();
        server.apply_trackers(event, interner);
        let is_own = server.conversation.delivery() == Delivery::Discard;
        let settled = match server.conversation.reply(event) {
            Ok(reply) => reply.outcome,
            Err(out_of_sync) => {
                scan.broken = Some(out_of_sync.to_string());
                return flight.drop(packet.len());
            }
        };
        if is_own {
            server.boundaries.take_rows();
            self.handle_own_reply(server, event, settled, scan);
            return flight.drop(packet.len());
        }
        if delivery == Delivery::Discard {
            if let ReplyOutcome::Prepared { statement, .. } = settled {
                // The retry prepares it on another server; no session would close it here.
                server.closing.push(statement);
            }
            note_end(event, scan);
            return flight.drop(packet.len());
        }
        self.client_event(server, event, settled, scan);
        self.rewrite(flight, event, packet, scan);
    }

    fn handle_own_reply(
        &mut self,
        server: &mut ServerConnection,
        event: &Event<'_>,
        settled: ReplyOutcome,
        scan: &mut ScanResult,
    ) {
        if matches!(
            self.stage,
            Stage::DiscardReply(AfterDiscard::Answered { .. })
        ) || self.takes_back()
        {
            self.hear_trackers(event);
        }
        match settled {
            ReplyOutcome::Done(token) => match Ask::of(token) {
                Some(Ask::Settings) => self.setting_placed(server),
                Some(Ask::Several(takes)) => server.takes_several = takes,
                Some(Ask::Trackers) => server.shows_trackers = false,
                Some(Ask::Other) => self.statements_hold(server),
                Some(Ask::Wait) if !self.is_caught_up() => {
                    scan.failure = Some(FailureKind::NotFresh)
                }
                Some(Ask::Wait) => self.caught_up(),
                _ => {}
            },
            ReplyOutcome::Prepared { statement, .. } => {
                let is_right = scan.refused.is_none() && matches!(self.stage, Stage::Preparing);
                match self.unit_statement().filter(|_| is_right) {
                    Some(id) => self.record_prepared(server, id, statement),
                    // The schema of the preparation is uncertain.
                    None => server.closing.push(statement),
                }
            }
            ReplyOutcome::Renewed(_) => server.renewed(self.core.worker.interner()),
            ReplyOutcome::Failed(token, _) => {
                note_end(event, scan);
                if let Event::Error(report) = event {
                    self.record_error(Ask::of(token), report, scan);
                }
            }
            _ => {}
        }
    }

    fn client_event(
        &mut self,
        server: &mut ServerConnection,
        event: &Event<'_>,
        settled: ReplyOutcome,
        scan: &mut ScanResult,
    ) {
        self.long_text_ended();
        self.hear_trackers(event);
        self.count_of_reply(event);
        if let Event::Ok(ok) = event {
            let affected = &mut self.active.rows_affected;
            *affected = affected.wrapping_add(ok.affected_rows);
        }
        match settled {
            ReplyOutcome::Nothing | ReplyOutcome::Done(_) => self.result_came(server, event),
            ReplyOutcome::Prepared { statement, .. } => self.prepared(server, event, statement),
            ReplyOutcome::FileWanted => scan.wants_file = true,
            ReplyOutcome::Failed(..) => {
                note_end(event, scan);
                if let Event::Error(report) = event {
                    self.failed(server, report, scan);
                }
            }
            ReplyOutcome::Renewed(_) | ReplyOutcome::LoginGoesOn(_) => {}
        }
        if matches!(settled, ReplyOutcome::Done(_) | ReplyOutcome::Failed(..)) {
            scan.is_answered = true;
            let is_ok = matches!(settled, ReplyOutcome::Done(_));
            self.answered(server, is_ok);
        }
    }

    fn failed(
        &mut self,
        server: &mut ServerConnection,
        report: &ErrorReport<'_>,
        scan: &mut ScanResult,
    ) {
        self.active.has_failed = true;
        scan.failure = Some(failure_of(report));
        self.text_failed(server, report.code);
        if let CommandKind::Execute(number) | CommandKind::Bulk(number) = self.active.what
            && let Some(named) = self.statements.get(number)
        {
            server.prepared.forget_types(named.statement.id);
        }
        let Some(at) = &self.core.acquirer.at else {
            return;
        };
        let is_doubtful = report.is_fatal()
            || report.is_without_cluster()
            || report.is_read_only() && !at.is_replica;
        if is_doubtful {
            self.core.acquirer.request_role_check();
        }
    }

    /// Converts a packet to the format agreed on with the client.
    fn rewrite(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        event: &Event<'_>,
        packet: &[u8],
        scan: &mut ScanResult,
    ) {
        let mut out = self.core.worker.take_spare();
        let session_state = &self.state;
        let mut rewrite = self.transcoder.event(event, packet, &mut out, |tracker| {
            session_state.shows(tracker)
        });
        let is_prepared = matches!(event, Event::PrepareOk(_));
        let is_unread = matches!(event, Event::Error(report) if report.is_unread());
        if is_prepared || is_unread {
            if rewrite == Rewrite::Same {
                out.extend_from_slice(packet);
            }
            match is_prepared {
                true => self.rename(&mut out),
                false => set_sequence(&mut out, self.rest.sequence),
            }
            rewrite = Rewrite::Written;
        }
        match rewrite {
            Rewrite::Same => flight.keep(packet.len()),
            Rewrite::Written => {
                flight.insert(&out);
                flight.drop(packet.len());
            }
            Rewrite::Impossible => {
                scan.broken = Some("sent a packet that is too long to rewrite".to_owned());
                // The client still waits, and receives the error.
                scan.is_answered = false;
                flight.drop(packet.len());
            }
        }
        self.core.worker.keep_spare(out);
    }

    fn pass_on(&mut self, input: ServerInput<'_>) -> Result<(), ExitReason> {
        if input.length() == 0 {
            input.discard(self.core.worker);
            return Ok(());
        }
        self.active.progress.reach(Progress::Answered);
        self.active.is_kept = false;
        Ok(self.core.forward(input)?)
    }

    fn unit_statement(&self) -> Option<u64> {
        match (&self.active.what, self.active.what.number()) {
            (CommandKind::Prepare(statement), _) => Some(statement.id),
            (_, Some(number)) => Some(self.statements.get(number)?.statement.id),
            _ => None,
        }
    }

    fn prepared(
        &mut self,
        server: &mut ServerConnection,
        event: &Event<'_>,
        number: evenkeel_wire::mysql::StatementId,
    ) {
        let CommandKind::Prepare(statement) = &self.active.what else {
            return;
        };
        let statement = Arc::clone(statement);
        let parameters = match event {
            Event::PrepareOk(ok) => ok.parameters,
            _ => 0,
        };
        let rules = self.rules.take();
        self.statements.prepared(&statement, parameters, rules);
        self.record_prepared(server, statement.id, number);
    }
}

fn set_sequence(packet: &mut [u8], sequence: u8) {
    if let Some(number) = packet.get_mut(HEADER_LENGTH - 1) {
        *number = sequence;
    }
}

/// Keeps bytes of the input; renumbers them if the client has received additional packets.
fn keep(
    transcoder: &mut evenkeel_wire::mysql::rewrite::Transcoder,
    flight: &mut StreamEditor<'_, '_>,
    length: usize,
) {
    if transcoder.difference() == 0 {
        return flight.keep(length);
    }
    let bytes = flight.rest().get(..length).unwrap_or_default();
    let out = flight.writer();
    let begin = out.len();
    out.extend_from_slice(bytes);
    transcoder.passed(&mut out[begin..]);
    flight.drop(length);
}

/// Returns how much of a packet longer than the hold limit has not been received.
fn remainder(packet: &[u8]) -> usize {
    if packet.len() < HELD_LENGTH_MAX {
        return 0;
    }
    match frame::header(packet) {
        Parsed::Frame(header, _) => header.frame_length().saturating_sub(packet.len()),
        _ => 0,
    }
}

fn note_end(event: &Event<'_>, scan: &mut ScanResult) {
    if let Event::Error(report) = event
        && report.is_fatal()
    {
        scan.broken = Some(format!(
            "closed the connection: {}",
            String::from_utf8_lossy(report.message)
        ));
    }
}

/// Returns the reason why the server ends the connection, from an unsolicited packet.
fn last_word(bytes: &[u8]) -> String {
    let report = match frame::frame(bytes, frame::PRE_AUTH_LENGTH_MAX) {
        Parsed::Frame(packet, _) => ErrorReport::read(packet.payload),
        _ => None,
    };
    match report {
        Some(report) => format!(
            "closed the connection: {}",
            String::from_utf8_lossy(report.message)
        ),
        None => "sent an unexpected reply".to_owned(),
    }
}
