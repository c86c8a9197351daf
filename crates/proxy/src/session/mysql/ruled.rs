//! Applies the service's rules to a command's text, when it is received or prepared.

use std::sync::Arc;

use evenkeel_wire::sql::Dialect;

use super::Session;
use super::active_request::CommandKind;
use super::error_reply::ErrorReply;
use crate::service::rules::{RuleBook, Ruling, Said};

impl Session<'_> {
    /// Applies the rules to a text; `None` if it is too long to be parsed.
    pub(super) fn rule(&mut self, text: Option<&[u8]>) {
        let book = self.permit.service().rules();
        self.ruling = book.map(|book| self.ruling_of(book, text, self.journal.schema()));
    }

    /// Applies the rules to a prepared statement. The result of its preparation is reused unless
    /// the rules have changed.
    pub(super) fn rule_again(&mut self, number: u32) {
        self.ruling = None;
        let named = self.numbers.get(number);
        let Some((book, named)) = self.permit.service().rules().zip(named) else {
            return;
        };
        let is_of_now = |known: &&Ruling| Arc::ptr_eq(&known.book, &book);
        if let Some(known) = named.ruling.as_ref().filter(is_of_now) {
            self.ruling = Some(known.clone());
            return;
        }
        let statement = Arc::clone(&named.statement);
        let schema = statement.within.schema.as_deref();
        let ruling = self.ruling_of(book, Some(&statement.text), schema);
        if let Some(named) = self.numbers.get_mut(number) {
            named.ruling = Some(ruling.clone());
        }
        self.ruling = Some(ruling);
    }

    /// Returns the error if a rule rejects the command. Executed and rejected commands are counted.
    pub(super) fn refused_by_rule(&self, what: &CommandKind) -> Option<ErrorReply> {
        let ruling = self.ruling.as_ref()?;
        let refused = match what {
            CommandKind::Query
            | CommandKind::Prepare(_)
            | CommandKind::Execute(_)
            | CommandKind::Bulk(_) => ruling.rejection(),
            _ => return None,
        };
        if refused.is_some() || !matches!(what, CommandKind::Prepare(_)) {
            ruling.count(self.worker.index);
        }
        refused.map(ErrorReply::by_rule)
    }

    fn ruling_of(&self, book: Arc<RuleBook>, text: Option<&[u8]>, schema: Option<&[u8]>) -> Ruling {
        let verdict = book.judge(&Said {
            user: &self.account.who.user,
            database: schema,
            text,
            dialect: Dialect::Mysql(self.journal.modes()),
        });
        Ruling { book, verdict }
    }
}
