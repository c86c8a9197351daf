//! Holds the replies that a server owes, in their order, and defines what both databases say about
//! a reply.

use std::collections::VecDeque;
use std::fmt;

/// Token that the caller receives with the outcome of its request; opaque to the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RequestToken(pub u64);

/// Origin of a request, which decides the destination of its replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The client: replies are forwarded.
    Client,
    /// Evenkeel: replies are discarded.
    Ours,
}

/// Destination of bytes of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// The client.
    Forward,
    /// Discarded: they answer a request of Evenkeel.
    Discard,
}

/// Result of processing a reply. `O`: its outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply<O> {
    /// Destination of the reply's bytes.
    pub delivery: Delivery,
    /// Outcome of the reply.
    pub outcome: O,
}

/// A reply that answers no request: the server, or this code, has lost count. Close the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfSync;

impl fmt::Display for OutOfSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the server sent an unexpected reply")
    }
}

impl std::error::Error for OutOfSync {}

/// Reply that is expected. `P`: what it answers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry<P> {
    pub(crate) pending: P,
    pub(crate) origin: Origin,
    pub(crate) token: RequestToken,
}

/// Replies that a server owes, and local replies among them.
#[derive(Debug)]
pub(crate) struct ReplyQueue<P>(VecDeque<Entry<P>>);

impl<P: Copy> ReplyQueue<P> {
    pub(crate) fn new() -> Self {
        ReplyQueue(VecDeque::new())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the next reply.
    #[inline]
    pub(crate) fn first(&self) -> Option<&Entry<P>> {
        self.0.front()
    }

    /// Returns what the next reply answers.
    #[inline]
    pub(crate) fn front(&self) -> Option<P> {
        self.0.front().map(|entry| entry.pending)
    }

    /// Returns the next reply, which the server has begun to send.
    #[inline]
    pub(crate) fn answered(&self) -> Result<Entry<P>, OutOfSync> {
        self.0.front().copied().ok_or(OutOfSync)
    }

    /// Returns what the reply after the next one answers.
    pub(crate) fn second(&self) -> Option<P> {
        self.0.get(1).map(|entry| entry.pending)
    }

    /// Returns what the last reply answers.
    pub(crate) fn last(&self) -> Option<P> {
        self.0.back().map(|entry| entry.pending)
    }

    /// Returns whether a reply to such a request is owed.
    pub(crate) fn any(&self, is_such: impl Fn(P) -> bool) -> bool {
        self.0.iter().any(|entry| is_such(entry.pending))
    }

    pub(crate) fn push(&mut self, pending: P, origin: Origin, token: RequestToken) {
        self.0.push_back(Entry {
            pending,
            origin,
            token,
        });
    }

    pub(crate) fn pop(&mut self) {
        self.0.pop_front();
    }

    /// Removes the reply after the next one.
    pub(crate) fn remove_second(&mut self) {
        self.0.remove(1);
    }

    /// Returns the destination of bytes of the next reply. Without a certain order, all bytes are
    /// the client's.
    pub(crate) fn delivery(&self, is_certain: bool) -> Delivery {
        match self.0.front() {
            Some(entry) if is_certain && entry.origin == Origin::Ours => Delivery::Discard,
            _ => Delivery::Forward,
        }
    }
}
