//! A statement that may pin its session, as people are shown it.

use std::sync::Arc;

use evenkeel_wire::sql::Dialect;
use evenkeel_wire::sql::digest::normalised;

/// Bytes of a statement's text that are kept.
const STATEMENT_LENGTH_MAX: usize = 300;

/// Bytes of an object's name that are kept.
const OBJECT_LENGTH_MAX: usize = 100;

/// A statement that may pin, for people.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PinSource {
    /// Its text without literals; empty: the login, or a text that was not read.
    pub statement: Box<str>,
    /// The setting, function, table or other object that pins; empty: the statement itself.
    pub object: Box<str>,
}

impl PinSource {
    /// A text without its literals. `None` for a dialect: its encoding hides what it says.
    #[must_use]
    pub fn of(text: &[u8], dialect: Option<Dialect>, object: Option<&str>) -> Arc<Self> {
        match dialect {
            Some(dialect) => Self::named(normalised(text, dialect), object.unwrap_or_default()),
            None => Self::unread("a text that cannot be read in the client's encoding"),
        }
    }

    /// A statement, and what of it pins.
    #[must_use]
    pub fn named(statement: String, object: impl Into<String>) -> Arc<Self> {
        Arc::new(Self {
            statement: shortened(statement, STATEMENT_LENGTH_MAX),
            object: shortened(object.into(), OBJECT_LENGTH_MAX),
        })
    }

    /// What has no text of its own that could be shown, in words.
    #[must_use]
    pub fn unread(words: &str) -> Arc<Self> {
        Self::named(words.to_owned(), "")
    }
}

fn shortened(mut text: String, length: usize) -> Box<str> {
    if text.len() > length {
        text.truncate(text.floor_char_boundary(length));
        text.push('…');
    }
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_has_no_literals_and_a_limited_length() {
        let dialect = Some(Dialect::Postgres { backslashes: false });
        let source = PinSource::of(b"LISTEN a", dialect, Some("a"));
        assert_eq!((&*source.statement, &*source.object), ("listen a", "a"));
        let long = format!("select f('secret'), {}", "a, ".repeat(1_000));
        let source = PinSource::of(long.as_bytes(), dialect, None);
        assert!(!source.statement.contains("secret"), "{source:?}");
        assert!(
            source.statement.len() < STATEMENT_LENGTH_MAX + 4,
            "{source:?}"
        );
    }
}
