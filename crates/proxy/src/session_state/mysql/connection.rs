//! What a server connection has: settings, schema, user variables, and whose statement it ran last.

use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use evenkeel_wire::mysql::trackers::Change;

use super::client_trackers;
use super::variables::{self, VariableHandling};
use crate::session_state::settings::{ExportedSettings, Interner, SettingSet};

/// Tells clients and server connections apart; 0 is nobody.
pub(super) fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The settings of one server connection: by name what it was asked for and what has been set
/// since; user variables with the `@` before their names and SQL for their values.
#[derive(Debug, Clone)]
pub struct ServerSessionState {
    pub(super) now: SettingSet,
    pub(super) schema: Option<Rc<[u8]>>,
    pub(super) number: u64,
    pub(super) leftovers: InfoOwners,
    /// What it was asked for was so before it was reset: an `init_connect` is not run again, and
    /// the server's own values may be others by now.
    pub(super) is_doubtful: bool,
    /// See [`tracking::is_by_place`].
    pub(super) is_by_place: bool,
    /// Of the server.
    pub(super) version: u32,
}

/// What the statements that it ran have left on it, and whose that is: numbers of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct InfoOwners {
    /// Who had it last.
    pub(super) holder: u64,
    /// Whose statement it ran last.
    pub(super) last_user: u64,
    /// Whose insert id it has; 0: nobody has inserted anything.
    pub(super) insert_id_of: u64,
    /// Whose rows it has counted last.
    pub(super) counts_of: u64,
    /// There are warnings, or an error.
    pub(super) warned: bool,
}

impl InfoOwners {
    /// Of somebody who will not come for it.
    pub(super) const NOBODYS: u64 = u64::MAX;
}

/// What is known of a server connection, on its way to another worker with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedState {
    now: ExportedSettings,
    schema: Option<Box<[u8]>>,
    number: u64,
    leftovers: InfoOwners,
    is_doubtful: bool,
    is_by_place: bool,
    version: u32,
}

impl ServerSessionState {
    /// As it is after its login: `fresh` is what it was asked for ([`super::FOLLOWED`]).
    #[must_use]
    pub fn new<'a>(
        fresh: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
        schema: Option<&[u8]>,
        interner: &Interner,
    ) -> ServerSessionState {
        ServerSessionState {
            now: compared(fresh, interner),
            schema: schema.map(Rc::from),
            number: next_number(),
            leftovers: InfoOwners::default(),
            is_doubtful: false,
            is_by_place: false,
            version: 0,
        }
    }

    /// At a server of this version.
    #[must_use]
    pub fn at(self, mariadb: bool, version: u32) -> ServerSessionState {
        let is_by_place = client_trackers::is_by_place(mariadb, version);
        ServerSessionState {
            is_by_place,
            version,
            ..self
        }
    }

    /// To another worker.
    #[must_use]
    pub fn export(&self) -> ExportedState {
        ExportedState {
            now: self.now.export(),
            schema: self.schema.as_deref().map(Into::into),
            number: self.number,
            leftovers: self.leftovers,
            is_doubtful: self.is_doubtful,
            is_by_place: self.is_by_place,
            version: self.version,
        }
    }

    /// From another worker.
    #[must_use]
    pub fn import(carried: &ExportedState, interner: &Interner) -> ServerSessionState {
        ServerSessionState {
            now: interner.import(&carried.now),
            schema: carried.schema.as_deref().map(Rc::from),
            number: carried.number,
            leftovers: carried.leftovers,
            is_doubtful: carried.is_doubtful,
            is_by_place: carried.is_by_place,
            version: carried.version,
        }
    }

    /// A tracker of any of its OKs, whoever caused it.
    pub fn hear(&mut self, change: &Change<'_>, interner: &Interner) {
        match change {
            Change::Variable { name, value } => hear(&mut self.now, name, value, interner),
            Change::Schema(name) => self.schema = schema(name),
            _ => {}
        }
    }

    /// It was reset, or has another user. `fresh` is what it was asked for after its login: the
    /// next client has all of that put in place. The schema stays.
    pub fn renewed<'a>(
        &mut self,
        fresh: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
        interner: &Interner,
    ) {
        self.now = compared(fresh, interner);
        self.leftovers = InfoOwners::default();
        self.is_doubtful = true;
    }

    /// Something of ours ran on it: warnings and counts are no longer those of its client.
    pub fn disturbed(&mut self) {
        self.leftovers.last_user = InfoOwners::NOBODYS;
        self.leftovers.counts_of = InfoOwners::NOBODYS;
    }

    /// The same, and it failed: there is an error.
    pub fn failed(&mut self) {
        self.disturbed();
        self.leftovers.warned = true;
    }

    /// The schema that it is in.
    #[must_use]
    pub fn schema(&self) -> Option<&[u8]> {
        self.schema.as_deref()
    }

    /// Whether it was reset, and its next client's settings were not put in place yet.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        self.is_doubtful
    }

    /// What it has.
    #[must_use]
    pub fn settings(&self) -> &SettingSet {
        &self.now
    }
}

/// None is told as an empty name.
pub(super) fn schema(name: &[u8]) -> Option<Rc<[u8]>> {
    (!name.is_empty()).then(|| name.into())
}

/// Of what was asked for, the settings.
pub(super) fn compared<'a>(
    fresh: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    interner: &Interner,
) -> SettingSet {
    let lower: Vec<(Vec<u8>, &[u8])> = fresh
        .into_iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .filter(|(name, _)| variables::is_compared(name))
        .collect();
    let pairs = lower
        .iter()
        .map(|(name, value)| (variables::canonical(name), *value));
    interner.of(pairs)
}

/// A set without one of its names.
pub(super) fn without(set: &SettingSet, name: &[u8], interner: &Interner) -> SettingSet {
    match set.get(name) {
        Some(_) => interner.of(set.iter().filter(|(own, _)| *own != name)),
        None => set.clone(),
    }
}

/// The server tells a variable's value.
pub(super) fn hear(now: &mut SettingSet, name: &[u8], value: &[u8], interner: &Interner) {
    let lower = name.to_ascii_lowercase();
    let name = variables::canonical(&lower);
    let is_setting = variables::treatment(name) == VariableHandling::Tracked;
    if !is_setting || variables::is_no_setting(name) {
        return;
    }
    if variables::is_of_connection(name) {
        // Which of its collations it has now, nobody has said.
        *now = without(now, variables::COLLATION, interner);
        return;
    }
    *now = interner.with(now, name, value);
    if let Some(sibling) = variables::sibling(name) {
        *now = without(now, sibling, interner);
    }
}
