//! What a decision needs to know of a text: the same words for PostgreSQL and MySQL.

use crate::rules::Destination;

/// All that runs as one: it goes to one server as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoutingUnit<'a> {
    /// Its statements, in order. EXECUTE and Bind stand for the statement that was prepared.
    pub statements: &'a [RoutedStatement],
    /// What a comment asks for.
    pub hint: Option<ResolvedHint>,
    /// What a rule asks for.
    pub rule: Option<&'a Destination>,
}

impl RoutingUnit<'_> {
    /// Whether no table is read, so that any server may answer however far behind.
    pub(super) fn needs_no_data(&self) -> bool {
        let needs_none = |one: &RoutedStatement| {
            matches!(one.kind, StatementClass::Empty | StatementClass::Setting)
        };
        self.statements.iter().all(needs_none)
    }

    /// Whether it begins a transaction of its own, with modes of its own.
    pub(super) fn begins(&self) -> bool {
        let first = self.statements.first();
        first.is_some_and(|one| matches!(one.kind, StatementClass::Begin(_)))
    }
}

/// One statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoutedStatement {
    /// What it is.
    pub kind: StatementClass,
    /// What it does besides, by its words.
    pub traits: RoutingTraits,
    /// The worst that it calls, views among it: [`Volatility::worst`].
    pub calls: Volatility,
}

/// What a statement is, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatementClass {
    /// Nothing but blanks and comments.
    Empty,
    /// SELECT, VALUES, TABLE, EXPLAIN, COPY … TO STDOUT: a read but for its traits and calls.
    Read,
    /// INSERT, UPDATE, DELETE, MERGE, COPY … FROM, LOAD DATA: writes.
    Write,
    /// Changes the catalog, or maintains it.
    Ddl,
    /// BEGIN, START TRANSACTION.
    Begin(TransactionModes),
    /// COMMIT, ROLLBACK, SAVEPOINT and others that belong to a transaction. Outside of one it does
    /// nothing.
    EndTransaction,
    /// A setting that follows the client to whatever server (SET to a literal, RESET, USE).
    Setting,
    /// Changes what only its server connection has: LISTEN, DECLARE, DISCARD, SET to what is not
    /// known.
    Session,
    /// LOCK TABLE, LOCK TABLES, FLUSH TABLES WITH READ LOCK.
    Lock,
    /// SHOW, SELECT of a variable of the server: asks the server about itself, and changes nothing.
    Asks,
    /// SET GLOBAL, KILL, NOTIFY: about the server, not its data.
    Server,
    /// CALL, DO.
    Routine,
    /// Anything else: it may write.
    Unknown,
}

/// The modes of a transaction, where given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransactionModes {
    /// READ ONLY or READ WRITE.
    pub read_only: Option<bool>,
    /// ISOLATION LEVEL.
    pub isolation: Option<Isolation>,
}

impl TransactionModes {
    /// These where they say something, the others where not.
    #[must_use]
    pub fn or(self, others: TransactionModes) -> TransactionModes {
        TransactionModes {
            read_only: self.read_only.or(others.read_only),
            isolation: self.isolation.or(others.isolation),
        }
    }
}

/// An isolation level, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// Any that a replica has.
    Weaker,
    /// SERIALIZABLE: PostgreSQL's standbys refuse it, MySQL's reads lock.
    Serializable,
}

/// What a comment asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResolvedHint {
    /// The primary.
    Primary,
    /// A replica.
    Replica,
    /// A server, by its place in the service's list; `None`: the service does not have it.
    Server(Option<usize>),
}

/// What a function does to the data, or a view by the functions that it calls; from harmless to
/// unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Volatility {
    /// Nothing is called.
    None,
    /// PostgreSQL's immutable.
    Immutable,
    /// Reads: PostgreSQL's stable, MySQL's NO SQL and READS SQL DATA; a plain table. Also the few
    /// built-in volatile ones that harm nothing, such as random() and clock_timestamp().
    Stable,
    /// May write.
    Volatile,
    /// Nobody has looked it up yet.
    Unknown,
}

impl Volatility {
    /// The worst of all that a statement calls.
    #[must_use]
    pub fn worst(all: impl IntoIterator<Item = Volatility>) -> Volatility {
        all.into_iter().max().unwrap_or(Volatility::None)
    }
}

/// What a statement does besides, by its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RoutingTraits(u32);

impl RoutingTraits {
    /// Nothing.
    pub const NONE: RoutingTraits = RoutingTraits(0);
    /// A write somewhere in it, be it in WITH; EXPLAIN ANALYZE of one.
    pub const WRITES: RoutingTraits = RoutingTraits(1);
    /// FOR UPDATE, FOR SHARE, LOCK IN SHARE MODE.
    pub const LOCKS_ROWS: RoutingTraits = RoutingTraits(1 << 1);
    /// SELECT … INTO a table or a file.
    pub const MAKES_TABLE: RoutingTraits = RoutingTraits(1 << 2);
    /// nextval, setval, NEXT VALUE FOR.
    pub const SEQUENCE: RoutingTraits = RoutingTraits(1 << 3);
    /// Makes or names something temporary.
    pub const TEMPORARY: RoutingTraits = RoutingTraits(1 << 4);
    /// Advisory locks, GET_LOCK and its kind.
    pub const NAMED_LOCK: RoutingTraits = RoutingTraits(1 << 5);
    /// lo_*.
    pub const LARGE_OBJECT: RoutingTraits = RoutingTraits(1 << 6);
    /// pg_notify.
    pub const NOTIFIES: RoutingTraits = RoutingTraits(1 << 7);
    /// txid_current and its kind: only a primary has one to give.
    pub const TRANSACTION_ID: RoutingTraits = RoutingTraits(1 << 8);
    /// set_config, setseed, `@a := 1`, SELECT … INTO @a.
    pub const ASSIGNS: RoutingTraits = RoutingTraits(1 << 9);
    /// currval, LAST_INSERT_ID(), FOUND_ROWS(), SHOW WARNINGS, SQL_CALC_FOUND_ROWS.
    pub const REMEMBERS: RoutingTraits = RoutingTraits(1 << 10);
    /// Runs SQL that is given as text, here or elsewhere.
    pub const RUNS_TEXT: RoutingTraits = RoutingTraits(1 << 11);
    /// Broken, nested too deep, written with escapes, or calls more than were listed.
    pub const OBSCURE: RoutingTraits = RoutingTraits(1 << 12);
    /// Names the catalogs; harmless by itself.
    pub const CATALOG: RoutingTraits = RoutingTraits(1 << 13);

    /// Both together.
    #[must_use]
    pub const fn and(self, other: RoutingTraits) -> RoutingTraits {
        RoutingTraits(self.0 | other.0)
    }

    /// But for these.
    #[must_use]
    pub const fn without(self, others: RoutingTraits) -> RoutingTraits {
        RoutingTraits(self.0 & !others.0)
    }

    /// Whether it has any of these.
    #[must_use]
    pub const fn any(self, of: RoutingTraits) -> bool {
        self.0 & of.0 != 0
    }
}
