//! Facts about the statements of a text, in the terms that both dialects share.

mod head;
mod scan;
mod traits;

use super::hint::HintComment;
use super::name::{Name, Names};
use super::token::{Lexer, Span, Token, TokenKind, Word};
use head::begins_query;
pub(crate) use scan::{Expect, Grammar, Role, Scan};
pub use traits::StatementTraits;

/// Maximum number of statements of one text that are described. The facts about one statement take
/// a hundred times the bytes of a short statement.
pub const STATEMENTS_MAX: usize = 1_000;

/// The kind of a statement in a dialect. The default is that of a text without statements.
pub trait StatementKind: Copy + PartialEq + Default {
    /// A query.
    const SELECT: Self;

    /// A statement that changes rows.
    const WRITE: Self;

    /// A statement that is not recognized.
    const UNKNOWN: Self;

    /// Returns whether a statement of this kind only reads; `is_harmless`: its words neither write,
    /// lock, nor change the session.
    fn only_reads(self, is_harmless: bool) -> bool;
}

/// Facts about a text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TextFacts<'a, K> {
    text: &'a [u8],
    pub(crate) first: StatementFacts<K>,
    more: Vec<StatementFacts<K>>,
    is_cut: bool,
    hint: Option<HintComment<'a>>,
}

impl<'a, K: StatementKind> TextFacts<'a, K> {
    /// Reads the facts about a text from its statements, which `statements` has left when it
    /// returns.
    #[inline]
    pub(crate) fn of<T: StatementLexer<Kind = K>>(statements: &mut Statements<'a, T>) -> Self {
        let mut facts = TextFacts {
            text: statements.text,
            ..TextFacts::default()
        };
        for statement in statements.by_ref().take(STATEMENTS_MAX) {
            if facts.first.is_empty() {
                facts.first = statement;
            } else {
                facts.more.push(statement);
            }
        }
        facts.is_cut = statements.next().is_some();
        facts
    }

    pub(crate) fn set_hint(&mut self, hint: Option<HintComment<'a>>) {
        self.hint = hint;
    }

    /// Returns the text, to which the spans of the statements refer.
    #[must_use]
    pub fn text(&self) -> &'a [u8] {
        self.text
    }

    /// Returns the statements in order: none for an empty text, and up to [`STATEMENTS_MAX`].
    pub fn statements(&self) -> impl Iterator<Item = &StatementFacts<K>> {
        let first = (!self.first.is_empty()).then_some(&self.first);
        first.into_iter().chain(&self.more)
    }

    /// Returns the statement if the text has exactly one.
    #[must_use]
    pub fn single(&self) -> Option<&StatementFacts<K>> {
        let mut statements = self.statements();
        let first = statements.next();
        if statements.next().is_some() {
            return None;
        }
        first
    }

    /// Returns the number of statements.
    #[must_use]
    pub fn count(&self) -> usize {
        self.statements().count()
    }

    /// Returns whether the text has more statements than are described.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns the first hint in the comments of the text that was read.
    #[must_use]
    pub(crate) fn hint(&self) -> Option<HintComment<'a>> {
        self.hint
    }

    /// Returns whether every statement only reads, judging by the text; see
    /// [`StatementFacts::only_reads`].
    #[must_use]
    pub fn only_reads(&self) -> bool {
        !self.is_cut && self.statements().all(StatementFacts::only_reads)
    }
}

/// Facts about one statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StatementFacts<K> {
    /// Kind of the statement.
    pub kind: K,
    /// Further relevant properties.
    pub traits: StatementTraits,
    /// Names of the functions that the statement calls. In MySQL without those built into the
    /// server.
    pub functions: Names,
    /// Tables and views that the statement names, including the names of its own WITH queries.
    pub tables: Names,
    /// Position of the statement in the text, without the semicolon.
    pub span: Span,
    /// True if the statement begins within one of MySQL's executable comments.
    pub(crate) in_comment: bool,
}

impl<K: StatementKind> StatementFacts<K> {
    /// Returns whether no word of the statement writes, locks, changes the session, or reads state
    /// that only the session's last server has.
    ///
    /// The statement may still call functions that do ([`StatementFacts::functions`], complete
    /// unless [`Names::is_cut`]), and read from views that call them. An unknown statement is no
    /// read.
    #[must_use]
    pub fn only_reads(&self) -> bool {
        self.kind
            .only_reads(self.traits.is_subset(StatementTraits::HARMLESS))
    }

    /// Returns whether there is no statement.
    pub(crate) fn is_empty(&self) -> bool {
        self.kind == K::default()
    }

    /// Returns whether the statement calls a function of that name, in any schema.
    #[must_use]
    pub fn calls(&self, text: &[u8], name: &[u8]) -> bool {
        names_has(&self.functions, text, name)
    }

    /// Returns whether the statement names a table or view of that name, in any schema.
    #[must_use]
    pub(crate) fn names_table(&self, text: &[u8], name: &[u8]) -> bool {
        names_has(&self.tables, text, name)
    }
}

/// An isolation level, as both dialects have them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// READ UNCOMMITTED.
    ReadUncommitted,
    /// READ COMMITTED.
    ReadCommitted,
    /// REPEATABLE READ.
    RepeatableRead,
    /// SERIALIZABLE. PostgreSQL's standbys reject it; in MySQL every read locks.
    Serializable,
}

/// A lexer that reads whole statements.
pub(crate) trait StatementLexer: Lexer {
    /// Kinds of statements of the dialect.
    type Kind: StatementKind;

    /// Returns the kind of a statement that begins with this word, which was read.
    fn kind_of_word(&self, word: Word) -> Self::Kind;

    /// Returns the kind of a statement that begins with `first`, which was read.
    #[inline]
    fn kind(&self, first: Token) -> Self::Kind {
        match first.kind {
            TokenKind::Word => self.kind_of_word(first.word),
            // `(SELECT …) UNION …`
            TokenKind::Open if begins_query(self) => Self::Kind::SELECT,
            _ => Self::Kind::UNKNOWN,
        }
    }

    /// Reads the statement that begins with `first`, which was read. Returns its facts and the
    /// token that ended it.
    fn statement(&mut self, text: &[u8], first: Token) -> (StatementFacts<Self::Kind>, Token);
}

/// Iterator over the statements of a text, without the limit of [`STATEMENTS_MAX`].
#[derive(Debug, Clone)]
pub(crate) struct Statements<'a, T> {
    pub(crate) tokens: T,
    text: &'a [u8],
    is_over: bool,
}

impl<'a, T> Statements<'a, T> {
    pub(crate) fn new(text: &'a [u8], tokens: T) -> Self {
        Statements {
            tokens,
            text,
            is_over: false,
        }
    }
}

impl<T: StatementLexer> Iterator for Statements<'_, T> {
    type Item = StatementFacts<T::Kind>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_over {
            let token = self.tokens.next_token();
            match token.kind {
                TokenKind::End => self.is_over = true,
                TokenKind::Semicolon => {}
                _ => {
                    let (statement, end) = self.tokens.statement(self.text, token);
                    self.is_over = end.kind == TokenKind::End;
                    return Some(statement);
                }
            }
        }
        None
    }
}

fn names_has(names: &Names, text: &[u8], name: &[u8]) -> bool {
    let is = |found: &Name| found.name_in(text).as_ref() == name;
    names.as_slice().iter().any(is)
}
