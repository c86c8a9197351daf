//! Reads the routines, views, tables and triggers of a MySQL or MariaDB server.

use std::time::Duration;

use mysql_async::Conn;

use super::{Link, Monitor, QueryError, rows};
use crate::probe::{
    MonitorAccount, ProbeSetupError, Progress, Target, Tls, mysql::catch_panic, mysql::malformed,
};
use crate::row::{Row, UnexpectedValue};
use crate::{WatchError, persistent::RoleQuery as _};
use evenkeel_sql::routines::{Routine, RoutineListing, Routines, Trigger, ViewDefinition};

const STEP: &str = "reading routines and tables";

const TABLES: &str = "SELECT TABLE_NAME AS name FROM information_schema.TABLES \
    WHERE TABLE_TYPE <> 'VIEW' AND TABLE_SCHEMA NOT IN \
    ('information_schema', 'performance_schema', 'mysql', 'sys')";

const VIEWS: &str = "SELECT TABLE_NAME AS name, VIEW_DEFINITION AS definition \
    FROM information_schema.VIEWS WHERE TABLE_SCHEMA NOT IN \
    ('information_schema', 'performance_schema', 'mysql', 'sys')";

const ROUTINES: &str = "SELECT ROUTINE_NAME AS name, ROUTINE_TYPE AS kind, \
    SQL_DATA_ACCESS AS access, ROUTINE_DEFINITION AS body, SQL_MODE AS sql_mode \
    FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA NOT IN ('mysql', 'sys')";

const TRIGGERS: &str = "SELECT EVENT_OBJECT_TABLE AS name, ACTION_STATEMENT AS body, \
    SQL_MODE AS sql_mode FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA <> 'sys'";

const SEQUENCES: &str = "SELECT TABLE_NAME AS name FROM information_schema.TABLES \
    WHERE TABLE_TYPE = 'SEQUENCE' LIMIT 1";

/// Defaults that take a value of a sequence, which leaves the same session state as a trigger
/// would.
const DEFAULTS: &str = "SELECT TABLE_NAME AS name, COLUMN_DEFAULT AS body, '' AS sql_mode \
    FROM information_schema.COLUMNS WHERE COLUMN_DEFAULT LIKE '%nextval(%'";

/// The account, as the privilege tables name it.
macro_rules! us {
    () => {
        "(SELECT CONCAT(QUOTE(LEFT(who, CHAR_LENGTH(who) - CHAR_LENGTH(host) - 1)), \
         '@', QUOTE(host)) AS grantee FROM (SELECT CURRENT_USER() AS who, \
         SUBSTRING_INDEX(CURRENT_USER(), '@', -1) AS host) AS account) AS us"
    };
}

/// Returns a row if the account sees every table by its own privileges; those of roles are ignored.
const SEES_TABLES: &str = concat!(
    "SELECT own.PRIVILEGE_TYPE AS name FROM information_schema.USER_PRIVILEGES AS own, ",
    us!(),
    " WHERE own.PRIVILEGE_TYPE IN ('SELECT', 'SHOW VIEW') AND own.GRANTEE = us.grantee LIMIT 1"
);

/// Schemas whose triggers the account may not see, by its own privileges.
const BLIND: &str = concat!(
    "SELECT SCHEMA_NAME AS name FROM information_schema.SCHEMATA, ",
    us!(),
    " WHERE SCHEMA_NAME NOT IN ('information_schema', 'performance_schema', 'mysql', 'sys') \
    AND NOT EXISTS (SELECT 1 FROM information_schema.USER_PRIVILEGES AS own \
    WHERE own.PRIVILEGE_TYPE = 'TRIGGER' AND own.GRANTEE = us.grantee) \
    AND NOT EXISTS (SELECT 1 FROM information_schema.SCHEMA_PRIVILEGES AS own \
    WHERE own.PRIVILEGE_TYPE = 'TRIGGER' AND own.GRANTEE = us.grantee \
    AND SCHEMATA.SCHEMA_NAME LIKE own.TABLE_SCHEMA)"
);

/// Schemas that have a table: others have no triggers.
const WITH_TABLES: &str = "SELECT DISTINCT TABLE_SCHEMA AS name FROM information_schema.TABLES";

/// Reads from servers, over a new connection for each reading.
pub struct RoutineReader {
    monitor: Monitor,
}

impl RoutineReader {
    /// Checks everything that can be checked without the server.
    ///
    /// # Errors
    /// If `tls` cannot be used.
    pub fn new(account: MonitorAccount, tls: &Tls) -> Result<Self, ProbeSetupError> {
        Ok(Self {
            monitor: Monitor::named(account, tls, "evenkeel-catalog")?,
        })
    }

    /// Reads everything, within `timeout`. Objects that the account may not see are missing.
    ///
    /// # Errors
    /// If the server cannot be read.
    pub async fn read(
        &self,
        target: &Target,
        generation: u64,
        timeout: Duration,
    ) -> Result<Routines, WatchError> {
        let progress = Progress::new(timeout);
        match tokio::time::timeout(timeout, self.run(target, &progress)).await {
            Ok(listed) => Ok(Routines::new(generation, &listed?)),
            Err(_) => Err(WatchError::Away(progress.timed_out(timeout))),
        }
    }

    async fn run(
        &self,
        target: &Target,
        progress: &Progress,
    ) -> Result<RoutineListing, WatchError> {
        let mut link = self.monitor.connect(target, progress).await?;
        progress.logged_in(STEP);
        let asking = catch_panic(async move {
            let answer = listed(&mut link).await;
            (link, answer)
        });
        match asking.await {
            Some((link, Ok(listed))) => {
                let _ = link.connection.disconnect().await;
                Ok(listed)
            }
            Some((link, Err(error))) => {
                let dialect = Some(&link.dialect);
                let classified = self.monitor.classify(error, dialect, target, progress);
                Err(classified.await)
            }
            None => Err(malformed(target).await.into()),
        }
    }
}

async fn listed(link: &mut Link) -> Result<RoutineListing, QueryError> {
    let mariadb = link.dialect.is_mariadb();
    let connection = &mut link.connection;
    let mut triggers = all(connection, TRIGGERS, trigger).await?;
    // A read of all columns is slow on a server with many tables.
    if mariadb && !all(connection, SEQUENCES, name).await?.is_empty() {
        triggers.extend(all(connection, DEFAULTS, trigger).await?);
    }
    let sees_tables = !all(connection, SEES_TABLES, name).await?.is_empty();
    let mut blind = all(connection, BLIND, name).await?;
    if sees_tables && !blind.is_empty() {
        let with_tables = all(connection, WITH_TABLES, name).await?;
        blind.retain(|schema| with_tables.contains(schema));
    }
    Ok(RoutineListing {
        mariadb,
        sees_tables,
        tables: all(connection, TABLES, name).await?,
        views: all(connection, VIEWS, view).await?,
        routines: all(connection, ROUTINES, routine).await?,
        triggers,
        blind,
    })
}

async fn all<T>(
    connection: &mut Conn,
    question: &str,
    read: impl Fn(&Row) -> Result<T, UnexpectedValue>,
) -> Result<Vec<T>, QueryError> {
    let rows = rows(connection, question).await?;
    let read: Result<Vec<T>, UnexpectedValue> = rows.iter().map(read).collect();
    Ok(read?)
}

fn name(row: &Row) -> Result<String, UnexpectedValue> {
    row.text(&["name"]).map(str::to_owned)
}

/// Reads a definition; a hidden one is empty, or NULL.
fn text(row: &Row, column: &str) -> Result<Option<String>, UnexpectedValue> {
    let value = row.value(&[column])?;
    Ok(value.filter(|text| !text.is_empty()).map(str::to_owned))
}

fn view(row: &Row) -> Result<ViewDefinition, UnexpectedValue> {
    Ok(ViewDefinition {
        name: name(row)?,
        definition: text(row, "definition")?,
    })
}

fn routine(row: &Row) -> Result<Routine, UnexpectedValue> {
    Ok(Routine {
        name: name(row)?,
        is_function: row.text(&["kind"])? == "FUNCTION",
        access: row.text(&["access"])?.to_owned(),
        body: text(row, "body")?,
        sql_mode: text(row, "sql_mode")?.unwrap_or_default(),
    })
}

fn trigger(row: &Row) -> Result<Trigger, UnexpectedValue> {
    Ok(Trigger {
        table: name(row)?,
        body: text(row, "body")?.unwrap_or_default(),
        sql_mode: text(row, "sql_mode")?.unwrap_or_default(),
    })
}
