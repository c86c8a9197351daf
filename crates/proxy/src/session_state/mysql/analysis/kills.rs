//! KILL, which means a connection by the number that we gave it.

use evenkeel_wire::sql::mysql;

use super::{AnalysisContext, TextAnalysis, split};

/// KILL of a connection, with the number that we gave it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kill {
    /// Only what it runs: the connection stays.
    pub query: bool,
    /// Its number.
    pub connection: u64,
}

impl TextAnalysis {
    /// Whether it ends connections by any number.
    #[must_use]
    pub fn kills(&self) -> bool {
        self.kill.is_some() || self.kills_unknown_connection
    }
}

/// The KILL that a statement is, if it says the number.
pub(super) fn kill(text: &[u8], kind: mysql::StatementKind) -> Option<Kill> {
    let mysql::StatementKind::Kill { query, connection } = kind else {
        return None;
    };
    let number = str::from_utf8(connection?.of(text)).ok()?;
    let connection = number.parse().ok()?;
    Some(Kill { query, connection })
}

/// Whether it ends a connection by a number, or prepares what does.
pub(super) fn kills(reader: &AnalysisContext<'_>, statement: &mysql::StatementFacts) -> bool {
    let is_kill =
        |one: &mysql::StatementFacts| matches!(one.kind, mysql::StatementKind::Kill { .. });
    match statement.kind {
        mysql::StatementKind::Prepare(_) => {
            let own = statement.span.of(reader.text);
            let text = split::prepared(own, reader.modes).unwrap_or_default();
            let facts = mysql::facts(&text, reader.modes);
            facts.statements().any(is_kill)
        }
        _ => is_kill(statement),
    }
}
