//! What a statement leaves for the next one to ask: the insert id, the warnings, the found rows.
//!
//! It is on the server connection. The insert id can be put back elsewhere; the others cannot, so
//! the connection is kept until the client's next command, or for a moment, or not at all: that
//! hangs on what the clients of the service have been seen to ask. A statement that asks on a
//! connection which is not its own any more gets nothing of anybody else's.

use std::sync::atomic::{AtomicU8, Ordering};

/// What a text asks of the statement before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs(u8);

impl Needs {
    /// Nothing.
    pub const NONE: Needs = Needs(0);
    /// LAST_INSERT_ID(), `@@identity`.
    pub const INSERT_ID: Needs = Needs(1);
    /// FOUND_ROWS(), ROW_COUNT().
    pub const COUNTS: Needs = Needs(2);
    /// SHOW WARNINGS, GET DIAGNOSTICS, `@@warning_count`.
    pub const DIAGNOSTICS: Needs = Needs(4);
    /// All of it.
    pub const ALL: Needs = Needs(7);

    /// Both together.
    #[must_use]
    pub const fn and(self, other: Needs) -> Needs {
        Needs(self.0 | other.0)
    }

    /// Whether it asks any of these.
    #[must_use]
    pub const fn any(self, of: Needs) -> bool {
        self.0 & of.0 != 0
    }

    /// Whether it asks nothing.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// What the clients of a service have ever asked.
#[derive(Debug, Default)]
pub struct Asked(AtomicU8);

impl Asked {
    /// A text that was read, or prepared, asks this.
    pub fn note(&self, needs: Needs) {
        if needs.0 & !self.0.load(Ordering::Relaxed) != 0 {
            self.0.fetch_or(needs.0, Ordering::Relaxed);
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
    /// It ran at all.
    pub(super) counts: bool,
}

impl Left {
    pub(super) fn hold(self, asked: &Asked) -> Hold {
        let counted = self.counts && asked.any(Needs::COUNTS);
        let warned = self.diagnostics && asked.any(Needs::DIAGNOSTICS);
        if self.found_rows || counted || warned {
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

    /// Whether the server has to be asked before the connection is given away.
    pub(super) fn is_open(self, asked: &Asked) -> bool {
        match self {
            InsertId::Exact(_) => false,
            InsertId::Likely(_) => asked.any(Needs::INSERT_ID),
            InsertId::Unknown => true,
        }
    }
}
