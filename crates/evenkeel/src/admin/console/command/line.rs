//! Holds the words of a statement that have not been parsed yet.

use super::words::Word;
use crate::admin::console::error::{ConsoleError, ConsoleErrorKind};

/// Remaining words of a statement.
#[derive(Clone, Copy)]
pub(super) struct Line<'a>(pub(super) &'a [Word]);

impl<'a> Line<'a> {
    pub(super) fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn first(&self) -> Option<&'a Word> {
        self.0.first()
    }

    /// Returns whether the next word is this keyword.
    pub(super) fn sees(&self, word: &str) -> bool {
        self.first().is_some_and(|first| first.is(word))
    }

    /// Skips the next word if it is this keyword. Returns whether it was.
    pub(super) fn takes(&mut self, word: &str) -> bool {
        let is_next = self.sees(word);
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
    pub(super) fn word(&mut self) -> Result<&'a Word, ConsoleError> {
        self.next().ok_or_else(|| misses("argument"))
    }

    pub(super) fn must_take(&mut self, word: &str) -> Result<(), ConsoleError> {
        match self.takes(word) {
            true => Ok(()),
            false => Err(misses(word)),
        }
    }

    /// Returns an error if words remain.
    pub(super) fn ends(&self) -> Result<(), ConsoleError> {
        match self.first() {
            None => Ok(()),
            Some(word) => {
                let message = format!("syntax error at or near {:?}, see SHOW HELP", word.text);
                Err(ConsoleError::new(ConsoleErrorKind::Syntax, message))
            }
        }
    }
}

fn misses(what: &str) -> ConsoleError {
    ConsoleError::new(
        ConsoleErrorKind::Syntax,
        format!("missing {what}, see SHOW HELP"),
    )
}
