//! Ends a session: sends the final error, and releases or closes the server connection.

use std::rc::Rc;

use evenkeel_policy::pins::ReleaseAction;
use evenkeel_policy::route::retry::Progress;

use super::error_reply::ErrorReply;
use super::login::UserChange;
use super::server::ServerConnection;
use super::{ExitReason, MysqlExit, Session, Stage};
use crate::record::{CutReason, TerminationReason};

impl Session<'_> {
    /// Ends the session for a reason of its own.
    pub(super) async fn end(mut self, end: ExitReason) -> TerminationReason {
        match end {
            ExitReason::ClientLeft | ExitReason::Other(MysqlExit::ChangesUser(_)) => {
                TerminationReason::ClientClosed
            }
            ExitReason::ClientBroke(why) => TerminationReason::ResetByClient(why),
            ExitReason::ServerBroke(why) => TerminationReason::ResetByServer(why),
            ExitReason::Fatal(error_reply) => {
                Box::pin(self.send_final_error(&error_reply, true)).await;
                TerminationReason::Rejected(error_reply.message)
            }
            ExitReason::Other(MysqlExit::Unasked(error_reply)) => {
                Box::pin(self.send_final_error(&error_reply, false)).await;
                TerminationReason::Rejected(error_reply.message)
            }
        }
    }

    /// Ends a session that is terminated by Evenkeel.
    pub(super) async fn end_cut(mut self, ending: TerminationReason) -> TerminationReason {
        let error_reply = ErrorReply::of_ending(&ending);
        // Servers send nothing to an idle client that is killed by another client.
        if !matches!(ending, TerminationReason::Cut(CutReason::Command)) || !self.is_waiting_idle()
        {
            let is_answer = self.waits_for_answer();
            Box::pin(self.send_final_error(&error_reply, is_answer)).await;
        }
        ending
    }

    /// Returns whether the client waits for a reply.
    pub(super) fn waits_for_answer(&self) -> bool {
        !matches!(self.stage, Stage::Command) || !self.rest.is_over()
    }

    /// Ends the session for COM_CHANGE_USER, and returns the client connection.
    pub(super) fn leave_as_user(mut self, payload: Vec<u8>) -> Option<UserChange> {
        let client = self.core.client.take()?;
        Some(UserChange {
            client,
            handshake: self.handshake,
            payload,
            ahead: self.pending_input.take(self.pending_input.len(), Vec::new),
        })
    }

    /// Sends the final error: as the pending reply, or with sequence number 0 if no reply is due.
    /// Servers use 0 too, so that clients do not take the error for a reply to a later command.
    pub(super) async fn send_final_error(&mut self, error_reply: &ErrorReply, is_answer: bool) {
        let is_in_reply = |server: &ServerConnection| server.is_in_reply();
        let is_answered = self.active.progress == Progress::Answered;
        if self.core.server.as_deref().is_some_and(is_in_reply) || is_answered {
            // The client would take the error for a part of that reply.
            return;
        }
        let mut out = std::mem::take(&mut self.core.answers);
        let sequence = if is_answer { self.rest.sequence } else { 0 };
        error_reply.write(sequence, &mut out);
        self.core.send_final(&out).await;
    }

    /// Releases, resets or closes the server connection, depending on the session state that it
    /// holds.
    fn release_on_exit(&mut self, server: Box<ServerConnection>) {
        let is_quiet = server.conversation.is_quiet()
            && server.is_between_replies()
            && !server.shows_trackers
            && server.core.stream.is_sent()
            && self.rest.is_over();
        // A transaction, a cursor or long data.
        let is_open = !server.conversation.is_idle();
        let wanted = self.state.pins.release_action();
        let action = match self.core.end_action(wanted, is_quiet, is_open) {
            ReleaseAction::Reset if !server.can_be_renewed() => ReleaseAction::Close,
            action => action,
        };
        let worker = Rc::clone(self.core.worker);
        let renew = async move |server: &mut ServerConnection| {
            server.renew(&worker).await.is_ok() && server.is_idle()
        };
        self.core.release_at_end(server, action, renew);
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if let Some(server) = self.core.take_server_at_end() {
            self.release_on_exit(server);
        }
    }
}
