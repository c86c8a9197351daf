//! What the rules of the service say of a unit: of the texts in it, and of what was prepared.
//!
//! A unit that is looked through before it gets a server is refused by us. On a connection that the
//! session has, the order of replies and the state of a transaction are the server's: there a text
//! of ours goes in the place of what is refused, and the server's own error tells the words.

use std::sync::Arc;

use evenkeel_wire::postgres::build;
use evenkeel_wire::postgres::conversation::{Origin, Request, RequestToken, Sending};
use evenkeel_wire::sql::Dialect;
use evenkeel_wire::stream_editor::StreamEditor;

use super::Session;
use super::batch_tail::{MisroutedStatement, TOO_LATE};
use super::statements::Statement;
use crate::service::rules::{Ruling, Said};

/// What the rules say of a client's prepared statements is kept for so many.
const KEPT_MAX: usize = 1_000;

impl Session<'_> {
    /// What the rules say of a text, or of one that is too long to be read; `None`: there are none.
    pub(super) fn ruling(&self, text: Option<&[u8]>) -> Option<Ruling> {
        let book = self.permit.service().rules()?;
        let verdict = book.judge(&Said {
            user: &self.account.who.user,
            database: Some(self.account.who.database.as_bytes()),
            text,
            dialect: Dialect::Postgres {
                backslashes: self.journal.reported.backslashes(),
            },
        });
        Some(Ruling { book, verdict })
    }

    /// The same of what was prepared: once, as long as the rules are the same.
    pub(super) fn ruling_of(&mut self, statement: &Statement) -> Option<Ruling> {
        let book = self.permit.service().rules()?;
        let known = self.rulings.get(&statement.id);
        if let Some(known) = known.filter(|known| Arc::ptr_eq(&known.book, &book)) {
            return Some(known.clone());
        }
        let ruling = self.ruling(Some(&statement.text))?;
        if self.rulings.len() >= KEPT_MAX {
            self.rulings.clear();
        }
        self.rulings.insert(statement.id, ruling.clone());
        Some(ruling)
    }

    /// A unit was looked through, and is about to get a server. The words with which it is refused.
    pub(super) fn obey_ahead(&mut self, ruling: Option<Ruling>, runs: bool) -> Option<String> {
        let refused = ruling.as_ref().and_then(Ruling::rejection);
        // It may be looked through more than once.
        let is_new = !std::mem::replace(&mut self.unit.is_ruled, true);
        if let Some(ruling) = ruling
            .as_ref()
            .filter(|_| is_new && (runs || refused.is_some()))
        {
            ruling.count(self.worker.index);
        }
        self.card.limit_query(ruling.as_ref());
        self.unit.ruling = ruling;
        refused
    }

    /// A text, or what was prepared, is run on the connection that the session has. The words with
    /// which it is refused.
    pub(super) fn obey(
        &mut self,
        ruling: impl FnOnce(&mut Self) -> Option<Ruling>,
    ) -> Option<String> {
        if self.unit.stray == MisroutedStatement::Refused {
            return Some(TOO_LATE.to_owned());
        }
        if self.unit.is_ruled {
            return None;
        }
        let ruling = ruling(self)?;
        ruling.count(self.worker.index);
        let refused = ruling.rejection();
        self.unit.ruling = Ruling::join(self.unit.ruling.take(), Some(ruling));
        self.card.limit_query(self.unit.ruling.as_ref());
        refused
    }

    /// A text is prepared there: the words with which it is refused.
    pub(super) fn obey_parse(
        &mut self,
        ruling: impl FnOnce(&mut Self) -> Option<Ruling>,
    ) -> Option<String> {
        if self.unit.stray == MisroutedStatement::Refused {
            return Some(TOO_LATE.to_owned());
        }
        if self.unit.is_ruled {
            return None;
        }
        let ruling = ruling(self)?;
        let refused = ruling.rejection();
        if refused.is_some() {
            ruling.count(self.worker.index);
        }
        refused
    }

    /// The same of what was prepared before, as its portal is made: no statement is called so.
    pub(super) fn refuses_bind(&mut self, request: Request, name: &[u8]) -> Option<String> {
        if request != Request::Bind {
            return None;
        }
        let words = self.obey(|session| match name {
            b"" if session.unnamed.id == 0 => None,
            b"" => session.ruling(session.unnamed.known_text()),
            name => {
                let statement = session.names.get(name).map(Arc::clone)?;
                session.ruling_of(&statement)
            }
        })?;
        Some(words.replace('\0', " "))
    }

    /// What was said of the work before counts no more.
    pub(super) fn forget_ruling(&mut self) {
        self.unit.is_ruled = false;
        if self.unit.ruling.take().is_some() {
            self.card.limit_query(None);
        }
    }

    /// In the place of a Query: the server raises the error, in whose transaction that may be.
    pub(super) fn refuse_query(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        words: &str,
        length: usize,
    ) -> Sending {
        let text = format!(
            "DO $evenkeel$BEGIN RAISE USING ERRCODE = '42501', MESSAGE = {}; END$evenkeel$",
            quoted(words)
        );
        self.replace(flight, Request::Query, length, |out| {
            build::query(out, text.as_bytes());
        })
    }

    /// In the place of a Parse: the words are no number, which the server finds out at once.
    pub(super) fn refuse_parse(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        words: &str,
        length: usize,
    ) -> Sending {
        let text = format!("SELECT {}::pg_catalog.int4", quoted(words));
        self.replace(flight, Request::Parse, length, |out| {
            build::parse(out, REFUSED, text.as_bytes(), &[]);
        })
    }

    fn replace(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        request: Request,
        length: usize,
        write: impl FnOnce(&mut Vec<u8>),
    ) -> Sending {
        let Some(server) = &mut self.server else {
            return Sending::Drop;
        };
        let sending = server
            .conversation
            .sent(request, Origin::Client, RequestToken(0));
        flight.drop(length);
        if sending == Sending::Forward {
            write(flight.writer());
        }
        Sending::Drop
    }
}

/// No statement is ever called so: to prepare it fails.
const REFUSED: &[u8] = b"evenkeel refuses";

/// A string that means the same in every session, and ends no other quotes.
fn quoted(words: &str) -> String {
    let mut text = "E'".to_owned();
    for c in words.chars().filter(|c| !c.is_control()) {
        match c {
            '\'' | '\\' | '$' => text.push_str(&format!("\\x{:02x}", u32::from(c))),
            plain => text.push(plain),
        }
    }
    text.push('\'');
    text
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn words_cannot_end_the_string_they_are_in() {
        assert_eq!(
            quoted("it's\n $evenkeel$\\ é"),
            "E'it\\x27s \\x24evenkeel\\x24\\x5c é'"
        );
    }
}
