//! Scans a server's bytes and stops only at relevant packets; rows and definitions are skipped.
//!
//! Pass [`ServerScanner::next`] the bytes that were read and are not yet consumed, and the reply
//! that the current command leads to ([`ExpectedReply`]). Skipped bytes may be forwarded
//! immediately, across any number of buffers. Only a relevant packet is held until it is whole; of
//! one longer than [`HELD_LENGTH_MAX`], only the beginning.

use super::backend::{self, Eof, ErrorReport, OkPacket, PrepareOk};
use super::cursor::Cursor;
use super::flags::{Capabilities, Status};
use super::frame::{self, HEADER_LENGTH, Header};
use super::{PacketKind, Parsed, ProtocolError};
use crate::scan_step::{ScanStep, Skip};

mod event;

pub use event::{End, Event, ExpectedReply};

/// Maximum number of bytes of one packet that the caller must be able to hold together. Relevant
/// packets have tens of bytes. An exception is the OK to a CALL, which has the GTID of each of its
/// commits: ten bytes for each, if other sessions commit between them.
pub const HELD_LENGTH_MAX: usize = 1024 * 1024;

/// Length of an EOF in bytes: the first byte, warnings, the status.
const EOF_LENGTH: usize = 5;

/// Result of one step of the scan.
pub type Step<'a> = ScanStep<Event<'a>, ProtocolError>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReplyPhase {
    /// Beginning of a reply, or of a further result of it.
    Head,
    /// Number of column definitions before the rows.
    Columns(u64),
    /// After the definitions, if an EOF ends them.
    ColumnsEnd,
    /// After the definitions, without an EOF; the next packet indicates whether there is a cursor.
    FirstRow,
    Rows,
    /// Definitions of a prepared statement's parameters, then of its columns.
    Prepared {
        left: u16,
        then: u16,
    },
    PreparedEnd {
        then: u16,
    },
    Complete,
}

/// Scanner of one server's bytes: its position in the current reply.
#[derive(Debug, Clone, Copy)]
pub struct ServerScanner {
    agreed: Capabilities,
    phase: ReplyPhase,
    /// Number of irrelevant bytes of the current packet that have not been received.
    skip: Skip,
    /// True if the current packet was full: the next one continues its payload.
    is_continued: bool,
    /// True if only the beginning of the current packet is held.
    is_cut: bool,
    /// True if the rows are the OUT parameters of a CALL.
    out_parameters: bool,
    /// Sequence number of the next packet.
    sequence: u8,
    /// Number of rows since the last call of [`ServerScanner::take_rows`].
    rows: u64,
}

impl ServerScanner {
    /// Creates a scanner at the beginning of a reply, on a connection with these capabilities.
    #[must_use]
    pub fn new(agreed: Capabilities) -> Self {
        ServerScanner {
            agreed,
            phase: ReplyPhase::Head,
            skip: Skip::default(),
            is_continued: false,
            is_cut: false,
            out_parameters: false,
            sequence: 0,
            rows: 0,
        }
    }

    /// Returns how many rows have begun since the last call.
    #[inline]
    pub fn take_rows(&mut self) -> u64 {
        std::mem::take(&mut self.rows)
    }

    /// Returns whether the bytes consumed so far end at the end of a reply or of one of its
    /// results.
    #[must_use]
    pub fn is_at_border(&self) -> bool {
        self.skip.is_over() && !self.is_continued && self.phase == ReplyPhase::Head
    }

    /// Returns the next relevant packet in `bytes`, which begin where the last step's consumed
    /// bytes ended (`passed + length`, or `passed`). `expected` is used where a reply begins.
    pub fn next<'a>(&mut self, bytes: &'a [u8], expected: ExpectedReply) -> Step<'a> {
        let mut passed = 0_usize;
        loop {
            let rest = self.skip.skip(bytes, &mut passed);
            if !self.skip.is_over() {
                return Step::Wait { passed, need: 1 };
            }
            if let Some(event) = self.packetless_event() {
                let length = 0;
                return Step::Event {
                    passed,
                    event,
                    length,
                };
            }
            let header = match frame::header(rest) {
                Parsed::Frame(header, _) => header,
                Parsed::Incomplete { need } => return Step::Wait { passed, need },
                Parsed::Invalid(fault) => return Step::Invalid(fault),
            };
            if self.is_continued {
                self.pass(header);
                continue;
            }
            if header.payload_length == 0 {
                return Step::Invalid(ProtocolError::Malformed(PacketKind::Empty));
            }
            let Some(first) = rest.get(HEADER_LENGTH) else {
                let need = HEADER_LENGTH.saturating_add(1);
                return Step::Wait { passed, need };
            };
            if self.phase == ReplyPhase::Head
                && matches!(expected, ExpectedReply::Rows | ExpectedReply::Definitions)
            {
                self.out_parameters = false;
                self.phase = ReplyPhase::Rows;
            }
            if self.is_relevant(header, *first, expected) {
                return self.stop(header, rest, passed, expected);
            }
            self.pass(header);
        }
    }

    /// Skips a packet.
    #[inline]
    fn pass(&mut self, header: Header) {
        self.skip = Skip(header.frame_length());
        self.sequence = header.sequence.wrapping_add(1);
        if !self.is_continued {
            self.rows = self
                .rows
                .wrapping_add(u64::from(self.phase == ReplyPhase::Rows));
            self.phase = match self.phase {
                ReplyPhase::Columns(left) => after_columns(left.saturating_sub(1), self.agreed),
                ReplyPhase::Prepared { left, then } if left > 1 => ReplyPhase::Prepared {
                    left: left.saturating_sub(1),
                    then,
                },
                ReplyPhase::Prepared { then, .. } => ReplyPhase::PreparedEnd { then },
                phase => phase,
            };
        }
        self.is_continued = header.is_continued();
    }

    fn no_eof(&self) -> bool {
        self.agreed.has(Capabilities::DEPRECATE_EOF)
    }

    /// Returns an event that occurs without a packet.
    fn packetless_event(&mut self) -> Option<Event<'static>> {
        if self.is_continued {
            return None;
        }
        match self.phase {
            ReplyPhase::Complete => {
                self.phase = ReplyPhase::Head;
                Some(Event::Complete)
            }
            ReplyPhase::PreparedEnd { then } if self.no_eof() => {
                self.phase = prepared(then, 0);
                Some(self.metadata_end(None))
            }
            _ => None,
        }
    }

    /// Returns whether this packet is more than a row or a definition.
    #[inline]
    fn is_relevant(&self, header: Header, first: u8, expected: ExpectedReply) -> bool {
        match self.phase {
            ReplyPhase::Rows => first >= backend::EOF && Self::ends(header, first),
            ReplyPhase::Columns(_) | ReplyPhase::Prepared { .. } => first == backend::ERROR,
            ReplyPhase::Head if expected == ExpectedReply::Stream => first >= backend::EOF,
            _ => true,
        }
    }

    /// Returns whether a packet among rows ends them. A row that begins like an EOF has a value of
    /// 16 MiB or more, and its first packet is full.
    fn ends(header: Header, first: u8) -> bool {
        first == backend::ERROR || !header.is_continued()
    }

    fn stop<'a>(
        &mut self,
        header: Header,
        rest: &'a [u8],
        passed: usize,
        expected: ExpectedReply,
    ) -> Step<'a> {
        let whole = header.frame_length();
        let length = whole.min(HELD_LENGTH_MAX);
        let held = rest.get(HEADER_LENGTH..length);
        if self.phase == ReplyPhase::FirstRow {
            let first = rest.get(HEADER_LENGTH).copied().unwrap_or_default();
            let row = first != backend::EOF || !Self::ends(header, first);
            self.sequence = header.sequence;
            match held {
                None if !row => {
                    return Step::Wait {
                        passed,
                        need: length,
                    };
                }
                Some(payload) if !row && self.has_cursor(payload) => {}
                _ => {
                    self.phase = ReplyPhase::Rows;
                    let event = self.metadata_end(None);
                    let length = 0;
                    return Step::Event {
                        passed,
                        event,
                        length,
                    };
                }
            }
        }
        let Some(payload) = held else {
            return Step::Wait {
                passed,
                need: length,
            };
        };
        self.sequence = header.sequence;
        self.is_cut = length < whole;
        match self.event(payload, expected) {
            Ok(event) => {
                self.skip = Skip(whole.saturating_sub(length));
                self.is_continued = header.is_continued();
                Step::Event {
                    passed,
                    event,
                    length,
                }
            }
            Err(fault) => Step::Invalid(fault),
        }
    }

    fn metadata_end(&self, eof: Option<Eof>) -> Event<'static> {
        let sequence = self.sequence;
        Event::MetadataEnd { eof, sequence }
    }

    /// Returns whether the first packet after the definitions reports a cursor for the rows. In
    /// that case no EOF can be inserted between the definitions and this packet.
    fn has_cursor(&self, payload: &[u8]) -> bool {
        let ok = self.ok(payload);
        ok.is_ok_and(|ok| reports_cursor(ok.status))
    }

    fn ok<'a>(&self, payload: &'a [u8]) -> Result<OkPacket<'a>, ProtocolError> {
        match self.is_cut {
            true => OkPacket::read_beginning(payload),
            false => OkPacket::read(payload, self.agreed),
        }
    }

    fn event<'a>(
        &mut self,
        payload: &'a [u8],
        expected: ExpectedReply,
    ) -> Result<Event<'a>, ProtocolError> {
        let first = payload.first().copied().unwrap_or_default();
        // After the definitions of a statement no server replies with an error.
        let decided = matches!(self.phase, ReplyPhase::PreparedEnd { .. });
        if first == backend::ERROR && !decided {
            return self.error(payload);
        }
        match self.phase {
            ReplyPhase::Head => self.head(first, payload, expected),
            ReplyPhase::ColumnsEnd => {
                let eof = Eof::read(payload)?;
                let cursor = reports_cursor(eof.status);
                self.out_parameters = eof.status.has(Status::OUT_PARAMETERS);
                self.phase = if cursor {
                    ReplyPhase::Head
                } else {
                    ReplyPhase::Rows
                };
                Ok(match cursor {
                    true => Event::ResultEnd(End::Eof(eof)),
                    false => self.metadata_end(Some(eof)),
                })
            }
            ReplyPhase::PreparedEnd { then } => {
                self.phase = prepared(then, 0);
                Eof::read(payload).map(|eof| self.metadata_end(Some(eof)))
            }
            _ => {
                self.phase = ReplyPhase::Head;
                self.end(payload).map(Event::ResultEnd)
            }
        }
    }

    fn end<'a>(&self, payload: &'a [u8]) -> Result<End<'a>, ProtocolError> {
        match self.no_eof() {
            true => self.ok(payload).map(End::Ok),
            false => Eof::read(payload).map(|eof| End::Eof(self.with_out_parameters(eof))),
        }
    }

    /// Adds the flags that MySQL omits in the EOF after OUT parameters, although they were set in
    /// the preceding EOF: an OK still follows.
    fn with_out_parameters(&self, eof: Eof) -> Eof {
        let forgotten = Status::OUT_PARAMETERS.with(Status::MORE_RESULTS);
        let status = match self.out_parameters {
            true => eof.status.with(forgotten),
            false => eof.status,
        };
        Eof { status, ..eof }
    }

    fn error<'a>(&mut self, payload: &'a [u8]) -> Result<Event<'a>, ProtocolError> {
        let report =
            ErrorReport::read(payload).ok_or(ProtocolError::Malformed(PacketKind::Error))?;
        if report.code == ErrorReport::PROGRESS && self.agreed.has(Capabilities::PROGRESS) {
            return Ok(Event::Progress);
        }
        self.phase = ReplyPhase::Head;
        Ok(Event::Error(ErrorReport {
            is_unasked: self.sequence == 0,
            ..report
        }))
    }

    fn head<'a>(
        &mut self,
        first: u8,
        payload: &'a [u8],
        expected: ExpectedReply,
    ) -> Result<Event<'a>, ProtocolError> {
        match (expected, first) {
            (
                ExpectedReply::Results | ExpectedReply::Simple | ExpectedReply::Login,
                backend::OK,
            ) => self.ok(payload).map(Event::Ok),
            (ExpectedReply::Results, backend::LOCAL_INFILE) => Ok(Event::LocalInfile {
                name: payload.get(1..).unwrap_or_default(),
            }),
            (ExpectedReply::Results, _) => self.result_header(payload),
            // Reply to COM_SET_OPTION and COM_DEBUG. If EOF is deprecated, it is an OK that looks
            // like an EOF but is longer. After the last event of a binary log, MariaDB nevertheless
            // sends an EOF.
            (ExpectedReply::Simple | ExpectedReply::Stream, backend::EOF) => {
                match self.no_eof() && payload.len() > EOF_LENGTH {
                    true => self.ok(payload).map(Event::Ok),
                    false => Eof::read(payload).map(Event::Eof),
                }
            }
            (ExpectedReply::Prepare, backend::OK) => {
                let ok = PrepareOk::read(payload)?;
                self.phase = prepared(ok.parameters, ok.columns);
                Ok(Event::PrepareOk(ok))
            }
            (ExpectedReply::Text, _) => Ok(Event::Text),
            (ExpectedReply::Login, _) => Ok(Event::Login(first)),
            _ => Err(ProtocolError::Malformed(PacketKind::ResultHeader)),
        }
    }

    fn result_header<'a>(&mut self, payload: &'a [u8]) -> Result<Event<'a>, ProtocolError> {
        let mut body = Cursor(payload);
        let malformed = ProtocolError::Malformed(PacketKind::ResultHeader);
        let columns = body.lenenc().ok_or(malformed)?;
        let cached = self.agreed.has(Capabilities::CACHE_METADATA) && body.byte() == Some(0);
        if columns == 0 || !body.is_empty() {
            return Err(malformed);
        }
        let columns = if cached { 0 } else { columns };
        self.phase = after_columns(columns, self.agreed);
        Ok(Event::ResultHeader { columns })
    }
}

/// Returns whether a cursor has the rows. Within a CALL, MariaDB also reports the procedure's own
/// open cursors although the rows follow; but none of these results is the last one.
fn reports_cursor(status: Status) -> bool {
    status.has(Status::CURSOR_EXISTS) && !status.has(Status::MORE_RESULTS)
}

fn after_columns(left: u64, agreed: Capabilities) -> ReplyPhase {
    match left {
        0 if agreed.has(Capabilities::DEPRECATE_EOF) => ReplyPhase::FirstRow,
        0 => ReplyPhase::ColumnsEnd,
        left => ReplyPhase::Columns(left),
    }
}

/// Returns the phase for the remaining definitions of a prepared statement: `left` parameters, then
/// `then` columns.
fn prepared(left: u16, then: u16) -> ReplyPhase {
    match (left, then) {
        (0, 0) => ReplyPhase::Complete,
        (0, left) => ReplyPhase::Prepared { left, then: 0 },
        (left, then) => ReplyPhase::Prepared { left, then },
    }
}

#[cfg(test)]
mod tests;
