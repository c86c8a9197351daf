//! Received bytes to frames: the preface, the order of frames, and what each type is handled by.

use super::role::Role;
use super::{Connection, Event, Read};
use crate::http2::budget::Work;
use crate::http2::error::ConnectionError;
use crate::http2::frame::{FrameHeader, HEADER_LENGTH, Kind, PAYLOAD_MAX, flag};
use crate::http2::stream::Waiting;

/// First bytes of a client (RFC 9113 §3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Place in the received bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reading {
    Preface,
    /// Before the frame that must be SETTINGS.
    FirstFrame,
    /// Before any frame.
    Frame,
    /// A DATA frame whose header was read.
    Data(super::data::Part),
    /// The fragment of a HEADERS or CONTINUATION frame, of which `left` bytes and then `padding`
    /// are missing.
    Fragment {
        left: u32,
        padding: u32,
        last: bool,
    },
    /// A GOAWAY frame whose last stream was read: streams above it are excluded, then the bytes of
    /// `debug` are skipped.
    GoAway {
        debug: u32,
    },
    /// A SETTINGS frame of which `left` bytes are missing.
    Settings {
        left: u32,
    },
    /// Bytes that mean nothing: padding, discarded data, unknown frames.
    Skip {
        left: u32,
    },
}

/// Result of one step of reading.
pub(super) enum Step {
    /// More bytes are needed together.
    Wait,
    /// This number of bytes was used.
    Took(usize),
    /// Bytes were used, and an event is in them. Its range counts from where the step began.
    Event(usize, Event),
}

impl Step {
    /// Returns the step of a frame, or of a part of it, that may have caused an event.
    pub(super) fn of(used: usize, event: Option<Event>) -> Step {
        match event {
            Some(event) => Step::Event(used, event),
            None => Step::Took(used),
        }
    }
}

impl Connection {
    /// Reads from the received bytes, which follow those that were used before. `now_ms` is the
    /// time since any fixed moment.
    pub fn read(&mut self, bytes: &[u8], now_ms: u64, out: &mut Vec<u8>) -> Read {
        if let Some(error) = self.failed() {
            return Read::Failed(error);
        }
        self.now_ms = now_ms;
        if let Err(error) = self.check_block() {
            self.fail_with(error, out);
            return Read::Failed(error);
        }
        let mut length = 0_usize;
        loop {
            let rest = bytes.get(length..).unwrap_or_default();
            match self.step(rest, out) {
                Ok(Step::Wait) if length == 0 => return Read::Incomplete,
                Ok(Step::Wait) => {
                    return Read::Used {
                        length,
                        event: None,
                    };
                }
                Ok(Step::Took(used)) => length = length.saturating_add(used),
                Ok(Step::Event(used, event)) => {
                    let event = Some(event.shifted(length));
                    length = length.saturating_add(used);
                    return Read::Used { length, event };
                }
                Err(error) => {
                    self.fail_with(error, out);
                    return Read::Failed(error);
                }
            }
        }
    }

    fn step(&mut self, rest: &[u8], out: &mut Vec<u8>) -> Result<Step, ConnectionError> {
        match self.reading {
            Reading::Frame => self.frame(rest, out),
            Reading::Data(part) => Ok(self.data_part(part, rest)),
            Reading::Fragment {
                left,
                padding,
                last,
            } => self.fragment(rest, left, padding, last, out),
            Reading::Settings { left } => self.settings(rest, left, out),
            Reading::Skip { left } => Ok(self.skip(rest, left)),
            Reading::GoAway { debug } => Ok(self.excluded(debug)),
            Reading::Preface => self.preface(rest),
            Reading::FirstFrame => self.first_frame(rest, out),
        }
    }

    fn preface(&mut self, rest: &[u8]) -> Result<Step, ConnectionError> {
        let received = rest.get(..PREFACE.len()).unwrap_or(rest);
        if !PREFACE.starts_with(received) {
            return Err(ConnectionError::protocol("not the preface of HTTP/2"));
        }
        if received.len() < PREFACE.len() {
            return Ok(Step::Wait);
        }
        self.reading = Reading::FirstFrame;
        Ok(Step::Took(PREFACE.len()))
    }

    fn first_frame(&mut self, rest: &[u8], out: &mut Vec<u8>) -> Result<Step, ConnectionError> {
        let Some(header) = FrameHeader::parse(rest) else {
            return Ok(Step::Wait);
        };
        if header.kind != Kind::Settings || header.has(flag::ACK) {
            let why = match rest.starts_with(b"HTTP/1.") {
                true => "the server answers in HTTP/1.1",
                false => "the first frame is not SETTINGS",
            };
            return Err(ConnectionError::protocol(why));
        }
        self.frame(rest, out)
    }

    /// Reads the header of a frame, and its payload if that is small or complete.
    fn frame(&mut self, rest: &[u8], out: &mut Vec<u8>) -> Result<Step, ConnectionError> {
        let Some(header) = FrameHeader::parse(rest) else {
            return Ok(Step::Wait);
        };
        if header.length > PAYLOAD_MAX {
            return Err(ConnectionError::frame_size("a frame of over 16,384 bytes"));
        }
        if let Some(block) = &self.block
            && (header.kind != Kind::Continuation || header.stream != Some(block.stream()))
        {
            let why = "another frame in place of CONTINUATION";
            return Err(ConnectionError::protocol(why));
        }
        let payload = rest.get(HEADER_LENGTH..).unwrap_or_default();
        match header.kind {
            Kind::Data => self.data_frame(header, payload, out),
            Kind::Headers => self.headers_frame(header, payload, out),
            Kind::Continuation => self.continuation_frame(header),
            Kind::WindowUpdate => self.window_update(header, payload, out),
            Kind::Ping => self.ping_frame(header, payload, out),
            Kind::Settings => self.settings_frame(header, out),
            Kind::ResetStream => self.reset_frame(header, payload),
            Kind::Priority => self.priority_frame(header, out),
            Kind::GoAway => self.go_away_frame(header, payload),
            Kind::PushPromise => Err(ConnectionError::protocol("PUSH_PROMISE is not enabled")),
            Kind::Unknown => {
                self.charge(Work::Control)?;
                Ok(self.skip_payload(header))
            }
        }
    }

    /// Skips the payload of a frame whose header is at the beginning of the bytes.
    pub(super) fn skip_payload(&mut self, header: FrameHeader) -> Step {
        self.reading = Reading::Skip {
            left: header.length,
        };
        Step::Took(HEADER_LENGTH)
    }

    fn skip(&mut self, rest: &[u8], left: u32) -> Step {
        let used = part_of(rest, left);
        let left = left.saturating_sub(used);
        self.reading = match left {
            0 => Reading::Frame,
            left => Reading::Skip { left },
        };
        match (left, used) {
            (1.., 0) => Step::Wait,
            _ => Step::Took(used as usize),
        }
    }

    /// Counts work of the peer.
    pub(super) fn charge(&mut self, work: Work) -> Result<(), ConnectionError> {
        self.budget.charge(work, &self.limits.budget, self.now_ms)
    }

    /// Counts a stream that was reset by the peer, or by the caller. A client opens its streams
    /// itself: a server cannot have more of them reset than there were requests.
    pub(super) fn charge_reset(&mut self) -> Result<(), ConnectionError> {
        match self.role {
            Role::Server { .. } => self.charge(Work::Reset),
            Role::Client { .. } => Ok(()),
        }
    }

    /// Returns whether data wait for the window of the connection, or of any stream.
    pub(super) fn data_waits(&self) -> bool {
        let mut streams = self.streams.iter();
        streams.any(|stream| stream.waiting != Waiting::No)
    }
}

/// Returns how many of the `left` missing bytes are there.
#[inline]
pub(super) fn part_of(rest: &[u8], left: u32) -> u32 {
    u32::try_from(rest.len()).unwrap_or(u32::MAX).min(left)
}

impl Event {
    /// Returns the event with its range moved by the bytes before the step.
    fn shifted(mut self, by: usize) -> Event {
        if let Event::Data { range, .. } = &mut self {
            *range = range.start.saturating_add(by)..range.end.saturating_add(by);
        }
        self
    }
}
