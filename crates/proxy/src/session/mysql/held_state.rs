//! Finds out which values a session's user variables have on the connection that it keeps, when
//! another client needs the connection: the server is asked.

use std::task::Context;

use evenkeel_sql::session_state::mysql::{TextAnalysis, UserVariableQuestion, UserVariableRows};

use super::query_text::effective;
use super::server::{Ask, ServerConnection};
use super::{AfterDiscard, Session, Stage};

/// A question for user variables that the server is answering.
pub(super) struct UserVariableListing {
    question: UserVariableQuestion,
    rows: UserVariableRows,
    pub(super) has_failed: bool,
}

impl Session<'_> {
    /// Offers the connection that the session keeps between two commands, unless it must keep it in
    /// any case. Returns true if another client needs it, after the server has been asked.
    pub(super) fn asks_for_another(&mut self, context: &Context<'_>) -> bool {
        let can_ask = self.can_ask();
        if let Some(server) = self.core.server.as_deref().filter(|_| can_ask) {
            self.core.acquirer.offer(server);
        }
        let is_accepted = self.core.acquirer.poll_offer_accepted(context);
        if is_accepted {
            self.ask_for_user_variables();
        }
        is_accepted
    }

    fn ask_for_user_variables(&mut self) {
        let can_ask = self.can_ask();
        let Some(server) = self.core.server.as_deref_mut().filter(|_| can_ask) else {
            return self.core.acquirer.end_offer();
        };
        let question = self.state.user_variable_question();
        let mut out = self.core.worker.take_spare();
        server.query(Ask::Other, &question.text(), &mut out);
        // If this fails, the next receive reports it.
        let _ = server.core.stream.send_own(self.core.worker, out);
        let rows = UserVariableRows::default();
        self.stage = Stage::DiscardReply(AfterDiscard::Listed(Box::new(UserVariableListing {
            question,
            rows,
            has_failed: false,
        })));
    }

    /// Returns whether the session is between two commands, and a question can show that it does
    /// not need its connection. A question would remove the results for which the connection is
    /// held.
    fn can_ask(&self) -> bool {
        let is_idle = |server: &ServerConnection| server.is_idle();
        self.state.can_be_asked()
            && self.is_waiting_idle()
            && self.core.server.as_deref().is_some_and(is_idle)
            && self.holding.is_none()
            && !self.core.keeps_connection()
    }

    /// Returns whether the reply to the command has the value of a function for named locks.
    pub(super) fn answers_lock(&self) -> bool {
        let meaning = effective(&self.active.what, &self.active.statement);
        meaning.is_some_and(TextAnalysis::answers_lock)
    }

    /// Adds bytes of definitions or rows to the answer.
    pub(super) fn hear_user_variables(&mut self, bytes: &[u8]) {
        if let Stage::DiscardReply(AfterDiscard::Listed(listing)) = &mut self.stage {
            listing.rows.add(bytes);
        }
    }

    /// Applies the whole answer. The connection is then released, if nothing else pins the session.
    pub(super) fn user_variables_listed(&mut self, listing: &UserVariableListing) {
        if let Some(server) = &mut self.core.server {
            let rows = (!listing.has_failed).then_some(&listing.rows);
            let interner = self.core.worker.interner();
            let settings = &mut server.settings;
            self.state
                .user_variables_answered(&listing.question, rows, settings, interner);
        }
        self.pins_changed();
        if !self.query_between(false) {
            self.show_activity();
        }
        if !self.is_free() {
            self.core.acquirer.end_offer();
        }
    }
}
