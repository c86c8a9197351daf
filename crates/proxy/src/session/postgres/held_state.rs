//! Finds out which state a session has on the connection that it keeps, when another client needs
//! the connection: the server is asked.

use std::rc::Rc;

use evenkeel_policy::connection_pool::Condition;
use evenkeel_policy::pins::{Pin, Pins};
use evenkeel_sql::session_state::settings::held_state::{HeldState, Question, Rows};
use evenkeel_sql::session_state::settings::values::quoted;
use evenkeel_wire::postgres::conversation::RequestToken;
use evenkeel_wire::postgres::server_scanner::Event;
use tracing::info;

use super::sequences::LastValue;
use super::server::ServerConnection;
use super::{ExitReason, Session, Stage};
use crate::session::pinning;

/// Knowledge of the state that a session has on its connection.
#[derive(Default, PartialEq, Eq)]
pub(super) enum Knowledge {
    /// The session's statements may have left state.
    #[default]
    Uncertain,
    /// The server has reported the state, and no statement has run since.
    Reported,
}

/// A question that the server is answering.
pub(super) struct Asking {
    question: Question,
    rows: Rows,
}

impl Session<'_> {
    /// Offers the connection that the session keeps between transactions, unless it must keep it in
    /// any case.
    pub(super) fn offer_connection(&mut self) {
        let is_open = self.knowledge == Knowledge::Uncertain && self.can_ask();
        if let Some(server) = self.core.server.as_deref().filter(|_| is_open) {
            self.core.acquirer.offer(server);
        }
    }

    /// Ends the offer, because the client uses the connection.
    pub(super) fn keep_connection(&mut self) {
        self.knowledge = Knowledge::Uncertain;
        self.core.acquirer.end_offer();
    }

    /// Asks the server, because another client needs the connection.
    pub(super) fn ask_for_held_state(&mut self) {
        let can_ask = self.can_ask();
        let Some(server) = self.core.server.as_deref_mut().filter(|_| can_ask) else {
            return self.core.acquirer.end_offer();
        };
        let question = self.state.question(&server.settings);
        let mut text = Vec::new();
        for name in server.given.take() {
            // The client's next EXECUTE prepares it again.
            text.extend_from_slice(b"DEALLOCATE ");
            quoted(&mut text, &name, b'"');
            text.push(b';');
        }
        if !self.ask(question, text) {
            self.core.acquirer.end_offer();
        }
    }

    /// Asks for the value of `lastval()` before the session releases the connection on which it has
    /// used a sequence. Returns false if no client reads it.
    pub(super) fn ask_for_last_value(&mut self) -> bool {
        let may_be_read = self.sequences.used_nextval && self.account.asks_only_last_value();
        if !may_be_read {
            return false;
        }
        self.sequences.used_nextval = false;
        self.ask(Question::last_value(), Vec::new())
    }

    /// Sends a question. Returns false if the server cannot take one now.
    fn ask(&mut self, question: Question, mut text: Vec<u8>) -> bool {
        let Some(server) = self.core.server.as_deref_mut() else {
            return false;
        };
        question.write(&mut text);
        let mut out = self.core.worker.take_spare();
        if !server.query(&text, RequestToken::default(), &mut out) {
            return false;
        }
        // If this fails, the next receive reports it.
        let _ = server.core.stream.send_own(self.core.worker, out);
        self.refused_setting = ([0; 5], String::new());
        let rows = Rows::default();
        self.stage = Stage::Asking(Box::new(Asking { question, rows }));
        true
    }

    /// Returns whether the session is between two requests, and a question can show that it does
    /// not need its connection.
    fn can_ask(&self) -> bool {
        let is_idle = |server: &ServerConnection| server.is_idle();
        matches!(self.stage, Stage::Ready)
            && self.core.server.as_deref().is_some_and(is_idle)
            && self.scanner.is_at_border()
            && self.pending_input.is_empty()
            && !self.is_terminating
            && self.state.can_be_asked()
            && !self.core.keeps_connection()
    }

    /// Returns whether the server is being asked, and the session needs nothing of the connection.
    pub(super) fn is_asking_only(&self) -> bool {
        self.is_asking() && self.state.pins.is_empty() && !self.core.keeps_connection()
    }

    /// Returns whether the server is being asked.
    pub(super) fn is_asking(&self) -> bool {
        matches!(self.stage, Stage::Asking(_))
    }

    /// Adds bytes of rows to the answer.
    pub(super) fn hear_rows(&mut self, bytes: &[u8]) {
        if let Stage::Asking(asking) = &mut self.stage {
            asking.rows.add(bytes);
        }
    }

    /// Processes the beginning or the end of the answer's rows.
    pub(super) fn hear_answer(&mut self, server: &ServerConnection, event: &Event<'_>) {
        match (&mut self.stage, event) {
            (Stage::Asking(asking), Event::RowDescription) => {
                asking.rows.begin(server.boundaries.remainder());
            }
            (Stage::Asking(asking), Event::CommandComplete(tag)) => {
                asking.rows.end(tag.rows().unwrap_or_default());
            }
            _ => {}
        }
    }

    /// Releases the connection if the server has reported that the session does not need it.
    pub(super) fn take_answer(&mut self) -> Result<(), ExitReason> {
        let Stage::Asking(asking) = std::mem::replace(&mut self.stage, Stage::Ready) else {
            return Ok(());
        };
        let (sqlstate, error) = std::mem::take(&mut self.refused_setting);
        let held = asking.rows.read().filter(|_| sqlstate == [0; 5]);
        self.knowledge = Knowledge::Reported;
        if let Some(value) = held.as_ref().and_then(|held| held.last_value.clone()) {
            self.sequences.last_value = LastValue::Known(value);
        }
        if let (Some(held), Some(server)) = (&held, &mut self.core.server) {
            let interner = self.core.worker.interner();
            self.state
                .answered(&asking.question, held, &mut server.settings, interner);
        }
        self.show_reported(held.as_ref(), &error);
        // A statement that has arrived meanwhile is executed on this connection.
        let is_kept = held.is_none() && !self.state.pins.is_empty();
        if is_kept || !self.pending_input.is_empty() || !self.state.is_movable() {
            self.core.acquirer.end_offer();
            return self.go_on_with_same();
        }
        self.give_up_connection();
        Ok(())
    }

    /// Releases the connection, of which unread code may have changed more than the server lists.
    fn give_up_connection(&mut self) {
        let pins = std::mem::replace(&mut self.state.pins, Pins::NONE);
        self.pins_changed();
        if let Some(server) = self.detach_server() {
            if pins.has(Pin::Unknown) {
                self.core.acquirer.release(server, Condition::Unclean);
            } else if pins.has(Pin::Code) {
                let worker = Rc::clone(self.core.worker);
                let renew =
                    async move |server: &mut ServerConnection| server.renew(&worker).await.is_ok();
                self.core.acquirer.release_renewed(server, renew);
                self.core.acquirer.end_offer();
            } else {
                self.core.acquirer.release(server, Condition::Clean);
            }
        }
        self.released();
    }

    /// Shows why the session keeps its connection, as the server has reported. `None`: with this
    /// error, the server has not.
    fn show_reported(&self, held: Option<&HeldState>, error: &str) {
        let pins = self.state.pins;
        let named = match held {
            Some(held) => held.named.clone(),
            None => {
                let named = pins
                    .iter()
                    .map(|pin| (pin, format!("not reported: {error}")));
                named.take(1).collect()
            }
        };
        let is_new = pinning::report(self.core.handle, pins, &named);
        let login = self
            .core
            .handle
            .login_info()
            .filter(|_| is_new && !pins.is_empty());
        if let Some(login) = login {
            let reported = held.map_or_else(|| error.to_owned(), ToString::to_string);
            info!(
                service = &*self.core.permit.service().name,
                user = &*login.user,
                database = &*login.database,
                "session keeps its server connection, which another client needs: {reported}",
            );
        }
    }
}
