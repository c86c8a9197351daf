//! Streams of a connection and their states (RFC 9113 §5.1).

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use super::error::StreamId;
use super::window::{ReceiveWindow, SendWindow, TooLarge};

/// State of a stream whose exchange is unfinished. [`Stream::advance`] alone changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Both sides may send.
    Open { body: Body },
    /// The client has ended its side: "half-closed (remote)".
    ClientEnded,
    /// We have ended our side: "half-closed (local)".
    ServerEnded { body: Body },
    /// Ended on both sides, or reset; the exchange goes on until its server side has stopped.
    Closed,
}

/// Request body that the client owes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    /// Content-Length: exactly this many bytes (RFC 9113 §8.1.1).
    Length { left: u64 },
    /// Up to END_STREAM.
    Unknown,
    /// Is discarded: the head was refused.
    Discarded,
}

/// Error: DATA does not agree with Content-Length.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LengthMismatch;

impl Body {
    /// Counts the data of a frame, perhaps the last one.
    fn take(&mut self, bytes: u32, end: bool) -> Result<(), LengthMismatch> {
        if let Body::Length { left } = self {
            *left = left.checked_sub(u64::from(bytes)).ok_or(LengthMismatch)?;
        }
        match self {
            Body::Length { left: 1.. } if end => Err(LengthMismatch),
            _ => Ok(()),
        }
    }
}

/// Event that changes the state of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    ClientEnded,
    ServerEnded,
    Reset,
}

/// Data of ours that a shut window holds up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    No,
    /// Since a time that the next check sets: writing has no clock.
    Unseen,
    /// Since a check after the last byte that the windows let through.
    Since {
        ms: u64,
    },
}

/// Stream whose exchange is unfinished.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: StreamId,
    state: State,
    pub(super) send: SendWindow,
    pub(super) receive: ReceiveWindow,
    /// Bytes of DATA that the caller was given, or will be given, and has not released.
    pub(super) held: u32,
    pub(super) waiting: Waiting,
}

impl Stream {
    /// Creates the stream of a request. `body` is `None` if the head ended it.
    pub(super) fn new(
        id: StreamId,
        body: Option<Body>,
        send: SendWindow,
        receive: ReceiveWindow,
    ) -> Self {
        let state = body.map_or(State::ClientEnded, |body| State::Open { body });
        Stream {
            id,
            state,
            send,
            receive,
            held: 0,
            waiting: Waiting::No,
        }
    }

    /// Changes the state.
    pub(super) fn advance(&mut self, change: Change) {
        self.state = match (self.state, change) {
            (State::Open { .. }, Change::ClientEnded) => State::ClientEnded,
            (State::Open { body }, Change::ServerEnded) => State::ServerEnded { body },
            (State::ClientEnded, Change::ServerEnded)
            | (State::ServerEnded { .. }, Change::ClientEnded)
            | (_, Change::Reset) => State::Closed,
            (state, Change::ClientEnded | Change::ServerEnded) => state,
        };
        if !self.may_send() {
            self.waiting = Waiting::No;
        }
    }

    /// Returns whether it was reset, or is ended on both sides.
    #[inline]
    pub(super) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// Returns whether we may send HEADERS and DATA.
    #[inline]
    pub(super) fn may_send(&self) -> bool {
        matches!(self.state, State::Open { .. } | State::ClientEnded)
    }

    /// Returns the body that the client still sends.
    #[inline]
    pub(super) fn body(&self) -> Option<Body> {
        match self.state {
            State::Open { body } | State::ServerEnded { body } => Some(body),
            State::ClientEnded | State::Closed => None,
        }
    }

    /// Counts the data of a DATA frame towards the body.
    pub(super) fn take(&mut self, bytes: u32, end: bool) -> Result<(), LengthMismatch> {
        match &mut self.state {
            State::Open { body } | State::ServerEnded { body } => body.take(bytes, end),
            State::ClientEnded | State::Closed => Ok(()),
        }
    }
}

/// Number of streams that we reset and whose frames may still be under way.
const RESET_MAX: usize = 128;

/// All streams whose exchange is unfinished, and what is known of the others.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// Sorted by number.
    list: Vec<Stream>,
    /// The highest number that the client has used.
    last: u32,
    /// Numbers that the client skipped last: these streams were never opened.
    skipped: Option<RangeInclusive<u32>>,
    /// Streams that we reset while the client was sending, in the order of the resets.
    reset: VecDeque<StreamId>,
    /// The highest number that has left `reset`.
    reset_before: u32,
}

/// Stream without an unfinished exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gone {
    /// Never opened: its number is too high, even, or was skipped.
    Idle,
    /// Frames that the client sent before it knew of our reset may arrive.
    ResetByUs,
    /// The client ended or reset it.
    Ended,
}

impl Streams {
    #[inline]
    pub(super) fn find(&mut self, id: StreamId) -> Option<&mut Stream> {
        let at = self.list.binary_search_by_key(&id, |stream| stream.id);
        self.list.get_mut(at.ok()?)
    }

    /// Returns what happened to a stream that has no exchange, or whose state is closed.
    pub(super) fn gone(&self, id: StreamId) -> Gone {
        let number = id.get();
        let was_skipped = self.skipped.as_ref().is_some_and(|s| s.contains(&number));
        if !id.is_of_client() || number > self.last || was_skipped {
            return Gone::Idle;
        }
        match number <= self.reset_before || self.reset.contains(&id) {
            true => Gone::ResetByUs,
            false => Gone::Ended,
        }
    }

    /// Counts a stream that the client opens.
    pub(super) fn open(&mut self, id: StreamId) {
        let next = self.last.saturating_add(if self.last == 0 { 1 } else { 2 });
        if id.get() > next {
            self.skipped = Some(next..=id.get().saturating_sub(1));
        }
        self.last = id.get();
    }

    /// Adds the exchange of the stream that was opened last.
    pub(super) fn insert(&mut self, stream: Stream) {
        self.list.push(stream);
    }

    pub(super) fn remove(&mut self, id: StreamId) -> Option<Stream> {
        let at = self
            .list
            .binary_search_by_key(&id, |stream| stream.id)
            .ok()?;
        Some(self.list.remove(at))
    }

    /// Releases the memory of streams, of which there must be none.
    pub(super) fn release(&mut self) {
        self.list.shrink_to_fit();
        self.reset.shrink_to_fit();
    }

    /// Remembers that we reset a stream while the client was sending.
    pub(super) fn remember_reset(&mut self, id: StreamId) {
        if self.reset.len() == RESET_MAX
            && let Some(oldest) = self.reset.pop_front()
        {
            self.reset_before = self.reset_before.max(oldest.get());
        }
        self.reset.push_back(id);
    }

    /// Returns the highest number that the client has used. 0: none.
    pub(super) fn last(&self) -> u32 {
        self.last
    }

    /// Returns the number of unfinished exchanges.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.list.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.list.iter_mut()
    }

    /// Shifts the windows of all streams (RFC 9113 §6.9.2).
    pub(super) fn shift_windows(&mut self, by: i64) -> Result<(), TooLarge> {
        let mut streams = self.list.iter_mut();
        streams.try_for_each(|stream| stream.send.shift(by))
    }
}
