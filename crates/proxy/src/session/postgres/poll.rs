//! Runs a session's next steps.

use std::task::{Context, Poll};

use evenkeel_engine::socket::Chunk;

use super::held::HeldUntil;
use super::{ExitReason, HELD_LENGTH_MAX, PIPELINED_MAX, Session, Stage};
use crate::session::core::Replies;
use crate::session::input::Input;
use crate::session::steps::poll_steps;

impl Session<'_> {
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<ExitReason> {
        poll_steps(context, |context| self.step(context))
    }

    /// Performs one step that is possible now. Returns false if there is none.
    fn step(&mut self, context: &mut Context<'_>) -> Result<bool, ExitReason> {
        let service = self.core.permit.service();
        if let Some(got) = self.core.acquirer.poll_connection(context, service) {
            self.follow(got)?;
            return Ok(true);
        }
        if self.core.acquirer.poll_offer_accepted(context) {
            self.ask_for_held_state();
            return Ok(true);
        }
        if let Some(event) = self.core.handle.take_event() {
            self.handle_event(event)?;
            return Ok(true);
        }
        if let Some(got) = self.core.acquirer.poll_primary(context) {
            self.follow(got)?;
            return Ok(true);
        }
        let is_idle = self.is_idle();
        let is_client_ready = match self.core.poll_replies(context, is_idle)? {
            Replies::Answered => return Ok(true),
            Replies::Server(chunk) => return self.receive(chunk).map(|()| true),
            Replies::ServerLost(why) => return self.server_lost(&why).map(|()| true),
            Replies::None { is_client_ready } => is_client_ready,
        };
        if self.step_listening(context, is_client_ready)? {
            return Ok(true);
        }
        if self.release_after_send && self.is_server_sent(context) {
            self.release_after_send = false;
            self.release_if_idle()?;
            return Ok(true);
        }
        let may_send = self.core.server.is_some() || is_client_ready;
        let is_due = self.held_until == HeldUntil::NextStep;
        if is_due && may_send && self.is_server_sent(context) {
            self.held_until = HeldUntil::Event;
            self.go_on()?;
            return Ok(true);
        }
        if self.is_terminating && !self.has_due_replies() {
            return Err(ExitReason::ClientLeft);
        }
        self.step_client(context, is_client_ready)
    }

    /// Returns whether only the client's next message can give this session work.
    fn is_idle(&self) -> bool {
        matches!(self.stage, Stage::Ready)
            && self.core.server.is_none()
            && self.core.answers.is_empty()
            && self.pending_input.is_empty()
            && self.held_until == HeldUntil::Event
            && !self.is_terminating
            && !self.release_after_send
            && self.listening.is_none()
    }

    /// Returns whether replies are still due to a client that has terminated. There are none if the
    /// server waits for a Sync or COPY data, or streams without end.
    fn has_due_replies(&self) -> bool {
        let Some(server) = &self.core.server else {
            return false;
        };
        let conversation = &server.conversation;
        let waits = conversation.is_copying_in() || conversation.is_streaming();
        conversation.is_ready_pending() && !waits
    }

    /// Returns whether everything has been sent to the server. A failed connection never has: the
    /// next receive reports the error, after any data received before it.
    pub(super) fn is_server_sent(&mut self, context: &mut Context<'_>) -> bool {
        let server = self.core.server.as_mut();
        server.is_none_or(|server| {
            let sent = server.core.stream.poll_sent(context);
            matches!(sent, Poll::Ready(Ok(())))
        })
    }

    /// Processes input from the client. Returns false if there is none, or it must wait.
    fn step_client(
        &mut self,
        context: &mut Context<'_>,
        is_client_ready: bool,
    ) -> Result<bool, ExitReason> {
        let takes_more = match (&self.stage, &mut self.core.server) {
            // At most one chunk is received from a client that has not yet read its reply.
            (Stage::Ready, None) => is_client_ready || self.is_idle(),
            (Stage::Ready, Some(server)) => match server.core.stream.poll_sent(context) {
                Poll::Ready(Ok(())) => {
                    is_client_ready || server.conversation.pending_count() < PIPELINED_MAX
                }
                Poll::Ready(Err(error)) => {
                    self.server_lost(&error.to_string())?;
                    return Ok(true);
                }
                Poll::Pending => false,
            },
            (Stage::Asking(_), _) => {
                // What the client has sent must be executed even if it disconnects right after.
                self.is_server_sent(context);
                self.pending_input.is_empty()
            }
            _ => {
                // The SETs may be longer than one send can take.
                self.is_server_sent(context);
                true
            }
        };
        let takes_more =
            takes_more && self.core.answers.len() < HELD_LENGTH_MAX && !self.is_terminating;
        if !takes_more || self.pending_input.len() >= self.held_max() {
            return Ok(false);
        }
        let is_reading = !is_client_ready && self.is_idle();
        let Some(chunk) = self.core.poll_client(context, is_reading)? else {
            return Ok(false);
        };
        if !is_client_ready && self.is_idle() {
            // The next request begins when the client has read the reply to the last one.
            self.core.acquirer.count_received(chunk.bytes().len());
            self.hold(chunk.bytes());
            self.continue_soon();
        } else {
            self.received(chunk)?;
        }
        Ok(true)
    }

    pub(super) fn received(&mut self, chunk: Chunk<'_>) -> Result<(), ExitReason> {
        self.core.acquirer.count_received(chunk.bytes().len());
        if !matches!(self.stage, Stage::Ready) {
            self.hold(chunk.bytes());
            return Ok(());
        }
        if self.pending_input.is_empty() {
            return self.take(Input::Chunk(chunk));
        }
        self.hold(chunk.bytes());
        drop(chunk);
        self.go_on()
    }

    /// Processes held input.
    pub(super) fn go_on(&mut self) -> Result<(), ExitReason> {
        if self.pending_input.is_empty() || self.is_paused() {
            return Ok(());
        }
        let held = std::mem::take(&mut self.pending_input);
        self.take(Input::Owned(held))
    }

    /// Processes input of the client that follows the previous input. All of it is forwarded,
    /// answered or held.
    pub(super) fn take(&mut self, input: Input<'_>) -> Result<(), ExitReason> {
        match &self.core.server {
            Some(_) if self.replicates() => self.forward_replication(input),
            Some(_) => self.forward(input),
            None => self.begin(input),
        }
    }
}
