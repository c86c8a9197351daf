//! What a PostgreSQL text means for a session: where it may run, and what it leaves behind.

mod block;
mod effects;
mod pins;
mod routing;
#[cfg(test)]
mod tests;

pub use block::binds as bound_by_body;

use evenkeel_policy::pins::{Pin, Pins, Release};
use evenkeel_policy::route::{Kind, Modes, Statement, Traits, Volatility};
use evenkeel_wire::sql::facts::Discard;
use evenkeel_wire::sql::{hint, postgres};
use smallvec::{SmallVec, smallvec};

use crate::knowledge::Catalog;

/// What is known of a database's functions and relations.
pub trait Lookup {
    /// The worst of all functions of that name.
    fn function(&self, name: &[u8]) -> Volatility;

    /// A table, a view, anything that can be read from.
    fn relation(&self, name: &[u8]) -> Volatility;

    /// The worst that a statement may call without naming it: operators, casts, types.
    fn implied(&self) -> Volatility {
        Volatility::None
    }

    /// What calling a function of that name may leave behind in the session, as far as its body
    /// tells.
    fn binds(&self, name: &[u8]) -> Pins {
        let _ = name;
        Pins::NONE
    }
}

impl Lookup for Catalog {
    fn function(&self, name: &[u8]) -> Volatility {
        Catalog::function(self, name)
    }

    fn relation(&self, name: &[u8]) -> Volatility {
        Catalog::relation(self, name)
    }

    fn implied(&self) -> Volatility {
        Catalog::implied(self)
    }
}

/// What a text means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meaning {
    /// For the router: its statements, in order.
    pub statements: SmallVec<[Statement; 1]>,
    /// Where a comment wants it.
    pub hint: Option<Hint>,
    /// What it leaves behind, in the order of its statements; mostly nothing.
    pub effects: SmallVec<[Effect; 1]>,
    /// The catalog of the database may be another behind it.
    pub changes_catalog: bool,
    /// It may write: who must see it needs a position sampled after its commit.
    pub writes: bool,
}

/// Where a comment wants a text to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// On the primary.
    Primary,
    /// On a replica.
    Replica,
    /// On the server of that name.
    Server(Box<[u8]>),
}

/// Something that a statement leaves behind in its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// Which statement of the text, from 0.
    pub statement: u32,
    /// What.
    pub does: Does,
}

/// What a statement does to its session. All but [`Does::Pin`] counts only once the server says
/// that the statement is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Does {
    /// Binds from the moment it is sent: it holds though the statement fails.
    Pin(Pin),
    /// Binds when it is complete: a failure takes it back.
    PinOnSuccess(Pin),
    /// Ends pins, when the transaction that it is in commits.
    Release(Release),
    /// A setting of the session: the name in lower case, the value as `set_config` takes it.
    Set {
        /// Which.
        name: Box<[u8]>,
        /// To what.
        value: Box<[u8]>,
    },
    /// Back to what the session began with.
    Reset(Box<[u8]>),
    /// RESET ALL.
    ResetAll,
    /// The modes of this transaction only.
    SetTransaction(Modes),
    /// COMMIT, PREPARE TRANSACTION.
    Commit,
    /// ROLLBACK.
    Rollback,
    /// SAVEPOINT.
    Savepoint(Box<[u8]>),
    /// RELEASE.
    ReleaseSavepoint(Box<[u8]>),
    /// ROLLBACK TO.
    RollbackTo(Box<[u8]>),
    /// PREPARE in SQL: binds ([`Pin::Prepared`]).
    Prepare(Box<[u8]>),
    /// EXECUTE in SQL.
    Execute(Box<[u8]>),
    /// DEALLOCATE of one.
    Deallocate(Box<[u8]>),
    /// DEALLOCATE ALL.
    DeallocateAll,
    /// DISCARD.
    Discard(Discard),
}

impl Meaning {
    /// Of a text that cannot be read, because its encoding hides what it says.
    #[must_use]
    pub fn unreadable() -> Meaning {
        Meaning {
            statements: smallvec![Statement {
                kind: Kind::Unknown,
                traits: Traits::OBSCURE,
                calls: Volatility::Unknown,
            }],
            hint: None,
            effects: smallvec![Effect {
                statement: 0,
                does: Does::Pin(Pin::Unknown),
            }],
            changes_catalog: true,
            writes: true,
        }
    }
}

/// Reads a text. `backslashes`: the session's `standard_conforming_strings` is off; of a session
/// whose `client_encoding` is not [`postgres::encoding_is_safe`] no text can be read, and
/// [`Meaning::unreadable`] stands for it.
#[must_use]
pub fn read(text: &[u8], backslashes: bool, catalog: Option<&dyn Lookup>) -> Meaning {
    let facts = postgres::facts(text, backslashes);
    let mut meaning = Meaning {
        statements: SmallVec::new(),
        hint: facts.hint().map(owned_hint),
        effects: SmallVec::new(),
        changes_catalog: false,
        writes: false,
    };
    let reader = Reader {
        text,
        backslashes,
        catalog,
    };
    for (index, statement) in facts.statements().enumerate() {
        let routed = routing::statement(&reader, statement);
        meaning.writes |= routing::may_write(&routed);
        meaning.changes_catalog |= routing::changes_catalog(statement.kind, &routed);
        meaning.statements.push(routed);
        let mut effects = effects::Effects {
            statement: u32::try_from(index).unwrap_or(u32::MAX),
            list: &mut meaning.effects,
        };
        effects::collect(&reader, statement, &mut effects);
    }
    meaning
}

/// What the parts that read a statement need.
struct Reader<'a> {
    text: &'a [u8],
    backslashes: bool,
    catalog: Option<&'a dyn Lookup>,
}

fn owned_hint(hint: hint::Hint<'_>) -> Hint {
    match hint {
        hint::Hint::Primary => Hint::Primary,
        hint::Hint::Replica => Hint::Replica,
        hint::Hint::Server(name) => Hint::Server(name.into()),
    }
}
