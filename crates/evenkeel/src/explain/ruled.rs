//! Applies the rules of a service to a statement, and tests a single rule on it.

use evenkeel_policy::rules::{Destination, RuleOutcome};
use evenkeel_proxy::rules::{RuleSet, RuleText};
use evenkeel_wire::sql::Dialect;
use evenkeel_wire::sql::digest::{digest, normalised};

use super::ExplainContext;
use crate::config::plan::Protocol;
use crate::rules::rules;
use crate::status::{Explanation, Question, RuleFit};

/// User that matches no rule, since no name is empty.
const NOBODY: &str = "";

const OF_ANYBODY: &str = "a user and a database that no rule mentions: set them with --user and \
                          --database";

/// Result of the rules.
pub(super) struct Ruled {
    book: RuleSet,
    verdict: RuleOutcome,
    dialect: Dialect,
    /// True if a rule depends on a user or database that the question leaves open.
    assumes: bool,
}

impl Ruled {
    pub(super) fn new(question: &Question, cast: &ExplainContext<'_>) -> Result<Self, String> {
        let plan = cast.service.database.as_deref();
        let plans = plan.map_or(&[][..], |plan| &plan.rules);
        let tried = question.rule.as_deref();
        if let Some(tried) = tried.filter(|tried| plans.iter().all(|rule| rule.name != *tried)) {
            let names: Vec<&str> = plans.iter().map(|rule| rule.name.as_str()).collect();
            let service = &cast.service.name;
            return Err(match names.as_slice() {
                [] => format!("service {service:?} has no rules"),
                names => format!(
                    "service {service:?} has no rule {tried:?}; choose one of: {}",
                    names.join(", ")
                ),
            });
        }
        let dialect = match cast.service.protocol {
            Protocol::Mysql => Dialect::Mysql(cast.modes),
            Protocol::Postgres | Protocol::Tcp => Dialect::Postgres { backslashes: false },
        };
        let book = RuleSet::new(rules(plans, tried), Vec::new());
        let asks =
            |given: &Option<String>, asks: &Option<String>| given.is_none() && asks.is_some();
        Ok(Self {
            verdict: book.judge(&said(question, dialect)),
            book,
            dialect,
            assumes: plans.iter().any(|rule| {
                asks(&question.user, &rule.user) || asks(&question.database, &rule.database)
            }),
        })
    }

    pub(super) fn destination(&self) -> Option<&Destination> {
        self.book.destination(&self.verdict)
    }

    /// Returns the context with only the replicas that the rules allow.
    pub(super) fn cast<'c>(&self, cast: &ExplainContext<'c>) -> ExplainContext<'c> {
        let is_among = |index: &usize| self.destination().is_none_or(|to| to.group.has(*index));
        let replicas = cast.replicas.iter().copied();
        ExplainContext {
            service: cast.service,
            primary: cast.primary,
            modes: cast.modes,
            replicas: replicas.filter(is_among).collect(),
        }
    }

    /// Adds the results of the rules to an explanation.
    pub(super) fn tell(&self, question: &Question, explanation: &mut Explanation) {
        let text = question.sql.as_bytes();
        explanation.digest = digest(text, self.dialect).to_string();
        explanation.normalized = normalised(text, self.dialect);
        let fitting = self.book.fitting(&self.verdict);
        explanation.rules = fitting.map(|(name, active)| fit(name, active)).collect();
        explanation.timeout_ms = self.verdict.timeout_ms;
        explanation.refused = self.book.rejection(&self.verdict);
        if let Some(why) = &explanation.refused {
            explanation.target = "nowhere".to_owned();
            explanation.servers.clear();
            explanation.why.clone_from(why);
        }
        if let Some(tried) = &question.rule {
            explanation.rule_test = Some(self.tried(tried, question));
        }
        if self.assumes {
            explanation.assumed.push(OF_ANYBODY.to_owned());
        }
    }

    /// Describes the result of a single rule.
    fn tried(&self, rule: &str, question: &Question) -> String {
        let mut fitting = self.book.fitting(&self.verdict);
        if fitting.any(|(name, _)| name == rule) {
            return format!("{rule} matches");
        }
        match self.book.differs(rule, &said(question, self.dialect)) {
            Some(condition) => format!("{rule} does not match: see its `{condition}`"),
            None => format!("{rule} would match, but an earlier rule decides"),
        }
    }
}

fn said(question: &Question, dialect: Dialect) -> RuleText<'_> {
    RuleText {
        user: question.user.as_deref().unwrap_or(NOBODY),
        database: question.database.as_deref().map(str::as_bytes),
        text: Some(question.sql.as_bytes()),
        dialect,
    }
}

fn fit(name: &str, active: bool) -> RuleFit {
    let name = name.to_owned();
    RuleFit { name, active }
}
