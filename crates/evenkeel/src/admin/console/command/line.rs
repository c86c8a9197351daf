//! What is left of a statement while it is understood.

use super::words::Word;
use crate::admin::console::error::{ConsoleError, ConsoleErrorKind};

/// Words that have not been looked at.
#[derive(Clone, Copy)]
pub(super) struct Line<'a>(pub(super) &'a [Word]);

impl<'a> Line<'a> {
    pub(super) fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn first(&self) -> Option<&'a Word> {
        self.0.first()
    }

    /// Whether this word of the language comes next.
    pub(super) fn sees(&self, word: &str) -> bool {
        self.first().is_some_and(|first| first.is(word))
    }

    /// Passes over this word of the language if it comes next.
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

    /// The next word, which must be there.
    pub(super) fn word(&mut self) -> Result<&'a Word, ConsoleError> {
        self.next().ok_or_else(|| misses("argument"))
    }

    pub(super) fn must_take(&mut self, word: &str) -> Result<(), ConsoleError> {
        match self.takes(word) {
            true => Ok(()),
            false => Err(misses(word)),
        }
    }

    /// Nothing may be left.
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
