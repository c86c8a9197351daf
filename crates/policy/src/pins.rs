//! What binds a client to its server connection: state that no other connection has and that cannot
//! be moved to one. Which event ends which bond, and what is left to do when the client leaves.
//!
//! A pin is taken as soon as it may exist and kept until it certainly does not: several LISTENs are
//! one pin, which only UNLISTEN * ends.

use std::fmt;

/// One reason. The first of those held, in this order, is the one that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pin {
    /// A replication or binlog stream: the connection is nothing else from now on.
    Replication,
    /// A transaction is open, savepoints and cursors in it.
    Transaction,
    /// MySQL: autocommit is off, and a transaction may begin unasked.
    AutocommitOff,
    /// MySQL: an XA transaction between its START and its PREPARE, COMMIT or ROLLBACK.
    Xa,
    /// A portal or cursor that a later message may fetch from.
    Cursor,
    /// PostgreSQL: a WITH HOLD cursor.
    HeldCursor,
    /// MySQL: COM_STMT_SEND_LONG_DATA without its execution.
    LongData,
    /// Temporary tables.
    TemporaryTable,
    /// PostgreSQL: LISTEN.
    Listen,
    /// Advisory locks of the session, GET_LOCK, the locking service.
    NamedLock,
    /// MySQL: LOCK TABLES.
    TableLock,
    /// MySQL: FLUSH TABLES WITH READ LOCK.
    GlobalReadLock,
    /// MySQL: LOCK INSTANCE FOR BACKUP.
    BackupLock,
    /// MySQL: an open HANDLER.
    Handler,
    /// PREPARE in SQL that is not followed.
    Prepared,
    /// What nextval gave, for currval and lastval.
    Sequence,
    /// PostgreSQL: currval or lastval asks what nextval gave; that alone binds nobody.
    SequenceRead,
    /// PostgreSQL: up to the end of the transaction, temporary tables may stand before others of
    /// their names; that alone binds nobody.
    TableShadowing,
    /// PostgreSQL: the same of settings by which texts are read; that alone binds nobody.
    ParseSettings,
    /// What setseed began.
    RandomSeed,
    /// PostgreSQL: a library was loaded.
    Library,
    /// PostgreSQL: a procedural language keeps what a function gave it.
    LanguageState,
    /// Settings changed in a way that cannot be told.
    Settings,
    /// PostgreSQL: who the session acts as, which RESET ALL leaves alone, may be among them. MySQL:
    /// SET ROLE, which COM_RESET_CONNECTION leaves alone.
    Role,
    /// MySQL: user variables set to what cannot be told.
    Variables,
    /// MySQL: SQL_CALC_FOUND_ROWS, for FOUND_ROWS().
    FoundRows,
    /// MySQL: what LAST_INSERT_ID() is about to be asked for.
    InsertId,
    /// MySQL: `sql_log_bin` is off or `gtid_next` is set.
    Binlog,
    /// Something that is not known: it may have left anything behind.
    Unknown,
}

/// What ends pins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnpinEvent {
    /// The server says that no transaction is open any more.
    TransactionEnded,
    /// MySQL: autocommit is on again.
    AutocommitOn,
    /// MySQL: XA PREPARE, COMMIT … ONE PHASE, ROLLBACK.
    XaEnded,
    /// No portal or cursor of the protocol is open any more.
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
    /// RESET ALL. Releases no lock, and leaves `role` and `session_authorization` as they are.
    ResetAll,
    /// DISCARD ALL, which cannot run in a transaction.
    DiscardAll,
    /// COM_RESET_CONNECTION or COM_CHANGE_USER, succeeded.
    ResetConnection,
}

/// What to do with a server connection whose client has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReleaseAction {
    /// Nothing binds: it can be lent as it is.
    Keep,
    /// Roll back what is open, then reset it (DISCARD ALL, COM_RESET_CONNECTION): then it can be
    /// lent.
    Reset,
    /// Nothing makes it safe for another client.
    Close,
}

/// The pins of one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Pins(u32);

impl Pin {
    /// Every reason, in its order.
    pub const ALL: [Pin; 29] = [
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
        Pin::Library,
        Pin::LanguageState,
        Pin::Settings,
        Pin::Role,
        Pin::Variables,
        Pin::FoundRows,
        Pin::InsertId,
        Pin::Binlog,
        Pin::Unknown,
    ];
}

/// Reasons that end by themselves, with the transaction, the result or the next statement, or that
/// pin nobody alone.
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

/// What DISCARD ALL leaves behind. A loaded library stays; the generator of random() and what
/// languages keep, too.
const SURVIVES_DISCARD: Pins = Pins::of(&[
    Pin::Replication,
    Pin::Transaction,
    Pin::RandomSeed,
    Pin::Library,
    Pin::LanguageState,
    Pin::Unknown,
]);

/// What COM_RESET_CONNECTION leaves behind, or is not certain to end.
const SURVIVES_RESET: Pins = Pins::of(&[
    Pin::Replication,
    Pin::Xa,
    Pin::GlobalReadLock,
    Pin::BackupLock,
    Pin::Unknown,
]);

/// What keeps a connection from being made fit for another client: what survives both ways to
/// reset it, once its transaction is rolled back. A seed harms nobody who did not set one.
const CANNOT_BE_CLEANED: Pins = Pins::of(&[
    Pin::Replication,
    Pin::Xa,
    Pin::GlobalReadLock,
    Pin::BackupLock,
    Pin::Library,
    Pin::LanguageState,
    Pin::Unknown,
]);

impl Pins {
    /// Nothing binds.
    pub const NONE: Pins = Pins(0);

    /// These reasons.
    #[must_use]
    pub const fn of(pins: &[Pin]) -> Pins {
        let (mut bits, mut index) = (0, 0);
        while index < pins.len() {
            bits |= pins[index].bit();
            index += 1;
        }
        Pins(bits)
    }

    /// Binds for another reason.
    pub fn add(&mut self, pin: Pin) {
        self.0 |= pin.bit();
    }

    /// Binds no more for this reason.
    #[must_use]
    pub const fn without(self, pin: Pin) -> Pins {
        Pins(self.0 & !pin.bit())
    }

    /// Those of these reasons that are not among the others.
    #[must_use]
    pub const fn except(self, others: Pins) -> Pins {
        Pins(self.0 & !others.0)
    }

    /// Those of these reasons that are among the others, too.
    #[must_use]
    pub const fn within(self, others: Pins) -> Pins {
        Pins(self.0 & others.0)
    }

    /// The reasons that last beyond the transaction, until the client ends them.
    #[must_use]
    pub const fn lasting(self) -> Pins {
        self.except(PASSING)
    }

    /// Binds for the reasons of both.
    #[must_use]
    pub const fn and(self, other: Pins) -> Pins {
        Pins(self.0 | other.0)
    }

    /// An event ends some of them.
    pub fn release(&mut self, by: UnpinEvent) {
        self.0 &= !released(by).0;
    }

    /// Whether nothing binds.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether that reason binds.
    #[must_use]
    pub const fn has(self, pin: Pin) -> bool {
        self.0 & pin.bit() != 0
    }

    /// The reasons, in their order.
    pub fn iter(self) -> impl Iterator<Item = Pin> {
        Pin::ALL.into_iter().filter(move |pin| self.has(*pin))
    }

    /// The text of the first reason: what `route` is told.
    #[must_use]
    pub fn first(self) -> Option<&'static str> {
        self.iter().next().map(Pin::as_str)
    }

    /// What to do with the connection now that the client has left.
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

/// All reasons, with commas between them.
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
    /// For the status.
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
            Pin::Library => "loaded library",
            Pin::LanguageState => "procedural language state",
            Pin::Settings => "untracked settings",
            Pin::Role => "untracked role",
            Pin::Variables => "untracked user variables",
            Pin::FoundRows => "FOUND_ROWS()",
            Pin::InsertId => "LAST_INSERT_ID()",
            Pin::Binlog => "sql_log_bin or gtid_next",
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
        UnpinEvent::ResetAll => Pins::of(&[Pin::Settings]),
        UnpinEvent::DiscardAll => Pins(!SURVIVES_DISCARD.0),
        UnpinEvent::ResetConnection => Pins(!SURVIVES_RESET.0),
    }
}

#[cfg(test)]
mod tests;
