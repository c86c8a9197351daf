//! Kinds of MySQL's statements.

use crate::facts::{self, Isolation};
use crate::token::words as w;
use crate::token::{ByWords, Span};

/// Facts about the statements of a text.
pub type TextFacts<'a> = facts::TextFacts<'a, StatementKind>;

/// Facts about one statement.
pub type StatementFacts = facts::StatementFacts<StatementKind>;

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
    /// [`facts::StatementTraits::DIAGNOSTICS`].
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

/// Statements whose first words alone determine their kinds.
pub(super) const BY_WORDS: &[ByWords<StatementKind>] = &[
    (w::XA, &[], StatementKind::Xa),
    (w::HANDLER, &[], StatementKind::Handler),
    (w::GET, &[], StatementKind::GetDiagnostics),
    (w::LOCK, &[w::TABLES, w::TABLE], StatementKind::LockTables),
    (w::LOCK, &[w::INSTANCE], StatementKind::LockInstance),
    (
        w::UNLOCK,
        &[w::TABLES, w::TABLE],
        StatementKind::UnlockTables,
    ),
    (w::UNLOCK, &[w::INSTANCE], StatementKind::UnlockInstance),
    (w::BACKUP, &[w::UNLOCK], StatementKind::UnlockInstance),
];

impl facts::StatementKind for StatementKind {
    const SELECT: Self = StatementKind::Select;
    const WRITE: Self = StatementKind::Write;
    const UNKNOWN: Self = StatementKind::Unknown;

    fn only_reads(self, is_harmless: bool) -> bool {
        match self {
            StatementKind::Select | StatementKind::Show | StatementKind::Explain { .. } => {
                is_harmless
            }
            StatementKind::Empty => true,
            _ => false,
        }
    }
}

/// Effects of COMMIT or ROLLBACK beyond the end of the transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransactionCompletion {
    /// AND CHAIN.
    pub chain: bool,
    /// RELEASE: the server closes the connection.
    pub release: bool,
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
