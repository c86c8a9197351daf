//! Defines the properties of a text that routing depends on, common to PostgreSQL and MySQL.

use crate::rules::Destination;

/// Statements that run as one unit on one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoutingUnit<'a> {
    /// Statements in order. EXECUTE and Bind stand for the prepared statement.
    pub statements: &'a [RoutedStatement],
    /// Routing hint from a comment.
    pub hint: Option<ResolvedHint>,
    /// Destination from a rule.
    pub rule: Option<&'a Destination>,
}

impl RoutingUnit<'_> {
    /// Returns whether no table is read, so that any server may answer, regardless of its lag.
    pub(super) fn needs_no_data(&self) -> bool {
        let needs_none = |one: &RoutedStatement| {
            matches!(one.kind, StatementClass::Empty | StatementClass::Setting)
        };
        self.statements.iter().all(needs_none)
    }

    /// Returns whether the unit begins a transaction with its own modes.
    pub(super) fn begins(&self) -> bool {
        let first = self.statements.first();
        first.is_some_and(|one| matches!(one.kind, StatementClass::Begin(_)))
    }
}

/// Properties of one statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoutedStatement {
    /// Class of the statement.
    pub kind: StatementClass,
    /// Further effects that its text shows.
    pub traits: RoutingTraits,
    /// Worst volatility of all functions and views that it uses: [`Volatility::worst`].
    pub calls: Volatility,
}

/// Class of a statement for routing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatementClass {
    /// Only white space and comments.
    Empty,
    /// SELECT, VALUES, TABLE, EXPLAIN, COPY … TO STDOUT: a read, except for its traits and calls.
    Read,
    /// INSERT, UPDATE, DELETE, MERGE, COPY … FROM, LOAD DATA: a write.
    Write,
    /// A statement that changes or maintains the catalog.
    Ddl,
    /// BEGIN, START TRANSACTION.
    Begin(TransactionModes),
    /// COMMIT, ROLLBACK, SAVEPOINT and other statements of a transaction. No effect outside of one.
    EndTransaction,
    /// A setting that is restored on each server that serves the client (SET to a literal, RESET,
    /// USE).
    Setting,
    /// A change of state that only its server connection has: LISTEN, DECLARE, DISCARD, SET to an
    /// unknown value.
    Session,
    /// LOCK TABLE, LOCK TABLES, FLUSH TABLES WITH READ LOCK.
    Lock,
    /// SHOW, SELECT of a server variable: queries the server's state and changes nothing.
    Asks,
    /// SET GLOBAL, KILL, NOTIFY: affects the server, not its data.
    Server,
    /// CALL, DO.
    Routine,
    /// Any other statement: it may write.
    Unknown,
}

/// Modes of a transaction; `None` where not specified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransactionModes {
    /// READ ONLY or READ WRITE.
    pub read_only: Option<bool>,
    /// ISOLATION LEVEL.
    pub isolation: Option<Isolation>,
}

impl TransactionModes {
    /// Returns these modes, completed from `others` where not specified.
    #[must_use]
    pub fn or(self, others: TransactionModes) -> TransactionModes {
        TransactionModes {
            read_only: self.read_only.or(others.read_only),
            isolation: self.isolation.or(others.isolation),
        }
    }
}

/// Isolation level, as far as routing depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// Any level that a replica supports.
    Weaker,
    /// SERIALIZABLE: PostgreSQL's standbys refuse it, and MySQL's reads lock.
    Serializable,
}

/// Target that a comment requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResolvedHint {
    /// The primary.
    Primary,
    /// A replica.
    Replica,
    /// A server, by its index in the service's list; `None` if the service does not have it.
    Server(Option<usize>),
}

/// Effect of a function, or of a view through the functions that it calls; ordered from harmless to
/// unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Volatility {
    /// No function is called.
    None,
    /// PostgreSQL's immutable.
    Immutable,
    /// Reads: PostgreSQL's stable, MySQL's NO SQL and READS SQL DATA, or a plain table. Also the
    /// few built-in volatile functions that are harmless, such as random() and clock_timestamp().
    Stable,
    /// May write.
    Volatile,
    /// The volatility was not looked up yet.
    Unknown,
}

impl Volatility {
    /// Returns the worst volatility of all that a statement calls.
    #[must_use]
    pub fn worst(all: impl IntoIterator<Item = Volatility>) -> Volatility {
        all.into_iter().max().unwrap_or(Volatility::None)
    }
}

/// Further effects of a statement that its text shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RoutingTraits(u32);

impl RoutingTraits {
    /// The empty set.
    pub const NONE: RoutingTraits = RoutingTraits(0);
    /// A write anywhere in the statement, including WITH and EXPLAIN ANALYZE.
    pub const WRITES: RoutingTraits = RoutingTraits(1);
    /// FOR UPDATE, FOR SHARE, LOCK IN SHARE MODE.
    pub const LOCKS_ROWS: RoutingTraits = RoutingTraits(1 << 1);
    /// SELECT … INTO a table or a file.
    pub const MAKES_TABLE: RoutingTraits = RoutingTraits(1 << 2);
    /// nextval, setval, NEXT VALUE FOR.
    pub const SEQUENCE: RoutingTraits = RoutingTraits(1 << 3);
    /// Creates or names a temporary object.
    pub const TEMPORARY: RoutingTraits = RoutingTraits(1 << 4);
    /// Advisory locks, GET_LOCK and similar functions.
    pub const NAMED_LOCK: RoutingTraits = RoutingTraits(1 << 5);
    /// lo_*.
    pub const LARGE_OBJECT: RoutingTraits = RoutingTraits(1 << 6);
    /// pg_notify.
    pub const NOTIFIES: RoutingTraits = RoutingTraits(1 << 7);
    /// txid_current and similar functions: only a primary can assign a transaction ID.
    pub const TRANSACTION_ID: RoutingTraits = RoutingTraits(1 << 8);
    /// set_config, setseed, `@a := 1`, SELECT … INTO @a.
    pub const ASSIGNS: RoutingTraits = RoutingTraits(1 << 9);
    /// currval, LAST_INSERT_ID(), FOUND_ROWS(), SHOW WARNINGS, SQL_CALC_FOUND_ROWS.
    pub const REMEMBERS: RoutingTraits = RoutingTraits(1 << 10);
    /// Runs SQL that is given as text, on this server or another one.
    pub const RUNS_TEXT: RoutingTraits = RoutingTraits(1 << 11);
    /// Invalid, nested too deeply, written with escapes, or calls more functions than were listed.
    pub const OBSCURE: RoutingTraits = RoutingTraits(1 << 12);
    /// Names the system catalogs; harmless by itself.
    pub const CATALOG: RoutingTraits = RoutingTraits(1 << 13);

    /// Returns the union of both sets.
    #[must_use]
    pub const fn and(self, other: RoutingTraits) -> RoutingTraits {
        RoutingTraits(self.0 | other.0)
    }

    /// Returns the set without `others`.
    #[must_use]
    pub const fn without(self, others: RoutingTraits) -> RoutingTraits {
        RoutingTraits(self.0 & !others.0)
    }

    /// Returns whether any of these traits is in the set.
    #[must_use]
    pub const fn any(self, of: RoutingTraits) -> bool {
        self.0 & of.0 != 0
    }
}
