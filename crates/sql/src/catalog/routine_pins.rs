//! What calling functions, reading views and writing to tables may leave behind in a session: by
//! their own bodies, and by what these call and change in turn.

use std::collections::HashMap;

use evenkeel_policy::pins::{Pin, Pins};

use super::resolve::{FIRST_USER_OID, Function, Relation, calls_a_language};
use crate::session_state::analysis::{Body, builtin_pins};

/// By oid; only what leaves anything behind.
#[derive(Debug, Default)]
pub(super) struct RoutinePins {
    calls: ByOid,
    reads: ByOid,
    writes: ByOid,
}

type ByOid = HashMap<u32, Pins>;
type ByName = HashMap<Box<[u8]>, Pins>;

impl RoutinePins {
    /// Functions call functions and change tables, whose triggers are functions: repeated until
    /// nothing is new.
    pub(super) fn of(
        functions: &[Function],
        relations: &[Relation],
        events: &[u32],
    ) -> RoutinePins {
        let mut bonds = RoutinePins::default();
        let has_languages = functions.iter().any(calls_a_language);
        let own = functions
            .iter()
            .map(|one| (one.oid, own_of(one, has_languages)));
        bonds.calls = own.filter(|(_, pins)| !pins.is_empty()).collect();
        loop {
            let of_events = bonds.worst_of_calls(events);
            let is_new = bonds.follow_calls(functions, relations, of_events);
            if !(is_new | bonds.follow_relations(relations)) {
                return bonds;
            }
        }
    }

    /// Whether calling it leaves anything behind.
    pub(super) fn calling(&self, oid: u32) -> bool {
        self.calls.contains_key(&oid)
    }

    /// What calling all of these leaves behind.
    pub(super) fn worst_of_calls(&self, oids: &[u32]) -> Pins {
        worst(&self.calls, oids)
    }

    /// Of users' functions, by name; in which way one of the server's is called, a text tells.
    pub(super) fn of_calls(&self, functions: &[Function]) -> ByName {
        let of_users = functions.iter().filter(|one| one.oid >= FIRST_USER_OID);
        by_name(&self.calls, of_users.map(|one| (one.oid, &*one.name)))
    }

    pub(super) fn of_reads(&self, relations: &[Relation]) -> ByName {
        by_name(&self.reads, relations.iter().map(named))
    }

    pub(super) fn of_writes(&self, relations: &[Relation]) -> ByName {
        by_name(&self.writes, relations.iter().map(named))
    }

    /// True: something is new.
    fn follow_calls(
        &mut self,
        functions: &[Function],
        relations: &[Relation],
        of_events: Pins,
    ) -> bool {
        let called = self.of_calls(functions);
        let changed = self.of_writes(relations);
        let mut is_new = false;
        for one in functions {
            let calls = one.body.calls.iter().filter_map(|name| called.get(name));
            let changes = one.body.relations.iter();
            let changes = changes.filter_map(|name| changed.get(name));
            let by_name = calls
                .chain(changes)
                .fold(Pins::NONE, |all, own| all.and(*own));
            let defining = match one.body.defines {
                true => of_events,
                false => Pins::NONE,
            };
            let pins = by_name.and(worst(&self.calls, &one.parts)).and(defining);
            is_new |= note(&mut self.calls, one.oid, pins);
        }
        is_new
    }

    fn follow_relations(&mut self, relations: &[Relation]) -> bool {
        let mut is_new = false;
        for one in relations {
            let read = worst(&self.calls, &one.functions).and(worst(&self.reads, &one.relations));
            is_new |= note(&mut self.reads, one.oid, read);
            // A view passes on what is written to it, and so does a table to its partitions.
            let written = worst(&self.calls, &one.changes.functions)
                .and(worst(&self.writes, &one.changes.relations))
                .and(worst(&self.writes, &one.relations));
            is_new |= note(&mut self.writes, one.oid, read.and(written));
        }
        is_new
    }
}

/// By what its own text says. An extension's function may bear the name of what it does.
fn own_of(function: &Function, has_languages: bool) -> Pins {
    let mut pins = function.body.pins;
    // What may run anything may call a function in one of these.
    if has_languages && pins.and(Body::unread().pins) == pins {
        pins.add(Pin::LanguageState);
    }
    pins.and(builtin_pins(function.name.as_bytes()))
}

fn named(relation: &Relation) -> (u32, &str) {
    (relation.oid, &relation.name)
}

fn worst(known: &ByOid, oids: &[u32]) -> Pins {
    let found = oids.iter().filter_map(|oid| known.get(oid));
    found.fold(Pins::NONE, |all, own| all.and(*own))
}

/// True: it is more than was known.
fn note(known: &mut ByOid, oid: u32, pins: Pins) -> bool {
    if pins.is_empty() {
        return false;
    }
    let own = known.entry(oid).or_insert(Pins::NONE);
    let before = std::mem::replace(own, own.and(pins));
    before != *own
}

fn by_name<'a>(known: &ByOid, all: impl Iterator<Item = (u32, &'a str)>) -> ByName {
    let mut names = ByName::new();
    for (oid, name) in all {
        if let Some(pins) = known.get(&oid) {
            let own = names.entry(name.as_bytes().into()).or_insert(Pins::NONE);
            *own = own.and(*pins);
        }
    }
    names
}
