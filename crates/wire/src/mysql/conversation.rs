//! What a server connection still owes, reply by reply, and whether it may serve someone else.
//!
//! One [`Conversation`] goes with each server connection. It is told of every command that is sent
//! ([`Conversation::sent`]) and of every [`Event`] that comes back ([`Conversation::reply`]), keeps
//! the queue of replies that are due in between, and tells
//! [`Boundaries`](super::boundaries::Boundaries) what to expect ([`Conversation::answer_due`]).
//! Servers answer one command after the other, so that commands may be sent before earlier ones are
//! answered. Commands of ours travel among the client's and their replies are swallowed; replies
//! that we give ourselves wait for their turn.
//!
//! Where a command was sent behind one that made the server read something else (a client's file, a
//! step of a login) nobody can tell what the server made of it, and the conversation says so
//! ([`Conversation::is_certain`]): such a connection must not be used again.

use std::collections::VecDeque;
use std::fmt;

use super::StatementId;
use super::flags::Status;
use super::frontend::{self, Code};
use super::server_scanner::{Event, ExpectedReply};

mod statements;

pub use statements::Resolved;
use statements::Statements;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

/// What the caller wants back when a command is settled; it means nothing here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RequestToken(pub u64);

/// A command to the server, as far as replies are concerned. Statements are the server's numbers.
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
    /// whatever else OK, EOF or ERR answers.
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

/// Whose command it is, which decides who gets the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The client's: replies are passed on.
    Client,
    /// Ours: replies are swallowed.
    Ours,
}

/// Whether bytes of the server go to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// To the client.
    Forward,
    /// Nowhere: they answer a command of ours.
    Discard,
}

/// What a reply meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// Where its bytes go.
    pub delivery: Delivery,
    /// What is settled by it.
    pub settled: ReplyOutcome,
}

/// What is settled by a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyOutcome {
    /// Nothing yet.
    Nothing,
    /// The statement exists now, not before; definitions follow, then [`Settled::Done`].
    Prepared {
        /// Of the command.
        token: RequestToken,
        /// The server's number.
        statement: StatementId,
    },
    /// The command succeeded; its reply is complete.
    Done(RequestToken),
    /// The command failed, with this number.
    Failed(RequestToken, u16),
    /// The session is as new, by COM_RESET_CONNECTION or COM_CHANGE_USER: its prepared statements,
    /// variables, locks, temporary tables are gone.
    Renewed(RequestToken),
    /// The server wants the client's file, then [`Conversation::file_sent`].
    FileWanted,
    /// COM_CHANGE_USER: the server wants another step of the login.
    LoginGoesOn(RequestToken),
}

/// A reply that answers nothing: the server, or this code, has lost count. Close the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfSync;

impl fmt::Display for OutOfSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server sent an unexpected reply")
    }
}

impl std::error::Error for OutOfSync {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PendingReply {
    Request(Request),
    /// A reply that we give.
    Answer,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    owed: PendingReply,
    origin: Origin,
    token: RequestToken,
}

/// The replies that a server connection owes.
#[derive(Debug)]
pub struct Conversation {
    queue: VecDeque<Entry>,
    statements: Statements,
    status: Status,
    /// The server reads a client's file.
    file: bool,
    /// What the server will reply to can be told.
    certain: bool,
    /// The connection ends or has ended.
    ended: bool,
}

impl Conversation {
    /// Of a server connection whose login has just ended in OK, with this status.
    #[must_use]
    pub fn new(status: Status) -> Self {
        Conversation {
            queue: VecDeque::new(),
            statements: Statements::default(),
            status,
            file: false,
            certain: true,
            ended: false,
        }
    }

    /// The session's status as of the last reply that told.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status
    }

    /// How many replies are owed; the caller limits how many it lets be.
    #[must_use]
    pub fn owed(&self) -> usize {
        self.queue.len()
    }

    /// Whether another client could be served next, as far as the protocol tells: outside a
    /// transaction, nothing owed, no cursor open, no parameter sent in advance, nothing ambiguous.
    /// Pins are the caller's to know, autocommit being off among them.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let transaction = self.status.has(Status::IN_TRANSACTION);
        self.is_quiet() && !transaction && !self.statements.hold_anything()
    }

    /// As [`Conversation::is_idle`], but perhaps inside a transaction or with open cursors: a
    /// command of ours would be answered before anything else.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.certain && !self.ended && !self.file && self.queue.is_empty()
    }

    /// Whether replies can still be told apart. If not, everything is passed on as it comes, the
    /// connection must be closed when its client leaves, and nothing of ours may be sent on it.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        self.certain
    }

    /// Whether the server waits for a client's file.
    #[must_use]
    pub fn wants_file(&self) -> bool {
        self.file
    }

    /// Whether cursors are open.
    #[must_use]
    pub fn has_cursors(&self) -> bool {
        self.statements.has_cursors()
    }

    /// Whether values of parameters were sent in advance and not yet used.
    #[must_use]
    pub fn has_long_data(&self) -> bool {
        self.statements.has_long_data()
    }

    /// Which statement a number means; [`StatementId::LAST`] hangs on what was prepared before.
    #[must_use]
    pub fn resolve(&self, statement: StatementId) -> Resolved {
        let prepares = |entry: &Entry| entry.owed == PendingReply::Request(Request::Prepare);
        let pending = self.queue.iter().any(prepares);
        self.statements.resolve(statement, pending)
    }

    /// What the next reply answers; `None`: nothing is owed, or a reply of ours comes first.
    #[must_use]
    pub fn answer_due(&self) -> Option<ExpectedReply> {
        match self.queue.front()?.owed {
            PendingReply::Request(request) => answer(request),
            PendingReply::Answer => None,
        }
    }

    /// Where rows go that come now.
    #[must_use]
    pub fn delivery(&self) -> Delivery {
        match self.queue.front() {
            Some(Entry {
                origin: Origin::Ours,
                ..
            }) if self.certain => Delivery::Discard,
            _ => Delivery::Forward,
        }
    }

    /// A command is about to be sent. The token comes back when it is settled.
    pub fn sent(&mut self, request: Request, origin: Origin, token: RequestToken) {
        // While the server reads a file it takes a command for a piece of it.
        self.certain &= !self.file;
        self.ended |= matches!(request, Request::Quit | Request::BinlogDump);
        if request == Request::Quit {
            return;
        }
        let owed = PendingReply::Request(request);
        self.push(owed, origin, token);
        self.settle_silent();
    }

    /// The caller will give this reply itself, when its turn comes ([`Conversation::due`]).
    pub fn answer(&mut self, token: RequestToken) {
        self.push(PendingReply::Answer, Origin::Client, token);
    }

    /// It is the turn of a reply that the caller gives itself; ask until there is none, after each
    /// command sent and each reply received.
    pub fn due(&mut self) -> Option<RequestToken> {
        let front = self.queue.front()?;
        if front.owed != PendingReply::Answer {
            return None;
        }
        let token = front.token;
        self.queue.pop_front();
        self.settle_silent();
        Some(token)
    }

    /// The last packet of the client's file, the empty one, was sent: the server goes on.
    pub fn file_sent(&mut self) {
        self.file = false;
    }

    /// The server sent a packet that matters.
    ///
    /// # Errors
    /// It answers nothing that was asked.
    pub fn reply(&mut self, event: &Event<'_>) -> Result<Reply, OutOfSync> {
        let delivery = self.delivery();
        let entry = self.queue.front().copied().ok_or(OutOfSync)?;
        let PendingReply::Request(request) = entry.owed else {
            return Err(OutOfSync);
        };
        if let Some(status) = event.status() {
            self.status = status.without(OF_ONE_REPLY);
        }
        let settled = self.settle(request, event, entry.token)?;
        Ok(Reply { delivery, settled })
    }

    fn push(&mut self, owed: PendingReply, origin: Origin, token: RequestToken) {
        self.queue.push_back(Entry {
            owed,
            origin,
            token,
        });
    }

    /// Commands without a reply take effect when the server reaches them.
    fn settle_silent(&mut self) {
        while let Some(Entry {
            owed: PendingReply::Request(request),
            ..
        }) = self.queue.front()
        {
            match *request {
                Request::LongData(statement) => self.statements.long_data(statement),
                Request::Close(statement) => self.statements.close(statement),
                _ => return,
            }
            self.queue.pop_front();
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
                // Whatever was sent behind the query is read as the file.
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
        .and_then(|settled| {
            let file_answered = self.file && settled != ReplyOutcome::FileWanted;
            // An answer before the file ended: the server did not read all of it.
            if file_answered {
                Err(OutOfSync)
            } else {
                Ok(settled)
            }
        })
    }

    /// The reply is complete; `None`: it was an error.
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
            // The server closes a connection whose user it could not change.
            (Request::ChangeUser, None) => self.ended = true,
            _ => {}
        }
        self.pop();
    }

    fn pop(&mut self) {
        self.queue.pop_front();
        self.settle_silent();
    }
}

/// Flags that say something about one reply, not about the session.
const OF_ONE_REPLY: Status = Status(
    Status::MORE_RESULTS.0
        | Status::CURSOR_EXISTS.0
        | Status::LAST_ROW_SENT.0
        | Status::OUT_PARAMETERS.0
        | Status::SESSION_STATE_CHANGED.0,
);

impl Request {
    /// A command as read. The numbers of its statements must be the server's already.
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

/// What answers a command; `None`: nothing.
#[must_use]
pub fn answer(request: Request) -> Option<ExpectedReply> {
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
