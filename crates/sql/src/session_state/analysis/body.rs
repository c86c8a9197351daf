//! The bodies of stored functions, procedures and triggers: what running one may leave behind, and
//! what else it may run.

use std::collections::BTreeSet;

use crate::name::identifier;
use crate::postgres::{self, StatementFacts, Tokens};
use crate::token::{Span, Token, TokenKind, Word};
use evenkeel_policy::pins::{Pin, Pins};

use super::do_block::{ANYTHING, bound_by_code, is_dynamic};
use super::{languages, pins};

/// What was seen in a body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Body {
    /// What it may leave behind by itself.
    pub pins: Pins,
    /// Functions that it may call, by name.
    pub calls: BTreeSet<Box<[u8]>>,
    /// Tables and views that it may read or change, by name.
    pub relations: BTreeSet<Box<[u8]>>,
    /// Settings with a dot in their names that it may set for the session.
    pub custom_settings: BTreeSet<Box<[u8]>>,
    /// It may define, alter or drop something, which runs event triggers.
    pub defines: bool,
    /// It is text, which its owner may replace: no function of a library.
    pub is_code: bool,
}

impl Body {
    /// Of one that nobody has looked at.
    #[must_use]
    pub fn unread() -> Body {
        Body {
            pins: Pins::of(&ANYTHING),
            defines: true,
            is_code: true,
            ..Body::default()
        }
    }

    /// Reads one. It says too much rather than too little of what is SQL; of a library's function
    /// it knows the name only, and most leave nothing behind.
    #[must_use]
    pub fn read(language: &str, code: &[u8]) -> Body {
        match language {
            "sql" | "plpgsql" => Body::of_sql(code),
            "internal" | "c" => Body::of_library(code),
            _ => Body::of_words(language, code),
        }
    }

    fn of_sql(code: &[u8]) -> Body {
        let mut body = Body {
            is_code: true,
            ..Body::default()
        };
        body.note_pins(code);
        body.note_names(code);
        if makes_sql(code) {
            body.note_strings(code);
        }
        body
    }

    /// `symbol`: what the function is called in C.
    fn of_library(symbol: &[u8]) -> Body {
        let pins = match symbol {
            b"set_config_by_name" => pins::builtin_pins(b"set_config"),
            b"nextval_oid" | b"setval_oid" | b"setval3_oid" => pins::builtin_pins(b"nextval"),
            b"currval_oid" => pins::builtin_pins(b"currval"),
            name => pins::builtin_pins(name),
        };
        Body {
            pins,
            ..Body::default()
        }
    }

    /// SQL that is made at run time is made of the body's strings, as far as can be told; where it
    /// has none, all of it comes from elsewhere.
    fn note_strings(&mut self, code: &[u8]) {
        let mut tokens = Tokens::new(code, false);
        let mut has_any = false;
        loop {
            let token = tokens.next_token();
            match token.kind {
                TokenKind::End => break,
                TokenKind::String => {}
                _ => continue,
            }
            has_any = true;
            if let Some(text) = postgres::string_value(token.span.of(code), false) {
                self.note_pins(&text);
                self.note_names(&text);
            }
        }
        if !has_any {
            self.pins = self.pins.and(Body::unread().pins);
        }
    }

    fn note_pins(&mut self, code: &[u8]) {
        let pins = bound_by_code(code, &mut self.custom_settings);
        self.pins = self.pins.and(pins);
    }

    fn note_names(&mut self, code: &[u8]) {
        let mut tokens = Tokens::new(code, false);
        let (mut before, mut token) = (Token::default(), tokens.next_token());
        let mut listing = Listing::default();
        while token.kind != TokenKind::End {
            let next = tokens.next_token();
            self.defines |= DEFINING.contains(&token.word);
            match token.kind {
                TokenKind::Open => listing.opens(),
                TokenKind::Close => listing.closes(),
                _ => {}
            }
            // `INTO schema.name`
            if next.kind != TokenKind::Dot && token.kind != TokenKind::Dot {
                let name = || identifier(token.span.of(code)).into();
                let is_name = matches!(token.kind, TokenKind::Word | TokenKind::QuotedName);
                if is_name && next.kind == TokenKind::Open {
                    self.calls.insert(name());
                }
                let is_next = matches!(before.kind, TokenKind::Comma | TokenKind::Open);
                if is_name && listing.may_name(before.word, is_next) {
                    self.relations.insert(name());
                }
                match token.kind {
                    TokenKind::Word => listing.passes(token.word),
                    TokenKind::Semicolon => listing = Listing::default(),
                    _ => {}
                }
                before = token;
            }
            token = next;
        }
    }

    /// In a language that is not SQL's: SQL stands in its strings, whatever begins and ends them.
    fn of_words(language: &str, code: &[u8]) -> Body {
        let mut body = Body {
            pins: match languages::keeps(language, code) {
                true => Pins::of(&[Pin::LanguageState]),
                false => Pins::NONE,
            },
            is_code: true,
            ..Body::default()
        };
        let mut last: Box<[u8]> = Box::default();
        let mut listing = Listing::default();
        for span in words(code) {
            let written = span.of(code);
            let word: Box<[u8]> = written.to_ascii_lowercase().into();
            let rest = code.get(span.end as usize..).unwrap_or_default();
            body.note_word(&word, &last, code, span);
            body.defines |= DEFINING.contains(&word_of(&word));
            if rest.trim_ascii_start().first() == Some(&b'(') {
                body.calls.insert(word.clone());
            }
            let before = code.get(..span.start as usize).unwrap_or_default();
            let is_next = matches!(before.trim_ascii_end().last(), Some(b',' | b'('));
            if listing.may_name(word_of(&last), is_next) {
                body.relations.insert(word.clone());
            }
            listing.passes(word_of(&word));
            last = word;
        }
        body
    }

    fn note_word(&mut self, word: &[u8], last: &[u8], code: &[u8], span: Span) {
        let (before, rest) = code.split_at(code.len().min(span.start as usize));
        let rest = rest.get(..SQL_LENGTH).unwrap_or(rest);
        let begins = matches!(before.trim_ascii_end().last(), Some(b'\'' | b'"' | b'`'));
        let pins = match word {
            // As the beginning of a string: it is no function of that name.
            b"set" | b"reset" | b"listen" | b"load" | b"prepare" | b"declare" if begins => {
                let line = rest.split(|byte| *byte == b'\n').next();
                bound_by_code(line.unwrap_or_default(), &mut self.custom_settings)
            }
            b"set_config" if postgres::sets_locally(rest, &whole(rest), false) => Pins::NONE,
            b"temp" | b"temporary" if matches!(last, b"create" | b"local" | b"into") => {
                Pins::of(&[Pin::TemporaryTable])
            }
            name => pins::builtin_pins(name),
        };
        self.pins = self.pins.and(pins);
    }
}

/// A list of tables and views: `FROM a, (b CROSS JOIN …)`.
#[derive(Default)]
struct Listing {
    goes_on: bool,
    /// Whether it went on around each parenthesis that is open, the innermost first.
    around: u64,
}

impl Listing {
    /// Whether a name may be that of a table. `before`: the word before it; `is_next`: a comma or a
    /// parenthesis is.
    fn may_name(&self, before: Word, is_next: bool) -> bool {
        NAMING.contains(&before) || self.goes_on && is_next
    }

    fn opens(&mut self) {
        self.around = self.around << 1 | u64::from(self.goes_on);
    }

    /// A query within has ended, and no list around it.
    fn closes(&mut self) {
        self.goes_on = self.around & 1 == 1;
        self.around >>= 1;
    }

    fn passes(&mut self, word: Word) {
        self.goes_on |= LISTING.contains(&word);
        self.goes_on &= !ENDING.contains(&word);
    }
}

/// A statement that is all of a text.
pub(super) fn whole(text: &[u8]) -> StatementFacts {
    StatementFacts {
        span: Span {
            start: 0,
            end: u32::try_from(text.len()).unwrap_or(u32::MAX),
        },
        ..StatementFacts::default()
    }
}

/// A statement within a text of another language is hardly longer.
const SQL_LENGTH: usize = 1_000;

/// These begin a list of tables.
const LISTING: [Word; 3] = [Word::of("from"), Word::of("truncate"), Word::of("using")];

/// No list of tables goes on behind these.
const ENDING: [Word; 11] = [
    Word::of("begin"),
    Word::of("group"),
    Word::of("having"),
    Word::of("into"),
    Word::of("limit"),
    Word::of("order"),
    Word::of("returning"),
    Word::of("select"),
    Word::of("set"),
    Word::of("values"),
    Word::of("where"),
];

/// Behind these words stands the name of a table or view.
const NAMING: [Word; 9] = [
    Word::of("copy"),
    Word::of("from"),
    Word::of("into"),
    Word::of("join"),
    Word::of("only"),
    Word::of("table"),
    Word::of("truncate"),
    Word::of("update"),
    Word::of("using"),
];

/// Statements that begin with these run event triggers.
const DEFINING: [Word; 9] = [
    Word::of("alter"),
    Word::of("comment"),
    Word::of("create"),
    Word::of("drop"),
    Word::of("grant"),
    Word::of("import"),
    Word::of("refresh"),
    Word::of("reindex"),
    Word::of("revoke"),
];

fn word_of(bytes: &[u8]) -> Word {
    str::from_utf8(bytes).map_or(Word::default(), |text| match text.len() {
        0..=16 => Word::of(text),
        _ => Word::default(),
    })
}

/// Runs of letters, digits and underscores.
pub(super) fn words(code: &[u8]) -> impl Iterator<Item = Span> {
    let is_of_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = code.get(at..)?;
        let start = at.saturating_add(rest.iter().position(is_of_word)?);
        let rest = code.get(start..)?;
        let length = rest.iter().position(|byte| !is_of_word(byte));
        at = start.saturating_add(length.unwrap_or(rest.len()));
        Some(Span {
            start: u32::try_from(start).ok()?,
            end: u32::try_from(at).ok()?,
        })
    })
}

/// Whether it runs SQL that it makes itself.
fn makes_sql(code: &[u8]) -> bool {
    let mut tokens = Tokens::new(code, false);
    let mut token = tokens.next_token();
    while token.kind != TokenKind::End {
        let next = tokens.next_token();
        if is_dynamic(token, next) {
            return true;
        }
        token = next;
    }
    false
}
