//! Settings that a text is parsed by when it is prepared; its meaning is fixed from then on.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::SettingSet;
use super::reported::FOLLOWED;

/// Settings that names are resolved by.
const OF_NAMES: [&[u8]; 3] = [b"search_path", b"role", b"session_authorization"];

/// Settings that affect literals and calls of immutable functions, besides the settings that
/// servers report ([`FOLLOWED`]).
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

/// Settings that affect how the text itself is tokenized.
const OF_TEXTS: [&[u8]; 2] = [b"client_encoding", b"standard_conforming_strings"];

/// Returns whether another value of this setting changes how a text is tokenized.
pub(crate) fn is_of_texts(name: &[u8]) -> bool {
    OF_TEXTS.contains(&name)
}

/// Returns whether another value of this setting changes the statement that the same text makes.
pub(crate) fn is_of_literals(name: &[u8]) -> bool {
    FOLLOWED.contains(&name) || OF_LITERALS.contains(&name)
}

/// Returns whether another value of this setting makes the same names refer to other tables.
pub(crate) fn is_of_names(name: &[u8]) -> bool {
    OF_NAMES.contains(&name)
}

/// Returns whether texts are parsed by this setting.
pub(crate) fn is_parsed_by(name: &[u8]) -> bool {
    is_of_texts(name) || is_of_literals(name) || is_of_names(name)
}

/// Fingerprint of the settings that texts are parsed by: equal numbers mean equal values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ParseSettings {
    /// The settings that names are resolved by. Servers resolve names again at each use, but report
    /// an error if the types of parameters or results have changed.
    pub names: u64,
    /// The settings that affect how literals become constants.
    pub literals: LiteralSettings,
}

/// Fingerprints of the settings that servers report, and of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct LiteralSettings {
    reported: u64,
    others: u64,
}

impl ParseSettings {
    /// Computes the fingerprint of a client's settings, without the reported ones.
    pub(super) fn of(set: &SettingSet) -> ParseSettings {
        ParseSettings {
            names: fingerprint(set, &OF_NAMES),
            literals: LiteralSettings {
                reported: 0,
                others: fingerprint(set, &OF_LITERALS),
            },
        }
    }

    /// Returns a copy with the fingerprint of the reported settings, see [`of_reports`].
    pub(super) fn with_reported(mut self, reported: u64) -> ParseSettings {
        self.literals.reported = reported;
        self
    }
}

/// Computes the fingerprint of the settings that servers report.
pub(super) fn of_reports(reports: &SettingSet) -> u64 {
    fingerprint(reports, &FOLLOWED)
}

fn fingerprint(settings: &SettingSet, names: &[&[u8]]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for name in names {
        settings.get(name).hash(&mut hasher);
    }
    hasher.finish()
}
