//! Handles client input, one command at a time: answers what needs no server immediately, and
//! forwards the rest with statement ids replaced by those of the server.

use evenkeel_engine::socket::Chunk;
use evenkeel_policy::connection_pool::Condition;
use evenkeel_policy::route::retry::Progress;
use evenkeel_wire::mysql::conversation::{Origin, Request};
use evenkeel_wire::mysql::frame::{self, HEADER_LENGTH, PAYLOAD_LENGTH_MAX, Renumber};
use evenkeel_wire::mysql::frontend::Code;
use evenkeel_wire::mysql::{Parsed, StatementId};

use super::active_request::{ActiveRequest, CommandKind, CommandStatement};
use super::commands::RequestDisposition;
use super::error_reply::ErrorReply;
use super::server::Ask;
use super::{ExitReason, KEPT_LENGTH_MAX, MysqlExit, Session, Stage, TEXT_LENGTH_MAX};
use crate::error_catalog;
use crate::session::input::Input;

/// Length in bytes of the beginning of an execution that contains its parameter types: up to
/// 65,535, with three bytes each if they have no names.
const TYPES_LENGTH_MAX: usize = 256 * 1024;

/// Remainder of a payload, possibly of several packets, or of a file that has not been received.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RemainingPayload {
    /// Remaining bytes of the current packet.
    left: usize,
    /// True if another packet of the same payload follows.
    goes_on: bool,
    /// True for a file: payloads follow until an empty one.
    is_file: bool,
    /// Sequence number of the reply.
    pub(super) sequence: u8,
    renumber: Renumber,
}

impl RemainingPayload {
    /// Returns the remainder of a file whose transfer begins.
    pub(super) fn of_file() -> Self {
        Self {
            is_file: true,
            ..Self::default()
        }
    }

    /// Returns whether the rest is in the current packet.
    pub(super) fn is_one_packet(&self) -> bool {
        !self.goes_on && !self.is_file
    }

    /// Returns whether nothing remains.
    pub(super) fn is_over(&self) -> bool {
        self.left == 0 && !self.goes_on && !self.is_file
    }

    /// Begins with the packet that has this header.
    fn begin(header: frame::Header) -> Self {
        Self {
            left: header.frame_length(),
            goes_on: header.is_continued(),
            sequence: header.sequence.wrapping_add(1),
            ..Self::default()
        }
    }

    /// Returns how many of these bytes belong to the payload, and counts them as received.
    fn span(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        loop {
            let step = self.left.min(bytes.len() - at);
            at += step;
            self.left -= step;
            if self.left > 0 || self.is_over() {
                return at;
            }
            let Parsed::Frame(header, _) = frame::header(&bytes[at..]) else {
                return at;
            };
            // An empty packet ends the file, unless it only ends a payload of full packets.
            self.is_file &= header.payload_length > 0 || self.goes_on;
            self.left = header.frame_length();
            self.goes_on = header.is_continued();
            self.sequence = header.sequence.wrapping_add(1);
        }
    }
}

impl Session<'_> {
    /// Begins a command. Returns false if more input is required to process it.
    pub(super) fn begin(&mut self, input: Input<'_>) -> Result<bool, ExitReason> {
        if !self.rest.is_over() {
            return Ok(self.pass_over(&input));
        }
        let bytes = input.bytes();
        let Some(header) = command_of(bytes) else {
            self.hold(bytes);
            return Ok(false);
        };
        if header.sequence != 0 {
            let reply = ErrorReply::new(&error_catalog::PACKETS_OUT_OF_ORDER);
            return Err(ExitReason::Other(MysqlExit::Unasked(reply)));
        }
        if let Some(replaced) = self.with_own_values(header, bytes) {
            input.used_up(self.core.worker);
            return self.begin(Input::Owned(replaced));
        }
        let first = bytes.get(HEADER_LENGTH).copied();
        if first == Some(Code::StmtPrepare as u8) {
            // Applies even if the preparation fails: an execution of LAST must not run the previous
            // statement.
            self.statements.not_prepared();
        }
        self.rest = RemainingPayload::begin(header);
        let length = self.rest.span(bytes);
        let packet = &bytes[..length.min(header.frame_length())];
        let lost = match gets_loss_error(first) {
            true => self.postponed_error.take(),
            false => None,
        };
        let disposition = match lost {
            Some(error_reply) => RequestDisposition::Refuse(error_reply),
            None => {
                self.rules = None;
                let disposition = self.dispatch(&packet[HEADER_LENGTH..]);
                if disposition.is_err() {
                    // Commands after a COM_CHANGE_USER belong to the new user.
                    self.hold(&bytes[length..]);
                }
                disposition?
            }
        };
        let refused = match &disposition {
            RequestDisposition::Send(what, _) => self.refused_by_rule(what),
            RequestDisposition::Done | RequestDisposition::Refuse(_) => None,
        };
        match refused.map_or(disposition, RequestDisposition::Refuse) {
            RequestDisposition::Done => {
                self.hold(&bytes[length..]);
                input.used_up(self.core.worker);
            }
            RequestDisposition::Refuse(error_reply) => {
                self.is_not_executed(packet);
                self.row_count = None;
                self.hold(&bytes[length..]);
                input.used_up(self.core.worker);
                self.reply_error(error_reply);
            }
            RequestDisposition::Send(what, statement) => {
                let long_text = self.read_long_text(&packet[HEADER_LENGTH..]);
                self.new_unit(what, statement);
                self.active.long_text = long_text;
                self.send_on(input, length)?;
            }
        }
        Ok(true)
    }

    /// Returns whether the pending input is only the beginning of a command.
    pub(super) fn holds_too_little(&self) -> bool {
        let is_between = matches!(self.stage, Stage::Command) && self.rest.is_over();
        is_between && command_of(self.pending_input.bytes()).is_none()
    }

    /// Skips the rest of a rejected command. Returns false if none of it has been received.
    fn pass_over(&mut self, input: &Input<'_>) -> bool {
        let bytes = input.bytes();
        let length = self.rest.span(bytes);
        self.hold(&bytes[length..]);
        if self.rest.is_over()
            && let Some(error_reply) = self.refusal.take()
        {
            self.reply_error(error_reply);
        }
        length > 0
    }

    pub(super) fn new_unit(&mut self, what: CommandKind, statement: CommandStatement) {
        // The connection is used.
        self.core.acquirer.end_offer();
        self.active = ActiveRequest {
            what,
            statement,
            ..ActiveRequest::default()
        };
    }

    /// Sends the command to the session's server, or to one that it acquires.
    fn send_on(&mut self, input: Input<'_>, length: usize) -> Result<(), ExitReason> {
        let is_all = length == input.bytes().len();
        self.hold(&input.bytes()[length..]);
        self.active.is_kept = self.rest.is_over();
        let chunk = match input {
            Input::Owned(mut bytes) => {
                bytes.truncate(length);
                self.active.command = bytes;
                None
            }
            Input::Chunk(chunk) => {
                self.active.command = self.core.worker.take_spare();
                let command = &chunk.bytes()[..length];
                self.active.command.extend_from_slice(command);
                is_all.then_some(chunk)
            }
        };
        self.holding = None;
        self.core.handle.limit_query(self.rules.as_ref());
        let meaning = self.active.statement.meaning();
        let needs_query = meaning.is_some_and(|meaning| !meaning.needs.is_empty());
        if !needs_query && self.is_held_for_questions() && !self.stays_for_results() {
            self.release_server(Condition::Clean);
        }
        if let Err(error_reply) = self.leave_replica() {
            return self.refuse(error_reply);
        }
        if let Some(server) = self.core.server.take() {
            // The state of the previous statement that the command queries may be another client's
            // on this connection. A reset by the client has restored the server's own settings.
            let meaning = self.active.statement.meaning();
            let needs_query = meaning
                .is_some_and(|meaning| !self.shared.observed_reads.needs(meaning).is_empty());
            let _ = (needs_query || server.settings.must_restore()) && self.compare(&server);
            self.core.server = Some(server);
            self.active.since_us = self.core.acquirer.begins_work();
            return self.launch(chunk);
        }
        let view = self.core.permit.service().snapshot();
        let wanted = self.decide(&view);
        match self.acquire(wanted, &view)? {
            true => self.launch(chunk),
            false => Ok(()),
        }
    }

    /// Sends the required state to the acquired connection. The command is included if it may
    /// precede that state. `chunk`: the command as received, without other input.
    pub(super) fn launch(&mut self, chunk: Option<Chunk<'_>>) -> Result<(), ExitReason> {
        if !self.has_room_for_types() {
            return self.refuse(ErrorReply::new(&error_catalog::PARAMETER_TYPES_MISSING));
        }
        if !self.can_be_prepared() {
            return self.refuse(ErrorReply::new(&error_catalog::STATEMENT_SETTINGS_CHANGED));
        }
        let mut out = self.core.worker.take_spare();
        if self.ask_ahead(&mut out)? {
            self.stage = Stage::Preparing;
            return self.send_to_server(out);
        }
        self.send_command(out, chunk)
    }

    /// Sends the command itself, after the contents of `out`.
    pub(super) fn send_command(
        &mut self,
        mut out: Vec<u8>,
        chunk: Option<Chunk<'_>>,
    ) -> Result<(), ExitReason> {
        let Some(request) = self.request() else {
            self.core.worker.keep_spare(out);
            return self.refuse(ErrorReply::protocol("unknown prepared statement"));
        };
        let begin = out.len();
        let is_edited = self.active.what.number().is_some();
        self.meant();
        let Some(server) = &mut self.core.server else {
            return Ok(());
        };
        server
            .conversation
            .sent(request, Origin::Client, Ask::CLIENT);
        self.stage = match self.active.what {
            CommandKind::Binlog => Stage::Streaming,
            _ => Stage::Answer,
        };
        self.active.progress.reach(Progress::Sent);
        if begin == 0
            && !is_edited
            && let Some(chunk) = chunk
        {
            self.core.worker.keep_spare(out);
            return self.send_chunk(chunk);
        }
        drop(chunk);
        if begin == 0 && !is_edited && self.active.command.len() > KEPT_LENGTH_MAX {
            self.core.worker.keep_spare(out);
            self.active.is_kept = false;
            out = std::mem::take(&mut self.active.command);
        } else {
            out.extend_from_slice(&self.active.command);
        }
        if is_edited {
            self.edit(&mut out, begin).map_err(ExitReason::Fatal)?;
        }
        self.send_to_server(out)?;
        self.sent_part()
    }

    /// Returns the entry for the command in the conversation with the server.
    fn request(&mut self) -> Option<Request> {
        let there = match self.active.what.number() {
            Some(number) => self.server_statement(number)?,
            None => StatementId::default(),
        };
        Some(match &self.active.what {
            CommandKind::Query => Request::Query,
            CommandKind::Prepare(_) => Request::Prepare,
            CommandKind::Execute(_) | CommandKind::Bulk(_) => Request::Execute(there),
            CommandKind::Fetch(_) => Request::Fetch(there),
            CommandKind::LongData(_) => Request::LongData(there),
            CommandKind::ResetStatement(_) => Request::ResetStatement(there),
            CommandKind::FieldList => Request::FieldList,
            CommandKind::Statistics => Request::Statistics,
            CommandKind::Binlog => Request::BinlogDump,
            CommandKind::InitDb
            | CommandKind::Ping
            | CommandKind::Replica
            | CommandKind::Simple => Request::Simple,
        })
    }

    /// Forwards more of the command or of the file.
    pub(super) fn forward(&mut self, input: Input<'_>) -> Result<bool, ExitReason> {
        let bytes = input.bytes();
        let is_streaming = matches!(self.stage, Stage::Streaming);
        let length = match is_streaming {
            true => bytes.len(),
            false => self.rest.span(bytes),
        };
        if length == 0 {
            self.hold(bytes);
            input.used_up(self.core.worker);
            return Ok(false);
        }
        self.active.is_kept = false;
        if let Some(long_text) = &mut self.active.long_text {
            long_text.read(&bytes[..length]);
        }
        self.hold(&bytes[length..]);
        let excess = self.transcoder.difference();
        let is_file = matches!(self.stage, Stage::File);
        if is_file && excess != 0 {
            let mut out = self.core.worker.take_spare();
            out.extend_from_slice(&bytes[..length]);
            self.rest
                .renumber
                .apply(&mut out, 0_u8.wrapping_sub(excess));
            input.used_up(self.core.worker);
            self.send_to_server(out)?;
        } else {
            match input {
                Input::Chunk(chunk) if length == chunk.bytes().len() => self.send_chunk(chunk)?,
                Input::Chunk(chunk) => {
                    let mut out = self.core.worker.take_spare();
                    out.extend_from_slice(&chunk.bytes()[..length]);
                    drop(chunk);
                    self.send_to_server(out)?;
                }
                Input::Owned(mut held) => {
                    held.truncate(length);
                    self.send_to_server(held)?;
                }
            }
        }
        self.sent_part()?;
        Ok(true)
    }

    /// Updates the stage after a part of the command, possibly the last, was sent.
    fn sent_part(&mut self) -> Result<(), ExitReason> {
        if !self.rest.is_over() {
            return Ok(());
        }
        if matches!(self.stage, Stage::File) {
            self.stage = Stage::Answer;
            if let Some(server) = &mut self.core.server {
                server.conversation.file_sent();
            }
        }
        if matches!(self.active.what, CommandKind::LongData(_))
            && matches!(self.stage, Stage::Answer)
        {
            return self.end_unit();
        }
        Ok(())
    }

    fn send_chunk(&mut self, chunk: Chunk<'_>) -> Result<(), ExitReason> {
        let worker = self.core.worker;
        let Some(server) = &mut self.core.server else {
            return Ok(());
        };
        match server.core.stream.send_chunk(worker, chunk) {
            Ok(()) => Ok(()),
            Err(error) => self.server_lost(&error.to_string()),
        }
    }

    pub(super) fn send_to_server(&mut self, out: Vec<u8>) -> Result<(), ExitReason> {
        match self.core.send_to_server(out) {
            Ok(()) => Ok(()),
            Err(why) => self.server_lost(&why),
        }
    }
}

/// Returns whether a command receives the error about a transaction lost before it. Excluded are
/// commands without a reply, and those that end a transaction and reset the session.
fn gets_loss_error(first: Option<u8>) -> bool {
    let others = [
        Code::Quit,
        Code::StmtClose,
        Code::StmtSendLongData,
        Code::ChangeUser,
        Code::ResetConnection,
    ];
    first
        .and_then(Code::of)
        .is_none_or(|code| !others.contains(&code))
}

/// Returns the header of the command that begins here, if enough of the command has been received.
pub(super) fn command_of(bytes: &[u8]) -> Option<frame::Header> {
    let Parsed::Frame(header, _) = frame::header(bytes) else {
        return None;
    };
    let first = bytes.get(HEADER_LENGTH).copied();
    let is_enough = bytes.len() >= header.frame_length().min(needed(first));
    is_enough.then_some(header)
}

/// Returns how many bytes of a command are required to process it: texts are parsed whole, of other
/// commands only the beginning matters.
fn needed(first: Option<u8>) -> usize {
    match first.and_then(Code::of) {
        Some(Code::Query | Code::StmtPrepare) => HEADER_LENGTH + TEXT_LENGTH_MAX,
        Some(Code::StmtExecute | Code::StmtBulkExecute) => TYPES_LENGTH_MAX,
        Some(_) => KEPT_LENGTH_MAX,
        None => HEADER_LENGTH + 1,
    }
}

/// Returns whether a packet can take `more` bytes without becoming full.
pub(super) fn has_room(header: frame::Header, more: usize) -> bool {
    header.payload_length as usize + more < PAYLOAD_LENGTH_MAX as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rest(header: [u8; 4]) -> RemainingPayload {
        let Parsed::Frame(header, _) = frame::header(&header) else {
            panic!("no header");
        };
        RemainingPayload::begin(header)
    }

    #[test]
    fn a_command_ends_with_its_packet_however_it_is_cut() {
        let bytes = b"\x02\0\0\0\x0e!\x01\0\0\0\x01";
        for cut in 0..6 {
            let mut rest = rest([2, 0, 0, 0]);
            assert_eq!(rest.span(&bytes[..cut]), cut);
            assert!(!rest.is_over());
            assert_eq!(rest.span(&bytes[cut..]), 6 - cut);
            assert!(rest.is_over() && rest.sequence == 1);
        }
    }

    #[test]
    fn a_full_packet_goes_on_with_the_next_one_and_the_answer_counts_both() {
        let mut rest = rest([0xff, 0xff, 0xff, 0]);
        let full = vec![0; HEADER_LENGTH + PAYLOAD_LENGTH_MAX as usize];
        assert_eq!(rest.span(&full), full.len());
        assert!(!rest.is_over());
        assert_eq!(rest.span(b"\0\0\0"), 0, "a header is not cut");
        assert_eq!(rest.span(b"\0\0\0\x01more"), 4);
        assert!(rest.is_over() && rest.sequence == 2);
    }

    #[test]
    fn a_file_ends_with_an_empty_packet() {
        let mut rest = RemainingPayload::of_file();
        assert_eq!(rest.span(b"\x02\0\0\x02ab\x01\0\0\x03c"), 11);
        assert!(!rest.is_over());
        assert_eq!(rest.span(b"\0\0\0\x04more"), 4);
        assert!(rest.is_over() && rest.sequence == 5);
    }

    #[test]
    fn texts_are_waited_for_and_other_commands_only_as_far_as_they_are_looked_at() {
        assert!(command_of(b"\x05\0\0\0\x03").is_none());
        assert!(command_of(b"\x01\0\0\0\x0e").is_some());
        assert!(command_of(b"\0\0\0\0").is_some(), "no command at all");
        let mut long = b"\0\0\x10\0\x18".to_vec();
        assert!(command_of(&long).is_none());
        long.resize(KEPT_LENGTH_MAX, 0);
        assert!(command_of(&long).is_some(), "COM_STMT_SEND_LONG_DATA");
        long[HEADER_LENGTH] = Code::Query as u8;
        assert!(command_of(&long).is_none());
    }
}
