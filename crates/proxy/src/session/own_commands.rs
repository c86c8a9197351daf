//! Runs commands of Evenkeel on a server connection that no session uses.

use std::fmt::Display;

use super::error_reply::{ErrorReply, ReplyCode};
use crate::error_catalog;
use crate::upstream::worker_pool::PoolableConnection;
use crate::worker::Worker;

/// Server connection to which Evenkeel sends commands of its own.
pub(crate) trait OwnCommands: PoolableConnection {
    /// Code of an error in the protocol.
    type Code: ReplyCode;

    /// Returns how many replies the server owes.
    fn pending_count(&self) -> usize;

    /// Handles replies, and records the first error among them in `refused`. Returns the number of
    /// bytes that formed complete messages.
    fn handle_replies(
        &mut self,
        worker: &Worker,
        bytes: &[u8],
        refused: &mut Option<ErrorReply<Self::Code>>,
    ) -> Result<usize, ErrorReply<Self::Code>>;

    /// Sends commands, which were recorded as sent, and receives the replies to them.
    async fn finish(
        &mut self,
        worker: &Worker,
        out: Vec<u8>,
    ) -> Result<(), ErrorReply<Self::Code>> {
        let sent = self.core_mut().stream.send(worker, &out).await;
        sent.map_err(|error| self.broken(error))?;
        let mut refused = None;
        while self.pending_count() > 0 {
            let core = self.core_mut();
            let mut bytes = std::mem::take(&mut core.held);
            match core.stream.receive(worker, &mut bytes).await {
                Ok(true) => {}
                Ok(false) => return Err(self.broken("closed the connection")),
                Err(error) => return Err(self.broken(error)),
            }
            let taken = self.handle_replies(worker, &bytes, &mut refused)?;
            bytes.drain(..taken);
            self.core_mut().held = bytes;
        }
        refused.map_or(Ok(()), Err)
    }

    /// Returns the error for a connection that cannot be used further.
    fn broken(&self, why: impl Display) -> ErrorReply<Self::Code> {
        let name = &self.core().pool_handle.server.name;
        ErrorReply::with(&error_catalog::SERVER_CONNECTION_LOST, &[name, &why])
    }
}
