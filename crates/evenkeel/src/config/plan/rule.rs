//! What an operator wants done with some statements.

use evenkeel_policy::rules::Pattern;

/// `[[service.rule]]`: the first active one that fits a statement decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RulePlan {
    /// Unique in its service.
    pub name: String,
    /// Default true; one that is not is counted where it fits, and does nothing.
    pub active: bool,
    /// Statements of this user. `None`: of all.
    pub user: Option<String>,
    /// Statements in this database. `None`: in all, and in none.
    pub database: Option<String>,
    /// Statements that differ in literals only. `None`: all.
    pub digest: Option<u64>,
    /// A regular expression that is found in the text. `None`: any text. Called `match`.
    pub pattern: Option<Pattern>,
    /// Where reads go. `None`: nothing is said.
    pub to: Option<RuleTo>,
    /// Functions that the statements name are taken to read. Default false.
    pub assume_read: bool,
    /// How long they may take, up to a week; 0 = no limit. `None`: `query_timeout_ms`.
    pub timeout_ms: Option<u64>,
    /// They are refused with these words.
    pub reject: Option<String>,
}

impl RulePlan {
    /// For every statement, and without an effect.
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

    /// It is for every statement.
    pub fn is_for_all(&self) -> bool {
        let is_for_some = self.user.is_some() || self.database.is_some();
        !is_for_some && self.digest.is_none() && self.pattern.is_none()
    }
}

/// Which servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleTo {
    /// The primary.
    Primary,
    /// The replicas.
    Replicas,
    /// The replicas and the primary.
    Any,
    /// These servers of the service, by their places.
    Servers(Vec<usize>),
}
