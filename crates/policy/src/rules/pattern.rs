//! Matches texts against a regular expression, in time proportional to the text.

use regex::bytes::{Regex, RegexBuilder};

/// Maximum size of a compiled expression; each worker has a cache of about the same size for it.
const SIZE_BYTES_MAX: usize = 256 * 1024;

/// Regular expression over the bytes of a text.
#[derive(Debug, Clone)]
pub struct Pattern(Regex);

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

impl Eq for Pattern {}

/// Error: the expression is invalid or too large; the text is the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadPattern(pub String);

impl Pattern {
    /// Compiles an expression. It ignores case, as SQL does, and `.` matches a new line; `(?-i)`
    /// and `(?-s)` change that.
    ///
    /// # Errors See [`BadPattern`].
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

    /// Returns whether the pattern matches anywhere in a text.
    #[must_use]
    pub fn fits(&self, text: &[u8]) -> bool {
        self.0.is_match(text)
    }
}

/// Returns the reason from the last line; the lines before it only mark the position.
fn in_words(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default();
    last.trim_start_matches("error: ").to_owned()
}
