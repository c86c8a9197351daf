//! Applies the service's rules to a command's text, when it is received or prepared.

use std::sync::Arc;

use evenkeel_sql::Dialect;

use super::Session;
use super::active_request::CommandKind;
use super::error_reply::ErrorReply;
use crate::service::rules::{AppliedRules, RuleSet, RuleText};

impl Session<'_> {
    /// Applies the rules to a text; `None` if it is too long to be parsed.
    pub(super) fn apply_rules(&mut self, text: Option<&[u8]>) {
        let rule_set = self.core.permit.service().rules();
        self.rules = rule_set.map(|rule_set| self.rules_of(rule_set, text, self.state.schema()));
    }

    /// Applies the rules to a prepared statement. The result of its preparation is reused unless
    /// the rules have changed.
    pub(super) fn reapply_rules(&mut self, number: u32) {
        self.rules = None;
        let named = self.statements.get(number);
        let Some((rule_set, named)) = self.core.permit.service().rules().zip(named) else {
            return;
        };
        let is_of_now = |known: &&AppliedRules| Arc::ptr_eq(&known.rule_set, &rule_set);
        if let Some(known) = named.rules.as_ref().filter(is_of_now) {
            self.rules = Some(known.clone());
            return;
        }
        let statement = Arc::clone(&named.statement);
        let schema = statement.within.schema.as_deref();
        let rules = self.rules_of(rule_set, Some(&statement.text), schema);
        if let Some(named) = self.statements.get_mut(number) {
            named.rules = Some(rules.clone());
        }
        self.rules = Some(rules);
    }

    /// Returns the error if a rule rejects the command. Executed and rejected commands are counted.
    pub(super) fn refused_by_rule(&self, what: &CommandKind) -> Option<ErrorReply> {
        let rules = self.rules.as_ref()?;
        let refused = match what {
            CommandKind::Query
            | CommandKind::Prepare(_)
            | CommandKind::Execute(_)
            | CommandKind::Bulk(_) => rules.rejection(),
            _ => return None,
        };
        if refused.is_some() || !matches!(what, CommandKind::Prepare(_)) {
            rules.count(self.core.worker.index());
        }
        refused.map(ErrorReply::by_rule)
    }

    fn rules_of(
        &self,
        rule_set: Arc<RuleSet>,
        text: Option<&[u8]>,
        schema: Option<&[u8]>,
    ) -> AppliedRules {
        let outcome = rule_set.evaluate(&RuleText {
            user: &self.account.pool_user.user,
            database: schema,
            text,
            dialect: Dialect::Mysql(self.state.modes()),
        });
        AppliedRules { rule_set, outcome }
    }
}
