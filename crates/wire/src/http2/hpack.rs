//! HPACK, the compression of fields in HTTP/2 (RFC 7541).

mod decode;
mod encode;
mod huffman;
mod integer;
mod table;

#[cfg(test)]
mod tests;

use std::fmt;

pub use decode::{Decoder, FieldSink};
pub use encode::{Encoder, Indexing};

/// Size of a table until another is agreed, in bytes (RFC 9113 §6.5.2).
pub const TABLE_BYTES_DEFAULT: u32 = 4_096;

/// Bytes that a field counts besides those of its name and value (RFC 7541 §4.1, RFC 9113 §6.5.2).
pub const FIELD_OVERHEAD_BYTES: u32 = 32;

/// Fault of a field block. The tables of both sides differ after it, so that it is a connection
/// error COMPRESSION_ERROR (RFC 9113 §4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CompressionError {
    /// The block ends within a field.
    Truncated,
    /// Integer of more than 32 bits, or of more than 5 octets after its prefix (RFC 7541 §5.1).
    Integer,
    /// Index 0, or one beyond both tables (RFC 7541 §2.3.3, §6.1).
    Index,
    /// Huffman code with the symbol EOS, or with padding of 8 bits and more, or with padding other
    /// than ones (RFC 7541 §5.2).
    Huffman,
    /// Change of the table's size after the first field of a block, or a third one (RFC 7541 §4.2).
    SizeUpdatePlace,
    /// Table larger than our setting allows (RFC 7541 §6.3).
    SizeUpdateTooLarge,
    /// No change of the table's size after our setting was lowered (RFC 9113 §4.3.1).
    SizeUpdateMissing,
}

impl CompressionError {
    /// Returns the reason as a short text without data, for counters and logs.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            CompressionError::Truncated => "a field block ends within a field",
            CompressionError::Integer => "an integer in a field block is too large",
            CompressionError::Index => "a field block refers to an entry that no table has",
            CompressionError::Huffman => "a Huffman code in a field block is malformed",
            CompressionError::SizeUpdatePlace => {
                "the table's size is changed within a field block, or more than twice"
            }
            CompressionError::SizeUpdateTooLarge => "the table's size is above the setting",
            CompressionError::SizeUpdateMissing => {
                "the table's size is not lowered after the setting was"
            }
        }
    }
}

impl fmt::Display for CompressionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for CompressionError {}
