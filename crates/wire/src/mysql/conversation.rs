//! Tracks the replies that a server connection owes, and whether it may serve another session.
//!
//! Each server connection has one [`Conversation`]. The caller reports every command that is sent
//! ([`Conversation::sent`]) and every [`Event`] received ([`Conversation::reply`]). In between, the
//! conversation keeps the queue of pending replies. It returns to
//! [`ServerScanner`](super::server_scanner::ServerScanner) which reply to expect
//! ([`Conversation::expected_reply`]). Servers answer one command after the other, so commands may
//! be sent before earlier ones are answered. Evenkeel's own commands are sent among the client's,
//! and their replies are discarded. Local replies, which Evenkeel gives itself, wait until they
//! are first in the queue.
//!
//! A command may follow one that made the server read other data (a client's file, a step of a
//! login). The server's interpretation of it is then unknown, and [`Conversation::is_certain`]
//! returns false: such a connection must not be used again.

use super::StatementId;
use super::flags::Status;
use super::frontend::{self, Code};
use super::server_scanner::{Event, ExpectedReply};
use crate::reply_queue::{self, ReplyQueue};
pub use crate::reply_queue::{Delivery, Origin, OutOfSync, RequestToken};

mod statements;

pub use statements::Resolved;
use statements::Statements;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

/// Kind of a command to the server, as relevant for replies. Statement ids are those of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// COM_QUERY, COM_PROCESS_INFO
    Query,
    /// COM_STMT_PREPARE
    Prepare,
    /// COM_STMT_EXECUTE, COM_STMT_BULK_EXECUTE
    Execute(StatementId),
    /// COM_STMT_FETCH
    Fetch(StatementId),
    /// COM_STMT_SEND_LONG_DATA
    LongData(StatementId),
    /// COM_STMT_RESET
    ResetStatement(StatementId),
    /// COM_STMT_CLOSE
    Close(StatementId),
    /// COM_PING, COM_INIT_DB, COM_SET_OPTION, COM_PROCESS_KILL, COM_DEBUG, COM_REGISTER_SLAVE and
    /// every other command that OK, EOF or ERR answers.
    Simple,
    /// COM_FIELD_LIST
    FieldList,
    /// COM_STATISTICS
    Statistics,
    /// COM_RESET_CONNECTION
    ResetConnection,
    /// COM_CHANGE_USER
    ChangeUser,
    /// COM_BINLOG_DUMP, COM_BINLOG_DUMP_GTID
    BinlogDump,
    /// COM_QUIT
    Quit,
}

/// Result of processing a reply.
pub type Reply = reply_queue::Reply<ReplyOutcome>;

/// Outcome of a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyOutcome {
    /// No outcome yet.
    Nothing,
    /// The statement exists from now on; definitions follow, then [`ReplyOutcome::Done`].
    Prepared {
        /// Token of the command.
        token: RequestToken,
        /// Id of the statement at the server.
        statement: StatementId,
    },
    /// The command succeeded; its reply is complete.
    Done(RequestToken),
    /// The command failed, with this error number.
    Failed(RequestToken, u16),
    /// COM_RESET_CONNECTION or COM_CHANGE_USER has reset the session: its prepared statements,
    /// variables, locks and temporary tables no longer exist.
    Renewed(RequestToken),
    /// The server requests the client's file; [`Conversation::file_sent`] must follow.
    FileWanted,
    /// COM_CHANGE_USER: the server requests another step of the login.
    LoginGoesOn(RequestToken),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PendingReply {
    Request(Request),
    /// A local reply.
    Answer,
}

/// Pending replies of one server connection.
#[derive(Debug)]
pub struct Conversation {
    queue: ReplyQueue<PendingReply>,
    statements: Statements,
    status: Status,
    /// True while the server reads a client's file.
    file: bool,
    /// True if the server's next replies can be predicted.
    certain: bool,
    /// True if the connection ends or has ended.
    ended: bool,
}

impl Conversation {
    /// Creates the conversation of a server connection whose login has just ended in OK, with this
    /// status.
    #[must_use]
    pub fn new(status: Status) -> Self {
        Conversation {
            queue: ReplyQueue::new(),
            statements: Statements::default(),
            status,
            file: false,
            certain: true,
            ended: false,
        }
    }

    /// Returns the session's status as of the last reply that contained it.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status
    }

    /// Returns how many replies are pending; the caller limits their number.
    #[must_use]
    pub fn pending_count(&self) -> usize {
        self.queue.len()
    }

    /// Returns whether another client can be served next according to the protocol: outside a
    /// transaction, with no pending reply, open cursor, parameter sent in advance or ambiguity.
    /// Pins are tracked by the caller, including disabled autocommit.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let transaction = self.status.has(Status::IN_TRANSACTION);
        self.is_quiet() && !transaction && !self.statements.is_any_held()
    }

    /// Returns whether a command of Evenkeel would be answered next: like
    /// [`Conversation::is_idle`], but possibly inside a transaction or with open cursors.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.certain && !self.ended && !self.file && self.queue.is_empty()
    }

    /// Returns whether replies can still be attributed to commands. If not, all bytes are forwarded
    /// unchanged, the connection must be closed when its client disconnects, and no command of
    /// Evenkeel may be sent on it.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        self.certain
    }

    /// Returns whether the server waits for a client's file.
    #[must_use]
    pub fn wants_file(&self) -> bool {
        self.file
    }

    /// Returns whether cursors are open.
    #[must_use]
    pub fn has_cursors(&self) -> bool {
        self.statements.has_cursors()
    }

    /// Returns whether parameter values were sent in advance and not used yet.
    #[must_use]
    pub fn has_long_data(&self) -> bool {
        self.statements.has_long_data()
    }

    /// Returns the statement of an id; [`StatementId::LAST`] depends on the statements prepared
    /// before.
    #[must_use]
    pub fn resolve(&self, statement: StatementId) -> Resolved {
        let prepares = |pending| pending == PendingReply::Request(Request::Prepare);
        let pending = self.queue.any(prepares);
        self.statements.resolve(statement, pending)
    }

    /// Returns the kind of the next reply. `None`: no reply is pending, or a local reply is first.
    #[must_use]
    pub fn expected_reply(&self) -> Option<ExpectedReply> {
        match self.queue.front()? {
            PendingReply::Request(request) => expected_reply(request),
            PendingReply::Answer => None,
        }
    }

    /// Returns the destination of the rows that are received now.
    #[must_use]
    pub fn delivery(&self) -> Delivery {
        self.queue.delivery(self.certain)
    }

    /// Registers a command that is about to be sent. The token is returned with the outcome.
    pub fn sent(&mut self, request: Request, origin: Origin, token: RequestToken) {
        // While the server reads a file, it treats a command as a part of the file.
        self.certain &= !self.file;
        self.ended |= matches!(request, Request::Quit | Request::BinlogDump);
        if request == Request::Quit {
            return;
        }
        let pending = PendingReply::Request(request);
        self.queue.push(pending, origin, token);
        self.settle_silent();
    }

    /// Registers a reply that the caller gives itself when it is due ([`Conversation::due`]).
    pub fn add_local_reply(&mut self, token: RequestToken) {
        self.queue.push(PendingReply::Answer, Origin::Client, token);
    }

    /// Returns the token of a local reply that is due. Call it until there is none, after each
    /// command sent and each reply received.
    pub fn due(&mut self) -> Option<RequestToken> {
        let front = self.queue.first()?;
        if front.pending != PendingReply::Answer {
            return None;
        }
        let token = front.token;
        self.queue.pop();
        self.settle_silent();
        Some(token)
    }

    /// Marks the client's file as sent, including the empty packet that ends it: the server
    /// continues.
    pub fn file_sent(&mut self) {
        self.file = false;
    }

    /// Processes a relevant packet of the server.
    ///
    /// # Errors
    ///
    /// Fails if the packet answers no command.
    pub fn reply(&mut self, event: &Event<'_>) -> Result<Reply, OutOfSync> {
        let delivery = self.delivery();
        let entry = self.queue.answered()?;
        let PendingReply::Request(request) = entry.pending else {
            return Err(OutOfSync);
        };
        if let Some(status) = event.status() {
            self.status = status.without(OF_ONE_REPLY);
        }
        let outcome = self.settle(request, event, entry.token)?;
        Ok(Reply { delivery, outcome })
    }

    /// Applies commands that have no reply, in the order in which the server reaches them.
    fn settle_silent(&mut self) {
        while let Some(PendingReply::Request(request)) = self.queue.front() {
            match request {
                Request::LongData(statement) => self.statements.long_data(statement),
                Request::Close(statement) => self.statements.close(statement),
                _ => return,
            }
            self.queue.pop();
        }
    }

    fn settle(
        &mut self,
        request: Request,
        event: &Event<'_>,
        token: RequestToken,
    ) -> Result<ReplyOutcome, OutOfSync> {
        let more = |status: Status| status.has(Status::MORE_RESULTS);
        match event {
            Event::Error(report) => {
                self.finish(request, None);
                self.file = false;
                Ok(ReplyOutcome::Failed(token, report.code))
            }
            Event::Ok(ok) if more(ok.status) => Ok(ReplyOutcome::Nothing),
            Event::Eof(eof) if more(eof.status) => Ok(ReplyOutcome::Nothing),
            Event::ResultEnd(end) if more(end.status()) => Ok(ReplyOutcome::Nothing),
            Event::Ok(_) | Event::Eof(_) | Event::ResultEnd(_) | Event::Text => {
                self.finish(request, event.status());
                Ok(match request {
                    Request::ResetConnection | Request::ChangeUser => ReplyOutcome::Renewed(token),
                    _ => ReplyOutcome::Done(token),
                })
            }
            Event::PrepareOk(ok) => {
                let statement = ok.statement;
                self.statements.prepared(Some(statement));
                Ok(ReplyOutcome::Prepared { token, statement })
            }
            Event::Complete => {
                self.pop();
                Ok(ReplyOutcome::Done(token))
            }
            Event::LocalInfile { .. } => {
                // Commands sent after the query are read as the file.
                self.certain &= self.queue.len() == 1;
                self.file = true;
                Ok(ReplyOutcome::FileWanted)
            }
            Event::Login(_) => {
                self.certain &= self.queue.len() == 1;
                Ok(ReplyOutcome::LoginGoesOn(token))
            }
            Event::ResultHeader { .. } | Event::MetadataEnd { .. } | Event::Progress => {
                Ok(ReplyOutcome::Nothing)
            }
        }
        .and_then(|outcome| {
            let file_answered = self.file && outcome != ReplyOutcome::FileWanted;
            // A reply before the file ended: the server did not read all of it.
            if file_answered {
                Err(OutOfSync)
            } else {
                Ok(outcome)
            }
        })
    }

    /// Finishes a command whose reply is complete; `None` means an error.
    fn finish(&mut self, request: Request, status: Option<Status>) {
        match (request, status) {
            (Request::Prepare, None) => self.statements.prepared(None),
            (Request::Execute(statement), status) => {
                let status = status.unwrap_or_default();
                let cursor = status.has(Status::CURSOR_EXISTS);
                self.statements.executed(statement, cursor);
            }
            (Request::Fetch(statement), Some(status)) if status.has(Status::LAST_ROW_SENT) => {
                self.statements.cursor_ended(statement);
            }
            (Request::ResetStatement(statement), Some(_)) => self.statements.reset(statement),
            (Request::ResetConnection | Request::ChangeUser, Some(_)) => {
                self.statements = Statements::default();
            }
            // The server closes a connection after a failed change of user.
            (Request::ChangeUser, None) => self.ended = true,
            _ => {}
        }
        self.pop();
    }

    fn pop(&mut self) {
        self.queue.pop();
        self.settle_silent();
    }
}

/// Flags that describe one reply, not the session.
const OF_ONE_REPLY: Status = Status(
    Status::MORE_RESULTS.0
        | Status::CURSOR_EXISTS.0
        | Status::LAST_ROW_SENT.0
        | Status::OUT_PARAMETERS.0
        | Status::SESSION_STATE_CHANGED.0,
);

impl Request {
    /// Returns the kind of a parsed command. Its statement ids must already be those of the server.
    #[must_use]
    pub fn of(request: &frontend::Request<'_>) -> Request {
        match *request {
            frontend::Request::Query { .. } => Request::Query,
            frontend::Request::Prepare { .. } => Request::Prepare,
            frontend::Request::Execute(execute) => Request::Execute(execute.statement),
            frontend::Request::BulkExecute { statement, .. } => Request::Execute(statement),
            frontend::Request::LongData { statement, .. } => Request::LongData(statement),
            frontend::Request::Fetch { statement, .. } => Request::Fetch(statement),
            frontend::Request::Close(statement) => Request::Close(statement),
            frontend::Request::Reset(statement) => Request::ResetStatement(statement),
            frontend::Request::FieldList { .. } => Request::FieldList,
            frontend::Request::ChangeUser(_) => Request::ChangeUser,
            frontend::Request::ResetConnection => Request::ResetConnection,
            frontend::Request::Quit => Request::Quit,
            frontend::Request::BinlogDump { .. } => Request::BinlogDump,
            frontend::Request::Other { code, .. } => match code {
                Code::Statistics => Request::Statistics,
                Code::ProcessInfo => Request::Query,
                _ => Request::Simple,
            },
            frontend::Request::InitDb(_)
            | frontend::Request::SetOption { .. }
            | frontend::Request::ProcessKill(_)
            | frontend::Request::Ping => Request::Simple,
        }
    }
}

/// Returns the kind of reply to a command; `None` if it has none.
#[must_use]
pub fn expected_reply(request: Request) -> Option<ExpectedReply> {
    Some(match request {
        Request::Query | Request::Execute(_) => ExpectedReply::Results,
        Request::Prepare => ExpectedReply::Prepare,
        Request::Fetch(_) => ExpectedReply::Rows,
        Request::FieldList => ExpectedReply::Definitions,
        Request::Statistics => ExpectedReply::Text,
        Request::ChangeUser => ExpectedReply::Login,
        Request::BinlogDump => ExpectedReply::Stream,
        Request::Simple | Request::ResetStatement(_) | Request::ResetConnection => {
            ExpectedReply::Simple
        }
        Request::LongData(_) | Request::Close(_) | Request::Quit => return None,
    })
}
