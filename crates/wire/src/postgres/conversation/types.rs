//! The words in which a conversation is told and tells: requests, replies, what is due.

use std::fmt;

use crate::postgres::backend::SqlState;
use crate::postgres::{TransactionStatus, build};

/// What the caller wants back when a request is settled; it means nothing here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RequestToken(pub u64);

/// A message to the server, as far as replies are concerned.
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
    /// What a client's message asks for, by its tag and the first byte of its body if it has one;
    /// `None`: clients that are logged in send no such message.
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

/// Whose request it is, which decides who gets the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The client's: replies are passed on.
    Client,
    /// Ours: replies are swallowed.
    Ours,
}

/// A reply that the caller gives in the server's stead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocalReply {
    /// To a Parse of what the server has.
    ParseComplete,
    /// To a Bind.
    BindComplete,
    /// To a Close of what the server shall keep.
    CloseComplete,
    /// To a Describe of what returns no rows.
    NoData,
    /// To an Execute that did what this command tag says.
    Command(&'static str),
    /// To a Query that did what this command tag says: ReadyForQuery follows. A Query ends what
    /// extended requests before it began, which an answer cannot: only where
    /// [`Conversation::is_between_batches`](super::Conversation::is_between_batches).
    Query(&'static str),
}

impl LocalReply {
    /// Writes it, under the transaction's status as it is when its turn has come.
    pub fn write(self, out: &mut Vec<u8>, status: TransactionStatus) {
        match self {
            LocalReply::ParseComplete => build::empty(out, b'1'),
            LocalReply::BindComplete => build::empty(out, b'2'),
            LocalReply::CloseComplete => build::empty(out, b'3'),
            LocalReply::NoData => build::empty(out, b'n'),
            LocalReply::Command(tag) => build::command_complete(out, tag.as_bytes()),
            LocalReply::Query(tag) => {
                build::command_complete(out, tag.as_bytes());
                build::ready_for_query(out, status);
            }
        }
    }
}

/// Whether a message should go out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sending {
    /// Send it.
    Forward,
    /// Do not: the server would ignore it, and no reply will come. This is so between an error and
    /// the next Sync (§54.2.3: the server "reads and discards messages until a Sync is reached"),
    /// and for COPY data that comes late.
    Drop,
}

/// Whether bytes of the server go to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// To the client.
    Forward,
    /// Nowhere: they answer a request of ours.
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

/// What is settled by a reply. Tokens are those of the request that was replied to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyOutcome {
    /// Nothing yet.
    Nothing,
    /// The statement of this Parse exists now; not before.
    Parsed(RequestToken),
    /// What this Close names is gone.
    Closed(RequestToken),
    /// A statement of this Query, or this Execute, ended well: its effects are there, unless the
    /// transaction fails. The event has its command tag, or says that the text was empty.
    Completed {
        /// Of the Query or Execute.
        token: RequestToken,
        /// Which of the Query's statements it was, from 0; empty ones among others do not count.
        nth: u32,
    },
    /// This Execute has returned as many rows as it was to; its portal has more.
    Suspended(RequestToken),
    /// The server waits for the next command; see
    /// [`Conversation::status`](super::Conversation::status).
    Ready,
    /// A Query or Sync of ours ended.
    OursEnded(RequestToken),
    /// The request failed, or the pipeline of its Sync did.
    Failed {
        /// Of the request; `None`: nobody can tell which it was.
        token: Option<RequestToken>,
        /// How it failed.
        sqlstate: SqlState,
    },
    /// The connection ends (severity FATAL or PANIC).
    Fatal(SqlState),
}

/// Something for the caller to do now.
///
/// Ask until there is none: before each reply that is told; and after each message sent or
/// received, unless a reply follows with which an answer can go
/// ([`Conversation::owes_reply`](super::Conversation::owes_reply)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DueAction {
    /// It is the turn of the reply that the caller gives itself.
    Answer(LocalReply, RequestToken),
    /// An error made the server pass over this Parse: its statement does not exist.
    ParseDiscarded(RequestToken),
    /// An error made the server pass over this Close: what it names is still there.
    CloseDiscarded(RequestToken),
    /// An error came before this reply of ours: do not give it.
    AnswerDiscarded(LocalReply, RequestToken),
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
