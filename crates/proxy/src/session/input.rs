//! Bytes that a session works on.

use std::io;

use crate::engine::worker::Worker;
use crate::socket::Chunk;
use crate::stream::Stream;

/// Bytes of one side, on their way to the other.
pub(super) enum Input<'a> {
    /// As they were received.
    Chunk(Chunk<'a>),
    /// In memory of our own.
    Owned(Vec<u8>),
}

impl<'a> Input<'a> {
    /// What has come, behind the beginning of something that was held.
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

    /// Sends them on as they are.
    pub(super) fn send(self, worker: &Worker, stream: &mut Stream) -> io::Result<()> {
        match self {
            Input::Chunk(chunk) => stream.send_chunk(worker, chunk),
            Input::Owned(bytes) => stream.send_own(worker, bytes),
        }
    }

    /// Nobody needs them any more.
    pub(super) fn used_up(self, worker: &Worker) {
        if let Input::Owned(bytes) = self {
            worker.keep_spare(bytes);
        }
    }
}
