//! Settings of a server connection: those set on it, and those it has reported.

use super::reported::{self, FOLLOWED};
use super::{ExportedSettings, Interner, SessionState, SettingSet, difference};

/// Settings of one server connection, which was opened without startup settings.
#[derive(Debug, Clone)]
pub struct ServerSessionState {
    /// Settings that differ from the connection's defaults, because of SET.
    pub(super) settings: SettingSet,
    /// Values that the server reports while nothing is set: those at login, updated after a reload.
    pub(super) login: SettingSet,
    /// Values that the server reported last.
    pub(super) reports: SettingSet,
    /// `reports` when no transaction was last open and every report had an explanation.
    pub(super) settled: SettingSet,
    /// Values of `login` for the settings whose defaults may differ between servers; clients must
    /// not notice that.
    pub(super) defaults: SettingSet,
}

/// State of a server connection that is being moved to another worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedState {
    settings: ExportedSettings,
    login: ExportedSettings,
    reports: ExportedSettings,
    settled: ExportedSettings,
}

impl ServerSessionState {
    /// Converts the state for transfer to another worker.
    #[must_use]
    pub fn export(&self) -> ExportedState {
        ExportedState {
            settings: self.settings.export(),
            login: self.login.export(),
            reports: self.reports.export(),
            settled: self.settled.export(),
        }
    }

    /// Converts the state that another worker has exported.
    #[must_use]
    pub fn import(carried: &ExportedState, interner: &Interner) -> ServerSessionState {
        let login = interner.import(&carried.login);
        ServerSessionState {
            settings: interner.import(&carried.settings),
            reports: interner.import(&carried.reports),
            settled: interner.import(&carried.settled),
            defaults: defaults(&login, interner),
            login,
        }
    }

    /// Creates the state after a login; `reports` are the ParameterStatus messages of the login.
    #[must_use]
    pub fn new<'a>(
        reports: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
        interner: &Interner,
    ) -> ServerSessionState {
        let lower: Vec<(Vec<u8>, &[u8])> = reports
            .into_iter()
            .map(|(name, value)| (name.to_ascii_lowercase(), value))
            .collect();
        let kept = lower.iter().filter(|(name, _)| reported::is_kept(name));
        let login = interner.of(kept.map(|(name, value)| (&**name, *value)));
        ServerSessionState {
            settings: interner.empty(),
            reports: login.clone(),
            settled: login.clone(),
            defaults: defaults(&login, interner),
            login,
        }
    }

    /// Returns the values that the server reports while nothing is set; clients are greeted with
    /// them.
    #[must_use]
    pub fn login(&self) -> &SettingSet {
        &self.login
    }

    /// Returns the settings that are set on the connection now.
    #[must_use]
    pub fn settings(&self) -> &SettingSet {
        &self.settings
    }

    /// Records a ParameterStatus message of the server, whatever caused it.
    pub fn record_report(&mut self, name: &[u8], value: &[u8], interner: &Interner) {
        let name = name.to_ascii_lowercase();
        if reported::is_kept(&name) {
            self.reports = interner.with(&self.reports, &name, value);
        }
    }

    /// Writes the SQL that gives the connection the client's settings, and appends it to `out`; it
    /// must be sent before any statement of the client.
    ///
    /// Returns the settings to pass to [`ServerSessionState::restored`] after the complete reply,
    /// or `None` if the connection already has them. If the reply has an error, nothing has
    /// changed, and the connection is not usable for the client.
    #[must_use]
    pub fn prepare(
        &self,
        session_state: &SessionState,
        interner: &Interner,
        out: &mut Vec<u8>,
    ) -> Option<SettingSet> {
        let wanted = self.wanted(session_state, interner);
        if wanted == self.settings {
            return None;
        }
        difference(&self.settings, &wanted, out);
        Some(wanted)
    }

    /// Records that the SQL of [`ServerSessionState::prepare`] was executed and `wanted` is set.
    pub fn restored(&mut self, wanted: SettingSet, interner: &Interner) {
        self.settings = wanted;
        self.settle(interner);
    }

    /// Records that DISCARD ALL was executed between two clients.
    pub fn discarded(&mut self, interner: &Interner) {
        self.settings = interner.empty();
        self.settle(interner);
    }

    /// Marks all settings as known: a reported value that is not set on the connection is its
    /// default.
    fn settle(&mut self, interner: &Interner) {
        self.settled = self.reports.clone();
        if self.reports == self.login {
            return;
        }
        for (name, value) in self.reports.iter() {
            let is_default = self.settings.get(name).is_none() && reported::is_settable(name);
            if is_default && self.login.get(name) != Some(value) {
                self.login = interner.with(&self.login, name, value);
                self.defaults = defaults(&self.login, interner);
            }
        }
    }

    /// Returns the client's settings, plus the defaults that the client was greeted with where this
    /// server's defaults differ.
    fn wanted(&self, session_state: &SessionState, interner: &Interner) -> SettingSet {
        let own = session_state.settings();
        let greeted = session_state.defaults();
        if *greeted == self.defaults {
            return own.clone();
        }
        let mut wanted = own.clone();
        for (name, value) in greeted.iter() {
            let differs = self
                .defaults
                .get(name)
                .is_some_and(|actual| actual != value);
            if differs && own.get(name).is_none() {
                wanted = interner.with(&wanted, name, value);
            }
        }
        wanted
    }
}

fn defaults(login: &SettingSet, interner: &Interner) -> SettingSet {
    interner.of(login.iter().filter(|(name, _)| FOLLOWED.contains(name)))
}
