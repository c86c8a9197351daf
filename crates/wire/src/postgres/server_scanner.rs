//! Scans a server's bytes and stops only at relevant messages; rows and COPY data are skipped.
//!
//! Pass [`ServerScanner::next`] the bytes that were read from the server and are not yet consumed.
//! Skipped bytes may be forwarded immediately, across any number of buffers. Only a relevant
//! message is held until it is whole; of one longer than [`HELD_LENGTH_MAX`], only the beginning.

use super::backend::{self, CommandTag, ErrorReport};
use super::cursor::Cursor;
use super::frame::{self, HEADER_LENGTH, Header};
use super::{Parsed, ProtocolError, TransactionStatus};
use crate::scan_step::{ScanStep, Skip};

/// The most bytes of one message that the caller must be able to hold, except for ParameterStatus.
/// Relevant messages have tens of bytes, but an error can quote the query.
pub const HELD_LENGTH_MAX: usize = 4096;

/// Limit for a ParameterStatus, which has a setting's new value: a search path may be
/// long.
pub const REPORT_LENGTH_MAX: usize = 128 * 1024;

/// Message that is relevant to the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event<'a> {
    /// `Z`
    ReadyForQuery(TransactionStatus),
    /// `E`; of a very long one only the first fields, which include the SQLSTATE.
    Error(ErrorReport<'a>),
    /// `N`; possible at any time.
    Notice(ErrorReport<'a>),
    /// `A`; possible at any time.
    Notification,
    /// `S`; possible at any time. `None`: longer than [`REPORT_LENGTH_MAX`].
    ParameterStatus(Option<(&'a [u8], &'a [u8])>),
    /// `C`
    CommandComplete(CommandTag<'a>),
    /// `I`
    EmptyQuery,
    /// `s`
    PortalSuspended,
    /// `1`
    ParseComplete,
    /// `2`
    BindComplete,
    /// `3`
    CloseComplete,
    /// `n`
    NoData,
    /// `T`
    RowDescription,
    /// `t`
    ParameterDescription,
    /// `G`
    CopyIn,
    /// `H`
    CopyOut,
    /// `W`
    CopyBoth,
    /// `c`
    CopyDone,
    /// `V`
    FunctionResult,
    /// `R`, `K`, `v`: a login message (the tag).
    Login(u8),
}

/// Result of one step of the scan.
pub type Step<'a> = ScanStep<Event<'a>, ProtocolError>;

/// Scanner of one server's bytes: its position in the current message.
#[derive(Debug, Clone, Copy, Default)]
pub struct ServerScanner {
    /// Bytes of the current message that are still to come and are irrelevant.
    skip: Skip,
}

impl ServerScanner {
    /// Creates a scanner at the beginning of a message.
    #[must_use]
    pub fn new() -> Self {
        ServerScanner::default()
    }

    /// Returns whether the bytes consumed so far end at the end of a message.
    #[must_use]
    pub fn is_at_border(&self) -> bool {
        self.skip.is_over()
    }

    /// Returns how many bytes are still to come of the message in which the last step ended.
    #[must_use]
    pub fn remainder(&self) -> usize {
        self.skip.0
    }

    /// Returns the next relevant message in `bytes`, which begin where the last step's consumed
    /// bytes ended (`passed + length`, or `passed`).
    pub fn next<'a>(&mut self, bytes: &'a [u8]) -> Step<'a> {
        let mut passed = 0_usize;
        loop {
            let rest = self.skip.skip(bytes, &mut passed);
            if rest.is_empty() {
                let need = if self.skip.is_over() {
                    HEADER_LENGTH
                } else {
                    1
                };
                return Step::Wait { passed, need };
            }
            let header = match frame::header(rest) {
                Parsed::Frame(header, _) => header,
                Parsed::Incomplete { need } => return Step::Wait { passed, need },
                Parsed::Invalid(fault) => return Step::Invalid(fault),
            };
            if matches!(header.tag, b'D' | b'd') {
                self.skip = Skip(header.frame_length());
                continue;
            }
            return self.stop(header, rest, passed);
        }
    }

    fn stop<'a>(&mut self, header: Header, rest: &'a [u8], passed: usize) -> Step<'a> {
        if !backend::is_tag(header.tag) {
            return Step::Invalid(ProtocolError::UnknownTag(header.tag));
        }
        let whole = header.frame_length();
        let length = whole.min(held_length(header.tag));
        let Some(body) = rest.get(HEADER_LENGTH..length) else {
            return Step::Wait {
                passed,
                need: length,
            };
        };
        let Some(event) = read(header.tag, body, length == whole) else {
            return Step::Invalid(ProtocolError::Malformed(header.tag));
        };
        self.skip = Skip(whole.saturating_sub(length));
        Step::Event {
            passed,
            event,
            length,
        }
    }
}

/// Returns how much of a message to hold: only the header if its presence is all that matters.
fn held_length(tag: u8) -> usize {
    match tag {
        b'T' | b't' | b'G' | b'H' | b'W' | b'V' | b'A' | b'R' | b'K' | b'v' => HEADER_LENGTH,
        b'S' => REPORT_LENGTH_MAX,
        _ => HELD_LENGTH_MAX,
    }
}

fn read(tag: u8, bytes: &[u8], whole: bool) -> Option<Event<'_>> {
    let mut body = Cursor(bytes);
    let empty = |event| body.end(event);
    match tag {
        b'1' => empty(Event::ParseComplete),
        b'2' => empty(Event::BindComplete),
        b'3' => empty(Event::CloseComplete),
        b'n' => empty(Event::NoData),
        b'I' => empty(Event::EmptyQuery),
        b's' => empty(Event::PortalSuspended),
        b'c' => empty(Event::CopyDone),
        b'T' => Some(Event::RowDescription),
        b't' => Some(Event::ParameterDescription),
        b'G' => Some(Event::CopyIn),
        b'H' => Some(Event::CopyOut),
        b'W' => Some(Event::CopyBoth),
        b'V' => Some(Event::FunctionResult),
        b'A' => Some(Event::Notification),
        b'R' | b'K' | b'v' => Some(Event::Login(tag)),
        b'E' | b'N' => read_report(tag, bytes, whole),
        b'Z' => {
            let status = TransactionStatus::of(body.byte()?)?;
            body.end(Event::ReadyForQuery(status))
        }
        b'C' => {
            let tag = body.text()?;
            body.end(Event::CommandComplete(CommandTag(tag)))
        }
        b'S' if !whole => Some(Event::ParameterStatus(None)),
        b'S' => {
            let pair = (body.text()?, body.text()?);
            body.end(Event::ParameterStatus(Some(pair)))
        }
        _ => None,
    }
}

fn read_report(tag: u8, body: &[u8], whole: bool) -> Option<Event<'_>> {
    let report = match whole {
        true => ErrorReport::read(body)?,
        false => ErrorReport::beginning(body),
    };
    Some(match tag {
        b'E' => Event::Error(report),
        _ => Event::Notice(report),
    })
}

#[cfg(test)]
mod tests;
