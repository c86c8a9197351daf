//! Holds input bytes that a session processes.

use std::io;

use evenkeel_engine::socket::Chunk;
use evenkeel_engine::stream::Stream;

use crate::worker::Worker;

/// Bytes from one peer on their way to the other.
pub(super) enum Input<'a> {
    /// Bytes in the receive buffer.
    Chunk(Chunk<'a>),
    /// Bytes in an allocation of their own.
    Owned(Vec<u8>),
}

impl<'a> Input<'a> {
    /// Appends the received chunk to the beginning of a message that was held back.
    pub(super) fn behind(held: &mut Vec<u8>, chunk: Chunk<'a>) -> Self {
        if held.is_empty() {
            return Input::Chunk(chunk);
        }
        let mut bytes = std::mem::take(held);
        bytes.extend_from_slice(chunk.bytes());
        Input::Owned(bytes)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Input::Chunk(chunk) => chunk.bytes(),
            Input::Owned(bytes) => bytes,
        }
    }

    /// Sends the bytes unchanged.
    pub(super) fn send(self, worker: &Worker, stream: &mut Stream) -> io::Result<()> {
        match self {
            Input::Chunk(chunk) => stream.send_chunk(worker, chunk),
            Input::Owned(bytes) => stream.send_own(worker, bytes),
        }
    }

    /// Returns the number of bytes that [`Self::forward`] sends.
    pub(super) fn forwarded_length(&self, edited: &[u8], is_whole: bool) -> usize {
        match is_whole {
            true => self.bytes().len(),
            false => edited.len(),
        }
    }

    /// Sends the bytes unchanged, or their edited form.
    pub(super) fn forward(
        self,
        worker: &Worker,
        edited: Vec<u8>,
        is_whole: bool,
        stream: &mut Stream,
    ) -> io::Result<()> {
        match is_whole {
            true => {
                worker.keep_spare(edited);
                self.send(worker, stream)
            }
            false => stream.send_own(worker, edited),
        }
    }

    /// Returns the allocation to the worker for reuse.
    pub(super) fn used_up(self, worker: &Worker) {
        if let Input::Owned(bytes) = self {
            worker.keep_spare(bytes);
        }
    }
}
