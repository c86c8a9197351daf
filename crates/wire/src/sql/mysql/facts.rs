//! What is known of the statements of a MySQL text.

use crate::sql::hint::HintComment;
use crate::sql::name::Names;
use crate::sql::token::Span;

/// What a text is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TextFacts<'a> {
    pub(super) text: &'a [u8],
    pub(super) first: StatementFacts,
    pub(super) more: Vec<StatementFacts>,
    pub(super) is_cut: bool,
    pub(super) hint: Option<HintComment<'a>>,
}

impl<'a> TextFacts<'a> {
    /// The text, which the spans of its statements point into.
    #[must_use]
    pub fn text(&self) -> &'a [u8] {
        self.text
    }

    /// The statements in order; none for an empty text, and
    /// [`STATEMENTS_MAX`](crate::sql::facts::STATEMENTS_MAX) at most.
    pub fn statements(&self) -> impl Iterator<Item = &StatementFacts> {
        let first = (self.first.kind != StatementKind::Empty).then_some(&self.first);
        first.into_iter().chain(&self.more)
    }

    /// The one statement, if there is just one.
    #[must_use]
    pub fn single(&self) -> Option<&StatementFacts> {
        let mut statements = self.statements();
        let first = statements.next();
        if statements.next().is_some() {
            return None;
        }
        first
    }

    /// How many statements there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.statements().count()
    }

    /// Whether there were more than are told of.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The first hint in the comments of what was read.
    #[must_use]
    pub fn hint(&self) -> Option<HintComment<'a>> {
        self.hint
    }

    /// Whether every statement only reads, as far as the text tells; see [`Statement::only_reads`].
    #[must_use]
    pub fn only_reads(&self) -> bool {
        !self.is_cut && self.statements().all(StatementFacts::only_reads)
    }
}

/// One statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatementFacts {
    /// What it is.
    pub kind: StatementKind,
    /// What else about it matters.
    pub traits: StatementTraits,
    /// The functions that it calls and that the server does not bring itself, by name.
    pub functions: Names,
    /// The tables and views that it names; names of its own WITH queries among them.
    pub tables: Names,
    /// Its text, without the semicolon.
    pub span: Span,
    /// It begins within a comment that is run.
    pub(super) in_comment: bool,
}

impl StatementFacts {
    /// Whether nothing in the text of it writes, locks, changes the session, or asks for what only
    /// the session's last server knows.
    ///
    /// It may still call functions that do ([`Statement::functions`], unless the list
    /// [`Names::is_cut`]), and read from views that call them. Unknown is not a read.
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
    /// Nothing but blanks and comments.
    #[default]
    Empty,
    /// SELECT, VALUES, TABLE, WITH … SELECT.
    Select,
    /// INSERT, REPLACE, UPDATE, DELETE.
    Write,
    /// LOAD DATA or LOAD XML; `local`: from the client.
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
        /// Whose.
        scope: VariableScope,
        /// READ ONLY or READ WRITE.
        read_only: Option<bool>,
        /// ISOLATION LEVEL.
        isolation: Option<Isolation>,
    },
    /// SET ROLE.
    SetRole,
    /// SHOW, DESCRIBE, HELP; SHOW WARNINGS and the like have [`Traits::DIAGNOSTICS`].
    Show,
    /// EXPLAIN; with ANALYZE the statement is run.
    Explain {
        /// Whether it is run.
        analyze: bool,
    },
    /// USE; the schema as written.
    Use(Span),
    /// KILL of a connection.
    Kill {
        /// QUERY: the connection stays.
        query: bool,
        /// The connection's number, if it is written as one.
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
        /// It leaves locks.
        lock: bool,
    },
    /// HANDLER.
    Handler,
    /// PREPARE; the name.
    Prepare(Span),
    /// EXECUTE; the name.
    Execute(Span),
    /// DEALLOCATE or DROP PREPARE; the name.
    Deallocate(Span),
    /// CALL.
    Call,
    /// DO.
    Do,
    /// GET DIAGNOSTICS.
    GetDiagnostics,
    /// Nothing that we know: whatever it is, it may write. It goes to the end of the text.
    Unknown,
}

/// What follows the end of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransactionCompletion {
    /// AND CHAIN.
    pub chain: bool,
    /// RELEASE: the connection ends.
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

/// Whose variable it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VariableScope {
    /// SESSION or LOCAL; for most variables also what is written without a scope.
    Session,
    /// None is written: for the transaction's variables the next transaction only.
    Unwritten,
    /// GLOBAL, PERSIST, PERSIST_ONLY: of the server.
    Global,
}

/// One assignment of a SET.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Assignment {
    /// What is set.
    pub target: Target,
    /// To what.
    pub value: Value,
}

/// What a SET sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// A user variable: its name as written, without the `@`.
    User(Span),
    /// A system variable: its name as written, perhaps with a dot.
    System(VariableScope, Span),
    /// NAMES; the value is the character set, perhaps with COLLATE and a collation.
    Names,
    /// CHARACTER SET.
    CharacterSet,
}

/// What something is set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// DEFAULT.
    Default,
    /// A literal: the text can be sent again as it is.
    Literal(Span),
    /// Anything else: only the server knows.
    Unknown,
}

/// What a statement may do besides, by its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatementTraits(u32);

impl StatementTraits {
    /// Nothing.
    pub const NONE: StatementTraits = StatementTraits(0);
    /// A word that writes somewhere in it.
    pub const WRITES: StatementTraits = StatementTraits(1);
    /// FOR UPDATE, FOR SHARE, LOCK IN SHARE MODE.
    pub const LOCKS_ROWS: StatementTraits = StatementTraits(1 << 1);
    /// INTO @x, or `:=`: user variables change.
    pub const SETS_VARIABLES: StatementTraits = StatementTraits(1 << 2);
    /// INTO OUTFILE, INTO DUMPFILE: writes on the server's disk.
    pub const INTO_FILE: StatementTraits = StatementTraits(1 << 3);
    /// Reads user variables.
    pub const READS_VARIABLES: StatementTraits = StatementTraits(1 << 4);
    /// Reads system variables.
    pub const READS_SYSTEM: StatementTraits = StatementTraits(1 << 5);
    /// GET_LOCK and its kind.
    pub const NAMED_LOCK: StatementTraits = StatementTraits(1 << 6);
    /// SQL_CALC_FOUND_ROWS: FOUND_ROWS() will ask for it.
    pub const CALCULATES_FOUND_ROWS: StatementTraits = StatementTraits(1 << 7);
    /// FOUND_ROWS() or ROW_COUNT(): about the statement before.
    pub const READS_FOUND_ROWS: StatementTraits = StatementTraits(1 << 8);
    /// LAST_INSERT_ID(): about an insert before.
    pub const READS_INSERT_ID: StatementTraits = StatementTraits(1 << 9);
    /// LAST_INSERT_ID(expression): sets it.
    pub const SETS_INSERT_ID: StatementTraits = StatementTraits(1 << 10);
    /// NEXT VALUE FOR, NEXTVAL, SETVAL: writes a sequence.
    pub const NEXT_VALUE: StatementTraits = StatementTraits(1 << 11);
    /// LASTVAL, PREVIOUS VALUE FOR: what the session remembers.
    pub const CURRENT_VALUE: StatementTraits = StatementTraits(1 << 12);
    /// Makes or drops something temporary.
    pub const TEMPORARY: StatementTraits = StatementTraits(1 << 13);
    /// SHOW WARNINGS, SHOW ERRORS, their counts: about the statement before.
    pub const DIAGNOSTICS: StatementTraits = StatementTraits(1 << 14);
    /// CONNECTION_ID(): we answer it otherwise than the server.
    pub const CONNECTION_ID: StatementTraits = StatementTraits(1 << 15);
    /// Sets a variable of the server.
    pub const SETS_GLOBAL: StatementTraits = StatementTraits(1 << 16);
    /// Sets something in a way that its text does not tell.
    pub const SETS_UNKNOWN: StatementTraits = StatementTraits(1 << 17);
    /// A function of the server that leaves traces, waits for replication, or reads its disk.
    pub const SPECIAL_FUNCTION: StatementTraits = StatementTraits(1 << 18);
    /// Names what each server has for itself (`mysql`, `performance_schema`, `sys`, SHOW of a
    /// server's state): the same question has another answer elsewhere.
    pub const SERVER_STATE: StatementTraits = StatementTraits(1 << 19);
    /// Names `information_schema`.
    pub const CATALOG: StatementTraits = StatementTraits(1 << 20);
    /// Has a comment that some servers run and others do not.
    pub const VERSIONED: StatementTraits = StatementTraits(1 << 21);
    /// The text ends inside a string or comment, or has a byte without meaning: the server will
    /// refuse it, if it reads it as we do. Or it has a comment that may be run or not.
    pub const BROKEN: StatementTraits = StatementTraits(1 << 22);
    /// Nested too deep to be followed.
    pub const TOO_DEEP: StatementTraits = StatementTraits(1 << 23);
    /// Makes or changes a stored program.
    pub const STORED_PROGRAM: StatementTraits = StatementTraits(1 << 24);

    /// What a read may have.
    pub(super) const HARMLESS: StatementTraits =
        StatementTraits(Self::READS_VARIABLES.0 | Self::CATALOG.0);

    /// Whether it has any of these.
    #[must_use]
    pub fn any(self, of: StatementTraits) -> bool {
        self.0 & of.0 != 0
    }

    /// Both together.
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
