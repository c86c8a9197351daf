//! Classifies statements that are not queries by their first words.

use super::facts::{BY_WORDS, Discard, StatementKind, TransactionModes};
use super::lexer::Tokens;
use super::set;
use crate::token::words as w;
use crate::token::{self, Span, TokenKind, Word};

pub(super) type TokenCursor<'a> = token::TokenCursor<Tokens<'a>>;

/// Returns the kind of a statement from its first word and the `tokens` after it.
pub(super) fn kind(word: Word, tokens: &Tokens<'_>) -> StatementKind {
    let cursor = TokenCursor::new(tokens);
    match word {
        w::SELECT | w::VALUES | w::TABLE => StatementKind::Select,
        w::INSERT | w::UPDATE | w::DELETE | w::MERGE | w::TRUNCATE | w::REFRESH => {
            StatementKind::Write
        }
        w::WITH => cursor.kind_of_with(&[w::INSERT, w::UPDATE, w::DELETE, w::MERGE]),
        w::CREATE
        | w::ALTER
        | w::DROP
        | w::GRANT
        | w::REVOKE
        | w::COMMENT
        | w::SECURITY
        | w::REASSIGN
        | w::IMPORT => StatementKind::Ddl,
        w::VACUUM | w::ANALYZE | w::ANALYSE | w::CLUSTER | w::REINDEX | w::CHECKPOINT => {
            StatementKind::Maintenance
        }
        w::CALL => StatementKind::Call,
        w::DO => StatementKind::Do,
        w::EXPLAIN => explain(cursor),
        w::COPY => copy(cursor),
        _ => cursor
            .by_words(word, BY_WORDS)
            .or_else(|| session(word, cursor))
            .unwrap_or(StatementKind::Unknown),
    }
}

/// Classifies commands on the transaction and the session. Returns `None` if the syntax is not as
/// documented.
fn session(word: Word, mut cursor: TokenCursor<'_>) -> Option<StatementKind> {
    match word {
        w::BEGIN => {
            cursor.take_any(&[w::WORK, w::TRANSACTION]);
            modes(&mut cursor).map(StatementKind::Begin)
        }
        w::START if cursor.take(w::TRANSACTION) => modes(&mut cursor).map(StatementKind::Begin),
        w::COMMIT | w::END => commit(cursor),
        w::ROLLBACK | w::ABORT => rollback(cursor),
        w::SAVEPOINT => cursor.last_name().map(StatementKind::Savepoint),
        w::RELEASE => {
            cursor.take(w::SAVEPOINT);
            cursor.last_name().map(StatementKind::Release)
        }
        w::SET => set::set(cursor),
        w::RESET => reset(cursor),
        w::SHOW => Some(StatementKind::Show(set::setting_name(&mut cursor)?)),
        w::LISTEN => cursor.last_name().map(StatementKind::Listen),
        w::UNLISTEN => {
            let channel = cursor.name();
            Some(StatementKind::Unlisten(channel))
        }
        w::DECLARE => declare(cursor),
        w::CLOSE => Some(StatementKind::CloseCursor(all_or_name(&mut cursor)?)),
        w::PREPARE if cursor.token.is(w::TRANSACTION) => {
            cursor.advance();
            // `PREPARE transaction AS …` prepares a statement of that name.
            match cursor.token.kind {
                TokenKind::String => Some(StatementKind::PrepareTransaction),
                _ => None,
            }
        }
        w::PREPARE => cursor.name().map(StatementKind::Prepare),
        w::EXECUTE => cursor.name().map(StatementKind::Execute),
        w::DEALLOCATE => {
            cursor.take(w::PREPARE);
            Some(StatementKind::Deallocate(all_or_name(&mut cursor)?))
        }
        w::DISCARD => discard(cursor),
        _ => None,
    }
}

fn all_or_name(cursor: &mut TokenCursor<'_>) -> Option<Option<Span>> {
    if cursor.token.is(w::ALL) {
        return Some(None);
    }
    cursor.last_name().map(Some)
}

/// Parses the modes of BEGIN and SET TRANSACTION; `None` if there is any other word among them.
pub(super) fn modes(cursor: &mut TokenCursor<'_>) -> Option<TransactionModes> {
    let mut modes = TransactionModes::default();
    while !cursor.at_end() {
        if cursor.token.kind == TokenKind::Comma {
            cursor.advance();
        }
        if cursor.take(w::READ) {
            modes.read_only = Some(cursor.take(w::ONLY) || !expect(cursor.take(w::WRITE))?);
        } else if cursor.take(w::NOT) {
            expect(cursor.take(w::DEFERRABLE))?;
            modes.deferrable = Some(false);
        } else if cursor.take(w::DEFERRABLE) {
            modes.deferrable = Some(true);
        } else {
            expect(cursor.take(w::ISOLATION) && cursor.take(w::LEVEL))?;
            modes.isolation = Some(cursor.isolation()?);
        }
    }
    Some(modes)
}

fn expect(found: bool) -> Option<bool> {
    found.then_some(true)
}

fn commit(mut cursor: TokenCursor<'_>) -> Option<StatementKind> {
    if cursor.take(w::PREPARED) {
        return Some(StatementKind::FinishPrepared);
    }
    cursor.take_any(&[w::WORK, w::TRANSACTION]);
    let chain = chain(&mut cursor);
    cursor.at_end().then_some(StatementKind::Commit { chain })
}

fn rollback(mut cursor: TokenCursor<'_>) -> Option<StatementKind> {
    if cursor.take(w::PREPARED) {
        return Some(StatementKind::FinishPrepared);
    }
    cursor.take_any(&[w::WORK, w::TRANSACTION]);
    if cursor.take(w::TO) {
        cursor.take(w::SAVEPOINT);
        return cursor.last_name().map(StatementKind::RollbackTo);
    }
    let chain = chain(&mut cursor);
    cursor.at_end().then_some(StatementKind::Rollback { chain })
}

/// Parses `AND [NO] CHAIN`.
fn chain(cursor: &mut TokenCursor<'_>) -> bool {
    cursor.take(w::AND) && !cursor.take(w::NO) && cursor.take(w::CHAIN) || {
        cursor.take(w::CHAIN);
        false
    }
}

fn reset(mut cursor: TokenCursor<'_>) -> Option<StatementKind> {
    if cursor.token.is(w::ALL) {
        return Some(StatementKind::ResetAll);
    }
    set::setting_name(&mut cursor).map(StatementKind::Reset)
}

fn declare(mut cursor: TokenCursor<'_>) -> Option<StatementKind> {
    let name = cursor.name()?;
    let mut hold = false;
    while !cursor.at_end() && !cursor.token.is(w::FOR) {
        if cursor.take(w::WITHOUT) {
            cursor.take(w::HOLD);
        } else if cursor.take(w::WITH) {
            hold |= cursor.take(w::HOLD);
        } else {
            cursor.advance();
        }
    }
    Some(StatementKind::Declare { name, hold })
}

fn discard(mut cursor: TokenCursor<'_>) -> Option<StatementKind> {
    let what = if cursor.take(w::ALL) {
        Discard::All
    } else if cursor.take(w::PLANS) {
        Discard::Plans
    } else if cursor.take(w::SEQUENCES) {
        Discard::Sequences
    } else if cursor.take_any(&[w::TEMP, w::TEMPORARY]) {
        Discard::Temp
    } else {
        return None;
    };
    cursor.at_end().then_some(StatementKind::Discard(what))
}

/// Parses `EXPLAIN [ANALYZE] [VERBOSE] …` or `EXPLAIN (option, …) …`. ANALYZE counts unless it is
/// clearly turned off. A quoted name counts as ANALYZE, because an option may be quoted.
fn explain(mut cursor: TokenCursor<'_>) -> StatementKind {
    let mut analyze = false;
    if cursor.token.kind == TokenKind::Open {
        while !cursor.at_end() && cursor.token.kind != TokenKind::Close {
            let asked = cursor.take_any(&[w::ANALYZE, w::ANALYSE]);
            let off = cursor.token.is(w::FALSE) || cursor.token.is(w::OFF);
            let is_quoted = matches!(
                cursor.token.kind,
                TokenKind::QuotedName | TokenKind::EscapedName
            );
            analyze |= asked && !off || is_quoted;
            if !asked {
                cursor.advance();
            }
        }
    } else {
        analyze = cursor.take_any(&[w::ANALYZE, w::ANALYSE]);
    }
    StatementKind::Explain { analyze }
}

/// Parses `COPY [BINARY] t [(…)] FROM|TO …` or `COPY (query) TO …`.
fn copy(mut cursor: TokenCursor<'_>) -> StatementKind {
    let mut depth = 0_u32;
    loop {
        match cursor.token.kind {
            TokenKind::End | TokenKind::Semicolon => return StatementKind::Unknown,
            TokenKind::Open => depth = depth.saturating_add(1),
            TokenKind::Close => depth = depth.saturating_sub(1),
            TokenKind::Word if depth == 0 && cursor.token.is(w::FROM) => {
                cursor.advance();
                let from_client = cursor.token.is(w::STDIN);
                return StatementKind::CopyIn { from_client };
            }
            TokenKind::Word if depth == 0 && cursor.token.is(w::TO) => {
                cursor.advance();
                let to_client = cursor.token.is(w::STDOUT);
                return StatementKind::CopyOut { to_client };
            }
            _ => {}
        }
        cursor.advance();
    }
}
