//! Bytes of a client that wait.

use super::{HELD_LENGTH_MAX, Session, Stage};
use crate::relay::ByteDirection;
use crate::session::input::Input;

impl Session<'_> {
    /// A message that must be seen whole may be as long as texts may be.
    pub(super) fn held_max(&self) -> usize {
        let waits = !matches!(self.stage, Stage::Ready)
            || self.server.is_some() && (self.is_waiting_for_replies || !self.takes_more());
        if waits { HELD_LENGTH_MAX } else { usize::MAX }
    }

    /// What came in one piece with the end of the login.
    pub(super) fn begin_with(&mut self, ahead: &[u8]) {
        if !ahead.is_empty() {
            self.count_received(ahead.len());
            self.hold(ahead);
            self.can_continue = true;
        }
    }

    /// So many bytes have come from the client.
    pub(super) fn count_received(&self, length: usize) {
        let length = length as u64;
        let server = self.borrower.server();
        self.live
            .moved_at(self.worker, ByteDirection::FromClient, length, server);
        self.borrower.usage.from_clients.add(length);
    }

    pub(super) fn hold(&mut self, bytes: &[u8]) {
        if self.pending_input.capacity() == 0 {
            self.pending_input = self.worker.spare();
        }
        self.pending_input.extend_from_slice(bytes);
    }

    /// What is left of it from there on; a long beginning of a message is not copied again each
    /// time that more of it comes.
    pub(super) fn hold_rest(&mut self, input: Input<'_>, at: usize) {
        match input {
            Input::Owned(bytes) if at == 0 && self.pending_input.is_empty() => {
                self.pending_input = bytes
            }
            input => self.hold(input.bytes().get(at..).unwrap_or_default()),
        }
    }
}
