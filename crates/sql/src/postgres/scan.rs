//! Scans the tokens of a statement once for its functions, its tables and its properties.

use super::facts::{StatementFacts, StatementKind};
use super::lexer::Tokens;
use super::words::{self, Role};
use crate::facts::StatementTraits;
use crate::name::Name;
use crate::token::words as w;
use crate::token::{Lexer, Span, Token, TokenKind};

/// Maximum depth of parentheses. Deeper ones are not analyzed, and the statement is no read.
const DEPTH_MAX: u32 = 63;

/// Role of the next name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    /// A column, a function, or any other name.
    Anything,
    /// A table or a function that returns one (FROM, JOIN).
    Source,
    /// A table, even if a parenthesis follows it (INTO, UPDATE).
    Target,
}

/// One bit for each depth of parentheses.
#[derive(Debug, Clone, Copy, Default)]
struct Depths(u64);

impl Depths {
    fn at(self, depth: u32) -> bool {
        self.0.checked_shr(depth).unwrap_or(0) & 1 == 1
    }

    fn set(&mut self, depth: u32, value: bool) {
        let bit = 1_u64.checked_shl(depth).unwrap_or(0);
        self.0 = if value { self.0 | bit } else { self.0 & !bit };
    }
}

/// State of the scan of one statement.
pub(super) struct Scan<'t, 'a> {
    tokens: &'t mut Tokens<'a>,
    text: &'t [u8],
    statement: StatementFacts,
    token: Token,
    next: Token,
    last: Token,
    depth: u32,
    /// Depth of nested BEGIN ATOMIC and CASE in the body of a function, where a semicolon does not
    /// end the statement.
    body: u32,
    expect: Expect,
    /// Depths within a SELECT, DELETE or UPDATE: FROM begins a list of sources.
    selecting: Depths,
    /// Depths within a list of sources.
    sources: Depths,
    /// Depths within a list of WITH queries.
    with: Depths,
    /// True if the last token ended a source, so that a name here is its alias.
    after_source: bool,
    /// True if the last DISTINCT belongs to IS DISTINCT FROM.
    compares: bool,
}

impl<'t, 'a> Scan<'t, 'a> {
    /// Scans from `token` (already read) to the end of its statement. Returns the facts and the
    /// token that ended the statement.
    pub(super) fn run(
        tokens: &'t mut Tokens<'a>,
        text: &'t [u8],
        token: Token,
        kind: StatementKind,
    ) -> (StatementFacts, Token) {
        let next = tokens.next_token();
        let mut scan = Scan {
            tokens,
            text,
            statement: StatementFacts {
                kind,
                ..StatementFacts::default()
            },
            token,
            next,
            last: Token::default(),
            depth: 0,
            body: 0,
            expect: Expect::Anything,
            selecting: Depths::default(),
            sources: Depths::default(),
            with: Depths::default(),
            after_source: false,
            compares: false,
        };
        scan.statement.span = token.span;
        while !scan.at_end() {
            scan.step();
            scan.statement.span.end = scan.token.span.end;
            scan.advance();
        }
        let (statement, end, ahead) = (scan.statement, scan.token, scan.next);
        tokens.put_back(ahead);
        (statement, end)
    }

    #[inline]
    fn at_end(&self) -> bool {
        match self.token.kind {
            TokenKind::End => true,
            TokenKind::Semicolon => self.depth == 0 && self.body == 0,
            _ => false,
        }
    }

    #[inline]
    fn advance(&mut self) {
        self.last = self.token;
        self.token = self.next;
        if self.next.kind != TokenKind::End {
            self.next = self.tokens.next_token();
        }
    }

    #[inline]
    fn step(&mut self) {
        let after_source = std::mem::take(&mut self.after_source);
        match self.token.kind {
            TokenKind::Word
                if self.next.kind == TokenKind::Dot || self.last.kind == TokenKind::Dot =>
            {
                self.name(after_source);
            }
            TokenKind::Word => match words::role(self.token.word) {
                Role::Name => self.name(after_source),
                role => self.keyword(role),
            },
            TokenKind::QuotedName => self.name(after_source),
            TokenKind::EscapedName => {
                self.add(StatementTraits::OBSCURE);
                self.expect = Expect::Anything;
            }
            TokenKind::Open | TokenKind::OpenBracket => self.open(),
            TokenKind::Close | TokenKind::CloseBracket => self.close(),
            TokenKind::Comma if self.sources.at(self.depth) => self.expect = Expect::Source,
            TokenKind::Comma => {}
            TokenKind::Broken => self.add(StatementTraits::BROKEN),
            _ => self.expect = Expect::Anything,
        }
    }

    fn add(&mut self, traits: StatementTraits) {
        self.statement.traits.add(traits);
    }

    fn open(&mut self) {
        self.depth = self.depth.saturating_add(1);
        if self.depth > DEPTH_MAX {
            self.add(StatementTraits::TOO_DEEP);
        }
        for list in [&mut self.selecting, &mut self.sources, &mut self.with] {
            list.set(self.depth, false);
        }
        // `FROM (a JOIN b …)` continues with a source; `f(` and `INTO t (` do not.
        if self.last.is_name() && words::role(self.last.word) == Role::Name {
            self.expect = Expect::Anything;
        }
    }

    fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
        self.expect = Expect::Anything;
        self.after_source = self.sources.at(self.depth);
    }

    /// Records a name with its schema: a table, a function, or no relevant object.
    fn name(&mut self, after_source: bool) {
        let before = self.last;
        let name = self.dotted();
        self.note_schema(name);
        let called = self.next.kind == TokenKind::Open;
        match self.expect {
            Expect::Target => self.table(name),
            Expect::Source if !called => self.table(name),
            _ if called && !self.is_alias(before, after_source) => self.function(name),
            _ => {}
        }
        self.expect = Expect::Anything;
    }

    /// Advances to the last part of a dotted name.
    fn dotted(&mut self) -> Name {
        let mut name = Name {
            schema: Span::default(),
            name: self.token.span,
        };
        while self.next.kind == TokenKind::Dot {
            self.advance();
            if !self.next.is_name() {
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

    /// Returns whether `name (` is an alias with its columns, a WITH query, a type, or a prepared
    /// statement.
    fn is_alias(&self, before: Token, after_source: bool) -> bool {
        match before.kind {
            TokenKind::Cast => true,
            TokenKind::Comma => self.with.at(self.depth),
            TokenKind::Word => {
                let named = matches!(before.word, w::AS | w::PREPARE | w::EXECUTE);
                let with = matches!(before.word, w::WITH | w::RECURSIVE);
                // `AS NOT MATERIALIZED (`
                let hint = before.word == w::NOT && self.token.is(w::MATERIALIZED);
                named || (with || hint) && self.with.at(self.depth) || after_source
            }
            _ => after_source,
        }
    }

    fn table(&mut self, name: Name) {
        let written = name.name.of(self.text);
        let written = written.strip_prefix(b"\"").unwrap_or(written);
        if starts_with(written, b"pg_") {
            self.add(StatementTraits::CATALOG);
            let writes = self.statement.kind == StatementKind::Write
                || self.statement.traits.any(StatementTraits::WRITES);
            if writes && starts_with(written, b"pg_settings") {
                // The view has a rule that turns an UPDATE into a SET.
                self.add(StatementTraits::SETS_UNKNOWN);
            }
        }
        self.statement.tables.push(name);
        self.after_source = true;
    }

    fn function(&mut self, name: Name) {
        self.add(words::function_traits(name.name.of(self.text)));
        self.statement.functions.push(name);
    }

    fn note_schema(&mut self, name: Name) {
        if name.schema.is_empty() {
            return;
        }
        let schema = name.schema.of(self.text);
        let schema = schema.strip_prefix(b"\"").unwrap_or(schema);
        if starts_with(schema, b"pg_temp") {
            self.add(StatementTraits::TEMPORARY);
        } else if starts_with(schema, b"pg_catalog") && self.expect != Expect::Anything
            || starts_with(schema, b"information_schema")
        {
            self.add(StatementTraits::CATALOG);
        }
    }

    fn keyword(&mut self, role: Role) {
        let called = self.next.kind == TokenKind::Open;
        match role {
            Role::Name => {}
            Role::Select => {
                self.selecting.set(self.depth, true);
                self.sources.set(self.depth, false);
                self.with.set(self.depth, false);
                self.expect = Expect::Anything;
            }
            Role::From => self.from(),
            // `join` may be the name of a function; JOIN as a keyword is in a list of sources.
            Role::Join if called && !self.sources.at(self.depth) => self.name(false),
            Role::Join => self.expect = Expect::Source,
            Role::Over if called && !self.is_clause() => self.name(false),
            Role::Into => self.target_of_into(),
            Role::Using => self.using(),
            Role::Distinct => {
                self.compares = self.last.is(w::IS) || self.last.is(w::NOT);
                self.expect = Expect::Anything;
            }
            Role::Insert => self.writes(),
            Role::Delete => {
                self.writes();
                self.selecting.set(self.depth, true);
            }
            Role::Update => self.update(),
            Role::For => self.locking(),
            Role::EndsSources => {
                self.sources.set(self.depth, false);
                self.expect = Expect::Anything;
            }
            Role::Table => self.table_keyword(),
            // `FROM ONLY t`, `FROM LATERAL f()`, `JOIN LATERAL (`
            Role::KeepsExpecting => {}
            Role::With => self.begin_with(),
            Role::Temporary => self.temporary(),
            Role::Begin if called => self.name(false),
            Role::Begin => self.begin_body(),
            // A column may have that name.
            Role::Case | Role::End if self.last.is(w::AS) => self.expect = Expect::Anything,
            Role::Case if self.body > 0 => self.body = self.body.saturating_add(1),
            Role::End => self.body = self.body.saturating_sub(1),
            Role::Case | Role::Operand | Role::Over => self.expect = Expect::Anything,
            Role::Syntax if called => self.expect = Expect::Anything,
            Role::Syntax => self.name(false),
        }
    }

    /// Returns whether OVER, FILTER, SETS, BY or CONFLICT is a keyword here and not the name of a
    /// function.
    fn is_clause(&self) -> bool {
        let on_conflict = self.last.is(w::ON) && self.statement.traits.any(StatementTraits::WRITES);
        let clause = matches!(
            self.last.word,
            w::GROUP | w::ORDER | w::PARTITION | w::GROUPING | w::WITHIN
        );
        self.last.kind == TokenKind::Close || clause || on_conflict
    }

    /// Handles `DELETE FROM t USING source` and `MERGE INTO t USING source`. In these statements
    /// the columns of a JOIN's USING are also taken for sources.
    fn using(&mut self) {
        self.expect = match self.statement.traits.any(StatementTraits::WRITES) {
            true => Expect::Source,
            false => Expect::Anything,
        };
    }

    /// Handles FROM, which begins sources, but not in `extract(x FROM y)` nor in `IS DISTINCT
    /// FROM`.
    fn from(&mut self) {
        let is_operand = self.last.is(w::DISTINCT) && self.compares;
        if self.selecting.at(self.depth) && !is_operand {
            self.sources.set(self.depth, true);
            self.expect = Expect::Source;
        }
    }

    fn target_of_into(&mut self) {
        self.expect = Expect::Target;
        if !(self.last.is(w::INSERT) || self.last.is(w::MERGE)) {
            self.add(StatementTraits::SELECT_INTO);
        }
    }

    fn writes(&mut self) {
        self.add(StatementTraits::WRITES);
        self.with.set(self.depth, false);
        self.expect = Expect::Anything;
    }

    /// Handles UPDATE as a command. In FOR UPDATE and FOR NO KEY UPDATE it locks
    /// ([`Scan::locking`]).
    fn update(&mut self) {
        if matches!(self.last.word, w::FOR | w::KEY) && self.last.kind == TokenKind::Word {
            self.expect = Expect::Anything;
            return;
        }
        self.writes();
        if !matches!(self.last.word, w::DO | w::ON | w::THEN) {
            self.selecting.set(self.depth, true);
            self.expect = Expect::Target;
        }
    }

    fn locking(&mut self) {
        let next = self.next.word;
        if self.next.kind == TokenKind::Word
            && matches!(next, w::UPDATE | w::SHARE | w::NO | w::KEY)
        {
            self.add(StatementTraits::LOCKS_ROWS);
            self.sources.set(self.depth, false);
        }
        self.expect = Expect::Anything;
    }

    /// Handles TABLE before the name of a table: as a command, and in LOCK TABLE, TRUNCATE TABLE,
    /// SELECT INTO TABLE.
    fn table_keyword(&mut self) {
        self.expect = Expect::Target;
        self.with.set(self.depth, false);
    }

    /// Handles WITH, which begins queries at the start of a query. Elsewhere it has other meanings
    /// (WITH ORDINALITY, timestamp WITH TIME ZONE).
    fn begin_with(&mut self) {
        let starts = matches!(self.last.kind, TokenKind::End | TokenKind::Open);
        let after_words = self.depth == 0 && !self.selecting.at(0);
        if starts || after_words {
            self.with.set(self.depth, true);
        }
        self.expect = Expect::Anything;
    }

    /// Handles TEMPORARY, which matters in CREATE and in SELECT INTO, there also after LOCAL or
    /// GLOBAL. Elsewhere it may be the name of any object.
    fn temporary(&mut self) {
        let creates = self.statement.kind == StatementKind::Ddl;
        let is_qualified = self.last.is(w::LOCAL) || self.last.is(w::GLOBAL);
        let is_into = is_qualified && self.statement.traits.any(StatementTraits::SELECT_INTO);
        if creates || is_into || self.expect == Expect::Target {
            self.add(StatementTraits::TEMPORARY);
            return;
        }
        self.name(false);
    }

    /// Handles the body of a function in SQL: `CREATE FUNCTION … BEGIN ATOMIC …; …; END`.
    fn begin_body(&mut self) {
        let creates = self.statement.kind == StatementKind::Ddl;
        if creates && self.next.is(w::ATOMIC) {
            self.body = self.body.saturating_add(1);
        }
        self.expect = Expect::Anything;
    }
}

fn starts_with(written: &[u8], prefix: &[u8]) -> bool {
    let start = written.get(..prefix.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}
