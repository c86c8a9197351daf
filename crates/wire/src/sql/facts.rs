//! What is known of a text's statements: the same words for every dialect.

use super::hint::HintComment;
use super::name::{Name, Names};
use super::token::Span;

/// So many statements of one text are told of: what is known of one takes a hundred times the
/// bytes of a short one.
pub const STATEMENTS_MAX: usize = 1_000;

/// What a text is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TextFacts<'a> {
    pub(crate) text: &'a [u8],
    pub(crate) first: StatementFacts,
    pub(crate) more: Vec<StatementFacts>,
    pub(crate) is_cut: bool,
    pub(crate) hint: Option<HintComment<'a>>,
}

impl<'a> TextFacts<'a> {
    /// The text, which the spans of its statements point into.
    #[must_use]
    pub fn text(&self) -> &'a [u8] {
        self.text
    }

    /// The statements in order; none for an empty text, and [`STATEMENTS_MAX`] at most.
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
    /// The functions that it calls, by name.
    pub functions: Names,
    /// The tables and views that it names; names of its own WITH queries among them.
    pub tables: Names,
    /// Its text, without the semicolon.
    pub span: Span,
}

impl StatementFacts {
    /// Whether nothing in the text of it writes, locks, or changes the session.
    ///
    /// It may still call functions that do ([`Statement::functions`], unless the list
    /// [`Names::is_cut`]), and read from views that call them. Unknown is not a read.
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
    /// Nothing but blanks and comments.
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
    /// COMMIT, END; `chain`: and begin another.
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
    /// PREPARE TRANSACTION: ends the transaction of this session.
    PrepareTransaction,
    /// COMMIT PREPARED or ROLLBACK PREPARED.
    FinishPrepared,
    /// SET of a setting.
    Set(Setting),
    /// SET TRANSACTION, or SET SESSION CHARACTERISTICS.
    SetTransaction {
        /// What is set.
        modes: TransactionModes,
        /// SESSION CHARACTERISTICS: for the transactions to come.
        session: bool,
        /// SNAPSHOT: the transaction takes another's.
        snapshot: bool,
    },
    /// SET CONSTRAINTS.
    SetConstraints,
    /// RESET of a setting; its name.
    Reset(SettingName),
    /// RESET ALL.
    ResetAll,
    /// SHOW; the setting's name, or ALL.
    Show(SettingName),
    /// LISTEN.
    Listen(Span),
    /// UNLISTEN; `None`: of all.
    Unlisten(Option<Span>),
    /// NOTIFY.
    Notify,
    /// DECLARE CURSOR.
    Declare {
        /// The cursor's name.
        name: Span,
        /// WITH HOLD: it outlives the transaction.
        hold: bool,
    },
    /// FETCH or MOVE.
    Fetch,
    /// CLOSE; `None`: all cursors.
    CloseCursor(Option<Span>),
    /// PREPARE; the traits are those of the statement it prepares.
    Prepare(Span),
    /// EXECUTE.
    Execute(Span),
    /// DEALLOCATE; `None`: all.
    Deallocate(Option<Span>),
    /// DISCARD.
    Discard(Discard),
    /// COPY … FROM, a file or program of the server if not from the client.
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
    /// EXPLAIN; with ANALYZE the statement is run, and the traits are its own.
    Explain {
        /// Whether it is run.
        analyze: bool,
    },
    /// CALL.
    Call,
    /// DO.
    Do,
    /// LOAD of a library into the session.
    Load,
    /// VACUUM, ANALYZE, CLUSTER, REINDEX, CHECKPOINT: what may not be in a transaction, mostly.
    Maintenance,
    /// Nothing that we know: whatever it is, it may write.
    Unknown,
}

/// What DISCARD throws away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Discard {
    /// Everything; also advisory locks, LISTEN and prepared statements.
    All,
    /// PLANS: cached plans only.
    Plans,
    /// SEQUENCES: what currval and lastval remember.
    Sequences,
    /// TEMP: temporary tables.
    Temp,
}

/// The modes of a transaction, where given.
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
    /// SERIALIZABLE: PostgreSQL's standbys refuse it.
    Serializable,
}

/// A setting that a SET changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Which.
    pub name: SettingName,
    /// To what.
    pub value: SettingValue,
    /// LOCAL: only until the transaction ends.
    pub local: bool,
}

/// What a setting is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingName {
    /// As written, perhaps with a dot.
    Written(Span),
    /// One that has a syntax of its own, such as TIME ZONE: the name that `SET name = value` takes.
    Known(&'static str),
}

/// What a setting is set to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingValue {
    /// DEFAULT.
    Default,
    /// Literals: the text can be sent again as it is.
    Literals(Span),
    /// Anything else: only the server knows.
    Unknown,
}

/// A call `set_config(name, value, is_local)` with literals only, as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SetConfig {
    /// The setting's name, a string literal.
    pub name: Span,
    /// The value, a literal; `NULL` resets.
    pub value: Span,
    /// Only until the transaction ends.
    pub local: bool,
}

/// What a statement may do besides, by its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatementTraits(u32);

impl StatementTraits {
    /// Nothing.
    pub const NONE: StatementTraits = StatementTraits(0);
    /// INSERT, UPDATE, DELETE or MERGE somewhere in it, be it inside WITH.
    pub const WRITES: StatementTraits = StatementTraits(1);
    /// FOR UPDATE, FOR SHARE and their kind.
    pub const LOCKS_ROWS: StatementTraits = StatementTraits(1 << 1);
    /// SELECT … INTO: makes a table.
    pub const SELECT_INTO: StatementTraits = StatementTraits(1 << 2);
    /// Makes something temporary, or names `pg_temp`.
    pub const TEMPORARY: StatementTraits = StatementTraits(1 << 3);
    /// Advisory locks of the session or of the transaction.
    pub const ADVISORY_LOCK: StatementTraits = StatementTraits(1 << 4);
    /// nextval, setval: writes, and currval remembers it in the session.
    pub const NEXT_VALUE: StatementTraits = StatementTraits(1 << 5);
    /// currval, lastval: reads what the session remembers.
    pub const CURRENT_VALUE: StatementTraits = StatementTraits(1 << 6);
    /// Changes settings in a way that its text does not tell.
    pub const SETS_UNKNOWN: StatementTraits = StatementTraits(1 << 7);
    /// `SELECT set_config(…)` of literals and nothing else; see `postgres::set_configs`.
    pub const SETS_LITERALS: StatementTraits = StatementTraits(1 << 8);
    /// setseed, or SET SEED: changes what random gives in this session.
    pub const SEED: StatementTraits = StatementTraits(1 << 9);
    /// pg_notify.
    pub const NOTIFIES: StatementTraits = StatementTraits(1 << 10);
    /// lo_* : large objects.
    pub const LARGE_OBJECT: StatementTraits = StatementTraits(1 << 11);
    /// Asks for a transaction id, which only a primary gives.
    pub const TRANSACTION_ID: StatementTraits = StatementTraits(1 << 12);
    /// A function that runs SQL given as text, here or elsewhere.
    pub const RUNS_TEXT: StatementTraits = StatementTraits(1 << 13);
    /// Names written with escapes: what is named cannot be told.
    pub const OBSCURE: StatementTraits = StatementTraits(1 << 14);
    /// Names the catalogs (`pg_catalog`, `information_schema`, `pg_…`).
    pub const CATALOG: StatementTraits = StatementTraits(1 << 15);
    /// The text ends inside a string or comment, or has a byte without meaning: the server will
    /// refuse all of it.
    pub const BROKEN: StatementTraits = StatementTraits(1 << 16);
    /// Nested too deep to be followed.
    pub const TOO_DEEP: StatementTraits = StatementTraits(1 << 17);

    /// What a read may have.
    const HARMLESS: StatementTraits = StatementTraits::CATALOG;

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

    pub(crate) fn add(&mut self, other: StatementTraits) {
        self.0 |= other.0;
    }
}

impl StatementFacts {
    /// Whether it calls a function of that name, in whatever schema.
    #[must_use]
    pub fn calls(&self, text: &[u8], name: &[u8]) -> bool {
        names_has(&self.functions, text, name)
    }

    /// Whether it names a table or view of that name, in whatever schema.
    #[must_use]
    pub fn names_table(&self, text: &[u8], name: &[u8]) -> bool {
        names_has(&self.tables, text, name)
    }
}

fn names_has(names: &Names, text: &[u8], name: &[u8]) -> bool {
    let is = |found: &Name| found.name_in(text).as_ref() == name;
    names.as_slice().iter().any(is)
}
