//! Applies the rules of a service to a statement, and tests a single rule on it.

use evenkeel_config::plan::SqlProtocol;
use evenkeel_policy::rules::{Destination, RuleOutcome};
use evenkeel_proxy::rules::{RuleSet, RuleText};
use evenkeel_sql::Dialect;
use evenkeel_sql::digest::{digest, normalised};

use super::ExplainContext;
use crate::rules::rules;
use crate::status::{Explanation, Question, RuleFit};

/// User that matches no rule, since no name is empty.
const UNKNOWN_USER: &str = "";

const ASSUMED_USER: &str = "a user and a database that no rule mentions: set them with --user and \
                          --database";

/// Result of the rules.
pub(super) struct RuleExplanation {
    rule_set: RuleSet,
    outcome: RuleOutcome,
    dialect: Dialect,
    /// True if a rule depends on a user or database that the question leaves open.
    is_assumed: bool,
}

impl RuleExplanation {
    pub(super) fn new(question: &Question, context: &ExplainContext<'_>) -> Result<Self, String> {
        let plans = &context.database.rules;
        let tried = question.rule.as_deref();
        if let Some(tried) = tried.filter(|tried| plans.iter().all(|rule| rule.name != *tried)) {
            let names: Vec<&str> = plans.iter().map(|rule| rule.name.as_str()).collect();
            let service = &context.service.name;
            return Err(match names.as_slice() {
                [] => format!("service {service:?} has no rules"),
                names => format!(
                    "service {service:?} has no rule {tried:?}; choose one of: {}",
                    names.join(", ")
                ),
            });
        }
        let dialect = match context.database.protocol {
            SqlProtocol::Mysql => Dialect::Mysql(context.modes),
            SqlProtocol::Postgres => Dialect::Postgres { backslashes: false },
        };
        let rule_set = RuleSet::new(rules(plans, tried), Vec::new());
        let is_restricted =
            |given: &Option<String>, wanted: &Option<String>| given.is_none() && wanted.is_some();
        Ok(Self {
            outcome: rule_set.evaluate(&rule_text(question, dialect)),
            rule_set,
            dialect,
            is_assumed: plans.iter().any(|rule| {
                is_restricted(&question.user, &rule.user)
                    || is_restricted(&question.database, &rule.database)
            }),
        })
    }

    pub(super) fn destination(&self) -> Option<&Destination> {
        self.rule_set.destination(&self.outcome)
    }

    /// Returns the context with only the replicas that the rules allow.
    pub(super) fn restrict<'c>(&self, context: &ExplainContext<'c>) -> ExplainContext<'c> {
        let is_among = |index: &usize| self.destination().is_none_or(|to| to.group.has(*index));
        let replicas = context.replicas.iter().copied();
        ExplainContext {
            service: context.service,
            database: context.database,
            primary: context.primary,
            modes: context.modes,
            replicas: replicas.filter(is_among).collect(),
        }
    }

    /// Adds the results of the rules to an explanation.
    pub(super) fn write_to(&self, question: &Question, explanation: &mut Explanation) {
        let text = question.sql.as_bytes();
        explanation.digest = digest(text, self.dialect).to_string();
        explanation.normalized = normalised(text, self.dialect);
        let fitting = self.rule_set.fitting(&self.outcome);
        explanation.rules = fitting.map(|(name, active)| fit(name, active)).collect();
        explanation.timeout_ms = self.outcome.timeout_ms;
        explanation.refused = self.rule_set.rejection(&self.outcome);
        if let Some(why) = &explanation.refused {
            explanation.target = "nowhere".to_owned();
            explanation.servers.clear();
            explanation.why.clone_from(why);
        }
        if let Some(tried) = &question.rule {
            explanation.rule_test = Some(self.tried(tried, question));
        }
        if self.is_assumed {
            explanation.assumed.push(ASSUMED_USER.to_owned());
        }
    }

    /// Describes the result of a single rule.
    fn tried(&self, rule: &str, question: &Question) -> String {
        let mut fitting = self.rule_set.fitting(&self.outcome);
        if fitting.any(|(name, _)| name == rule) {
            return format!("{rule} matches");
        }
        match self
            .rule_set
            .differs(rule, &rule_text(question, self.dialect))
        {
            Some(condition) => format!("{rule} does not match: see its `{condition}`"),
            None => format!("{rule} would match, but an earlier rule decides"),
        }
    }
}

fn rule_text(question: &Question, dialect: Dialect) -> RuleText<'_> {
    RuleText {
        user: question.user.as_deref().unwrap_or(UNKNOWN_USER),
        database: question.database.as_deref().map(str::as_bytes),
        text: Some(question.sql.as_bytes()),
        dialect,
    }
}

fn fit(name: &str, active: bool) -> RuleFit {
    let name = name.to_owned();
    RuleFit { name, active }
}
