//! What a statement leaves for the next one to ask: the insert id, the warnings, the found rows.
//!
//! It is on the server connection. The insert id can be put back elsewhere; the others cannot, so
//! the connection is kept until the client's next command, or for a moment, or not at all: that
//! hangs on what the clients of the service have been seen to ask. A statement that asks on a
//! connection which is not its own any more gets nothing of anybody else's.

use std::sync::atomic::{AtomicU8, Ordering};

use super::analysis::TextAnalysis;

/// What a text asks of the statement before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InfoNeeds(u8);

impl InfoNeeds {
    /// Nothing.
    pub const NONE: InfoNeeds = InfoNeeds(0);
    /// LAST_INSERT_ID(), `@@identity`.
    pub const INSERT_ID: InfoNeeds = InfoNeeds(1);
    /// FOUND_ROWS(): of the last SELECT.
    pub const FOUND_ROWS: InfoNeeds = InfoNeeds(2);
    /// SHOW WARNINGS, GET DIAGNOSTICS, `@@warning_count`.
    pub const DIAGNOSTICS: InfoNeeds = InfoNeeds(4);
    /// ROW_COUNT(): of the last statement.
    pub const ROW_COUNT: InfoNeeds = InfoNeeds(8);
    /// All of it.
    pub const ALL: InfoNeeds = InfoNeeds(15);

    /// The same for what nobody can read: it may ask.
    #[must_use]
    pub const fn perhaps(self) -> InfoNeeds {
        InfoNeeds(self.0 << PERHAPS)
    }

    /// Both together.
    #[must_use]
    pub const fn and(self, other: InfoNeeds) -> InfoNeeds {
        InfoNeeds(self.0 | other.0)
    }

    /// But for these.
    pub(super) const fn without(self, others: InfoNeeds) -> InfoNeeds {
        InfoNeeds(self.0 & !(others.0 | others.perhaps().0))
    }

    /// Whether it asks any of these, at least perhaps.
    #[must_use]
    pub const fn any(self, of: InfoNeeds) -> bool {
        (self.0 | self.0 >> PERHAPS) & of.0 != 0
    }

    /// Whether it asks nothing.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// What is asked perhaps is so many bits higher.
const PERHAPS: u8 = 4;

/// What the clients of a service have ever asked.
#[derive(Debug, Default)]
pub struct InfoUsage(AtomicU8);

impl InfoUsage {
    /// A text that was read, or prepared, asks this.
    pub fn note(&self, needs: InfoNeeds) {
        let certain = needs.0 & InfoNeeds::ALL.0;
        if certain & !self.0.load(Ordering::Relaxed) != 0 {
            self.0.fetch_or(certain, Ordering::Relaxed);
        }
    }

    /// What the connection must have before a text is sent, for [`super::difference`]: what the
    /// text asks; and before an insert, where insert ids are asked, the client's own, since an
    /// insert may leave it as it is.
    #[must_use]
    pub fn needs(&self, meaning: &TextAnalysis) -> InfoNeeds {
        match meaning.writes && self.any(InfoNeeds::INSERT_ID) {
            true => meaning.needs.and(InfoNeeds::INSERT_ID.perhaps()),
            false => meaning.needs,
        }
    }

    /// Whether any of these was ever asked.
    #[must_use]
    pub fn any(&self, of: InfoNeeds) -> bool {
        self.0.load(Ordering::Relaxed) & of.0 != 0
    }
}

/// How long a connection that no pin binds is kept all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldPolicy {
    /// Not at all.
    No,
    /// [`Hold::BRIEFLY_MS`], or until the client's next command.
    Briefly,
    /// Until the client's next command.
    UntilNext,
    /// The same: it has said that it will ask.
    Promised,
}

impl HoldPolicy {
    /// Drivers that want to see warnings ask for them at once.
    pub const BRIEFLY_MS: u64 = 100;
}

/// What the last statement has left on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct StatementInfo {
    /// Warnings or an error.
    pub(super) diagnostics: bool,
    /// A number of rows that SQL_CALC_FOUND_ROWS counted.
    pub(super) found_rows: bool,
    /// Rows.
    pub(super) rows: bool,
    /// It ran at all.
    pub(super) ran: bool,
}

impl StatementInfo {
    pub(super) fn hold(self, asked: &InfoUsage) -> HoldPolicy {
        let counted = self.rows && asked.any(InfoNeeds::FOUND_ROWS);
        let ran = self.ran && asked.any(InfoNeeds::ROW_COUNT);
        let warned = self.diagnostics && asked.any(InfoNeeds::DIAGNOSTICS);
        if self.found_rows {
            return HoldPolicy::Promised;
        }
        if counted || ran || warned {
            return HoldPolicy::UntilNext;
        }
        match self.diagnostics {
            true => HoldPolicy::Briefly,
            false => HoldPolicy::No,
        }
    }
}

/// LAST_INSERT_ID() of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InsertId {
    /// This.
    Exact(u64),
    /// This, unless the statement that gave it was told the value by the client: then the OK has
    /// it, and LAST_INSERT_ID() is as it was (manual: "mysql_insert_id()").
    Likely(u64),
    /// Only the server connection knows.
    Unknown,
}

impl InsertId {
    pub(super) const NONE: InsertId = InsertId::Exact(0);

    /// Something may have changed it unseen.
    pub(super) fn in_doubt(self) -> InsertId {
        match self {
            InsertId::Exact(value) => InsertId::Likely(value),
            other => other,
        }
    }
}
