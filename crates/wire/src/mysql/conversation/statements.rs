//! Tracks the cursors and advance values of a server connection's prepared statements.

use crate::mysql::StatementId;

/// Statements with open cursors or advance values. They are few: those of one client, between two
/// of its commands.
#[derive(Debug, Default)]
pub(super) struct Statements {
    cursors: Vec<StatementId>,
    long_data: Vec<StatementId>,
    /// The statement prepared last, unless that failed or it was closed.
    last: Option<StatementId>,
}

/// Statement that an id refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolved {
    /// A known statement.
    Known(StatementId),
    /// The statement whose COM_STMT_PREPARE was sent last and is not answered yet.
    Pending,
    /// No statement: the server will report an error.
    Unknown,
}

impl Statements {
    pub(super) fn is_any_held(&self) -> bool {
        self.has_cursors() || self.has_long_data()
    }

    pub(super) fn has_cursors(&self) -> bool {
        !self.cursors.is_empty()
    }

    pub(super) fn has_long_data(&self) -> bool {
        !self.long_data.is_empty()
    }

    pub(super) fn resolve(&self, statement: StatementId, pending: bool) -> Resolved {
        match (statement, self.last) {
            (StatementId::LAST, _) if pending => Resolved::Pending,
            (StatementId::LAST, None) => Resolved::Unknown,
            (StatementId::LAST, Some(last)) => Resolved::Known(last),
            (statement, _) => Resolved::Known(statement),
        }
    }

    /// Sets the last prepared statement. `None`: the preparation failed, and MariaDB drops the
    /// previous one.
    pub(super) fn prepared(&mut self, statement: Option<StatementId>) {
        self.last = statement;
    }

    pub(super) fn long_data(&mut self, statement: StatementId) {
        if let Some(statement) = self.known_id(statement) {
            insert_new(&mut self.long_data, statement);
        }
    }

    /// Marks an execution. It consumes the values sent in advance, even if it fails, and closes the
    /// cursor of the previous execution.
    pub(super) fn executed(&mut self, statement: StatementId, cursor: bool) {
        let Some(statement) = self.known_id(statement) else {
            return;
        };
        self.reset(statement);
        if cursor {
            insert_new(&mut self.cursors, statement);
        }
    }

    pub(super) fn cursor_ended(&mut self, statement: StatementId) {
        if let Some(statement) = self.known_id(statement) {
            self.cursors.retain(|open| *open != statement);
        }
    }

    pub(super) fn reset(&mut self, statement: StatementId) {
        self.cursor_ended(statement);
        if let Some(statement) = self.known_id(statement) {
            self.long_data.retain(|held| *held != statement);
        }
    }

    pub(super) fn close(&mut self, statement: StatementId) {
        self.reset(statement);
        if self.known_id(statement) == self.last {
            self.last = None;
        }
    }

    fn known_id(&self, statement: StatementId) -> Option<StatementId> {
        match statement {
            StatementId::LAST => self.last,
            statement => Some(statement),
        }
    }
}

fn insert_new(list: &mut Vec<StatementId>, statement: StatementId) {
    if !list.contains(&statement) {
        list.push(statement);
    }
}
