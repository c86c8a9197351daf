//! Finds texts that only ask for the process id of their session or for its last sequence value, or
//! signal another session.

use super::lexer::Tokens;
use crate::name::identifier;
use crate::token::{Token, TokenKind, Word};

/// A call in a text that selects nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackendCall {
    /// Called function.
    pub function: BackendFunction,
    /// Name of the column: an alias, or the function's name.
    pub column: Vec<u8>,
}

/// Function about a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BackendFunction {
    /// `pg_backend_pid()`
    ProcessId,
    /// `pg_cancel_backend(…)`
    Cancel(ProcessArgument),
    /// `pg_terminate_backend(…)`
    Terminate(ProcessArgument),
    /// `lastval()`
    LastValue,
}

/// Argument that is a process id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessArgument {
    /// The number itself.
    Literal(u32),
    /// The first parameter, `$1`.
    Parameter,
}

/// Returns the call if the text is one SELECT of nothing else.
#[must_use]
pub fn backend_call(text: &[u8], backslashes: bool) -> Option<BackendCall> {
    if !may_be_call(text) {
        return None;
    }
    let mut tokens = Reader {
        text,
        tokens: Tokens::new(text, backslashes),
    };
    tokens.word(Word::of("select"))?;
    let mut name = tokens.next();
    if name.is(Word::of("pg_catalog")) {
        tokens.kind(TokenKind::Dot)?;
        name = tokens.next();
    }
    tokens.kind(TokenKind::Open)?;
    let function = match name.span.of(text).to_ascii_lowercase().as_slice() {
        b"pg_backend_pid" => {
            tokens.kind(TokenKind::Close)?;
            BackendFunction::ProcessId
        }
        b"lastval" => {
            tokens.kind(TokenKind::Close)?;
            BackendFunction::LastValue
        }
        b"pg_cancel_backend" => BackendFunction::Cancel(tokens.argument()?),
        b"pg_terminate_backend" => BackendFunction::Terminate(tokens.argument()?),
        _ => return None,
    };
    let column = tokens.column(name)?;
    Some(BackendCall { function, column })
}

/// Returns false for most texts, after a few bytes.
fn may_be_call(text: &[u8]) -> bool {
    let text = text.trim_ascii_start();
    match text.first() {
        // A comment may precede the first word.
        Some(b'-' | b'/') => true,
        Some(b's' | b'S') => {
            let rest = text.get(b"select".len()..).unwrap_or_default();
            matches!(
                rest.trim_ascii_start().first(),
                Some(b'p' | b'P' | b'l' | b'L' | b'-' | b'/')
            )
        }
        _ => false,
    }
}

struct Reader<'a> {
    text: &'a [u8],
    tokens: Tokens<'a>,
}

impl Reader<'_> {
    fn next(&mut self) -> Token {
        self.tokens.next_token()
    }

    fn word(&mut self, word: Word) -> Option<()> {
        self.next().is(word).then_some(())
    }

    fn kind(&mut self, kind: TokenKind) -> Option<()> {
        (self.next().kind == kind).then_some(())
    }

    /// Reads the argument up to the closing parenthesis. A second one is a time limit.
    fn argument(&mut self) -> Option<ProcessArgument> {
        let first = self.next();
        let written = first.span.of(self.text);
        let argument = match first.kind {
            TokenKind::Number => ProcessArgument::Literal(number(written)?),
            TokenKind::String => {
                let digits = written.strip_prefix(b"'")?.strip_suffix(b"'")?;
                ProcessArgument::Literal(number(digits)?)
            }
            TokenKind::Parameter if written == b"$1" => ProcessArgument::Parameter,
            _ => return None,
        };
        let mut next = self.next();
        if next.kind == TokenKind::Cast {
            let name = self.next();
            let types = [Word::of("int"), Word::of("int4"), Word::of("integer")];
            types.into_iter().find(|one| name.is(*one))?;
            next = self.next();
        }
        if next.kind == TokenKind::Comma {
            self.kind(TokenKind::Number)?;
            next = self.next();
        }
        (next.kind == TokenKind::Close).then_some(argument)
    }

    /// Reads the rest of the text, and returns the name of the column.
    fn column(&mut self, function: Token) -> Option<Vec<u8>> {
        let mut next = self.next();
        let mut name = identifier(function.span.of(self.text)).to_vec();
        if next.is(Word::of("as")) {
            let alias = self.next();
            let is_plain = matches!(alias.kind, TokenKind::Word | TokenKind::QuotedName);
            name = is_plain.then(|| identifier(alias.span.of(self.text)).to_vec())?;
            next = self.next();
        }
        while next.kind == TokenKind::Semicolon {
            next = self.next();
        }
        (next.kind == TokenKind::End).then_some(name)
    }
}

fn number(digits: &[u8]) -> Option<u32> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(text: &str) -> Option<(BackendFunction, String)> {
        let call = backend_call(text.as_bytes(), false)?;
        Some((call.function, String::from_utf8(call.column).unwrap()))
    }

    #[test]
    fn a_call_that_is_selected_alone_is_found_with_its_argument_and_column() {
        use BackendFunction::{Cancel, LastValue, ProcessId, Terminate};
        use ProcessArgument::{Literal, Parameter};
        for (text, function, column) in [
            ("select pg_backend_pid()", ProcessId, "pg_backend_pid"),
            ("SELECT PG_BACKEND_PID ( ) ;", ProcessId, "pg_backend_pid"),
            (
                "/* app:web */ select pg_backend_pid()",
                ProcessId,
                "pg_backend_pid",
            ),
            (
                "-- a\nselect /* b */ pg_catalog.pg_backend_pid() as pid",
                ProcessId,
                "pid",
            ),
            ("select pg_backend_pid() as \"Pid\"", ProcessId, "Pid"),
            ("SELECT LASTVAL()", LastValue, "lastval"),
            ("select pg_catalog.lastval() as id", LastValue, "id"),
            (
                "select pg_cancel_backend(17)",
                Cancel(Literal(17)),
                "pg_cancel_backend",
            ),
            (
                "select pg_cancel_backend('17')",
                Cancel(Literal(17)),
                "pg_cancel_backend",
            ),
            (
                "select pg_cancel_backend($1)",
                Cancel(Parameter),
                "pg_cancel_backend",
            ),
            (
                "select pg_cancel_backend($1::int)",
                Cancel(Parameter),
                "pg_cancel_backend",
            ),
            (
                "select pg_terminate_backend(17, 500)",
                Terminate(Literal(17)),
                "pg_terminate_backend",
            ),
            (
                "select pg_terminate_backend($1) as ended;;",
                Terminate(Parameter),
                "ended",
            ),
        ] {
            assert_eq!(call(text), Some((function, column.to_owned())), "{text}");
        }
    }

    #[test]
    fn any_other_text_is_the_server_s() {
        for text in [
            "select pg_backend_pid() + 1",
            "select pg_backend_pid(), 1",
            "select pg_backend_pid() from t",
            "select pg_backend_pid(); select 1",
            "select * from pg_backend_pid()",
            "select other.pg_backend_pid()",
            "select pg_cancel_backend(pid) from pg_stat_activity",
            "select pg_cancel_backend($2)",
            "select pg_cancel_backend(-1)",
            "select pg_cancel_backend($1::text)",
            "select pg_cancel_backend(1",
            "select pg_sleep(1)",
            "select lastval() + 1",
            "select last",
            "select price",
            "update t set v = pg_backend_pid()",
            "-- nothing",
            "",
        ] {
            assert_eq!(call(text), None, "{text}");
        }
    }
}
