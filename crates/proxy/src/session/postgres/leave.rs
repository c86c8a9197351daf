//! The end of a session: what its client is told, and what becomes of the server connection.

use std::rc::Rc;
use std::time::Duration;

use evenkeel_policy::lending::Condition;
use evenkeel_policy::pins::Farewell;
use evenkeel_wire::postgres::TransactionStatus;

use super::Session;
use super::complaint::Complaint;
use super::server::ServerConnection;
use crate::engine::worker::Worker;
use crate::upstream::lending::Lending;

/// A reset that takes longer is not worth the connection.
const RESET_LIMIT: Duration = Duration::from_secs(5);

/// A client that takes longer to hear why it is over need not know.
const LAST_WORD_LIMIT: Duration = Duration::from_secs(1);

impl Session<'_> {
    /// Tells the client why it is over, as far as it listens.
    pub(super) async fn say_last(&mut self, complaint: &Complaint) {
        if self
            .server
            .as_ref()
            .is_some_and(|server| server.is_in_message())
        {
            // It would be taken for a part of that.
            return;
        }
        let mut out = std::mem::take(&mut self.answers);
        complaint.write_fatal(&mut out);
        let saying = async {
            let _ = self.client.send(self.worker, &out).await;
            let _ = self.client.flush().await;
        };
        let _ = compio::time::timeout(LAST_WORD_LIMIT, saying).await;
    }

    /// What the client leaves behind on its connection decides what becomes of that.
    fn give_back_at_the_end(&mut self, server: Box<ServerConnection>) {
        let is_quiet = server.conversation.is_quiet()
            && server.held.is_empty()
            && server.boundaries.is_at_border()
            && server.lent.stream.is_sent()
            && self.passing_is_over();
        let in_transaction = server.conversation.status() != TransactionStatus::Idle;
        let farewell = match self.journal.pins.farewell() {
            Farewell::Keep if in_transaction || self.keeps_connection() => Farewell::Reset,
            farewell => farewell,
        };
        match farewell {
            Farewell::Keep if is_quiet => self.lending.give_back(server, Condition::Clean),
            Farewell::Reset if is_quiet => {
                reset(self.worker, &self.lending, server, in_transaction);
            }
            _ => self.lending.give_back(server, Condition::Unclean),
        }
    }

    /// A message that was sent in part leaves its server waiting for the rest.
    fn passing_is_over(&self) -> bool {
        self.walker.is_at_border()
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.leave_lines();
        self.let_next_follow();
        if let Some(server) = self.server.take() {
            self.give_back_at_the_end(server);
        }
    }
}

/// Makes a connection fit for another client, while nobody waits for that.
fn reset(
    worker: &Rc<Worker>,
    lending: &Rc<Lending<ServerConnection>>,
    mut server: Box<ServerConnection>,
    in_transaction: bool,
) {
    let (home, lending) = (Rc::clone(worker), Rc::clone(lending));
    worker.spawn(async move {
        let texts: &[&[u8]] = match in_transaction {
            true => &[b"ROLLBACK", b"DISCARD ALL"],
            false => &[b"DISCARD ALL"],
        };
        let resetting = server.run(&home, texts);
        let went_well = compio::time::timeout(RESET_LIMIT, resetting).await;
        let condition = match went_well {
            Ok(Ok(())) => {
                server.prepared.clear();
                server.unnamed = 0;
                server.given.clear();
                server.settings.discarded(home.interner());
                Condition::Clean
            }
            Ok(Err(_)) | Err(_) => Condition::Unclean,
        };
        lending.give_back(server, condition);
    });
}
