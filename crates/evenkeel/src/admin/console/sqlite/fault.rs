//! Converts errors of SQLite to messages for an operator.

use rusqlite::{Error, ErrorCode};

use super::{HEAP_MAX, LIMITS, TIME_MAX};
use crate::admin::console::command::Query;
use crate::admin::console::error::{ConsoleError, ConsoleErrorKind};
use crate::admin::console::show::Show;

/// Maximum length of the excerpt of the statement, which begins at the error.
const SHOWN: usize = 60;

pub(super) fn console_error(error: &Error, query: &Query) -> ConsoleError {
    let (code, message) = match error {
        Error::SqlInputError { error, msg, .. } => (Some(error.code), msg.clone()),
        Error::SqliteFailure(error, Some(message)) => (Some(error.code), message.clone()),
        Error::SqliteFailure(error, None) => (Some(error.code), error.to_string()),
        Error::MultipleStatement => {
            let message = "the text contains several statements: send one statement at a time";
            return ConsoleError::new(ConsoleErrorKind::Syntax, message);
        }
        other => (None, other.to_string()),
    };
    let message = query.restored(&message);
    let (why, advice) = match code {
        Some(ErrorCode::OperationInterrupted) => {
            let seconds = TIME_MAX.as_secs();
            let message = format!(
                "the query was cancelled after {seconds} s, the console's limit: select fewer rows"
            );
            return ConsoleError::new(ConsoleErrorKind::QueryTimedOut, message);
        }
        Some(ErrorCode::OutOfMemory) => {
            let max = HEAP_MAX >> 20;
            let message = format!(
                "the query needs more than {max} MiB, the console's limit: select fewer rows"
            );
            return ConsoleError::new(ConsoleErrorKind::TooLarge, message);
        }
        Some(ErrorCode::TooBig) => {
            let (_, max) = LIMITS[0];
            let max = max >> 10;
            let advice = format!(
                "a value or a row may have at most {max} KiB: select fewer or shorter columns"
            );
            (ConsoleErrorKind::TooLarge, advice)
        }
        Some(ErrorCode::AuthorizationForStatementDenied) => only_select_allowed(),
        // For functions SQLite does not set the code.
        _ if message.starts_with("not authorized") => only_select_allowed(),
        _ => advice(&message, query),
    };
    ConsoleError::new(
        why,
        format!("{message}{}: {advice}", error_position(error, query)),
    )
}

fn only_select_allowed() -> (ConsoleErrorKind, String) {
    let advice = "the console can only run SELECT on its own tables";
    (ConsoleErrorKind::Unsupported, advice.to_owned())
}

/// Returns the kind and advice for an error that has no code of its own.
fn advice(message: &str, query: &Query) -> (ConsoleErrorKind, String) {
    let names = |names: Vec<String>| names.join(", ");
    if message.starts_with("no such table") || message.starts_with("unknown database") {
        let known = names(Show::names().collect());
        return (
            ConsoleErrorKind::UnknownTable,
            format!("available tables: {known}"),
        );
    }
    if message.starts_with("no such column") || message.starts_with("ambiguous column") {
        // SQLite may not have read the whole statement yet, but the text names all tables.
        let is_of_name = |letter: char| letter.is_alphanumeric() || letter == '_';
        let words = query.sql.split(|letter| !is_of_name(letter));
        let mut tables: Vec<Show> = words.filter_map(Show::named).collect();
        tables.dedup();
        let columns = |show: Show| format!("{} has {}", show.name(), show.columns().join(", "));
        let known = match tables.is_empty() {
            true => "the query names no table".to_owned(),
            false => tables
                .into_iter()
                .map(columns)
                .collect::<Vec<_>>()
                .join("; "),
        };
        return (
            ConsoleErrorKind::UnknownColumn,
            format!("{known}; write string literals in single quotes"),
        );
    }
    let beyond = [
        "too deep",
        "too large",
        "too many",
        "Recursion limit",
        "at most",
    ];
    if beyond.iter().any(|part| message.contains(part)) {
        return (ConsoleErrorKind::TooLarge, "simplify the query".to_owned());
    }
    if message.starts_with("no such function") {
        return (
            ConsoleErrorKind::Syntax,
            "only SQLite's functions are available".to_owned(),
        );
    }
    (
        ConsoleErrorKind::Syntax,
        "the language is SQLite's; see SHOW HELP".to_owned(),
    )
}

/// Returns the place of the error in the client's text, if SQLite reports it.
fn error_position(error: &Error, query: &Query) -> String {
    let Error::SqlInputError { sql, offset, .. } = error else {
        return String::new();
    };
    let from = usize::try_from(*offset).ok().and_then(|at| sql.get(at..));
    let from = query.restored(from.unwrap_or_default());
    let shown: String = from.chars().take(SHOWN).collect();
    match shown.trim() {
        "" => " at the end".to_owned(),
        shown => format!(" at {shown:?}"),
    }
}
