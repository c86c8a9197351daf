//! Encoder of chunked bodies, which can end a body only once.

use crate::http::edit;
use crate::http::head::{Field, may_be_trailer};

/// Bytes after the data of a chunk.
pub const CHUNK_END: &[u8] = b"\r\n";

/// State of a chunked body that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ChunkEncoder {
    /// Chunks may follow.
    #[default]
    Open,
    /// The last chunk is written.
    Finished,
}

impl ChunkEncoder {
    /// Creates an encoder of a body without chunks.
    #[must_use]
    pub fn new() -> Self {
        ChunkEncoder::Open
    }

    /// Appends the line before `length` bytes of data, after which [`CHUNK_END`] must follow.
    /// Returns false, and appends nothing, if there are no data, because such a chunk would be the
    /// last one, or if the body is finished.
    #[must_use]
    pub fn begin(&mut self, length: usize, out: &mut Vec<u8>) -> bool {
        if length == 0 || *self == ChunkEncoder::Finished {
            return false;
        }
        let mut digits = [0; 16];
        let mut rest = length as u64;
        let mut count = 0_usize;
        for place in digits.iter_mut().rev() {
            let digit = (rest & 15) as u8;
            *place = match digit {
                0..10 => b'0'.wrapping_add(digit),
                digit => b'a'.wrapping_add(digit.wrapping_sub(10)),
            };
            rest >>= 4;
            count = count.saturating_add(1);
            if rest == 0 {
                break;
            }
        }
        let start = digits.len().saturating_sub(count);
        out.extend_from_slice(digits.get(start..).unwrap_or_default());
        out.extend_from_slice(b"\r\n");
        true
    }

    /// Appends a chunk of these data, unless there are none.
    pub fn whole(&mut self, data: &[u8], out: &mut Vec<u8>) {
        if self.begin(data.len(), out) {
            out.extend_from_slice(data);
            out.extend_from_slice(CHUNK_END);
        }
    }

    /// Appends the last chunk, with those trailer fields that may be trailers. Returns false, and
    /// appends nothing, if the body was finished already: a second last chunk would be read as part
    /// of the next message.
    #[must_use]
    pub fn finish<'a>(
        &mut self,
        fields: impl Iterator<Item = Field<'a>>,
        out: &mut Vec<u8>,
    ) -> bool {
        if *self == ChunkEncoder::Finished {
            return false;
        }
        *self = ChunkEncoder::Finished;
        out.extend_from_slice(b"0\r\n");
        for field in fields.filter(|field| may_be_trailer(field.name)) {
            edit::write_field(out, field.name, field.value);
        }
        out.extend_from_slice(b"\r\n");
        true
    }
}
