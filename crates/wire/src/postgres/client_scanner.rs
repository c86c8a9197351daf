//! Scans a logged-in client's bytes message by message; of a long message it shows only the
//! beginning.
//!
//! Pass [`ClientScanner::next`] the bytes that were read from the client and are not yet consumed.
//! A message that must be parsed is shown whole, so the caller has to hold it until then. Values
//! and data may be of any length: only the beginning is shown, and the rest counts as passed,
//! across any number of buffers. Passed bytes are sent to the destination of their message.

use super::conversation::Request;
use super::frame::{self, HEADER_LENGTH, Header};
use super::names::names;
use super::{Parsed, ProtocolError};

/// Maximum length of a Bind's header and its two names, in bytes: twice the limit of servers for a
/// message that has only names and numbers (`PQ_SMALL_MESSAGE_LIMIT`).
pub const BIND_NAMES_LENGTH_MAX: usize = 20_000;

/// Result of one scan step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// `passed` bytes of the previous message, then `length` bytes of this one.
    Message {
        /// Bytes of the previous message that were still to come.
        passed: usize,
        /// The message's header.
        header: Header,
        /// The kind of request.
        request: Request,
        /// The length of the shown part.
        length: usize,
        /// False if only the beginning of the message is shown. That is the header and the names of
        /// a Bind, the first bytes of a long Query or Parse, or the header of a FunctionCall or
        /// CopyData. The remainder counts as passed in the steps that follow.
        is_whole: bool,
    },
    /// No further message, or an incomplete one: `passed` bytes of the previous message may be
    /// forwarded, and `need` bytes are required for the next step.
    Wait {
        /// The available bytes of the previous message.
        passed: usize,
        /// Number of bytes that must follow the passed ones before another attempt can succeed.
        need: usize,
    },
    /// Protocol violation of the client (SQLSTATE 08P01).
    Invalid(ProtocolError),
}

/// Scanner of one client's bytes: its position in the current message.
#[derive(Debug, Clone, Copy)]
pub struct ClientScanner {
    /// Bytes of the current message that are still to come and are not shown.
    skip: usize,
    text_length_max: usize,
}

impl ClientScanner {
    /// Creates a scanner at the beginning of a message. A Query or Parse of up to `text_length_max`
    /// bytes is shown whole. The caller must be able to hold that many bytes, and at least
    /// [`BIND_NAMES_LENGTH_MAX`].
    #[must_use]
    pub fn new(text_length_max: usize) -> Self {
        ClientScanner {
            skip: 0,
            text_length_max: text_length_max.max(HEADER_LENGTH),
        }
    }

    /// Returns whether the bytes consumed so far end at the end of a message.
    #[must_use]
    #[inline]
    pub fn is_at_border(&self) -> bool {
        self.skip == 0
    }

    /// Returns the next step for `bytes`, which begin where the last step's consumed bytes ended
    /// (`passed + length`, or `passed`).
    ///
    /// The shown part of a Parse or a Bind contains all its names, if the message is well formed.
    #[must_use]
    pub fn next(&mut self, bytes: &[u8]) -> Step {
        let passed = self.skip.min(bytes.len());
        self.skip = self.skip.saturating_sub(passed);
        let rest = bytes.get(passed..).unwrap_or_default();
        if self.skip > 0 {
            return Step::Wait { passed, need: 1 };
        }
        let ((header, request), length) = match self.shown(rest) {
            Parsed::Frame(shown, length) => (shown, length),
            Parsed::Incomplete { need } => return Step::Wait { passed, need },
            Parsed::Invalid(fault) => return Step::Invalid(fault),
        };
        self.skip = header.frame_length().saturating_sub(length);
        Step::Message {
            passed,
            header,
            request,
            length,
            is_whole: is_shown_whole(request) && self.skip == 0,
        }
    }

    /// Parses the header at the beginning of `bytes`. The frame length is that of the shown part.
    fn shown(&self, bytes: &[u8]) -> Parsed<(Header, Request)> {
        let header = match frame::client_header(bytes) {
            Parsed::Frame(header, _) => header,
            Parsed::Incomplete { need } => return Parsed::Incomplete { need },
            Parsed::Invalid(fault) => return Parsed::Invalid(fault),
        };
        let length = match header.tag {
            b'd' | b'F' => HEADER_LENGTH,
            b'B' => match names_length(header, bytes, BIND_NAMES_LENGTH_MAX) {
                Parsed::Frame((), length) => length,
                Parsed::Incomplete { need } => return Parsed::Incomplete { need },
                Parsed::Invalid(fault) => return Parsed::Invalid(fault),
            },
            b'Q' | b'P' => header.frame_length().min(self.text_length_max),
            // Valid only during a login.
            b'p' => return Parsed::Invalid(ProtocolError::UnknownTag(header.tag)),
            _ => header.frame_length(),
        };
        let Some(body) = bytes.get(HEADER_LENGTH..length) else {
            return Parsed::Incomplete { need: length };
        };
        match self.request(header, bytes, body) {
            Some(request) => Parsed::Frame((header, request), length),
            None => Parsed::Invalid(ProtocolError::Malformed(header.tag)),
        }
    }

    /// Returns the kind of request, or `None` if the shown part is malformed.
    fn request(&self, header: Header, bytes: &[u8], body: &[u8]) -> Option<Request> {
        let request = Request::of(header.tag, body.first().copied())?;
        let possible = match request {
            Request::Flush | Request::Sync | Request::Terminate => header.body_length == 0,
            Request::CopyEnd => header.tag == b'f' || header.body_length == 0,
            Request::Parse if header.frame_length() > self.text_length_max => {
                let found = names_length(header, bytes, self.text_length_max);
                matches!(found, Parsed::Frame((), _))
            }
            _ => true,
        };
        possible.then_some(request)
    }
}

/// Returns whether messages of this kind are shown whole. A Bind never is, even if all its values
/// are there: steps must not depend on the borders of buffers.
fn is_shown_whole(request: Request) -> bool {
    !matches!(
        request,
        Request::Bind | Request::FunctionCall | Request::CopyData
    )
}

/// Returns the offset at which the names end, which must be within the first `length_max` bytes.
fn names_length(header: Header, bytes: &[u8], length_max: usize) -> Parsed<()> {
    let beginning = bytes.get(..length_max).unwrap_or(bytes);
    match names(header, beginning) {
        Parsed::Frame(_, length) => Parsed::Frame((), length),
        Parsed::Incomplete { need } if need <= length_max => Parsed::Incomplete { need },
        Parsed::Incomplete { .. } => Parsed::Invalid(ProtocolError::Malformed(header.tag)),
        Parsed::Invalid(fault) => Parsed::Invalid(fault),
    }
}

#[cfg(test)]
mod tests;
