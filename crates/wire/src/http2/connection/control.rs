//! Frames of the peer without content: SETTINGS, PING, WINDOW_UPDATE, RST_STREAM, GOAWAY and
//! PRIORITY (RFC 9113 §6.3 to §6.9).

use super::read::{Reading, Step};
use super::{Closing, Connection, Event};
use crate::http2::budget::Work;
use crate::http2::error::{ConnectionError, ErrorCode, StreamId};
use crate::http2::frame::{self, FrameHeader, HEADER_LENGTH, flag};
use crate::http2::settings::{self, SETTING_LENGTH};
use crate::http2::stream::{Change, Gone, Owed, Waiting};

/// Settings in a frame that cost as much as another frame.
const SETTINGS_PER_CHARGE: usize = 16;

/// Content of the PING that follows the announcement of the end.
pub(super) const CLOSING_PING: [u8; 8] = *b"evenkeel";

impl Connection {
    /// Reads the header of a SETTINGS frame.
    pub(super) fn settings_frame(
        &mut self,
        header: FrameHeader,
        out: &mut Vec<u8>,
    ) -> Result<Step, ConnectionError> {
        if header.stream.is_some() {
            return Err(ConnectionError::protocol("SETTINGS on a stream"));
        }
        self.charge(Work::Control)?;
        if header.has(flag::ACK) {
            if header.length != 0 {
                let why = "an acknowledgement with settings";
                return Err(ConnectionError::frame_size(why));
            }
            self.settings_acknowledged = true;
            self.reading = Reading::Frame;
            return Ok(Step::Took(HEADER_LENGTH));
        }
        let length = header.length as usize;
        if !length.is_multiple_of(SETTING_LENGTH) {
            return Err(ConnectionError::frame_size("SETTINGS of a wrong length"));
        }
        for _ in 0..length / (SETTING_LENGTH * SETTINGS_PER_CHARGE) {
            self.charge(Work::Control)?;
        }
        if header.length == 0 {
            self.peer.end();
            frame::write_settings_ack(out);
            self.reading = Reading::Frame;
        } else {
            self.reading = Reading::Settings {
                left: header.length,
            };
        }
        Ok(Step::Took(HEADER_LENGTH))
    }

    /// Reads one setting. The last one is followed by the acknowledgement.
    pub(super) fn settings(
        &mut self,
        rest: &[u8],
        left: u32,
        out: &mut Vec<u8>,
    ) -> Result<Step, ConnectionError> {
        let Some((setting, _)) = rest.split_first_chunk::<SETTING_LENGTH>() else {
            return Ok(Step::Wait);
        };
        let mut event = None;
        match self.peer.apply(*setting, self.role.peer())? {
            None => {}
            Some(settings::Change::Table { bytes }) => self.encoder.set_table_max(bytes),
            Some(settings::Change::Windows { by }) => {
                let why = "INITIAL_WINDOW_SIZE makes a window larger than 2^31-1";
                let shifted = self.streams.shift_windows(by);
                shifted.map_err(|_| ConnectionError::flow_control(why))?;
                if by > 0 && self.data_waits() {
                    event = Some(Event::WindowOpened { stream: None });
                }
            }
        }
        self.reading = match left.saturating_sub(SETTING_LENGTH as u32) {
            0 => {
                self.peer.end();
                frame::write_settings_ack(out);
                Reading::Frame
            }
            left => Reading::Settings { left },
        };
        Ok(Step::of(SETTING_LENGTH, event))
    }

    pub(super) fn ping_frame(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Step, ConnectionError> {
        if header.stream.is_some() {
            return Err(ConnectionError::protocol("PING on a stream"));
        }
        let Some(opaque) = fixed::<8>(header, payload, "PING of a wrong length")? else {
            return Ok(Step::Wait);
        };
        self.charge(Work::Control)?;
        if !header.has(flag::ACK) {
            frame::write_ping_ack(out, opaque);
        } else if self.closing == Closing::Announced && opaque == CLOSING_PING {
            self.close_gracefully(out);
        }
        Ok(self.took(header))
    }

    pub(super) fn window_update(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Step, ConnectionError> {
        let why = "WINDOW_UPDATE of a wrong length";
        let Some(increment) = fixed::<4>(header, payload, why)? else {
            return Ok(Step::Wait);
        };
        self.charge(Work::WindowUpdate)?;
        let increment = u32::from_be_bytes(increment) & 0x7fff_ffff;
        let event = match header.stream {
            None => self.open_window(increment)?,
            Some(stream) => self.open_stream_window(stream, increment, out)?,
        };
        let Step::Took(used) = self.took(header) else {
            return Ok(Step::Wait);
        };
        Ok(Step::of(used, event))
    }

    /// Makes the window of the connection larger.
    fn open_window(&mut self, increment: u32) -> Result<Option<Event>, ConnectionError> {
        if increment == 0 {
            return Err(ConnectionError::protocol("WINDOW_UPDATE of 0"));
        }
        let was_shut = self.send.room() == 0;
        let why = "the window of the connection is larger than 2^31-1";
        let shifted = self.send.shift(i64::from(increment));
        shifted.map_err(|_| ConnectionError::flow_control(why))?;
        let opened = was_shut && self.data_waits();
        Ok(opened.then_some(Event::WindowOpened { stream: None }))
    }

    /// Makes the window of a stream larger.
    fn open_stream_window(
        &mut self,
        id: StreamId,
        increment: u32,
        out: &mut Vec<u8>,
    ) -> Result<Option<Event>, ConnectionError> {
        let Some(stream) = self.streams.find(id).filter(|stream| stream.may_send()) else {
            self.check_opened(id, "WINDOW_UPDATE on an idle stream")?;
            return Ok(None);
        };
        let fault = if increment == 0 {
            (ErrorCode::ProtocolError, "WINDOW_UPDATE of 0")
        } else if stream.send.shift(i64::from(increment)).is_err() {
            let why = "the window is larger than 2^31-1";
            (ErrorCode::FlowControlError, why)
        } else {
            let waits = stream.waiting != Waiting::No;
            let event = Event::WindowOpened { stream: Some(id) };
            return Ok(waits.then_some(event));
        };
        let (code, why) = fault;
        self.stream_fault(id, code, why, out).map(Some)
    }

    pub(super) fn reset_frame(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Step, ConnectionError> {
        let Some(stream) = header.stream else {
            return Err(ConnectionError::protocol("RST_STREAM on stream 0"));
        };
        let why = "RST_STREAM of a wrong length";
        let Some(code) = fixed::<4>(header, payload, why)? else {
            return Ok(Step::Wait);
        };
        let code = ErrorCode::of(u32::from_be_bytes(code));
        let event = self.reset_by_peer(stream, code)?;
        let Step::Took(used) = self.took(header) else {
            return Ok(Step::Wait);
        };
        Ok(Step::of(used, event))
    }

    /// Resets a stream for the peer.
    fn reset_by_peer(
        &mut self,
        id: StreamId,
        code: ErrorCode,
    ) -> Result<Option<Event>, ConnectionError> {
        let found = self.streams.find(id);
        let Some(stream) = found.filter(|stream| !stream.is_closed()) else {
            self.check_opened(id, "RST_STREAM on an idle stream")?;
            self.charge(Work::Control)?;
            return Ok(None);
        };
        let is_answered = !matches!(stream.owed(), Some(Owed::Response { .. }));
        stream.advance(Change::Reset);
        self.charge_reset()?;
        Ok(Some(match (code, is_answered) {
            (ErrorCode::RefusedStream, false) => Event::Unprocessed { stream: id },
            _ => Event::Reset {
                stream: id,
                code,
                why: None,
            },
        }))
    }

    /// Priorities mean nothing (RFC 9113 §5.3.2), but their frames must be right (§6.3).
    pub(super) fn priority_frame(
        &mut self,
        header: FrameHeader,
        out: &mut Vec<u8>,
    ) -> Result<Step, ConnectionError> {
        let Some(id) = header.stream else {
            return Err(ConnectionError::protocol("PRIORITY on stream 0"));
        };
        self.charge(Work::Control)?;
        let step = self.skip_payload(header);
        if header.length == 5 {
            return Ok(step);
        }
        let why = "PRIORITY of a wrong length";
        if self
            .streams
            .find(id)
            .is_none_or(|stream| stream.is_closed())
        {
            return Err(ConnectionError::frame_size(why));
        }
        let event = self.stream_fault(id, ErrorCode::FrameSizeError, why, out)?;
        Ok(Step::Event(HEADER_LENGTH, event))
    }

    pub(super) fn go_away_frame(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<Step, ConnectionError> {
        if header.stream.is_some() {
            return Err(ConnectionError::protocol("GOAWAY on a stream"));
        }
        let Some(debug) = header.length.checked_sub(8) else {
            return Err(ConnectionError::frame_size("GOAWAY of a wrong length"));
        };
        let Some(([a, b, c, d, code @ ..], _)) = payload.split_first_chunk::<8>() else {
            return Ok(Step::Wait);
        };
        self.charge(Work::Control)?;
        self.reading = Reading::GoAway { debug };
        let code = ErrorCode::of(u32::from_be_bytes(*code));
        let last = u32::from_be_bytes([*a, *b, *c, *d]) & 0x7fff_ffff;
        self.stop_opening(last);
        let used = HEADER_LENGTH.saturating_add(8);
        Ok(Step::Event(used, Event::GoAway { code, last }))
    }

    /// Fails if a stream without an exchange was never opened.
    fn check_opened(&self, id: StreamId, why: &'static str) -> Result<(), ConnectionError> {
        match !self.is_ignored(id) && self.streams.gone(id) == Gone::Idle {
            true => Err(ConnectionError::protocol(why)),
            false => Ok(()),
        }
    }

    /// Ends a frame that was read as a whole.
    fn took(&mut self, header: FrameHeader) -> Step {
        self.reading = Reading::Frame;
        Step::Took(HEADER_LENGTH.saturating_add(header.length as usize))
    }
}

/// Returns the payload of a frame that must have `N` bytes. `None`: it is incomplete.
fn fixed<const N: usize>(
    header: FrameHeader,
    payload: &[u8],
    why: &'static str,
) -> Result<Option<[u8; N]>, ConnectionError> {
    if header.length as usize != N {
        return Err(ConnectionError::frame_size(why));
    }
    Ok(payload
        .split_first_chunk::<N>()
        .map(|(payload, _)| *payload))
}
