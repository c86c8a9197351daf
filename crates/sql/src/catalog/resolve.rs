//! Makes a catalog of what a server has told of its functions and relations one by one.

use std::collections::{BTreeSet, HashMap};

use evenkeel_policy::pins::Pins;
use evenkeel_policy::route::Volatility;

use super::routine_pins::RoutinePins;
use super::user_code::UserCode;
use super::{Catalog, safe_functions};
use crate::session_state::analysis::Body;

/// The first oid that is not the server's own (`FirstNormalObjectId`).
pub(super) const FIRST_USER_OID: u32 = 16_384;

/// A function, aggregate or procedure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its `pg_proc.oid`.
    pub oid: u32,
    /// Its name, without the schema.
    pub name: String,
    /// As it is declared.
    pub declared: Volatility,
    /// An aggregate: what it is made of. Aggregates are all declared immutable.
    pub parts: Vec<u32>,
    /// What was seen in its body, unless it is the server's own.
    pub body: Body,
    /// It can be called with a row and nothing else, and so without parentheses: `row.name`.
    pub takes_row: bool,
}

/// A table, view, sequence or the like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relation {
    /// Its `pg_class.oid`.
    pub oid: u32,
    /// Its name, without the schema.
    pub name: String,
    /// What it is.
    pub kind: RelationKind,
    /// Functions that run when it is read.
    pub functions: Vec<u32>,
    /// Relations that are read when it is read: those of a view, children and partitions of a
    /// table, those of its row security.
    pub relations: Vec<u32>,
    /// What happens besides when it is written to.
    pub changes: Changes,
}

/// What happens when a relation is written to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// Functions that run: of triggers, defaults, rules, constraints, policies and indexes.
    pub functions: Vec<u32>,
    /// Relations that are changed along: by foreign keys and rules.
    pub relations: Vec<u32>,
}

/// What a relation is, as far as it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelationKind {
    /// A table (be it partitioned) or materialized view: it is read, wherever one is.
    Table,
    /// A view: what it reads.
    View,
    /// Replicas do not have it (unlogged), it is elsewhere (foreign tables), its state is the
    /// primary's (sequences, views of the server's activity), or reading locks (FOR UPDATE in it).
    PrimaryOnly,
}

/// Collects what a server tells.
#[derive(Debug, Default)]
pub struct Builder {
    functions: Vec<Function>,
    relations: Vec<Relation>,
    /// What operators, casts, types and domains call.
    implied: Vec<u32>,
    /// What event triggers call.
    events: Vec<u32>,
}

impl Builder {
    /// Adds one.
    pub fn function(&mut self, function: Function) {
        self.functions.push(function);
    }

    /// Adds one.
    pub fn relation(&mut self, relation: Relation) {
        self.relations.push(relation);
    }

    /// Adds functions that statements may call without naming them.
    pub fn implied(&mut self, functions: impl IntoIterator<Item = u32>) {
        self.implied.extend(functions);
    }

    /// Adds a function that runs whenever something is defined, altered or dropped.
    pub fn event(&mut self, function: u32) {
        self.events.push(function);
    }

    /// Draws the conclusions.
    #[must_use]
    pub fn build(&self, generation: u64) -> Catalog {
        let bonds = RoutinePins::of(&self.functions, &self.relations, &self.events);
        let functions = worst_of_functions(&self.functions, &bonds);
        let relations = worst_of_relations(&self.relations, &functions);
        // The server's own are what they were made to be.
        let own = self.implied.iter().filter(|oid| **oid >= FIRST_USER_OID);
        let of_users = || {
            self.functions
                .iter()
                .filter(|one| one.oid >= FIRST_USER_OID)
        };
        let is_read = |one: &Function| {
            let found = functions.get(&one.oid).copied();
            found.is_some_and(|found| found < Volatility::Volatile)
        };
        let of_rows = of_users().filter(|one| one.takes_row && !is_read(one));
        Catalog {
            generation,
            of_users: of_users().map(|one| one.name.as_bytes().into()).collect(),
            of_rows: of_rows.map(|one| one.name.as_bytes().into()).collect(),
            has_languages: self.functions.iter().any(calls_a_language),
            code: UserCode::of(&self.relations),
            custom_settings: self.custom_settings(),
            implied: worst(own.copied(), &functions),
            implied_code: self.code_of(&self.implied, &bonds),
            event_code: self.code_of(&self.events, &bonds),
            functions: by_name(&self.functions, &functions, |one| (one.oid, &one.name)),
            relations: by_name(&self.relations, &relations, |one| (one.oid, &one.name)),
            binds: bonds.of_calls(&self.functions),
            triggers: bonds.of_writes(&self.relations),
            views: bonds.of_reads(&self.relations),
        }
    }

    fn custom_settings(&self) -> Vec<Box<[u8]>> {
        let bodies = self.functions.iter().map(|one| &one.body);
        let names: BTreeSet<_> = bodies.flat_map(|body| &body.custom_settings).collect();
        names.into_iter().cloned().collect()
    }

    /// What these functions leave behind; `None`: nobody can replace the code of any.
    fn code_of(&self, oids: &[u32], bonds: &RoutinePins) -> Option<Pins> {
        let is_code = |one: &&Function| one.body.is_code && oids.contains(&one.oid);
        let pins = bonds.worst_of_calls(oids);
        let has_code = self.functions.iter().any(|one| is_code(&one));
        (has_code || !pins.is_empty()).then_some(pins)
    }
}

/// Each language that is added has a function that runs what is written in it.
pub(super) fn calls_a_language(function: &Function) -> bool {
    let name = function.name.as_str();
    function.oid >= FIRST_USER_OID && (name.ends_with("_call_handler") || name == "plsh_handler")
}

type ByOid = HashMap<u32, Volatility>;

fn worst_of_functions(all: &[Function], bonds: &RoutinePins) -> ByOid {
    let declared = all.iter().map(|one| {
        let own = own_of_function(one);
        // One that was declared otherwise must not bind its callers to a replica.
        let binds = one.oid >= FIRST_USER_OID && bonds.calling(one.oid);
        (
            one.oid,
            if binds {
                own.max(Volatility::Volatile)
            } else {
                own
            },
        )
    });
    let mut found: ByOid = declared.collect();
    for aggregate in all.iter().filter(|one| !one.parts.is_empty()) {
        let parts = worst(aggregate.parts.iter().copied(), &found);
        found.insert(aggregate.oid, parts.max(own_of_function(aggregate)));
    }
    found
}

fn own_of_function(function: &Function) -> Volatility {
    match function.oid < FIRST_USER_OID && safe_functions::is_function(&function.name) {
        true => function.declared.min(Volatility::Stable),
        false => function.declared,
    }
}

/// Views may stand on views, and a policy on its own table: repeated until nothing changes.
fn worst_of_relations(all: &[Relation], functions: &ByOid) -> ByOid {
    let own = all
        .iter()
        .map(|one| (one.oid, own_of_relation(one, functions)));
    let mut found: ByOid = own.collect();
    loop {
        let mut is_settled = true;
        for relation in all.iter().filter(|one| !one.relations.is_empty()) {
            let own = found.get(&relation.oid).copied();
            let own = own.unwrap_or(Volatility::Unknown);
            let now = worst(relation.relations.iter().copied(), &found).max(own);
            is_settled &= now == own;
            found.insert(relation.oid, now);
        }
        if is_settled {
            return found;
        }
    }
}

fn own_of_relation(relation: &Relation, functions: &ByOid) -> Volatility {
    let own = match relation.kind {
        RelationKind::Table | RelationKind::View => Volatility::Stable,
        RelationKind::PrimaryOnly => Volatility::Volatile,
    };
    own.max(worst(relation.functions.iter().copied(), functions))
}

/// One that was not told of is unknown.
fn worst(oids: impl Iterator<Item = u32>, known: &ByOid) -> Volatility {
    let each = oids.map(|oid| known.get(&oid).copied().unwrap_or(Volatility::Unknown));
    each.max().unwrap_or(Volatility::None)
}

fn by_name<T>(
    all: &[T],
    found: &ByOid,
    named: impl Fn(&T) -> (u32, &String),
) -> HashMap<Box<[u8]>, Volatility> {
    let mut names: HashMap<Box<[u8]>, Volatility> = HashMap::with_capacity(all.len());
    for one in all {
        let (oid, name) = named(one);
        let volatility = found.get(&oid).copied().unwrap_or(Volatility::Unknown);
        let worst = names.entry(name.as_bytes().into()).or_insert(volatility);
        *worst = volatility.max(*worst);
    }
    names
}
