//! Parses server messages (§54.7 "Message Formats", those marked (B)); rows stay bytes.

use super::cursor::Cursor;
use super::frame::Frame;
use super::{ProtocolError, TransactionStatus};

mod error_report;
mod rows;

pub use error_report::{CommandTag, ErrorReport, SqlState};
pub use rows::{Column, columns, rows, values};

/// One message of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message<'a> {
    /// `R`: a step of the login.
    Authentication(Authentication<'a>),
    /// `K`: the key that a cancel request must present.
    BackendKeyData {
        /// The server's process id.
        process: u32,
        /// 4 bytes in protocol 3.0, up to 256 in 3.2.
        secret: &'a [u8],
    },
    /// `S`: a setting's value, during login and after each change; possible at any time.
    ParameterStatus {
        /// The setting.
        name: &'a [u8],
        /// New value.
        value: &'a [u8],
    },
    /// `v`: the server supports an older minor version, or does not know some options.
    NegotiateProtocolVersion {
        /// The version that the server supports, as in a startup packet.
        version: u32,
        /// How many options the server did not know; their names follow in the message.
        options: u32,
    },
    /// `Z`: the server waits for the next command.
    ReadyForQuery(TransactionStatus),
    /// `E`: the command failed; or, at any time, the server ends the connection.
    Error(ErrorReport<'a>),
    /// `N`: a warning; possible at any time.
    Notice(ErrorReport<'a>),
    /// `A`: a NOTIFY; possible at any time.
    Notification {
        /// The notifying server process.
        process: u32,
        /// The channel.
        channel: &'a [u8],
        /// The payload.
        payload: &'a [u8],
    },
    /// `C`: a statement succeeded.
    CommandComplete(CommandTag<'a>),
    /// `I`: the text was empty.
    EmptyQuery,
    /// `s`: Execute's row limit was reached.
    PortalSuspended,
    /// `1`: answers Parse.
    ParseComplete,
    /// `2`: answers Bind.
    BindComplete,
    /// `3`: answers Close.
    CloseComplete,
    /// `n`: answers Describe of a statement or portal that returns no rows.
    NoData,
    /// `T`: the columns of the rows that follow, or the answer to Describe; see [`columns`].
    RowDescription(&'a [u8]),
    /// `t`: answers Describe of a statement, before [`Message::RowDescription`] or `NoData`.
    ParameterDescription(&'a [u8]),
    /// `D`: a row; see [`values`].
    DataRow(&'a [u8]),
    /// `G`: the server waits for COPY data.
    CopyIn(&'a [u8]),
    /// `H`: COPY data follows.
    CopyOut(&'a [u8]),
    /// `W`: replication: data in both directions.
    CopyBoth(&'a [u8]),
    /// `d`: data of a COPY.
    CopyData(&'a [u8]),
    /// `c`: the end of a COPY's data.
    CopyDone,
    /// `V`: the result of a function call.
    FunctionResult(&'a [u8]),
}

/// Authentication request of the server: one step of the login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authentication<'a> {
    /// 0: logged in.
    Ok,
    /// 3: send the password as it is.
    CleartextPassword,
    /// 5: send the password hashed with this salt.
    Md5Password {
        /// Salt of the hash, against replay.
        salt: [u8; 4],
    },
    /// 10: choose one of these SASL mechanisms.
    Sasl(Mechanisms<'a>),
    /// 11: the server's SASL challenge.
    SaslContinue(&'a [u8]),
    /// 12: the server's last SASL message.
    SaslFinal(&'a [u8]),
    /// Kerberos, GSSAPI, SSPI or anything newer (the number as sent).
    Other(u32),
}

/// List of SASL mechanism names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mechanisms<'a>(&'a [u8]);

impl<'a> Mechanisms<'a> {
    /// Returns the names in the server's order of preference.
    pub fn names(self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = Cursor(self.0);
        std::iter::from_fn(move || rest.text().filter(|name| !name.is_empty()))
    }
}

/// Parses a server's message.
///
/// # Errors
///
/// Fails for a tag that servers do not send, or a body that does not have the format in §54.7.
pub fn message(frame: Frame<'_>) -> Result<Message<'_>, ProtocolError> {
    if !is_tag(frame.tag) {
        return Err(ProtocolError::UnknownTag(frame.tag));
    }
    read(frame.tag, frame.body).ok_or(ProtocolError::Malformed(frame.tag))
}

/// Returns whether servers send messages of this tag.
#[must_use]
#[inline]
pub fn is_tag(tag: u8) -> bool {
    matches!(
        tag,
        b'R' | b'K' | b'S' | b'v' | b'Z' | b'E' | b'N' | b'A' | b'C' | b'I' | b's' | b'1'
            ..=b'3' | b'n' | b'T' | b't' | b'D' | b'G' | b'H' | b'W' | b'd' | b'c' | b'V'
    )
}

fn read(tag: u8, bytes: &[u8]) -> Option<Message<'_>> {
    let body = Cursor(bytes);
    match tag {
        b'D' => Some(Message::DataRow(bytes)),
        b'd' => Some(Message::CopyData(bytes)),
        b'T' => Some(Message::RowDescription(bytes)),
        b't' => Some(Message::ParameterDescription(bytes)),
        b'G' => Some(Message::CopyIn(bytes)),
        b'H' => Some(Message::CopyOut(bytes)),
        b'W' => Some(Message::CopyBoth(bytes)),
        b'V' => Some(Message::FunctionResult(bytes)),
        b'I' => body.end(Message::EmptyQuery),
        b's' => body.end(Message::PortalSuspended),
        b'1' => body.end(Message::ParseComplete),
        b'2' => body.end(Message::BindComplete),
        b'3' => body.end(Message::CloseComplete),
        b'n' => body.end(Message::NoData),
        b'c' => body.end(Message::CopyDone),
        b'E' => ErrorReport::read(bytes).map(Message::Error),
        b'N' => ErrorReport::read(bytes).map(Message::Notice),
        _ => read_fields(tag, body),
    }
}

fn read_fields(tag: u8, mut body: Cursor<'_>) -> Option<Message<'_>> {
    let read = match tag {
        b'Z' => Message::ReadyForQuery(TransactionStatus::of(body.byte()?)?),
        b'C' => Message::CommandComplete(CommandTag(body.text()?)),
        b'S' => Message::ParameterStatus {
            name: body.text()?,
            value: body.text()?,
        },
        b'A' => Message::Notification {
            process: body.be_u32()?,
            channel: body.text()?,
            payload: body.text()?,
        },
        b'K' => return read_key(body),
        b'v' => {
            let (version, options) = (body.be_u32()?, body.be_u32()?);
            return Some(Message::NegotiateProtocolVersion { version, options });
        }
        b'R' => return read_authentication(body).map(Message::Authentication),
        _ => return None,
    };
    body.end(read)
}

fn read_key(mut body: Cursor<'_>) -> Option<Message<'_>> {
    let process = body.be_u32()?;
    let secret = body.rest();
    let possible = (4..=256).contains(&secret.len());
    possible.then_some(Message::BackendKeyData { process, secret })
}

fn read_authentication(mut body: Cursor<'_>) -> Option<Authentication<'_>> {
    match body.be_u32()? {
        0 => body.end(Authentication::Ok),
        3 => body.end(Authentication::CleartextPassword),
        5 => {
            let salt = body.array()?;
            body.end(Authentication::Md5Password { salt })
        }
        10 => {
            let names = body.rest();
            let ended = names.ends_with(b"\0\0") || names == b"\0";
            ended.then_some(Authentication::Sasl(Mechanisms(names)))
        }
        11 => Some(Authentication::SaslContinue(body.rest())),
        12 => Some(Authentication::SaslFinal(body.rest())),
        other => Some(Authentication::Other(other)),
    }
}

#[cfg(test)]
mod tests;
