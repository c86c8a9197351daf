//! What a client's SQL texts mean for its session, as they are sent.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use evenkeel_policy::pins::Pin;
use evenkeel_policy::route::{Statement, Traits};
use evenkeel_wire::postgres::conversation::{Answer, Origin, Request, Sending, Token};
use evenkeel_wire::postgres::flight::Flight;
use evenkeel_wire::postgres::{TransactionStatus, build};

use super::effects::{is_atomic, takes_statements_away};
use super::prepared::take_given;
use super::server::ServerConnection;
use super::statements::{self};
use super::unit::text_of_query;
use super::{End, Session};
use crate::state::meaning::{self, Does, Lookup, Meaning};

impl Session<'_> {
    pub(super) fn query(
        &mut self,
        flight: &mut Flight<'_, '_>,
        message: &[u8],
        is_whole: bool,
    ) -> Result<Sending, End> {
        self.unit.is_sent = true;
        self.unnamed.id = 0;
        self.unnamed.open = None;
        // Behind requests without a Sync it is one of them: an error passes over it, too.
        let begins_anew = |server: &ServerConnection| server.conversation.is_between_batches();
        self.segment += u64::from(self.server.as_deref().is_none_or(begins_anew));
        if !is_whole {
            self.unit.may_write = true;
            self.pin(Pin::Unknown);
            return Ok(self.send(flight, Request::Query, Token(0), message.len()));
        }
        let meaning = match self.effects.read_ahead.take() {
            Some(meaning) => meaning,
            None => self.read(text_of_query(message)),
        };
        if let Some(sending) = self.deallocate(flight, &meaning, message.len()) {
            return Ok(sending);
        }
        self.guard_sequences(flight, &meaning);
        self.prepare_for_execute(flight, &meaning);
        let token = self.meant(&meaning);
        Ok(self.send(flight, Request::Query, token, message.len()))
    }

    /// What a text means takes hold as it is sent.
    pub(super) fn meant(&mut self, meaning: &Meaning) -> Token {
        self.unit.may_write |= meaning.writes;
        self.unit.is_atomic &= is_atomic(meaning);
        self.changes_catalog |= meaning.changes_catalog;
        if !meaning.effects.is_empty() {
            self.take_pins(meaning);
        }
        self.effects.note(meaning)
    }

    pub(super) fn pin(&mut self, pin: Pin) {
        self.journal.pins.add(pin);
        self.card.set_pins(self.journal.pins);
    }

    pub(super) fn execute(&mut self, flight: &mut Flight<'_, '_>, length: usize) -> Sending {
        let token = match &self.bound.meaning {
            Some(meaning) => match self.deallocated(meaning).map(Box::from) {
                Some(name) => return self.execute_deallocate(flight, &name, length),
                None => self.effects.note(meaning),
            },
            None => Token(0),
        };
        self.send(flight, Request::Execute, token, length)
    }

    /// The name of a DEALLOCATE, if the client has prepared it by the protocol.
    pub(super) fn deallocated<'m>(&self, meaning: &'m Meaning) -> Option<&'m [u8]> {
        let [effect] = meaning.effects.as_slice() else {
            return None;
        };
        let Does::Deallocate(name) = &effect.does else {
            return None;
        };
        let is_ours = meaning.statements.len() == 1 && self.names.get(name).is_some();
        is_ours.then_some(&**name)
    }

    pub(super) fn execute_deallocate(
        &mut self,
        flight: &mut Flight<'_, '_>,
        name: &[u8],
        length: usize,
    ) -> Sending {
        let Some(server) = &mut self.server else {
            return Sending::Drop;
        };
        let token = Token(self.effects.next());
        if take_given(&mut server.given, name) {
            self.names.remove((token.0, self.segment), name);
            return self.send(flight, Request::Execute, token, length);
        }
        let answer = Answer::Command("DEALLOCATE");
        if server.conversation.answer(answer, token) == Sending::Forward {
            self.names.remove((token.0, self.segment), name);
        }
        flight.drop(length);
        Sending::Drop
    }

    /// DEALLOCATE of a statement that the client has prepared by the protocol: its name is ours on
    /// the servers, so that we answer.
    pub(super) fn deallocate(
        &mut self,
        flight: &mut Flight<'_, '_>,
        meaning: &Meaning,
        length: usize,
    ) -> Option<Sending> {
        let name = self.deallocated(meaning)?;
        let server = self.server.as_mut()?;
        let has_failed = server.conversation.status() == TransactionStatus::Failed;
        if !server.conversation.is_between_batches() || has_failed {
            return None;
        }
        self.names.remove((0, self.segment), name);
        if take_given(&mut server.given, name) {
            return None;
        }
        let sending = server
            .conversation
            .answer(Answer::Query("DEALLOCATE"), Token(0));
        flight.drop(length);
        Some(sending)
    }

    /// EXECUTE of a statement that the client has prepared by the protocol: it is given its own
    /// name on this server, which the client keeps from then on.
    pub(super) fn prepare_for_execute(&mut self, flight: &mut Flight<'_, '_>, meaning: &Meaning) {
        for effect in &meaning.effects {
            let Does::Execute(name) = &effect.does else {
                continue;
            };
            let Some(statement) = self.names.get(name).map(Arc::clone) else {
                continue;
            };
            let Some(server) = &mut self.server else {
                return;
            };
            if !server.conversation.is_quiet() || server.given.contains(name) {
                continue;
            }
            server.given.push(name.clone());
            let token = Token(0);
            let sent = server
                .conversation
                .sent(Request::Parse, Origin::Ours, token);
            if sent == Sending::Forward {
                build::parse(flight.writer(), name, &statement.text, &statement.types);
                let sync = server.conversation.sent(Request::Sync, Origin::Ours, token);
                if sync == Sending::Forward {
                    build::sync(flight.writer());
                }
            }
            self.pin(Pin::Prepared);
        }
    }

    /// Pins hold from the Bind on: what runs later is not looked up by its portal.
    pub(super) fn take_hold(&mut self) {
        if let Some(meaning) = &self.bound.meaning {
            self.changes_catalog |= meaning.changes_catalog;
            let meaning = meaning.clone();
            self.take_pins(&meaning);
        }
    }

    pub(super) fn take_pins(&mut self, meaning: &Meaning) {
        self.clears |= meaning.effects.iter().any(takes_statements_away);
        self.journal.sent(meaning);
        self.drew |= self.journal.pins.has(Pin::Sequence);
        self.card.set_pins(self.journal.pins);
    }

    /// currval and lastval must never answer with another session's value. Where nobody has asked
    /// for them yet, drawing from a sequence has bound nobody to its connection: this one has what
    /// others drew, unless it was drawn here just now.
    pub(super) fn guard_sequences(&mut self, flight: &mut Flight<'_, '_>, meaning: &Meaning) {
        let asks = |one: &Statement| one.traits.any(Traits::REMEMBERS);
        if !meaning.statements.iter().any(asks) {
            return;
        }
        self.own.asked_sequences();
        let is_own = self.drew || self.journal.pins.has(Pin::Sequence);
        let Some(server) = self.server.as_mut().filter(|_| !is_own) else {
            return;
        };
        if server.conversation.is_between_batches() {
            server.ask(b"DISCARD SEQUENCES", Token(0), flight.writer());
        }
    }

    /// What a text means; of a session whose encoding hides it, nothing can be told.
    pub(super) fn read(&self, text: &[u8]) -> Meaning {
        let reported = &self.journal.reported;
        if !reported.is_readable() {
            return Meaning::unreadable();
        }
        let backslashes = reported.backslashes();
        let catalog = self.account.catalog();
        let lookup = catalog.as_deref().map(|catalog| catalog as &dyn Lookup);
        meaning::read(text, backslashes, lookup)
    }

    pub(super) fn intern(&self, text: &[u8], types: &[u8]) -> Arc<statements::Statement> {
        let digest = self.digest();
        let catalog = self.account.catalog_version();
        self.own
            .statements
            .statement(text, types, digest, catalog, || self.read(text))
    }

    /// The statement with what is known of the catalog now.
    pub(super) fn current(
        &self,
        statement: &Arc<statements::Statement>,
    ) -> Arc<statements::Statement> {
        let catalog = self.account.catalog_version();
        if statement.catalog == catalog {
            return Arc::clone(statement);
        }
        self.own
            .statements
            .renewed(statement, catalog, || self.read(&statement.text))
    }

    /// The settings that names in a text are looked up by.
    pub(super) fn digest(&self) -> u64 {
        let settings = self.journal.settings();
        let mut hasher = DefaultHasher::new();
        self.account.who.database_number.hash(&mut hasher);
        settings.get(b"search_path").hash(&mut hasher);
        settings.get(b"role").hash(&mut hasher);
        hasher.finish()
    }
}
