//! Which settings a text is read by when it is prepared: what it says is made of them for good.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::SettingSet;
use super::reported::FOLLOWED;

/// Settings that names are looked up by.
const OF_NAMES: [&[u8]; 3] = [b"search_path", b"role", b"session_authorization"];

/// What is made of literals and of calls that never change, beside the settings that servers
/// report ([`FOLLOWED`]).
const OF_LITERALS: [&[u8]; 10] = [
    b"array_nulls",
    b"backslash_quote",
    b"bytea_output",
    b"extra_float_digits",
    b"lc_monetary",
    b"quote_all_identifiers",
    b"sql_inheritance",
    b"timezone_abbreviations",
    b"transform_null_equals",
    b"xmloption",
];

/// Settings by which the text itself is taken apart.
const OF_TEXTS: [&[u8]; 2] = [b"client_encoding", b"standard_conforming_strings"];

/// Whether another value of it makes the same text another one.
pub(crate) fn is_of_texts(name: &[u8]) -> bool {
    OF_TEXTS.contains(&name)
}

/// Whether another value of it makes another statement of the same text.
pub(crate) fn is_of_literals(name: &[u8]) -> bool {
    FOLLOWED.contains(&name) || OF_LITERALS.contains(&name)
}

/// Whether another value of it makes other tables of the same names.
pub(crate) fn is_of_names(name: &[u8]) -> bool {
    OF_NAMES.contains(&name)
}

/// What texts are read by: the same numbers where the values are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ParseSettings {
    /// The settings that names are looked up by. Servers do that again at each use, but refuse what
    /// has other types of parameters or results then.
    pub names: u64,
    /// The settings that make constants of literals.
    pub literals: LiteralSettings,
}

/// Those that servers report, and the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LiteralSettings {
    reported: u64,
    others: u64,
}

impl ParseSettings {
    /// Of what a client has set, apart from what was reported.
    pub(super) fn of(set: &SettingSet) -> ParseSettings {
        ParseSettings {
            names: number(set, &OF_NAMES),
            literals: LiteralSettings {
                reported: 0,
                others: number(set, &OF_LITERALS),
            },
        }
    }

    /// The same where this was reported, see [`of_reports`].
    pub(super) fn told(mut self, reported: u64) -> ParseSettings {
        self.literals.reported = reported;
        self
    }
}

/// What servers' reports tell of it.
pub(super) fn of_reports(told: &SettingSet) -> u64 {
    number(told, &FOLLOWED)
}

fn number(settings: &SettingSet, names: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for name in names {
        settings.get(name).hash(&mut hasher);
    }
    hasher.finish()
}
