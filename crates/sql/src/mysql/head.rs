//! Classifies statements that are not queries by their first words.

use super::facts::{BY_WORDS, StatementKind, TransactionCompletion, VariableScope};
use super::lexer::Tokens;
use super::set;
use crate::token::words as w;
use crate::token::{self, TokenKind, Word};

pub(super) type TokenCursor<'a> = token::TokenCursor<Tokens<'a>>;

impl<'a> TokenCursor<'a> {
    /// Returns the current token as written.
    pub(super) fn written(&self) -> &'a [u8] {
        self.token.span.of(self.tokens.text())
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
        let mut cursor = self.clone();
        while !cursor.at_end() && cursor.token.kind != TokenKind::Comma {
            cursor.advance();
        }
        self.tokens.modes().mariadb && !cursor.at_end()
    }
}

/// Returns the kind of a statement from its first word and the `tokens` after it.
pub(super) fn kind(word: Word, tokens: &Tokens<'_>) -> StatementKind {
    let cursor = TokenCursor::new(tokens);
    match word {
        w::SELECT | w::VALUES | w::TABLE => StatementKind::Select,
        w::INSERT | w::REPLACE | w::UPDATE | w::DELETE => StatementKind::Write,
        w::WITH => cursor.kind_of_with(&[w::INSERT, w::REPLACE, w::UPDATE, w::DELETE]),
        w::CREATE | w::ALTER | w::RENAME | w::TRUNCATE | w::GRANT | w::REVOKE => StatementKind::Ddl,
        w::DROP => drop(cursor),
        w::ANALYZE | w::OPTIMIZE | w::REPAIR | w::CHECK | w::CHECKSUM => analyze(word, cursor),
        w::LOAD => load(cursor),
        w::CALL => StatementKind::Call,
        w::DO => StatementKind::Do,
        w::SHOW | w::HELP => StatementKind::Show,
        w::EXPLAIN | w::DESCRIBE | w::DESC => explain(cursor),
        w::FLUSH => StatementKind::Flush {
            lock: cursor.has(&[w::LOCK, w::EXPORT]),
        },
        _ => cursor
            .by_words(word, BY_WORDS)
            .or_else(|| session(word, cursor))
            .unwrap_or(StatementKind::Unknown),
    }
}

/// Returns whether the CREATE or ALTER before `tokens` concerns an object whose body may hold
/// semicolons.
pub(super) fn is_program(tokens: &Tokens<'_>) -> bool {
    const PROGRAMS: [Word; 5] = [w::PROCEDURE, w::FUNCTION, w::TRIGGER, w::EVENT, w::PACKAGE];
    let mut cursor = TokenCursor::new(tokens);
    if cursor.take(w::OR) {
        cursor.take(w::REPLACE);
    }
    if cursor.take(w::DEFINER) {
        // `=` and a name, then `@host` or the parentheses of CURRENT_USER().
        cursor.advance();
        cursor.advance();
        while !cursor.at_end() && cursor.token.kind != TokenKind::Word {
            cursor.advance();
        }
    }
    cursor.take(w::AGGREGATE);
    cursor.take_any(&PROGRAMS)
}

/// Classifies commands on the transaction and the session. Returns `None` if the syntax is not as
/// documented.
fn session(word: Word, mut cursor: TokenCursor<'_>) -> Option<StatementKind> {
    match word {
        w::BEGIN => {
            cursor.take(w::WORK);
            let (read_only, snapshot) = (None, false);
            cursor.at_end().then_some(StatementKind::Begin {
                read_only,
                snapshot,
            })
        }
        w::START if cursor.take(w::TRANSACTION) => begin(cursor),
        w::COMMIT => ending(&mut cursor).map(StatementKind::Commit),
        w::ROLLBACK => rollback(cursor),
        w::SAVEPOINT => cursor.last_name().map(StatementKind::Savepoint),
        w::RELEASE if cursor.take(w::SAVEPOINT) => cursor.last_name().map(StatementKind::Release),
        w::SET => set(cursor),
        w::USE => cursor.last_name().map(StatementKind::Use),
        w::KILL => kill(cursor),
        w::BACKUP if cursor.take(w::STAGE) && cursor.take(w::END) => {
            Some(StatementKind::UnlockInstance)
        }
        w::BACKUP => Some(StatementKind::LockInstance),
        w::PREPARE => cursor.name().map(StatementKind::Prepare),
        w::EXECUTE if cursor.token.is(w::IMMEDIATE) => None,
        w::EXECUTE => cursor.name().map(StatementKind::Execute),
        w::DEALLOCATE if cursor.take(w::PREPARE) => {
            cursor.last_name().map(StatementKind::Deallocate)
        }
        _ => None,
    }
}

fn drop(mut cursor: TokenCursor<'_>) -> StatementKind {
    match cursor.take(w::PREPARE) {
        true => cursor
            .last_name()
            .map_or(StatementKind::Unknown, StatementKind::Deallocate),
        false => StatementKind::Ddl,
    }
}

/// Classifies ANALYZE of a table, or MariaDB's ANALYZE of a statement, which executes it.
fn analyze(word: Word, mut cursor: TokenCursor<'_>) -> StatementKind {
    if word != w::ANALYZE {
        return StatementKind::Maintenance;
    }
    cursor.take(w::LOCAL);
    if cursor.take_any(&[w::TABLE, w::TABLES]) || !cursor.token.is_name() {
        return StatementKind::Maintenance;
    }
    StatementKind::Explain { analyze: true }
}

fn load(mut cursor: TokenCursor<'_>) -> StatementKind {
    if !cursor.take_any(&[w::DATA, w::XML]) {
        return StatementKind::Unknown;
    }
    while cursor.take_any(&[w::LOW_PRIORITY, w::CONCURRENT, w::BULK]) {}
    let local = cursor.token.is(w::LOCAL);
    StatementKind::LoadData { local }
}

/// Parses EXPLAIN, with options, of a statement, a connection or a table.
fn explain(mut cursor: TokenCursor<'_>) -> StatementKind {
    let mut analyze = false;
    let mut first = true;
    loop {
        if cursor.take(w::ANALYZE) {
            analyze = true;
        } else if first && cursor.token.is(w::FORMAT) {
            cursor.advance();
            cursor.take_kind(TokenKind::Operator);
            cursor.advance();
        } else if !(first && cursor.take_any(&[w::EXTENDED, w::PARTITIONS])) {
            break;
        }
        first = false;
        // Both `FORMAT = TREE ANALYZE` and `ANALYZE FORMAT = TREE` are valid.
        if cursor.token.is(w::FORMAT) {
            first = true;
        }
    }
    if cursor.take(w::INTO) {
        // `EXPLAIN … INTO @x`
        return StatementKind::Unknown;
    }
    StatementKind::Explain { analyze }
}

fn begin(mut cursor: TokenCursor<'_>) -> Option<StatementKind> {
    let (mut read_only, mut snapshot) = (None, false);
    while !cursor.at_end() {
        if cursor.take(w::READ) {
            read_only = Some(cursor.take(w::ONLY));
            if read_only == Some(false) && !cursor.take(w::WRITE) {
                return None;
            }
        } else if cursor.take(w::WITH) && cursor.take(w::CONSISTENT) && cursor.take(w::SNAPSHOT) {
            snapshot = true;
        } else {
            return None;
        }
        let _ = cursor.take_kind(TokenKind::Comma);
    }
    Some(StatementKind::Begin {
        read_only,
        snapshot,
    })
}

/// Parses `[WORK] [AND [NO] CHAIN] [[NO] RELEASE]`.
fn ending(cursor: &mut TokenCursor<'_>) -> Option<TransactionCompletion> {
    cursor.take(w::WORK);
    let mut ending = TransactionCompletion::default();
    if cursor.take(w::AND) {
        let no = cursor.take(w::NO);
        ending.chain = cursor.take(w::CHAIN) && !no;
    }
    let no = cursor.take(w::NO);
    ending.release = cursor.take(w::RELEASE) && !no;
    cursor.at_end().then_some(ending)
}

fn rollback(mut cursor: TokenCursor<'_>) -> Option<StatementKind> {
    cursor.take(w::WORK);
    if cursor.take(w::TO) {
        cursor.take(w::SAVEPOINT);
        return cursor.last_name().map(StatementKind::RollbackTo);
    }
    ending(&mut cursor).map(StatementKind::Rollback)
}

fn kill(mut cursor: TokenCursor<'_>) -> Option<StatementKind> {
    cursor.take_any(&[w::HARD, w::SOFT]);
    let mut query = false;
    if !cursor.take(w::CONNECTION) {
        query = cursor.take(w::QUERY);
    }
    if cursor.take(w::USER) || query && cursor.take(w::ID) {
        return Some(StatementKind::KillOther);
    }
    let connection = cursor.take_kind(TokenKind::Number);
    let connection = connection.filter(|_| cursor.at_end());
    Some(StatementKind::Kill { query, connection })
}

fn set(mut cursor: TokenCursor<'_>) -> Option<StatementKind> {
    let scope = set::scope(&mut cursor.clone());
    let mut ahead = cursor.clone();
    if scope != VariableScope::Implicit {
        ahead.advance();
    }
    if ahead.take(w::TRANSACTION) {
        return transaction(ahead, scope);
    }
    if cursor.token.is(w::PASSWORD) || cursor.token.is(w::DEFAULT) {
        // SET PASSWORD or SET DEFAULT ROLE; on MariaDB further assignments may follow a comma.
        return (!cursor.continues_after_comma()).then_some(StatementKind::Ddl);
    }
    if cursor.take(w::ROLE) {
        return Some(StatementKind::SetRole);
    }
    // MariaDB's SET STATEMENT … FOR, and SET RESOURCE GROUP.
    if cursor.token.is(w::STATEMENT) || cursor.token.is(w::RESOURCE) {
        return None;
    }
    Some(StatementKind::Set)
}

fn transaction(mut cursor: TokenCursor<'_>, scope: VariableScope) -> Option<StatementKind> {
    let (mut read_only, mut isolation) = (None, None);
    while !cursor.at_end() {
        if cursor.take(w::ISOLATION) {
            cursor.take(w::LEVEL).then_some(())?;
            isolation = Some(cursor.isolation()?);
        } else if cursor.take(w::READ) {
            read_only = Some(cursor.take(w::ONLY));
            if read_only == Some(false) && !cursor.take(w::WRITE) {
                return None;
            }
        } else {
            return None;
        }
        let _ = cursor.take_kind(TokenKind::Comma);
    }
    Some(StatementKind::SetTransaction {
        scope,
        read_only,
        isolation,
    })
}
