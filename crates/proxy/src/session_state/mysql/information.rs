//! Tracks the information that a statement leaves for the next one: insert id, warnings, found
//! rows.
//!
//! The server connection has this information. An insert id can be restored on another connection;
//! the rest cannot. The connection is therefore kept until the client's next command, for a short
//! time, or not at all, depending on the queries of the service's clients so far. A statement that
//! reads information on another connection never receives that of another client.

use std::sync::atomic::{AtomicU8, Ordering};

use super::analysis::TextAnalysis;

/// Information of the previous statement that a text reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InfoNeeds(u8);

impl InfoNeeds {
    /// No information.
    pub const NONE: InfoNeeds = InfoNeeds(0);
    /// LAST_INSERT_ID(), `@@identity`.
    pub const INSERT_ID: InfoNeeds = InfoNeeds(1);
    /// FOUND_ROWS() of the last SELECT.
    pub const FOUND_ROWS: InfoNeeds = InfoNeeds(2);
    /// SHOW WARNINGS, GET DIAGNOSTICS, `@@warning_count`.
    pub const DIAGNOSTICS: InfoNeeds = InfoNeeds(4);
    /// ROW_COUNT() of the last statement.
    pub const ROW_COUNT: InfoNeeds = InfoNeeds(8);
    /// All information.
    pub const ALL: InfoNeeds = InfoNeeds(15);

    /// Returns these needs as possible ones, for a text that cannot be analyzed.
    #[must_use]
    pub const fn perhaps(self) -> InfoNeeds {
        InfoNeeds(self.0 << PERHAPS)
    }

    /// Returns the needs of both.
    #[must_use]
    pub const fn and(self, other: InfoNeeds) -> InfoNeeds {
        InfoNeeds(self.0 | other.0)
    }

    /// Returns the needs without `others`, certain or possible.
    pub(super) const fn without(self, others: InfoNeeds) -> InfoNeeds {
        InfoNeeds(self.0 & !(others.0 | others.perhaps().0))
    }

    /// Returns whether any of these is needed, certainly or possibly.
    #[must_use]
    pub const fn any(self, of: InfoNeeds) -> bool {
        (self.0 | self.0 >> PERHAPS) & of.0 != 0
    }

    /// Returns whether nothing is needed.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Number of bits by which a possible need is shifted.
const PERHAPS: u8 = 4;

/// Information that the clients of a service have ever read.
#[derive(Debug, Default)]
pub struct InfoUsage(AtomicU8);

impl InfoUsage {
    /// Records the needs of a text that was analyzed or prepared. Possible needs are ignored.
    pub fn note(&self, needs: InfoNeeds) {
        let certain = needs.0 & InfoNeeds::ALL.0;
        if certain & !self.0.load(Ordering::Relaxed) != 0 {
            self.0.fetch_or(certain, Ordering::Relaxed);
        }
    }

    /// Returns the information that the connection must have before a text is sent, for
    /// [`super::settings_diff`]: the text's needs. If clients read insert ids, a write also needs
    /// the client's own, since an insert may leave it unchanged.
    #[must_use]
    pub fn needs(&self, analysis: &TextAnalysis) -> InfoNeeds {
        match analysis.writes && self.any(InfoNeeds::INSERT_ID) {
            true => analysis.needs.and(InfoNeeds::INSERT_ID.perhaps()),
            false => analysis.needs,
        }
    }

    /// Returns whether any of these was ever read.
    #[must_use]
    pub fn any(&self, of: InfoNeeds) -> bool {
        self.0.load(Ordering::Relaxed) & of.0 != 0
    }
}

/// Length of time for which a connection without pins is kept for its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldPolicy {
    /// The connection is not kept.
    No,
    /// [`HoldPolicy::BRIEFLY_MS`], or until the client's next command.
    Briefly,
    /// Until the client's next command.
    UntilNext,
    /// Until the client's next command, which is certain to read the information.
    Promised,
}

impl HoldPolicy {
    /// Time in milliseconds. Drivers that read warnings query them immediately.
    pub const BRIEFLY_MS: u64 = 100;
}

/// Information that the last statement has left on its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct StatementInfo {
    /// True if there are warnings or an error.
    pub(super) diagnostics: bool,
    /// True if SQL_CALC_FOUND_ROWS has counted rows.
    pub(super) found_rows: bool,
    /// True if FOUND_ROWS() depends on the statement, as on a SELECT.
    pub(super) rows: bool,
    /// True if the statement was executed.
    pub(super) ran: bool,
}

impl StatementInfo {
    pub(super) fn hold(self, usage: &InfoUsage) -> HoldPolicy {
        let counted = self.rows && usage.any(InfoNeeds::FOUND_ROWS);
        let ran = self.ran && usage.any(InfoNeeds::ROW_COUNT);
        let warned = self.diagnostics && usage.any(InfoNeeds::DIAGNOSTICS);
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
    /// A known value.
    Exact(u64),
    /// A value that applies unless the client assigned it in the statement: the OK then reports it,
    /// but LAST_INSERT_ID() is unchanged (manual: "mysql_insert_id()").
    Likely(u64),
    /// A value that only the server connection has.
    Unknown,
}

impl InsertId {
    pub(super) const NONE: InsertId = InsertId::Exact(0);

    /// Returns the value after a possible change that was not observed.
    pub(super) fn in_doubt(self) -> InsertId {
        match self {
            InsertId::Exact(value) => InsertId::Likely(value),
            other => other,
        }
    }
}
