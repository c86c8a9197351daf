//! Parses the commands of console clients.

mod query;
mod word_cursor;
mod words;

pub(super) use query::{Query, Value, name};
pub(super) use words::statements;

use super::Dialect;
use super::error::{ConsoleError, ConsoleErrorKind};
use super::show::Show;
use word_cursor::WordCursor;
use words::{Word, words};

/// Parsed statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ConsoleCommand {
    /// Empty text.
    Empty,
    /// Request for a whole table.
    Show(Show),
    /// Request for rows that SQLite computes.
    Query(Query),
    /// Request for the list of commands.
    Help,
    /// Setting or transaction statement, as drivers send them. Has no effect.
    NoOp,
    /// Selection of a schema. Only its name is stored.
    Use(String),
    Pause(CommandScope),
    Resume(CommandScope),
    Reconnect(CommandScope),
    /// Pause of a database, followed by the termination of all its clients.
    Kill(CommandScope),
    KillClient(u64),
    Reload,
}

/// Argument of a command: a database or `service/database`. `None`: all.
pub(super) type CommandScope = Option<String>;

/// First words of the transaction statements that MySQL drivers send. The console has no
/// transactions and accepts these statements without effect.
const TRANSACTION_VERBS: [&str; 4] = ["BEGIN", "START", "COMMIT", "ROLLBACK"];

impl ConsoleCommand {
    /// Returns the tag of PostgreSQL's CommandComplete.
    pub(super) fn tag(&self) -> &'static str {
        match self {
            Self::Empty => "",
            Self::Query(query) => query.verb,
            Self::Show(_) | Self::Help => "SHOW",
            Self::NoOp | Self::Use(_) => "SET",
            Self::Pause(_) => "PAUSE",
            Self::Resume(_) => "RESUME",
            Self::Reconnect(_) => "RECONNECT",
            Self::Kill(_) => "KILL",
            Self::KillClient(_) => "KILL_CLIENT",
            Self::Reload => "RELOAD",
        }
    }

    /// Returns whether the command changes Evenkeel's state: only users with the token may run it.
    pub(super) fn changes_state(&self) -> bool {
        match self {
            Self::Empty | Self::Show(_) | Self::Query(_) => false,
            Self::Help | Self::NoOp | Self::Use(_) => false,
            Self::Pause(_) | Self::Resume(_) | Self::Reconnect(_) => true,
            Self::Kill(_) | Self::KillClient(_) | Self::Reload => true,
        }
    }

    /// Returns the names of the result's columns. `None` if the statement returns no rows.
    pub(super) fn columns(&self) -> Option<Vec<String>> {
        match self {
            Self::Show(show) => Some(show.column_names()),
            Self::Query(query) => Some(query.plan.columns.clone()),
            _ => None,
        }
    }

    /// Parses a statement. A SELECT is not planned yet.
    pub(super) fn parse(text: &str, dialect: Dialect) -> Result<Self, ConsoleError> {
        let words = words(text).map_err(|_| {
            let message = format!("unterminated quoted string: {}", text.trim());
            ConsoleError::new(ConsoleErrorKind::Syntax, message)
        })?;
        let mut cursor = WordCursor(&words);
        let Some(verb) = cursor.next() else {
            return Ok(Self::Empty);
        };
        if ["SELECT", "WITH", "VALUES"]
            .iter()
            .any(|first| verb.starts_with(first))
        {
            return Query::select(text, &words, dialect).map(Self::Query);
        }
        match verb.text.to_ascii_uppercase().as_str() {
            "SHOW" => parse_show(&mut cursor, dialect)?,
            "SET" => Some(Self::NoOp),
            "USE" => optional_argument(&cursor).flatten().map(Self::Use),
            "KILL" if dialect == Dialect::Mysql => parse_kill(&mut cursor)?,
            "KILL_CLIENT" => Some(Self::KillClient(parse_client_id(cursor.expect_word()?)?)),
            word if TRANSACTION_VERBS.contains(&word) && dialect == Dialect::Mysql => {
                Some(Self::NoOp)
            }
            word => optional_argument(&cursor).and_then(|scope| operator_command(word, scope)),
        }
        .ok_or_else(|| unknown(text))
    }
}

/// Returns the operator command for a verb and its argument.
fn operator_command(verb: &str, scope: CommandScope) -> Option<ConsoleCommand> {
    Some(match (verb, scope) {
        ("RELOAD", None) => ConsoleCommand::Reload,
        ("PAUSE", scope) => ConsoleCommand::Pause(scope),
        ("RESUME", scope) => ConsoleCommand::Resume(scope),
        ("RECONNECT", scope) => ConsoleCommand::Reconnect(scope),
        ("KILL", scope) => ConsoleCommand::Kill(scope),
        _ => return None,
    })
}

/// Returns the argument: one word or none. Returns `None` if there are more words.
fn optional_argument(cursor: &WordCursor<'_>) -> Option<CommandScope> {
    match cursor.0 {
        [] => Some(None),
        [word] => Some(Some(word.text.clone())),
        _ => None,
    }
}

/// Parses MySQL's KILL, which terminates a client connection.
fn parse_kill(cursor: &mut WordCursor<'_>) -> Result<Option<ConsoleCommand>, ConsoleError> {
    if cursor.skip_if("QUERY") {
        let message = "KILL QUERY is not supported, KILL id terminates the client";
        return Err(ConsoleError::new(ConsoleErrorKind::Unsupported, message));
    }
    cursor.skip_if("CONNECTION");
    let is_number = |word: &Word| !word.is_quoted && word.text.parse::<u64>().is_ok();
    Ok(match cursor.0 {
        [word] if is_number(word) => Some(ConsoleCommand::KillClient(parse_client_id(word)?)),
        _ => optional_argument(cursor).map(ConsoleCommand::Kill),
    })
}

fn parse_client_id(word: &Word) -> Result<u64, ConsoleError> {
    word.text.parse().map_err(|_| {
        let message = format!("invalid client id {:?}, see SHOW CLIENTS", word.text);
        ConsoleError::new(ConsoleErrorKind::InvalidValue, message)
    })
}

fn parse_show(
    cursor: &mut WordCursor<'_>,
    dialect: Dialect,
) -> Result<Option<ConsoleCommand>, ConsoleError> {
    // These words of MySQL have no effect here.
    while ["FULL", "GLOBAL", "SESSION"]
        .iter()
        .any(|word| cursor.skip_if(word))
    {}
    let target = cursor.expect_word()?;
    if target.is("HELP") && cursor.is_over() {
        return Ok(Some(ConsoleCommand::Help));
    }
    let is_schemas = target.is("DATABASES") && dialect == Dialect::Mysql;
    let show = match is_schemas {
        true => Some(Show::Schemas),
        false => Show::named(&target.text),
    };
    let Some(show) = show else { return Ok(None) };
    if show == Show::Tables && (cursor.skip_if("FROM") || cursor.skip_if("IN")) {
        cursor.expect_word()?;
    }
    let filtered = Query::from_show(show, cursor, dialect)?;
    Ok(Some(
        filtered.map_or(ConsoleCommand::Show(show), ConsoleCommand::Query),
    ))
}

fn unknown(text: &str) -> ConsoleError {
    let text: String = text.trim().chars().take(100).collect();
    let message = format!("unknown command {text:?}, see SHOW HELP");
    ConsoleError::new(ConsoleErrorKind::Syntax, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<ConsoleCommand> {
        ConsoleCommand::parse(text, Dialect::Postgres).ok()
    }

    fn mysql(text: &str) -> Option<ConsoleCommand> {
        ConsoleCommand::parse(text, Dialect::Mysql).ok()
    }

    #[test]
    fn commands_are_understood_in_any_case_and_names_as_they_are_written() {
        let all = |show| Some(ConsoleCommand::Show(show));
        let odd = r#"RESUME "an ""odd"" name""#;
        for (text, expect) in [
            ("show pools;", all(Show::Pools)),
            (" SHOW HELP ", Some(ConsoleCommand::Help)),
            ("", Some(ConsoleCommand::Empty)),
            (
                "Pause Shop",
                Some(ConsoleCommand::Pause(Some("Shop".into()))),
            ),
            (
                odd,
                Some(ConsoleCommand::Resume(Some("an \"odd\" name".into()))),
            ),
            ("KILL_CLIENT 17", Some(ConsoleCommand::KillClient(17))),
            ("KILL", Some(ConsoleCommand::Kill(None))),
            ("KILL 17", Some(ConsoleCommand::Kill(Some("17".into())))),
            ("set extra_float_digits = 3", Some(ConsoleCommand::NoOp)),
        ] {
            assert_eq!(parse(text), expect, "{text}");
        }
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for text in [
            "SHOW",
            "SHOW MEM",
            "SHOW HELP ME",
            "KILL_CLIENT x",
            "PAUSE a b",
            "SHUTDOWN",
            "PAUSE \"a",
            "SELECT @@nothing",
            "SELECT 1; SELECT 2",
            "SHOW POOLS LIMIT x",
            "SHOW POOLS WHERE user > 1",
            "SHOW POOLS WHERE nothing = 1",
            "SHOW POOLS ORDER BY 1; SELECT 1",
            "EXPLAIN SELECT 1",
            "COMMIT",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn mysql_dialect_parses_kill_use_and_show_like_mysql() {
        let all = |show| Some(ConsoleCommand::Show(show));
        assert_eq!(mysql("show full processlist"), all(Show::Processlist));
        assert_eq!(mysql("SHOW DATABASES"), all(Show::Schemas));
        assert_eq!(mysql("SHOW TABLES FROM `evenkeel`"), all(Show::Tables));
        assert_eq!(mysql("KILL 17"), Some(ConsoleCommand::KillClient(17)));
        assert_eq!(
            mysql("KILL CONNECTION 17"),
            Some(ConsoleCommand::KillClient(17))
        );
        assert_eq!(
            mysql("KILL `17`"),
            Some(ConsoleCommand::Kill(Some("17".into())))
        );
        assert_eq!(mysql("KILL QUERY 17"), None);
        assert_eq!(
            mysql("use evenkeel"),
            Some(ConsoleCommand::Use("evenkeel".into()))
        );
        assert_eq!(mysql("COMMIT"), Some(ConsoleCommand::NoOp));
    }

    #[test]
    fn session_values_become_parameters_and_comments_are_removed() {
        for (text, sql, names) in [
            (
                "/* driver */ select @@session.autocommit as auto, VERSION(), 7 LIMIT 1",
                " select @v0_ as auto, @v1_, 7 LIMIT 1",
                &["@@session.autocommit", "VERSION()"][..],
            ),
            ("SELECT user # mine", "SELECT @v0_", &["user"]),
            ("SELECT user FROM pools", "SELECT user FROM pools", &[]),
            (
                "SELECT current_user AS user,1+connection_id()",
                "SELECT @v0_ AS user,1+@v1_",
                &["current_user", "connection_id()"],
            ),
            (
                "SELECT '@@nothing', version FROM \"version()\"",
                "SELECT '@@nothing', version FROM \"version()\"",
                &[],
            ),
        ] {
            let Some(ConsoleCommand::Query(query)) = mysql(text) else {
                panic!("{text}");
            };
            assert_eq!(query.sql, sql);
            let found: Vec<_> = query.values.iter().map(|one| one.name.as_str()).collect();
            assert_eq!(found, names, "{text}");
        }
    }
}
