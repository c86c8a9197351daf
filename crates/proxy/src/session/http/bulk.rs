//! Receives long bodies in larger pieces than the buffers of the ring.

use std::io;

use evenkeel_engine::socket::Chunk;
use evenkeel_engine::stream::Stream;

use crate::worker::Worker;

/// Length in bytes of a chunk after which more is likely to have arrived: that of a ring's buffer.
const FULL_CHUNK: usize = 4 * 1024;

/// Length in bytes of a piece: longer pieces need fewer wakeups of both peers. The allocator
/// returns memory of 128 kB and more to the kernel with each piece.
const PIECE_LENGTH_MAX: u64 = 120 * 1024;

/// Returns whether more of a body is likely to have arrived after a chunk.
pub(super) fn is_bulk(chunk_length: usize, left: u64) -> bool {
    chunk_length >= FULL_CHUNK && left > 4 * FULL_CHUNK as u64 && left >= chunk_length as u64
}

/// Returns the chunk and what has arrived after it, up to `left` bytes.
pub(super) fn receive_bulk(
    worker: &Worker,
    stream: &mut Stream,
    chunk: Chunk<'_>,
    left: u64,
) -> io::Result<Vec<u8>> {
    let mut piece = worker.take_spare();
    piece.extend_from_slice(chunk.bytes());
    drop(chunk);
    let length_max = usize::try_from(left.min(PIECE_LENGTH_MAX)).unwrap_or(usize::MAX);
    stream.receive_more(&mut piece, length_max)?;
    Ok(piece)
}
