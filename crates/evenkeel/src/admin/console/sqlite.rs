//! Runs SELECT in SQLite. Each statement has its own database in memory with the tables of SHOW, of
//! which only those that it reads are filled.

mod fault;

use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(super) use rusqlite::types::Value;

use rusqlite::config::DbConfig;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Statement, params_from_iter};
use tokio::sync::Semaphore;

use super::Dialect;
use super::command::{Query, name};
use super::error::{ConsoleError, ConsoleErrorKind};
use super::show::{Row, SCHEMA, Show, column_type};

/// Time limit of a statement.
const TIME_MAX: Duration = Duration::from_secs(1);

/// Maximum rows of a result.
const ROWS_MAX: usize = 10_000;

/// Maximum bytes of all values of a result.
const ANSWER_LENGTH_MAX: usize = 8 << 20;

/// Maximum number of bytes of all SQLite databases in the process.
const HEAP_MAX: usize = 128 << 20;

/// Number of SQLite instructions between two checks of the clock: a fraction of a millisecond.
const STEPS: i32 = 1_000;

/// Limits of one statement. The clock is not checked within a function call; a call with values of
/// the maximum length takes much less than `TIME_MAX`.
const LIMITS: &[(Limit, i32)] = &[
    (Limit::SQLITE_LIMIT_LENGTH, 64 << 10),
    (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 1_000),
    (Limit::SQLITE_LIMIT_COLUMN, 200),
    (Limit::SQLITE_LIMIT_EXPR_DEPTH, 100),
    (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 50),
    (Limit::SQLITE_LIMIT_VDBE_OP, 100_000),
    (Limit::SQLITE_LIMIT_VARIABLE_NUMBER, 100),
    (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
];

/// Properties of a statement that SQLite determines before it runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) columns: Vec<String>,
    /// The tables that it reads.
    pub(super) reads: Vec<Show>,
}

/// Permit to run one statement at a time on a separate thread. Statements use at most one core, and
/// never block the control plane.
pub(super) struct SelectRunner(Arc<Semaphore>);

impl Default for SelectRunner {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

impl SelectRunner {
    /// Waits for the permit and runs `work`, which completes even if the client disconnects.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, ConsoleError> + Send + 'static,
    ) -> Result<T, ConsoleError> {
        let failed = |what| {
            ConsoleError::new(
                ConsoleErrorKind::CommandFailed,
                format!("the query failed: {what}"),
            )
        };
        let permit = Arc::clone(&self.0).acquire_owned().await;
        let permit = permit.map_err(|_| failed("the console ends"))?;
        let working = tokio::task::spawn_blocking(move || {
            let outcome = work();
            drop(permit);
            outcome
        });
        working.await.map_err(|_| failed("see the log"))?
    }
}

/// Statements that create the tables, without rows.
static TABLES: LazyLock<String> = LazyLock::new(|| {
    let column = |column: &&str| format!("{} {}", name(column), column_type(column));
    let table = |show: Show| {
        let columns: Vec<_> = show.columns().iter().map(column).collect();
        let name = name(&show.name());
        format!("CREATE TABLE {SCHEMA}.{name} ({});", columns.join(", "))
    };
    Show::all().map(table).collect()
});

/// Determines which tables a statement reads and which columns it returns.
pub(super) fn plan(query: &Query) -> Result<Plan, ConsoleError> {
    let reads = Arc::<Mutex<Vec<Show>>>::default();
    let planned = || {
        let mut database = open()?;
        restrict(&mut database, query.dialect, &reads)?;
        let statement = database.prepare(&query.sql)?;
        let columns = statement.column_names().map(|name| {
            let name = query.restored(name);
            unquoted(&name).to_owned()
        });
        Ok((columns.collect(), unbound_parameter(query, &statement)))
    };
    let (columns, unbound) = planned().map_err(|error| fault::console_error(&error, query))?;
    if let Some(parameter) = unbound {
        let message = format!("{parameter} has no value: write the value into the text");
        return Err(ConsoleError::new(ConsoleErrorKind::Unsupported, message));
    }
    let reads = reads.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(Plan { columns, reads })
}

/// Returns the rows of a statement that reads these tables.
pub(super) fn run(
    query: &Query,
    values: &[Value],
    tables: &[(Show, Vec<Row>)],
) -> Result<Vec<Row>, ConsoleError> {
    let made = || {
        let mut database = open()?;
        for (show, rows) in tables {
            fill(&database, *show, rows)?;
        }
        restrict(&mut database, query.dialect, &Arc::default())?;
        // Texts of SHOW are written by the console and return no more rows than the table has.
        let is_bounded = query.verb != "SHOW";
        answer(&mut database.prepare(&query.sql)?, values, is_bounded)
    };
    made()
        .map_err(|error| fault::console_error(&error, query))?
        .ok_or_else(|| {
            let length = ANSWER_LENGTH_MAX >> 20;
            let message = format!(
                "the answer has more than {ROWS_MAX} rows or {length} MiB, the console's limits: \
                 select fewer rows with WHERE or LIMIT"
            );
            ConsoleError::new(ConsoleErrorKind::TooLarge, message)
        })
}

fn open() -> rusqlite::Result<Connection> {
    let database = Connection::open_in_memory()?;
    database.execute_batch(&format!(
        "PRAGMA temp_store = memory; PRAGMA hard_heap_limit = {HEAP_MAX}; \
         ATTACH ':memory:' AS {SCHEMA};"
    ))?;
    database.execute_batch(&TABLES)?;
    Ok(database)
}

fn fill(database: &Connection, show: Show, rows: &[Row]) -> rusqlite::Result<()> {
    let placeholders = vec!["?"; show.columns().len()].join(", ");
    let name = name(&show.name());
    let mut insert = database.prepare(&format!(
        "INSERT INTO {SCHEMA}.{name} VALUES ({placeholders})"
    ))?;
    for row in rows {
        insert.execute(params_from_iter(row))?;
    }
    Ok(())
}

/// Restricts the database, so that only the client's statement can run, within the limits.
fn restrict(
    database: &mut Connection,
    dialect: Dialect,
    reads: &Arc<Mutex<Vec<Show>>>,
) -> rusqlite::Result<()> {
    // In MySQL `"a"` is a text if no column has that name.
    let is_mysql = dialect == Dialect::Mysql;
    database.set_db_config(DbConfig::SQLITE_DBCONFIG_DQS_DML, is_mysql)?;
    for (limit, max) in LIMITS {
        database.set_limit(*limit, *max)?;
    }
    let reads = Arc::clone(reads);
    database.authorizer(Some(move |context: AuthContext<'_>| {
        let mut reads = reads.lock().unwrap_or_else(PoisonError::into_inner);
        match is_allowed(context, &mut reads) {
            true => Authorization::Allow,
            false => Authorization::Deny,
        }
    }))?;
    let end = Instant::now() + TIME_MAX;
    database.progress_handler(STEPS, Some(move || Instant::now() >= end))
}

/// Returns whether a statement may perform an action. Records the tables that it reads.
fn is_allowed(context: AuthContext<'_>, reads: &mut Vec<Show>) -> bool {
    match context.action {
        AuthAction::Select | AuthAction::Recursive => true,
        AuthAction::Function { function_name } => is_harmless(function_name),
        AuthAction::Read {
            table_name,
            column_name,
        } => {
            let is_ours = context.database_name.is_none_or(|name| name == SCHEMA);
            match Show::named(table_name) {
                Some(show) if is_ours => {
                    if !reads.contains(&show) {
                        reads.push(show);
                    }
                    true
                }
                // A name from WITH, of which only the rows are counted.
                _ => {
                    let is_counted = column_name.is_empty() && context.database_name.is_none();
                    is_counted && !starts_with_any(table_name, &["sqlite_", "pragma_", "dbstat"])
                }
            }
        }
        _ => false,
    }
}

/// Returns whether a function is permitted. Functions of SQLite's extensions have access beyond
/// their arguments.
fn is_harmless(function: &str) -> bool {
    !starts_with_any(function, &["fts", "rtree", "load_extension"])
}

fn starts_with_any(name: &str, beginnings: &[&str]) -> bool {
    let name = name.to_ascii_lowercase();
    beginnings
        .iter()
        .any(|beginning| name.starts_with(beginning))
}

/// Returns a parameter that the client wrote, if there is one.
fn unbound_parameter(query: &Query, statement: &Statement<'_>) -> Option<String> {
    let own: Vec<_> = (0..query.values.len()).map(Query::parameter).collect();
    let names = (1..=statement.parameter_count()).map(|at| statement.parameter_name(at));
    let mut names = names.map(|name| name.unwrap_or("?").to_owned());
    names.find(|name| !own.contains(name))
}

/// Returns the rows of a result. `None`: a bounded result exceeds the limit.
fn answer(
    statement: &mut Statement<'_>,
    values: &[Value],
    is_bounded: bool,
) -> rusqlite::Result<Option<Vec<Row>>> {
    for (number, value) in values.iter().enumerate() {
        if let Some(at) = statement.parameter_index(&Query::parameter(number))? {
            statement.raw_bind_parameter(at, value)?;
        }
    }
    let width = statement.column_count();
    let (mut all, mut length) = (Vec::new(), 0);
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        let row: Row = (0..width)
            .map(|at| row.get_ref(at).map(text))
            .collect::<Result<_, _>>()?;
        length += row.iter().flatten().map(String::len).sum::<usize>();
        if is_bounded && (all.len() == ROWS_MAX || length > ANSWER_LENGTH_MAX) {
            return Ok(None);
        }
        all.push(row);
    }
    Ok(Some(all))
}

fn text(value: ValueRef<'_>) -> Option<String> {
    match value {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(format!("{number:?}")),
        ValueRef::Text(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        ValueRef::Blob(bytes) => Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
    }
}

/// Removes quotes from a column name: SQLite names a column of one literal by its text, servers by
/// its value.
fn unquoted(name: &str) -> &str {
    let inside = ['\'', '"'].iter().find_map(|quote| {
        let inside = name.strip_prefix(*quote)?.strip_suffix(*quote)?;
        (!inside.contains(*quote)).then_some(inside)
    });
    inside.unwrap_or(name)
}

#[cfg(test)]
mod tests;
