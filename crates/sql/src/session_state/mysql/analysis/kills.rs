//! Finds KILL statements, whose connection numbers are those that Evenkeel assigned.

use crate::mysql;

use super::{AnalysisContext, TextAnalysis, split};

/// KILL of a connection, by the number that Evenkeel assigned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kill {
    /// True for KILL QUERY, which ends only the statement and keeps the connection.
    pub query: bool,
    /// Connection number in the statement.
    pub connection: u64,
}

impl TextAnalysis {
    /// Returns whether the text contains or prepares a KILL by any connection number.
    #[must_use]
    pub fn kills(&self) -> bool {
        self.kill.is_some() || self.kills_unknown_connection
    }
}

/// Returns the KILL of a statement, if it contains a literal number.
pub(super) fn kill(text: &[u8], kind: mysql::StatementKind) -> Option<Kill> {
    let mysql::StatementKind::Kill { query, connection } = kind else {
        return None;
    };
    let number = str::from_utf8(connection?.of(text)).ok()?;
    let connection = number.parse().ok()?;
    Some(Kill { query, connection })
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
