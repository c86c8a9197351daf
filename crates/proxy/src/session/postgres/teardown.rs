//! Ends a session: sends the client a final error, and releases the server connection.

use std::rc::Rc;

use evenkeel_policy::connection_pool::Condition;
use evenkeel_policy::pins::ReleaseAction;
use evenkeel_wire::postgres::TransactionStatus;

use super::Session;
use super::error_reply::ErrorReply;
use super::server::ServerConnection;

impl Session<'_> {
    /// Sends the client the reason for the end, if it can receive it.
    pub(super) async fn send_final_error(&mut self, error_reply: &ErrorReply) {
        if self
            .server
            .as_ref()
            .is_some_and(|server| server.is_in_message())
        {
            // The error would be taken for part of an incomplete message.
            return;
        }
        let mut out = std::mem::take(&mut self.answers);
        error_reply.write_fatal(&mut out);
        self.client.send_final(self.worker, &out).await;
    }

    /// Releases the connection, after a reset if the client has left state on it.
    fn release_on_exit(&mut self, server: Box<ServerConnection>) {
        if std::thread::panicking() {
            // State on the connection may not have been recorded.
            return self.acquirer.release(server, Condition::Unclean);
        }
        let is_quiet = server.conversation.is_quiet()
            && server.held.is_empty()
            && server.boundaries.is_at_border()
            && server.core.stream.is_sent()
            && self.passing_is_over();
        let in_transaction = server.conversation.status() != TransactionStatus::Idle;
        let action = match self.state.pins.release_action() {
            ReleaseAction::Keep if in_transaction || self.keeps_connection() => {
                ReleaseAction::Reset
            }
            action => action,
        };
        match action {
            ReleaseAction::Keep if is_quiet => self.acquirer.release(server, Condition::Clean),
            ReleaseAction::Reset if is_quiet => {
                let worker = Rc::clone(self.worker);
                let renew =
                    async move |server: &mut ServerConnection| server.renew(&worker).await.is_ok();
                self.acquirer.release_renewed(server, renew);
            }
            _ => self.acquirer.release(server, Condition::Unclean),
        }
    }

    /// Returns whether no message is partly sent, which would leave the server waiting for the
    /// rest.
    fn passing_is_over(&self) -> bool {
        self.scanner.is_at_border()
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            self.release_on_exit(server);
        }
    }
}
