//! As much of Rust's grammar as the rules need: what is code, where functions and tests are.

/// Character that replaces each character of a literal in [`code`].
pub(crate) const LITERAL: char = '\u{1}';

/// A function and the lines it takes, from its `fn` to its closing brace, counted from 1.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) first_line: usize,
    pub(crate) last_line: usize,
}

impl Function {
    pub(crate) fn lines(&self) -> usize {
        self.last_line - self.first_line + 1
    }
}

/// The text with comments blanked and the contents of literals replaced; lines stay in place.
pub(crate) fn code(text: &str) -> String {
    let mut scanner = Scanner {
        rest: text,
        code: String::with_capacity(text.len()),
    };
    while scanner.step() {}
    scanner.code
}

struct Scanner<'a> {
    rest: &'a str,
    code: String,
}

impl Scanner<'_> {
    /// Consumes one comment, literal, word or character.
    fn step(&mut self) -> bool {
        let Some(first) = self.rest.chars().next() else {
            return false;
        };
        let word_before = self.code.ends_with(is_word);
        if self.rest.starts_with("//") {
            let length = self.rest.find('\n').unwrap_or(self.rest.len());
            self.replace(length, ' ');
        } else if self.rest.starts_with("/*") {
            self.replace(block_comment_length(self.rest), ' ');
        } else if let (false, Some(hashes)) = (word_before, raw_string(self.rest)) {
            self.raw_string(hashes);
        } else if first == '"' {
            self.quoted('"');
        } else if first == '\'' && is_character(self.rest) {
            self.quoted('\'');
        } else {
            self.keep(first.len_utf8());
        }
        true
    }

    fn keep(&mut self, length: usize) {
        let (kept, rest) = self.rest.split_at(length);
        self.code.push_str(kept);
        self.rest = rest;
    }

    fn replace(&mut self, length: usize, with: char) {
        let (replaced, rest) = self.rest.split_at(length);
        self.code
            .extend(replaced.chars().map(|c| if c == '\n' { c } else { with }));
        self.rest = rest;
    }

    fn quoted(&mut self, quote: char) {
        self.keep(1);
        let mut escaped = false;
        let end = self.rest.find(|c| {
            let ends = c == quote && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        });
        self.replace(end.unwrap_or(self.rest.len()), LITERAL);
        self.keep(self.rest.len().min(1));
    }

    fn raw_string(&mut self, hashes: usize) {
        self.keep(self.rest.find('"').map_or(0, |at| at + 1));
        let end = format!("\"{}", "#".repeat(hashes));
        let length = self.rest.find(&end).unwrap_or(self.rest.len());
        self.replace(length, LITERAL);
        self.keep(self.rest.len().min(end.len()));
    }
}

fn block_comment_length(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// How many `#` a raw string that begins here has.
fn raw_string(text: &str) -> Option<usize> {
    let prefix = ["r", "br", "cr"].into_iter().find(|prefix| {
        let after = text.strip_prefix(prefix);
        after.is_some_and(|after| after.trim_start_matches('#').starts_with('"'))
    })?;
    Some(
        text[prefix.len()..]
            .bytes()
            .take_while(|byte| *byte == b'#')
            .count(),
    )
}

/// Whether the `'` here begins a character and not a lifetime.
fn is_character(text: &str) -> bool {
    let mut characters = text.chars().skip(1);
    match (characters.next(), characters.next()) {
        (Some('\\'), _) => true,
        (Some(_), Some(after)) => after == '\'',
        _ => false,
    }
}

pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the byte positions of `word` in `text` as a whole word (or path).
pub(crate) fn find_words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |at| {
            let joins_before = word.starts_with(is_word) && text[..*at].ends_with(is_word);
            let joins_after =
                word.ends_with(is_word) && text[at + word.len()..].starts_with(is_word);
            !joins_before && !joins_after
        })
}

/// The number of the line, from 1, that holds byte `at`.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// Every function that has a body.
pub(crate) fn functions(code: &str) -> Vec<Function> {
    find_words(code, "fn")
        .filter_map(|at| function(code, at))
        .collect()
}

fn function(code: &str, at: usize) -> Option<Function> {
    let rest = code[at + 2..]
        .strip_prefix(|c: char| c.is_whitespace())?
        .trim_start();
    let name: String = rest.chars().take_while(|c| is_word(*c)).collect();
    // `fn(u8)` is a type, and `fn $name` a macro's.
    if name.is_empty() {
        return None;
    }
    let mut brackets = 0;
    let mut braces = 0;
    for (offset, c) in code[at..].char_indices() {
        match c {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets -= 1,
            ';' if braces == 0 && brackets == 0 => return None,
            '{' => braces += 1,
            '}' => braces -= 1,
            _ => continue,
        }
        if c == '}' && braces == 0 && brackets == 0 {
            let (first_line, last_line) = (line_of(code, at), line_of(code, at + offset));
            return Some(Function {
                name,
                first_line,
                last_line,
            });
        }
    }
    None
}

/// The line, from 1, of the `#[cfg(test)]` that begins an inline `mod tests { … }`.
pub(crate) fn inline_tests(code: &str) -> Option<usize> {
    let lines: Vec<&str> = code.lines().map(str::trim).collect();
    (0..lines.len()).find_map(|index| {
        let item = lines[index..]
            .iter()
            .skip(1)
            .find(|line| !line.starts_with("#["))?;
        let module = item.starts_with("mod ") && item.ends_with('{');
        (lines[index] == "#[cfg(test)]" && module).then_some(index + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_not_code() {
        let blank = |text: &str| code(text).replace(LITERAL, "_");
        assert_eq!(blank("a // b {\nc"), "a       \nc");
        assert_eq!(blank("a /* /* b */ } */ c"), "a                 c");
        assert_eq!(
            blank(r#"("a\"}", '{', '\'', b'}')"#),
            r#"("____", '_', '__', b'_')"#
        );
        assert_eq!(blank("r#\"a\"b\n}\"# x"), "r#\"___\n_\"# x");
        assert_eq!(
            blank("fn f<'a>(x: &'a str, c: char) {}"),
            "fn f<'a>(x: &'a str, c: char) {}"
        );
        assert_eq!(blank("for\"x\""), "for\"_\"");
    }

    #[test]
    fn functions_are_found_with_their_lines() {
        let text = "fn a() {}\ntype F = fn(u8);\ntrait T { fn b(&self); }\n\
            pub const fn c(x: [u8; 4]) -> [u8; 2]\nwhere\n{\n    fn d() { '}' }\n}\n";
        let found: Vec<_> = functions(&code(text))
            .iter()
            .map(|f| (f.name.clone(), f.lines()))
            .collect();
        assert_eq!(
            found,
            [
                ("a".to_owned(), 1),
                ("c".to_owned(), 5),
                ("d".to_owned(), 1)
            ]
        );
    }

    #[test]
    fn production_ends_at_the_inline_tests() {
        assert_eq!(inline_tests("a\n#[cfg(test)]\nmod tests;\n"), None);
        assert_eq!(
            inline_tests("a\n#[cfg(test)]\nfn f() {}\n#[cfg(test)]\nmod tests {\n"),
            Some(4)
        );
        assert_eq!(
            inline_tests("#[cfg(test)]\n#[expect(x)]\nmod tests {\n"),
            Some(1)
        );
    }

    #[test]
    fn words_are_whole() {
        let places: Vec<_> = find_words("rand brand rand_x rand::", "rand").collect();
        assert_eq!(places, [0, 18]);
    }
}
