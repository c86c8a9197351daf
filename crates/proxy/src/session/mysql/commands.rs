//! Dispatches client commands, and executes and answers those that need no server.

use std::sync::Arc;

use evenkeel_wire::mysql::backend::{Eof, OkPacket};
use evenkeel_wire::mysql::flags::{Capabilities, Status};
use evenkeel_wire::mysql::frontend::{self, Code};
use evenkeel_wire::mysql::{PacketKind as Malformed, ProtocolError, StatementId, build};

use super::active_request::{CommandKind, CommandStatement};
use super::error_reply::ErrorReply;
use super::row_count::NO_COUNT;
use super::{AfterDiscard, ExitReason, MysqlExit, Session, Stage, TEXT_LENGTH_MAX};
use crate::error_catalog::{self, CatalogEntry};
use crate::session::statement_interner::OF_CLIENT_MAX;
use evenkeel_sql::session_state::mysql::{Kill, TextAnalysis};

/// Result of the dispatch of a command.
pub(super) enum RequestDisposition {
    /// The command was answered, needs no reply, or is being executed.
    Done,
    /// The command must be sent to a server.
    Send(CommandKind, CommandStatement),
    /// The command is rejected with this error.
    Refuse(ErrorReply),
}

/// Rejects a command with an error without details.
fn refusal(entry: &CatalogEntry) -> RequestDisposition {
    RequestDisposition::Refuse(ErrorReply::new(entry))
}

impl<'a> Session<'a> {
    /// Dispatches a command, and executes it if it needs no server.
    pub(super) fn dispatch(&mut self, payload: &[u8]) -> Result<RequestDisposition, ExitReason> {
        use frontend::Request as Command;
        let command = match frontend::request(payload, self.handshake.agreed) {
            Ok(command) => command,
            Err(fault) if is_no_command(fault) => {
                return Ok(refusal(&error_catalog::UNKNOWN_COMMAND));
            }
            Err(fault) => return Ok(RequestDisposition::Refuse(ErrorReply::protocol(fault))),
        };
        self.count_of_command(&command);
        let has_server = self.core.server.is_some();
        Ok(match command {
            Command::Quit => return Err(ExitReason::ClientLeft),
            Command::ChangeUser(_) if self.rest.is_over() => {
                return Err(ExitReason::Other(MysqlExit::ChangesUser(payload.to_vec())));
            }
            Command::ChangeUser(_) => RequestDisposition::Refuse(ErrorReply::protocol(
                "COM_CHANGE_USER packet too \
                 long",
            )),
            Command::Query { text, .. } => self.dispatch_query(text),
            Command::Prepare { text } => self.dispatch_prepare(text),
            Command::Execute(execute) => self.dispatch_execute(&execute),
            Command::BulkExecute { statement, .. } => {
                self.dispatch_statement(statement, "EXECUTE", CommandKind::Bulk)
            }
            Command::LongData { statement, .. } => self.dispatch_long_data(statement),
            Command::Fetch { statement, .. } => self.dispatch_fetch(statement),
            Command::Reset(statement) => self.dispatch_reset(statement),
            Command::Close(statement) => self.close_statement(statement),
            Command::SetOption { multi_statements } => {
                self.takes_several = multi_statements;
                self.answer_eof();
                RequestDisposition::Done
            }
            Command::Ping if !has_server => {
                self.answer_ok();
                RequestDisposition::Done
            }
            Command::ResetConnection => {
                self.renew()?;
                RequestDisposition::Done
            }
            Command::ProcessKill(id) => self.kill(u64::from(id), false),
            Command::InitDb(_) => {
                RequestDisposition::Send(CommandKind::InitDb, self.analysis_of_init_db())
            }
            Command::FieldList { .. } => {
                RequestDisposition::Send(CommandKind::FieldList, CommandStatement::Nothing)
            }
            Command::BinlogDump { .. } => {
                RequestDisposition::Send(CommandKind::Binlog, CommandStatement::Nothing)
            }
            Command::Ping => RequestDisposition::Send(CommandKind::Ping, CommandStatement::Nothing),
            Command::Other { code, .. } => {
                RequestDisposition::Send(other(code), CommandStatement::Nothing)
            }
        })
    }

    /// Returns the analysis of COM_INIT_DB: that of a USE statement, for any schema.
    fn analysis_of_init_db(&self) -> CommandStatement {
        CommandStatement::Text(Arc::new(self.state.read(b"USE any", None)))
    }

    /// Handles COM_QUERY. The text is complete, or too long to be parsed.
    fn dispatch_query(&mut self, text: &[u8]) -> RequestDisposition {
        let is_whole = self.rest.is_over();
        let meaning = match is_whole {
            true => self.read_query(text),
            false => Arc::new(TextAnalysis::unreadable()),
        };
        if is_whole && self.answers_alone(text) {
            return RequestDisposition::Done;
        }
        match meaning.kill {
            Kill::None => {}
            Kill::Of { connection, query } => return self.kill(connection, query),
            Kill::Unknown => return refusal(&error_catalog::KILL_OF_SERVER_ID),
        }
        self.apply_rules(is_whole.then_some(text));
        RequestDisposition::Send(CommandKind::Query, CommandStatement::Text(meaning))
    }

    /// Handles COM_STMT_PREPARE.
    fn dispatch_prepare(&mut self, text: &[u8]) -> RequestDisposition {
        if !self.rest.is_over() {
            let entry = &error_catalog::STATEMENT_TOO_LONG;
            return RequestDisposition::Refuse(ErrorReply::with(entry, &[&TEXT_LENGTH_MAX]));
        }
        self.apply_rules(Some(text));
        let statement = self.intern(text);
        if statement.meaning.kills() {
            return refusal(&error_catalog::KILL_PREPARED);
        }
        if !self.statements.has_room(&statement) {
            return RequestDisposition::Refuse(ErrorReply::with(
                &error_catalog::TOO_MANY_STATEMENTS,
                &[&OF_CLIENT_MAX],
            ));
        }
        let (digest, dialect) = (statement.meaning.digest, self.state.dialect());
        self.core.service.enter(digest, text, dialect);
        let analyzed = CommandStatement::Statement(Arc::clone(&statement));
        self.shared.observed_reads.note(statement.meaning.needs);
        RequestDisposition::Send(CommandKind::Prepare(statement), analyzed)
    }

    /// Handles COM_STMT_EXECUTE.
    fn dispatch_execute(&mut self, execute: &frontend::Execute<'_>) -> RequestDisposition {
        let disposition =
            self.dispatch_statement(execute.statement, "EXECUTE", CommandKind::Execute);
        self.record_holding(&disposition, execute.wants_cursor());
        disposition
    }

    /// Records whether the statement will hold a cursor or long data on the server after the
    /// command.
    fn record_holding(&mut self, disposition: &RequestDisposition, holds: bool) {
        let RequestDisposition::Send(what, _) = disposition else {
            return;
        };
        if let Some(number) = what.number() {
            self.statements.will_hold(number, holds);
        }
    }

    /// Handles a command that refers to a prepared statement of the client.
    fn dispatch_statement(
        &mut self,
        statement: StatementId,
        of: &str,
        what: impl Fn(u32) -> CommandKind,
    ) -> RequestDisposition {
        let number = self.statements.number(statement);
        if self
            .core
            .server
            .as_ref()
            .is_some_and(|server| server.holds_for_statements())
        {
            self.statements.separate(number);
        }
        let Some(named) = self.statements.get(number) else {
            let of = format!("mysqld_stmt_{}", of.to_lowercase());
            return RequestDisposition::Refuse(ErrorReply::with(
                &error_catalog::UNKNOWN_STATEMENT,
                &[&statement.0, &of],
            ));
        };
        let statement = Arc::clone(&named.statement);
        let what = what(number);
        if named.lacks_data && self.goes_without(number, &what) {
            return refusal(&error_catalog::LONG_DATA_LOST);
        }
        self.reapply_rules(number);
        let current = self.current(number, &statement);
        let (digest, dialect) = (current.meaning.digest, self.state.dialect());
        self.core.service.enter(digest, &current.text, dialect);
        RequestDisposition::Send(what, CommandStatement::Statement(current))
    }

    /// Handles a command on a statement that has lost a part of its long data. Returns whether the
    /// command must be rejected: an execution, or a further part.
    ///
    /// A further part is not sent to a server, where a later execution would take it for the
    /// beginning of its own value. Any other command discards the parts that reached a server; an
    /// execution discards them when it is rejected.
    fn goes_without(&mut self, number: u32, what: &CommandKind) -> bool {
        if matches!(what, CommandKind::LongData(_)) {
            return true;
        }
        let is_run = matches!(what, CommandKind::Execute(_) | CommandKind::Bulk(_));
        if !is_run {
            self.discard_long_data(number);
        }
        is_run
    }

    /// Discards long data of the statement. As on a server, an execution discards it even if it is
    /// rejected.
    pub(super) fn discard_long_data(&mut self, number: u32) {
        let Some(named) = self.statements.get_mut(number) else {
            return;
        };
        named.lacks_data = false;
        let statement = named.statement.id;
        if let Some(server) = &mut self.core.server
            && server.holds_for_statements()
        {
            server.resets.extend(server.prepared.number(statement));
        }
    }

    /// Handles COM_STMT_SEND_LONG_DATA, which has no reply, even on failure.
    fn dispatch_long_data(&mut self, statement: StatementId) -> RequestDisposition {
        let server = self.core.server.as_ref();
        let is_held = server.is_some_and(|server| server.holds_for_statements());
        self.statements
            .make_own(self.statements.number(statement), is_held);
        match self.dispatch_statement(statement, "SEND_LONG_DATA", CommandKind::LongData) {
            RequestDisposition::Refuse(_) => RequestDisposition::Done,
            disposition => {
                self.record_holding(&disposition, true);
                disposition
            }
        }
    }

    fn dispatch_fetch(&mut self, statement: StatementId) -> RequestDisposition {
        match self.dispatch_statement(statement, "FETCH", CommandKind::Fetch) {
            RequestDisposition::Send(..) if self.core.server.is_none() => {
                RequestDisposition::Refuse(ErrorReply::with(
                    &error_catalog::NO_OPEN_CURSOR,
                    &[&statement.0],
                ))
            }
            disposition => disposition,
        }
    }

    /// Handles COM_STMT_RESET. A statement that the server does not have needs no reset.
    fn dispatch_reset(&mut self, statement: StatementId) -> RequestDisposition {
        let disposition = self.dispatch_statement(statement, "RESET", CommandKind::ResetStatement);
        if let RequestDisposition::Send(what, _) = &disposition
            && what
                .number()
                .is_some_and(|number| !self.is_on_server(number))
        {
            let server = self.core.server.iter_mut();
            server.for_each(|server| server.owes_ping = true);
            self.answer_ok();
            return RequestDisposition::Done;
        }
        disposition
    }

    /// Handles COM_STMT_CLOSE. The server's statement is shared and stays open, but is reset if it
    /// holds a cursor or long data of this client.
    fn close_statement(&mut self, statement: StatementId) -> RequestDisposition {
        let number = self.statements.number(statement);
        let Some(named) = self.statements.remove(number) else {
            return RequestDisposition::Done;
        };
        let Some(server) = &mut self.core.server else {
            return RequestDisposition::Done;
        };
        let holds = named.holds && server.holds_for_statements();
        let there = server.prepared.number(named.statement.id);
        server.resets.extend(there.filter(|_| holds));
        RequestDisposition::Done
    }

    /// Sends COM_STMT_RESET and COM_STMT_CLOSE for the statements to reset or close at the server.
    pub(super) fn send_closes(&mut self) {
        let mut out = self.core.worker.take_spare();
        if let Some(server) = &mut self.core.server {
            server.close_statements(&mut out);
            // A failure is reported by the next receive.
            let _ = server.core.stream.send_own(self.core.worker, out);
        }
    }

    /// Handles COM_RESET_CONNECTION: on the server if the session has one, otherwise only locally.
    fn renew(&mut self) -> Result<(), ExitReason> {
        self.statements.clear();
        let Some(server) = &mut self.core.server else {
            self.begin_anew();
            self.answer_ok();
            return Ok(());
        };
        let mut out = self.core.worker.take_spare();
        server.reset_connection(&mut out);
        self.stage = Stage::DiscardReply(AfterDiscard::Renewed { is_clean: true });
        self.send_to_server(out)
    }

    /// Returns the status of the session's server, or the equivalent if it has none.
    fn status(&self) -> Status {
        match &self.core.server {
            Some(server) => server.conversation.status(),
            None => self.state.status(),
        }
    }

    pub(super) fn answer_ok(&mut self) {
        let ok = OkPacket {
            status: self.status(),
            ..OkPacket::default()
        };
        let (sequence, agreed) = (self.rest.sequence, self.handshake.agreed);
        build::ok(self.core.answers(), sequence, &ok, agreed);
    }

    /// Answers the command with an error, after all of it has been received.
    pub(super) fn reply_error(&mut self, error_reply: ErrorReply) {
        if self.rest.is_over() {
            let sequence = self.rest.sequence;
            error_reply.write(sequence, self.core.answers());
        } else {
            self.refusal = Some(error_reply);
        }
    }

    fn answer_eof(&mut self) {
        let (sequence, agreed) = (self.rest.sequence, self.handshake.agreed);
        let status = self.status();
        let warnings = 0;
        let out = self.core.answers();
        if agreed.has(Capabilities::DEPRECATE_EOF) {
            let ok = OkPacket {
                status,
                ..OkPacket::default()
            };
            build::ok_as_eof(out, sequence, &ok, agreed);
        } else {
            build::eof(out, sequence, Eof { warnings, status });
        }
    }

    /// Answers a query for a single value that differs on the server connection: the connection id
    /// of KILL, or the GTID of the session's last write. Returns false for any other query.
    fn answers_alone(&mut self, text: &[u8]) -> bool {
        let Some(pending) = selected(text) else {
            return false;
        };
        if let Some(name) = alone(pending, b"CONNECTION_ID()") {
            let id = self.handshake.id as u32;
            self.answer_value(name, NUMBER, id.to_string().as_bytes());
            return true;
        }
        if !self.state.modes().mariadb {
            return false;
        }
        let written: [&[u8]; 2] = [b"@@last_gtid", b"@@session.last_gtid"];
        let mut written = written.into_iter();
        let name = written.find_map(|written| alone(pending, written));
        if let Some(name) = name {
            let gtid: Box<[u8]> = self.state.last_gtid().into();
            self.answer_value(name, TEXT, &gtid);
        }
        name.is_some()
    }

    /// Sends a result set of one row and one column.
    fn answer_value(&mut self, name: &[u8], kind: Definition, value: &[u8]) {
        let (first, agreed) = (self.rest.sequence, self.handshake.agreed);
        let status = self.status();
        let out = self.core.answers();
        let mut sequence = build::column_count(out, first, 1, agreed);
        sequence = column(out, sequence, (name, kind), agreed);
        let warnings = 0;
        if !agreed.has(Capabilities::DEPRECATE_EOF) {
            sequence = build::eof(out, sequence, Eof { warnings, status });
        }
        self.rest.sequence = build::text_row(out, sequence, &[Some(value)]);
        self.answer_eof();
        self.row_count = Some(NO_COUNT);
    }
}

/// End of a column definition: length of these fields, character set, maximum value length, type,
/// flags and decimals.
type Definition = [u8; 13];

/// Binary, 21 digits, BIGINT; flags NOT NULL, UNSIGNED and BINARY.
const NUMBER: Definition = [12, 63, 0, 21, 0, 0, 0, 8, 0xa1, 0, 0, 0, 0];

/// Character set utf8mb4_general_ci, 1,024 bytes, VARCHAR.
const TEXT: Definition = [12, 45, 0, 0, 4, 0, 0, 253, 0, 0, 39, 0, 0];

/// Writes the definition of a column without a table; `name` has fewer than 256 bytes.
fn column(
    out: &mut Vec<u8>,
    sequence: u8,
    (name, kind): (&[u8], Definition),
    agreed: Capabilities,
) -> u8 {
    build::packet(out, sequence, |out| {
        let texts: [&[u8]; 6] = [b"def", b"", b"", b"", name, name];
        for text in texts {
            out.push(u8::try_from(text.len()).unwrap_or_default());
            out.extend_from_slice(text);
        }
        if agreed.has(Capabilities::EXTENDED_METADATA) {
            out.push(0);
        }
        out.extend_from_slice(&kind);
    })
}

/// Returns whether servers, too, reject the command or its option as unknown.
fn is_no_command(fault: ProtocolError) -> bool {
    const OPTION: Malformed = Malformed::Command(Code::SetOption as u8);
    let is_unknown = matches!(fault, ProtocolError::UnknownCommand(_));
    is_unknown
        || fault == ProtocolError::Malformed(Malformed::Empty)
        || fault == ProtocolError::Malformed(OPTION)
}

/// Returns whether a text selects CONNECTION_ID() alone, which needs no server.
pub(super) fn asks_connection_id_alone(text: &[u8]) -> bool {
    selected(text).is_some_and(|pending| alone(pending, b"CONNECTION_ID()").is_some())
}

/// Returns the select list and the rest of a SELECT statement.
fn selected(text: &[u8]) -> Option<&[u8]> {
    let text = text.trim_ascii();
    let text = text.strip_suffix(b";").unwrap_or(text).trim_ascii();
    Some(after(text, b"SELECT ")?.trim_ascii_start())
}

/// Returns the column name if the text selects only `what`. Any other name or expression is left to
/// the server.
fn alone<'t>(pending: &'t [u8], what: &[u8]) -> Option<&'t [u8]> {
    let (written, rest) = pending.split_at_checked(what.len())?;
    if !written.eq_ignore_ascii_case(what) {
        return None;
    }
    if rest.is_empty() {
        return Some(written);
    }
    let name = after(rest, b" AS ").unwrap_or(rest.strip_prefix(b" ")?);
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let is_name = !name.is_empty() && name.len() < 64 && name.iter().all(is_plain);
    is_name.then_some(name)
}

/// Returns the text after `word` if `text` begins with it.
fn after<'a>(text: &'a [u8], word: &[u8]) -> Option<&'a [u8]> {
    let (first, rest) = text.split_at_checked(word.len())?;
    first.eq_ignore_ascii_case(word).then_some(rest)
}

fn other(code: Code) -> CommandKind {
    match code {
        Code::Statistics => CommandKind::Statistics,
        Code::ProcessInfo => CommandKind::Query,
        Code::RegisterSlave => CommandKind::Replica,
        _ => CommandKind::Simple,
    }
}

#[cfg(test)]
mod tests {
    use super::{alone, selected};

    fn column(text: &str) -> Option<&[u8]> {
        alone(selected(text.as_bytes())?, b"CONNECTION_ID()")
    }

    #[test]
    fn a_text_that_asks_for_its_connection_s_number_alone_is_answered() {
        for (text, column) in [
            ("SELECT CONNECTION_ID()", "CONNECTION_ID()"),
            (" select  connection_id() ; ", "connection_id()"),
            ("select connection_id() as id", "id"),
            ("select connection_id() id;", "id"),
        ] {
            assert_eq!(self::column(text), Some(column.as_bytes()), "{text}");
        }
        for text in [
            "select connection_id(), 1",
            "select connection_id() + 1",
            "select connection_id() from t",
            "select connection_id() as 'a b'",
            "select connection_id()id()",
            "select 1",
        ] {
            assert_eq!(column(text), None, "{text}");
        }
    }
}
