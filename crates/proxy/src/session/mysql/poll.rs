//! Runs a session's next steps.

use std::task::{Context, Poll};

use evenkeel_policy::connection_pool::Condition;
use evenkeel_wire::mysql::frame;

use super::from_client::command_of;
use super::{ExitReason, HELD_LENGTH_MAX, Session, Stage};
use crate::session::core::Replies;
use crate::session::input::Input;
use crate::session::steps::poll_steps;

impl Session<'_> {
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<ExitReason> {
        poll_steps(context, |context| self.step(context))
    }

    /// Runs one step that is possible now. Returns false if none is.
    fn step(&mut self, context: &mut Context<'_>) -> Result<bool, ExitReason> {
        let service = self.core.permit.service();
        if let Some(got) = self.core.acquirer.poll_connection(context, service) {
            self.follow(got)?;
            return Ok(true);
        }
        if let Some(event) = self.core.handle.take_event() {
            self.handle_event(event)?;
            return Ok(true);
        }
        if self.step_waiting(context)? {
            return Ok(true);
        }
        let is_idle = self.is_idle();
        let is_client_ready = match self.core.poll_replies(context, is_idle)? {
            Replies::Answered => return Ok(true),
            Replies::Server(chunk) => return self.receive(chunk).map(|()| true),
            Replies::ServerLost(why) => return self.server_lost(&why).map(|()| true),
            Replies::None { is_client_ready } => is_client_ready,
        };
        if self.step_between(context) {
            return Ok(true);
        }
        self.step_client(context, is_client_ready)
    }

    /// Returns whether only the client's next command can give this session work.
    fn is_idle(&self) -> bool {
        matches!(self.stage, Stage::Command)
            && self.core.server.is_none()
            && self.core.answers.is_empty()
            && self.pending_input.is_empty()
    }

    /// Handles timers and results from other threads.
    fn step_waiting(&mut self, context: &mut Context<'_>) -> Result<bool, ExitReason> {
        if let Some(holding) = &mut self.holding
            && holding.as_mut().poll(context).is_ready()
        {
            self.hold_expired();
            return Ok(true);
        }
        if let Some(wait_timer) = &mut self.active.wait_timer
            && wait_timer.as_mut().poll(context).is_ready()
        {
            self.waited_long_enough()?;
            return Ok(true);
        }
        if let Some(got) = self.core.acquirer.poll_primary(context) {
            self.follow(got)?;
            return Ok(true);
        }
        if let Stage::Killing(killing, id) = &mut self.stage
            && let Poll::Ready(killed) = killing.as_mut().poll(context)
        {
            let id = *id;
            self.killed(id, killed);
            return Ok(true);
        }
        Ok(false)
    }

    /// Runs between two commands: asks for user variables if another client needs the connection,
    /// closes statements at the server that the client has closed, and
    /// releases the connection if it holds no state of this client. Requires that the kernel has
    /// accepted all data sent to the server.
    fn step_between(&mut self, context: &mut Context<'_>) -> bool {
        if self.asks_for_another(context) {
            return true;
        }
        let Some(server) = &self.core.server else {
            return false;
        };
        if !matches!(self.stage, Stage::Command) {
            return false;
        }
        if self.owes_trackers() {
            return self.is_server_sent(context) && self.take_trackers_back();
        }
        let is_free = self.is_free();
        let has_closed = !server.resets.is_empty();
        if !is_free && !has_closed || !self.is_server_sent(context) {
            return false;
        }
        match has_closed {
            true => self.send_closes(),
            false => self.release_server(Condition::Clean),
        }
        true
    }

    /// Returns whether all data was sent to the server; a failure is reported by the next receive.
    fn is_server_sent(&mut self, context: &mut Context<'_>) -> bool {
        let server = self.core.server.as_mut();
        server.is_none_or(|server| server.core.stream.poll_sent(context).is_ready())
    }

    /// Receives client input. Returns false if there is none, or it must wait.
    fn step_client(
        &mut self,
        context: &mut Context<'_>,
        is_client_ready: bool,
    ) -> Result<bool, ExitReason> {
        let takes = match self.stage {
            Stage::Command => {
                is_client_ready && !self.owes_trackers() && self.is_server_sent(context)
            }
            Stage::Answer => !self.rest.is_over() && self.is_server_sent(context),
            Stage::File | Stage::Streaming => self.is_server_sent(context),
            _ => false,
        };
        if takes && !self.pending_input.is_empty() && !self.holds_too_little() && self.go_on()? {
            return Ok(true);
        }
        // At most one chunk is received from a client that has not yet read its reply.
        let is_slow = matches!(self.stage, Stage::Command) && !takes && !self.is_idle();
        let is_full = !takes && self.pending_input.len() >= HELD_LENGTH_MAX;
        if is_slow || is_full {
            return Ok(false);
        }
        let is_reading = !is_client_ready && self.is_idle();
        let Some(chunk) = self.core.poll_client(context, is_reading)? else {
            return Ok(false);
        };
        self.core.acquirer.count_received(chunk.bytes().len());
        if takes && self.pending_input.is_empty() {
            self.take(Input::Chunk(chunk))?;
        } else {
            self.hold(chunk.bytes());
        }
        Ok(true)
    }

    /// Continues with the pending input. Returns false if it is incomplete.
    fn go_on(&mut self) -> Result<bool, ExitReason> {
        let is_between = matches!(self.stage, Stage::Command) && self.rest.is_over();
        let first = command_of(self.pending_input.bytes()).filter(|_| is_between);
        let count = first.map_or(self.pending_input.len(), frame::Header::frame_length);
        let taken = self
            .pending_input
            .take(count, || self.core.worker.take_spare());
        self.take(Input::Owned(taken))
    }

    /// Processes client input that continues the previous one. Returns false if it is incomplete,
    /// and keeps it.
    fn take(&mut self, input: Input<'_>) -> Result<bool, ExitReason> {
        match self.stage {
            Stage::Command => self.begin(input),
            _ => self.forward(input),
        }
    }
}
