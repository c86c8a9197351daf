//! Ends a session: sends the client a final error, and releases the server connection.

use std::rc::Rc;

use evenkeel_wire::postgres::TransactionStatus;

use super::Session;
use super::error_reply::ErrorReply;
use super::server::ServerConnection;

impl Session<'_> {
    /// Sends the client the reason for the end, if it can receive it.
    pub(super) async fn send_final_error(&mut self, error_reply: &ErrorReply) {
        if self
            .core
            .server
            .as_ref()
            .is_some_and(|server| server.is_in_message())
        {
            // The error would be taken for part of an incomplete message.
            return;
        }
        let mut out = std::mem::take(&mut self.core.answers);
        error_reply.write_fatal(&mut out);
        self.core.send_final(&out).await;
    }

    /// Releases the connection, after a reset if the client has left state on it.
    fn release_on_exit(&mut self, server: Box<ServerConnection>) {
        let is_quiet = server.conversation.is_quiet()
            && server.core.held.is_empty()
            && server.boundaries.is_at_border()
            && server.core.stream.is_sent()
            && self.passing_is_over();
        let in_transaction = server.conversation.status() != TransactionStatus::Idle;
        let wanted = self.state.pins.release_action();
        let action = self.core.end_action(wanted, is_quiet, in_transaction);
        let worker = Rc::clone(self.core.worker);
        let renew = async move |server: &mut ServerConnection| server.renew(&worker).await.is_ok();
        self.core.release_at_end(server, action, renew);
    }

    /// Returns whether no message is partly sent, which would leave the server waiting for the
    /// rest.
    fn passing_is_over(&self) -> bool {
        self.scanner.is_at_border()
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        if let Some(server) = self.core.take_server_at_end() {
            self.release_on_exit(server);
        }
    }
}
