//! The words in which a conversation is told and tells: requests, replies, what is due.

use std::fmt;

use crate::postgres::backend::SqlState;

/// What the caller wants back when a request is settled; it means nothing here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Token(pub u64);

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
    Swallow,
}

/// What a reply meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// Where its bytes go.
    pub delivery: Delivery,
    /// What is settled by it.
    pub settled: Settled,
}

/// What is settled by a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// Nothing yet.
    Nothing,
    /// The statement of this Parse exists now; not before.
    Parsed(Token),
    /// What this Close names is gone.
    Closed(Token),
    /// The server waits for the next command; see
    /// [`Conversation::status`](super::Conversation::status).
    Ready,
    /// A Query or Sync of ours ended.
    OursEnded(Token),
    /// The request failed, or the pipeline of its Sync did.
    Failed(SqlState),
    /// The connection ends (severity FATAL or PANIC).
    Fatal(SqlState),
}

/// Something for the caller to do now; ask until there is none, after each message sent or
/// received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// It is the turn of the reply that the caller gives itself.
    Answer(Token),
    /// An error made the server pass over this Parse: its statement does not exist.
    ParseDiscarded(Token),
    /// An error made the server pass over this Close: what it names is still there.
    CloseDiscarded(Token),
    /// An error came before this reply of ours: do not give it.
    AnswerDiscarded(Token),
}

/// A reply that answers nothing: the server, or this code, has lost count. Close the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfSync;

impl fmt::Display for OutOfSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server sent a reply that no request asked for")
    }
}

impl std::error::Error for OutOfSync {}
