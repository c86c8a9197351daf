//! Asserts that texts which fit a template have its tokens, whatever parts they consist of.

use super::super::digest::digest;
use super::*;

const POSTGRES: Dialect = Dialect::Postgres { backslashes: false };
const MYSQL: Dialect = Dialect::Mysql(mysql::LexerModes {
    ansi_quotes: false,
    no_backslash_escapes: false,
    nbsp_byte: 0,
    mariadb: true,
    version: 101_100,
});

fn fits(text: &str, other: &str) -> bool {
    let template = Template::of(text.as_bytes(), POSTGRES).expect("it is short");
    template.fits(other.as_bytes())
}

#[test]
fn other_literals_of_the_same_sort_fit() {
    let text = "SELECT c FROM t1 WHERE id=5 AND n IN (1, 'a') LIMIT 10";
    assert!(fits(text, text));
    assert!(fits(
        text,
        "SELECT c FROM t1 WHERE id=123456 AND n IN (22, 'it is; -- 7') LIMIT 1"
    ));
    assert!(fits("SELECT -1", "SELECT -20"));
    assert!(fits("SELECT ''", "SELECT 'a'"));
}

#[test]
fn whatever_else_differs_does_not_fit() {
    let text = "SELECT c FROM t1 WHERE id=5 AND n IN (1, 'a')";
    for other in [
        "SELECT c FROM t2 WHERE id=5 AND n IN (1, 'a')",
        "SELECT c FROM t1 WHERE id='5' AND n IN (1, 'a')",
        "SELECT c FROM t1 WHERE id=5 AND n IN (1, a)",
        "SELECT c FROM t1 WHERE id=5 AND n IN (1, 'a'); DELETE FROM t1",
        "SELECT c FROM t1 WHERE id=5 AND n IN (1, 'a'')",
        "SELECT c FROM t1 WHERE id=5 AND n IN (1, 'a'')')",
        "SELECT c FROM t1 WHERE id=5 AND n IN (1, 'a\\')",
        "SELECT c FROM t1 WHERE id= AND n IN (1, 'a')",
        "SELECT c FROM t1 WHERE id=5e3 AND n IN (1, 'a')",
        "SELECT c FROM t1 WHERE id=5 AND n IN (1, 'a'",
        "SELECT c FROM t1 WHERE id=5",
        "",
    ] {
        assert!(!fits(text, other), "{other}");
    }
}

#[test]
fn what_is_no_plain_literal_stays_as_it_is() {
    for (text, other) in [
        ("SELECT E'a'", "SELECT E'b'"),
        ("SELECT 1.5", "SELECT 2.5"),
        ("SELECT 0x1f", "SELECT 0x2f"),
        ("SELECT $1", "SELECT $2"),
        ("SELECT 1+2", "SELECT 3+2"),
        ("SELECT '1'::int", "SELECT '2'::int"),
        ("SELECT /* 1 */ a", "SELECT /* 2 */ a"),
        ("SELECT $$a$$ ", "SELECT $$b$$ "),
        ("SELECT \"1\" ", "SELECT \"2\" "),
        ("SELECT 'a", "SELECT 'b"),
    ] {
        assert!(fits(text, text), "{text}");
        assert!(!fits(text, other), "{other}");
    }
}

#[test]
fn digits_that_are_a_name_or_a_version_stay_as_they_are() {
    for (text, other) in [
        (
            "INSERT INTO arch.2023 VALUES (a)",
            "INSERT INTO arch.2024 VALUES (a)",
        ),
        ("SELECT f /*!1 */ (a)", "SELECT f /*!40100 */ (a)"),
    ] {
        let template = Template::of(text.as_bytes(), MYSQL).expect("it is short");
        assert!(!template.fits(other.as_bytes()), "{other}");
    }
}

#[test]
fn texts_that_fit_have_one_shape() {
    let one = shape(b"SELECT c FROM t1 WHERE id=5 AND n = 'a'");
    assert_eq!(one, shape(b"SELECT c FROM t1 WHERE id=77 AND n = 'bc'"));
    assert_ne!(one, shape(b"SELECT c FROM t2 WHERE id=5 AND n = 'a'"));
}

/// Returns the kinds of the tokens, and the text of all except plain literals: the properties that
/// two fitting texts have in common.
fn tokens(text: &[u8], dialect: Dialect) -> Vec<(Class, Vec<u8>)> {
    fn all(text: &[u8], mut pieces: impl Pieces) -> Vec<(Class, Vec<u8>)> {
        let mut all = Vec::new();
        while let Some(piece) = pieces.next_piece() {
            let written = match piece.class == Class::Literal && is_plain(text, piece.span) {
                true => Vec::new(),
                false => piece.span.of(text).to_vec(),
            };
            all.push((piece.class, written));
        }
        all
    }
    match dialect {
        Dialect::Mysql(modes) => all(text, mysql::Tokens::new(text, modes)),
        Dialect::Postgres { backslashes } => all(text, postgres::Tokens::new(text, backslashes)),
    }
}

/// Parts from which the texts are composed.
const PARTS: [&str; 36] = [
    "1",
    "22",
    "'a'",
    "'b c'",
    "''",
    "'",
    "\\",
    "\"",
    "`",
    " ",
    "\n",
    ",",
    "(",
    ")",
    ";",
    "--",
    "/*",
    "*/",
    "/*!50000 ",
    "#",
    "$",
    "$$",
    "E",
    "N",
    "U&",
    "x",
    "_utf8",
    "select",
    ".",
    "-",
    "::",
    "e5",
    "@",
    "[",
    "=",
    "0x",
];

/// Random numbers, identical in each run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, max: usize) -> usize {
        let next = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d);
        self.0 = next.wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) as usize % max
    }

    fn text(&mut self) -> String {
        let count = self.below(9);
        (0..count).map(|_| PARTS[self.below(PARTS.len())]).collect()
    }

    /// Returns the text with some letters replaced that may belong to literals.
    fn other(&mut self, text: &str) -> String {
        let letters = text.split_inclusive(|_: char| true);
        let replaced = letters.map(|letter| match (letter, self.below(4)) {
            ("1" | "2", 0) => ["1", "21", "999", "a", "'"][self.below(5)],
            ("a" | "b", 0) => ["", "b", "1 ", "--", "/*", "$$", ";", "\\"][self.below(8)],
            (same, _) => same,
        });
        replaced.collect()
    }
}

#[test]
fn a_text_that_fits_has_the_same_tokens_in_either_dialect() {
    let mut chance = Chance(1);
    let mut fitted = 0;
    for _ in 0..200_000 {
        let text = chance.text();
        let other = chance.other(&text);
        for dialect in [POSTGRES, MYSQL, Dialect::Postgres { backslashes: true }] {
            let (one, two) = (text.as_bytes(), other.as_bytes());
            let template = Template::of(one, dialect).expect("it is short");
            assert!(template.fits(one), "{text:?} is itself");
            if other == text || !template.fits(two) {
                continue;
            }
            fitted += 1;
            let same = tokens(one, dialect) == tokens(two, dialect);
            assert!(same, "{text:?} {other:?}");
            assert_eq!(digest(one, dialect), digest(two, dialect), "{text:?}");
        }
    }
    assert!(fitted > 2_000, "{fitted}");
}
