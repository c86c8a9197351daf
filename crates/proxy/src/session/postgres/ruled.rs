//! Applies the rules of the service to requests: to the texts in them, and to prepared statements.
//!
//! Evenkeel itself refuses a request that is analyzed before it gets a server. On a connection that
//! the session already has, the server determines the order of replies and the transaction state.
//! There a refused text is replaced by one with which the server raises the error.

use std::sync::Arc;

use evenkeel_sql::Dialect;
use evenkeel_wire::postgres::build;
use evenkeel_wire::postgres::conversation::{Request, RequestToken, Sending};
use evenkeel_wire::stream_editor::StreamEditor;

use super::Session;
use super::active_request::BatchTail;
use super::statements::Statement;
use crate::error_catalog;
use crate::service::rules::{AppliedRules, RuleText};

/// Maximum number of prepared statements whose rule results are cached.
const KEPT_MAX: usize = 1_000;

impl Session<'_> {
    /// Returns the rules' result for a text, or for one too long to be analyzed. `None`: there are
    /// no rules.
    pub(super) fn rules(&self, text: Option<&[u8]>) -> Option<AppliedRules> {
        let rule_set = self.core.permit.service().rules()?;
        let outcome = rule_set.evaluate(&RuleText {
            user: &self.account.pool_user.user,
            database: Some(self.account.pool_user.database.as_bytes()),
            text,
            dialect: Dialect::Postgres {
                backslashes: self.state.reported.backslashes(),
            },
        });
        Some(AppliedRules { rule_set, outcome })
    }

    /// Returns the rules' result for a prepared statement, cached until the rules change.
    pub(super) fn rules_of(&mut self, statement: &Statement) -> Option<AppliedRules> {
        let rule_set = self.core.permit.service().rules()?;
        let known = self.rules_cache.get(&statement.id);
        if let Some(known) = known.filter(|known| Arc::ptr_eq(&known.rule_set, &rule_set)) {
            return Some(known.clone());
        }
        let rules = self.rules(Some(&statement.text))?;
        if self.rules_cache.len() >= KEPT_MAX {
            self.rules_cache.clear();
        }
        self.rules_cache.insert(statement.id, rules.clone());
        Some(rules)
    }

    /// Applies the rules to an analyzed request that is about to get a server. Returns the message
    /// if it is refused.
    pub(super) fn apply_rules_early(
        &mut self,
        rules: Option<AppliedRules>,
        runs: bool,
    ) -> Option<String> {
        let refused = rules.as_ref().and_then(AppliedRules::rejection);
        // The request may be analyzed more than once.
        let is_new = !std::mem::replace(&mut self.active.has_applied_rules, true);
        if let Some(rules) = rules
            .as_ref()
            .filter(|_| is_new && (runs || refused.is_some()))
        {
            rules.count(self.core.worker.index());
        }
        self.core.handle.limit_query(rules.as_ref());
        self.active.rules = rules;
        refused
    }

    /// Applies the rules to a text or prepared statement to be executed on the session's
    /// connection. Returns the message if it is refused.
    pub(super) fn apply_rules(
        &mut self,
        rules: impl FnOnce(&mut Self) -> Option<AppliedRules>,
    ) -> Option<String> {
        if self.active.tail == BatchTail::Refused {
            return Some(error_catalog::PIPELINE_ON_REPLICA.message(&[]));
        }
        if self.active.has_applied_rules {
            return None;
        }
        let rules = rules(self)?;
        rules.count(self.core.worker.index());
        let refused = rules.rejection();
        self.active.rules = AppliedRules::join(self.active.rules.take(), Some(rules));
        self.core.handle.limit_query(self.active.rules.as_ref());
        refused
    }

    /// Applies the rules to a text to be prepared on the session's connection. Returns the message
    /// if it is refused.
    pub(super) fn apply_rules_to_parse(
        &mut self,
        rules: impl FnOnce(&mut Self) -> Option<AppliedRules>,
    ) -> Option<String> {
        if self.active.tail == BatchTail::Refused {
            return Some(error_catalog::PIPELINE_ON_REPLICA.message(&[]));
        }
        if self.active.has_applied_rules {
            return None;
        }
        let rules = rules(self)?;
        let refused = rules.rejection();
        if refused.is_some() {
            rules.count(self.core.worker.index());
        }
        refused
    }

    /// Applies the rules to a prepared statement when it is bound. Returns the message if it is
    /// refused, which is then sent as the name of a nonexistent statement.
    pub(super) fn refuses_bind(&mut self, request: Request, name: &[u8]) -> Option<String> {
        if request != Request::Bind {
            return None;
        }
        let words = self.apply_rules(|session| match name {
            b"" => {
                let unnamed = session.unnamed.last()?;
                let parsed = unnamed.parsed.as_ref();
                session.rules(parsed.map(|parsed| &*parsed.text))
            }
            name => {
                let statement = session.statements.get(name).map(Arc::clone)?;
                session.rules_of(&statement)
            }
        })?;
        Some(words.replace('\0', " "))
    }

    /// Discards the rules' result of earlier work.
    pub(super) fn clear_rules(&mut self) {
        self.active.has_applied_rules = false;
        if self.active.rules.take().is_some() {
            self.core.handle.limit_query(None);
        }
    }

    /// Replaces a Query by one that raises the error, so that it fails within the current
    /// transaction.
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
        let token = self.drop_unnamed(RequestToken(0));
        let _ = self.replace(flight, (Request::Query, token), length, |out| {
            build::query(out, text.as_bytes());
        });
        Sending::Drop
    }

    /// Replaces a Parse by one that fails immediately, because the message is not a number.
    pub(super) fn refuse_parse(
        &mut self,
        flight: &mut StreamEditor<'_, '_>,
        words: &str,
        length: usize,
    ) -> Sending {
        let text = format!("SELECT {}::pg_catalog.int4", quoted(words));
        let _ = self.replace(flight, (Request::Parse, RequestToken(0)), length, |out| {
            build::parse(out, REFUSED, text.as_bytes(), &[]);
        });
        Sending::Drop
    }
}

/// Name of a Parse that always fails, so that no statement has it.
const REFUSED: &[u8] = b"evenkeel refuses";

/// Quotes a string so that it has the same value in every session and cannot end other quotes.
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
