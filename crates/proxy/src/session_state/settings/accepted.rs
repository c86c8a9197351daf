//! Which settings of startup messages a server is known to accept, and what it makes of them.

use std::collections::HashMap;

use super::reported;
use super::{Interner, ServerSessionState, SettingSet};

/// More are forgotten all at once: they are found again by asking.
const KNOWN_MAX: usize = 1024;

/// Any value is right, and none of two clients need be the same.
const ALWAYS_RIGHT: &[u8] = b"application_name";

/// What the servers of one pool (database, user) have been seen to accept.
#[derive(Debug, Default)]
pub struct AcceptedSettings {
    /// The reported value of a setting by its name and its value as a client gives it.
    known: HashMap<(Text, Text), Option<Text>>,
}

type Text = Box<[u8]>;

impl AcceptedSettings {
    /// Whether a login with these settings must wait for a server to accept them: else its error
    /// would be the client's first answer, not that of the login.
    #[must_use]
    pub fn is_missing(&self, startup: &SettingSet) -> bool {
        let unknown = |(name, value): (&[u8], &[u8])| {
            name != ALWAYS_RIGHT && !self.known.contains_key(&(name.into(), value.into()))
        };
        startup.iter().any(unknown)
    }

    /// A server connection has them in place and has reported what it makes of them.
    pub fn learn(&mut self, startup: &SettingSet, on: &ServerSessionState) {
        if self.known.len().saturating_add(startup.iter().len()) > KNOWN_MAX {
            self.known.clear();
        }
        for (name, value) in startup.iter() {
            let report = on.reports.get(name).map(Into::into);
            self.known.insert((name.into(), value.into()), report);
        }
    }

    /// What a client with these settings is greeted with, without asking: what the server
    /// connection began with, and what it makes of the settings.
    #[must_use]
    pub fn greeting(
        &self,
        startup: &SettingSet,
        on: &ServerSessionState,
        interner: &Interner,
    ) -> SettingSet {
        let mut told = on.login.clone();
        for (name, value) in startup.iter() {
            if told.get(name).is_none() || !reported::is_settable(name) {
                continue;
            }
            let known = self.known.get(&(name.into(), value.into()));
            let report = known.and_then(Option::as_deref).unwrap_or(value);
            told = interner.with(&told, name, report);
        }
        told
    }
}
