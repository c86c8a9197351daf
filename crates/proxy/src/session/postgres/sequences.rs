//! What sessions draw from sequences. `currval` and `lastval` must never answer with another
//! session's value; and where nobody asks for them, drawing is to bind nobody.

use evenkeel_wire::postgres::TransactionStatus;
use evenkeel_wire::postgres::conversation::{Request, RequestToken};
use evenkeel_wire::stream_editor::StreamEditor;

use super::Session;
use super::server::ServerConnection;
use crate::session_state::analysis::TextAnalysis;

/// With which one is refused who asks too late to be told apart from others.
pub(super) const REFUSAL: &str = "cannot evaluate currval() or lastval(): this server connection \
                                  holds sequence values of other sessions; start over and send the \
                                  statement in a batch of its own";

impl Session<'_> {
    /// Where somebody asks, a connection has forgotten what others drew before it does anything.
    pub(super) fn begin_without_draws(&mut self, flight: &mut StreamEditor<'_, '_>) {
        if self.account.asks_sequences() {
            self.forget_draws(flight);
        }
    }

    /// Who asks first comes behind what others drew. True: it comes in the middle of a batch, or
    /// may have drawn itself since, which cannot be told apart; it is to be refused.
    pub(super) fn guard_sequences(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        meaning: &TextAnalysis,
    ) -> bool {
        if !meaning.uses_lastval {
            if meaning.may_use_lastval {
                self.forget_draws(flight);
            }
            return false;
        }
        self.account.asked_sequences();
        let Some(server) = &self.server else {
            return false;
        };
        // A transaction that has failed runs neither.
        let has_failed = server.conversation.status() == TransactionStatus::Failed;
        if !self.inherits_sequence_state || has_failed {
            return false;
        }
        // Once it is refused, what it drew goes with the rest.
        let drew = std::mem::take(&mut self.used_nextval);
        if drew || !server.conversation.is_between_batches() {
            return true;
        }
        self.discard_draws(flight);
        false
    }

    /// The same of the statement without a name, whose Parse was guarded, too.
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

    /// What comes next may ask, which nobody can tell: not what others drew.
    pub(super) fn forget_draws(&mut self, flight: &mut StreamEditor<'_, '_>) {
        let is_idle = |server: &ServerConnection| server.conversation.is_idle();
        let begins = !self.used_nextval && self.server.as_deref().is_some_and(is_idle);
        if self.inherits_sequence_state && begins {
            self.discard_draws(flight);
        }
    }

    fn discard_draws(&mut self, flight: &mut StreamEditor<'_, '_>) {
        let Some(server) = &mut self.server else {
            return;
        };
        if server.ask(b"DISCARD SEQUENCES", RequestToken(0), flight.writer()) {
            server.has_sequence_state = false;
            self.inherits_sequence_state = false;
        }
    }
}
