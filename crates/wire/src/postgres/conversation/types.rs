//! Types of the conversation's interface: requests, replies, due actions.

use crate::postgres::backend::SqlState;
use crate::postgres::{TransactionStatus, build};
use crate::reply_queue::{self, RequestToken};

/// Kind of a message to the server, as relevant for replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// `Q`
    Query,
    /// `P`
    Parse,
    /// `B`
    Bind,
    /// `D` of a statement
    DescribeStatement,
    /// `D` of a portal
    DescribePortal,
    /// `E`
    Execute,
    /// `C` of a statement or a portal
    Close,
    /// `H`
    Flush,
    /// `S`
    Sync,
    /// `F`
    FunctionCall,
    /// `d`
    CopyData,
    /// `c` or `f`
    CopyEnd,
    /// `X`
    Terminate,
}

impl Request {
    /// Returns the kind of a client's message, by its tag and the first byte of its body if it has
    /// one. `None`: logged-in clients send no such message.
    #[must_use]
    #[inline]
    pub fn of(tag: u8, first_body_byte: Option<u8>) -> Option<Request> {
        Some(match (tag, first_body_byte) {
            (b'Q', _) => Request::Query,
            (b'P', _) => Request::Parse,
            (b'B', _) => Request::Bind,
            (b'D', Some(b'S')) => Request::DescribeStatement,
            (b'D', Some(b'P')) => Request::DescribePortal,
            (b'E', _) => Request::Execute,
            (b'C', Some(b'S' | b'P')) => Request::Close,
            (b'H', _) => Request::Flush,
            (b'S', _) => Request::Sync,
            (b'F', _) => Request::FunctionCall,
            (b'd', _) => Request::CopyData,
            (b'c' | b'f', _) => Request::CopyEnd,
            (b'X', _) => Request::Terminate,
            _ => return None,
        })
    }
}

/// Reply that the caller gives in place of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocalReply {
    /// Answers Parse of a statement that the server already has.
    ParseComplete,
    /// Answers Bind.
    BindComplete,
    /// Answers Close of a statement that the server keeps.
    CloseComplete,
    /// Answers Describe of a statement or portal that returns no rows.
    NoData,
    /// Answers Execute with this command tag.
    Command(&'static str),
    /// Answers Execute with one row that has the boolean true.
    True {
        /// True if the client receives the column in binary form.
        is_binary: bool,
    },
    /// Answers Query with this command tag, followed by ReadyForQuery. A Query ends an implicit
    /// transaction of earlier extended requests, which a local reply cannot. Allowed only where
    /// [`Conversation::is_between_batches`](super::Conversation::is_between_batches).
    Query(&'static str),
}

impl LocalReply {
    /// Writes the reply. `status` is the transaction status at the time it is due.
    pub fn write(self, out: &mut Vec<u8>, status: TransactionStatus) {
        match self {
            LocalReply::ParseComplete => build::empty(out, b'1'),
            LocalReply::BindComplete => build::empty(out, b'2'),
            LocalReply::CloseComplete => build::empty(out, b'3'),
            LocalReply::NoData => build::empty(out, b'n'),
            LocalReply::Command(tag) => build::command_complete(out, tag.as_bytes()),
            LocalReply::True { is_binary } => {
                let value: &[u8] = if is_binary { &[1] } else { b"t" };
                build::data_row(out, &[Some(value)]);
                build::command_complete(out, b"SELECT 1");
            }
            LocalReply::Query(tag) => {
                build::command_complete(out, tag.as_bytes());
                build::ready_for_query(out, status);
            }
        }
    }
}

/// Decision whether to send a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sending {
    /// Send it.
    Forward,
    /// Do not send it: the server would ignore it without a reply. Applies between an error and the
    /// next Sync (§54.2.3: the server "reads and discards messages until a Sync is reached"), and
    /// to late COPY data.
    Drop,
}

/// Result of processing a reply.
pub type Reply = reply_queue::Reply<ReplyOutcome>;

/// Outcome of a reply. Tokens are those of the request that was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyOutcome {
    /// No outcome yet.
    Nothing,
    /// The statement of this Parse exists from now on.
    Parsed(RequestToken),
    /// The statement or portal of this Close no longer exists.
    Closed(RequestToken),
    /// A statement of this Query, or this Execute, succeeded: its effects exist unless the
    /// transaction fails. The event has its command tag, or reports that the text was empty.
    Completed {
        /// Token of the Query or Execute.
        token: RequestToken,
        /// Index of the statement within the Query, from 0; empty statements among others do not
        /// count.
        nth: u32,
    },
    /// This Execute has reached its row limit; its portal has more rows.
    Suspended(RequestToken),
    /// The server waits for the next command; see
    /// [`Conversation::status`](super::Conversation::status).
    Ready,
    /// A Query or Sync of Evenkeel has ended.
    OursEnded(RequestToken),
    /// The request failed, or the pipeline of its Sync did.
    Failed {
        /// Token of the request; `None` if the failed request is unknown.
        token: Option<RequestToken>,
        /// SQLSTATE of the error.
        sqlstate: SqlState,
    },
    /// The server ends the connection (severity FATAL or PANIC).
    Fatal(SqlState),
}

/// Action that the caller must perform now.
///
/// Call `due` until there is none: before each reply that is reported, and after each message sent
/// or received. The exception is a following reply with which a local reply can be sent
/// ([`Conversation::is_reply_pending`](super::Conversation::is_reply_pending)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DueAction {
    /// Send this local reply.
    Answer(LocalReply, RequestToken),
    /// An error made the server discard this Parse: its statement does not exist.
    ParseDiscarded(RequestToken),
    /// An error made the server discard this Close: its statement or portal still exists.
    CloseDiscarded(RequestToken),
    /// An error made the server discard this Query or Execute: what it would have dropped still
    /// exists.
    RunDiscarded(RequestToken),
    /// An error precedes this local reply: do not send it.
    AnswerDiscarded(LocalReply, RequestToken),
}
