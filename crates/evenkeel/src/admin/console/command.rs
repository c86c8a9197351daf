//! What a client of the console says, understood.

mod line;
mod pattern;
mod query;
mod words;

pub(super) use query::{Named, Query, Value};
pub(super) use words::statements;

use super::Dialect;
use super::complaint::{Complaint, Why};
use super::show::Show;
use line::Line;
use query::{Select, select};
use words::{Word, words};

/// One statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Statement {
    /// Nothing at all.
    Empty,
    /// A table, or some of it.
    Query(Query),
    /// What drivers ask of themselves and of us.
    Values(Vec<Named>),
    /// The list of commands.
    Help,
    /// Drivers set things at their beginning; nothing here depends on them.
    Set,
    /// The name of a schema, which is all that comes of it.
    Use(String),
    Pause(Of),
    Resume(Of),
    Reconnect(Of),
    /// All clients of a database, which is paused.
    Kill(Of),
    KillClient(u64),
    Reload,
}

/// The name behind a command: a database, `service/database`, or nothing for all.
pub(super) type Of = Option<String>;

/// What MySQL's drivers say for the sake of sessions that are not here.
const NOTHING_HERE: [&str; 4] = ["BEGIN", "START", "COMMIT", "ROLLBACK"];

impl Statement {
    /// What PostgreSQL's CommandComplete says.
    pub(super) fn tag(&self) -> &'static str {
        match self {
            Self::Empty => "",
            Self::Query(query) => query.verb,
            Self::Values(_) => "SELECT",
            Self::Help => "SHOW",
            Self::Set | Self::Use(_) => "SET",
            Self::Pause(_) => "PAUSE",
            Self::Resume(_) => "RESUME",
            Self::Reconnect(_) => "RECONNECT",
            Self::Kill(_) => "KILL",
            Self::KillClient(_) => "KILL_CLIENT",
            Self::Reload => "RELOAD",
        }
    }

    pub(super) fn changes(&self) -> bool {
        match self {
            Self::Empty | Self::Query(_) | Self::Values(_) => false,
            Self::Help | Self::Set | Self::Use(_) => false,
            Self::Pause(_) | Self::Resume(_) | Self::Reconnect(_) => true,
            Self::Kill(_) | Self::KillClient(_) | Self::Reload => true,
        }
    }

    /// The names of its columns; none: it gives no rows.
    pub(super) fn columns(&self) -> Option<Vec<String>> {
        match self {
            Self::Query(query) => Some(query.columns().to_vec()),
            Self::Values(values) => Some(values.iter().map(|one| one.name.clone()).collect()),
            _ => None,
        }
    }

    pub(super) fn parse(text: &str, dialect: Dialect) -> Result<Self, Complaint> {
        let words = words(text).map_err(|_| {
            let message = format!("a quote is not closed: {}", text.trim());
            Complaint::new(Why::Syntax, message)
        })?;
        let mut line = Line(&words);
        let Some(verb) = line.next() else {
            return Ok(Self::Empty);
        };
        match verb.text.to_ascii_uppercase().as_str() {
            "SHOW" => show(&mut line, dialect)?,
            "SELECT" => Some(match select(&mut line)? {
                Select::Rows(query) => Self::Query(query),
                Select::Values(values) => Self::Values(values),
            }),
            "SET" => Some(Self::Set),
            "USE" => one(&line).flatten().map(Self::Use),
            "KILL" if dialect == Dialect::MySql => kill(&mut line)?,
            "KILL_CLIENT" => Some(Self::KillClient(client(line.word()?)?)),
            word if NOTHING_HERE.contains(&word) && dialect == Dialect::MySql => Some(Self::Set),
            word => one(&line).and_then(|of| command(word, of)),
        }
        .ok_or_else(|| unknown(text))
    }
}

/// A command and what it is about.
fn command(verb: &str, of: Of) -> Option<Statement> {
    Some(match (verb, of) {
        ("RELOAD", None) => Statement::Reload,
        ("PAUSE", of) => Statement::Pause(of),
        ("RESUME", of) => Statement::Resume(of),
        ("RECONNECT", of) => Statement::Reconnect(of),
        ("KILL", of) => Statement::Kill(of),
        _ => return None,
    })
}

/// A word at most.
fn one(line: &Line<'_>) -> Option<Of> {
    match line.0 {
        [] => Some(None),
        [word] => Some(Some(word.text.clone())),
        _ => None,
    }
}

/// MySQL's KILL is of a connection.
fn kill(line: &mut Line<'_>) -> Result<Option<Statement>, Complaint> {
    if line.takes("QUERY") {
        let message = "the console ends clients, not queries alone: KILL id";
        return Err(Complaint::new(Why::NotHere, message));
    }
    line.takes("CONNECTION");
    let is_number = |word: &Word| !word.is_quoted && word.text.parse::<u64>().is_ok();
    Ok(match line.0 {
        [word] if is_number(word) => Some(Statement::KillClient(client(word)?)),
        _ => one(line).map(Statement::Kill),
    })
}

fn client(word: &Word) -> Result<u64, Complaint> {
    word.text.parse().map_err(|_| {
        let message = format!("{:?} is no client's id: SHOW CLIENTS lists them", word.text);
        Complaint::new(Why::Value, message)
    })
}

fn show(line: &mut Line<'_>, dialect: Dialect) -> Result<Option<Statement>, Complaint> {
    // Words of MySQL that change nothing here.
    while ["FULL", "GLOBAL", "SESSION"]
        .iter()
        .any(|word| line.takes(word))
    {}
    let what = line.word()?;
    if what.is("HELP") && line.is_over() {
        return Ok(Some(Statement::Help));
    }
    let is_schemas = what.is("DATABASES") && dialect == Dialect::MySql;
    let show = match is_schemas {
        true => Some(Show::Schemas),
        false => Show::named(&what.text),
    };
    let Some(show) = show else { return Ok(None) };
    if show == Show::Tables && (line.takes("FROM") || line.takes("IN")) {
        line.word()?;
    }
    Query::shown(show, line).map(Statement::Query).map(Some)
}

fn unknown(text: &str) -> Complaint {
    let text: String = text.trim().chars().take(100).collect();
    let message = format!("the console does not know {text:?}: SHOW HELP lists what it knows");
    Complaint::new(Why::Syntax, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<Statement> {
        Statement::parse(text, Dialect::Postgres).ok()
    }

    fn mysql(text: &str) -> Option<Statement> {
        Statement::parse(text, Dialect::MySql).ok()
    }

    #[test]
    fn commands_are_understood_in_any_case_and_names_as_they_are_written() {
        let all = |show| Some(Statement::Query(Query::all(show)));
        let odd = r#"RESUME "an ""odd"" name""#;
        for (text, expect) in [
            ("show pools;", all(Show::Pools)),
            (" SHOW HELP ", Some(Statement::Help)),
            ("", Some(Statement::Empty)),
            ("Pause Shop", Some(Statement::Pause(Some("Shop".into())))),
            (odd, Some(Statement::Resume(Some("an \"odd\" name".into())))),
            ("KILL_CLIENT 17", Some(Statement::KillClient(17))),
            ("KILL", Some(Statement::Kill(None))),
            ("KILL 17", Some(Statement::Kill(Some("17".into())))),
            ("set extra_float_digits = 3", Some(Statement::Set)),
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
            "SELECT",
            "SELECT a",
            "SELECT * FROM nothing",
            "SELECT * FROM other.pools",
            "SELECT nothing FROM pools",
            "SELECT * FROM pools WHERE user > 1",
            "SELECT count(*) FROM pools",
            "SELECT @@nothing",
            "SHOW POOLS LIMIT x",
            "COMMIT",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn mysql_s_words_mean_what_they_mean_there() {
        let all = |show| Some(Statement::Query(Query::all(show)));
        assert_eq!(mysql("show full processlist"), all(Show::Processlist));
        assert_eq!(mysql("SHOW DATABASES"), all(Show::Schemas));
        assert_eq!(mysql("SHOW TABLES FROM `evenkeel`"), all(Show::Tables));
        assert_eq!(mysql("KILL 17"), Some(Statement::KillClient(17)));
        assert_eq!(mysql("KILL CONNECTION 17"), Some(Statement::KillClient(17)));
        assert_eq!(mysql("KILL `17`"), Some(Statement::Kill(Some("17".into()))));
        assert_eq!(mysql("KILL QUERY 17"), None);
        assert_eq!(
            mysql("use evenkeel"),
            Some(Statement::Use("evenkeel".into()))
        );
        assert_eq!(mysql("COMMIT"), Some(Statement::Set));
    }

    #[test]
    fn values_have_the_names_that_were_asked_for() {
        let text = "/* driver */ select @@session.autocommit as auto, version(), 'x', 7 LIMIT 1";
        let Some(Statement::Values(values)) = mysql(text) else {
            panic!("no values");
        };
        let names: Vec<_> = values.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["auto", "version()", "x", "7"]);
        assert_eq!(values[0].value, Value::Text("1".into()));
        assert_eq!(values[1].value, Value::Version);
    }

    fn rows(text: &str) -> Vec<Vec<String>> {
        let Some(Statement::Query(query)) = mysql(text) else {
            panic!("{text}");
        };
        let row = |name: &str, value: &str| vec![Some(name.to_owned()), Some(value.to_owned())];
        let rows = vec![
            row("databases", "9"),
            row("users", "10"),
            row("pools", "11"),
        ];
        let plain = |row: Vec<Option<String>>| row.into_iter().flatten().collect();
        query.of(rows).into_iter().map(plain).collect()
    }

    #[test]
    fn rows_are_picked_and_put_in_order() {
        assert_eq!(rows("SHOW LISTS LIKE '%s%' LIMIT 1"), [["databases", "9"]]);
        let text = "SELECT items AS n FROM `evenkeel`.`lists` ORDER BY items DESC LIMIT 2";
        assert_eq!(rows(text), [["11"], ["10"]]);
        let text = "SELECT * FROM evenkeel.lists WHERE items = 10";
        assert_eq!(rows(text), [["users", "10"]]);
        assert_eq!(
            rows("SELECT items, list FROM lists WHERE list = 'users'"),
            [["10", "users"]]
        );
        assert!(rows("SELECT list FROM lists WHERE list = 'nobody'").is_empty());
    }
}
