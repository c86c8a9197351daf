//! Tracks the ParameterStatus values that a client has received, and those it must still receive.

use crate::postgres;

use super::{Interner, ServerSessionState, SettingSet, parse_settings, values};

/// Parameters of the server or of the client's path to it: sent at login and never again.
const OF_SERVER: [&[u8]; 4] = [
    b"in_hot_standby",
    b"integer_datetimes",
    b"server_encoding",
    b"server_version",
];

/// Parameters in which servers' defaults may differ, and which change the format of results.
pub(super) const FOLLOWED: [&[u8]; 5] = [
    b"client_encoding",
    b"datestyle",
    b"intervalstyle",
    b"standard_conforming_strings",
    b"timezone",
];

/// Reported parameters that cannot be set.
const NOT_SETTABLE: [&[u8]; 1] = [b"is_superuser"];

/// Differs between servers on purpose: not repeated unless the client has set it.
const OWN_TO_SERVER: &[u8] = b"default_transaction_read_only";

/// Names in the server's spelling, which clients compare with.
const SPELLINGS: [(&[u8], &[u8]); 3] = [
    (b"datestyle", b"DateStyle"),
    (b"intervalstyle", b"IntervalStyle"),
    (b"timezone", b"TimeZone"),
];

/// Returns whether a parameter, in the server's spelling, describes the server itself.
#[must_use]
pub fn is_of_server(name: &[u8]) -> bool {
    OF_SERVER.contains(&name)
}

/// Returns whether a parameter is tracked for a session.
pub(super) fn is_kept(name: &[u8]) -> bool {
    !OF_SERVER.contains(&name)
}

/// Returns whether a parameter reports a setting of the session.
pub(super) fn is_settable(name: &[u8]) -> bool {
    is_kept(name) && !NOT_SETTABLE.contains(&name)
}

/// Parameters that one client has received.
#[derive(Debug, Clone)]
pub struct ReportedParameters {
    values: SettingSet,
    backslashes: bool,
    is_readable: bool,
    is_utf8: bool,
    /// Fingerprint of the reported settings that texts are parsed by.
    fingerprint: u64,
}

impl ReportedParameters {
    /// Creates the state of a client that was greeted with these values.
    #[must_use]
    pub fn new(values: SettingSet) -> ReportedParameters {
        let mut reported = ReportedParameters {
            values,
            backslashes: false,
            is_readable: true,
            is_utf8: true,
            fingerprint: 0,
        };
        reported.update_modes();
        reported
    }

    /// Returns the values that the client received last; names are in lower case.
    #[must_use]
    pub fn values(&self) -> &SettingSet {
        &self.values
    }

    /// Returns whether a backslash is an escape character in the session's plain strings.
    #[must_use]
    pub fn backslashes(&self) -> bool {
        self.backslashes
    }

    /// Returns whether texts in the session's encoding can be read.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.is_readable
    }

    /// Returns whether texts outside ASCII are UTF-8.
    #[must_use]
    pub fn is_utf8(&self) -> bool {
        self.is_utf8
    }

    /// Returns the fingerprint of the reported settings that texts are parsed by.
    pub(super) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Records a ParameterStatus message that arrived from the server while the client is on it.
    /// Returns whether it is forwarded to the client.
    pub fn record_report(&mut self, name: &[u8], value: &[u8], interner: &Interner) -> bool {
        let name = name.to_ascii_lowercase();
        if !is_kept(&name) || self.values.get(&name) == Some(value) {
            return false;
        }
        self.values = interner.with(&self.values, &name, value);
        self.update_modes();
        true
    }

    /// Calls `report` for each parameter that the client must receive before the next
    /// ReadyForQuery, after it moved to another server connection and its settings were set there.
    pub fn catch_up(
        &mut self,
        server: &ServerSessionState,
        own: &SettingSet,
        interner: &Interner,
        mut report: impl FnMut(&[u8], &[u8]),
    ) {
        if self.values == server.reports {
            return;
        }
        for (name, value) in server.reports.iter() {
            let is_servers = name == OWN_TO_SERVER && own.get(name).is_none();
            if is_servers || self.values.get(name) == Some(value) {
                continue;
            }
            report(spelling(name), value);
            self.values = interner.with(&self.values, name, value);
        }
        self.update_modes();
    }

    fn update_modes(&mut self) {
        let conforming = self.values.get(b"standard_conforming_strings");
        self.backslashes = conforming.and_then(values::boolean) == Some(false);
        let encoding = self.values.get(b"client_encoding").unwrap_or(b"UTF8");
        self.is_readable = postgres::encoding_is_safe(encoding);
        self.is_utf8 = matches!(encoding, b"UTF8" | b"UNICODE");
        self.fingerprint = parse_settings::of_reports(&self.values);
    }
}

/// Returns a reported name in the server's spelling.
#[must_use]
pub fn spelling(name: &[u8]) -> &[u8] {
    let known = SPELLINGS.iter().find(|(lower, _)| *lower == name);
    known.map_or(name, |(_, written)| written)
}
