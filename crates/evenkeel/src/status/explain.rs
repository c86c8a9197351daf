//! Routing of a statement (`POST /api/v1/explain`, `evenkeel explain`).

use serde::{Deserialize, Serialize};

/// Routing of a statement, with reasons and assumptions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Explanation {
    /// Service that was selected.
    pub service: String,
    /// Database whose catalog was used. `None`: functions and tables are unknown.
    pub database: Option<String>,
    /// Kind of server.
    pub target: String,
    /// Names of the servers that may be chosen now.
    pub servers: Vec<String>,
    /// Reason, in a sentence.
    pub why: String,
    /// Everything that keeps the statement from a replica.
    pub obstacles: Vec<String>,
    /// Classification of each statement of the text.
    pub statements: Vec<StatementStatus>,
    /// True if the text may write. The session's later reads wait for that write.
    pub may_write: bool,
    /// Digest, which is the same for all texts that differ only in literals.
    pub digest: String,
    /// Text without literals.
    pub normalized: String,
    /// Matching rules, in order: inactive ones, then the deciding one. For several statements,
    /// those of each.
    pub rules: Vec<RuleFit>,
    /// Error that the client receives if a rule rejects the text.
    pub refused: Option<String>,
    /// Time limit set by a rule. 0: no limit.
    pub timeout_ms: Option<u64>,
    /// Result of the rule that was tested.
    pub rule_test: Option<String>,
    /// Reasons that pin the session to its server connection after the text was executed.
    pub pins: Vec<String>,
    /// Changes that a route makes to a request of HTTP, and to its response.
    pub changes: Vec<String>,
    /// Assumptions.
    pub assumed: Vec<String>,
}

/// A matching rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RuleFit {
    /// Name of the rule.
    pub name: String,
    /// True if the rule is applied. An inactive rule does nothing.
    pub active: bool,
}

/// Classification of one statement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatementStatus {
    /// Kind of the statement: `read`, `write`, `ddl`, …
    pub kind: String,
    /// Highest volatility of what it calls or reads from: `none`, `immutable`, `stable`,
    /// `volatile`, `unknown`.
    pub calls: String,
}

/// Statement to explain, with its circumstances.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// Text, as a client would send it.
    pub sql: String,
    /// Service. `None`: the only one that routes statements.
    #[serde(default)]
    pub service: Option<String>,
    /// Database. `None`: the only one in use.
    #[serde(default)]
    pub database: Option<String>,
    /// User that sends it. `None`: a user that no rule mentions.
    #[serde(default)]
    pub user: Option<String>,
    /// Rule to test as if it were active.
    #[serde(default)]
    pub rule: Option<String>,
}
