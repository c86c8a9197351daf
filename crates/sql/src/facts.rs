//! Facts about the statements of a PostgreSQL text.

use super::hint::HintComment;
use super::name::{Name, Names};
use super::token::Span;

/// Maximum number of statements of one text that are described. The facts about one statement take
/// a hundred times the bytes of a short statement.
pub const STATEMENTS_MAX: usize = 1_000;

/// Facts about a text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TextFacts<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) first: StatementFacts,
    pub(crate) more: Vec<StatementFacts>,
    pub(crate) is_cut: bool,
    pub(crate) hint: Option<HintComment<'a>>,
}

impl<'a> TextFacts<'a> {
    /// Returns the text, to which the spans of the statements refer.
    #[must_use]
    pub fn text(&self) -> &'a [u8] {
        self.text
    }

    /// Returns the statements in order: none for an empty text, and up to [`STATEMENTS_MAX`].
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
    /// Names of the functions that the statement calls.
    pub functions: Names,
    /// Tables and views that the statement names, including the names of its own WITH queries.
    pub tables: Names,
    /// Position of the statement in the text, without the semicolon.
    pub span: Span,
}

impl StatementFacts {
    /// Returns whether no word of the statement writes, locks, or changes the session.
    ///
    /// The statement may still call functions that do ([`StatementFacts::functions`], complete
    /// unless [`Names::is_cut`]), and read from views that call them. An unknown statement is no
    /// read.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        match self.kind {
            StatementKind::Select | StatementKind::CopyOut { to_client: true } => {
                self.traits.is_subset(StatementTraits::HARMLESS)
            }
            StatementKind::Explain { analyze: true } => {
                self.traits.is_subset(StatementTraits::HARMLESS)
            }
            StatementKind::Explain { analyze: false }
            | StatementKind::Show(_)
            | StatementKind::Empty => true,
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

/// An isolation level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// READ UNCOMMITTED.
    ReadUncommitted,
    /// READ COMMITTED.
    ReadCommitted,
    /// REPEATABLE READ.
    RepeatableRead,
    /// SERIALIZABLE: PostgreSQL's standbys reject it.
    Serializable,
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

/// Set of further properties of a statement, derived from its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatementTraits(u32);

impl StatementTraits {
    /// Empty set.
    pub const NONE: StatementTraits = StatementTraits(0);
    /// INSERT, UPDATE, DELETE or MERGE anywhere in the statement, including WITH queries.
    pub const WRITES: StatementTraits = StatementTraits(1);
    /// FOR UPDATE, FOR SHARE and similar clauses.
    pub const LOCKS_ROWS: StatementTraits = StatementTraits(1 << 1);
    /// SELECT … INTO: creates a table.
    pub const SELECT_INTO: StatementTraits = StatementTraits(1 << 2);
    /// Creates a temporary object, or names `pg_temp`.
    pub const TEMPORARY: StatementTraits = StatementTraits(1 << 3);
    /// Advisory locks of the session or of the transaction.
    pub const ADVISORY_LOCK: StatementTraits = StatementTraits(1 << 4);
    /// nextval, setval: writes a sequence and changes the session's currval.
    pub const NEXT_VALUE: StatementTraits = StatementTraits(1 << 5);
    /// currval, lastval: reads sequence state of the session.
    pub const CURRENT_VALUE: StatementTraits = StatementTraits(1 << 6);
    /// Changes settings in a way that the text does not determine.
    pub const SETS_UNKNOWN: StatementTraits = StatementTraits(1 << 7);
    /// `SELECT set_config(…)` with literals and nothing else; see `postgres::set_configs`.
    pub const SETS_LITERALS: StatementTraits = StatementTraits(1 << 8);
    /// setseed, or SET SEED: changes the results of random in this session.
    pub const SEED: StatementTraits = StatementTraits(1 << 9);
    /// pg_notify.
    pub const NOTIFIES: StatementTraits = StatementTraits(1 << 10);
    /// lo_* functions: large objects.
    pub const LARGE_OBJECT: StatementTraits = StatementTraits(1 << 11);
    /// Requests a transaction id, which only a primary assigns.
    pub const TRANSACTION_ID: StatementTraits = StatementTraits(1 << 12);
    /// A function that executes SQL given as text, on this server or another.
    pub const RUNS_TEXT: StatementTraits = StatementTraits(1 << 13);
    /// Names written with escapes: the named objects are unknown.
    pub const OBSCURE: StatementTraits = StatementTraits(1 << 14);
    /// Names the catalogs (`pg_catalog`, `information_schema`, `pg_…`).
    pub const CATALOG: StatementTraits = StatementTraits(1 << 15);
    /// The text ends inside a string or comment, or has a meaningless byte: the server will reject
    /// the whole text.
    pub const BROKEN: StatementTraits = StatementTraits(1 << 16);
    /// Nested too deeply to be analyzed.
    pub const TOO_DEEP: StatementTraits = StatementTraits(1 << 17);

    /// Properties that a read may have.
    const HARMLESS: StatementTraits = StatementTraits::CATALOG;

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

    pub(crate) fn add(&mut self, other: StatementTraits) {
        self.0 |= other.0;
    }
}

impl StatementFacts {
    /// Returns whether the statement calls a function of that name, in any schema.
    #[must_use]
    pub fn calls(&self, text: &[u8], name: &[u8]) -> bool {
        names_has(&self.functions, text, name)
    }

    /// Returns whether the statement names a table or view of that name, in any schema.
    #[must_use]
    pub(crate) fn names_table(&self, text: &[u8], name: &[u8]) -> bool {
        names_has(&self.tables, text, name)
    }
}

fn names_has(names: &Names, text: &[u8], name: &[u8]) -> bool {
    let is = |found: &Name| found.name_in(text).as_ref() == name;
    names.as_slice().iter().any(is)
}
