//! Translates SELECT, and the clauses after a table name in SHOW, into statements for SQLite.

use super::word_cursor::WordCursor;
use super::words::Word;
use crate::admin::console::Dialect;
use crate::admin::console::error::{ConsoleError, ConsoleErrorKind};
use crate::admin::console::show::{SCHEMA, Show, VARIABLES};
use crate::admin::console::sqlite::Plan;

/// Statement for SQLite.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::admin::console) struct Query {
    /// First word of the client's text, returned to the client when the statement has completed.
    pub(in crate::admin::console) verb: &'static str,
    pub(in crate::admin::console) dialect: Dialect,
    pub(in crate::admin::console) sql: String,
    /// Values of the session. The index in this list is the number of the parameter.
    pub(in crate::admin::console) values: Vec<Named>,
    /// Properties that SQLite determines before the statement runs.
    pub(in crate::admin::console) plan: Plan,
}

/// Value of the session, and the client's text for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::admin::console) struct Named {
    pub(in crate::admin::console) name: String,
    pub(in crate::admin::console) value: Value,
}

/// Kinds of session values, which drivers query when they connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::admin::console) enum Value {
    Variable(&'static str),
    /// Version of the console.
    Version,
    /// Schema of the client.
    Schema,
    User,
    Connection,
}

impl Query {
    fn new(verb: &'static str, dialect: Dialect, sql: String) -> Self {
        Self {
            verb,
            dialect,
            sql,
            values: Vec::new(),
            plan: Plan::default(),
        }
    }

    /// Returns the parameter that replaces a value of the session in the text.
    pub(in crate::admin::console) fn parameter(number: usize) -> String {
        format!("@v{number}_")
    }

    /// Replaces the parameters in a text of SQLite with the client's text.
    pub(in crate::admin::console) fn restored(&self, text: &str) -> String {
        let values = self.values.iter().enumerate();
        values.fold(text.to_owned(), |text, (number, one)| {
            text.replace(&Self::parameter(number), &one.name)
        })
    }

    /// Parses the rest of a SHOW statement. Returns `None` if it ends after the table's name.
    pub(super) fn from_show(
        show: Show,
        cursor: &mut WordCursor<'_>,
        dialect: Dialect,
    ) -> Result<Option<Self>, ConsoleError> {
        if cursor.is_over() {
            return Ok(None);
        }
        let mut sql = format!("SELECT * FROM {SCHEMA}.{}", name(&show.name()));
        if cursor.skip_if("LIKE") {
            sql += &format!(" WHERE {} {}", name(show.columns()[0]), like(cursor)?);
        } else if cursor.skip_if("WHERE") {
            let column = column(show, cursor.expect_word()?)?;
            let test = match cursor.skip_if("LIKE") {
                true => like(cursor)?,
                false => {
                    cursor.expect_keyword("=")?;
                    format!("= {}", text(&cursor.expect_word()?.text))
                }
            };
            sql += &format!(" WHERE {column} {test}");
        }
        if cursor.skip_if("ORDER") {
            cursor.expect_keyword("BY")?;
            sql += &format!(" ORDER BY {}", column(show, cursor.expect_word()?)?);
            if cursor.skip_if("DESC") {
                sql += " DESC";
            } else {
                cursor.skip_if("ASC");
            }
        }
        if cursor.skip_if("LIMIT") {
            sql += &format!(" LIMIT {}", count(cursor.expect_word()?)?);
        }
        cursor.expect_end()?;
        Ok(Some(Self::new("SHOW", dialect, sql)))
    }

    /// Translates a SELECT: removes comments, and replaces values of the session with parameters.
    pub(super) fn select(
        full: &str,
        words: &[Word],
        dialect: Dialect,
    ) -> Result<Self, ConsoleError> {
        if words.iter().any(|word| word.is(";")) {
            let message = "the text contains several statements: send one statement at a time";
            return Err(ConsoleError::new(ConsoleErrorKind::Syntax, message));
        }
        // SQLite reads a text only up to a zero byte.
        if full.contains('\0') {
            return Err(ConsoleError::new(
                ConsoleErrorKind::Syntax,
                "the text contains a zero byte: remove it",
            ));
        }
        let tokens = tokens(full, words);
        let has_from = tokens.iter().any(|token| token.is("FROM"));
        let mut query = Self::new("SELECT", dialect, String::new());
        let mut at = 0;
        while let Some(token) = tokens.get(at) {
            query.sql += token.gap;
            let (before, after) = tokens.split_at(at);
            let found = session_value(before, after, has_from)?;
            let Some((value, length)) = found else {
                query.sql += token.text;
                at += 1;
                continue;
            };
            query.sql += &Self::parameter(query.values.len());
            let words = after[..length].iter().map(|token| token.text);
            let name = words.collect();
            query.values.push(Named { name, value });
            at += length;
        }
        Ok(query)
    }
}

/// Token of a statement: a quoted part, or characters of one class.
struct Token<'a> {
    /// White space before the token.
    gap: &'a str,
    text: &'a str,
    is_quoted: bool,
}

impl Token<'_> {
    fn is(&self, text: &str) -> bool {
        !self.is_quoted && self.text.eq_ignore_ascii_case(text)
    }
}

fn tokens<'a>(full: &'a str, words: &[Word]) -> Vec<Token<'a>> {
    let mut all = Vec::new();
    let mut end = 0;
    for word in words {
        let gap = &full[end..word.start];
        let mut gap = match gap.trim().is_empty() {
            true => gap,
            false => " ",
        };
        let mut rest = &full[word.start..word.end];
        end = word.end;
        while let Some(first) = rest.chars().next() {
            let is_name = is_of_name(first);
            let length = match word.is_quoted {
                true => rest.len(),
                false => rest
                    .find(|letter| is_of_name(letter) != is_name)
                    .unwrap_or(rest.len()),
            };
            let (text, after) = rest.split_at(length);
            let is_quoted = word.is_quoted;
            all.push(Token {
                gap,
                text,
                is_quoted,
            });
            (gap, rest) = ("", after);
        }
    }
    all
}

/// Returns whether a character may be part of a name, a number or a variable such as
/// `@@session.autocommit`.
fn is_of_name(letter: char) -> bool {
    letter.is_alphanumeric() || matches!(letter, '_' | '.' | '@' | '$')
}

/// Returns the session value at the beginning of `after`, and the number of its tokens.
fn session_value(
    before: &[Token<'_>],
    after: &[Token<'_>],
    has_from: bool,
) -> Result<Option<(Value, usize)>, ConsoleError> {
    let first = &after[0];
    let name = first.text.to_ascii_lowercase();
    if first.is_quoted {
        return Ok(None);
    }
    if name.starts_with("@@") {
        return variable(&name).map(|value| Some((Value::Variable(value), 1)));
    }
    let is = |at: usize, text| {
        after
            .get(at)
            .is_some_and(|token: &Token<'_>| token.is(text))
    };
    let is_call = (is(1, "(") && is(2, ")")) || is(1, "()");
    let last = before.last();
    let is_item = last.is_some_and(|last| last.is("SELECT") || last.is(","));
    let is_alias = last.is_some_and(|last| last.is("AS"));
    let value = match &*name {
        "version" if is_call => Value::Version,
        "database" | "schema" | "current_database" if is_call => Value::Schema,
        "connection_id" if is_call => Value::Connection,
        "user" | "current_user" | "session_user" if is_call => Value::User,
        "current_user" | "session_user" if !is_alias => Value::User,
        // In a query with FROM, `user` is the name of a column.
        "user" if is_item && !has_from => Value::User,
        _ => return Ok(None),
    };
    Ok(Some((value, if is_call { 3 } else { 1 })))
}

fn variable(name: &str) -> Result<&'static str, ConsoleError> {
    let name = name.trim_start_matches("@@");
    let scoped = ["session.", "global.", "local."];
    let own = scoped.iter().find_map(|scope| name.strip_prefix(scope));
    let own = own.unwrap_or(name);
    let found = VARIABLES.iter().find(|(known, _)| *known == own);
    found.map(|(_, value)| *value).ok_or_else(|| {
        let message = format!("unknown variable {own:?}, see SHOW VARIABLES");
        ConsoleError::new(ConsoleErrorKind::UnknownVariable, message)
    })
}

fn count(word: &Word) -> Result<u32, ConsoleError> {
    word.text.parse().map_err(|_| {
        let message = format!("invalid row count {:?}", word.text);
        ConsoleError::new(ConsoleErrorKind::InvalidValue, message)
    })
}

/// Returns the quoted name of the column that a word names.
fn column(show: Show, word: &Word) -> Result<String, ConsoleError> {
    let mut columns = show.columns().iter();
    let found = columns.find(|name| name.eq_ignore_ascii_case(&word.text));
    found.map(|found| name(found)).ok_or_else(|| {
        let known = show.columns().join(", ");
        let message = format!("column {:?} does not exist, columns are {known}", word.text);
        ConsoleError::new(ConsoleErrorKind::UnknownColumn, message)
    })
}

/// Returns a LIKE operator with backslash as the escape character, as in MySQL and PostgreSQL.
fn like(cursor: &mut WordCursor<'_>) -> Result<String, ConsoleError> {
    Ok(format!(
        "LIKE {} ESCAPE '\\'",
        text(&cursor.expect_word()?.text)
    ))
}

/// Returns a quoted name of a table or column of SHOW.
pub(in crate::admin::console) fn name(name: &str) -> String {
    format!("\"{name}\"")
}

fn text(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
