//! What a MySQL or MariaDB server's routines, views, tables and triggers do when a statement names
//! them.

mod body;

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use crate::mysql::{self, LexerModes};
use evenkeel_policy::pins::Pins;
use evenkeel_policy::route::Volatility;
use smallvec::SmallVec;

use crate::session_state::mysql::{CatalogLookup, bound_by_body};

/// Longer names are allocated when they are looked up.
const NAME_LENGTH: usize = 64;

/// Views are made of views; deeper ones stay unknown.
const ROUNDS_MAX: usize = 16;

type Named<T> = HashMap<Box<[u8]>, T>;

/// By name in lower case, whatever the schema: the worst of all that bear the name counts.
#[derive(Debug, PartialEq, Eq)]
pub struct Routines {
    generation: u64,
    functions: Named<Volatility>,
    relations: Named<Volatility>,
    /// Of functions and procedures; `None`: there is one whose body is hidden.
    binds: Named<Option<Pins>>,
    triggers: Named<Pins>,
    /// Of views, by the functions that they call; `None`: one whose definition is hidden.
    views: Named<Option<Pins>>,
    /// Any of these leaves or asks something.
    has_bonds: bool,
    /// Whoever asked sees all tables.
    sees_tables: bool,
    /// Schemas whose triggers are hidden.
    hidden_schemas: Vec<String>,
}

/// A function or procedure, as the server lists it.
#[derive(Debug, Clone, Default)]
pub struct Routine {
    /// Its name.
    pub name: String,
    /// It is called in expressions.
    pub is_function: bool,
    /// `SQL_DATA_ACCESS`: what it says of itself.
    pub access: String,
    /// `None`: it is hidden from whoever asked.
    pub body: Option<String>,
    /// The `sql_mode` that it is read by.
    pub sql_mode: String,
}

/// A view.
#[derive(Debug, Clone, Default)]
pub struct ViewDefinition {
    /// Its name.
    pub name: String,
    /// Its query; `None`: it is hidden from whoever asked.
    pub definition: Option<String>,
}

/// A trigger.
#[derive(Debug, Clone, Default)]
pub struct Trigger {
    /// The table whose changes it follows.
    pub table: String,
    /// What it does.
    pub body: String,
    /// The `sql_mode` that it is read by.
    pub sql_mode: String,
}

/// All that a server lists.
#[derive(Debug, Clone, Default)]
pub struct RoutineListing {
    /// It is a MariaDB.
    pub mariadb: bool,
    /// Whoever asked sees all tables: where none is listed, there is none.
    pub sees_tables: bool,
    /// Names of tables.
    pub tables: Vec<String>,
    /// Views.
    pub views: Vec<ViewDefinition>,
    /// Functions and procedures.
    pub routines: Vec<Routine>,
    /// Triggers.
    pub triggers: Vec<Trigger>,
    /// Schemas whose triggers are hidden from whoever asked.
    pub blind: Vec<String>,
}

impl Routines {
    /// Draws the conclusions. A later reading has a higher generation.
    #[must_use]
    pub fn new(generation: u64, listed: &RoutineListing) -> Routines {
        let mut routines = Routines {
            generation,
            functions: functions(listed),
            relations: Named::default(),
            binds: Named::default(),
            triggers: Named::default(),
            views: Named::default(),
            has_bonds: false,
            sees_tables: listed.sees_tables,
            hidden_schemas: listed.blind.clone(),
        };
        for routine in &listed.routines {
            routines.binds.insert(key(&routine.name), NOTHING);
        }
        for table in &listed.tables {
            routines.relations.insert(key(table), Volatility::Stable);
        }
        routines.resolve_views(listed);
        // What a body leaves behind hangs on what it calls, and on the triggers of what it writes
        // to.
        let counts = [
            listed.routines.len(),
            listed.triggers.len(),
            listed.views.len(),
        ];
        for _ in 0..=counts.into_iter().sum() {
            let before = (routines.binds.clone(), routines.triggers.clone());
            let before = (before, routines.views.clone());
            for routine in &listed.routines {
                routines.note_bound(routine, listed);
            }
            for trigger in &listed.triggers {
                routines.note_trigger(trigger, listed);
            }
            for view in &listed.views {
                routines.note_view(view, listed);
            }
            let ((binds, triggers), views) = before;
            if binds == routines.binds && triggers == routines.triggers && views == routines.views {
                break;
            }
        }
        // Every statement looks up its tables: mostly there is nothing to be found.
        routines.triggers.retain(|_, pins| !pins.is_empty());
        routines.views.retain(|_, pins| *pins != NOTHING);
        routines.has_bonds = !routines.triggers.is_empty()
            || !routines.views.is_empty()
            || routines.binds.values().any(|pins| *pins != NOTHING);
        routines
    }

    /// Higher for one that was read later: what was concluded from another may be wrong now.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether nothing would be concluded otherwise.
    #[must_use]
    pub fn says_the_same_as(&self, other: &Routines) -> bool {
        let own = (
            &self.functions,
            &self.relations,
            &self.binds,
            &self.triggers,
            &self.views,
        );
        own == (
            &other.functions,
            &other.relations,
            &other.binds,
            &other.triggers,
            &other.views,
        )
    }

    /// Schemas whose triggers nobody may see: what they leave in a session is not known.
    #[must_use]
    pub fn blind(&self) -> &[String] {
        &self.hidden_schemas
    }

    /// Whether all tables are visible: where none is known, there is none.
    #[must_use]
    pub fn sees_tables(&self) -> bool {
        self.sees_tables
    }

    /// How many functions, and tables and views, are known by name.
    #[must_use]
    pub fn count(&self) -> (usize, usize) {
        (self.functions.len(), self.relations.len())
    }

    fn note_bound(&mut self, routine: &Routine, listed: &RoutineListing) {
        let modes = listed.modes(&routine.sql_mode);
        let body = routine.body.as_ref();
        let pins = body.and_then(|body| self.bound(body.as_bytes(), modes));
        add(
            self.binds.entry(key(&routine.name)).or_insert(NOTHING),
            pins,
        );
    }

    fn note_trigger(&mut self, trigger: &Trigger, listed: &RoutineListing) {
        let pins = self.bound(trigger.body.as_bytes(), listed.modes(&trigger.sql_mode));
        let known = self.triggers.entry(key(&trigger.table));
        let known = known.or_insert(Pins::NONE);
        let pins = pins.unwrap_or_else(anything);
        pins.iter().for_each(|pin| known.add(pin));
    }

    fn note_view(&mut self, view: &ViewDefinition, listed: &RoutineListing) {
        let definition = view.definition.as_ref();
        let pins = definition.and_then(|text| {
            let (text, modes) = (text.as_bytes(), listed.modes(""));
            for name in body::look(text, modes).names {
                self.note_written_through(view, &name);
            }
            self.bound(text, modes)
        });
        add(self.views.entry(key(&view.name)).or_insert(NOTHING), pins);
    }

    /// What is written to a view may be written to each table that it names, whose triggers run.
    fn note_written_through(&mut self, view: &ViewDefinition, table: &[u8]) {
        let pins = self.triggers(table);
        let known = self.triggers.entry(key(&view.name));
        let known = known.or_insert(Pins::NONE);
        *known = known.and(pins);
    }

    /// What a body may leave behind, as far as its callees and triggers are known; `None`: it calls
    /// one that is hidden.
    fn bound(&self, body: &[u8], modes: LexerModes) -> Option<Pins> {
        let mut pins = Some(bound_by_body(body, modes));
        let found = body::look(body, modes);
        for callee in &found.calls {
            // What is no routine of the server's users is one of its own.
            add(
                &mut pins,
                self.binds.get(callee).copied().unwrap_or(NOTHING),
            );
        }
        for procedure in &found.procedures {
            // One that is not listed is hidden.
            add(&mut pins, self.binds.get(procedure).copied().flatten());
        }
        // What it names may be a view that it reads from.
        for name in &found.names {
            add(&mut pins, self.views.get(name).copied().unwrap_or(NOTHING));
        }
        if found.writes {
            let all = self.triggers.values();
            all.for_each(|own| add(&mut pins, Some(*own)));
        }
        pins
    }

    /// A view is what it calls and reads from; one of views, when they are known.
    fn resolve_views(&mut self, listed: &RoutineListing) {
        for _ in 0..ROUNDS_MAX {
            let found: Vec<_> = listed
                .views
                .iter()
                .map(|view| (key(&view.name), self.of_view(view, listed)))
                .collect();
            let mut views: Named<Volatility> = Named::default();
            for (name, volatility) in found {
                let known = views.entry(name).or_insert(Volatility::Stable);
                *known = volatility.max(*known);
            }
            let mut is_new = false;
            for (name, volatility) in views {
                // A table of another schema may bear the name too: the view is the worse one.
                is_new |= self.relations.insert(name, volatility) != Some(volatility);
            }
            if !is_new {
                return;
            }
        }
    }

    fn of_view(&self, view: &ViewDefinition, listed: &RoutineListing) -> Volatility {
        let Some(definition) = &view.definition else {
            return Volatility::Unknown;
        };
        let facts = mysql::facts(definition.as_bytes(), listed.modes(""));
        let Some(query) = facts.single().filter(|query| query.only_reads()) else {
            return Volatility::Volatile;
        };
        if query.functions.is_cut() || query.tables.is_cut() {
            return Volatility::Unknown;
        }
        let text = facts.text();
        let named = |name: &crate::name::Name| mysql::identifier(name.name.of(text));
        let functions = query.functions.as_slice().iter();
        let functions = functions.map(|name| self.function(&named(name)));
        let tables = query.tables.as_slice().iter();
        let tables = tables.map(|name| self.relation(&named(name)));
        Volatility::worst(functions.chain(tables).chain([Volatility::Stable]))
    }
}

impl CatalogLookup for Routines {
    fn function(&self, name: &[u8]) -> Volatility {
        let known = find(&self.functions, name).copied();
        known.unwrap_or(Volatility::Unknown)
    }

    fn relation(&self, name: &[u8]) -> Volatility {
        if name.eq_ignore_ascii_case(b"dual") {
            return Volatility::None;
        }
        let known = find(&self.relations, name).copied();
        known.unwrap_or(Volatility::Unknown)
    }

    fn call_pins(&self, name: &[u8]) -> Option<Pins> {
        find(&self.binds, name).copied().flatten()
    }

    fn triggers(&self, name: &[u8]) -> Pins {
        find(&self.triggers, name).copied().unwrap_or(Pins::NONE)
    }

    fn has_pins(&self) -> bool {
        self.has_bonds
    }

    fn views(&self, name: &[u8]) -> Pins {
        let known = find(&self.views, name).copied();
        known.unwrap_or(NOTHING).unwrap_or_else(anything)
    }
}

/// What is known to leave nothing behind.
const NOTHING: Option<Pins> = Some(Pins::NONE);

/// What a body that is hidden may leave behind.
fn anything() -> Pins {
    bound_by_body(b"EXECUTE", LexerModes::default())
}

/// The worst of two.
fn add(known: &mut Option<Pins>, pins: Option<Pins>) {
    *known = known.zip(pins).map(|(mut known, pins)| {
        pins.iter().for_each(|pin| known.add(pin));
        known
    });
}

impl RoutineListing {
    /// How a text of that `sql_mode` is read. Stored texts have no comments of other versions.
    fn modes(&self, sql_mode: &str) -> LexerModes {
        let has = |mode: &str| sql_mode.split(',').any(|one| one == mode);
        LexerModes {
            ansi_quotes: has("ANSI_QUOTES"),
            no_backslash_escapes: has("NO_BACKSLASH_ESCAPES"),
            nbsp_byte: 0,
            mariadb: self.mariadb,
            version: u32::MAX,
        }
    }
}

/// A function, and those that it calls.
type Calls = (Box<[u8]>, Vec<Box<[u8]>>);

/// What each function does: its own text, and that of the functions that it calls.
fn functions(listed: &RoutineListing) -> Named<Volatility> {
    let mut functions: Named<Volatility> = Named::default();
    let mut calls: Vec<Calls> = Vec::new();
    for routine in listed.routines.iter().filter(|one| one.is_function) {
        let name = key(&routine.name);
        let own = match &routine.body {
            None => Volatility::Unknown,
            Some(_) if routine.access.eq_ignore_ascii_case("MODIFIES SQL DATA") => {
                Volatility::Volatile
            }
            Some(text) => {
                let found = body::look(text.as_bytes(), listed.modes(&routine.sql_mode));
                calls.push((name.clone(), found.calls));
                match found.writes {
                    true => Volatility::Volatile,
                    false => Volatility::Stable,
                }
            }
        };
        let known = functions.entry(name).or_insert(Volatility::None);
        *known = own.max(*known);
    }
    for _ in 0..=calls.len() {
        let mut is_new = false;
        for (name, callees) in &calls {
            // What is no function of the server's users is one of its own.
            let called = callees.iter().filter_map(|callee| functions.get(callee));
            let worst = Volatility::worst(called.copied());
            if let Some(own) = functions.get_mut(name).filter(|own| **own < worst) {
                *own = worst;
                is_new = true;
            }
        }
        if !is_new {
            break;
        }
    }
    functions
}

fn key(name: &str) -> Box<[u8]> {
    name.to_lowercase().into_bytes().into()
}

fn find<'a, T>(named: &'a Named<T>, name: &[u8]) -> Option<&'a T> {
    if named.is_empty() {
        return None;
    }
    if !name.is_ascii() {
        let name = String::from_utf8_lossy(name).to_lowercase();
        return named.get(name.as_bytes());
    }
    let mut lower: SmallVec<[u8; NAME_LENGTH]> = SmallVec::from_slice(name);
    lower.make_ascii_lowercase();
    named.get(&*lower)
}
