//! What a statement leaves for the next one to ask: the insert id, the warnings, the found rows.
//!
//! It is on the server connection. The insert id can be put back elsewhere; the others cannot, so
//! the connection is kept until the client's next command, or for a moment, or not at all: that
//! hangs on what the clients of the service have been seen to ask. A statement that asks on a
//! connection which is not its own any more gets nothing of anybody else's.

use std::sync::atomic::{AtomicU8, Ordering};

use super::meaning::Meaning;

/// What a text asks of the statement before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs(u8);

impl Needs {
    /// Nothing.
    pub const NONE: Needs = Needs(0);
    /// LAST_INSERT_ID(), `@@identity`.
    pub const INSERT_ID: Needs = Needs(1);
    /// FOUND_ROWS(): of the last SELECT.
    pub const FOUND_ROWS: Needs = Needs(2);
    /// SHOW WARNINGS, GET DIAGNOSTICS, `@@warning_count`.
    pub const DIAGNOSTICS: Needs = Needs(4);
    /// ROW_COUNT(): of the last statement.
    pub const ROW_COUNT: Needs = Needs(8);
    /// All of it.
    pub const ALL: Needs = Needs(15);

    /// The same for what nobody can read: it may ask.
    #[must_use]
    pub const fn perhaps(self) -> Needs {
        Needs(self.0 << PERHAPS)
    }

    /// Both together.
    #[must_use]
    pub const fn and(self, other: Needs) -> Needs {
        Needs(self.0 | other.0)
    }

    /// But for these.
    pub(super) const fn without(self, others: Needs) -> Needs {
        Needs(self.0 & !(others.0 | others.perhaps().0))
    }

    /// Whether it asks any of these, at least perhaps.
    #[must_use]
    pub const fn any(self, of: Needs) -> bool {
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
pub struct Asked(AtomicU8);

impl Asked {
    /// A text that was read, or prepared, asks this.
    pub fn note(&self, needs: Needs) {
        let certain = needs.0 & Needs::ALL.0;
        if certain & !self.0.load(Ordering::Relaxed) != 0 {
            self.0.fetch_or(certain, Ordering::Relaxed);
        }
    }

    /// What the connection must have before a text is sent, for [`super::difference`]: what the
    /// text asks; and before an insert, where insert ids are asked, the client's own, since an
    /// insert may leave it as it is.
    #[must_use]
    pub fn needs(&self, meaning: &Meaning) -> Needs {
        match meaning.writes && self.any(Needs::INSERT_ID) {
            true => meaning.needs.and(Needs::INSERT_ID.perhaps()),
            false => meaning.needs,
        }
    }

    /// Whether any of these was ever asked.
    #[must_use]
    pub fn any(&self, of: Needs) -> bool {
        self.0.load(Ordering::Relaxed) & of.0 != 0
    }
}

/// How long a connection that no pin binds is kept all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hold {
    /// Not at all.
    No,
    /// [`Hold::BRIEFLY_MS`], or until the client's next command.
    Briefly,
    /// Until the client's next command.
    UntilNext,
    /// The same: it has said that it will ask.
    Promised,
}

impl Hold {
    /// Drivers that want to see warnings ask for them at once.
    pub const BRIEFLY_MS: u64 = 100;
}

/// What the last statement has left on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Left {
    /// Warnings or an error.
    pub(super) diagnostics: bool,
    /// A number of rows that SQL_CALC_FOUND_ROWS counted.
    pub(super) found_rows: bool,
    /// Rows.
    pub(super) rows: bool,
    /// It ran at all.
    pub(super) ran: bool,
}

impl Left {
    pub(super) fn hold(self, asked: &Asked) -> Hold {
        let counted = self.rows && asked.any(Needs::FOUND_ROWS);
        let ran = self.ran && asked.any(Needs::ROW_COUNT);
        let warned = self.diagnostics && asked.any(Needs::DIAGNOSTICS);
        if self.found_rows {
            return Hold::Promised;
        }
        if counted || ran || warned {
            return Hold::UntilNext;
        }
        match self.diagnostics {
            true => Hold::Briefly,
            false => Hold::No,
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
