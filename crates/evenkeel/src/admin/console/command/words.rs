//! Splits a statement into words, without quotes and comments.

use std::iter::Peekable;
use std::str::CharIndices;

/// Word of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::admin::console) struct Word {
    pub(super) text: String,
    /// True if the word was quoted: it is a name or a value, never a keyword.
    pub(super) is_quoted: bool,
    /// Position of its first byte, including the quote.
    pub(super) start: usize,
    /// Position after its last byte.
    pub(super) end: usize,
}

/// Error: a quoted string has no end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unclosed;

impl Word {
    /// Returns whether the word is this keyword or sign.
    pub(super) fn is(&self, word: &str) -> bool {
        !self.is_quoted && self.text.eq_ignore_ascii_case(word)
    }

    /// Returns whether the word begins with this keyword, as `SELECT*FROM` does.
    pub(super) fn starts_with(&self, word: &str) -> bool {
        let letters = self
            .text
            .find(|letter: char| !letter.is_alphanumeric() && letter != '_');
        let first = &self.text[..letters.unwrap_or(self.text.len())];
        !self.is_quoted && first.eq_ignore_ascii_case(word)
    }
}

/// Iterator over the words of a text.
struct Words<'a> {
    text: &'a str,
    letters: Peekable<CharIndices<'a>>,
}

/// Returns the words of one statement, without semicolons at its end.
pub(super) fn words(text: &str) -> Result<Vec<Word>, Unclosed> {
    let mut words = Words::of(text).collect::<Result<Vec<_>, _>>()?;
    while words.last().is_some_and(|word| word.is(";")) {
        words.pop();
    }
    Ok(words)
}

/// Splits a text into statements.
pub(in crate::admin::console) fn statements(text: &str) -> Vec<&str> {
    let mut all = Vec::new();
    let mut start = 0;
    // A statement with an unterminated quote is rejected when it is parsed.
    for word in Words::of(text).map_while(Result::ok) {
        if word.is(";") {
            all.push(&text[start..word.end - 1]);
            start = word.end;
        }
    }
    all.push(&text[start..]);
    all.retain(|one| Words::of(one).next().is_some());
    all
}

impl<'a> Words<'a> {
    fn of(text: &'a str) -> Self {
        let letters = text.char_indices().peekable();
        Self { text, letters }
    }

    fn rest(&mut self) -> &'a str {
        let at = self.at();
        &self.text[at..]
    }

    fn at(&mut self) -> usize {
        self.letters.peek().map_or(self.text.len(), |(at, _)| *at)
    }

    /// Advances by `length` bytes.
    fn skip(&mut self, length: usize) {
        let until = self.at() + length;
        while self.letters.next_if(|(at, _)| *at < until).is_some() {}
    }

    /// Skips white space and comments.
    fn skip_nothings(&mut self) {
        loop {
            let rest = self.rest();
            let length = match rest.chars().next() {
                Some(letter) if letter.is_whitespace() => letter.len_utf8(),
                Some('#') => line(rest),
                Some('-') if rest.starts_with("-- ") => line(rest),
                Some('/') if rest.starts_with("/*") => {
                    let end = rest.get(2..).and_then(|inside| inside.find("*/"));
                    end.map_or(rest.len(), |end| end + 4)
                }
                _ => return,
            };
            self.skip(length);
        }
    }

    fn quoted(&mut self, quote: char) -> Result<String, Unclosed> {
        let mut text = String::new();
        loop {
            let (_, letter) = self.letters.next().ok_or(Unclosed)?;
            if letter == quote && self.letters.next_if(|(_, next)| *next == quote).is_none() {
                return Ok(text);
            }
            text.push(letter);
        }
    }

    fn bare(&mut self, first: char) -> String {
        let mut text = String::from(first);
        if is_sign(first) {
            return text;
        }
        let goes_on =
            |letter: char| !letter.is_whitespace() && !is_sign(letter) && !is_quote(letter);
        while let Some((_, letter)) = self.letters.next_if(|(_, letter)| goes_on(*letter)) {
            text.push(letter);
        }
        text
    }
}

impl Iterator for Words<'_> {
    type Item = Result<Word, Unclosed>;

    fn next(&mut self) -> Option<Self::Item> {
        self.skip_nothings();
        let (start, first) = self.letters.next()?;
        let is_quoted = is_quote(first);
        let text = match is_quoted {
            true => self.quoted(first),
            false => Ok(self.bare(first)),
        };
        let end = self.at();
        Some(text.map(|text| Word {
            text,
            is_quoted,
            start,
            end,
        }))
    }
}

/// Returns the length of a comment that ends with its line.
fn line(rest: &str) -> usize {
    rest.find('\n').unwrap_or(rest.len())
}

fn is_quote(letter: char) -> bool {
    matches!(letter, '"' | '\'' | '`')
}

/// Returns whether a character is a word of its own.
fn is_sign(letter: char) -> bool {
    matches!(letter, ',' | ';' | '=' | '(' | ')')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &[&str]) {
        let found = words(text).unwrap();
        let found: Vec<_> = found.iter().map(|word| word.text.as_str()).collect();
        assert_eq!(found, expect, "{text}");
    }

    #[test]
    fn words_end_at_blanks_and_signs_and_comments_are_none() {
        check("PAUSE service/shop;", &["PAUSE", "service/shop"]);
        check("a=1,b", &["a", "=", "1", ",", "b"]);
        check("VERSION()", &["VERSION", "(", ")"]);
        check(
            "/* of a driver */ SELECT 1 -- so\n# and\n, 2",
            &["SELECT", "1", ",", "2"],
        );
        check(
            r#""an ""odd"" name" 'it''s' `b`"#,
            &["an \"odd\" name", "it's", "b"],
        );
        check("`a`.`b`", &["a", ".", "b"]);
        check(" ; ", &[]);
        assert_eq!(words("PAUSE \"a"), Err(Unclosed));
        assert!(words("'a'").unwrap()[0].is_quoted);
    }

    #[test]
    fn a_text_may_hold_several_statements() {
        assert_eq!(statements("a; b;;\n "), ["a", " b"]);
        assert_eq!(
            statements("PAUSE \"a;b\"; ü;x"),
            ["PAUSE \"a;b\"", " ü", "x"]
        );
        assert!(statements(" ; /* ; */").is_empty());
        assert_eq!(statements("PAUSE \"a; b"), ["PAUSE \"a; b"]);
    }
}
