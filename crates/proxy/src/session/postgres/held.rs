//! Holds client input that cannot be processed yet.

use super::{HELD_LENGTH_MAX, Session, Stage};
use crate::session::input::Input;

/// Condition under which held input is processed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum HeldUntil {
    /// Another event continues with it: more input, a server connection, or a reply.
    #[default]
    Event,
    /// Earlier requests must be answered first.
    Replies,
    /// None: the next step processes it.
    NextStep,
}

impl Session<'_> {
    /// Returns the limit of held input. A message that must be complete may be of any permitted
    /// length.
    pub(super) fn held_max(&self) -> usize {
        let waits = !matches!(self.stage, Stage::Ready)
            || self.core.server.is_some() && (self.waits_for_replies() || !self.takes_more());
        if waits { HELD_LENGTH_MAX } else { usize::MAX }
    }

    /// Holds input that arrived together with the end of the login.
    pub(super) fn begin_with(&mut self, ahead: &[u8]) {
        if !ahead.is_empty() {
            self.core.acquirer.count_received(ahead.len());
            self.hold(ahead);
            self.continue_soon();
        }
    }

    /// Processes held input in the next step, unless it waits for replies.
    pub(super) fn continue_soon(&mut self) {
        if !self.waits_for_replies() {
            self.held_until = HeldUntil::NextStep;
        }
    }

    /// Returns whether held input waits for replies to earlier requests.
    pub(super) fn waits_for_replies(&self) -> bool {
        self.held_until == HeldUntil::Replies
    }

    /// Ends the wait for replies, if there is one.
    pub(super) fn end_wait_for_replies(&mut self) {
        if self.waits_for_replies() {
            self.held_until = HeldUntil::Event;
        }
    }

    pub(super) fn hold(&mut self, bytes: &[u8]) {
        if self.pending_input.capacity() == 0 {
            self.pending_input = self.core.worker.take_spare();
        }
        self.pending_input.extend_from_slice(bytes);
    }

    /// Holds the input from `at` on. The beginning of a long message is not copied again each time
    /// that more of it arrives.
    pub(super) fn hold_rest(&mut self, input: Input<'_>, at: usize) {
        match input {
            Input::Owned(bytes) if at == 0 && self.pending_input.is_empty() => {
                self.pending_input = bytes
            }
            input => self.hold(input.bytes().get(at..).unwrap_or_default()),
        }
    }
}
