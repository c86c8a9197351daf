//! Where a statement would go (`POST /api/v1/explain`, `evenkeel explain`).

use serde::{Deserialize, Serialize};

/// Where a statement would go, why, and what was taken for granted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Explanation {
    /// The service that was asked.
    pub service: String,
    /// The database whose catalog was looked at; none: nothing is known of functions and tables.
    pub database: Option<String>,
    /// What kind of server.
    pub target: String,
    /// The servers that may be chosen now, by name.
    pub servers: Vec<String>,
    /// Why, in a sentence.
    pub why: String,
    /// Everything that keeps it from a replica.
    pub obstacles: Vec<String>,
    /// What each of its statements is.
    pub statements: Vec<StatementStatus>,
    /// Whether it may write: the session's reads wait for that afterwards.
    pub may_write: bool,
    /// Its digest: that of all texts that differ from it in literals only.
    pub digest: String,
    /// What all of these look like.
    pub normalized: String,
    /// The rules that fit, in order: those that are not active, then the one that decides; of
    /// several statements, those of each.
    pub rules: Vec<RuleFit>,
    /// What the client is told instead, if a rule refuses it.
    pub refused: Option<String>,
    /// How long a rule lets it run; 0 = as long as it likes.
    pub timeout_ms: Option<u64>,
    /// What came of the rule that was to be tried.
    pub rule_test: Option<String>,
    /// What binds the session to its server connection when this has run.
    pub pins: Vec<String>,
    /// What was taken for granted.
    pub assumed: Vec<String>,
}

/// A rule that fits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RuleFit {
    /// Its name.
    pub name: String,
    /// One that is not does nothing.
    pub active: bool,
}

/// What is known of one statement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatementStatus {
    /// `read`, `write`, `ddl`, …
    pub kind: String,
    /// The worst that it calls or reads from: `none`, `immutable`, `stable`, `volatile`, `unknown`.
    pub calls: String,
}

/// What to explain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// The text, as a client would send it.
    pub sql: String,
    /// The service; none: the only one that routes statements.
    #[serde(default)]
    pub service: Option<String>,
    /// The database; none: the only one in use.
    #[serde(default)]
    pub database: Option<String>,
    /// Who sends it; none: somebody of whom no rule speaks.
    #[serde(default)]
    pub user: Option<String>,
    /// A rule that is to be tried as if it were active.
    #[serde(default)]
    pub rule: Option<String>,
}
