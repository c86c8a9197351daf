//! Kinds of PostgreSQL's statements.

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
    /// INSERT, UPDATE, DELETE, MERGE, TRUNCATE, REFRESH.
    Write,
    /// CREATE, ALTER, DROP, GRANT, REVOKE, COMMENT and others that change the catalog.
    Ddl,
    /// BEGIN, START TRANSACTION.
    Begin(TransactionModes),
    /// COMMIT, END; with `chain` another transaction begins.
    Commit {
        /// AND CHAIN.
        chain: bool,
    },
    /// ROLLBACK, ABORT.
    Rollback {
        /// AND CHAIN.
        chain: bool,
    },
    /// SAVEPOINT.
    Savepoint(Span),
    /// RELEASE.
    Release(Span),
    /// ROLLBACK TO.
    RollbackTo(Span),
    /// PREPARE TRANSACTION: ends the session's transaction.
    PrepareTransaction,
    /// COMMIT PREPARED or ROLLBACK PREPARED.
    FinishPrepared,
    /// SET of a setting.
    Set(Setting),
    /// SET TRANSACTION, or SET SESSION CHARACTERISTICS.
    SetTransaction {
        /// Transaction modes that are set.
        modes: TransactionModes,
        /// SESSION CHARACTERISTICS: applies to later transactions.
        session: bool,
        /// SNAPSHOT: the transaction imports the snapshot of another one.
        snapshot: bool,
    },
    /// SET CONSTRAINTS.
    SetConstraints,
    /// RESET of a setting, with its name.
    Reset(SettingName),
    /// RESET ALL.
    ResetAll,
    /// SHOW, with the setting's name or ALL.
    Show(SettingName),
    /// LISTEN.
    Listen(Span),
    /// UNLISTEN; `None` for all channels.
    Unlisten(Option<Span>),
    /// NOTIFY.
    Notify,
    /// DECLARE CURSOR.
    Declare {
        /// Name of the cursor.
        name: Span,
        /// WITH HOLD: the cursor outlives the transaction.
        hold: bool,
    },
    /// FETCH or MOVE.
    Fetch,
    /// CLOSE; `None` for all cursors.
    CloseCursor(Option<Span>),
    /// PREPARE; the traits are those of the prepared statement.
    Prepare(Span),
    /// EXECUTE.
    Execute(Span),
    /// DEALLOCATE; `None` for all statements.
    Deallocate(Option<Span>),
    /// DISCARD.
    Discard(Discard),
    /// COPY … FROM the client, or a file or program of the server.
    CopyIn {
        /// FROM STDIN.
        from_client: bool,
    },
    /// COPY … TO.
    CopyOut {
        /// TO STDOUT.
        to_client: bool,
    },
    /// LOCK TABLE.
    Lock,
    /// EXPLAIN; with ANALYZE the statement is executed, and the traits are those of that statement.
    Explain {
        /// True if the statement is executed.
        analyze: bool,
    },
    /// CALL.
    Call,
    /// DO.
    Do,
    /// LOAD of a library into the server process.
    Load,
    /// VACUUM, ANALYZE, CLUSTER, REINDEX, CHECKPOINT: most of them are not allowed in a
    /// transaction.
    Maintenance,
    /// An unrecognized statement, which may write.
    Unknown,
}

/// Target of a DISCARD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discard {
    /// ALL: everything, including advisory locks, LISTEN and prepared statements.
    All,
    /// PLANS: cached plans only.
    Plans,
    /// SEQUENCES: the sequence state that currval and lastval return.
    Sequences,
    /// TEMP: temporary tables.
    Temp,
}

/// Modes of a transaction; `None` for those not given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TransactionModes {
    /// READ ONLY or READ WRITE.
    pub read_only: Option<bool>,
    /// ISOLATION LEVEL.
    pub isolation: Option<Isolation>,
    /// DEFERRABLE or NOT DEFERRABLE.
    pub deferrable: Option<bool>,
}

/// Setting that a SET changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Name of the setting.
    pub name: SettingName,
    /// New value.
    pub value: SettingValue,
    /// LOCAL: valid only until the transaction ends.
    pub local: bool,
}

/// Name of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingName {
    /// Name as written, possibly with a dot.
    Written(Span),
    /// Setting with its own syntax, such as TIME ZONE: the name that `SET name = value` accepts.
    Known(&'static str),
}

/// New value of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingValue {
    /// DEFAULT.
    Default,
    /// Literals: the text can be sent again as it is.
    Literals(Span),
    /// Any other value; only the server can evaluate it.
    Unknown,
}

/// Arguments of a call `set_config(name, value, is_local)` that has only literals, as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetConfig {
    /// Setting's name, a string literal.
    pub name: Span,
    /// New value, a literal; `NULL` resets the setting.
    pub value: Span,
    /// True if the value is valid only until the transaction ends.
    pub local: bool,
}

/// Statements whose first words alone determine their kinds.
pub(super) const BY_WORDS: &[ByWords<StatementKind>] = &[
    (w::LOCK, &[], StatementKind::Lock),
    (w::LOAD, &[], StatementKind::Load),
    (w::FETCH, &[], StatementKind::Fetch),
    (w::MOVE, &[], StatementKind::Fetch),
    (w::NOTIFY, &[], StatementKind::Notify),
];

impl facts::StatementKind for StatementKind {
    const SELECT: Self = StatementKind::Select;
    const WRITE: Self = StatementKind::Write;
    const UNKNOWN: Self = StatementKind::Unknown;

    fn only_reads(self, is_harmless: bool) -> bool {
        match self {
            StatementKind::Select
            | StatementKind::CopyOut { to_client: true }
            | StatementKind::Explain { analyze: true } => is_harmless,
            StatementKind::Explain { analyze: false }
            | StatementKind::Show(_)
            | StatementKind::Empty => true,
            _ => false,
        }
    }
}
