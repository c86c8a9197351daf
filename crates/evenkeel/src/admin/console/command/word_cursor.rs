//! Holds the words of a statement that have not been parsed yet.

use super::words::Word;
use crate::admin::console::error::{ConsoleError, ConsoleErrorKind};

/// Remaining words of a statement.
#[derive(Clone, Copy)]
pub(super) struct WordCursor<'a>(pub(super) &'a [Word]);

impl<'a> WordCursor<'a> {
    pub(super) fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn first(&self) -> Option<&'a Word> {
        self.0.first()
    }

    /// Returns whether the next word is this keyword.
    pub(super) fn next_is(&self, keyword: &str) -> bool {
        self.first().is_some_and(|first| first.is(keyword))
    }

    /// Skips the next word if it is this keyword. Returns whether it is.
    pub(super) fn skip_if(&mut self, keyword: &str) -> bool {
        let is_next = self.next_is(keyword);
        if is_next {
            self.0 = &self.0[1..];
        }
        is_next
    }

    pub(super) fn next(&mut self) -> Option<&'a Word> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// Returns the next word, or an error if there is none.
    pub(super) fn expect_word(&mut self) -> Result<&'a Word, ConsoleError> {
        self.next().ok_or_else(|| missing("argument"))
    }

    /// Skips this keyword, or returns an error if the next word is another.
    pub(super) fn expect_keyword(&mut self, keyword: &str) -> Result<(), ConsoleError> {
        match self.skip_if(keyword) {
            true => Ok(()),
            false => Err(missing(keyword)),
        }
    }

    /// Returns an error if words remain.
    pub(super) fn expect_end(&self) -> Result<(), ConsoleError> {
        match self.first() {
            None => Ok(()),
            Some(word) => {
                let message = format!("syntax error at or near {:?}, see SHOW HELP", word.text);
                Err(ConsoleError::new(ConsoleErrorKind::Syntax, message))
            }
        }
    }
}

fn missing(what: &str) -> ConsoleError {
    ConsoleError::new(
        ConsoleErrorKind::Syntax,
        format!("missing {what}, see SHOW HELP"),
    )
}
