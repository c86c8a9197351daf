//! Defines the operator's rules for statements.

use evenkeel_policy::rules::Pattern;

/// `[[service.rule]]`: the first active rule that matches a statement applies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulePlan {
    /// Unique in its service.
    pub name: String,
    /// True if it applies. Default true. An inactive rule only counts the statements that it
    /// matches.
    pub active: bool,
    /// User whose statements match. `None`: all.
    pub user: Option<String>,
    /// Database in which statements match. `None`: any, or none.
    pub database: Option<String>,
    /// Digest of matching statements, which is equal for statements that differ only in literals.
    /// `None`: all.
    pub digest: Option<u64>,
    /// Regular expression that the text must contain. `None`: any text. Its key is `match`.
    pub pattern: Option<Pattern>,
    /// Servers to which reads are routed. `None`: the rule does not change the routing.
    pub to: Option<RuleTo>,
    /// True if functions in the statements are assumed to only read. Default false.
    pub assume_read: bool,
    /// Limit for the duration, up to a week; 0 = no limit. `None`: `query_timeout_ms`.
    pub timeout_ms: Option<u64>,
    /// Message with which statements are rejected.
    pub reject: Option<String>,
}

impl RulePlan {
    /// Returns a rule that matches every statement and has no effect.
    pub fn named(name: String) -> RulePlan {
        RulePlan {
            name,
            active: true,
            user: None,
            database: None,
            digest: None,
            pattern: None,
            to: None,
            assume_read: false,
            timeout_ms: None,
            reject: None,
        }
    }

    /// Returns whether it matches every statement.
    pub fn is_for_all(&self) -> bool {
        let is_for_some = self.user.is_some() || self.database.is_some();
        !is_for_some && self.digest.is_none() && self.pattern.is_none()
    }
}

/// Servers to which a rule routes reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleTo {
    /// The primary.
    Primary,
    /// The replicas.
    Replicas,
    /// The replicas and the primary.
    Any,
    /// These servers of the service, by index.
    Servers(Vec<usize>),
}
