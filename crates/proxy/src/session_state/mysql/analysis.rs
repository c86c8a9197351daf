//! What a MySQL text means for a session: where it may run, what it leaves behind, and what it asks
//! of the statement before.

mod body;
mod calls;
mod effects;
mod kills;
mod prepared;
mod routing;
mod set;
mod source;
mod split;
mod tables;
#[cfg(test)]
mod tests;
mod trackers;

use std::sync::Arc;

use evenkeel_policy::pins::{Pin, Pins, UnpinEvent};
use evenkeel_policy::route::{
    RoutedStatement, RoutingTraits, StatementClass, TransactionModes, Volatility,
};
use evenkeel_wire::sql::hint;
use evenkeel_wire::sql::mysql::{self, LexerModes as Reading};
use smallvec::{SmallVec, smallvec};

use super::super::PinSource;
use super::super::analysis::EFFECTS_MAX;
pub use super::super::analysis::RoutingHint;
use super::information::InfoNeeds;
use super::variables;
pub use body::bound_by_body;
pub use kills::Kill;
use split::is_end;
pub use split::parts;

/// What is known of a schema's routines, tables and views. Names come without quotes, as they are
/// written.
pub trait CatalogLookup {
    /// The worst of all functions of that name.
    fn function(&self, name: &[u8]) -> Volatility;

    /// A table, a view, anything that can be read from.
    fn relation(&self, name: &[u8]) -> Volatility;

    /// What calling a function or procedure of that name may leave behind in the session; `None`:
    /// nobody has read its body yet.
    fn binds(&self, name: &[u8]) -> Option<Pins> {
        let _ = name;
        None
    }

    /// What writing to a table of that name may leave behind by its triggers.
    fn triggers(&self, name: &[u8]) -> Pins {
        let _ = name;
        Pins::NONE
    }

    /// What reading from a view of that name may leave behind by the functions that it calls.
    fn views(&self, name: &[u8]) -> Pins {
        let _ = name;
        Pins::NONE
    }

    /// Whether any routine, trigger or view is known that leaves something behind, or asks what
    /// another statement has left: most servers have none.
    fn has_bonds(&self) -> bool {
        true
    }
}

/// What a text means. The default is that of a command without a text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TextAnalysis {
    /// For the router: its statements, in order.
    pub statements: SmallVec<[RoutedStatement; 1]>,
    /// Where a comment wants it.
    pub hint: Option<RoutingHint>,
    /// What it leaves behind, in the order of its statements; mostly nothing.
    pub effects: SmallVec<[Effect; 1]>,
    /// Routines, tables or views may be others behind it.
    pub changes_catalog: bool,
    /// It sets global variables, which new sessions begin with.
    pub sets_globals: bool,
    /// It may write: who must see it needs the GTID of its commit.
    pub writes: bool,
    /// What it asks of the statement before it.
    pub needs: InfoNeeds,
    /// It is one plain statement: run as a whole or not at all.
    pub is_atomic: bool,
    /// Its one statement begins a transaction.
    pub begins: bool,
    /// Its one statement is a KILL of a connection by its number.
    pub kill: Option<Kill>,
    /// It has, or prepares, a KILL of a connection by what is not known to be our number.
    pub kills_unknown_connection: bool,
    /// It reads or sets session trackers: those on its connection must be its client's meanwhile.
    pub names_trackers: bool,
    /// It runs what a literal says.
    pub runs_literal_text: bool,
    /// It runs routines or triggers that leave something behind, or may: their errors may have any
    /// number.
    pub(super) runs_routines: bool,
    /// It makes a stored program: where that ends, and whether more follows, is not known.
    pub defines_stored_program: bool,
    /// Its text's, under which it is counted; zero: none.
    pub digest: u64,
    /// The text, for people, if it may pin.
    pub source: Option<Arc<PinSource>>,
    /// The version of the servers that it was read for, if it has a comment that others may read
    /// otherwise; else 0.
    pub(super) read_for: u32,
    /// Each of its statements has just one reply.
    pub(super) is_counted: bool,
}

/// Something that a statement leaves behind in its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// Which statement of the text, from 0.
    pub statement: u32,
    /// What.
    pub does: EffectKind,
}

/// What a statement does to its session. All but [`Does::Pin`], [`Does::Execute`] and
/// [`Does::Unknown`] count only if it succeeds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EffectKind {
    /// Binds though the statement fails, if the server has run any of it.
    Pin(Pin),
    /// Binds if it succeeds.
    PinOnSuccess(Pin),
    /// Ends pins.
    Release(UnpinEvent),
    /// A user variable: the name in lower case, without the `@`.
    SetUser {
        /// Which.
        name: Box<[u8]>,
        /// To what.
        value: Value,
    },
    /// `timestamp`, which the server does not tell of: a literal, or back to the clock.
    SetTimestamp(Option<Box<[u8]>>),
    /// A switch that the server does not tell of by its own name, and whether it is on now.
    SetSwitch(Box<[u8]>, bool),
    /// One that not everybody may set has its DEFAULT, as on every connection.
    Defaults(Box<[u8]>),
    /// A tracker of the client's: to what, only the server knows.
    Track,
    /// A system variable that the server tells of, or it binds: its name in lower case.
    Told(Box<[u8]>),
    /// The character set of the connection: which collation that is, only the server knows.
    Collation,
    /// The modes of the next transaction.
    NextTransaction(TransactionModes),
    /// BEGIN, START TRANSACTION.
    Begin,
    /// COMMIT, ROLLBACK.
    End,
    /// SAVEPOINT: with autocommit off, a transaction begins with it.
    Savepoint,
    /// It makes one of these, of that name.
    Make(SessionObject, Box<[u8]>),
    /// It makes some of these, of which ones cannot be told.
    Unknown(SessionObject),
    /// One of these is gone.
    Unmake(SessionObject, Box<[u8]>),
    /// Tables get other names.
    Renames,
    /// PREPARE: the name in lower case, and what executing it leaves behind.
    Prepare(Box<[u8]>, Pins),
    /// EXECUTE of what was prepared.
    Execute(Box<[u8]>),
    /// LAST_INSERT_ID() is set to what the reply says.
    InsertId,
    /// LAST_INSERT_ID() is set to what only the server knows.
    InsertIdUnknown,
    /// SQL_CALC_FOUND_ROWS: FOUND_ROWS() will be asked.
    FoundRows,
    /// A SET of several things: where it fails, the first ones may be set.
    SetsSeveral,
    /// A routine or trigger that it runs may set system variables: where the result ends in an EOF,
    /// the server has told of none.
    SetsWithin,
    /// MariaDB's SET STATEMENT: the server tells of what it takes back when the statement is over.
    Restores,
}

/// What a session has by name, and only on its own connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionObject {
    /// A temporary table; the name with its schema, if one is written.
    TemporaryTable,
    /// A statement prepared by PREPARE.
    Prepared,
    /// A HANDLER.
    Handler,
    /// A lock of GET_LOCK; as often as it was taken.
    NamedLock,
    /// LOCK INSTANCE, BACKUP LOCK, or BACKUP STAGE.
    BackupLock,
}

/// The value of a user variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A literal that means the same in every session, as written.
    Same(Box<[u8]>),
    /// A string, in the character set of the client.
    String(Box<[u8]>),
}

/// Stands between the name of a schema and that of a table: a dot may be a part of either.
pub(super) const IN_SCHEMA: u8 = 0;

/// What may be left behind by SQL that nobody can read: a role among it, which a reset leaves.
pub(super) const ANYTHING: [Pin; 6] = [
    Pin::Unknown,
    Pin::Variables,
    Pin::TemporaryTable,
    Pin::NamedLock,
    Pin::Prepared,
    Pin::Sequence,
];

impl TextAnalysis {
    /// Whether other literals in its text would make no difference: one plain read or write that
    /// leaves nothing behind.
    #[must_use]
    pub fn is_fixed(&self) -> bool {
        let is_plain = |one: &RoutedStatement| {
            matches!(one.kind, StatementClass::Read | StatementClass::Write)
        };
        self.statements.len() == 1
            && self.statements.iter().all(is_plain)
            && self.effects.is_empty()
            && self.hint.is_none()
            && !self.changes_catalog
            && !self.begins
            && self.kill.is_none()
            && !self.kills_unknown_connection
            && !self.names_trackers
            && !self.runs_literal_text
    }

    /// Whether it takes or asks for a lock by name: each server has its own, and gives it in READ
    /// ONLY transactions, too. What nobody knows may do so, but is mostly harmless.
    #[must_use]
    pub fn locks_by_name(&self) -> bool {
        let mut statements = self.statements.iter();
        let pins = |pin| {
            self.effects
                .iter()
                .any(|one| one.does == EffectKind::Pin(pin))
        };
        let will_lock = |pins: &Pins| pins.has(Pin::NamedLock) && !pins.has(Pin::Unknown);
        let mut effects = self.effects.iter();
        statements.any(|one| one.traits.any(RoutingTraits::NAMED_LOCK))
            || effects
                .any(|one| matches!(&one.does, EffectKind::Prepare(_, pins) if will_lock(pins)))
            || pins(Pin::NamedLock) && !pins(Pin::Unknown)
    }

    /// Of a text that cannot be read, because its character set hides what it says.
    #[must_use]
    pub fn unreadable() -> TextAnalysis {
        TextAnalysis {
            statements: smallvec![RoutedStatement {
                kind: StatementClass::Unknown,
                traits: RoutingTraits::OBSCURE,
                calls: Volatility::Unknown,
            }],
            effects: smallvec![Effect {
                statement: 0,
                does: EffectKind::Pin(Pin::Unknown),
            }],
            changes_catalog: true,
            writes: true,
            needs: InfoNeeds::ALL.perhaps(),
            runs_routines: true,
            ..TextAnalysis::default()
        }
    }

    /// Of a text with more in it than is followed, or with what the server may read otherwise.
    fn too_much(hint: Option<RoutingHint>) -> TextAnalysis {
        TextAnalysis {
            hint,
            ..TextAnalysis::unreadable()
        }
    }

    /// Whether what has come to its end with the `index`th reply may have written; `is_last`: no
    /// other follows.
    #[must_use]
    pub fn may_write_at(&self, index: usize, is_last: bool) -> bool {
        let statement = self.statements.get(index);
        match self.is_counted {
            true => statement.is_none_or(routing::may_write),
            // The last one tells what those before it have left to be told.
            false => self.writes && is_last,
        }
    }

    /// What one statement of the text leaves behind, as long as each has one reply.
    pub(super) fn effects_of(&self, statement: usize) -> &[Effect] {
        let statement = u32::try_from(statement).unwrap_or(u32::MAX);
        let effects = &self.effects;
        let begin = effects.partition_point(|effect| effect.statement < statement);
        let end = effects.partition_point(|effect| effect.statement <= statement);
        effects.get(begin..end).unwrap_or_default()
    }
}

impl SessionObject {
    /// Why it binds.
    pub(super) const fn pin(self) -> Pin {
        match self {
            SessionObject::TemporaryTable => Pin::TemporaryTable,
            SessionObject::Prepared => Pin::Prepared,
            SessionObject::Handler => Pin::Handler,
            SessionObject::NamedLock => Pin::NamedLock,
            SessionObject::BackupLock => Pin::BackupLock,
        }
    }
}

/// Reads a text. Of a session whose character set is not [`mysql::charset_is_safe`] no text can be
/// read, and [`Meaning::unreadable`] stands for it.
#[must_use]
pub fn read(text: &[u8], modes: Reading, lookup: Option<&dyn CatalogLookup>) -> TextAnalysis {
    read_at(text, modes, lookup, 0)
}

/// Texts within texts are read no deeper.
const DEPTH_MAX: u32 = 3;

fn read_at(
    text: &[u8],
    modes: Reading,
    lookup: Option<&dyn CatalogLookup>,
    depth: u32,
) -> TextAnalysis {
    let facts = mysql::facts(text, modes);
    if facts.is_cut() || mysql::has_odd_blank(text, modes) {
        return TextAnalysis::too_much(facts.hint().map(owned_hint));
    }
    let reader = AnalysisContext {
        text,
        modes,
        lookup,
        is_single: facts.single().is_some(),
        depth,
    };
    if let Some(inner) = facts.single().and_then(|one| reader.inner(one)) {
        return TextAnalysis {
            hint: facts.hint().map(owned_hint),
            runs_literal_text: true,
            read_for: inner.read_for.max(reader.read_for(&facts)),
            ..inner
        };
    }
    let mut meaning = TextAnalysis {
        hint: facts.hint().map(owned_hint),
        is_counted: true,
        read_for: reader.read_for(&facts),
        ..TextAnalysis::default()
    };
    let mut answered = InfoNeeds::NONE;
    for (index, statement) in facts.statements().enumerate() {
        let routed = routing::statement(&reader, statement);
        meaning.writes |= routing::may_write(&routed);
        meaning.sets_globals |= statement.traits.any(mysql::StatementTraits::SETS_GLOBAL);
        meaning.changes_catalog |= routing::changes_catalog(statement, &routed);
        let needs = routing::needs(&reader, statement);
        // What is about a statement of the same text is not asked of the one before the text.
        meaning.needs = meaning.needs.and(needs.without(answered));
        answered = answered.and(routing::answers(statement.kind));
        meaning.is_counted &= routing::has_one_reply(statement.kind);
        meaning.defines_stored_program |=
            statement.traits.any(mysql::StatementTraits::STORED_PROGRAM);
        meaning.kills_unknown_connection |= kills::kills(&reader, statement);
        meaning.statements.push(routed);
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        let mut effects = effects::EffectCollector::of(index, &mut meaning.effects);
        effects::collect(&reader, statement, &mut effects);
        meaning.runs_routines |= effects.runs_routines;
        if meaning.effects.len() > EFFECTS_MAX {
            return TextAnalysis::too_much(meaning.hint);
        }
    }
    if let Some(one) = facts.single() {
        meaning.is_atomic = routing::is_atomic(one.kind);
        meaning.begins = matches!(one.kind, mysql::StatementKind::Begin { .. });
        meaning.kill = kills::kill(text, one.kind);
        meaning.kills_unknown_connection &= meaning.kill.is_none();
    } else {
        doubt_strings(&mut meaning);
        if set::changes_reading(&reader, &facts) || set::may_change_reading_within(text, &meaning) {
            set::obscure(&mut meaning);
        }
    }
    trackers::look(&reader, &facts, &mut meaning);
    meaning
}

/// Strings have the character set of the connection when their statement is read, which an earlier
/// one of the same text may have changed.
fn doubt_strings(meaning: &mut TextAnalysis) {
    let changes = |effect: &&Effect| match &effect.does {
        EffectKind::Collation => true,
        EffectKind::Told(name) => variables::is_charset(name),
        _ => false,
    };
    let Some(first) = meaning.effects.iter().find(changes) else {
        return;
    };
    let first = first.statement;
    for effect in meaning
        .effects
        .iter_mut()
        .filter(|one| one.statement > first)
    {
        if matches!(
            &effect.does,
            EffectKind::SetUser {
                value: Value::String(_),
                ..
            }
        ) {
            effect.does = EffectKind::Pin(Pin::Variables);
        }
    }
}

/// What the parts that read a statement need.
struct AnalysisContext<'a> {
    text: &'a [u8],
    modes: Reading,
    lookup: Option<&'a dyn CatalogLookup>,
    /// There is one statement in the text.
    is_single: bool,
    depth: u32,
}

impl<'a> AnalysisContext<'a> {
    /// The tokens of a statement.
    fn tokens(&self, statement: &mysql::StatementFacts) -> mysql::Tokens<'a> {
        mysql::Tokens::new(statement.span.of(self.text), self.modes)
    }

    /// As of [`Meaning::read_for`].
    fn read_for(&self, facts: &mysql::TextFacts<'_>) -> u32 {
        let mut statements = facts.statements();
        match statements.any(|one| one.traits.any(mysql::StatementTraits::VERSIONED)) {
            true => self.modes.version,
            false => 0,
        }
    }

    /// The meaning of what a statement contains and does nothing but run: MariaDB's
    /// `SET STATEMENT … FOR …` and `EXECUTE IMMEDIATE '…'`.
    fn inner(&self, statement: &mysql::StatementFacts) -> Option<TextAnalysis> {
        let is_unknown = statement.kind == mysql::StatementKind::Unknown;
        if !is_unknown || self.depth >= DEPTH_MAX || !self.modes.mariadb {
            return None;
        }
        let own = statement.span.of(self.text);
        let (inner, restores) = body::within(own, self.modes)?;
        let depth = self.depth.saturating_add(1);
        let mut meaning = read_at(&inner, self.modes, self.lookup, depth);
        let mut effects = meaning.effects.iter();
        let sets = effects
            .any(|effect| !matches!(effect.does, EffectKind::Pin(_) | EffectKind::FoundRows));
        // More than one would not be run at all.
        if meaning.statements.len() != 1 || restores && sets {
            return None;
        }
        if restores {
            meaning.effects.push(Effect {
                statement: 0,
                does: EffectKind::Restores,
            });
        }
        Some(TextAnalysis {
            begins: false,
            kills_unknown_connection: meaning.kills(),
            kill: None,
            ..meaning
        })
    }
}

fn owned_hint(hint: hint::HintComment<'_>) -> RoutingHint {
    match hint {
        hint::HintComment::Primary => RoutingHint::Primary,
        hint::HintComment::Replica => RoutingHint::Replica,
        hint::HintComment::Server(name) => RoutingHint::Server(name.into()),
    }
}
