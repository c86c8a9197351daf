//! Queries a PostgreSQL server for the record of a user who logs in.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio_postgres::{
    Row, Statement,
    error::{DbError, SqlState},
    types::Type,
};

use super::line::{Caller, MonitorConnection};
use super::{UnexpectedValue, WatchError, is_query_error};
use crate::probe::{MonitorAccount, ProbeSetupError, Progress, Target, Tls, messages};
use evenkeel_policy::accounts::{LookupError, PostgresAuthRecord, Verifier};

/// Uses the server's clock, and reports roles that may not log in at all.
const QUERY: &str = "SELECT account.rolname, account.rolpassword, \
    COALESCE(account.rolvaliduntil < pg_catalog.clock_timestamp(), false), account.rolcanlogin";

/// Identity of the role, which may have been dropped and created again, and its settings by ALTER
/// ROLE and ALTER DATABASE in any database, which apply to later connections. Then the databases
/// that accept no connections, or none of this user: the server cannot check who gets an open
/// connection.
const EXTRA_COLUMNS: &str = "pg_catalog.concat_ws(' ', role.oid, (SELECT pg_catalog.string_agg( \
    pg_catalog.concat_ws(' ', own.setdatabase, own.setrole, own.setconfig), ' ' \
    ORDER BY own.setdatabase, own.setrole) FROM pg_catalog.pg_db_role_setting AS own \
    WHERE own.setrole IN (0, role.oid))), \
    ARRAY(SELECT db.datname::pg_catalog.text FROM pg_catalog.pg_database AS db \
    WHERE NOT db.datallowconn), \
    ARRAY(SELECT db.datname::pg_catalog.text FROM pg_catalog.pg_database AS db \
    WHERE NOT pg_catalog.has_database_privilege(role.oid, db.oid, 'CONNECT'))";

const JOIN_ROLE: &str = "LEFT JOIN pg_catalog.pg_roles AS role ON role.rolname = account.rolname";

const STEP: &str = "looking up a user";

/// Queries servers about users, concurrently over one kept connection.
pub struct PostgresAuthQuery {
    caller: Caller,
    query: String,
    is_own: bool,
    kept: Mutex<Option<Arc<Kept>>>,
}

struct Kept {
    target: Target,
    line: MonitorConnection,
    statement: Statement,
}

impl PostgresAuthQuery {
    /// Creates the query. `query` takes a user's name as `$1` and returns `(rolname, rolpassword,
    /// valid_until)`; without it `pg_authid` is read.
    pub fn new(
        account: MonitorAccount,
        tls: &Tls,
        query: Option<&str>,
    ) -> Result<Self, ProbeSetupError> {
        Ok(Self {
            caller: Caller::new(account, tls, "evenkeel-auth")?,
            query: query.map_or_else(own_query, wrapped),
            is_own: query.is_none(),
            kept: Mutex::default(),
        })
    }

    /// Queries a user's record, within `timeout`.
    pub async fn ask(
        &self,
        target: &Target,
        user: &str,
        timeout: Duration,
    ) -> Result<PostgresAuthRecord, LookupError> {
        let progress = Progress::new(timeout);
        match tokio::time::timeout(timeout, self.run(target, user, &progress)).await {
            Ok(answer) => answer,
            Err(_) => {
                self.hang_up().await;
                Err(LookupError::Unavailable(progress.timed_out(timeout)))
            }
        }
    }

    /// Closes the connection until the next query.
    pub async fn hang_up(&self) {
        *self.kept.lock().await = None;
    }

    async fn run(
        &self,
        target: &Target,
        user: &str,
        progress: &Progress,
    ) -> Result<PostgresAuthRecord, LookupError> {
        let unavailable = |error: WatchError| LookupError::Unavailable(error.to_string());
        let kept = self.kept(target, progress).await.map_err(unavailable)?;
        progress.logged_in(STEP);
        kept.line.begin_answer();
        let rows = kept.line.client.query(&kept.statement, &[&user]).await;
        let rows =
            rows.map_err(|error| unavailable(self.classify(&error, &kept.line, progress)))?;
        // The operator's query may ignore case.
        let mut rows = rows.iter();
        let row = rows.find(|row| matches!(row.try_get::<_, &str>(0), Ok(name) if name == user));
        match row {
            Some(row) => read(row).map_err(unavailable),
            None => Err(LookupError::NoSuchUser),
        }
    }

    /// Returns the connection, which is reopened if it is broken or has another target. Concurrent
    /// callers wait for it.
    async fn kept(&self, target: &Target, progress: &Progress) -> Result<Arc<Kept>, WatchError> {
        let mut kept = self.kept.lock().await;
        let good = |kept: &&Arc<Kept>| kept.target == *target && kept.line.is_usable();
        if let Some(good) = kept.as_ref().filter(good) {
            return Ok(Arc::clone(good));
        }
        *kept = None;
        let line = self.caller.call(target, progress, STEP).await?;
        let types = [Type::TEXT];
        let statement = line.client.prepare_typed(&self.query, &types).await;
        let statement = statement.map_err(|error| self.classify(&error, &line, progress))?;
        let made = Arc::new(Kept {
            target: target.clone(),
            line,
            statement,
        });
        *kept = Some(Arc::clone(&made));
        Ok(made)
    }
}

impl PostgresAuthQuery {
    fn classify(
        &self,
        error: &tokio_postgres::Error,
        line: &MonitorConnection,
        progress: &Progress,
    ) -> WatchError {
        match error.as_db_error().filter(|db| is_query_error(db)) {
            Some(db) => WatchError::CannotTell(self.refused(db)),
            None => self.caller.classify(error, line, progress),
        }
    }

    fn refused(&self, error: &DbError) -> String {
        let (user, code) = (&self.caller.user, error.code().code());
        let text = messages::truncated(error.message());
        match error.code() {
            &SqlState::INSUFFICIENT_PRIVILEGE if self.is_own => format!(
                "account '{user}' lacks the privilege to read password hashes: {text} (SQLSTATE \
                 {code}); GRANT SELECT ON pg_authid TO {user}, or set query in [service.auth] to \
                 one that calls a SECURITY DEFINER function"
            ),
            _ if self.is_own => format!("user lookup failed: {text} (SQLSTATE {code})"),
            _ => format!(
                "query of [service.auth] failed: {text} (SQLSTATE {code}); it must take the user \
                 name as $1 and return (rolname, rolpassword, valid_until)"
            ),
        }
    }
}

fn own_query() -> String {
    format!(
        "{QUERY}, {EXTRA_COLUMNS} FROM pg_catalog.pg_authid AS account {JOIN_ROLE} \
         WHERE account.rolname = $1"
    )
}

/// Wraps the operator's query: the server's clock decides, and the account's search path is the
/// operator's.
fn wrapped(query: &str) -> String {
    let query = query.trim().trim_end_matches(';');
    format!(
        "SELECT account.rolname::pg_catalog.text, account.rolpassword::pg_catalog.text, \
         COALESCE(account.valid_until::pg_catalog.timestamptz < \
         pg_catalog.clock_timestamp(), false), \
         true, {EXTRA_COLUMNS} FROM (\n{query}\n) AS account (rolname, rolpassword, valid_until) \
         {JOIN_ROLE}"
    )
}

fn read(row: &Row) -> Result<PostgresAuthRecord, WatchError> {
    let wrong = |error| WatchError::from(UnexpectedValue::new(error));
    let verifier: Option<String> = row.try_get(1).map_err(wrong)?;
    Ok(PostgresAuthRecord {
        verifier: Verifier::of_text(verifier),
        expired: row.try_get(2).map_err(wrong)?,
        can_login: row.try_get(3).map_err(wrong)?,
        role_fingerprint: row
            .try_get::<_, Option<_>>(4)
            .map_err(wrong)?
            .unwrap_or_default(),
        closed_databases: row.try_get(5).map_err(wrong)?,
        forbidden_databases: row.try_get(6).map_err(wrong)?,
    })
}
