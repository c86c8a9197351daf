//! Defines the operator's rules for statements.

use evenkeel_policy::rules::Pattern;

use crate::setting::{WEEK_MS, number, settings};

settings! {
    /// `[[service.rule]]`: the first active rule that matches a statement applies.
    pub struct RulePlan {
        /// An inactive rule only counts its matches (dry run).
        active: bool = true;
        /// Condition: user of the session.
        user: Option<String> = None;
        /// Condition: database; mysql: schema.
        database: Option<String> = None;
        /// Action: treat the functions, views and procedures that the statement names as
        /// read-only.
        assume_read: bool = false;
        /// Action: replaces `query_timeout_ms`; 0 = no limit.
        timeout_ms: Option<u64> = None, number(0, WEEK_MS);
        /// Action: refuse the statement; the client gets an error with the rule's name and this
        /// text, and its session continues.
        reject: Option<String> = None;
    } also {
        /// Unique in its service.
        name: String = String::new();
        /// Digest of matching statements, which is equal for statements that differ only in
        /// literals. `None`: all.
        digest: Option<u64> = None;
        /// Regular expression that the text must contain. `None`: any text. Its key is `match`.
        pattern: Option<Pattern> = None;
        /// Servers to which reads are routed. `None`: the rule does not change the routing.
        to: Option<RuleTo> = None;
    }
}

impl RulePlan {
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

impl RuleTo {
    /// Words in the file.
    pub(crate) const GROUPS: &[&str] = &["primary", "replicas", "any"];
}
