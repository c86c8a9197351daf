//! MySQL and MariaDB dialect: [`facts()`] of a text.

mod builtin;
mod client_values;
mod facts;
mod head;
mod lexer;
mod long_text;
mod names;
mod optimizer;
mod scan;
mod set;
mod words;

#[cfg(test)]
mod tests;

pub use crate::facts::{Isolation, StatementTraits};
pub use client_values::{ClientValues, replace_client_values};
pub use facts::{
    Assignment, StatementFacts, StatementKind, Target, TextFacts, TransactionCompletion, Value,
    VariableScope,
};
pub use names::{identifier, literal};

pub use crate::token::{Token, TokenKind};
pub use lexer::Tokens;
pub use long_text::LongTextReader;

use scan::scan;

use super::facts::StatementLexer;
use super::token::Word;

/// Settings of the session and its servers that determine how a text is tokenized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LexerModes {
    /// True if `sql_mode` has ANSI_QUOTES: `"` quotes names.
    pub ansi_quotes: bool,
    /// True if `sql_mode` has NO_BACKSLASH_ESCAPES.
    pub no_backslash_escapes: bool,
    /// Byte of the non-ASCII blank in `character_set_client` ([`nbsp_byte`]); 0 for none.
    pub nbsp_byte: u8,
    /// True if the servers are MariaDB.
    pub mariadb: bool,
    /// Lowest version of the servers: 8.4.3 is 80403, 10.11.19 is 101119.
    pub version: u32,
}

impl LexerModes {
    /// Returns whether the servers execute the content of a versioned comment (manual: "Comments";
    /// MariaDB: "Comment Syntax").
    fn executes_comment(self, for_mariadb: bool, version: u32) -> bool {
        if for_mariadb && !self.mariadb {
            return false;
        }
        // MariaDB ignores comments for MySQL 5.7 and later.
        let is_for_mysql_57 = !for_mariadb && (50_700..=99_999).contains(&version);
        // Comments up to version 5.6.99 are executed by every supported server.
        !(self.mariadb && is_for_mysql_57) && version <= self.version.max(50_699)
    }
}

/// Returns the facts about a text.
///
/// The lexer compares bytes. A text in a character set whose multi-byte characters contain ASCII
/// bytes cannot be analyzed ([`charset_is_safe`]).
#[must_use]
pub fn facts(text: &[u8], modes: LexerModes) -> TextFacts<'_> {
    let mut statements = statements(text, modes);
    let mut facts = TextFacts::of(&mut statements);
    if statements.tokens.take_versioned() && facts.first.is_empty() {
        // Only comments that other servers may execute.
        facts.first.kind = StatementKind::Unknown;
        facts.first.traits.add(StatementTraits::VERSIONED);
    }
    facts.set_hint(statements.tokens.hint());
    facts
}

/// Returns an iterator over all statements of a text, without the limit of [`facts()`].
pub(crate) fn statements(text: &[u8], modes: LexerModes) -> Statements<'_> {
    super::facts::Statements::new(text, Tokens::new(text, modes))
}

/// Iterator over the statements of a text; see [`statements`].
pub(crate) type Statements<'a> = super::facts::Statements<'a, Tokens<'a>>;

impl StatementLexer for Tokens<'_> {
    type Kind = StatementKind;

    #[inline]
    fn kind_of_word(&self, word: Word) -> StatementKind {
        head::kind(word, self)
    }

    #[inline]
    fn statement(&mut self, text: &[u8], first: Token) -> (StatementFacts, Token) {
        let (mut statement, end) = statement(self, text, first);
        if self.take_versioned() {
            statement.traits.add(StatementTraits::VERSIONED);
        }
        (statement, end)
    }
}

/// Returns the assignments of a statement of kind [`StatementKind::Set`], in order. Returns `None`
/// if its syntax is not as documented.
#[must_use]
pub fn assignments(
    text: &[u8],
    statement: &StatementFacts,
    modes: LexerModes,
) -> Option<Vec<Assignment>> {
    // A text may have very many statements, so the lexer starts at the statement, not at the
    // beginning of the text.
    let mut tokens = Tokens::from(text, modes, statement.span.start, statement.in_comment);
    tokens.next_token();
    set::assignments(&tokens)
}

/// Returns whether texts in this character set can be tokenized by their ASCII bytes.
#[must_use]
pub fn charset_is_safe(name: &[u8]) -> bool {
    let unsafe_ones: [&[u8]; 9] = [
        b"big5", b"cp932", b"gb18030", b"gbk", b"sjis", b"ucs2", b"utf16", b"utf16le", b"utf32",
    ];
    !unsafe_ones
        .iter()
        .any(|unsafe_one| name.eq_ignore_ascii_case(unsafe_one))
}

/// Returns the non-breaking blank of a single-byte character set, or 0. Servers skip that byte
/// between tokens; in other character sets it is part of a name.
#[must_use]
pub fn nbsp_byte(charset: &[u8]) -> u8 {
    const WITHOUT: [&[u8]; 10] = [
        b"", b"ascii", b"binary", b"eucjpms", b"euckr", b"gb2312", b"swe7", b"ujis", b"utf8",
        b"utf8mb3",
    ];
    let name = charset.to_ascii_lowercase();
    match name.as_slice() {
        b"utf8mb4" => 0,
        name if WITHOUT.contains(&name) || !charset_is_safe(name) => 0,
        b"cp850" | b"cp852" | b"cp866" | b"keybcs2" => 0xff,
        b"koi8r" | b"koi8u" => 0x9a,
        b"macce" | b"macroman" => 0xca,
        _ => 0xa0,
    }
}

/// Returns whether a text has [`LexerModes::nbsp_byte`] outside quotes, where the lexer treats it
/// as part of a name.
#[must_use]
pub fn has_nbsp_outside_quotes(text: &[u8], modes: LexerModes) -> bool {
    let nbsp = modes.nbsp_byte;
    if nbsp == 0 || memchr::memchr(nbsp, text).is_none() {
        return false;
    }
    let mut tokens = Tokens::new(text, modes);
    loop {
        let token = tokens.next_token();
        match token.kind {
            TokenKind::End => return false,
            TokenKind::String | TokenKind::QuotedName => {}
            _ if token.span.of(text).contains(&nbsp) => return true,
            _ => {}
        }
    }
}

#[inline]
fn statement(tokens: &mut Tokens<'_>, text: &[u8], first: Token) -> (StatementFacts, Token) {
    let kind = tokens.kind(first);
    let behind_first = (kind == StatementKind::Set).then(|| tokens.clone());
    let in_comment = tokens.in_comment();
    let (mut statement, end) = scan(tokens, text, first, kind);
    statement.in_comment = in_comment;
    if let Some(behind) = behind_first {
        let traits = set::traits(set::assignments(&behind).as_deref());
        statement.traits.add(traits);
    }
    if matches!(kind, StatementKind::SetTransaction { scope, .. } if scope == VariableScope::Global)
    {
        statement.traits.add(StatementTraits::SETS_GLOBAL);
    }
    (statement, end)
}
