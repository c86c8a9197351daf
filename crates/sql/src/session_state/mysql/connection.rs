//! State of a server connection: settings, schema, user variables, and the client it served last.

use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use evenkeel_wire::mysql::trackers::Change;

use super::client_trackers;
use super::variables::{self, VariableHandling};
use crate::session_state::settings::{ExportedSettings, Interner, SettingSet};

/// Returns a unique number for a client or a server connection; 0 is never used.
pub(super) fn next_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Session state of one server connection. The settings contain the variables queried after the
/// login and those set since. User variables have an `@` before their names, and SQL as values.
#[derive(Debug, Clone)]
pub struct ServerSessionState {
    pub(super) settings: SettingSet,
    pub(super) schema: Option<Rc<[u8]>>,
    pub(super) number: u64,
    pub(super) owners: ResultOwners,
    /// True from a reset until settings are restored. Settings are then those queried before the
    /// reset: `init_connect` is not executed again, and the server's defaults may have changed
    /// since.
    pub(super) must_restore: bool,
    /// True if the server reports variables by place ([`client_trackers::has_merged_reports`]).
    pub(super) has_merged_reports: bool,
    /// Version of the server; 0 if not set.
    pub(super) version: u32,
}

/// Client numbers of the owners of the results that executed statements left on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct ResultOwners {
    /// Client that had the connection last.
    pub(super) holder: u64,
    /// Client whose statement was executed last.
    pub(super) last_user: u64,
    /// Client that owns the insert id; 0 if none was set.
    pub(super) insert_id_owner: u64,
    /// Client that owns the last count of rows.
    pub(super) count_owner: u64,
    /// True if there are warnings or an error.
    pub(super) has_warnings: bool,
}

impl ResultOwners {
    /// Owner that never reads its results.
    pub(super) const NO_CLIENT: u64 = u64::MAX;
}

/// State of a server connection that is being moved to another worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedState {
    settings: ExportedSettings,
    schema: Option<Box<[u8]>>,
    number: u64,
    owners: ResultOwners,
    must_restore: bool,
    has_merged_reports: bool,
    version: u32,
}

impl ServerSessionState {
    /// Returns the state after a login: `fresh` holds the queried variables ([`super::FOLLOWED`]).
    #[must_use]
    pub fn new<'a>(
        fresh: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
        schema: Option<&[u8]>,
        interner: &Interner,
    ) -> ServerSessionState {
        ServerSessionState {
            settings: initial_settings(fresh, interner),
            schema: schema.map(Rc::from),
            number: next_number(),
            owners: ResultOwners::default(),
            must_restore: false,
            has_merged_reports: false,
            version: 0,
        }
    }

    /// Returns the state with the server's kind and version.
    #[must_use]
    pub fn with_version(self, mariadb: bool, version: u32) -> ServerSessionState {
        let has_merged_reports = client_trackers::has_merged_reports(mariadb, version);
        ServerSessionState {
            has_merged_reports,
            version,
            ..self
        }
    }

    /// Returns the state for another worker.
    #[must_use]
    pub fn export(&self) -> ExportedState {
        ExportedState {
            settings: self.settings.export(),
            schema: self.schema.as_deref().map(Into::into),
            number: self.number,
            owners: self.owners,
            must_restore: self.must_restore,
            has_merged_reports: self.has_merged_reports,
            version: self.version,
        }
    }

    /// Returns the state from another worker.
    #[must_use]
    pub fn import(carried: &ExportedState, interner: &Interner) -> ServerSessionState {
        ServerSessionState {
            settings: interner.import(&carried.settings),
            schema: carried.schema.as_deref().map(Rc::from),
            number: carried.number,
            owners: carried.owners,
            must_restore: carried.must_restore,
            has_merged_reports: carried.has_merged_reports,
            version: carried.version,
        }
    }

    /// Applies a tracker of any OK on this connection, regardless of the command that caused it.
    pub fn record_report(&mut self, change: &Change<'_>, interner: &Interner) {
        match change {
            Change::Variable { name, value } => {
                apply_variable(&mut self.settings, name, value, interner)
            }
            Change::Schema(name) => self.schema = schema(name),
            _ => {}
        }
    }

    /// Updates the state after a reset or a change of the user. `fresh` holds the variables queried
    /// after the login; all of them are restored for the next client. The schema is kept.
    pub fn apply_reset<'a>(
        &mut self,
        fresh: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
        interner: &Interner,
    ) {
        self.settings = initial_settings(fresh, interner);
        self.owners = ResultOwners::default();
        self.must_restore = true;
    }

    /// Records that a command of Evenkeel ran: warnings and counts are no longer those of its
    /// client.
    pub fn disown_results(&mut self) {
        self.owners.last_user = ResultOwners::NO_CLIENT;
        self.owners.count_owner = ResultOwners::NO_CLIENT;
    }

    /// Records that a command of Evenkeel failed and left an error.
    pub fn failed(&mut self) {
        self.disown_results();
        self.owners.has_warnings = true;
    }

    /// Returns the current schema.
    #[must_use]
    pub fn schema(&self) -> Option<&[u8]> {
        self.schema.as_deref()
    }

    /// Returns whether the connection was reset, and the next client's settings are not restored
    /// yet.
    #[must_use]
    pub fn must_restore(&self) -> bool {
        self.must_restore
    }

    /// Returns the current settings.
    #[must_use]
    pub fn settings(&self) -> &SettingSet {
        &self.settings
    }
}

/// Returns the schema that a server reports; an empty name means none.
pub(super) fn schema(name: &[u8]) -> Option<Rc<[u8]>> {
    (!name.is_empty()).then(|| name.into())
}

/// Returns the settings among the queried variables.
pub(super) fn initial_settings<'a>(
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

/// Returns the set without one of its names.
pub(super) fn without(set: &SettingSet, name: &[u8], interner: &Interner) -> SettingSet {
    match set.get(name) {
        Some(_) => interner.of(set.iter().filter(|(own, _)| *own != name)),
        None => set.clone(),
    }
}

/// Applies a variable's value that the server reported.
pub(super) fn apply_variable(
    settings: &mut SettingSet,
    name: &[u8],
    value: &[u8],
    interner: &Interner,
) {
    let lower = name.to_ascii_lowercase();
    let name = variables::canonical(&lower);
    let is_setting = variables::handling(name) == VariableHandling::Tracked;
    if !is_setting || variables::is_no_setting(name) {
        return;
    }
    if variables::is_of_connection(name) {
        // The server has not reported which collation of the character set is active now.
        *settings = without(settings, variables::COLLATION, interner);
        return;
    }
    *settings = interner.with(settings, name, value);
    if let Some(sibling) = variables::sibling(name) {
        *settings = without(settings, sibling, interner);
    }
}
