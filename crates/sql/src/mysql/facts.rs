//! Facts about the statements of a MySQL text.

use crate::hint::HintComment;
use crate::name::Names;
use crate::token::Span;

/// Facts about a text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TextFacts<'a> {
    pub(super) text: &'a [u8],
    pub(super) first: StatementFacts,
    pub(super) more: Vec<StatementFacts>,
    pub(super) is_cut: bool,
    pub(super) hint: Option<HintComment<'a>>,
}

impl<'a> TextFacts<'a> {
    /// Returns the text, to which the spans of the statements refer.
    #[must_use]
    pub fn text(&self) -> &'a [u8] {
        self.text
    }

    /// Returns the statements in order: none for an empty text, and up to
    /// [`STATEMENTS_MAX`](crate::facts::STATEMENTS_MAX).
    pub fn statements(&self) -> impl Iterator<Item = &StatementFacts> {
        let first = (self.first.kind != StatementKind::Empty).then_some(&self.first);
        first.into_iter().chain(&self.more)
    }

    /// Returns the statement if the text has exactly one.
    #[must_use]
    pub fn single(&self) -> Option<&StatementFacts> {
        let mut statements = self.statements();
        let first = statements.next();
        if statements.next().is_some() {
            return None;
        }
        first
    }

    /// Returns the number of statements.
    #[must_use]
    pub fn count(&self) -> usize {
        self.statements().count()
    }

    /// Returns whether the text has more statements than are described.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns the first hint in the comments of the text that was read.
    #[must_use]
    pub(crate) fn hint(&self) -> Option<HintComment<'a>> {
        self.hint
    }

    /// Returns whether every statement only reads, judging by the text; see
    /// [`StatementFacts::only_reads`].
    #[must_use]
    pub fn only_reads(&self) -> bool {
        !self.is_cut && self.statements().all(StatementFacts::only_reads)
    }
}

/// Facts about one statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatementFacts {
    /// Kind of the statement.
    pub kind: StatementKind,
    /// Further relevant properties.
    pub traits: StatementTraits,
    /// Names of the functions that the statement calls, without those built into the server.
    pub functions: Names,
    /// Tables and views that the statement names, including the names of its own WITH queries.
    pub tables: Names,
    /// Position of the statement in the text, without the semicolon.
    pub span: Span,
    /// True if the statement begins within an executable comment.
    pub(super) in_comment: bool,
}

impl StatementFacts {
    /// Returns whether no word of the statement writes, locks, changes the session, or reads state
    /// that only the session's last server has.
    ///
    /// The statement may still call functions that do ([`StatementFacts::functions`], complete
    /// unless [`Names::is_cut`]), and read from views that call them. An unknown statement is no
    /// read.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        let harmless = self.traits.is_subset(StatementTraits::HARMLESS);
        match self.kind {
            StatementKind::Select | StatementKind::Show | StatementKind::Explain { .. } => harmless,
            StatementKind::Empty => true,
            _ => false,
        }
    }
}

/// The kind of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StatementKind {
    /// Only blanks and comments.
    #[default]
    Empty,
    /// SELECT, VALUES, TABLE, WITH … SELECT.
    Select,
    /// INSERT, REPLACE, UPDATE, DELETE.
    Write,
    /// LOAD DATA or LOAD XML; with `local` the file comes from the client.
    LoadData {
        /// LOCAL.
        local: bool,
    },
    /// CREATE, ALTER, DROP, RENAME, TRUNCATE, GRANT and others that commit and change the catalog.
    Ddl,
    /// ANALYZE, OPTIMIZE, REPAIR, CHECK, CHECKSUM of tables.
    Maintenance,
    /// BEGIN, START TRANSACTION.
    Begin {
        /// READ ONLY or READ WRITE.
        read_only: Option<bool>,
        /// WITH CONSISTENT SNAPSHOT.
        snapshot: bool,
    },
    /// COMMIT.
    Commit(TransactionCompletion),
    /// ROLLBACK.
    Rollback(TransactionCompletion),
    /// SAVEPOINT.
    Savepoint(Span),
    /// RELEASE SAVEPOINT.
    Release(Span),
    /// ROLLBACK TO.
    RollbackTo(Span),
    /// XA in all its forms.
    Xa,
    /// SET of variables; see `mysql::assignments`.
    Set,
    /// SET TRANSACTION.
    SetTransaction {
        /// Scope of the setting.
        scope: VariableScope,
        /// READ ONLY or READ WRITE.
        read_only: Option<bool>,
        /// ISOLATION LEVEL.
        isolation: Option<Isolation>,
    },
    /// SET ROLE.
    SetRole,
    /// SHOW, DESCRIBE, HELP. SHOW WARNINGS and similar statements have
    /// [`StatementTraits::DIAGNOSTICS`].
    Show,
    /// EXPLAIN; with ANALYZE the statement is executed.
    Explain {
        /// True if the statement is executed.
        analyze: bool,
    },
    /// USE, with the schema as written.
    Use(Span),
    /// KILL of a connection.
    Kill {
        /// QUERY: only the statement is killed, not the connection.
        query: bool,
        /// Connection's number, if written as a number.
        connection: Option<Span>,
    },
    /// MariaDB's KILL USER and KILL QUERY ID.
    KillOther,
    /// LOCK TABLES.
    LockTables,
    /// UNLOCK TABLES.
    UnlockTables,
    /// LOCK INSTANCE, MariaDB's BACKUP STAGE and BACKUP LOCK.
    LockInstance,
    /// UNLOCK INSTANCE, BACKUP UNLOCK.
    UnlockInstance,
    /// FLUSH; `lock`: WITH READ LOCK or FOR EXPORT.
    Flush {
        /// True if the statement leaves locks.
        lock: bool,
    },
    /// HANDLER.
    Handler,
    /// PREPARE, with the statement's name.
    Prepare(Span),
    /// EXECUTE, with the statement's name.
    Execute(Span),
    /// DEALLOCATE or DROP PREPARE, with the statement's name.
    Deallocate(Span),
    /// CALL.
    Call,
    /// DO.
    Do,
    /// GET DIAGNOSTICS.
    GetDiagnostics,
    /// An unrecognized statement, which may write. The rest of the text belongs to it.
    Unknown,
}

/// Effects of COMMIT or ROLLBACK beyond the end of the transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransactionCompletion {
    /// AND CHAIN.
    pub chain: bool,
    /// RELEASE: the server closes the connection.
    pub release: bool,
}

/// An isolation level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// READ UNCOMMITTED.
    ReadUncommitted,
    /// READ COMMITTED.
    ReadCommitted,
    /// REPEATABLE READ.
    RepeatableRead,
    /// SERIALIZABLE: every read locks.
    Serializable,
}

/// Scope of a system variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VariableScope {
    /// SESSION or LOCAL; for most variables also the meaning of an unwritten scope.
    Session,
    /// No scope is written: transaction variables apply to the next transaction only.
    Implicit,
    /// GLOBAL, PERSIST, PERSIST_ONLY: variables of the server.
    Global,
}

/// One assignment of a SET.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assignment {
    /// Target of the assignment.
    pub target: Target,
    /// New value.
    pub value: Value,
}

/// Target of an assignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A user variable: its name as written, without the `@`.
    User(Span),
    /// A system variable: its name as written, possibly with a dot.
    System(VariableScope, Span),
    /// NAMES; the value is the character set, possibly with COLLATE and a collation.
    Names,
    /// CHARACTER SET.
    CharacterSet,
}

/// New value of a variable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// DEFAULT.
    Default,
    /// A literal: the text can be sent again as it is.
    Literal(Span),
    /// Any other value; only the server can evaluate it.
    Unknown,
}

/// Set of further properties of a statement, derived from its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatementTraits(u32);

impl StatementTraits {
    /// Empty set.
    pub const NONE: StatementTraits = StatementTraits(0);
    /// A word that writes, anywhere in the statement.
    pub const WRITES: StatementTraits = StatementTraits(1);
    /// FOR UPDATE, FOR SHARE, LOCK IN SHARE MODE.
    pub const LOCKS_ROWS: StatementTraits = StatementTraits(1 << 1);
    /// INTO @x, or `:=`: changes user variables.
    pub const SETS_VARIABLES: StatementTraits = StatementTraits(1 << 2);
    /// INTO OUTFILE, INTO DUMPFILE: writes on the server's disk.
    pub const INTO_FILE: StatementTraits = StatementTraits(1 << 3);
    /// Reads user variables.
    pub const READS_VARIABLES: StatementTraits = StatementTraits(1 << 4);
    /// Reads system variables.
    pub const READS_SYSTEM: StatementTraits = StatementTraits(1 << 5);
    /// GET_LOCK and similar functions.
    pub const NAMED_LOCK: StatementTraits = StatementTraits(1 << 6);
    /// SQL_CALC_FOUND_ROWS: a later FOUND_ROWS() returns its result.
    pub const CALCULATES_FOUND_ROWS: StatementTraits = StatementTraits(1 << 7);
    /// FOUND_ROWS() or ROW_COUNT(): refers to the preceding statement.
    pub const READS_FOUND_ROWS: StatementTraits = StatementTraits(1 << 8);
    /// LAST_INSERT_ID(): refers to an earlier insert.
    pub const READS_INSERT_ID: StatementTraits = StatementTraits(1 << 9);
    /// LAST_INSERT_ID(expression): sets the last insert id.
    pub const SETS_INSERT_ID: StatementTraits = StatementTraits(1 << 10);
    /// NEXT VALUE FOR, NEXTVAL, SETVAL: writes a sequence.
    pub const NEXT_VALUE: StatementTraits = StatementTraits(1 << 11);
    /// LASTVAL, PREVIOUS VALUE FOR: reads sequence state of the session.
    pub const CURRENT_VALUE: StatementTraits = StatementTraits(1 << 12);
    /// Creates or drops a temporary object.
    pub const TEMPORARY: StatementTraits = StatementTraits(1 << 13);
    /// SHOW WARNINGS, SHOW ERRORS, their counts: refers to the preceding statement.
    pub const DIAGNOSTICS: StatementTraits = StatementTraits(1 << 14);
    /// CONNECTION_ID(): Evenkeel returns another number than the server.
    pub const CONNECTION_ID: StatementTraits = StatementTraits(1 << 15);
    /// Sets a global variable of the server.
    pub const SETS_GLOBAL: StatementTraits = StatementTraits(1 << 16);
    /// Sets variables in a way that the text does not determine.
    pub const SETS_UNKNOWN: StatementTraits = StatementTraits(1 << 17);
    /// A built-in function that leaves state, waits for replication, or reads the server's disk.
    pub const SPECIAL_FUNCTION: StatementTraits = StatementTraits(1 << 18);
    /// Names data that is local to each server (`mysql`, `performance_schema`, `sys`, SHOW of
    /// server state): the result differs between servers.
    pub const SERVER_STATE: StatementTraits = StatementTraits(1 << 19);
    /// Names `information_schema`.
    pub const CATALOG: StatementTraits = StatementTraits(1 << 20);
    /// Has a comment that some servers execute and others do not.
    pub const VERSIONED: StatementTraits = StatementTraits(1 << 21);
    /// The text ends inside a string or comment, or has a meaningless byte: a server that tokenizes
    /// it alike will reject it. Also set for a comment that may or may not be executed.
    pub const BROKEN: StatementTraits = StatementTraits(1 << 22);
    /// Nested too deeply to be analyzed.
    pub const TOO_DEEP: StatementTraits = StatementTraits(1 << 23);
    /// Creates or changes a stored program.
    pub const STORED_PROGRAM: StatementTraits = StatementTraits(1 << 24);

    /// Properties that a read may have.
    pub(super) const HARMLESS: StatementTraits =
        StatementTraits(Self::READS_VARIABLES.0 | Self::CATALOG.0);

    /// Returns whether the set contains any of these properties.
    #[must_use]
    pub fn any(self, of: StatementTraits) -> bool {
        self.0 & of.0 != 0
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn and(self, other: StatementTraits) -> StatementTraits {
        StatementTraits(self.0 | other.0)
    }

    fn is_subset(self, of: StatementTraits) -> bool {
        self.0 & !of.0 == 0
    }

    pub(super) fn add(&mut self, other: StatementTraits) {
        self.0 |= other.0;
    }
}
