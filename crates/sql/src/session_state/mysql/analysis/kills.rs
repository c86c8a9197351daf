//! Finds KILL statements, whose connection numbers are those that Evenkeel assigned.

use crate::mysql;

use super::{AnalysisContext, TextAnalysis, split};

/// KILL of connections by a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kill {
    /// None by a connection number.
    #[default]
    None,
    /// The only statement, and names the number that Evenkeel assigned.
    Of {
        /// True for KILL QUERY, which ends only the statement and keeps the connection.
        query: bool,
        /// Connection number in the statement.
        connection: u64,
    },
    /// Executed or prepared otherwise. Its number may not be one of Evenkeel's.
    Unknown,
}

impl TextAnalysis {
    /// Returns whether the text contains or prepares a KILL by any connection number.
    #[must_use]
    pub fn kills(&self) -> bool {
        self.kill != Kill::None
    }
}

/// Returns the KILL of a statement, if it contains a literal number.
pub(super) fn kill(text: &[u8], kind: mysql::StatementKind) -> Option<Kill> {
    let mysql::StatementKind::Kill { query, connection } = kind else {
        return None;
    };
    let number = str::from_utf8(connection?.of(text)).ok()?;
    let connection = number.parse().ok()?;
    Some(Kill::Of { query, connection })
}

/// Returns whether the statement is a KILL of a connection by number, or prepares one.
pub(super) fn kills(context: &AnalysisContext<'_>, statement: &mysql::StatementFacts) -> bool {
    let is_kill =
        |one: &mysql::StatementFacts| matches!(one.kind, mysql::StatementKind::Kill { .. });
    match statement.kind {
        mysql::StatementKind::Prepare(_) => {
            let sql = statement.span.of(context.text);
            let text = split::prepared(sql, context.modes).unwrap_or_default();
            let facts = mysql::facts(&text, context.modes);
            facts.statements().any(is_kill)
        }
        _ => is_kill(statement),
    }
}
