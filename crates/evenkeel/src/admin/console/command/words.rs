//! The words of a statement: quotes taken off, comments left out.

use std::iter::Peekable;
use std::str::CharIndices;

/// One word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::admin::console) struct Word {
    pub(super) text: String,
    /// It stood in quotes: it is a name or a value, whatever it looks like.
    pub(super) is_quoted: bool,
    /// The byte at which it begins, with its quote.
    pub(super) start: usize,
    /// The byte after it.
    pub(super) end: usize,
}

/// A quote has no end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unclosed;

impl Word {
    /// Whether it is this word of the language, or this sign.
    pub(super) fn is(&self, word: &str) -> bool {
        !self.is_quoted && self.text.eq_ignore_ascii_case(word)
    }

    /// Whether it begins with this word of the language, as `SELECT*FROM` does.
    pub(super) fn begins_with(&self, word: &str) -> bool {
        let letters = self
            .text
            .find(|letter: char| !letter.is_alphanumeric() && letter != '_');
        let first = &self.text[..letters.unwrap_or(self.text.len())];
        !self.is_quoted && first.eq_ignore_ascii_case(word)
    }
}

/// Reads one word after the other.
struct Words<'a> {
    text: &'a str,
    letters: Peekable<CharIndices<'a>>,
}

/// The words of one statement; semicolons at its end are none.
pub(super) fn words(text: &str) -> Result<Vec<Word>, Unclosed> {
    let mut words = Words::of(text).collect::<Result<Vec<_>, _>>()?;
    while words.last().is_some_and(|word| word.is(";")) {
        words.pop();
    }
    Ok(words)
}

/// A text's statements.
pub(in crate::admin::console) fn statements(text: &str) -> Vec<&str> {
    let mut all = Vec::new();
    let mut start = 0;
    // What has an open quote is refused when it is its turn.
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

    /// Goes on behind so many bytes.
    fn skip(&mut self, length: usize) {
        let until = self.at() + length;
        while self.letters.next_if(|(at, _)| *at < until).is_some() {}
    }

    /// Over blanks and comments.
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

/// The length of a comment up to the end of its line.
fn line(rest: &str) -> usize {
    rest.find('\n').unwrap_or(rest.len())
}

fn is_quote(letter: char) -> bool {
    matches!(letter, '"' | '\'' | '`')
}

/// Signs that are words of their own.
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
