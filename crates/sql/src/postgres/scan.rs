//! Scan of PostgreSQL's statements: the part that differs from MySQL's.

use super::facts::{StatementFacts, StatementKind};
use super::lexer::Tokens;
use super::words::{self, OwnRole};
use crate::facts::{self, Expect, Grammar, Role, StatementTraits};
use crate::name::Name;
use crate::token::words as w;
use crate::token::{Token, TokenKind, Word};

/// State of the scan of one statement.
type Scan<'t, 'a> = facts::Scan<'t, Tokens<'a>, StatementKind, OwnState>;

/// State of the scan that MySQL's lacks.
#[derive(Default)]
pub(super) struct OwnState {
    /// Depth of nested BEGIN ATOMIC and CASE in the body of a function, where a semicolon does not
    /// end the statement.
    body: u32,
    /// True if the last DISTINCT belongs to IS DISTINCT FROM.
    compares: bool,
}

/// Scans from `token` (already read) to the end of its statement. Returns the facts and the token
/// that ended the statement.
pub(super) fn scan(
    tokens: &mut Tokens<'_>,
    text: &[u8],
    token: Token,
    kind: StatementKind,
) -> (StatementFacts, Token) {
    Scan::run(tokens, text, token, kind, OwnState::default())
}

impl Grammar for Scan<'_, '_> {
    type Role = OwnRole;

    const NUMBERS_IN_NAMES: bool = false;

    #[inline]
    fn role(word: Word) -> Role<OwnRole> {
        words::role(word)
    }

    #[inline]
    fn begin(&mut self) {}

    #[inline]
    fn ends_at_semicolon(&self) -> bool {
        self.depth == 0 && self.own.body == 0
    }

    #[inline]
    fn opened(&mut self) {
        self.sources.set(self.depth, false);
        // `FROM (a JOIN b …)` continues with a source; `f(` and `INTO t (` do not.
        if self.last.is_name() && words::role(self.last.word) == Role::Name {
            self.expect = Expect::Anything;
        }
    }

    #[inline]
    fn other(&mut self) {
        if self.token.kind == TokenKind::EscapedName {
            self.add(StatementTraits::OBSCURE);
        }
        self.expect = Expect::Anything;
    }

    /// Returns whether `name (` is an alias with its columns, a WITH query, a type, or a prepared
    /// statement.
    #[inline]
    fn is_alias(&self, before: Token) -> bool {
        match before.kind {
            TokenKind::Cast => true,
            TokenKind::Comma => self.is_with_query(before),
            TokenKind::Word if matches!(before.word, w::AS | w::PREPARE | w::EXECUTE) => true,
            // `AS NOT MATERIALIZED (`
            TokenKind::Word if before.word == w::NOT && self.token.is(w::MATERIALIZED) => {
                self.with.at(self.depth) || self.follows_source
            }
            _ => self.is_with_query(before) || self.follows_source,
        }
    }

    #[inline]
    fn schema(&mut self, name: Name) {
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

    #[inline]
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
    }

    #[inline]
    fn function(&mut self, name: Name) {
        self.add(words::function_traits(name.name.of(self.text)));
        self.statement.functions.push(name);
    }

    #[inline]
    fn plain_name(&mut self, _: Name) {}

    #[inline]
    fn keyword(&mut self, role: OwnRole) {
        let called = self.next.kind == TokenKind::Open;
        match role {
            OwnRole::From => self.from(),
            // `join` may be the name of a function; JOIN as a keyword is in a list of sources.
            OwnRole::Join if called && !self.sources.at(self.depth) => self.name(),
            OwnRole::Join => self.expect = Expect::Source,
            OwnRole::Over if called && !self.is_clause() => self.name(),
            OwnRole::Into => self.target_of_into(),
            OwnRole::Using => self.using(),
            OwnRole::Distinct => {
                self.own.compares = self.last.is(w::IS) || self.last.is(w::NOT);
                self.expect = Expect::Anything;
            }
            OwnRole::Insert => self.writes(),
            OwnRole::Delete => {
                self.writes();
                self.selecting.set(self.depth, true);
            }
            OwnRole::Update => self.update(),
            OwnRole::For => self.locking(),
            OwnRole::Table => self.expect_table(),
            OwnRole::With => self.begin_with(),
            OwnRole::Temporary => self.temporary(),
            OwnRole::Begin if called => self.name(),
            OwnRole::Begin => self.begin_body(),
            // A column may have that name.
            OwnRole::Case | OwnRole::End if self.last.is(w::AS) => self.expect = Expect::Anything,
            OwnRole::Case if self.own.body > 0 => self.own.body = self.own.body.saturating_add(1),
            OwnRole::End => self.own.body = self.own.body.saturating_sub(1),
            OwnRole::Case | OwnRole::Over => self.expect = Expect::Anything,
            OwnRole::Syntax if called => self.expect = Expect::Anything,
            OwnRole::Syntax => self.name(),
        }
    }
}

impl Scan<'_, '_> {
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
        let is_operand = self.last.is(w::DISTINCT) && self.own.compares;
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
        self.begin_write();
        self.expect = Expect::Anything;
    }

    /// Handles UPDATE as a command. In FOR UPDATE and FOR NO KEY UPDATE it locks
    /// (`locking`).
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
            self.lock_rows();
        }
        self.expect = Expect::Anything;
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
        self.name();
    }

    /// Handles the body of a function in SQL: `CREATE FUNCTION … BEGIN ATOMIC …; …; END`.
    fn begin_body(&mut self) {
        let creates = self.statement.kind == StatementKind::Ddl;
        if creates && self.next.is(w::ATOMIC) {
            self.own.body = self.own.body.saturating_add(1);
        }
        self.expect = Expect::Anything;
    }
}

fn starts_with(written: &[u8], prefix: &[u8]) -> bool {
    let start = written.get(..prefix.len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}
