//! Checks the words of comments, messages and documents: plain English, one word for one thing.
//!
//! Text in back-ticks is code and is not checked. A line passes with a comment `tidy: REASON` on it
//! or on the line before.

use regex::{Regex, RegexBuilder};

use super::rust::{LITERAL, code, inline_tests};
use super::{Problem, Tree};

/// A pattern that readers stumble over, and the remedy.
struct Rule {
    pattern: Regex,
    /// Uses that are the field's terms.
    allowed: Option<Regex>,
    remedy: &'static str,
}

/// Words that are wrong anywhere: pattern, allowed uses (or empty), remedy.
const WORDS: [(&str, &str, &str); 13] = [
    (
        r"\bbehind\b",
        r"behind (Evenkeel|(an?|the|one|its) (address|proxy|(load )?balancer|NAT|firewall|name))",
        "\"after\" (only a proxy or an address can have something behind it)",
    ),
    (
        r"\bso (many|much|long|few|often)\b",
        "",
        "the number, or its name",
    ),
    (
        r"\b(tells?|telling|told)\b",
        "",
        "returns, reports, logs, sends or notifies",
    ),
    (r"\b(hears?|heard)\b", "", "receives"),
    (
        r"\b(nobody|somebody|anybody|everybody|whoever|whomever)\b",
        r"user (\w+ or )?nobody|^\s*nobody\s*$",
        "\"no client\", \"another session\", \"any server\"",
    ),
    (
        r"\b(he|him|his)\b",
        "",
        "\"it\", \"the client\" or \"the operator\"",
    ),
    (
        r"\b(for all that is known|be it|but for|in vain|for want of|of no matter)\b",
        "",
        "may; except; without success",
    ),
    (r"\bat once\b", "", "immediately, or concurrently"),
    (r"\b(anew|once more)\b", "", "again"),
    (
        r"\b((stands?|stood|waits?|waited) in line)\b",
        "",
        "queued, in the queue",
    ),
    (
        r"\b(corridor|doorstep|luggage|parcels?|errands?|midwife|heir|farewell|desk|ledgers?)\b",
        "",
        "the field's term",
    ),
    (
        r"\b(lends?|lent|gives? back|given back|bonds?)\b",
        "",
        "acquire, release, pin",
    ),
    (
        r"\b(nothing was run|cannot be told)\b",
        "",
        "not executed, unknown",
    ),
];

/// Words that a doc comment may not begin with: its subject is a noun, or it begins with a verb.
const OPENINGS: [&str; 5] = [
    r"^(Who|Whom|Whose|Whoever|Whomever|What|Whatever|It|Its|They|Their|He|His)\b",
    r"^(Nobody|Somebody|Anybody|Everybody|Nothing|Something)\b",
    r"^(That|Those|These|This)( (of|one|is|are|was|which|who)\b|[.,:;])|^(The same|As above|As \[)",
    r"^(Of|By|For|To|In|With|At|From|On|Under|Behind|About|Without|Within) ",
    r"^(Where|When|Why|Which|Since when)\b|^How( [a-ln-z]| m[b-z]|\b$)",
];

/// Files that are to be replaced, and not rewritten. The list only shrinks.
const REPLACED: [&str; 13] = [
    "crates/sql/src/catalog.rs",
    "crates/sql/src/catalog/resolve.rs",
    "crates/sql/src/catalog/routine_pins.rs",
    "crates/sql/src/catalog/safe_functions.rs",
    "crates/sql/src/catalog/user_code.rs",
    "crates/sql/src/routines.rs",
    "crates/sql/src/routines/body.rs",
    "crates/sql/src/session_state/analysis/body.rs",
    "crates/sql/src/session_state/analysis/do_block.rs",
    "crates/sql/src/session_state/analysis/implicit_code.rs",
    "crates/sql/src/session_state/analysis/languages.rs",
    "crates/sql/src/session_state/mysql/analysis/body.rs",
    "crates/sql/src/session_state/mysql/analysis/calls.rs",
];

/// The file that has to name the words.
const THIS_FILE: &str = "xtask/src/tidy/prose.rs";

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let rules = Rules::new();
    let mut problems = Vec::new();
    for (path, text) in tree.ending(".md") {
        problems.extend(rules.document(path, text));
    }
    for (path, text) in tree.ending(".rs") {
        let found = rules.source(path, text);
        if path == THIS_FILE {
            continue;
        }
        if !REPLACED.contains(&path) {
            problems.extend(found);
        } else if found.is_empty() {
            let what = "has no such words any more: take it off the list in tidy/prose.rs";
            problems.push(Problem::new(path, 1, what));
        }
    }
    problems
}

/// The compiled rules.
struct Rules {
    words: Vec<Rule>,
    openings: Vec<Regex>,
}

impl Rules {
    fn new() -> Rules {
        let words = WORDS.iter().map(|(pattern, allowed, remedy)| Rule {
            pattern: compiled(pattern, true),
            allowed: (!allowed.is_empty()).then(|| compiled(allowed, true)),
            remedy,
        });
        Rules {
            words: words.collect(),
            openings: OPENINGS
                .iter()
                .map(|pattern| compiled(pattern, false))
                .collect(),
        }
    }

    /// Checks the prose of a document, outside of code blocks.
    fn document(&self, path: &str, text: &str) -> Vec<Problem> {
        let mut in_code = false;
        let mut problems = Vec::new();
        for (index, line) in text.lines().enumerate() {
            in_code ^= line.trim_start().starts_with("```");
            if !in_code {
                problems.extend(self.words(path, index + 1, line));
            }
        }
        problems
    }

    /// Checks comments, and literals outside of tests.
    fn source(&self, path: &str, text: &str) -> Vec<Problem> {
        let lines = lines(path, text);
        let mut problems = Vec::new();
        let mut before = "";
        for (index, line) in lines.iter().enumerate() {
            let is_excused = [&line.comment, before]
                .iter()
                .any(|text| text.contains(EXCUSE));
            before = &line.comment;
            if is_excused {
                continue;
            }
            problems.extend(self.words(path, index + 1, &line.comment));
            problems.extend(self.words(path, index + 1, &line.literals));
            if line.begins_paragraph {
                problems.extend(self.opening(path, index + 1, &line.comment));
            }
        }
        problems
    }

    fn words(&self, path: &str, line: usize, text: &str) -> Vec<Problem> {
        let text = without_code(text);
        let broken = self.words.iter().filter_map(|rule| {
            let text = match &rule.allowed {
                Some(allowed) => allowed.replace_all(&text, ""),
                None => text.as_str().into(),
            };
            let found = rule.pattern.find(&text)?;
            let what = format!("\"{}\": write {}", found.as_str(), rule.remedy);
            Some(Problem::new(path, line, what))
        });
        broken.collect()
    }

    fn opening(&self, path: &str, line: usize, text: &str) -> Option<Problem> {
        let found = self
            .openings
            .iter()
            .find_map(|opening| opening.find(text))?;
        let what = format!(
            "a doc comment begins with \"{}\": begin with a noun, or with a verb in the third \
             person",
            found.as_str().trim()
        );
        Some(Problem::new(path, line, what))
    }
}

/// Marks a line whose words are right, with the reason.
const EXCUSE: &str = concat!("tidy", ": ");

/// The prose of one line of a source file.
#[derive(Default)]
struct Line {
    /// Text of the comment, without its slashes.
    comment: String,
    /// True if the line is the first of a paragraph of a doc comment.
    begins_paragraph: bool,
    /// Contents of literals, without those of tests.
    literals: String,
}

fn lines(path: &str, text: &str) -> Vec<Line> {
    let code = code(text);
    let is_test_file = path.contains("tests/") || path.ends_with("tests.rs");
    let first_test_line = match is_test_file {
        true => 0,
        false => inline_tests(&code).unwrap_or(usize::MAX),
    };
    let mut is_in_paragraph = false;
    let mut lines = Vec::new();
    for (index, (text, code)) in text.lines().zip(code.lines()).enumerate() {
        let comment = comment(text, code);
        let is_doc = comment.starts_with("///") || comment.starts_with("//!");
        let comment = comment.trim_start_matches(['/', '!']).trim();
        let begins_paragraph = is_doc && !comment.is_empty() && !is_in_paragraph;
        is_in_paragraph = is_doc && !comment.is_empty();
        let literals = match index + 1 < first_test_line {
            true => literals(text, code),
            false => String::new(),
        };
        lines.push(Line {
            comment: comment.to_owned(),
            begins_paragraph,
            literals,
        });
    }
    lines
}

/// Returns the comment at the end of a line: what follows its code.
fn comment<'a>(text: &'a str, code: &str) -> &'a str {
    let length = code.trim_end().chars().count();
    let at = text
        .char_indices()
        .nth(length)
        .map_or(text.len(), |(at, _)| at);
    let rest = text[at..].trim();
    match rest.starts_with("//") {
        true => rest,
        false => "",
    }
}

/// Returns the contents of the literals of a line, without the arguments of format strings.
fn literals(text: &str, code: &str) -> String {
    let is_literal = |(text, code): (char, char)| if code == LITERAL { text } else { ' ' };
    let text: String = text.chars().zip(code.chars()).map(is_literal).collect();
    let mut parts = text.split('{');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + part.split_once('}').map_or(part, |(_, rest)| rest)
    })
}

/// Removes what stands in back-ticks.
fn without_code(text: &str) -> String {
    text.split('`').step_by(2).collect()
}

/// Compiles a pattern of ASCII words.
fn compiled(pattern: &str, ignores_case: bool) -> Regex {
    let mut builder = RegexBuilder::new(pattern);
    builder.unicode(false).case_insensitive(ignores_case);
    builder.build().expect("a valid pattern")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::assert_found;

    #[track_caller]
    fn found(path: &str, text: &str, expect: &[(&str, &str)]) {
        assert_found(check, &[(path, text)], expect);
    }

    #[test]
    fn plain_sentences_pass() {
        found(
            "a.rs",
            "/// Returns the pool of a user.\nfn a() { b(\"too many clients\") }\n",
            &[],
        );
        found("a.md", "Clients behind a proxy are named by `told`.\n", &[]);
        found("a.rs", "/// How many clients wait.\n/// How long.\n", &[]);
    }

    #[test]
    fn words_are_found_in_comments_messages_and_documents() {
        found(
            "a.rs",
            "\nlet a = 1; // the one behind\n",
            &[("a.rs:2", "after")],
        );
        found(
            "a.rs",
            "let a = \"he is told\";\n",
            &[("a.rs:1", "told"), ("a.rs:1", "he")],
        );
        found(
            "a.md",
            "Nobody waits.\n```\nnobody\n```\n",
            &[("a.md:1", "no client")],
        );
    }

    #[test]
    fn literals_of_tests_pass() {
        found("a/tests/b.rs", "fn a() { b(\"told\") }\n", &[]);
        found(
            "a.rs",
            "#[cfg(test)]\nmod tests {\n    const A: &str = \"told\";\n}\n",
            &[],
        );
    }

    #[test]
    fn the_opening_of_each_paragraph_is_checked() {
        found("a.rs", "//! What it does.\n", &[("a.rs:1", "What")]);
        found(
            "a.rs",
            "/// Returns it.\n///\n/// Its caller waits.\n",
            &[("a.rs:3", "Its")],
        );
        found("a.rs", "/// Returns the one\n/// That waits.\n", &[]);
        found("a.rs", "// It waits.\n", &[]);
        found("a.rs", "/// How it waits.\n", &[("a.rs:1", "How")]);
    }

    #[test]
    fn a_line_with_a_reason_passes() {
        found(
            "a.rs",
            "let a = \"told\"; // tidy: a word of the protocol\n",
            &[],
        );
        found(
            "a.rs",
            "// tidy: a word of the protocol\nlet a = \"told\";\n",
            &[],
        );
    }

    #[test]
    fn a_file_to_be_replaced_stands_on_the_list_while_it_has_such_words() {
        found(REPLACED[0], "/// Whoever asks.\n", &[]);
        found(
            REPLACED[0],
            "/// Returns it.\n",
            &[(&format!("{}:1", REPLACED[0]), "list")],
        );
    }
}
