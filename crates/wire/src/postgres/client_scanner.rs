//! Walks a logged-in client's bytes, message by message; of what is long, only the beginning.
//!
//! Give [`Requests::next`] what was read from the client and is not yet consumed. A message that
//! somebody must understand is shown whole, so that the caller has to hold it until then; of values
//! and data, which may be as long as they like, only the beginning is shown and the rest counts as
//! passed, whatever buffer borders it crosses. What is passed goes where its message went.

use super::conversation::Request;
use super::frame::{self, HEADER_LENGTH, Header};
use super::names::names;
use super::{Parsed, ProtocolError};

/// The most that a Bind's two names may take, together with its header: twice what servers take of
/// a message that names one (`PQ_SMALL_MESSAGE_LIMIT`).
pub const BIND_NAMES_LENGTH_MAX: usize = 20_000;

/// What lies ahead in the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// `passed` bytes of the message before, then `length` bytes of this one, which is whole.
    Message {
        /// What was still to come of the message before.
        passed: usize,
        /// The message's header.
        header: Header,
        /// What it asks for.
        request: Request,
        /// The message's length.
        length: usize,
    },
    /// As [`Step::Message`], of a message that is not shown whole: of a Bind the header and the
    /// names, of a long Query or Parse the first bytes, of FunctionCall and CopyData the header.
    /// The remainder counts as passed in the steps that follow.
    Beginning {
        /// What was still to come of the message before.
        passed: usize,
        /// The message's header.
        header: Header,
        /// What it asks for.
        request: Request,
        /// The length of what is shown.
        length: usize,
    },
    /// No further message, or not enough of it: `passed` bytes of the message before may go, then
    /// there must be `need`.
    Wait {
        /// What there is of what was still to come of the message before.
        passed: usize,
        /// How many bytes there must be after those before asking again can help.
        need: usize,
    },
    /// The client does not keep to the protocol (SQLSTATE 08P01).
    Invalid(ProtocolError),
}

/// Where in a message the last buffer ended.
#[derive(Debug, Clone, Copy)]
pub struct ClientScanner {
    /// Bytes of the current message that are still to come and are not shown.
    skip: usize,
    text_length_max: usize,
}

impl ClientScanner {
    /// At the beginning of a message. A Query or Parse of up to `text_length_max` bytes is shown
    /// whole; the caller must be able to hold as many, and at least [`BIND_NAMES_LENGTH_MAX`].
    #[must_use]
    pub fn new(text_length_max: usize) -> Self {
        ClientScanner {
            skip: 0,
            text_length_max: text_length_max.max(HEADER_LENGTH),
        }
    }

    /// Whether the bytes consumed so far end where a message does.
    #[must_use]
    #[inline]
    pub fn is_at_border(&self) -> bool {
        self.skip == 0
    }

    /// The next message in `bytes`, which begin where the last step's consumed bytes ended
    /// (`passed + length`, or `passed`).
    ///
    /// What a step shows of a Parse or a Bind has all its names, if it has any rightly.
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
        match is_shown_whole(request) && self.skip == 0 {
            true => Step::Message {
                passed,
                header,
                request,
                length,
            },
            false => Step::Beginning {
                passed,
                header,
                request,
                length,
            },
        }
    }

    /// The message that `bytes` begin with, and how much of it is shown.
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
            // Only during a login.
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

    /// What the message asks for, if what is shown of it may be so.
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

/// Bind is always shown by its beginning, though its values may be there and be few: what a step
/// is must not depend on where buffers end.
fn is_shown_whole(request: Request) -> bool {
    !matches!(
        request,
        Request::Bind | Request::FunctionCall | Request::CopyData
    )
}

/// Where the names end, which must be within the first `length_max` bytes.
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
