//! Properties of statements in both dialects, and what they mean to the router.

use evenkeel_policy::route::RoutingTraits;

/// Set of further properties of a statement, derived from its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatementTraits(u64);

impl StatementTraits {
    /// Empty set.
    pub const NONE: StatementTraits = StatementTraits(0);
    /// INSERT, UPDATE, DELETE or another word that writes, anywhere in the statement, including
    /// WITH queries.
    pub const WRITES: StatementTraits = StatementTraits(1);
    /// FOR UPDATE, FOR SHARE, LOCK IN SHARE MODE and similar clauses.
    pub const LOCKS_ROWS: StatementTraits = StatementTraits(1 << 1);
    /// Creates or drops a temporary object, or names `pg_temp`.
    pub const TEMPORARY: StatementTraits = StatementTraits(1 << 2);
    /// Advisory locks of the session or of the transaction; GET_LOCK and similar functions.
    pub const NAMED_LOCK: StatementTraits = StatementTraits(1 << 3);
    /// nextval, setval, NEXT VALUE FOR: writes a sequence and changes the session's currval.
    pub const NEXT_VALUE: StatementTraits = StatementTraits(1 << 4);
    /// currval, lastval, PREVIOUS VALUE FOR: reads sequence state of the session.
    pub const CURRENT_VALUE: StatementTraits = StatementTraits(1 << 5);
    /// Changes settings or variables in a way that the text does not determine.
    pub const SETS_UNKNOWN: StatementTraits = StatementTraits(1 << 6);
    /// Names the catalogs (`information_schema`; `pg_catalog`, `pg_…`).
    pub const CATALOG: StatementTraits = StatementTraits(1 << 7);
    /// The text ends inside a string or comment, or has a meaningless byte: a server that tokenizes
    /// it alike will reject it. In MySQL also for a comment that may or may not be executed.
    pub const BROKEN: StatementTraits = StatementTraits(1 << 8);
    /// Nested too deeply to be analyzed.
    pub const TOO_DEEP: StatementTraits = StatementTraits(1 << 9);

    /// PostgreSQL: SELECT … INTO: creates a table.
    pub const SELECT_INTO: StatementTraits = StatementTraits(1 << 10);
    /// PostgreSQL: `SELECT set_config(…)` with literals and nothing else; see
    /// `postgres::set_configs`.
    pub const SETS_LITERALS: StatementTraits = StatementTraits(1 << 11);
    /// PostgreSQL: setseed, or SET SEED: changes the results of random in this session.
    pub const SEED: StatementTraits = StatementTraits(1 << 12);
    /// PostgreSQL: pg_notify.
    pub const NOTIFIES: StatementTraits = StatementTraits(1 << 13);
    /// PostgreSQL: lo_* functions: large objects.
    pub const LARGE_OBJECT: StatementTraits = StatementTraits(1 << 14);
    /// PostgreSQL: requests a transaction id, which only a primary assigns.
    pub const TRANSACTION_ID: StatementTraits = StatementTraits(1 << 15);
    /// PostgreSQL: a function that executes SQL given as text, on this server or another.
    pub const RUNS_TEXT: StatementTraits = StatementTraits(1 << 16);
    /// PostgreSQL: names written with escapes: the named objects are unknown.
    pub const OBSCURE: StatementTraits = StatementTraits(1 << 17);

    /// MySQL: INTO @x, or `:=`: changes user variables.
    pub const SETS_VARIABLES: StatementTraits = StatementTraits(1 << 18);
    /// MySQL: INTO OUTFILE, INTO DUMPFILE: writes on the server's disk.
    pub const INTO_FILE: StatementTraits = StatementTraits(1 << 19);
    /// MySQL: reads user variables.
    pub const READS_VARIABLES: StatementTraits = StatementTraits(1 << 20);
    /// MySQL: reads system variables.
    pub const READS_SYSTEM: StatementTraits = StatementTraits(1 << 21);
    /// MySQL: SQL_CALC_FOUND_ROWS: a later FOUND_ROWS() returns its result.
    pub const CALCULATES_FOUND_ROWS: StatementTraits = StatementTraits(1 << 22);
    /// MySQL: FOUND_ROWS() or ROW_COUNT(): refers to the preceding statement.
    pub const READS_FOUND_ROWS: StatementTraits = StatementTraits(1 << 23);
    /// MySQL: LAST_INSERT_ID(): refers to an earlier insert.
    pub const READS_INSERT_ID: StatementTraits = StatementTraits(1 << 24);
    /// MySQL: LAST_INSERT_ID(expression): sets the last insert id.
    pub const SETS_INSERT_ID: StatementTraits = StatementTraits(1 << 25);
    /// MySQL: SHOW WARNINGS, SHOW ERRORS, their counts: refers to the preceding statement.
    pub const DIAGNOSTICS: StatementTraits = StatementTraits(1 << 26);
    /// MySQL: CONNECTION_ID(): Evenkeel returns another number than the server.
    pub const CONNECTION_ID: StatementTraits = StatementTraits(1 << 27);
    /// MySQL: sets a global variable of the server.
    pub const SETS_GLOBAL: StatementTraits = StatementTraits(1 << 28);
    /// MySQL: a built-in function that leaves state, waits for replication, or reads the server's
    /// disk.
    pub const SPECIAL_FUNCTION: StatementTraits = StatementTraits(1 << 29);
    /// MySQL: names data that is local to each server (`mysql`, `performance_schema`, `sys`, SHOW
    /// of server state): the result differs between servers.
    pub const SERVER_STATE: StatementTraits = StatementTraits(1 << 30);
    /// MySQL: has a comment that some servers execute and others do not.
    pub const VERSIONED: StatementTraits = StatementTraits(1 << 31);
    /// MySQL: creates or changes a stored program.
    pub const STORED_PROGRAM: StatementTraits = StatementTraits(1 << 32);

    /// Properties that a read may have.
    pub(super) const HARMLESS: StatementTraits =
        StatementTraits::CATALOG.and(StatementTraits::READS_VARIABLES);

    /// Returns whether the set contains any of these properties.
    #[must_use]
    #[inline]
    pub fn any(self, of: StatementTraits) -> bool {
        self.0 & of.0 != 0
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn and(self, other: StatementTraits) -> StatementTraits {
        StatementTraits(self.0 | other.0)
    }

    pub(super) fn is_subset(self, of: StatementTraits) -> bool {
        self.0 & !of.0 == 0
    }

    #[inline]
    pub(crate) fn add(&mut self, other: StatementTraits) {
        self.0 |= other.0;
    }

    /// Returns what the properties mean to the router. [`StatementTraits::SETS_VARIABLES`] depends
    /// on the kind of the statement, and is missing.
    #[must_use]
    pub(crate) fn routing(self) -> RoutingTraits {
        let mut traits = RoutingTraits::NONE;
        if self == StatementTraits::NONE {
            return traits;
        }
        for (found, trait_of) in ROUTING {
            if self.any(*found) {
                traits = traits.and(*trait_of);
            }
        }
        traits
    }
}

/// Meanings to the router.
#[rustfmt::skip]
const ROUTING: &[(StatementTraits, RoutingTraits)] = &[
    (StatementTraits::WRITES, RoutingTraits::WRITES),
    (StatementTraits::LOCKS_ROWS, RoutingTraits::LOCKS_ROWS),
    (StatementTraits::TEMPORARY, RoutingTraits::TEMPORARY),
    (StatementTraits::NAMED_LOCK, RoutingTraits::NAMED_LOCK),
    (StatementTraits::NEXT_VALUE, RoutingTraits::SEQUENCE),
    (StatementTraits::CATALOG, RoutingTraits::CATALOG),
    (StatementTraits::NOTIFIES, RoutingTraits::NOTIFIES),
    (StatementTraits::LARGE_OBJECT, RoutingTraits::LARGE_OBJECT),
    (StatementTraits::TRANSACTION_ID, RoutingTraits::TRANSACTION_ID),
    (StatementTraits::RUNS_TEXT, RoutingTraits::RUNS_TEXT),
    (
        StatementTraits::SELECT_INTO
            .and(StatementTraits::INTO_FILE),
        RoutingTraits::MAKES_TABLE,
    ),
    (
        StatementTraits::CURRENT_VALUE
            .and(StatementTraits::READS_FOUND_ROWS)
            .and(StatementTraits::READS_INSERT_ID)
            .and(StatementTraits::DIAGNOSTICS),
        RoutingTraits::REMEMBERS,
    ),
    (
        StatementTraits::SETS_UNKNOWN
            .and(StatementTraits::SEED)
            .and(StatementTraits::SETS_INSERT_ID),
        RoutingTraits::ASSIGNS,
    ),
    (
        StatementTraits::BROKEN
            .and(StatementTraits::TOO_DEEP)
            .and(StatementTraits::OBSCURE)
            .and(StatementTraits::SPECIAL_FUNCTION)
            .and(StatementTraits::CONNECTION_ID)
            .and(StatementTraits::VERSIONED),
        RoutingTraits::OBSCURE,
    ),
];
