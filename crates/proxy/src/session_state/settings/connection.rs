//! What a server connection has: settings that were put in place on it, and what it reported.

use super::reported::{self, FOLLOWED};
use super::{ExportedSettings, Interner, SessionState, SettingSet, difference};

/// The settings of one server connection, which was opened without any of its own.
#[derive(Debug, Clone)]
pub struct ServerSessionState {
    /// Those that differ from what it began with, by SET.
    pub(super) now: SettingSet,
    /// What it reports where nothing is set: as it was opened, or a reload has made it since.
    pub(super) login: SettingSet,
    /// What it has reported last.
    pub(super) reports: SettingSet,
    /// The same when last no transaction was open and all was explained.
    pub(super) settled: SettingSet,
    /// Of what it began with, that in which servers may differ and clients must not notice.
    pub(super) defaults: SettingSet,
}

/// What is known of a server connection, on its way to another worker with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedState {
    now: ExportedSettings,
    login: ExportedSettings,
    reports: ExportedSettings,
    settled: ExportedSettings,
}

impl ServerSessionState {
    /// To another worker.
    #[must_use]
    pub fn export(&self) -> ExportedState {
        ExportedState {
            now: self.now.export(),
            login: self.login.export(),
            reports: self.reports.export(),
            settled: self.settled.export(),
        }
    }

    /// From another worker.
    #[must_use]
    pub fn import(carried: &ExportedState, interner: &Interner) -> ServerSessionState {
        let login = interner.import(&carried.login);
        ServerSessionState {
            now: interner.import(&carried.now),
            reports: interner.import(&carried.reports),
            settled: interner.import(&carried.settled),
            defaults: defaults(&login, interner),
            login,
        }
    }

    /// As it is after its login; `reports` are the ParameterStatus messages of that.
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
            now: interner.empty(),
            reports: login.clone(),
            settled: login.clone(),
            defaults: defaults(&login, interner),
            login,
        }
    }

    /// What it reports where nothing is set: what a client is greeted with.
    #[must_use]
    pub fn login(&self) -> &SettingSet {
        &self.login
    }

    /// What it has now.
    #[must_use]
    pub fn settings(&self) -> &SettingSet {
        &self.now
    }

    /// A ParameterStatus of it, whatever caused it.
    pub fn hear(&mut self, name: &[u8], value: &[u8], interner: &Interner) {
        let name = name.to_ascii_lowercase();
        if reported::is_kept(&name) {
            self.reports = interner.with(&self.reports, &name, value);
        }
    }

    /// What makes the connection fit for the client: the text to be sent before anything of it,
    /// appended to `out`, and the settings to be given to [`OnServer::placed`] when all of its
    /// answer has come; `None` if it is fit as it is. An error in the answer means that it is not
    /// fit, and nothing was changed.
    #[must_use]
    pub fn prepare(
        &self,
        journal: &SessionState,
        interner: &Interner,
        out: &mut Vec<u8>,
    ) -> Option<SettingSet> {
        let wanted = self.wanted(journal, interner);
        if wanted == self.now {
            return None;
        }
        difference(&self.now, &wanted, out);
        Some(wanted)
    }

    /// What [`OnServer::prepare`] wanted is in place.
    pub fn placed(&mut self, wanted: SettingSet, interner: &Interner) {
        self.now = wanted;
        self.settle(interner);
    }

    /// DISCARD ALL was done to it between two clients.
    pub fn discarded(&mut self, interner: &Interner) {
        self.now = interner.empty();
        self.settle(interner);
    }

    /// All that it has is known: what it reports of anything else is its default.
    fn settle(&mut self, interner: &Interner) {
        self.settled = self.reports.clone();
        if self.reports == self.login {
            return;
        }
        for (name, value) in self.reports.iter() {
            let is_default = self.now.get(name).is_none() && reported::is_settable(name);
            if is_default && self.login.get(name) != Some(value) {
                self.login = interner.with(&self.login, name, value);
                self.defaults = defaults(&self.login, interner);
            }
        }
    }

    /// The client's settings, and the defaults that it was greeted with where this server has
    /// others.
    fn wanted(&self, journal: &SessionState, interner: &Interner) -> SettingSet {
        let own = journal.settings();
        let greeted = journal.defaults();
        if *greeted == self.defaults {
            return own.clone();
        }
        let mut wanted = own.clone();
        for (name, value) in greeted.iter() {
            let differs = self.defaults.get(name).is_some_and(|here| here != value);
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
