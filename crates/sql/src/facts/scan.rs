//! Scans the tokens of a statement once for its functions, its tables and its properties. A
//! dialect's own words and names are in its [`Grammar`].

use super::{StatementFacts, StatementKind, StatementTraits};
use crate::name::Name;
use crate::token::words as w;
use crate::token::{Lexer, Span, Token, TokenKind, Word};

/// Maximum depth of parentheses. Deeper ones are not analyzed, and the statement is no read.
const DEPTH_MAX: u32 = 63;

/// Role of a word in the middle of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role<O> {
    /// No role of its own: a name, or a keyword that does not matter.
    Name,
    /// Begins a query.
    Select,
    /// Ends the list of sources.
    EndsSources,
    /// Precedes a source or target.
    KeepsExpecting,
    /// A reserved word before an operand: a parenthesis after it begins no call.
    Operand,
    /// A role that the dialects handle differently.
    Own(O),
}

/// Role of the next name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expect {
    /// A column, a function, or any other name.
    Anything,
    /// A table or a function that returns one (FROM, JOIN).
    Source,
    /// A table, even if a parenthesis follows it (INTO, UPDATE).
    Target,
}

/// One bit for each depth of parentheses.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Depths(u64);

impl Depths {
    #[inline]
    pub(crate) fn at(self, depth: u32) -> bool {
        self.0.checked_shr(depth).unwrap_or(0) & 1 == 1
    }

    #[inline]
    pub(crate) fn set(&mut self, depth: u32, value: bool) {
        let bit = 1_u64.checked_shl(depth).unwrap_or(0);
        self.0 = if value { self.0 | bit } else { self.0 & !bit };
    }
}

/// State of the scan of one statement, with tokens `T`, kinds `K`, and the dialect's own state `O`.
pub(crate) struct Scan<'t, T, K, O> {
    pub(crate) tokens: &'t mut T,
    pub(crate) text: &'t [u8],
    pub(crate) statement: StatementFacts<K>,
    pub(crate) token: Token,
    pub(crate) next: Token,
    pub(crate) last: Token,
    pub(crate) depth: u32,
    pub(crate) expect: Expect,
    /// Depths within a SELECT or DELETE, and PostgreSQL's UPDATE: FROM begins a list of sources.
    pub(crate) selecting: Depths,
    /// Depths within a list of sources.
    pub(crate) sources: Depths,
    /// Depths within a list of WITH queries.
    pub(crate) with: Depths,
    /// True if the last token ended a source, so that a name here is its alias.
    pub(crate) follows_source: bool,
    /// True if this token ends a source.
    ends_source: bool,
    pub(crate) own: O,
}

/// The part of the scan in which the dialects differ. Implemented for their [`Scan`].
pub(crate) trait Grammar {
    /// Roles of words that the dialects handle differently.
    type Role: Copy + PartialEq;

    /// True if a number can be a part of a name after its dot.
    const NUMBERS_IN_NAMES: bool;

    /// Returns the role of a word.
    fn role(word: Word) -> Role<Self::Role>;

    /// Adds the properties that the beginning of the statement shows.
    fn begin(&mut self);

    /// Returns whether a semicolon here ends the statement.
    fn ends_at_semicolon(&self) -> bool;

    /// Handles a word with a role of its own.
    fn keyword(&mut self, role: Self::Role);

    /// Sets what is expected after an opening parenthesis or bracket, at the new depth.
    fn opened(&mut self);

    /// Handles a token that is no word, name, or punctuation.
    fn other(&mut self);

    /// Returns whether `name (` after the token `before` calls no function.
    fn is_alias(&self, before: Token) -> bool;

    /// Adds the properties that the schema of a name shows.
    fn schema(&mut self, name: Name);

    /// Adds the properties of a statement that names this table.
    fn table(&mut self, name: Name);

    /// Records a call of a function.
    fn function(&mut self, name: Name);

    /// Handles a name that is neither a table nor a function.
    fn plain_name(&mut self, name: Name);
}

impl<'t, T: Lexer, K: StatementKind, O> Scan<'t, T, K, O>
where
    Self: Grammar,
{
    /// Scans from `token` (already read) to the end of its statement. Returns the facts and the
    /// token that ended the statement.
    #[inline]
    pub(crate) fn run(
        tokens: &'t mut T,
        text: &'t [u8],
        token: Token,
        kind: K,
        own: O,
    ) -> (StatementFacts<K>, Token) {
        let next = tokens.next_token();
        let mut scan = Scan {
            tokens,
            text,
            statement: StatementFacts {
                kind,
                span: token.span,
                ..StatementFacts::default()
            },
            token,
            next,
            last: Token::default(),
            depth: 0,
            expect: Expect::Anything,
            selecting: Depths::default(),
            sources: Depths::default(),
            with: Depths::default(),
            follows_source: false,
            ends_source: false,
            own,
        };
        scan.begin();
        while !scan.at_end() {
            scan.step();
            scan.statement.span.end = scan.token.span.end;
            scan.advance();
        }
        if scan.token.kind != TokenKind::End {
            scan.tokens.put_back(scan.next);
        }
        (scan.statement, scan.token)
    }

    #[inline]
    fn at_end(&self) -> bool {
        match self.token.kind {
            TokenKind::End => true,
            TokenKind::Semicolon => self.ends_at_semicolon(),
            _ => false,
        }
    }

    #[inline]
    fn advance(&mut self) {
        self.last = self.token;
        self.token = self.next;
        // The token after a semicolon is read, too, and `run` rewinds to it. A comment between them
        // is passed here and counts for the statement before the semicolon.
        if self.next.kind != TokenKind::End {
            self.next = self.tokens.next_token();
        }
    }

    #[inline]
    fn step(&mut self) {
        self.follows_source = std::mem::take(&mut self.ends_source);
        match self.token.kind {
            TokenKind::Word
                if self.next.kind == TokenKind::Dot || self.last.kind == TokenKind::Dot =>
            {
                self.name();
            }
            TokenKind::Word => match Self::role(self.token.word) {
                Role::Name => self.name(),
                role => self.any_keyword(role),
            },
            TokenKind::QuotedName => self.name(),
            TokenKind::Open | TokenKind::OpenBracket => self.open(),
            TokenKind::Close | TokenKind::CloseBracket => self.close(),
            TokenKind::Comma if self.sources.at(self.depth) => self.expect = Expect::Source,
            TokenKind::Comma => {}
            TokenKind::Broken => self.add(StatementTraits::BROKEN),
            _ => self.other(),
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, traits: StatementTraits) {
        self.statement.traits.add(traits);
    }

    #[inline]
    fn open(&mut self) {
        self.depth = self.depth.saturating_add(1);
        if self.depth > DEPTH_MAX {
            self.add(StatementTraits::TOO_DEEP);
        }
        for list in [&mut self.selecting, &mut self.with] {
            list.set(self.depth, false);
        }
        self.opened();
    }

    #[inline]
    fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.expect = Expect::Anything;
        self.ends_source = self.sources.at(self.depth);
    }

    #[inline]
    fn any_keyword(&mut self, role: Role<<Self as Grammar>::Role>) {
        self.follows_source = false;
        match role {
            Role::Name | Role::KeepsExpecting => {}
            Role::Select => {
                self.selecting.set(self.depth, true);
                self.with.set(self.depth, false);
                self.end_sources();
            }
            Role::EndsSources => self.end_sources(),
            Role::Operand => self.expect = Expect::Anything,
            Role::Own(role) => self.keyword(role),
        }
    }

    fn end_sources(&mut self) {
        self.sources.set(self.depth, false);
        self.expect = Expect::Anything;
    }

    /// Begins a part of the statement that writes.
    pub(crate) fn begin_write(&mut self) {
        self.add(StatementTraits::WRITES);
        self.with.set(self.depth, false);
    }

    /// Handles TABLE before the name of a table.
    pub(crate) fn expect_table(&mut self) {
        self.expect = Expect::Target;
        self.with.set(self.depth, false);
    }

    /// Handles FOR UPDATE and similar clauses.
    pub(crate) fn lock_rows(&mut self) {
        self.add(StatementTraits::LOCKS_ROWS);
        self.sources.set(self.depth, false);
    }

    /// Records a name with its schema: a table, a function, or no relevant object.
    pub(crate) fn name(&mut self) {
        let before = self.last;
        let name = self.dotted();
        self.schema(name);
        let called = self.next.kind == TokenKind::Open;
        match self.expect {
            Expect::Target => self.any_table(name),
            Expect::Source if !called => self.any_table(name),
            _ if called && !self.is_alias(before) => self.function(name),
            _ => self.plain_name(name),
        }
        self.expect = Expect::Anything;
    }

    #[inline]
    fn any_table(&mut self, name: Name) {
        self.table(name);
        self.statement.tables.push(name);
        self.ends_source = true;
    }

    /// Advances to the last part of a dotted name.
    #[inline]
    fn dotted(&mut self) -> Name {
        let mut name = Name {
            schema: Span::default(),
            name: self.token.span,
        };
        while self.next.kind == TokenKind::Dot {
            self.advance();
            let is_number = Self::NUMBERS_IN_NAMES && self.next.kind == TokenKind::Number;
            if !(self.next.is_name() || is_number) {
                break;
            }
            self.advance();
            if self.token.kind == TokenKind::EscapedName {
                self.add(StatementTraits::OBSCURE);
            }
            name.schema = name.name;
            name.name = self.token.span;
        }
        name
    }

    /// Returns whether a name after WITH, RECURSIVE or a comma is that of a WITH query.
    pub(crate) fn is_with_query(&self, before: Token) -> bool {
        let begins = match before.kind {
            TokenKind::Comma => true,
            TokenKind::Word => matches!(before.word, w::WITH | w::RECURSIVE),
            _ => false,
        };
        begins && self.with.at(self.depth)
    }
}
