//! Defines the reasons that pin a client to its server connection, the events that end them, and
//! the action at release. Pinning state exists on one connection only and cannot be moved to
//! another.
//!
//! A pin is set as soon as its reason may exist, and kept until the reason certainly does not. For
//! example, several LISTENs are one pin, which only UNLISTEN * ends.

use std::fmt;

/// Reason for a pin. The status shows the first of the present reasons in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pin {
    /// A replication or binlog stream: the connection serves nothing else from now on.
    Replication,
    /// An open transaction, with its savepoints and cursors.
    Transaction,
    /// MySQL: autocommit is off, so any statement may begin a transaction.
    AutocommitOff,
    /// MySQL: an XA transaction between START and its PREPARE, COMMIT or ROLLBACK.
    Xa,
    /// A portal or cursor that a later message may fetch from.
    Cursor,
    /// PostgreSQL: a WITH HOLD cursor.
    HeldCursor,
    /// MySQL: COM_STMT_SEND_LONG_DATA that was not yet followed by an execution.
    LongData,
    /// Temporary tables.
    TemporaryTable,
    /// PostgreSQL: LISTEN.
    Listen,
    /// Advisory locks of the session, GET_LOCK, or locks of the locking service.
    NamedLock,
    /// MySQL: LOCK TABLES.
    TableLock,
    /// MySQL: FLUSH TABLES WITH READ LOCK.
    GlobalReadLock,
    /// MySQL: LOCK INSTANCE FOR BACKUP.
    BackupLock,
    /// MySQL: an open HANDLER.
    Handler,
    /// PREPARE in SQL that is not tracked.
    Prepared,
    /// A value returned by nextval, needed by currval and lastval.
    Sequence,
    /// PostgreSQL: currval or lastval reads a value of nextval; this alone does not pin.
    SequenceRead,
    /// PostgreSQL: until the end of the transaction, temporary tables may shadow others of the same
    /// names; this alone does not pin.
    TableShadowing,
    /// PostgreSQL: until the end of the transaction, the settings that texts are parsed by may
    /// differ from the known ones; this alone does not pin.
    ParseSettings,
    /// A random sequence started by setseed.
    RandomSeed,
    /// PostgreSQL: state that a function left in a procedural language.
    LanguageState,
    /// PostgreSQL: settings that no catalog lists, under names that no text shows.
    UnlistedSettings,
    /// PostgreSQL: settings whose names are known, with values that no text shows.
    NamedSettings,
    /// Settings whose changes cannot be determined.
    Settings,
    /// PostgreSQL: the settings may include the current role, which RESET ALL leaves unchanged.
    /// MySQL: SET ROLE, which COM_RESET_CONNECTION leaves unchanged.
    Role,
    /// MySQL: user variables with values that cannot be determined.
    Variables,
    /// MySQL: SQL_CALC_FOUND_ROWS, for FOUND_ROWS().
    FoundRows,
    /// MySQL: a value that LAST_INSERT_ID() is about to return.
    InsertId,
    /// MySQL: `sql_log_bin` is off or `gtid_next` is set.
    Binlog,
    /// PostgreSQL: code that was not read, which may have left any state that DISCARD ALL removes.
    Code,
    /// PostgreSQL: state that no catalog lists and DISCARD ALL does not remove.
    Unlisted,
    /// An unknown statement, which may have left any state.
    Unknown,
}

/// Event that ends pins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnpinEvent {
    /// The server reports that no transaction is open.
    TransactionEnded,
    /// MySQL: autocommit is on again.
    AutocommitOn,
    /// MySQL: XA PREPARE, XA COMMIT … ONE PHASE or XA ROLLBACK.
    XaEnded,
    /// No portal or cursor of the protocol is open.
    CursorsClosed,
    /// CLOSE ALL.
    CloseAll,
    /// MySQL: the statement with long data was executed, reset or closed.
    LongDataUsed,
    /// UNLISTEN *.
    UnlistenAll,
    /// pg_advisory_unlock_all(), RELEASE_ALL_LOCKS().
    UnlockNamed,
    /// UNLOCK TABLES.
    UnlockTables,
    /// UNLOCK INSTANCE.
    UnlockInstance,
    /// DEALLOCATE ALL.
    DeallocateAll,
    /// DISCARD TEMP.
    DiscardTemp,
    /// DISCARD SEQUENCES.
    DiscardSequences,
    /// RESET ALL. Releases no lock, and leaves `role` and `session_authorization` unchanged.
    ResetAll,
    /// DISCARD ALL, which cannot run in a transaction.
    DiscardAll,
    /// COM_RESET_CONNECTION or COM_CHANGE_USER that succeeded.
    ResetConnection,
}

/// Action for a server connection after its client disconnected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseAction {
    /// No pin: the connection can be reused as it is.
    Keep,
    /// Roll back the open transaction, then reset (DISCARD ALL, COM_RESET_CONNECTION) before reuse.
    Reset,
    /// No reset makes the connection safe for another client.
    Close,
}

/// Set of the pins of one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Pins(u32);

impl Pin {
    /// Every reason, in order.
    pub const ALL: [Pin; 32] = [
        Pin::Replication,
        Pin::Transaction,
        Pin::AutocommitOff,
        Pin::Xa,
        Pin::Cursor,
        Pin::HeldCursor,
        Pin::LongData,
        Pin::TemporaryTable,
        Pin::Listen,
        Pin::NamedLock,
        Pin::TableLock,
        Pin::GlobalReadLock,
        Pin::BackupLock,
        Pin::Handler,
        Pin::Prepared,
        Pin::Sequence,
        Pin::SequenceRead,
        Pin::TableShadowing,
        Pin::ParseSettings,
        Pin::RandomSeed,
        Pin::LanguageState,
        Pin::UnlistedSettings,
        Pin::NamedSettings,
        Pin::Settings,
        Pin::Role,
        Pin::Variables,
        Pin::FoundRows,
        Pin::InsertId,
        Pin::Binlog,
        Pin::Code,
        Pin::Unlisted,
        Pin::Unknown,
    ];
}

/// Reasons that end by themselves, with the transaction, the result or the next statement, or that
/// do not pin alone.
const PASSING: Pins = Pins::of(&[
    Pin::Replication,
    Pin::Transaction,
    Pin::AutocommitOff,
    Pin::Xa,
    Pin::Cursor,
    Pin::LongData,
    Pin::SequenceRead,
    Pin::TableShadowing,
    Pin::ParseSettings,
    Pin::FoundRows,
    Pin::InsertId,
]);

/// Reasons that survive DISCARD ALL. The generator of random() remains, and so does the state of
/// languages.
const SURVIVES_DISCARD: Pins = Pins::of(&[
    Pin::Replication,
    Pin::Transaction,
    Pin::RandomSeed,
    Pin::LanguageState,
    Pin::Unlisted,
    Pin::Unknown,
]);

/// Reasons that survive COM_RESET_CONNECTION or may survive it.
const SURVIVES_RESET: Pins = Pins::of(&[
    Pin::Replication,
    Pin::Xa,
    Pin::GlobalReadLock,
    Pin::BackupLock,
    Pin::Unlisted,
    Pin::Unknown,
]);

/// Reasons after which no reset makes a connection safe for another client, even after its
/// transaction is rolled back. A seed is harmless to a client that did not set one.
const CANNOT_BE_CLEANED: Pins = Pins::of(&[
    Pin::Replication,
    Pin::Xa,
    Pin::GlobalReadLock,
    Pin::BackupLock,
    Pin::LanguageState,
    Pin::Unlisted,
    Pin::Unknown,
]);

impl Pins {
    /// The empty set.
    pub const NONE: Pins = Pins(0);

    /// Returns the set of the given reasons.
    #[must_use]
    pub const fn of(pins: &[Pin]) -> Pins {
        let (mut bits, mut index) = (0, 0);
        while index < pins.len() {
            bits |= pins[index].bit();
            index += 1;
        }
        Pins(bits)
    }

    /// Adds a reason.
    pub fn add(&mut self, pin: Pin) {
        self.0 |= pin.bit();
    }

    /// Returns the set without one reason.
    #[must_use]
    pub const fn without(self, pin: Pin) -> Pins {
        Pins(self.0 & !pin.bit())
    }

    /// Returns the reasons that are not in `others`.
    #[must_use]
    pub const fn except(self, others: Pins) -> Pins {
        Pins(self.0 & !others.0)
    }

    /// Returns the reasons that are in `others`, too.
    #[must_use]
    pub const fn within(self, others: Pins) -> Pins {
        Pins(self.0 & others.0)
    }

    /// Returns the reasons that last beyond the transaction, until the client ends them.
    #[must_use]
    pub const fn lasting(self) -> Pins {
        self.except(PASSING)
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn and(self, other: Pins) -> Pins {
        Pins(self.0 | other.0)
    }

    /// Removes the reasons that an event ends.
    pub fn release(&mut self, by: UnpinEvent) {
        self.0 &= !released(by).0;
    }

    /// Returns whether there is no pin.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns whether a reason is in the set.
    #[must_use]
    pub const fn has(self, pin: Pin) -> bool {
        self.0 & pin.bit() != 0
    }

    /// Returns the reasons in order.
    pub fn iter(self) -> impl Iterator<Item = Pin> {
        Pin::ALL.into_iter().filter(move |pin| self.has(*pin))
    }

    /// Returns the text of the first reason, which `route` reports.
    #[must_use]
    pub fn first(self) -> Option<&'static str> {
        self.iter().next().map(Pin::as_str)
    }

    /// Returns the action for the connection now that the client has disconnected.
    #[must_use]
    pub const fn release_action(self) -> ReleaseAction {
        if self.is_empty() {
            ReleaseAction::Keep
        } else if self.0 & CANNOT_BE_CLEANED.0 == 0 {
            ReleaseAction::Reset
        } else {
            ReleaseAction::Close
        }
    }
}

/// Shows all reasons, separated by commas.
impl fmt::Display for Pins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, pin) in self.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{}", pin.as_str())?;
        }
        Ok(())
    }
}

impl Pin {
    /// Returns the text for the status.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Pin::Replication => "replication connection",
            Pin::Transaction => "transaction",
            Pin::AutocommitOff => "autocommit off",
            Pin::Xa => "XA transaction",
            Pin::Cursor => "open cursor",
            Pin::HeldCursor => "cursor WITH HOLD",
            Pin::LongData => "pending COM_STMT_SEND_LONG_DATA",
            Pin::TemporaryTable => "temporary tables",
            Pin::Listen => "LISTEN",
            Pin::NamedLock => "advisory or named locks",
            Pin::TableLock => "LOCK TABLES",
            Pin::GlobalReadLock => "global read lock",
            Pin::BackupLock => "backup lock",
            Pin::Handler => "open HANDLER",
            Pin::Prepared => "SQL PREPARE",
            Pin::Sequence => "sequence values",
            Pin::SequenceRead => "currval() or lastval()",
            Pin::TableShadowing => "temporary tables of the transaction",
            Pin::ParseSettings => "parser settings of this transaction",
            Pin::RandomSeed => "random() seed",
            Pin::LanguageState => "procedural language state",
            Pin::UnlistedSettings => "settings that the server cannot list",
            Pin::NamedSettings => "untracked values of settings",
            Pin::Settings => "untracked settings",
            Pin::Role => "untracked role",
            Pin::Variables => "untracked user variables",
            Pin::FoundRows => "FOUND_ROWS()",
            Pin::InsertId => "LAST_INSERT_ID()",
            Pin::Binlog => "sql_log_bin or gtid_next",
            Pin::Code => "code that was not read",
            Pin::Unlisted => "state that the server cannot list",
            Pin::Unknown => "unknown session state",
        }
    }

    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

fn released(by: UnpinEvent) -> Pins {
    match by {
        UnpinEvent::TransactionEnded => Pins::of(&[Pin::Transaction, Pin::Cursor]),
        UnpinEvent::AutocommitOn => Pins::of(&[Pin::AutocommitOff]),
        UnpinEvent::XaEnded => Pins::of(&[Pin::Xa]),
        UnpinEvent::CursorsClosed => Pins::of(&[Pin::Cursor]),
        UnpinEvent::CloseAll => Pins::of(&[Pin::Cursor, Pin::HeldCursor]),
        UnpinEvent::LongDataUsed => Pins::of(&[Pin::LongData]),
        UnpinEvent::UnlistenAll => Pins::of(&[Pin::Listen]),
        UnpinEvent::UnlockNamed => Pins::of(&[Pin::NamedLock]),
        UnpinEvent::UnlockTables => Pins::of(&[Pin::TableLock, Pin::GlobalReadLock]),
        UnpinEvent::UnlockInstance => Pins::of(&[Pin::BackupLock]),
        UnpinEvent::DeallocateAll => Pins::of(&[Pin::Prepared]),
        UnpinEvent::DiscardTemp => Pins::of(&[Pin::TemporaryTable]),
        UnpinEvent::DiscardSequences => Pins::of(&[Pin::Sequence]),
        UnpinEvent::ResetAll => {
            Pins::of(&[Pin::Settings, Pin::NamedSettings, Pin::UnlistedSettings])
        }
        UnpinEvent::DiscardAll => Pins(!SURVIVES_DISCARD.0),
        UnpinEvent::ResetConnection => Pins(!SURVIVES_RESET.0),
    }
}

#[cfg(test)]
mod tests;
