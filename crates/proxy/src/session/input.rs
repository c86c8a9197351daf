//! Holds input bytes that a session processes.

use std::io;

use evenkeel_engine::socket::Chunk;
use evenkeel_engine::stream::Stream;
use evenkeel_wire::stream_editor::StreamEditor;

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

    /// Returns the allocation to the worker for reuse.
    pub(super) fn used_up(self, worker: &Worker) {
        if let Input::Owned(bytes) = self {
            worker.keep_spare(bytes);
        }
    }
}

/// Input of a server, and what the client gets of it.
pub(super) struct ServerInput<'a> {
    input: Input<'a>,
    edited: Vec<u8>,
    /// True if the client gets the input unchanged.
    pub(super) is_whole: bool,
}

impl<'a> ServerInput<'a> {
    /// Appends the received chunk to the beginning of a message that was held back.
    pub(super) fn behind(held: &mut Vec<u8>, chunk: Chunk<'a>, worker: &Worker) -> Self {
        Self {
            input: Input::behind(held, chunk),
            edited: worker.take_spare(),
            is_whole: false,
        }
    }

    pub(super) fn editor(&mut self) -> StreamEditor<'_, '_> {
        StreamEditor::new(self.input.bytes(), &mut self.edited)
    }

    /// Returns the number of bytes that the client gets.
    pub(super) fn length(&self) -> usize {
        match self.is_whole {
            true => self.input.bytes().len(),
            false => self.edited.len(),
        }
    }

    /// Drops the input: the client gets nothing of it.
    pub(super) fn discard(self, worker: &Worker) {
        worker.keep_spare(self.edited);
    }

    pub(super) fn send(self, worker: &Worker, stream: &mut Stream) -> io::Result<()> {
        match self.is_whole {
            true => {
                worker.keep_spare(self.edited);
                self.input.send(worker, stream)
            }
            false => stream.send_own(worker, self.edited),
        }
    }
}
