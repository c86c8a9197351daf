//! Reasons for which a message is refused, with the status that answers each.

use std::fmt;

/// Reason for which a message is refused. The connection must be closed after the answer, because
/// the end of the message is unknown.
///
/// Offsets count from the first byte of the head, or of the body's framing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A part of the message is larger than a configured limit.
    Limit(Limit),
    /// CR without LF.
    BareCarriageReturn {
        /// Offset of the CR.
        at: u32,
    },
    /// LF without CR.
    BareLineFeed {
        /// Offset of the LF.
        at: u32,
    },
    /// Byte that is not allowed at its place.
    Byte {
        /// Offset of the byte.
        at: u32,
        /// The byte.
        byte: u8,
    },
    /// No method before the first space, or a byte that no method has.
    Method {
        /// Offset of the byte.
        at: u32,
    },
    /// Method longer than any that is known.
    MethodTooLong,
    /// `CONNECT`: no tunnels to other hosts.
    Connect,
    /// Target that is not of a form that the method has.
    Target,
    /// No version where one must be, such as in a request of HTTP/0.9.
    Version {
        /// Offset of the first wrong byte.
        at: u32,
    },
    /// Version other than 1.0 and 1.1.
    UnsupportedVersion,
    /// Status code that is not three digits from 100 on.
    StatusCode,
    /// Field without a name.
    EmptyName {
        /// Offset of the line.
        at: u32,
    },
    /// Byte that no field name has.
    Name {
        /// Offset of the byte.
        at: u32,
        /// The byte.
        byte: u8,
    },
    /// Space between a field's name and the colon (RFC 9112 §5.1).
    SpaceBeforeColon {
        /// Offset of the space.
        at: u32,
    },
    /// Line that continues the one before it (RFC 9112 §5.2), or a space before the first field.
    Folded {
        /// Offset of the line.
        at: u32,
    },
    /// HTTP/1.1 request without `Host`.
    HostMissing,
    /// More than one `Host`.
    HostRepeated,
    /// `Host` or authority of the target that is not a name or address with an optional port.
    Host,
    /// `Host` that differs from the authority of the target.
    HostDiffers,
    /// `Content-Length` that is not one number below 2^63.
    ContentLength,
    /// More than one `Content-Length`.
    ContentLengthRepeated,
    /// Both `Content-Length` and `Transfer-Encoding`.
    TwoFramings,
    /// `Transfer-Encoding` with a coding other than `chunked`.
    TransferCoding,
    /// `Transfer-Encoding` that is not exactly one `chunked`.
    TransferEncoding,
    /// `Transfer-Encoding` in a message of HTTP/1.0.
    TransferEncodingInOldVersion,
    /// `Connection` that is not a list of options.
    Connection,
    /// More fields are named by `Connection` than are allowed.
    TooManyOptions,
    /// `Expect` other than `100-continue`.
    Expectation,
    /// Wrong byte in a line of chunked framing.
    Chunk {
        /// The byte.
        byte: u8,
    },
    /// Chunk size of more than 16 digits, or above 2^63.
    ChunkSize,
    /// Trailer field that breaks the grammar of fields.
    Trailer,
}

/// Limit that a message exceeds, with its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Bytes of the head.
    HeadBytes(usize),
    /// Bytes of the request target.
    TargetBytes(usize),
    /// Number of fields in the head.
    Fields(usize),
    /// Bytes of the extensions of one chunk.
    ChunkExtensionBytes(usize),
    /// Bytes of the extensions of all chunks of a body.
    BodyExtensionBytes(usize),
    /// Bytes of the trailer section.
    TrailerBytes(usize),
}

impl Fault {
    /// Returns the status of the answer to the request. A response with a fault is answered with
    /// 502.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Fault::Limit(Limit::TargetBytes(_)) => 414,
            Fault::Limit(Limit::HeadBytes(_) | Limit::Fields(_) | Limit::TrailerBytes(_)) => 431,
            Fault::MethodTooLong | Fault::Connect | Fault::TransferCoding => 501,
            Fault::UnsupportedVersion => 505,
            Fault::Expectation => 417,
            _ => 400,
        }
    }

    /// Returns the limit that the message exceeds, whose configuration key belongs in the answer.
    #[must_use]
    pub fn limit(&self) -> Option<Limit> {
        match self {
            Fault::Limit(limit) => Some(*limit),
            _ => None,
        }
    }

    /// Returns the reason as a short text without data, for counters and logs.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Fault::Limit(limit) => limit.reason(),
            Fault::BareCarriageReturn { .. } => "a carriage return without a line feed",
            Fault::BareLineFeed { .. } => "a line feed without a carriage return",
            Fault::Byte { .. } => "a byte that is not allowed at its place",
            Fault::Method { .. } => "the method is not a token",
            Fault::MethodTooLong => "the method is too long",
            Fault::Connect => "the method CONNECT is not supported",
            Fault::Target => "the target is not of a form that the method has",
            Fault::Version { .. } => "the version is missing or malformed",
            Fault::UnsupportedVersion => "the version is neither HTTP/1.0 nor HTTP/1.1",
            Fault::StatusCode => "the status code is not a number from 100 to 999",
            Fault::EmptyName { .. } => "a field has no name",
            Fault::Name { .. } => "a byte that no field name has",
            Fault::SpaceBeforeColon { .. } => "a space before the colon of a field",
            Fault::Folded { .. } => "a line of the head begins with a space",
            Fault::HostMissing => "the field Host is missing",
            Fault::HostRepeated => "there is more than one field Host",
            Fault::Host => "the host is not a name or address with an optional port",
            Fault::HostDiffers => "the field Host differs from the host of the target",
            Fault::ContentLength => "Content-Length is not a number below 2^63",
            Fault::ContentLengthRepeated => "there is more than one Content-Length",
            Fault::TwoFramings => "there are both Content-Length and Transfer-Encoding",
            Fault::TransferCoding => "a transfer coding other than chunked is not supported",
            Fault::TransferEncoding => "Transfer-Encoding is not exactly one chunked",
            Fault::TransferEncodingInOldVersion => "HTTP/1.0 has no Transfer-Encoding",
            Fault::Connection => "Connection is not a list of options",
            Fault::TooManyOptions => "Connection has too many options",
            Fault::Expectation => "an expectation other than 100-continue is not supported",
            Fault::Chunk { .. } => "a wrong byte in a line of chunked framing",
            Fault::ChunkSize => "the size of a chunk is too large",
            Fault::Trailer => "a trailer field is malformed",
        }
    }
}

impl fmt::Display for Fault {
    /// Writes the reason, with the byte, its offset or the limit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())?;
        match *self {
            Fault::Limit(limit) => write!(f, " ({})", limit.value()),
            Fault::Byte { at, byte } | Fault::Name { at, byte } => {
                write!(f, " (0x{byte:02x} at offset {at})")
            }
            Fault::Chunk { byte } => write!(f, " (0x{byte:02x})"),
            Fault::BareCarriageReturn { at }
            | Fault::BareLineFeed { at }
            | Fault::Method { at }
            | Fault::Version { at }
            | Fault::EmptyName { at }
            | Fault::SpaceBeforeColon { at }
            | Fault::Folded { at } => write!(f, " (at offset {at})"),
            _ => Ok(()),
        }
    }
}

impl Limit {
    /// Returns the value of the limit.
    #[must_use]
    pub fn value(&self) -> usize {
        match *self {
            Limit::HeadBytes(value)
            | Limit::TargetBytes(value)
            | Limit::Fields(value)
            | Limit::ChunkExtensionBytes(value)
            | Limit::BodyExtensionBytes(value)
            | Limit::TrailerBytes(value) => value,
        }
    }

    fn reason(self) -> &'static str {
        match self {
            Limit::HeadBytes(_) => "the head has more bytes than the limit",
            Limit::TargetBytes(_) => "the target has more bytes than the limit",
            Limit::Fields(_) => "the head has more fields than the limit",
            Limit::ChunkExtensionBytes(_) => "a chunk has more bytes of extensions than the limit",
            Limit::BodyExtensionBytes(_) => "the body has more bytes of extensions than the limit",
            Limit::TrailerBytes(_) => "the trailers have more bytes than the limit",
        }
    }
}
