//! Parses messages of a logged-in client (§54.7 "Message Formats", those marked (F)).

use super::cursor::Cursor;
use super::frame::{self, Frame, LENGTH_MAX};
use super::{Parsed, ProtocolError};

/// `PQ_SMALL_MESSAGE_LIMIT`: the server's limit for messages that carry only names and numbers.
const SMALL_LENGTH_MAX: u32 = 10_000;

/// A statement or a portal, by name; the empty name is the unnamed one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target<'a> {
    /// `S`: a prepared statement.
    Statement(&'a [u8]),
    /// `P`: a portal.
    Portal(&'a [u8]),
}

/// One message of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request<'a> {
    /// `Q`: a simple query, of any number of statements.
    Query {
        /// The SQL text.
        text: &'a [u8],
    },
    /// `P`: creates a prepared statement.
    Parse {
        /// Name of the statement, empty for the unnamed one.
        statement: &'a [u8],
        /// The SQL text, of at most one statement.
        text: &'a [u8],
        /// The OIDs of parameter types that the client gives, four bytes each.
        types: &'a [u8],
    },
    /// `B`: creates a portal from a prepared statement and its parameters.
    Bind {
        /// The portal's name.
        portal: &'a [u8],
        /// The prepared statement's name.
        statement: &'a [u8],
        /// Formats and values, as sent.
        values: &'a [u8],
    },
    /// `D`: requests the parameters and columns.
    Describe(Target<'a>),
    /// `E`: executes a portal.
    Execute {
        /// The portal's name.
        portal: &'a [u8],
        /// The most rows to return; 0: all.
        rows_max: u32,
    },
    /// `C`: closes a statement or portal.
    Close(Target<'a>),
    /// `H`: requests all pending output.
    Flush,
    /// `S`: end of an extended-query transaction.
    Sync,
    /// `F`: calls a function by OID.
    FunctionCall {
        /// The function's OID.
        function: u32,
        /// Formats and arguments, as sent.
        arguments: &'a [u8],
    },
    /// `d`: data of a COPY.
    CopyData(&'a [u8]),
    /// `c`: the end of a COPY's data.
    CopyDone,
    /// `f`: the client aborts a COPY.
    CopyFail {
        /// The error text that the server is to report.
        reason: &'a [u8],
    },
    /// `p`: a password or SASL message; only during a login.
    Password(&'a [u8]),
    /// `X`: the client disconnects.
    Terminate,
}

/// Parses a client's message.
///
/// # Errors
///
/// Fails for a tag that clients do not send, or a body that does not have the format in §54.7.
pub fn request(frame: Frame<'_>) -> Result<Request<'_>, ProtocolError> {
    if length_max(frame.tag).is_none() {
        return Err(ProtocolError::UnknownTag(frame.tag));
    }
    read(frame.tag, Cursor(frame.body)).ok_or(ProtocolError::Malformed(frame.tag))
}

/// Returns the limit for the length field of a client's message, or `None` if clients send no such
/// message.
#[must_use]
pub fn length_max(tag: u8) -> Option<u32> {
    match tag {
        b'Q' | b'P' | b'B' | b'F' | b'd' => Some(LENGTH_MAX),
        b'D' | b'E' | b'C' | b'H' | b'S' | b'c' | b'f' | b'X' => Some(SMALL_LENGTH_MAX),
        // `PG_MAX_AUTH_TOKEN_LENGTH`
        b'p' => Some(65_535),
        _ => None,
    }
}

fn read(tag: u8, mut body: Cursor<'_>) -> Option<Request<'_>> {
    match tag {
        b'Q' => {
            let text = body.text()?;
            body.end(Request::Query { text })
        }
        b'P' => read_parse(body),
        b'B' => Some(Request::Bind {
            portal: body.text()?,
            statement: body.text()?,
            values: body.rest(),
        }),
        b'D' => read_target(body).map(Request::Describe),
        b'C' => read_target(body).map(Request::Close),
        b'E' => {
            let (portal, rows_max) = (body.text()?, body.be_u32()?);
            body.end(Request::Execute { portal, rows_max })
        }
        b'H' => body.end(Request::Flush),
        b'S' => body.end(Request::Sync),
        b'F' => Some(Request::FunctionCall {
            function: body.be_u32()?,
            arguments: body.rest(),
        }),
        b'd' => Some(Request::CopyData(body.rest())),
        b'c' => body.end(Request::CopyDone),
        b'f' => {
            let reason = body.text()?;
            body.end(Request::CopyFail { reason })
        }
        b'p' => Some(Request::Password(body.rest())),
        b'X' => body.end(Request::Terminate),
        _ => None,
    }
}

fn read_parse(mut body: Cursor<'_>) -> Option<Request<'_>> {
    let (statement, text) = (body.text()?, body.text()?);
    let count = usize::from(body.be_u16()?);
    let types = body.bytes(count.saturating_mul(4))?;
    body.end(Request::Parse {
        statement,
        text,
        types,
    })
}

fn read_target(mut body: Cursor<'_>) -> Option<Target<'_>> {
    let (kind, name) = (body.byte()?, body.text()?);
    let target = match kind {
        b'S' => Target::Statement(name),
        b'P' => Target::Portal(name),
        _ => return None,
    };
    body.end(target)
}
/// Values of a whole Bind message, as far as a statement with one parameter and one column needs
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BindValues<'a> {
    /// First parameter, and whether it is in binary form.
    first: Option<(&'a [u8], bool)>,
    is_first_result_binary: bool,
}

impl<'a> BindValues<'a> {
    /// Reads a message with its header; `None`: it is not a whole and well-formed Bind.
    #[must_use]
    pub fn read(message: &'a [u8]) -> Option<Self> {
        let Parsed::Frame(frame, _) = frame::frame(message, LENGTH_MAX) else {
            return None;
        };
        let mut body = Cursor(frame.body);
        body.text()?;
        body.text()?;
        let is_binary = read_first_format(&mut body)?;
        let count = body.be_u16()?;
        let mut first = None;
        for number in 0..count {
            let value = match usize::try_from(body.be_i32()?) {
                Ok(length) => Some((body.bytes(length)?, is_binary)),
                Err(_) => None,
            };
            if number == 0 {
                first = value;
            }
        }
        let is_first_result_binary = read_first_format(&mut body)?;
        body.end(Self {
            first,
            is_first_result_binary,
        })
    }

    /// Returns the first parameter, if it is a number that is not negative.
    #[must_use]
    pub fn first_number(&self) -> Option<u32> {
        match self.first? {
            (value, false) => std::str::from_utf8(value).ok()?.trim().parse().ok(),
            (value, true) => match value.len() {
                4 => u32::try_from(i32::from_be_bytes(value.try_into().ok()?)).ok(),
                8 => u32::try_from(i64::from_be_bytes(value.try_into().ok()?)).ok(),
                _ => None,
            },
        }
    }

    /// Returns whether the client receives the first column in binary form.
    #[must_use]
    pub fn is_first_result_binary(&self) -> bool {
        self.is_first_result_binary
    }
}

/// Reads format codes; returns whether the first value is in binary form.
fn read_first_format(body: &mut Cursor<'_>) -> Option<bool> {
    let count = body.be_u16()?;
    let mut first = 0;
    for number in 0..count {
        let format = body.be_u16()?;
        if number == 0 {
            first = format;
        }
    }
    Some(first == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::build;

    #[test]
    fn the_first_value_of_a_bind_is_read_in_both_forms() {
        let mut message = Vec::new();
        build::bind(&mut message, b"p", b"s", &[Some(b"17"), None]);
        let values = BindValues::read(&message).unwrap();
        assert_eq!(values.first_number(), Some(17));
        assert!(!values.is_first_result_binary());
        let binary = b"B\0\0\0\x18\0\0\0\x01\0\x01\0\x01\0\0\0\x04\0\0\x01\0\0\x01\0\x01";
        let values = BindValues::read(binary).unwrap();
        assert_eq!(values.first_number(), Some(256));
        assert!(values.is_first_result_binary());
        for cut in 0..binary.len() {
            assert_eq!(BindValues::read(&binary[..cut]), None, "cut at {cut}");
        }
    }

    #[test]
    fn what_is_no_number_or_negative_is_none() {
        for value in [&b"x"[..], b"-1", b"", b"99999999999"] {
            let mut message = Vec::new();
            build::bind(&mut message, b"", b"", &[Some(value)]);
            assert_eq!(BindValues::read(&message).unwrap().first_number(), None);
        }
        let mut message = Vec::new();
        build::bind(&mut message, b"", b"", &[None]);
        assert_eq!(BindValues::read(&message).unwrap().first_number(), None);
    }
}
