//! The two roles of a connection, and the rules in which they differ.

use super::read::{PREFACE, Reading};
use super::{Limits, frame};
use crate::http::Underscores;
use crate::http2::error::ErrorCode;
use crate::http2::head::{RequestText, ResponseText};
use crate::http2::settings::{Peer, name};
use crate::http2::stream::Stream;

/// Role of our side, with the memory of the heads that it receives.
#[derive(Debug)]
pub(super) enum Role {
    Server {
        text: RequestText,
    },
    Client {
        text: ResponseText,
        /// The last stream that the server works on, after its GOAWAY: no stream is opened then.
        last: Option<u32>,
    },
}

impl Role {
    pub(super) fn server() -> Self {
        Role::Server {
            text: RequestText::new(),
        }
    }

    pub(super) fn client() -> Self {
        Role::Client {
            text: ResponseText::new(),
            last: None,
        }
    }

    pub(super) fn is_client(&self) -> bool {
        matches!(self, Role::Client { .. })
    }

    /// Returns whether the server accepts no further streams.
    pub(super) fn is_stopped(&self) -> bool {
        matches!(self, Role::Client { last: Some(_), .. })
    }

    /// Returns what the peer sends first (RFC 9113 §3.4).
    pub(super) fn first_reading(&self) -> Reading {
        match self {
            Role::Server { .. } => Reading::Preface,
            Role::Client { .. } => Reading::FirstFrame,
        }
    }

    /// Appends what our side sends first: a client its preface, both SETTINGS.
    pub(super) fn write_preface(&self, out: &mut Vec<u8>, limits: &Limits) {
        let both = [
            (name::INITIAL_WINDOW_SIZE, limits.stream_window),
            (name::MAX_HEADER_LIST_SIZE, limits.head_bytes_max),
            (name::NO_RFC7540_PRIORITIES, 1),
        ];
        let own = match self {
            Role::Server { .. } => &[
                (name::MAX_CONCURRENT_STREAMS, limits.streams_max),
                (name::ENABLE_CONNECT_PROTOCOL, 1),
            ][..],
            Role::Client { .. } => {
                out.extend_from_slice(PREFACE);
                &[(name::ENABLE_PUSH, 0)]
            }
        };
        frame::write_settings(out, &[own, &both].concat());
    }

    /// Returns the role of the peer.
    pub(super) fn peer(&self) -> Peer {
        match self {
            Role::Server { .. } => Peer::Client,
            Role::Client { .. } => Peer::Server,
        }
    }

    /// Returns the code that resets a stream whose exchange ends before both sides have ended it.
    pub(super) fn unfinished(&self, stream: &Stream) -> Option<ErrorCode> {
        match (self, stream.may_send(), stream.owed()) {
            (_, false, None) => None,
            (Role::Client { .. }, ..) => Some(ErrorCode::Cancel),
            (Role::Server { .. }, true, _) => Some(ErrorCode::InternalError),
            (Role::Server { .. }, false, Some(_)) => Some(ErrorCode::NoError),
        }
    }

    /// Returns what becomes of trailers with `_` in their names: those of clients could pose as
    /// other fields; gRPC's servers may send them.
    pub(super) fn underscores(&self) -> Underscores {
        match self {
            Role::Server { .. } => Underscores::Drop,
            Role::Client { .. } => Underscores::Keep,
        }
    }

    /// Returns the text of the last head.
    pub(super) fn text(&self) -> &[u8] {
        match self {
            Role::Server { text } => text.text(),
            Role::Client { text, .. } => text.text(),
        }
    }

    /// Releases the memory of heads.
    pub(super) fn release(&mut self) {
        match self {
            Role::Server { text } => text.release(),
            Role::Client { text, .. } => text.release(),
        }
    }
}
