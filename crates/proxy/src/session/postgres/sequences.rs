//! Ensures that `currval` and `lastval` never return another session's value. As long as no client
//! uses them, `nextval()` pins no session.

use evenkeel_wire::postgres::TransactionStatus;
use evenkeel_wire::postgres::conversation::{Request, RequestToken};
use evenkeel_wire::stream_editor::StreamEditor;

use super::Session;
use super::server::ServerConnection;
use evenkeel_sql::session_state::analysis::TextAnalysis;

/// Message for a use of `currval` or `lastval` that cannot be separated from other sessions'
/// values.
pub(super) const REFUSAL: &str = "cannot evaluate currval() or lastval(): this server connection \
                                  holds sequence values of other sessions; start over and send the \
                                  statement in a batch of its own";

impl Session<'_> {
    /// Discards the sequence state of earlier sessions before any other work, once clients of this
    /// user have used `currval` or `lastval`.
    pub(super) fn begin_without_sequences(&mut self, flight: &mut StreamEditor<'_, '_>) {
        if self.account.asks_sequences() {
            self.forget_sequences(flight);
        }
    }

    /// Discards the sequence state of earlier sessions before the session first uses `currval` or
    /// `lastval`. Returns true if the use must be rejected: the statement is within a batch, or the
    /// session itself may have called `nextval()`.
    pub(super) fn guard_sequences(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        meaning: &TextAnalysis,
    ) -> bool {
        if !meaning.uses_lastval {
            if meaning.may_use_lastval {
                self.forget_sequences(flight);
            }
            return false;
        }
        self.account.asked_sequences();
        let Some(server) = &self.server else {
            return false;
        };
        // A failed transaction executes no statement.
        let has_failed = server.conversation.status() == TransactionStatus::Failed;
        if !self.inherits_sequence_state || has_failed {
            return false;
        }
        // After the refusal the session's own values are discarded with the others.
        let drew = std::mem::take(&mut self.used_nextval);
        if drew || !server.conversation.is_between_batches() {
            return true;
        }
        self.discard_sequences(flight);
        false
    }

    /// Applies the check to a Bind of the unnamed statement, whose Parse was checked, too.
    pub(super) fn guard_unnamed(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        request: Request,
    ) -> bool {
        let Some(meaning) = self.unnamed.meaning.take_if(|_| request == Request::Bind) else {
            return false;
        };
        let is_refused = self.guard_sequences(flight, &meaning);
        self.unnamed.meaning = Some(meaning);
        is_refused
    }

    /// Discards the sequence state of earlier sessions, because unanalyzed work may use `currval`
    /// or `lastval`.
    pub(super) fn forget_sequences(&mut self, flight: &mut StreamEditor<'_, '_>) {
        let is_idle = |server: &ServerConnection| server.conversation.is_idle();
        let begins = !self.used_nextval && self.server.as_deref().is_some_and(is_idle);
        if self.inherits_sequence_state && begins {
            self.discard_sequences(flight);
        }
    }

    fn discard_sequences(&mut self, flight: &mut StreamEditor<'_, '_>) {
        let Some(server) = &mut self.server else {
            return;
        };
        if server.query(b"DISCARD SEQUENCES", RequestToken(0), flight.writer()) {
            server.has_sequence_state = false;
            self.inherits_sequence_state = false;
        }
    }
}
