//! State of a response's body on its way to the client.

use evenkeel_wire::http::chunked::{ChunkDecoder, ChunkEncoder, ChunkLimits, Step};
use evenkeel_wire::http::{Fault, Field, Framing};

use super::compress::Compressed;
use super::exchange::{Recoded, Recoding};

/// Rest of the response body, on its way to the client.
pub(super) enum Download {
    /// Number of bytes that have not been received.
    Length(u64),
    /// Chunked, towards a client of HTTP/1.1.
    Chunked(Box<Recoding>),
    /// Chunked, towards a client of HTTP/1.0: the data alone, until the end of the connection.
    Unchunked(Box<ChunkDecoder>),
    /// All bytes until the server closes, as chunks.
    UntilClose(ChunkEncoder),
    /// All bytes until the server closes, unchanged.
    Unframed,
    /// Compressed on the way.
    Compressed(Box<Compressed>),
}

/// Result of passing a part of a body on.
pub(super) enum Passed {
    /// More of the body follows.
    Partial,
    /// The body is complete; this number of bytes belongs to it.
    Complete(usize),
}

impl Download {
    /// Returns the state of a body with a framing at the server and one at the client. `None`:
    /// there is no body.
    pub(super) fn new(from: Framing, to: Framing) -> Option<Self> {
        Some(match (from, to) {
            (Framing::None | Framing::Length(0), _) => return None,
            (Framing::Length(length), _) => Self::Length(length),
            (Framing::Chunked, Framing::Chunked) => Self::Chunked(Box::new(Recoding::new())),
            (Framing::Chunked, _) => {
                Self::Unchunked(Box::new(ChunkDecoder::new(ChunkLimits::default())))
            }
            (Framing::UntilClose, Framing::Chunked) => Self::UntilClose(ChunkEncoder::new()),
            (Framing::UntilClose, _) => Self::Unframed,
        })
    }

    /// Wraps a body that is compressed.
    pub(super) fn compressed(body: Compressed) -> Self {
        Self::Compressed(Box::new(body))
    }

    /// Returns whether the end of the server's connection is the end of the body.
    pub(super) fn lasts_until_close(&self) -> bool {
        match self {
            Self::Unframed | Self::UntilClose(_) => true,
            Self::Compressed(body) => body.lasts_until_close(),
            Self::Length(_) | Self::Chunked(_) | Self::Unchunked(_) => false,
        }
    }

    /// Returns the decoder of a body whose trailers are sent apart from it.
    pub(super) fn separate_trailers(&self) -> Option<&ChunkDecoder> {
        match self {
            Self::Unchunked(decoder) => Some(decoder),
            Self::Compressed(body) => body.separate_trailers(),
            _ => None,
        }
    }

    /// Appends the next bytes of a body in the client's framing to `out`.
    pub(super) fn pass(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Passed, String> {
        match self {
            Self::Length(left) => {
                let taken = take(left, bytes);
                out.extend_from_slice(taken);
                Ok(match left {
                    0 => Passed::Complete(taken.len()),
                    _ => Passed::Partial,
                })
            }
            Self::Chunked(recoding) => Ok(match recoding.recode(bytes, &mut 0, out) {
                Ok(Recoded::Partial) => Passed::Partial,
                Ok(Recoded::Complete(used)) => Passed::Complete(used),
                Err(fault) => return Err(fault.to_string()),
            }),
            Self::Unchunked(decoder) => {
                let passed = unchunk(decoder, bytes, |data| out.extend_from_slice(data));
                passed.map_err(|fault| fault.to_string())
            }
            Self::UntilClose(encoder) => {
                encoder.whole(bytes, out);
                Ok(Passed::Partial)
            }
            Self::Unframed => {
                out.extend_from_slice(bytes);
                Ok(Passed::Partial)
            }
            Self::Compressed(body) => body.pass(bytes, out),
        }
    }

    /// Appends the end of a body that lasts until the server closes, with trailers if it has
    /// chunks.
    pub(super) fn end<'t>(
        &mut self,
        trailers: impl Iterator<Item = Field<'t>>,
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
        match self {
            Self::UntilClose(encoder) => {
                let finished = encoder.finish(trailers, out);
                debug_assert!(finished, "a body ends once");
                Ok(())
            }
            Self::Compressed(body) => body.end(trailers, out),
            _ => Ok(()),
        }
    }
}

/// Returns those bytes that belong to a body of which a number is left, and reduces it.
pub(super) fn take<'b>(left: &mut u64, bytes: &'b [u8]) -> &'b [u8] {
    let count = usize::try_from(*left).unwrap_or(usize::MAX);
    let taken = &bytes[..bytes.len().min(count)];
    *left -= taken.len() as u64;
    taken
}

/// Passes the data of a chunked body to a function.
pub(super) fn unchunk(
    decoder: &mut ChunkDecoder,
    bytes: &[u8],
    mut data: impl FnMut(&[u8]),
) -> Result<Passed, Fault> {
    let mut used = 0;
    loop {
        match decoder.next(&bytes[used..]) {
            Step::Data(range) => {
                data(&bytes[used + range.start..used + range.end]);
                used += range.end;
            }
            Step::Incomplete => return Ok(Passed::Partial),
            Step::End { consumed } => return Ok(Passed::Complete(used + consumed)),
            Step::Invalid(fault) => return Err(fault),
        }
    }
}
