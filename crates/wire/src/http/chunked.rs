//! Chunked transfer coding (RFC 9112 §7.1).
//!
//! The decoder reads a body piece by piece and keeps trailer fields only; lines of the framing are
//! never passed on. The encoder writes framing of its own.

mod decoder;
mod encoder;

pub use decoder::{ChunkDecoder, ChunkLimits, Step};
pub use encoder::{CHUNK_END, ChunkEncoder};
