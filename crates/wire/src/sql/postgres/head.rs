//! Classifies statements that are not queries by their first words.

use super::lexer::Tokens;
use super::set;
use super::words as w;
use crate::sql::facts::{Discard, Isolation, StatementKind, TransactionModes};
use crate::sql::token::{Span, Token, TokenKind, Word};

/// Tokens after the first one of a statement, with one token read ahead.
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

    /// Returns a copy at the same position, for lookahead.
    pub(super) fn fork(&self) -> Self {
        Head {
            tokens: self.tokens.clone(),
            token: self.token,
        }
    }

    pub(super) fn advance(&mut self) {
        self.token = self.tokens.next_token();
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

    pub(super) fn at_end(&self) -> bool {
        matches!(self.token.kind, TokenKind::End | TokenKind::Semicolon)
    }

    /// Returns the name at the current token if it is the last token.
    fn last_name(&mut self) -> Option<Span> {
        let name = self.name()?;
        self.at_end().then_some(name)
    }

    fn name(&mut self) -> Option<Span> {
        let name = matches!(self.token.kind, TokenKind::Word | TokenKind::QuotedName);
        let span = self.token.span;
        name.then(|| {
            self.advance();
            span
        })
    }
}

/// Returns the kind of a statement from its first word and the `tokens` after it.
pub(super) fn kind(word: Word, tokens: &Tokens<'_>) -> StatementKind {
    let head = Head::new(tokens);
    match word {
        w::SELECT | w::VALUES | w::TABLE => StatementKind::Select,
        w::INSERT | w::UPDATE | w::DELETE | w::MERGE | w::TRUNCATE | w::REFRESH => {
            StatementKind::Write
        }
        w::WITH => with(head),
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
        w::LOCK => StatementKind::Lock,
        w::LOAD => StatementKind::Load,
        w::FETCH | w::MOVE => StatementKind::Fetch,
        w::NOTIFY => StatementKind::Notify,
        w::EXPLAIN => explain(head),
        w::COPY => copy(head),
        _ => session(word, head).unwrap_or(StatementKind::Unknown),
    }
}

/// Classifies commands on the transaction and the session. Returns `None` if the syntax is not as
/// documented.
fn session(word: Word, mut head: Head<'_>) -> Option<StatementKind> {
    match word {
        w::BEGIN => {
            head.take_any(&[w::WORK, w::TRANSACTION]);
            modes(&mut head).map(StatementKind::Begin)
        }
        w::START if head.take(w::TRANSACTION) => modes(&mut head).map(StatementKind::Begin),
        w::COMMIT | w::END => commit(head),
        w::ROLLBACK | w::ABORT => rollback(head),
        w::SAVEPOINT => head.last_name().map(StatementKind::Savepoint),
        w::RELEASE => {
            head.take(w::SAVEPOINT);
            head.last_name().map(StatementKind::Release)
        }
        w::SET => set::set(head),
        w::RESET => reset(head),
        w::SHOW => Some(StatementKind::Show(set::setting_name(&mut head)?)),
        w::LISTEN => head.last_name().map(StatementKind::Listen),
        w::UNLISTEN => {
            let channel = head.name();
            Some(StatementKind::Unlisten(channel))
        }
        w::DECLARE => declare(head),
        w::CLOSE => Some(StatementKind::CloseCursor(all_or_name(&mut head)?)),
        w::PREPARE if head.token.is(w::TRANSACTION) => {
            head.advance();
            // `PREPARE transaction AS …` prepares a statement of that name.
            match head.token.kind {
                TokenKind::String => Some(StatementKind::PrepareTransaction),
                _ => None,
            }
        }
        w::PREPARE => head.name().map(StatementKind::Prepare),
        w::EXECUTE => head.name().map(StatementKind::Execute),
        w::DEALLOCATE => {
            head.take(w::PREPARE);
            Some(StatementKind::Deallocate(all_or_name(&mut head)?))
        }
        w::DISCARD => discard(head),
        _ => None,
    }
}

fn all_or_name(head: &mut Head<'_>) -> Option<Option<Span>> {
    if head.token.is(w::ALL) {
        return Some(None);
    }
    head.last_name().map(Some)
}

/// Returns the kind by the verb of `WITH … (…) verb`: the first one outside parentheses.
fn with(mut head: Head<'_>) -> StatementKind {
    let mut depth = 0_u32;
    loop {
        match head.token.kind {
            TokenKind::End | TokenKind::Semicolon => return StatementKind::Unknown,
            TokenKind::Open => depth = depth.saturating_add(1),
            TokenKind::Close => depth = depth.saturating_sub(1),
            TokenKind::Word if depth == 0 => match head.token.word {
                w::SELECT | w::VALUES | w::TABLE => return StatementKind::Select,
                w::INSERT | w::UPDATE | w::DELETE | w::MERGE => return StatementKind::Write,
                _ => {}
            },
            _ => {}
        }
        head.advance();
    }
}

/// Parses the modes of BEGIN and SET TRANSACTION; `None` if there is any other word among them.
pub(super) fn modes(head: &mut Head<'_>) -> Option<TransactionModes> {
    let mut modes = TransactionModes::default();
    while !head.at_end() {
        if head.token.kind == TokenKind::Comma {
            head.advance();
        }
        if head.take(w::READ) {
            modes.read_only = Some(head.take(w::ONLY) || !expect(head.take(w::WRITE))?);
        } else if head.take(w::NOT) {
            expect(head.take(w::DEFERRABLE))?;
            modes.deferrable = Some(false);
        } else if head.take(w::DEFERRABLE) {
            modes.deferrable = Some(true);
        } else {
            expect(head.take(w::ISOLATION) && head.take(w::LEVEL))?;
            modes.isolation = Some(isolation(head)?);
        }
    }
    Some(modes)
}

fn isolation(head: &mut Head<'_>) -> Option<Isolation> {
    if head.take(w::SERIALIZABLE) {
        return Some(Isolation::Serializable);
    }
    if head.take(w::REPEATABLE) {
        expect(head.take(w::READ))?;
        return Some(Isolation::RepeatableRead);
    }
    expect(head.take(w::READ))?;
    if head.take(w::COMMITTED) {
        return Some(Isolation::ReadCommitted);
    }
    expect(head.take(w::UNCOMMITTED))?;
    Some(Isolation::ReadUncommitted)
}

fn expect(found: bool) -> Option<bool> {
    found.then_some(true)
}

fn commit(mut head: Head<'_>) -> Option<StatementKind> {
    if head.take(w::PREPARED) {
        return Some(StatementKind::FinishPrepared);
    }
    head.take_any(&[w::WORK, w::TRANSACTION]);
    let chain = chain(&mut head);
    head.at_end().then_some(StatementKind::Commit { chain })
}

fn rollback(mut head: Head<'_>) -> Option<StatementKind> {
    if head.take(w::PREPARED) {
        return Some(StatementKind::FinishPrepared);
    }
    head.take_any(&[w::WORK, w::TRANSACTION]);
    if head.take(w::TO) {
        head.take(w::SAVEPOINT);
        return head.last_name().map(StatementKind::RollbackTo);
    }
    let chain = chain(&mut head);
    head.at_end().then_some(StatementKind::Rollback { chain })
}

/// Parses `AND [NO] CHAIN`.
fn chain(head: &mut Head<'_>) -> bool {
    head.take(w::AND) && !head.take(w::NO) && head.take(w::CHAIN) || {
        head.take(w::CHAIN);
        false
    }
}

fn reset(mut head: Head<'_>) -> Option<StatementKind> {
    if head.token.is(w::ALL) {
        return Some(StatementKind::ResetAll);
    }
    set::setting_name(&mut head).map(StatementKind::Reset)
}

fn declare(mut head: Head<'_>) -> Option<StatementKind> {
    let name = head.name()?;
    let mut hold = false;
    while !head.at_end() && !head.token.is(w::FOR) {
        if head.take(w::WITHOUT) {
            head.take(w::HOLD);
        } else if head.take(w::WITH) {
            hold |= head.take(w::HOLD);
        } else {
            head.advance();
        }
    }
    Some(StatementKind::Declare { name, hold })
}

fn discard(mut head: Head<'_>) -> Option<StatementKind> {
    let what = if head.take(w::ALL) {
        Discard::All
    } else if head.take(w::PLANS) {
        Discard::Plans
    } else if head.take(w::SEQUENCES) {
        Discard::Sequences
    } else if head.take_any(&[w::TEMP, w::TEMPORARY]) {
        Discard::Temp
    } else {
        return None;
    };
    head.at_end().then_some(StatementKind::Discard(what))
}

/// Parses `EXPLAIN [ANALYZE] [VERBOSE] …` or `EXPLAIN (option, …) …`. ANALYZE counts unless it is
/// clearly turned off. A quoted name counts as ANALYZE, because an option may be quoted.
fn explain(mut head: Head<'_>) -> StatementKind {
    let mut analyze = false;
    if head.token.kind == TokenKind::Open {
        while !head.at_end() && head.token.kind != TokenKind::Close {
            let asked = head.take_any(&[w::ANALYZE, w::ANALYSE]);
            let off = head.token.is(w::FALSE) || head.token.is(w::OFF);
            let is_quoted = matches!(
                head.token.kind,
                TokenKind::QuotedName | TokenKind::EscapedName
            );
            analyze |= asked && !off || is_quoted;
            if !asked {
                head.advance();
            }
        }
    } else {
        analyze = head.take_any(&[w::ANALYZE, w::ANALYSE]);
    }
    StatementKind::Explain { analyze }
}

/// Parses `COPY [BINARY] t [(…)] FROM|TO …` or `COPY (query) TO …`.
fn copy(mut head: Head<'_>) -> StatementKind {
    let mut depth = 0_u32;
    loop {
        match head.token.kind {
            TokenKind::End | TokenKind::Semicolon => return StatementKind::Unknown,
            TokenKind::Open => depth = depth.saturating_add(1),
            TokenKind::Close => depth = depth.saturating_sub(1),
            TokenKind::Word if depth == 0 && head.token.is(w::FROM) => {
                head.advance();
                let from_client = head.token.is(w::STDIN);
                return StatementKind::CopyIn { from_client };
            }
            TokenKind::Word if depth == 0 && head.token.is(w::TO) => {
                head.advance();
                let to_client = head.token.is(w::STDOUT);
                return StatementKind::CopyOut { to_client };
            }
            _ => {}
        }
        head.advance();
    }
}
