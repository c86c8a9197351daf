//! Remembers which startup settings a pool's servers accept, and what the servers report for them.

use std::collections::HashMap;

use super::reported;
use super::{Interner, ServerSessionState, SettingSet};

/// Maximum number of remembered settings. All are forgotten when it is exceeded, and are then
/// learnt again from the servers.
const KNOWN_MAX: usize = 1024;

/// Servers accept every value of this setting, and clients rarely share one; so it is not checked.
const ALWAYS_RIGHT: &[u8] = b"application_name";

/// Startup settings that the servers of one pool (database, user) have accepted.
#[derive(Debug, Default)]
pub struct AcceptedSettings {
    /// The value that servers report, by the name and the value that the client sends.
    known: HashMap<(Text, Text), Option<Text>>,
}

type Text = Box<[u8]>;

impl AcceptedSettings {
    /// Returns whether a login with these settings must first try them on a server. Without that,
    /// the server's error would follow the successful login.
    #[must_use]
    pub fn is_missing(&self, startup: &SettingSet) -> bool {
        let unknown = |(name, value): (&[u8], &[u8])| {
            name != ALWAYS_RIGHT && !self.known.contains_key(&(name.into(), value.into()))
        };
        startup.iter().any(unknown)
    }

    /// Records that a server connection has these settings, and what it reports for them.
    pub fn learn(&mut self, startup: &SettingSet, server: &ServerSessionState) {
        if self.known.len().saturating_add(startup.iter().len()) > KNOWN_MAX {
            self.known.clear();
        }
        for (name, value) in startup.iter() {
            let report = server.reports.get(name).map(Into::into);
            self.known.insert((name.into(), value.into()), report);
        }
    }

    /// Returns the parameters that a client with these settings is greeted with, without a query to
    /// a server. They are the server connection's reports at login, changed by the client's
    /// settings.
    #[must_use]
    pub fn greeting(
        &self,
        startup: &SettingSet,
        server: &ServerSessionState,
        interner: &Interner,
    ) -> SettingSet {
        let mut parameters = server.login.clone();
        for (name, value) in startup.iter() {
            if parameters.get(name).is_none() || !reported::is_settable(name) {
                continue;
            }
            let known = self.known.get(&(name.into(), value.into()));
            let report = known.and_then(Option::as_deref).unwrap_or(value);
            parameters = interner.with(&parameters, name, report);
        }
        parameters
    }
}
