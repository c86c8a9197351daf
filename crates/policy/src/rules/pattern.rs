//! What a text looks like: a regular expression whose search takes time in proportion to the text.

use regex::bytes::{Regex, RegexBuilder};

/// A compiled expression may be so large; each worker has a cache of about as much for it.
const SIZE_BYTES_MAX: usize = 256 * 1024;

/// A regular expression over the bytes of a text.
#[derive(Debug, Clone)]
pub struct Pattern(Regex);

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for Pattern {}

/// It is no regular expression, or too large a one; in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadPattern(pub String);

impl Pattern {
    /// Case does not count, since SQL's does not, and `.` is a new line too; `(?-i)` and `(?-s)`
    /// say otherwise.
    ///
    /// # Errors
    /// See [`BadPattern`].
    pub fn new(written: &str) -> Result<Self, BadPattern> {
        let built = RegexBuilder::new(written)
            .case_insensitive(true)
            .dot_matches_new_line(true)
            .unicode(false)
            .size_limit(SIZE_BYTES_MAX)
            .dfa_size_limit(SIZE_BYTES_MAX)
            .build();
        built
            .map(Pattern)
            .map_err(|error| BadPattern(in_words(&error)))
    }

    /// Whether it is found anywhere in a text.
    #[must_use]
    pub fn fits(&self, text: &[u8]) -> bool {
        self.0.is_match(text)
    }
}

/// The last line says what is wrong; those before it draw the place.
fn in_words(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.trim_start_matches("error: ").to_owned()
}
