//! Scans the tokens of a statement once for its functions, its tables and its properties.

use super::builtin;
use super::facts::{StatementFacts, StatementKind};
use super::head;
use super::lexer::Tokens;
use super::names;
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
    /// True if the statement extends to the end of the text, including semicolons: a stored program
    /// or an unknown statement.
    to_the_end: bool,
    expect: Expect,
    /// Depths within a SELECT or DELETE: FROM begins a list of sources.
    selecting: Depths,
    /// Depths within a list of sources.
    sources: Depths,
    /// Depths within a list of WITH queries.
    with: Depths,
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
        let makes = token.is(w::CREATE) || token.is(w::ALTER);
        let is_program = makes && head::is_program(tokens);
        let next = tokens.next_token();
        let mut statement = StatementFacts {
            kind,
            ..StatementFacts::default()
        };
        statement.span = token.span;
        let mut scan = Scan {
            tokens,
            text,
            statement,
            token,
            next,
            last: Token::default(),
            depth: 0,
            to_the_end: kind == StatementKind::Unknown || is_program,
            expect: Expect::Anything,
            selecting: Depths::default(),
            sources: Depths::default(),
            with: Depths::default(),
        };
        if is_program {
            scan.add(StatementTraits::STORED_PROGRAM);
        }
        if kind == StatementKind::Show {
            scan.show();
        }
        while !scan.at_end() {
            scan.step();
            scan.statement.span.end = scan.token.span.end;
            scan.advance();
        }
        let (statement, end, ahead) = (scan.statement, scan.token, scan.next);
        if end.kind != TokenKind::End {
            tokens.put_back(ahead);
        }
        (statement, end)
    }

    fn at_end(&self) -> bool {
        match self.token.kind {
            TokenKind::End => true,
            TokenKind::Semicolon => !self.to_the_end,
            _ => false,
        }
    }

    fn advance(&mut self) {
        self.last = self.token;
        self.token = self.next;
        // The token after a semicolon is read, too, and `run` rewinds to it. A comment between them
        // is passed here and counts for the statement before the semicolon.
        if !matches!(self.next.kind, TokenKind::End) {
            self.next = self.tokens.next_token();
        }
    }

    fn step(&mut self) {
        match self.token.kind {
            TokenKind::Word
                if self.next.kind == TokenKind::Dot || self.last.kind == TokenKind::Dot =>
            {
                self.name()
            }
            TokenKind::Word => match words::role(self.token.word) {
                Role::Name => self.name(),
                role => self.keyword(role),
            },
            TokenKind::QuotedName => self.name(),
            TokenKind::Open => self.open(),
            TokenKind::Close => {
                self.depth = self.depth.saturating_sub(1);
                self.expect = Expect::Anything;
            }
            TokenKind::Comma if self.sources.at(self.depth) => self.expect = Expect::Source,
            TokenKind::Comma => {}
            TokenKind::Broken => self.add(StatementTraits::BROKEN),
            TokenKind::UserVariable => self.user_variable(),
            TokenKind::SystemVariable => self.system_variable(),
            TokenKind::Operator if self.token.word == w::ASSIGN => self.assign(),
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
        let joins = self.expect == Expect::Source && !self.last.is_name();
        let joins = joins || self.last.is(w::FROM) || self.last.is(w::JOIN);
        for list in [&mut self.selecting, &mut self.with] {
            list.set(self.depth, false);
        }
        // `FROM (a, b JOIN c)`: the list of sources continues inside the parentheses.
        let inside = joins && !words::begins_query(self.next.word);
        self.sources.set(self.depth, inside);
        if !inside {
            self.expect = Expect::Anything;
        }
    }

    /// Records a name with its schema: a table, a function, or no relevant object.
    fn name(&mut self) {
        let before = self.last;
        let name = self.dotted();
        let called = self.next.kind == TokenKind::Open;
        match self.expect {
            Expect::Target => self.table(name),
            Expect::Source if !called => self.table(name),
            _ if called && !self.is_alias(before) => self.function(name),
            _ => self.lone_word(name),
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
            if !(self.next.is_name() || self.next.kind == TokenKind::Number) {
                break;
            }
            self.advance();
            name.schema = name.name;
            name.name = self.token.span;
        }
        name
    }

    /// Returns whether `name (` is an alias with its columns, a WITH query, or an index.
    fn is_alias(&self, before: Token) -> bool {
        match before.kind {
            TokenKind::Comma => self.with.at(self.depth),
            TokenKind::Word => {
                let with = matches!(before.word, w::WITH | w::RECURSIVE);
                before.word == w::AS || with && self.with.at(self.depth)
            }
            _ => false,
        }
    }

    fn table(&mut self, name: Name) {
        let schema = name.schema.of(self.text);
        let table = name.name.of(self.text);
        self.add(words::schema_traits(schema, table));
        self.statement.tables.push(name);
    }

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
    fn lone_word(&mut self, name: Name) {
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
            Role::From if self.selecting.at(self.depth) => {
                self.sources.set(self.depth, true);
                self.expect = Expect::Source;
            }
            Role::From => self.expect = Expect::Anything,
            Role::Join => self.expect = Expect::Source,
            Role::Into => self.into(),
            // INSERT(…), REPLACE(…) and TRUNCATE(…) are also functions.
            Role::Write if called => self.expect = Expect::Anything,
            Role::Write => self.writes(),
            Role::Update => self.update(),
            Role::For => self.for_update(),
            Role::Lock if self.next.is(w::IN) => self.add(StatementTraits::LOCKS_ROWS),
            Role::Lock => {}
            Role::EndsSources => {
                self.sources.set(self.depth, false);
                self.expect = Expect::Anything;
            }
            Role::Table if called => self.expect = Expect::Anything,
            Role::Table => {
                self.expect = Expect::Target;
                self.with.set(self.depth, false);
            }
            Role::KeepsExpecting => {}
            Role::With => {
                // After SELECT, WITH begins WITH ROLLUP or a similar clause: no query's name
                // follows.
                self.with.set(self.depth, !self.selecting.at(self.depth));
                self.expect = Expect::Anything;
            }
            Role::Temporary => self.temporary(),
            Role::Next if self.next.is(w::VALUE) => self.add(StatementTraits::NEXT_VALUE),
            Role::Previous if self.next.is(w::VALUE) => self.add(StatementTraits::CURRENT_VALUE),
            Role::Next | Role::Previous => self.name(),
            Role::Operand => self.expect = Expect::Anything,
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
        self.add(StatementTraits::WRITES);
        self.with.set(self.depth, false);
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
        self.add(StatementTraits::WRITES);
        self.with.set(self.depth, false);
        self.sources.set(self.depth, true);
        self.expect = Expect::Target;
    }

    fn for_update(&mut self) {
        if self.next.is(w::UPDATE) || self.next.is(w::SHARE) {
            self.add(StatementTraits::LOCKS_ROWS);
            self.sources.set(self.depth, false);
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
