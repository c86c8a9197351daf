//! Decoder of chunked bodies: strict, and with memory of its own for trailers only.

use std::ops::Range;

use crate::http::fault::{Fault, Limit};
use crate::http::grammar;
use crate::http::head::{Field, HeadLimits, Trailers};

/// The most hexadecimal digits of a chunk size.
const SIZE_DIGITS_MAX: u8 = 16;

/// Limits of a chunked body, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkLimits {
    /// Extensions of one chunk.
    pub chunk_extension_bytes_max: usize,
    /// Extensions of all chunks: a sender of many small chunks with extensions makes the receiver
    /// read much for few data.
    pub body_extension_bytes_max: usize,
    /// Trailer section.
    pub trailer_bytes_max: usize,
    /// Number of trailer fields.
    pub trailer_fields_max: usize,
}

impl Default for ChunkLimits {
    fn default() -> Self {
        ChunkLimits {
            chunk_extension_bytes_max: 256,
            body_extension_bytes_max: 16_384,
            trailer_bytes_max: 8_192,
            trailer_fields_max: 64,
        }
    }
}

/// Next part of a chunked body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Data of the body: this range of the input, which is not empty. The input up to its end is
    /// consumed; call again with the rest.
    Data(Range<usize>),
    /// The whole input is consumed; call again with the bytes that follow it.
    Incomplete,
    /// The body is complete.
    End {
        /// Bytes of the input that belong to the body.
        consumed: usize,
    },
    /// Not the framing of a body: the connection must be closed.
    Invalid(Fault),
}

/// State of a chunked body, between two pieces of it.
#[derive(Debug)]
pub struct ChunkDecoder {
    limits: ChunkLimits,
    state: State,
    /// Bytes of extensions in all chunks.
    extension_bytes: usize,
    trailers: Trailers,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Digits of the size of a chunk.
    Size {
        digits: u8,
        size: u64,
    },
    /// Extensions of a chunk.
    Extension {
        size: u64,
        bytes: usize,
        part: Part,
    },
    /// Before the LF of the line with the size.
    SizeLineFeed {
        size: u64,
    },
    /// Data of a chunk.
    Data {
        left: u64,
    },
    /// Before the CR after the data.
    DataReturn,
    /// Before the LF after the data.
    DataLineFeed,
    /// Before the trailer section.
    TrailerStart,
    /// Before the LF that ends a body without trailers.
    LastLineFeed,
    /// Trailer section.
    Trailers,
    /// After the body.
    Ended,
    Failed(Fault),
}

/// Part of `*( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] )` (RFC 9112 §7.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Whitespace before `;`: after the size, or after an extension.
    BeforeSemicolon,
    /// Whitespace before the name.
    BeforeName,
    Name,
    /// Whitespace after the name, before `=`, `;` or the end.
    AfterName,
    /// Whitespace after `=`.
    BeforeValue,
    Value,
    Quoted,
    /// After a backslash in a quoted string.
    Escaped,
    /// After the closing quote.
    AfterQuoted,
}

impl ChunkDecoder {
    /// Creates a decoder at the first byte of a body.
    #[must_use]
    pub fn new(limits: ChunkLimits) -> Self {
        ChunkDecoder {
            limits,
            state: START,
            extension_bytes: 0,
            trailers: Trailers::default(),
        }
    }

    /// Begins another body, and keeps the memory.
    pub fn restart(&mut self) {
        self.state = START;
        self.extension_bytes = 0;
        self.trailers.clear();
    }

    /// Decodes the input, which follows what was consumed before.
    pub fn next(&mut self, input: &[u8]) -> Step {
        let mut at = 0;
        loop {
            if let State::Data { left } = self.state
                && at < input.len()
            {
                return self.data(input, at, left);
            }
            match self.state {
                State::Ended => return Step::End { consumed: at },
                State::Failed(fault) => return Step::Invalid(fault),
                State::Trailers => match self.trailer_bytes(input, at) {
                    Ok(consumed) => at = consumed,
                    Err(fault) => self.state = State::Failed(fault),
                },
                _ => match input.get(at) {
                    None => return Step::Incomplete,
                    Some(&byte) => match self.byte(byte) {
                        Ok(State::Trailers) => self.state = State::Trailers,
                        Ok(state) => {
                            self.state = state;
                            at = at.saturating_add(1);
                        }
                        Err(fault) => self.state = State::Failed(fault),
                    },
                },
            }
            if at >= input.len() && !matches!(self.state, State::Ended | State::Failed(_)) {
                return Step::Incomplete;
            }
        }
    }

    /// Returns whether the body is complete.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.state == State::Ended
    }

    /// Returns the trailer fields of a complete body that may be passed on: those of framing,
    /// routing, authentication and of the content are left out (RFC 9110 §6.5.1).
    pub fn trailers(&self) -> impl Iterator<Item = Field<'_>> {
        self.trailers.fields()
    }

    fn data(&mut self, input: &[u8], at: usize, left: u64) -> Step {
        let there = input.len().saturating_sub(at);
        let count = usize::try_from(left).map_or(there, |left| left.min(there));
        let left = left.saturating_sub(count as u64);
        self.state = match left {
            0 => State::DataReturn,
            left => State::Data { left },
        };
        Step::Data(at..at.saturating_add(count))
    }

    /// Returns the state after a byte of the framing; `Trailers`, before the byte.
    fn byte(&mut self, byte: u8) -> Result<State, Fault> {
        let wrong = Err(Fault::Chunk { byte });
        match (self.state, byte) {
            (State::Size { digits, size }, byte) => self.size(byte, digits, size),
            (State::Extension { size, bytes, part }, byte) => {
                self.extension(byte, size, bytes, part)
            }
            (State::SizeLineFeed { size: 0 }, b'\n') => Ok(State::TrailerStart),
            (State::SizeLineFeed { size }, b'\n') => Ok(State::Data { left: size }),
            (State::DataReturn, b'\r') => Ok(State::DataLineFeed),
            (State::DataLineFeed, b'\n') => Ok(START),
            (State::TrailerStart, b'\r') => Ok(State::LastLineFeed),
            (State::TrailerStart, _) => Ok(State::Trailers),
            (State::LastLineFeed, b'\n') => Ok(State::Ended),
            _ => wrong,
        }
    }

    /// Reads a byte of a chunk size: hexadecimal digits without sign, prefix or space.
    fn size(&mut self, byte: u8, digits: u8, size: u64) -> Result<State, Fault> {
        let digit = match byte {
            b'0'..=b'9' => byte.wrapping_sub(b'0'),
            b'a'..=b'f' => byte.wrapping_sub(b'a').wrapping_add(10),
            b'A'..=b'F' => byte.wrapping_sub(b'A').wrapping_add(10),
            b'\r' if digits > 0 => return Ok(State::SizeLineFeed { size }),
            b';' | b' ' | b'\t' if digits > 0 => {
                return self.extension(byte, size, 0, Part::BeforeSemicolon);
            }
            byte => return Err(Fault::Chunk { byte }),
        };
        if digits >= SIZE_DIGITS_MAX || size >> 59 != 0 {
            return Err(Fault::ChunkSize);
        }
        Ok(State::Size {
            digits: digits.saturating_add(1),
            size: size << 4 | u64::from(digit),
        })
    }

    fn extension(&mut self, byte: u8, size: u64, bytes: usize, part: Part) -> Result<State, Fault> {
        if byte == b'\r' {
            return match part {
                Part::Name | Part::Value | Part::AfterQuoted => Ok(State::SizeLineFeed { size }),
                _ => Err(Fault::Chunk { byte }),
            };
        }
        let part = part.after(byte).ok_or(Fault::Chunk { byte })?;
        let bytes = bytes.saturating_add(1);
        self.extension_bytes = self.extension_bytes.saturating_add(1);
        if bytes > self.limits.chunk_extension_bytes_max {
            let limit = self.limits.chunk_extension_bytes_max;
            return Err(Fault::Limit(Limit::ChunkExtensionBytes(limit)));
        }
        if self.extension_bytes > self.limits.body_extension_bytes_max {
            let limit = self.limits.body_extension_bytes_max;
            return Err(Fault::Limit(Limit::BodyExtensionBytes(limit)));
        }
        Ok(State::Extension { size, bytes, part })
    }

    /// Takes bytes of the trailer section. Returns how many of the input are consumed then.
    fn trailer_bytes(&mut self, input: &[u8], at: usize) -> Result<usize, Fault> {
        let limits = HeadLimits {
            head_bytes_max: self.limits.trailer_bytes_max,
            fields_max: self.limits.trailer_fields_max,
            ..HeadLimits::default()
        };
        let rest = input.get(at..).unwrap_or_default();
        match self.trailers.take(rest, &limits)? {
            Some(count) => {
                self.state = State::Ended;
                Ok(at.saturating_add(count))
            }
            None => Ok(input.len()),
        }
    }
}

const START: State = State::Size { digits: 0, size: 0 };

impl Part {
    /// Returns the part after a byte other than CR. `None`: the byte may not be there.
    fn after(self, byte: u8) -> Option<Part> {
        let is_space = grammar::is_space(byte);
        Some(match (self, byte) {
            (Part::BeforeSemicolon | Part::BeforeName | Part::AfterName | Part::BeforeValue, _)
                if is_space =>
            {
                self
            }
            (Part::Name, _) if is_space => Part::AfterName,
            (Part::Value | Part::AfterQuoted, _) if is_space => Part::BeforeSemicolon,
            (
                Part::BeforeSemicolon
                | Part::Name
                | Part::AfterName
                | Part::Value
                | Part::AfterQuoted,
                b';',
            ) => Part::BeforeName,
            (Part::Name | Part::AfterName, b'=') => Part::BeforeValue,
            (Part::BeforeValue, b'"') => Part::Quoted,
            (Part::Quoted, b'"') => Part::AfterQuoted,
            (Part::Quoted, b'\\') => Part::Escaped,
            (Part::Quoted | Part::Escaped, _) if grammar::is_value_text(&[byte]) => Part::Quoted,
            (Part::BeforeName | Part::Name, _) if grammar::is_token(byte) => Part::Name,
            (Part::BeforeValue | Part::Value, _) if grammar::is_token(byte) => Part::Value,
            _ => return None,
        })
    }
}
