//! Streams of a connection and their states (RFC 9113 §5.1).

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use super::error::StreamId;
use super::window::{ReceiveWindow, SendWindow, TooLarge};
use crate::http::Method;

/// State of a stream whose exchange is unfinished. [`Stream::advance`] alone changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Both sides may send.
    Open { owed: Owed },
    /// The peer has ended its side: "half-closed (remote)".
    PeerEnded,
    /// We have ended our side: "half-closed (local)".
    OwnEnded { owed: Owed },
    /// Ended on both sides, or reset; the exchange goes on until the caller has stopped.
    Closed,
}

/// Part of its message that the peer owes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Owed {
    /// The response to our request with this method: only interim heads have arrived.
    Response { method: Method },
    /// Content-Length: exactly this many bytes (RFC 9113 §8.1.1).
    Length { left: u64 },
    /// Up to END_STREAM.
    Unknown,
    /// Bytes of a tunnel up to END_STREAM, without trailers (RFC 9113 §8.5).
    Tunnel,
    /// Is discarded: the head was refused.
    Discarded,
}

/// Error: DATA that makes the message malformed (RFC 9113 §8.1.1). The text says why.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub(super) &'static str);

const LENGTH_DIFFERS: Malformed = Malformed("DATA does not agree with Content-Length");

impl Owed {
    /// Counts the data of a frame, perhaps the last one.
    fn take(&mut self, bytes: u32, end: bool) -> Result<(), Malformed> {
        match self {
            Owed::Response { .. } => return Err(Malformed("DATA before the head of the response")),
            Owed::Length { left } => {
                *left = left.checked_sub(u64::from(bytes)).ok_or(LENGTH_DIFFERS)?;
            }
            Owed::Unknown | Owed::Tunnel | Owed::Discarded => {}
        }
        match self {
            Owed::Length { left: 1.. } if end => Err(LENGTH_DIFFERS),
            _ => Ok(()),
        }
    }
}

/// Event that changes the state of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// The head of the response has arrived: this is owed of its body.
    Answered {
        owed: Owed,
    },
    PeerEnded,
    OwnEnded,
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
    /// Creates the stream of a request. `owed` is `None` if the head ended the client's side.
    pub(super) fn new(
        id: StreamId,
        owed: Option<Owed>,
        send: SendWindow,
        receive: ReceiveWindow,
    ) -> Self {
        let state = owed.map_or(State::PeerEnded, |owed| State::Open { owed });
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
            (State::Open { .. }, Change::Answered { owed }) => State::Open { owed },
            (State::OwnEnded { .. }, Change::Answered { owed }) => State::OwnEnded { owed },
            (State::Open { .. }, Change::PeerEnded) => State::PeerEnded,
            (State::Open { owed }, Change::OwnEnded) => State::OwnEnded { owed },
            (State::PeerEnded, Change::OwnEnded)
            | (State::OwnEnded { .. }, Change::PeerEnded)
            | (_, Change::Reset) => State::Closed,
            (state, Change::Answered { .. } | Change::PeerEnded | Change::OwnEnded) => state,
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
        matches!(self.state, State::Open { .. } | State::PeerEnded)
    }

    /// Returns what the peer still sends.
    #[inline]
    pub(super) fn owed(&self) -> Option<Owed> {
        match self.state {
            State::Open { owed } | State::OwnEnded { owed } => Some(owed),
            State::PeerEnded | State::Closed => None,
        }
    }

    /// Counts the data of a DATA frame towards the body.
    pub(super) fn take(&mut self, bytes: u32, end: bool) -> Result<(), Malformed> {
        match &mut self.state {
            State::Open { owed } | State::OwnEnded { owed } => owed.take(bytes, end),
            State::PeerEnded | State::Closed => Ok(()),
        }
    }
}

/// The highest number of a stream.
const STREAM_MAX: u32 = 0x7fff_ffff;

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
    /// Streams that we reset while the peer was sending, in the order of the resets.
    reset: VecDeque<StreamId>,
    /// The highest number that has left `reset`.
    reset_before: u32,
}

/// Stream without an unfinished exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gone {
    /// Never opened: its number is too high, even, or was skipped.
    Idle,
    /// Frames that the peer sent before it knew of our reset may arrive.
    ResetByUs,
    /// The peer ended or reset it.
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

    /// Returns the number of the next stream that we open. `None`: all numbers are used
    /// (RFC 9113 §5.1.1).
    pub(super) fn next(&self) -> Option<StreamId> {
        match self.last {
            0 => StreamId::new(1),
            last => StreamId::new(last.checked_add(2).filter(|next| *next <= STREAM_MAX)?),
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

    /// Remembers that we reset a stream while the peer was sending.
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
