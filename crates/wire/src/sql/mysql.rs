//! MySQL's and MariaDB's dialect: [`facts`] of a text.

mod builtin;
mod facts;
mod fingerprint;
mod head;
mod lexer;
mod names;
mod scan;
mod set;
mod words;

#[cfg(test)]
mod tests;

pub use facts::{
    Assignment, Ending, Facts, Isolation, Kind, Scope, Statement, Target, Traits, Value,
};
pub use fingerprint::fingerprint;
pub use names::{identifier, literal};

pub use lexer::{Kind as TokenKind, Token, Tokens};

use scan::Scan;
use words as w;

use super::token::Word;

/// What the session and its servers read a text by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Modes {
    /// `sql_mode` has ANSI_QUOTES: `"` quotes names.
    pub ansi_quotes: bool,
    /// `sql_mode` has NO_BACKSLASH_ESCAPES.
    pub no_backslash_escapes: bool,
    /// The servers are MariaDB's.
    pub mariadb: bool,
    /// The servers' version, the least: 8.4.3 is 80403, 10.11.19 is 101119.
    pub version: u32,
}

impl Modes {
    /// Whether the content of a comment is run (manual: "Comments"; MariaDB: "Comment Syntax").
    fn runs(self, for_mariadb: bool, version: u32) -> bool {
        if for_mariadb && !self.mariadb {
            return false;
        }
        // MariaDB passes over what is meant for MySQL 5.7 and later.
        let of_mysql = !for_mariadb && (50_700..=99_999).contains(&version);
        !(self.mariadb && of_mysql) && version <= self.version.max(50_699)
    }
}

/// What a text is.
///
/// Words are those of the server's grammar, so a text in a character set whose characters may
/// contain ASCII bytes cannot be read ([`charset_is_safe`]).
#[must_use]
pub fn facts(text: &[u8], modes: Modes) -> Facts<'_> {
    let mut tokens = Tokens::new(text, modes);
    let mut facts = Facts {
        text,
        ..Facts::default()
    };
    loop {
        let token = tokens.next_token();
        match token.kind {
            TokenKind::End => break,
            TokenKind::Semicolon => continue,
            _ => {}
        }
        let (mut statement, end) = statement(&mut tokens, text, token);
        if tokens.take_versioned() {
            statement.traits.add(Traits::VERSIONED);
        }
        if facts.first.kind == Kind::Empty {
            facts.first = statement;
        } else {
            facts.more.push(statement);
        }
        if end.kind == TokenKind::End {
            break;
        }
    }
    if tokens.take_versioned() && facts.first.kind == Kind::Empty {
        // Nothing but comments that other servers may run.
        facts.first.kind = Kind::Unknown;
        facts.first.traits.add(Traits::VERSIONED);
    }
    facts.hint = tokens.hint();
    facts
}

/// What a statement of the kind [`Kind::Set`] sets, in order; `None`: it is not built as
/// documented.
#[must_use]
pub fn assignments(text: &[u8], statement: &Statement, modes: Modes) -> Option<Vec<Assignment>> {
    // Spans count from the text's beginning, so the tokens before the statement are read too.
    let until = text.get(..statement.span.end as usize)?;
    let mut tokens = Tokens::new(until, modes);
    let mut token = tokens.next_token();
    while token.span.start < statement.span.start {
        if token.kind == TokenKind::End {
            return None;
        }
        token = tokens.next_token();
    }
    set::assignments(&tokens)
}

/// Whether texts in this character set can be read by their ASCII bytes.
#[must_use]
pub fn charset_is_safe(name: &[u8]) -> bool {
    let unsafe_ones: [&[u8]; 9] = [
        b"big5", b"cp932", b"gb18030", b"gbk", b"sjis", b"ucs2", b"utf16", b"utf16le", b"utf32",
    ];
    !unsafe_ones
        .iter()
        .any(|unsafe_one| name.eq_ignore_ascii_case(unsafe_one))
}

fn statement<'a>(tokens: &mut Tokens<'a>, text: &'a [u8], first: Token) -> (Statement, Token) {
    let kind = match first.kind {
        TokenKind::Word => head::kind(first.word, tokens),
        TokenKind::Open => parenthesised(tokens),
        _ => Kind::Unknown,
    };
    let behind_first = (kind == Kind::Set).then(|| tokens.clone());
    let (mut statement, end) = Scan::run(tokens, text, first, kind);
    if let Some(behind) = behind_first {
        let traits = set::traits(set::assignments(&behind).as_deref());
        statement.traits.add(traits);
    }
    (statement, end)
}

/// `(SELECT …) UNION …`: the first word inside decides.
fn parenthesised(tokens: &Tokens<'_>) -> Kind {
    let mut ahead = tokens.clone();
    loop {
        let token = ahead.next_token();
        match token.kind {
            TokenKind::Open => {}
            TokenKind::Word if is_query(token.word) => return Kind::Select,
            _ => return Kind::Unknown,
        }
    }
}

fn is_query(word: Word) -> bool {
    matches!(word, w::SELECT | w::VALUES | w::TABLE | w::WITH)
}
