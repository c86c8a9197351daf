//! ParameterStatus: what a client was told last, and what it has to be told now.

use evenkeel_wire::sql::postgres;

use super::{Interner, ServerSessionState, SettingSet, parse_settings, values};

/// About the server itself, or the client's way to it: said at login and never again.
const OF_SERVER: [&[u8]; 4] = [
    b"in_hot_standby",
    b"integer_datetimes",
    b"server_encoding",
    b"server_version",
];

/// Where servers' defaults may differ, and results would look different.
pub(super) const FOLLOWED: [&[u8]; 5] = [
    b"client_encoding",
    b"datestyle",
    b"intervalstyle",
    b"standard_conforming_strings",
    b"timezone",
];

/// Reported, but nothing that can be set.
const NOT_SETTABLE: [&[u8]; 1] = [b"is_superuser"];

/// Differs among servers on purpose: not repeated unless the client has set it.
const OWN_TO_SERVER: &[u8] = b"default_transaction_read_only";

/// How the names are written: the server's spelling, which clients look for.
const SPELLINGS: [(&[u8], &[u8]); 3] = [
    (b"datestyle", b"DateStyle"),
    (b"intervalstyle", b"IntervalStyle"),
    (b"timezone", b"TimeZone"),
];

/// Whether a report, spelled as servers do, tells of the server itself.
#[must_use]
pub fn is_of_server(name: &[u8]) -> bool {
    OF_SERVER.contains(&name)
}

/// Whether it belongs to what is compared.
pub(super) fn is_kept(name: &[u8]) -> bool {
    !OF_SERVER.contains(&name)
}

/// Whether a report of it tells a setting of the session.
pub(super) fn is_settable(name: &[u8]) -> bool {
    is_kept(name) && !NOT_SETTABLE.contains(&name)
}

/// What one client was told.
#[derive(Debug, Clone)]
pub struct ReportedParameters {
    told: SettingSet,
    backslashes: bool,
    is_readable: bool,
    is_utf8: bool,
    /// What texts are read by, of what it was told.
    reading: u64,
}

impl ReportedParameters {
    /// As the client was greeted.
    #[must_use]
    pub fn new(told: SettingSet) -> ReportedParameters {
        let mut reported = ReportedParameters {
            told,
            backslashes: false,
            is_readable: true,
            is_utf8: true,
            reading: 0,
        };
        reported.look();
        reported
    }

    /// What it was told last, names in lower case.
    #[must_use]
    pub fn told(&self) -> &SettingSet {
        &self.told
    }

    /// Whether backslashes escape in the session's plain strings.
    #[must_use]
    pub fn backslashes(&self) -> bool {
        self.backslashes
    }

    /// Whether the session's texts can be read.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.is_readable
    }

    /// Whether texts outside ASCII are UTF-8.
    pub(super) fn is_utf8(&self) -> bool {
        self.is_utf8
    }

    /// What texts are read by, as far as that is reported.
    pub(super) fn reading(&self) -> u64 {
        self.reading
    }

    /// A ParameterStatus has come from the server while the client is with it; whether it is
    /// passed on.
    pub fn hear(&mut self, name: &[u8], value: &[u8], interner: &Interner) -> bool {
        let name = name.to_ascii_lowercase();
        if !is_kept(&name) || self.told.get(&name) == Some(value) {
            return false;
        }
        self.told = interner.with(&self.told, &name, value);
        self.look();
        true
    }

    /// The client is with another server connection, its settings in place: says what it has to be
    /// told, name and value as ParameterStatus has them, before the next ReadyForQuery.
    pub fn catch_up(
        &mut self,
        on: &ServerSessionState,
        own: &SettingSet,
        interner: &Interner,
        mut tell: impl FnMut(&[u8], &[u8]),
    ) {
        if self.told == on.reports {
            return;
        }
        for (name, value) in on.reports.iter() {
            let is_servers = name == OWN_TO_SERVER && own.get(name).is_none();
            if is_servers || self.told.get(name) == Some(value) {
                continue;
            }
            tell(spelling(name), value);
            self.told = interner.with(&self.told, name, value);
        }
        self.look();
    }

    fn look(&mut self) {
        let conforming = self.told.get(b"standard_conforming_strings");
        self.backslashes = conforming.and_then(values::boolean) == Some(false);
        let encoding = self.told.get(b"client_encoding").unwrap_or(b"UTF8");
        self.is_readable = postgres::encoding_is_safe(encoding);
        self.is_utf8 = matches!(encoding, b"UTF8" | b"UNICODE");
        self.reading = parse_settings::of_reports(&self.told);
    }
}

/// A reported name as servers write it.
#[must_use]
pub fn spelling(name: &[u8]) -> &[u8] {
    let known = SPELLINGS.iter().find(|(lower, _)| *lower == name);
    known.map_or(name, |(_, written)| written)
}
