//! Applies a service's rules to the statements of its sessions, and counts matches.

use std::sync::Arc;

use evenkeel_policy::rules::{Destination, RuleInput, RuleOutcome, Rules, ServerGroup};
use evenkeel_sql::Dialect;
use evenkeel_sql::digest::digest;

use super::stats::LocalCounter;
use crate::error_catalog;
use evenkeel_sql::session_state::{analysis, mysql};

/// Number of statements that a rule matched; each worker counts separately.
#[derive(Debug)]
pub struct Hits(Box<[OfWorker]>);

/// One worker's count, on its own cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct OfWorker(LocalCounter);

impl Hits {
    pub(crate) fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| OfWorker::default()).collect())
    }

    fn add(&self, worker: usize) {
        if let Some(own) = self.0.get(worker) {
            own.0.add(1);
        }
    }

    /// Returns the number of matches.
    pub fn get(&self) -> u64 {
        self.0.iter().map(|own| own.0.get()).sum()
    }
}

/// Rules and their match counts; replaced as a whole.
#[derive(Debug)]
pub struct RuleSet {
    rules: Rules,
    hits: Vec<Arc<Hits>>,
    uses_digests: bool,
}

/// A text of a session.
#[derive(Debug, Clone, Copy)]
pub struct RuleText<'a> {
    /// User of the session.
    pub user: &'a str,
    /// Database of the session.
    pub database: Option<&'a [u8]>,
    /// `None`: too long to be read.
    pub text: Option<&'a [u8]>,
    /// Dialect in which the text is read.
    pub dialect: Dialect,
}

/// Returns a text without surrounding blanks and trailing semicolons.
fn trim_statement(text: &[u8]) -> &[u8] {
    let is_end = |byte: &u8| byte.is_ascii_whitespace() || *byte == b';';
    let end = text.iter().rposition(|byte| !is_end(byte));
    text[..end.map_or(0, |end| end + 1)].trim_ascii_start()
}

/// Returns whether a text begins with its statement, and cannot contain another one.
fn is_plain(text: &[u8]) -> bool {
    let word = text.iter().take_while(|byte| byte.is_ascii_alphabetic());
    let word = text.get(..word.count()).unwrap_or_default();
    let holds_text: [&[u8]; 3] = [b"prepare", b"execute", b"set"];
    let holds = holds_text.iter().any(|one| one.eq_ignore_ascii_case(word));
    !word.is_empty() && !holds && !text.contains(&b';')
}

impl RuleSet {
    /// Creates a set of rules with one entry of `hits` for each rule.
    pub fn new(rules: Rules, hits: Vec<Arc<Hits>>) -> Self {
        Self {
            uses_digests: rules.need_digests(),
            rules,
            hits,
        }
    }

    /// Returns the rules with their match counts, in order.
    pub fn hits(&self) -> impl Iterator<Item = (&str, u64)> {
        let names = self.rules.all().iter().map(|rule| &*rule.name);
        names.zip(self.hits.iter().map(|hits| hits.get()))
    }

    /// Decides what happens to a text. Each of several statements is matched, and the whole text,
    /// too.
    pub fn evaluate(&self, rule_text: &RuleText<'_>) -> RuleOutcome {
        let text = rule_text.text.map(trim_statement);
        let Some(text) = text.filter(|text| !is_plain(text)) else {
            return self.evaluate_one(rule_text, text, None);
        };
        let parts = match rule_text.dialect {
            Dialect::Mysql(modes) => mysql::parts(text, modes),
            Dialect::Postgres { backslashes } => analysis::parts(text, backslashes),
        };
        if let [bare] = parts.as_slice() {
            return self.evaluate_one(rule_text, Some(text), Some(bare));
        }
        let outcomes = parts
            .iter()
            .map(|part| self.evaluate_one(rule_text, Some(part), None));
        let whole = self.evaluate_one(rule_text, Some(text), None);
        outcomes.fold(whole, |all, one| self.rules.join(all, one))
    }

    fn evaluate_one(
        &self,
        rule_text: &RuleText<'_>,
        text: Option<&[u8]>,
        bare: Option<&[u8]>,
    ) -> RuleOutcome {
        let digest = |text| digest(text, rule_text.dialect).0;
        self.rules.evaluate(&RuleInput {
            user: rule_text.user,
            database: rule_text.database,
            text,
            bare,
            digest: text.filter(|_| self.uses_digests).map(digest),
        })
    }

    fn count(&self, outcome: &RuleOutcome, worker: usize) {
        for hits in outcome.fitting().filter_map(|index| self.hits.get(index)) {
            hits.add(worker);
        }
    }

    /// Returns why a rule does not match a text: the first condition that is not met. `None`: all
    /// conditions are met, or there is no such rule.
    pub fn differs(&self, rule: &str, rule_text: &RuleText<'_>) -> Option<&'static str> {
        let mut all = self.rules.all().iter();
        let rule = all.find(|one| *one.name == *rule)?;
        let digest = |text| digest(text, rule_text.dialect).0;
        rule.when.differs(&RuleInput {
            user: rule_text.user,
            database: rule_text.database,
            text: rule_text.text,
            bare: None,
            digest: rule_text.text.map(digest),
        })
    }

    /// Returns the names of matching rules, and whether each is active.
    pub fn fitting(&self, outcome: &RuleOutcome) -> impl Iterator<Item = (&str, bool)> {
        let fitting = outcome.fitting().collect::<Vec<_>>().into_iter();
        fitting.filter_map(|index| {
            let rule = self.rules.all().get(index)?;
            Some((&*rule.name, rule.is_active))
        })
    }

    /// Returns the destination of a statement.
    pub fn destination(&self, outcome: &RuleOutcome) -> Option<&Destination> {
        self.rules.destination(outcome)
    }

    /// Returns the message for the client, if the statement is rejected.
    pub fn rejection(&self, outcome: &RuleOutcome) -> Option<String> {
        let (name, words) = self.rules.rejection(outcome)?;
        let name = format!("{name:?}");
        Some(error_catalog::REJECTED_BY_RULE.message(&[&name, &words]))
    }
}

/// Outcome of the rules for the statements in progress of a session.
#[derive(Debug, Clone)]
pub(crate) struct AppliedRules {
    pub(crate) rule_set: Arc<RuleSet>,
    pub(crate) outcome: RuleOutcome,
}

impl AppliedRules {
    /// Joins the outcomes of statements that are sent together.
    pub(crate) fn join(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(Self {
                outcome: other.rule_set.rules.join(one.outcome, other.outcome),
                rule_set: other.rule_set,
            }),
            (one, other) => one.or(other),
        }
    }

    pub(crate) fn destination(&self) -> Option<&Destination> {
        self.rule_set.destination(&self.outcome)
    }

    /// Returns the servers that may still be read from.
    pub(crate) fn server_group(&self) -> Option<&ServerGroup> {
        self.destination().map(|to| &to.group)
    }

    pub(crate) fn rejection(&self) -> Option<String> {
        self.rule_set.rejection(&self.outcome)
    }

    /// Counts the matches when the statements are carried out.
    pub(crate) fn count(&self, worker: usize) {
        self.rule_set.count(&self.outcome, worker);
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_policy::rules::{Pattern, Rule, RuleAction, RuleMatch};

    use super::*;

    const MYSQL: Dialect = Dialect::Mysql(evenkeel_sql::mysql::LexerModes {
        ansi_quotes: false,
        no_backslash_escapes: false,
        nbsp_byte: 0,
        mariadb: false,
        version: 80_403,
    });

    fn rule_text(text: &str) -> RuleText<'_> {
        RuleText {
            user: "app",
            database: None,
            text: Some(text.as_bytes()),
            dialect: MYSQL,
        }
    }

    fn refusing(name: &str, when: RuleMatch) -> Rule {
        Rule {
            name: name.into(),
            is_active: true,
            when,
            then: RuleAction {
                reject: Some("not now".into()),
                ..RuleAction::default()
            },
        }
    }

    fn rule_set(all: Vec<Rule>) -> RuleSet {
        let hits = all.iter().map(|_| Arc::new(Hits::new(2))).collect();
        RuleSet::new(Rules::new(all), hits)
    }

    #[test]
    fn a_digest_is_that_of_all_texts_that_differ_in_literals() {
        let number = digest(b"delete from t where id = 1", MYSQL).0;
        let digest = Some(number);
        let when = RuleMatch {
            digest,
            ..RuleMatch::default()
        };
        let rule_set = rule_set(vec![refusing("cut", when)]);
        let rejection = |text| rule_set.rejection(&rule_set.evaluate(&rule_text(text)));
        let reported = rejection(" DELETE FROM t WHERE id = 22 ");
        assert_eq!(
            reported.as_deref(),
            Some("rejected by rule \"cut\": not now")
        );
        assert_eq!(rejection("DELETE FROM t"), None);
    }

    #[test]
    fn each_of_several_statements_counts_by_itself() {
        let when = RuleMatch {
            pattern: Some(Pattern::new("^drop").expect("a pattern")),
            ..RuleMatch::default()
        };
        let rule_set = rule_set(vec![refusing("drop", when)]);
        for text in [
            "SELECT 1; DROP TABLE t",
            "/* c */ DROP TABLE t",
            "(SELECT 1); drop table t;",
            " drop table t ; ",
            "PREPARE p FROM 'DROP TABLE t'",
        ] {
            assert!(rule_set.evaluate(&rule_text(text)).is_refused(), "{text}");
        }
        for text in ["SELECT 1", "SELECT 'a; drop'", "PREPARE p FROM @drop"] {
            assert!(!rule_set.evaluate(&rule_text(text)).is_refused(), "{text}");
        }
        let dialect = Dialect::Postgres { backslashes: false };
        let text = "PREPARE p (int) AS DROP TABLE t";
        let rule_text = RuleText {
            dialect,
            ..rule_text(text)
        };
        let outcome = rule_set.evaluate(&rule_text);
        assert!(outcome.is_refused());
        rule_set.count(&outcome, 0);
        rule_set.count(&outcome, 1);
        assert_eq!(rule_set.hits().collect::<Vec<_>>(), [("drop", 2)]);
    }
}
