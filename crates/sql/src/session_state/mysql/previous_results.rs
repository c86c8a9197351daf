//! Tracks the results of earlier statements that the next one may read: insert id, warnings, found
//! rows, row count.
//!
//! The server connection has these results. An insert id can be restored on another connection;
//! the others cannot. The connection is therefore kept until the client's next command, for a
//! short time, or not at all, depending on the queries of the service's clients so far. If the
//! connection was released, the statement may get no result, but never that of another client.

use std::sync::atomic::{AtomicU8, Ordering};

use super::analysis::TextAnalysis;

/// Results of the previous statement that a text reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResultReads(u8);

impl ResultReads {
    /// No result.
    pub const NONE: ResultReads = ResultReads(0);
    /// LAST_INSERT_ID(), `@@identity`.
    pub(crate) const INSERT_ID: ResultReads = ResultReads(1);
    /// FOUND_ROWS() of the last SELECT.
    pub const FOUND_ROWS: ResultReads = ResultReads(2);
    /// SHOW WARNINGS, GET DIAGNOSTICS, `@@warning_count`.
    pub(crate) const DIAGNOSTICS: ResultReads = ResultReads(4);
    /// ROW_COUNT() of the last statement.
    pub const ROW_COUNT: ResultReads = ResultReads(8);
    /// All results.
    pub const ALL: ResultReads = ResultReads(15);

    /// Returns the same reads, marked as possible instead of certain, for a text that cannot be
    /// analyzed.
    #[must_use]
    pub(crate) const fn as_possible(self) -> ResultReads {
        ResultReads(self.0 << POSSIBLE_SHIFT)
    }

    /// Returns the reads of both.
    #[must_use]
    pub const fn and(self, other: ResultReads) -> ResultReads {
        ResultReads(self.0 | other.0)
    }

    /// Returns the reads without `others`, certain or possible.
    pub(super) const fn without(self, others: ResultReads) -> ResultReads {
        ResultReads(self.0 & !(others.0 | others.as_possible().0))
    }

    /// Returns whether any of `others` is read, certainly or possibly.
    #[must_use]
    pub(crate) const fn intersects(self, others: ResultReads) -> bool {
        (self.0 | self.0 >> POSSIBLE_SHIFT) & others.0 != 0
    }

    /// Returns whether all of `others` are certainly read.
    #[must_use]
    pub(crate) const fn certainly(self, others: ResultReads) -> bool {
        self.0 & others.0 == others.0
    }

    /// Returns whether nothing is read.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Number of bits by which a possible read is shifted.
const POSSIBLE_SHIFT: u8 = 4;

/// Results that the clients of a service have ever read.
#[derive(Debug, Default)]
pub struct ObservedResultReads(AtomicU8);

impl ObservedResultReads {
    /// Records the reads of a text that was analyzed or prepared. Possible reads are ignored.
    pub fn note(&self, needs: ResultReads) {
        let certain = needs.0 & ResultReads::ALL.0;
        if certain & !self.0.load(Ordering::Relaxed) != 0 {
            self.0.fetch_or(certain, Ordering::Relaxed);
        }
    }

    /// Returns which results the connection must have before the text is sent, for
    /// [`super::settings_diff`]. If clients of the service read insert ids, this includes the
    /// client's insert id for a write: an insert that generates no id leaves the previous one in
    /// place.
    #[must_use]
    pub fn needs(&self, analysis: &TextAnalysis) -> ResultReads {
        match analysis.writes() && self.intersects(ResultReads::INSERT_ID) {
            true => analysis.needs.and(ResultReads::INSERT_ID.as_possible()),
            false => analysis.needs,
        }
    }

    /// Returns whether any of `reads` was observed.
    #[must_use]
    pub(crate) fn intersects(&self, reads: ResultReads) -> bool {
        self.0.load(Ordering::Relaxed) & reads.0 != 0
    }
}

/// Length of time for which a connection without pins is kept for its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HoldPolicy {
    /// The connection is not kept.
    Release,
    /// [`HoldPolicy::BRIEFLY_MS`], or until the client's next command.
    Briefly,
    /// Until the client's next command.
    UntilNextCommand,
    /// Until the client's next command. SQL_CALC_FOUND_ROWS was used, so the client will read
    /// FOUND_ROWS().
    UntilResultIsRead,
}

impl HoldPolicy {
    /// Time in milliseconds. Drivers that read warnings query them immediately.
    pub const BRIEFLY_MS: u64 = 100;
}

/// Results of earlier statements that a session's connection has for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct StatementResults {
    pub(super) diagnostics: Diagnostics,
    pub(super) found_rows: FoundRows,
    /// True if the last statement was executed.
    pub(super) was_executed: bool,
}

/// Warnings or an error that SHOW WARNINGS returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Diagnostics {
    /// None.
    #[default]
    None,
    /// The client has not read them yet.
    Unread,
    /// The client has read them, and may read them again.
    Read,
}

/// Count that FOUND_ROWS() returns, by its probable use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum FoundRows {
    /// No statement has counted rows.
    #[default]
    None,
    /// Count of any SELECT.
    Counted,
    /// Count of SQL_CALC_FOUND_ROWS.
    Calculated,
}

impl StatementResults {
    pub(super) fn hold(self, observed: &ObservedResultReads) -> HoldPolicy {
        let is_counted = self.found_rows == FoundRows::Counted;
        let counted = is_counted && observed.intersects(ResultReads::FOUND_ROWS);
        let ran = self.was_executed && observed.intersects(ResultReads::ROW_COUNT);
        let is_unread = self.diagnostics == Diagnostics::Unread;
        let warned = is_unread && observed.intersects(ResultReads::DIAGNOSTICS);
        if self.found_rows == FoundRows::Calculated {
            return HoldPolicy::UntilResultIsRead;
        }
        if counted || ran || warned {
            return HoldPolicy::UntilNextCommand;
        }
        match self.diagnostics {
            Diagnostics::None => HoldPolicy::Release,
            Diagnostics::Unread | Diagnostics::Read => HoldPolicy::Briefly,
        }
    }
}

/// LAST_INSERT_ID() of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InsertId {
    /// A known value.
    Exact(u64),
    /// A value that LAST_INSERT_ID() may not return. An OK also reports an id that the statement
    /// assigned explicitly, which does not change LAST_INSERT_ID() (manual: "mysql_insert_id()");
    /// or the id may have changed unobserved.
    Uncertain(u64),
    /// A value that only the server connection has.
    Unknown,
}

impl InsertId {
    pub(super) const NONE: InsertId = InsertId::Exact(0);

    /// Returns the value after a possible change that was not observed.
    pub(super) fn in_doubt(self) -> InsertId {
        match self {
            InsertId::Exact(value) => InsertId::Uncertain(value),
            other => other,
        }
    }
}
