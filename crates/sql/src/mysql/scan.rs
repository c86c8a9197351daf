//! Scan of MySQL's statements: the part that differs from PostgreSQL's.

use super::builtin;
use super::facts::{StatementFacts, StatementKind};
use super::head;
use super::lexer::Tokens;
use super::names;
use super::words::{self, OwnRole};
use crate::facts::{self, Expect, Grammar, Role, StatementTraits};
use crate::name::Name;
use crate::token::words as w;
use crate::token::{Token, TokenKind, Word};

/// State of the scan of one statement.
type Scan<'t, 'a> = facts::Scan<'t, Tokens<'a>, StatementKind, OwnState>;

/// State of the scan that PostgreSQL's lacks.
pub(super) struct OwnState {
    /// True if the statement defines a stored program, which may contain semicolons.
    is_program: bool,
}

/// Scans from `token` (already read) to the end of its statement. Returns the facts and the token
/// that ended the statement.
pub(super) fn scan(
    tokens: &mut Tokens<'_>,
    text: &[u8],
    token: Token,
    kind: StatementKind,
) -> (StatementFacts, Token) {
    let makes = token.is(w::CREATE) || token.is(w::ALTER);
    let is_program = makes && head::is_program(tokens);
    Scan::run(tokens, text, token, kind, OwnState { is_program })
}

impl Grammar for Scan<'_, '_> {
    type Role = OwnRole;

    const NUMBERS_IN_NAMES: bool = true;

    #[inline]
    fn role(word: Word) -> Role<OwnRole> {
        words::role(word)
    }

    #[inline]
    fn begin(&mut self) {
        if self.own.is_program {
            self.add(StatementTraits::STORED_PROGRAM);
        }
        if self.statement.kind == StatementKind::Show {
            self.show();
        }
    }

    /// An unknown statement extends to the end of the text, too.
    #[inline]
    fn ends_at_semicolon(&self) -> bool {
        !self.own.is_program && self.statement.kind != StatementKind::Unknown
    }

    #[inline]
    fn opened(&mut self) {
        let joins = self.expect == Expect::Source && !self.last.is_name();
        let joins = joins || self.last.is(w::FROM) || self.last.is(w::JOIN);
        // `FROM (a, b JOIN c)`: the list of sources continues inside the parentheses.
        let inside = joins && !words::begins_query(self.next.word);
        self.sources.set(self.depth, inside);
        if !inside {
            self.expect = Expect::Anything;
        }
    }

    #[inline]
    fn other(&mut self) {
        match self.token.kind {
            TokenKind::UserVariable => self.user_variable(),
            TokenKind::SystemVariable => self.system_variable(),
            TokenKind::Operator if self.token.word == w::ASSIGN => self.assign(),
            _ => self.expect = Expect::Anything,
        }
    }

    /// Returns whether `name (` is an alias with its columns, a WITH query, or an index.
    #[inline]
    fn is_alias(&self, before: Token) -> bool {
        before.is(w::AS) || self.is_with_query(before)
    }

    #[inline]
    fn schema(&mut self, _: Name) {}

    #[inline]
    fn table(&mut self, name: Name) {
        let schema = name.schema.of(self.text);
        let table = name.name.of(self.text);
        self.add(words::schema_traits(schema, table));
    }

    #[inline]
    fn function(&mut self, name: Name) {
        let written = name.name.of(self.text);
        if !name.schema.is_empty() {
            self.statement.functions.push(name);
            return;
        }
        // A quoted name refers to the server's own function as well, except for names that are
        // words of its grammar.
        let traits = builtin::traits(&names::identifier(written));
        if traits.any(StatementTraits::READS_INSERT_ID) {
            // Token after the parenthesis, which is the next token.
            let argument = self.tokens.clone().next_token().kind != TokenKind::Close;
            let set = if argument {
                StatementTraits::SETS_INSERT_ID
            } else {
                traits
            };
            self.add(set);
            return;
        }
        self.add(traits);
        let in_query = matches!(
            self.statement.kind,
            StatementKind::Select | StatementKind::Write | StatementKind::Set | StatementKind::Do
        );
        let stored = in_query && builtin::may_be_stored(written, self.tokens.modes());
        if stored || !builtin::is_builtin(written) {
            self.statement.functions.push(name);
        }
    }

    /// Handles a word that is too long for a keyword comparison, or a dotted name.
    #[inline]
    fn plain_name(&mut self, name: Name) {
        let written = name.name.of(self.text);
        if written.eq_ignore_ascii_case(b"sql_calc_found_rows") {
            self.add(StatementTraits::CALCULATES_FOUND_ROWS);
        }
        // Oracle's `s.nextval`, as an alternative to `NEXT VALUE FOR s`.
        if !name.schema.is_empty() && written.eq_ignore_ascii_case(b"nextval") {
            self.add(StatementTraits::NEXT_VALUE);
        }
        if !name.schema.is_empty() && written.eq_ignore_ascii_case(b"currval") {
            self.add(StatementTraits::CURRENT_VALUE);
        }
    }

    #[inline]
    fn keyword(&mut self, role: OwnRole) {
        let called = self.next.kind == TokenKind::Open;
        match role {
            OwnRole::From if self.selecting.at(self.depth) => {
                self.sources.set(self.depth, true);
                self.expect = Expect::Source;
            }
            OwnRole::From => self.expect = Expect::Anything,
            OwnRole::Join => self.expect = Expect::Source,
            OwnRole::Into => self.into(),
            // INSERT(…), REPLACE(…) and TRUNCATE(…) are also functions.
            OwnRole::Write if called => self.expect = Expect::Anything,
            OwnRole::Write => self.writes(),
            OwnRole::Update => self.update(),
            OwnRole::For => self.for_update(),
            OwnRole::Lock if self.next.is(w::IN) => self.add(StatementTraits::LOCKS_ROWS),
            OwnRole::Lock => {}
            OwnRole::Table if called => self.expect = Expect::Anything,
            OwnRole::Table => self.expect_table(),
            OwnRole::With => {
                // After SELECT, WITH begins WITH ROLLUP or a similar clause: no query's name
                // follows.
                self.with.set(self.depth, !self.selecting.at(self.depth));
                self.expect = Expect::Anything;
            }
            OwnRole::Temporary => self.temporary(),
            OwnRole::Next if self.next.is(w::VALUE) => self.add(StatementTraits::NEXT_VALUE),
            OwnRole::Previous if self.next.is(w::VALUE) => self.add(StatementTraits::CURRENT_VALUE),
            OwnRole::Next | OwnRole::Previous => self.name(),
        }
    }
}

impl Scan<'_, '_> {
    fn user_variable(&mut self) {
        if self.next.kind == TokenKind::Operator && self.next.word == w::ASSIGN {
            self.add(StatementTraits::SETS_VARIABLES);
        } else if self.statement.kind != StatementKind::Set {
            self.add(StatementTraits::READS_VARIABLES);
        }
        self.expect = Expect::Anything;
    }

    fn system_variable(&mut self) {
        self.add(StatementTraits::READS_SYSTEM);
        let written = self.token.span.of(self.text);
        self.add(words::system_variable_traits(written));
        if written.ends_with(b".") || self.next.kind == TokenKind::Dot {
            // A blank or a comment separates the scope and the name: assume the worst of any name.
            let any = StatementTraits::READS_INSERT_ID.and(StatementTraits::DIAGNOSTICS);
            self.add(any.and(StatementTraits::CONNECTION_ID));
        }
        self.expect = Expect::Anything;
    }

    fn assign(&mut self) {
        if self.statement.kind != StatementKind::Set {
            self.add(StatementTraits::SETS_VARIABLES);
        }
    }

    fn into(&mut self) {
        let writes = matches!(
            self.statement.kind,
            StatementKind::Write | StatementKind::LoadData { .. }
        );
        if writes && !self.selecting.at(self.depth) {
            self.expect = Expect::Target;
            return;
        }
        self.sources.set(self.depth, false);
        self.expect = Expect::Anything;
        let file = self.next.is(w::OUTFILE) || self.next.is(w::DUMPFILE);
        self.add(match file {
            true => StatementTraits::INTO_FILE,
            false => StatementTraits::SETS_VARIABLES,
        });
    }

    /// Handles INSERT, REPLACE, DELETE and TRUNCATE, anywhere in a statement.
    fn writes(&mut self) {
        self.begin_write();
        // `DELETE FROM t`, `DELETE t FROM t JOIN u`; in `INSERT t VALUES …` the table follows
        // immediately.
        self.selecting.set(self.depth, self.token.is(w::DELETE));
        self.expect = match self.token.is(w::DELETE) {
            true => Expect::Anything,
            false => Expect::Target,
        };
    }

    /// Handles UPDATE as a command. In FOR UPDATE it locks; in ON DUPLICATE KEY UPDATE it continues
    /// an INSERT.
    fn update(&mut self) {
        let clause = self.last.is(w::FOR) || self.last.is(w::KEY) || self.last.is(w::ON);
        if clause {
            self.expect = Expect::Anything;
            return;
        }
        self.begin_write();
        self.sources.set(self.depth, true);
        self.expect = Expect::Target;
    }

    fn for_update(&mut self) {
        if self.next.is(w::UPDATE) || self.next.is(w::SHARE) {
            self.lock_rows();
        }
        self.expect = Expect::Anything;
    }

    fn temporary(&mut self) {
        if self.statement.kind == StatementKind::Ddl {
            self.add(StatementTraits::TEMPORARY);
        }
        self.expect = Expect::Anything;
    }

    /// Adds the properties of a SHOW by the words after it.
    fn show(&mut self) {
        let (mut token, mut tokens) = (self.next, self.tokens.clone());
        while token.is(w::FULL) || token.is(w::EXTENDED) {
            token = tokens.next_token();
        }
        if token.is(w::COUNT) {
            self.add(StatementTraits::DIAGNOSTICS);
        } else if !words::is_shown_everywhere(token.word) {
            let diagnostics = token.is(w::WARNINGS) || token.is(w::ERRORS);
            self.add(match diagnostics {
                true => StatementTraits::DIAGNOSTICS,
                false => StatementTraits::SERVER_STATE,
            });
        }
    }
}
