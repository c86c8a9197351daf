//! Detailed analysis of single statements, for those that their facts do not decide.

use std::borrow::Cow;

use super::facts::{StatementFacts, StatementKind};
use super::lexer::Tokens;
use crate::name::{identifier, literal};
use crate::token::words as w;
use crate::token::words::{FUNCTION, PROCEDURE, SET_CONFIG};
use crate::token::{Span, Token, TokenKind, Word};

/// Effects of a CREATE beyond the new object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Creation {
    /// True for CREATE TABLE … AS and CREATE MATERIALIZED VIEW … AS, which execute a query.
    pub runs_query: bool,
    /// True for ON COMMIT DROP: the table does not outlive the transaction.
    pub drops_on_commit: bool,
}

/// Returns the effects of a CREATE statement, by the words outside parentheses before its AS.
#[must_use]
pub(crate) fn creation(text: &[u8], statement: &StatementFacts, backslashes: bool) -> Creation {
    let mut tokens = tokens_of(text, statement, backslashes);
    let mut creation = Creation::default();
    let mut is_table = false;
    let mut last = [Token::default(); 2];
    let mut depth = 0_u32;
    loop {
        let token = tokens.next_token();
        match token.kind {
            TokenKind::End => return creation,
            TokenKind::Open => depth = depth.saturating_add(1),
            TokenKind::Close => depth = depth.saturating_sub(1),
            TokenKind::Word if depth == 0 => match token.word {
                w::TABLE | w::MATERIALIZED => is_table = true,
                w::DROP if last[0].is(w::ON) && last[1].is(w::COMMIT) => {
                    creation.drops_on_commit = is_table;
                }
                w::AS => {
                    creation.runs_query = is_table;
                    return creation;
                }
                _ => {}
            },
            _ => {}
        }
        last = [last[1], token];
    }
}

/// Returns the name of the prepared statement that an EXPLAIN or a CREATE TABLE … AS executes:
/// `EXECUTE name`.
#[must_use]
pub fn executed(text: &[u8], statement: &StatementFacts, backslashes: bool) -> Option<Span> {
    let is_explain = matches!(statement.kind, StatementKind::Explain { .. });
    let begins = |last: Token| last.is(w::AS) || is_explain && ends_explain(last);
    let mut tokens = tokens_of(text, statement, backslashes);
    let mut last = Token::default();
    let mut depth = 0_u32;
    loop {
        let token = tokens.next_token();
        match token.kind {
            TokenKind::End => return None,
            TokenKind::Open => depth = depth.saturating_add(1),
            TokenKind::Close => depth = depth.saturating_sub(1),
            TokenKind::Word if depth == 0 && token.is(w::EXECUTE) && begins(last) => {
                let name = tokens.next_token();
                let start = statement.span.start;
                return name.is_name().then(|| Span {
                    start: name.span.start.saturating_add(start),
                    end: name.span.end.saturating_add(start),
                });
            }
            _ => {}
        }
        last = token;
    }
}

/// Returns the function that a CREATE TRIGGER names: `EXECUTE FUNCTION [schema.]name (…)`.
#[must_use]
pub(crate) fn trigger_function<'a>(
    text: &'a [u8],
    statement: &StatementFacts,
    backslashes: bool,
) -> Option<Cow<'a, [u8]>> {
    let sql = statement.span.of(text);
    let mut tokens = tokens_of(text, statement, backslashes);
    let mut last = Token::default();
    loop {
        let token = tokens.next_token();
        let is_called = token.is(FUNCTION) || token.is(PROCEDURE);
        if token.kind == TokenKind::End {
            return None;
        }
        if last.is(w::EXECUTE) && is_called {
            let mut name = tokens.next_token();
            while tokens.clone().next_token().kind == TokenKind::Dot {
                tokens.next_token();
                name = tokens.next_token();
            }
            return name.is_name().then(|| identifier(name.span.of(sql)));
        }
        last = token;
    }
}

/// Returns whether the explained statement may begin after this token of an EXPLAIN.
fn ends_explain(last: Token) -> bool {
    const BEFORE: [Word; 4] = [w::EXPLAIN, w::ANALYZE, w::ANALYSE, w::VERBOSE];
    match last.kind {
        // `EXPLAIN (option, …)`
        TokenKind::Close => true,
        TokenKind::Word => BEFORE.contains(&last.word),
        _ => false,
    }
}

/// Returns whether every `set_config(…)` of the statement has `true` for `is_local`, whatever its
/// setting and value.
#[must_use]
pub(crate) fn sets_locally(text: &[u8], statement: &StatementFacts, backslashes: bool) -> bool {
    let sql = statement.span.of(text);
    set_config_calls(text, statement, backslashes).all(|tokens| is_local_call(tokens, sql))
}

/// Returns whether a `set_config(…)` of the statement may change the role of the session. That is
/// so if it names `role` or `session_authorization`, or if its text does not determine the name.
#[must_use]
pub(crate) fn may_set_role(text: &[u8], statement: &StatementFacts, backslashes: bool) -> bool {
    let is_role = |name: &[u8]| ROLES.iter().any(|role| name.eq_ignore_ascii_case(role));
    set_config_names(text, statement, backslashes)
        .any(|name| name.is_none_or(|name| is_role(&name)))
}

/// Returns the name of each setting that a `set_config(…)` of the statement changes; `None` if the
/// text does not determine it.
pub(crate) fn set_config_names<'a>(
    text: &'a [u8],
    statement: &StatementFacts,
    backslashes: bool,
) -> impl Iterator<Item = Option<Cow<'a, [u8]>>> {
    let sql = statement.span.of(text);
    set_config_calls(text, statement, backslashes).map(move |mut tokens| {
        let opens = tokens.next_token().kind == TokenKind::Open;
        let name = tokens.next_token();
        // Otherwise the literal is only a part of the name.
        let is_whole = tokens.next_token().kind == TokenKind::Comma;
        let is_literal = opens && is_whole && name.kind == TokenKind::String;
        is_literal.then(|| string_value(name.span.of(sql), backslashes))?
    })
}

/// Settings that determine the role of the session.
const ROLES: [&[u8]; 2] = [b"role", b"session_authorization"];

/// Returns the tokens after each `set_config` of the statement.
fn set_config_calls<'a>(
    text: &'a [u8],
    statement: &StatementFacts,
    backslashes: bool,
) -> impl Iterator<Item = Tokens<'a>> {
    let sql = statement.span.of(text);
    let mut tokens = tokens_of(text, statement, backslashes);
    std::iter::from_fn(move || {
        loop {
            let token = tokens.next_token();
            if token.kind == TokenKind::End {
                return None;
            }
            if is_set_config(token, sql) {
                return Some(tokens.clone());
            }
        }
    })
}

fn is_set_config(token: Token, sql: &[u8]) -> bool {
    match token.kind {
        TokenKind::Word => token.is(SET_CONFIG),
        TokenKind::QuotedName => {
            let name = identifier(token.span.of(sql));
            name.eq_ignore_ascii_case(b"set_config")
        }
        _ => false,
    }
}

/// Returns whether `( …, …, true )` follows without another such call in it. A nested call would be
/// read once for each level of nesting.
fn is_local_call(mut tokens: Tokens<'_>, sql: &[u8]) -> bool {
    if tokens.next_token().kind != TokenKind::Open {
        return false;
    }
    let mut depth = 1_u32;
    let mut commas = 0_u32;
    let mut local = false;
    loop {
        let token = tokens.next_token();
        match token.kind {
            TokenKind::End | TokenKind::Semicolon | TokenKind::Broken => return false,
            _ if is_set_config(token, sql) => return false,
            TokenKind::Open | TokenKind::OpenBracket => depth = depth.saturating_add(1),
            TokenKind::Close | TokenKind::CloseBracket => depth = depth.saturating_sub(1),
            TokenKind::Comma if depth == 1 => commas = commas.saturating_add(1),
            _ => {}
        }
        if depth == 0 {
            return local;
        }
        if commas >= 2 && !(token.kind == TokenKind::Comma && depth == 1) {
            // The last argument must be this single word.
            if local || !token.is(w::TRUE) {
                return false;
            }
            local = true;
        }
    }
}

/// Returns whether the statement has a WITH query of that name, as the server interprets it.
#[must_use]
pub(crate) fn defines_query(
    text: &[u8],
    statement: &StatementFacts,
    name: &[u8],
    backslashes: bool,
) -> bool {
    let sql = statement.span.of(text);
    let mut tokens = tokens_of(text, statement, backslashes);
    let mut last = Token::default();
    loop {
        let token = tokens.next_token();
        let begins = last.kind == TokenKind::Comma || last.is(w::WITH) || last.is(w::RECURSIVE);
        if token.kind == TokenKind::End {
            return false;
        }
        if begins && token.is_name() && identifier(token.span.of(sql)) == name {
            let mut ahead = tokens.clone();
            if is_query_definition(&mut ahead) {
                return true;
            }
        }
        last = token;
    }
}

/// Returns whether `[(column, …)] AS [[NOT] MATERIALIZED] (query` follows. Only names are accepted
/// as columns: otherwise the rest of the text would be read once for each `, name (` in it.
fn is_query_definition(tokens: &mut Tokens<'_>) -> bool {
    let mut token = tokens.next_token();
    if token.kind == TokenKind::Open {
        token = tokens.next_token();
        while token.is_name() || token.kind == TokenKind::Comma {
            token = tokens.next_token();
        }
        if token.kind != TokenKind::Close {
            return false;
        }
        token = tokens.next_token();
    }
    if !token.is(w::AS) {
        return false;
    }
    token = tokens.next_token();
    while token.is(w::NOT) || token.is(w::MATERIALIZED) {
        token = tokens.next_token();
    }
    let opens = token.kind == TokenKind::Open;
    while token.kind == TokenKind::Open {
        token = tokens.next_token();
    }
    let query = matches!(
        token.word,
        w::SELECT | w::VALUES | w::TABLE | w::WITH | w::INSERT | w::UPDATE | w::DELETE | w::MERGE
    );
    opens && query
}

/// Returns the value of a string literal if its text determines it: plain, `E''` with the common
/// escapes, `$tag$…$tag$`. Numbers and words are handled by [`literal`].
#[must_use]
pub(crate) fn string_value(written: &[u8], backslashes: bool) -> Option<Cow<'_, [u8]>> {
    match written {
        [b'$', rest @ ..] => {
            let tag_length = memchr::memchr(b'$', rest)?.saturating_add(2);
            let end = written.len().checked_sub(tag_length)?;
            written.get(tag_length..end).map(Cow::Borrowed)
        }
        [b'E' | b'e', b'\'', rest @ ..] => unescaped(rest.strip_suffix(b"'")?),
        [b'\'', rest @ ..] if backslashes => unescaped(rest.strip_suffix(b"'")?),
        // §4.1.2.1: a backslash is an ordinary character.
        [b'\'', ..] if memchr::memchr(b'\\', written).is_some() => plain(written),
        _ => literal(written),
    }
}

/// Returns the value of a plain string in which backslashes are ordinary characters.
fn plain(written: &[u8]) -> Option<Cow<'_, [u8]>> {
    let inner = written.strip_prefix(b"'")?.strip_suffix(b"'")?;
    let mut value = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(byte) = bytes.next() {
        if *byte == b'\'' && bytes.next() != Some(&b'\'') {
            return None;
        }
        value.push(*byte);
    }
    Some(Cow::Owned(value))
}

/// Decodes §4.1.2.2 "String Constants with C-Style Escapes", if each escape yields one ASCII
/// character.
fn unescaped(inner: &[u8]) -> Option<Cow<'_, [u8]>> {
    let mut value = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'\'' if bytes.next() == Some(&b'\'') => b'\'',
            b'\'' => return None,
            b'\\' => match bytes.next()? {
                b'n' => b'\n',
                b't' => b'\t',
                b'r' => b'\r',
                b'b' => 0x08,
                b'f' => 0x0c,
                b'x' | b'u' | b'U' | b'0'..=b'7' => return None,
                other => *other,
            },
            other => *other,
        };
        value.push(byte);
    }
    Some(Cow::Owned(value))
}

/// Returns the value of each literal in the list of a SET, in order; `None` if the text does not
/// determine one of them.
#[must_use]
pub(crate) fn set_values(written: &[u8], backslashes: bool) -> Option<Vec<Cow<'_, [u8]>>> {
    let mut tokens = Tokens::new(written, backslashes);
    let mut values = Vec::new();
    loop {
        let mut token = tokens.next_token();
        let sign = (token.kind == TokenKind::Operator).then_some(token.word);
        if sign.is_some() {
            token = tokens.next_token();
        }
        let text = token.span.of(written);
        values.push(match (token.kind, sign) {
            (TokenKind::String, None) => string_value(text, backslashes)?,
            // `+5` is 5.
            (TokenKind::Number, sign) => number(sign == Some(Word::of("-")), text)?,
            (TokenKind::Word | TokenKind::QuotedName, None) => word(text)?,
            _ => return None,
        });
        match tokens.next_token().kind {
            TokenKind::Comma => {}
            TokenKind::End => return Some(values),
            _ => return None,
        }
    }
}

/// Returns a number as the server passes it to the setting: integers in their shortest form, others
/// as written.
fn number(negative: bool, written: &[u8]) -> Option<Cow<'_, [u8]>> {
    let digits = written.iter().all(u8::is_ascii_digit);
    let zeros = written.iter().take_while(|byte| **byte == b'0').count();
    let point = |byte: &u8| byte.is_ascii_digit() || *byte == b'.';
    let short = if digits && (zeros == 0 || written.len() <= 9) {
        let last = written.len().checked_sub(1)?;
        written.get(zeros.min(last)..)?
    } else if !digits && written.iter().all(point) {
        written
    } else {
        // Exponents, other bases, underscores: servers treat them differently.
        return None;
    };
    Some(match negative {
        true if short != b"0" => Cow::Owned([b"-", short].concat()),
        _ => Cow::Borrowed(short),
    })
}

/// Returns a word or a quoted name. A longer one is truncated by the server at the end of a
/// character.
fn word(written: &[u8]) -> Option<Cow<'_, [u8]>> {
    let plain = written.len() <= 63 && written.is_ascii();
    plain.then(|| identifier(written))
}

fn tokens_of<'a>(text: &'a [u8], statement: &StatementFacts, backslashes: bool) -> Tokens<'a> {
    Tokens::new(statement.span.of(text), backslashes)
}
