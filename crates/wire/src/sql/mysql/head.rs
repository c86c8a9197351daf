//! Classifies statements that are not queries by their first words.

use super::facts::{Isolation, StatementKind, TransactionCompletion, VariableScope};
use super::lexer::{Token, TokenKind, Tokens};
use super::set;
use super::words as w;
use crate::sql::token::{Span, Word};

/// Tokens after the first one of a statement, with one token read ahead.
#[derive(Clone)]
pub(super) struct Head<'a> {
    tokens: Tokens<'a>,
    pub(super) token: Token,
}

impl<'a> Head<'a> {
    /// Creates a head; the next token of `tokens` must be the statement's second.
    pub(super) fn new(tokens: &Tokens<'a>) -> Self {
        let mut tokens = tokens.clone();
        let token = tokens.next_token();
        Head { tokens, token }
    }

    pub(super) fn advance(&mut self) {
        self.token = self.tokens.next_token();
    }

    /// Returns the current token as written.
    pub(super) fn written(&self) -> &'a [u8] {
        self.token.span.of(self.tokens.text())
    }

    /// Advances if the current token is the word. Returns whether it was.
    pub(super) fn take(&mut self, word: Word) -> bool {
        let found = self.token.is(word);
        if found {
            self.advance();
        }
        found
    }

    /// Advances if the current token is any of the words. Returns whether it was.
    pub(super) fn take_any(&mut self, words: &[Word]) -> bool {
        words.iter().any(|word| self.take(*word))
    }

    /// Advances if the current token is of that kind, and returns its position.
    pub(super) fn take_kind(&mut self, kind: TokenKind) -> Option<Span> {
        let span = self.token.span;
        (self.token.kind == kind).then(|| {
            self.advance();
            span
        })
    }

    pub(super) fn at_end(&self) -> bool {
        matches!(self.token.kind, TokenKind::End | TokenKind::Semicolon)
    }

    /// Returns whether any of the words comes before the end.
    fn has(mut self, words: &[Word]) -> bool {
        while !self.at_end() {
            if self.take_any(words) {
                return true;
            }
            self.advance();
        }
        false
    }

    fn continues_after_comma(&self) -> bool {
        let mut head = self.clone();
        while !head.at_end() && head.token.kind != TokenKind::Comma {
            head.advance();
        }
        self.tokens.modes().mariadb && !head.at_end()
    }

    fn name(&mut self) -> Option<Span> {
        let span = self.token.span;
        self.token.is_name().then(|| {
            self.advance();
            span
        })
    }

    /// Returns the name at the current token if it is the last token.
    fn last_name(&mut self) -> Option<Span> {
        let name = self.name()?;
        self.at_end().then_some(name)
    }
}

/// Returns the kind of a statement from its first word and the `tokens` after it.
pub(super) fn kind(word: Word, tokens: &Tokens<'_>) -> StatementKind {
    let head = Head::new(tokens);
    match word {
        w::SELECT | w::VALUES | w::TABLE => StatementKind::Select,
        w::INSERT | w::REPLACE | w::UPDATE | w::DELETE => StatementKind::Write,
        w::WITH => with(head),
        w::CREATE | w::ALTER | w::RENAME | w::TRUNCATE | w::GRANT | w::REVOKE => StatementKind::Ddl,
        w::DROP => drop(head),
        w::ANALYZE | w::OPTIMIZE | w::REPAIR | w::CHECK | w::CHECKSUM => analyze(word, head),
        w::LOAD => load(head),
        w::CALL => StatementKind::Call,
        w::DO => StatementKind::Do,
        w::XA => StatementKind::Xa,
        w::HANDLER => StatementKind::Handler,
        w::SHOW | w::HELP => StatementKind::Show,
        w::EXPLAIN | w::DESCRIBE | w::DESC => explain(head),
        w::FLUSH => StatementKind::Flush {
            lock: head.has(&[w::LOCK, w::EXPORT]),
        },
        _ => session(word, head).unwrap_or(StatementKind::Unknown),
    }
}

/// Returns whether the CREATE or ALTER before `tokens` concerns an object whose body may hold
/// semicolons.
pub(super) fn is_program(tokens: &Tokens<'_>) -> bool {
    const PROGRAMS: [Word; 5] = [w::PROCEDURE, w::FUNCTION, w::TRIGGER, w::EVENT, w::PACKAGE];
    let mut head = Head::new(tokens);
    if head.take(w::OR) {
        head.take(w::REPLACE);
    }
    if head.take(w::DEFINER) {
        // `=` and a name, then `@host` or the parentheses of CURRENT_USER().
        head.advance();
        head.advance();
        while !head.at_end() && head.token.kind != TokenKind::Word {
            head.advance();
        }
    }
    head.take(w::AGGREGATE);
    head.take_any(&PROGRAMS)
}

/// Classifies commands on the transaction and the session. Returns `None` if the syntax is not as
/// documented.
fn session(word: Word, mut head: Head<'_>) -> Option<StatementKind> {
    match word {
        w::BEGIN => {
            head.take(w::WORK);
            let (read_only, snapshot) = (None, false);
            head.at_end().then_some(StatementKind::Begin {
                read_only,
                snapshot,
            })
        }
        w::START if head.take(w::TRANSACTION) => begin(head),
        w::COMMIT => ending(&mut head).map(StatementKind::Commit),
        w::ROLLBACK => rollback(head),
        w::SAVEPOINT => head.last_name().map(StatementKind::Savepoint),
        w::RELEASE if head.take(w::SAVEPOINT) => head.last_name().map(StatementKind::Release),
        w::SET => set(head),
        w::USE => head.last_name().map(StatementKind::Use),
        w::KILL => kill(head),
        w::LOCK if head.take_any(&[w::TABLES, w::TABLE]) => Some(StatementKind::LockTables),
        w::LOCK if head.take(w::INSTANCE) => Some(StatementKind::LockInstance),
        w::UNLOCK if head.take_any(&[w::TABLES, w::TABLE]) => Some(StatementKind::UnlockTables),
        w::UNLOCK if head.take(w::INSTANCE) => Some(StatementKind::UnlockInstance),
        w::BACKUP if head.take(w::UNLOCK) => Some(StatementKind::UnlockInstance),
        w::BACKUP if head.take(w::STAGE) && head.take(w::END) => {
            Some(StatementKind::UnlockInstance)
        }
        w::BACKUP => Some(StatementKind::LockInstance),
        w::PREPARE => head.name().map(StatementKind::Prepare),
        w::EXECUTE if head.token.is(w::IMMEDIATE) => None,
        w::EXECUTE => head.name().map(StatementKind::Execute),
        w::DEALLOCATE if head.take(w::PREPARE) => head.last_name().map(StatementKind::Deallocate),
        w::GET => Some(StatementKind::GetDiagnostics),
        _ => None,
    }
}

/// Returns the kind by the verb of `WITH … (…) verb`: the first one outside parentheses.
fn with(mut head: Head<'_>) -> StatementKind {
    let mut depth = 0_u32;
    loop {
        match head.token.kind {
            TokenKind::End | TokenKind::Semicolon => return StatementKind::Unknown,
            TokenKind::Open => depth = depth.saturating_add(1),
            TokenKind::Close => {
                depth = depth.saturating_sub(1);
                head.advance();
                // `WITH q AS (…) (SELECT …)`
                if depth == 0 && head.token.kind == TokenKind::Open {
                    return super::parenthesised(&head.tokens);
                }
                continue;
            }
            TokenKind::Word if depth == 0 => match head.token.word {
                w::SELECT | w::VALUES | w::TABLE => return StatementKind::Select,
                w::INSERT | w::REPLACE | w::UPDATE | w::DELETE => return StatementKind::Write,
                _ => {}
            },
            _ => {}
        }
        head.advance();
    }
}

fn drop(mut head: Head<'_>) -> StatementKind {
    match head.take(w::PREPARE) {
        true => head
            .last_name()
            .map_or(StatementKind::Unknown, StatementKind::Deallocate),
        false => StatementKind::Ddl,
    }
}

/// Classifies ANALYZE of a table, or MariaDB's ANALYZE of a statement, which executes it.
fn analyze(word: Word, mut head: Head<'_>) -> StatementKind {
    if word != w::ANALYZE {
        return StatementKind::Maintenance;
    }
    head.take(w::LOCAL);
    if head.take_any(&[w::TABLE, w::TABLES]) || !head.token.is_name() {
        return StatementKind::Maintenance;
    }
    StatementKind::Explain { analyze: true }
}

fn load(mut head: Head<'_>) -> StatementKind {
    if !head.take_any(&[w::DATA, w::XML]) {
        return StatementKind::Unknown;
    }
    while head.take_any(&[w::LOW_PRIORITY, w::CONCURRENT, w::BULK]) {}
    let local = head.token.is(w::LOCAL);
    StatementKind::LoadData { local }
}

/// Parses EXPLAIN, with options, of a statement, a connection or a table.
fn explain(mut head: Head<'_>) -> StatementKind {
    let mut analyze = false;
    let mut first = true;
    loop {
        if head.take(w::ANALYZE) {
            analyze = true;
        } else if first && head.token.is(w::FORMAT) {
            head.advance();
            head.take_kind(TokenKind::Operator);
            head.advance();
        } else if !(first && head.take_any(&[w::EXTENDED, w::PARTITIONS])) {
            break;
        }
        first = false;
        // Both `FORMAT = TREE ANALYZE` and `ANALYZE FORMAT = TREE` are valid.
        if head.token.is(w::FORMAT) {
            first = true;
        }
    }
    if head.take(w::INTO) {
        // `EXPLAIN … INTO @x`
        return StatementKind::Unknown;
    }
    StatementKind::Explain { analyze }
}

fn begin(mut head: Head<'_>) -> Option<StatementKind> {
    let (mut read_only, mut snapshot) = (None, false);
    while !head.at_end() {
        if head.take(w::READ) {
            read_only = Some(head.take(w::ONLY));
            if read_only == Some(false) && !head.take(w::WRITE) {
                return None;
            }
        } else if head.take(w::WITH) && head.take(w::CONSISTENT) && head.take(w::SNAPSHOT) {
            snapshot = true;
        } else {
            return None;
        }
        let _ = head.take_kind(TokenKind::Comma);
    }
    Some(StatementKind::Begin {
        read_only,
        snapshot,
    })
}

/// Parses `[WORK] [AND [NO] CHAIN] [[NO] RELEASE]`.
fn ending(head: &mut Head<'_>) -> Option<TransactionCompletion> {
    head.take(w::WORK);
    let mut ending = TransactionCompletion::default();
    if head.take(w::AND) {
        let no = head.take(w::NO);
        ending.chain = head.take(w::CHAIN) && !no;
    }
    let no = head.take(w::NO);
    ending.release = head.take(w::RELEASE) && !no;
    head.at_end().then_some(ending)
}

fn rollback(mut head: Head<'_>) -> Option<StatementKind> {
    head.take(w::WORK);
    if head.take(w::TO) {
        head.take(w::SAVEPOINT);
        return head.last_name().map(StatementKind::RollbackTo);
    }
    ending(&mut head).map(StatementKind::Rollback)
}

fn kill(mut head: Head<'_>) -> Option<StatementKind> {
    head.take_any(&[w::HARD, w::SOFT]);
    let mut query = false;
    if !head.take(w::CONNECTION) {
        query = head.take(w::QUERY);
    }
    if head.take(w::USER) || query && head.take(w::ID) {
        return Some(StatementKind::KillOther);
    }
    let connection = head.take_kind(TokenKind::Number);
    let connection = connection.filter(|_| head.at_end());
    Some(StatementKind::Kill { query, connection })
}

fn set(mut head: Head<'_>) -> Option<StatementKind> {
    let scope = set::scope(&mut head.clone());
    let mut ahead = head.clone();
    if scope != VariableScope::Unwritten {
        ahead.advance();
    }
    if ahead.take(w::TRANSACTION) {
        return transaction(ahead, scope);
    }
    if head.token.is(w::PASSWORD) || head.token.is(w::DEFAULT) {
        // SET PASSWORD or SET DEFAULT ROLE; on MariaDB further assignments may follow a comma.
        return (!head.continues_after_comma()).then_some(StatementKind::Ddl);
    }
    if head.take(w::ROLE) {
        return Some(StatementKind::SetRole);
    }
    // MariaDB's SET STATEMENT … FOR, and SET RESOURCE GROUP.
    if head.token.is(w::STATEMENT) || head.token.is(w::RESOURCE) {
        return None;
    }
    Some(StatementKind::Set)
}

fn transaction(mut head: Head<'_>, scope: VariableScope) -> Option<StatementKind> {
    let (mut read_only, mut isolation) = (None, None);
    while !head.at_end() {
        if head.take(w::ISOLATION) {
            head.take(w::LEVEL).then_some(())?;
            isolation = Some(level(&mut head)?);
        } else if head.take(w::READ) {
            read_only = Some(head.take(w::ONLY));
            if read_only == Some(false) && !head.take(w::WRITE) {
                return None;
            }
        } else {
            return None;
        }
        let _ = head.take_kind(TokenKind::Comma);
    }
    Some(StatementKind::SetTransaction {
        scope,
        read_only,
        isolation,
    })
}

fn level(head: &mut Head<'_>) -> Option<Isolation> {
    if head.take(w::SERIALIZABLE) {
        return Some(Isolation::Serializable);
    }
    if head.take(w::REPEATABLE) {
        return head.take(w::READ).then_some(Isolation::RepeatableRead);
    }
    head.take(w::READ).then_some(())?;
    if head.take(w::COMMITTED) {
        return Some(Isolation::ReadCommitted);
    }
    let found = head.take(w::UNCOMMITTED);
    found.then_some(Isolation::ReadUncommitted)
}
