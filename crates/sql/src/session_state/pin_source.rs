//! Statements that may pin a session, in the form in which operators see them.

use std::sync::Arc;

use crate::Dialect;
use crate::digest::normalised;

/// Maximum length of the stored text of a statement, in bytes.
const STATEMENT_LENGTH_MAX: usize = 300;

/// Maximum length of the stored name of an object, in bytes.
const OBJECT_LENGTH_MAX: usize = 100;

/// Statement that may pin its session, for display.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PinSource {
    /// The statement's text without literals; empty for a login or a text that was not read.
    pub statement: Box<str>,
    /// The setting, function, table or other object that pins; empty if the statement itself does.
    pub object: Box<str>,
}

impl PinSource {
    /// Creates a source from a text, without its literals. `dialect` is `None` if the client's
    /// encoding cannot be read.
    #[must_use]
    pub fn of(text: &[u8], dialect: Option<Dialect>, object: Option<&str>) -> Arc<Self> {
        match dialect {
            Some(dialect) => Self::named(normalised(text, dialect), object.unwrap_or_default()),
            None => Self::unread("a text that cannot be read in the client's encoding"),
        }
    }

    /// Creates a source from a text without literals and the name of the object that pins.
    #[must_use]
    pub fn named(statement: String, object: impl Into<String>) -> Arc<Self> {
        Arc::new(Self {
            statement: shortened(statement, STATEMENT_LENGTH_MAX),
            object: shortened(object.into(), OBJECT_LENGTH_MAX),
        })
    }

    /// Creates a source from a description, for a request that has no text to show.
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
