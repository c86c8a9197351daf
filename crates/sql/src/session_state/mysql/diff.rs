//! Computes what turns a server connection into that of a client: one SET, and the schema.

use std::cmp::Ordering;

use super::connection::ServerSessionState;
use super::previous_results::{InsertId, ResultReads};
use super::session::SessionState;
use super::{values, variables};

/// Commands that must be sent before the client's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SettingsDiff {
    /// None are required.
    Nothing,
    /// COM_INIT_DB with the schema, if there is one, then COM_QUERY with the text, if it is not
    /// empty.
    Put {
        /// Schema to select.
        schema: Option<Box<[u8]>>,
    },
    /// The connection cannot be used: the client has no schema, and SQL cannot leave one.
    Unfit,
}

/// Returns what a connection lacks for a statement that reads the results in `needs`. Appends
/// the text, which is one statement, to `sql`. A connection that the client has kept needs no check
/// if `needs` is empty.
pub fn settings_diff(
    server: &ServerSessionState,
    session_state: &mut SessionState,
    needs: ResultReads,
    sql: &mut Vec<u8>,
) -> SettingsDiff {
    let schema: Option<Box<[u8]>> = match (&server.schema, session_state.schema()) {
        (Some(_), None) => return SettingsDiff::Unfit,
        (actual, wanted)
            if actual.as_deref() == wanted && !lacks_charset(server, session_state) =>
        {
            None
        }
        (_, wanted) => wanted.map(Into::into),
    };
    let mut list = List::new(sql);
    if (server.settings != session_state.settings || server.must_restore)
        && !session_state.is_undisturbed(server)
    {
        settings(server, session_state, &mut list);
    }
    let lacks = session_state.lacks(server, needs);
    if !lacks.is_empty() {
        restore_results(lacks, server, session_state, &mut list);
    }
    let is_empty = list.is_empty() && schema.is_none();
    session_state.missing_results = lacks;
    match is_empty {
        true => SettingsDiff::Nothing,
        false => SettingsDiff::Put { schema },
    }
}

/// Returns whether the schema must be selected again: a reset keeps it, but MySQL loses the
/// `character_set_database` that follows from it.
fn lacks_charset(server: &ServerSessionState, session_state: &SessionState) -> bool {
    server.must_restore && !session_state.modes.mariadb
}

/// Assignments of one SET.
struct List<'a> {
    sql: &'a mut Vec<u8>,
    begin: usize,
}

impl<'a> List<'a> {
    fn new(sql: &'a mut Vec<u8>) -> Self {
        let begin = sql.len();
        List { sql, begin }
    }

    fn is_empty(&self) -> bool {
        self.sql.len() == self.begin
    }

    fn next(&mut self) {
        let separator: &[u8] = match self.is_empty() {
            true => b"SET ",
            false => b",",
        };
        self.sql.extend_from_slice(separator);
    }

    fn target(&mut self, name: &[u8], session_state: &SessionState) {
        self.next();
        if let Some(variable) = name.strip_prefix(b"@") {
            self.sql.push(b'@');
            return values::put_name(variable, self.sql);
        }
        let (mariadb, version) = (session_state.modes.mariadb, session_state.modes.version);
        self.sql.extend_from_slice(b"@@session.");
        let spelled = variables::spelling(name, mariadb, version);
        self.sql.extend_from_slice(spelled);
    }

    fn set(&mut self, name: &[u8], value: &[u8], session_state: &SessionState) {
        self.target(name, session_state);
        self.sql.push(b'=');
        let is_sql = name.first() == Some(&b'@') || name == variables::TIMESTAMP;
        let is_number = values::is_number(value) && !variables::is_text(name);
        if is_sql || is_number || value == b"DEFAULT" {
            self.sql.extend_from_slice(value);
        } else if name == variables::RESULTS && value.is_empty() {
            self.sql.extend_from_slice(b"NULL");
        } else {
            values::put_quoted(value, self.sql);
        }
    }

    /// Appends an assignment of the server's default. A user variable that is not set is NULL and
    /// has no character set; NULL alone would keep the character set of the previous value.
    fn reset(&mut self, name: &[u8], session_state: &SessionState) {
        self.target(name, session_state);
        if name.first() == Some(&b'@') {
            self.sql.extend_from_slice(b"=x''");
            self.target(name, session_state);
            self.sql.extend_from_slice(b"=NULL");
        } else {
            self.sql.extend_from_slice(b"=DEFAULT");
        }
    }
}

/// Appends all assignments: first `sql_mode`, which controls parsing, then removals, then values.
fn settings(server: &ServerSessionState, session_state: &SessionState, list: &mut List<'_>) {
    let mode = session_state.settings.get(variables::SQL_MODE);
    let actual = server.settings.get(variables::SQL_MODE);
    if let Some(mode) = mode.filter(|mode| actual != Some(mode) || server.must_restore) {
        list.set(variables::SQL_MODE, mode, session_state);
    }
    walk(server, session_state, |name, _, wanted| {
        if wanted.is_none() && !variables::is_compared(name) {
            list.reset(name, session_state);
        }
    });
    let named = names(server, session_state, list);
    walk(server, session_state, |name, actual, wanted| match wanted {
        // This server is of another version, and does not have the variable.
        Some(_) if actual.is_none() && variables::is_compared(name) && !is_charset(name) => {}
        Some(_) if named && NAMES.contains(&name) => {}
        Some(value) if name != variables::SQL_MODE => list.set(name, value, session_state),
        _ => {}
    });
    for (first, second) in variables::IMPLIED {
        let differs = |name: &[u8]| server.settings.get(name) != session_state.settings.get(name);
        if differs(first) || differs(second) {
            for name in [first, second] {
                if let Some(value) = session_state.settings.get(name) {
                    list.set(name, value, session_state);
                }
            }
        }
    }
    let client = session_state.settings.get(variables::CLIENT);
    if let (None, Some(client)) = (session_state.settings.get(variables::COLLATION), client) {
        // The collation was lost with a connection; that of SET NAMES is the most likely one.
        list.set(b"character_set_connection", client, session_state);
    }
}

/// Variables that SET NAMES sets.
const NAMES: [&[u8]; 3] = [variables::CLIENT, variables::RESULTS, variables::COLLATION];

/// Appends SET NAMES if it sets all of its variables as required, and returns whether it does. SET
/// NAMES also sets the collation of results, which no variable shows but column definitions do.
fn names(server: &ServerSessionState, session_state: &SessionState, list: &mut List<'_>) -> bool {
    let differs = |name: &&[u8]| server.settings.get(name) != session_state.settings.get(name);
    let [client, results, collation] =
        NAMES.map(|name| session_state.settings.get(name).unwrap_or_default());
    let is_one = client == results && client == values::charset_of(collation);
    let is_name = client.first().is_some_and(u8::is_ascii_alphabetic);
    if !(is_one && is_name && (server.must_restore || NAMES.iter().any(differs))) {
        return false;
    }
    list.next();
    for part in [b"NAMES ".as_slice(), client, b" COLLATE ", collation] {
        list.sql.extend_from_slice(part);
    }
    true
}

/// Returns whether a variable is removed from the set while only the server knows its value.
fn is_charset(name: &[u8]) -> bool {
    name == variables::COLLATION
}

/// Calls `call` with each name whose values differ, and both values.
fn walk(
    server: &ServerSessionState,
    session_state: &SessionState,
    mut call: impl FnMut(&[u8], Option<&[u8]>, Option<&[u8]>),
) {
    let mut from = server.settings.iter().peekable();
    let mut to = session_state.settings.iter().peekable();
    loop {
        let order = match (from.peek(), to.peek()) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((one, _)), Some((other, _))) => one.cmp(other),
        };
        let before = (order != Ordering::Greater).then(|| from.next()).flatten();
        let after = (order != Ordering::Less).then(|| to.next()).flatten();
        let (actual, wanted) = (
            before.map(|(_, value)| value),
            after.map(|(_, value)| value),
        );
        let differs = actual != wanted || server.must_restore;
        if let Some((name, _)) = before.or(after).filter(|_| differs) {
            call(name, actual, wanted);
        }
    }
}

/// Appends an assignment that restores the insert id. With a SELECT of a table it also clears
/// warnings: MariaDB keeps them for all other statements ("SHOW WARNINGS").
fn restore_results(
    lacks: ResultReads,
    server: &ServerSessionState,
    session_state: &SessionState,
    list: &mut List<'_>,
) {
    list.next();
    let value = match session_state.insert_id {
        _ if session_state.is_insert_id_on(server) => "LAST_INSERT_ID()".to_owned(),
        InsertId::Exact(value) | InsertId::Uncertain(value) => value.to_string(),
        InsertId::Unknown => "0".to_owned(),
    };
    let text = match lacks.intersects(ResultReads::DIAGNOSTICS) {
        true => format!("@@session.last_insert_id=(SELECT {value} FROM (SELECT 1) evenkeel)"),
        false => format!("@@session.last_insert_id={value}"),
    };
    list.sql.extend_from_slice(text.as_bytes());
}
