//! Queries a MySQL or MariaDB server for the account rows of a user who logs in.

use std::net::UdpSocket;
use std::time::Duration;

use evenkeel_policy::accounts::{
    AuthMethod, LookupError, MysqlAuthRecord, MysqlAuthRecords, RequiredNames, TlsRequirement,
};
use mysql_async::{Conn, Error, Row, Value, prelude::Queryable};
use tokio::sync::{Mutex, Semaphore};
use zeroize::Zeroizing;

use super::variables;
use crate::WatchError;
use crate::probe::{
    DatabaseLogin as _, MonitorAccount, ProbeSetupError, Progress, Target, TargetAddress, Tls,
    messages,
    mysql::{Login, catch_panic, malformed},
};

const STEP: &str = "looking up a user";

/// Maximum number of connections to one server; further queries wait.
const CONNECTIONS_MAX: usize = 4;

/// Maximum number of alternatives of `auth_or` that are read.
const METHODS_MAX: usize = 4;

/// Evenkeel's host name as the server sees it; then the plugin of most accounts.
const MYSQL_BASICS: &str = "SELECT USER(), (SELECT plugin FROM mysql.user WHERE User <> '' AND \
    account_locked = 'N' GROUP BY plugin ORDER BY COUNT(*) DESC, plugin LIMIT 1)";

const MARIADB_BASICS: &str = "SELECT USER(), (SELECT JSON_VALUE(Priv, '$.plugin') AS plugin FROM \
    mysql.global_priv WHERE User <> '' GROUP BY plugin ORDER BY COUNT(*) DESC, plugin LIMIT 1)";

/// A password expires by command or by age. Servers support a second password since 8.0.14.
const MYSQL_ROWS: &str = "SELECT Host, User, account_locked = 'Y', password_expired = 'Y' OR \
    COALESCE(password_lifetime, @@default_password_lifetime) > 0 AND password_last_changed + \
    INTERVAL COALESCE(password_lifetime, @@default_password_lifetime) DAY < NOW(), \
    FIELD(ssl_type, 'ANY', 'X509', 'SPECIFIED'), x509_subject, x509_issuer, \
    CONCAT(Select_priv, Insert_priv, Update_priv, Delete_priv, Create_priv, Drop_priv, \
    Reload_priv, Shutdown_priv, Process_priv, File_priv, Grant_priv, References_priv, Index_priv, \
    Alter_priv, Show_db_priv, Super_priv, Create_tmp_table_priv, Lock_tables_priv, Execute_priv, \
    Repl_slave_priv, Repl_client_priv, Create_view_priv, Show_view_priv, Create_routine_priv, \
    Alter_routine_priv, Create_user_priv, Event_priv, Trigger_priv, Create_tablespace_priv, \
    Create_role_priv, Drop_role_priv), plugin, HEX(authentication_string) \
    /*!80014 , HEX(JSON_UNQUOTE(JSON_EXTRACT(User_attributes, '$.additional_password')))*/ \
    FROM mysql.user";

const MARIADB_ROWS: &str = "SELECT Host, User, \
    COALESCE(JSON_VALUE(Priv, '$.account_locked'), '0') IN ('1', 'true'), \
    COALESCE(JSON_VALUE(Priv, '$.password_last_changed') = 0, 0) OR \
    COALESCE(NULLIF(JSON_VALUE(Priv, '$.password_lifetime') + 0, -1), \
    @@default_password_lifetime) > 0 AND JSON_VALUE(Priv, '$.password_last_changed') + 86400 * \
    COALESCE(NULLIF(JSON_VALUE(Priv, '$.password_lifetime') + 0, -1), \
    @@default_password_lifetime) < UNIX_TIMESTAMP(), \
    COALESCE(JSON_VALUE(Priv, '$.ssl_type'), 0), JSON_VALUE(Priv, '$.x509_subject'), \
    JSON_VALUE(Priv, '$.x509_issuer'), CONCAT_WS(' ', JSON_VALUE(Priv, '$.access'), \
    JSON_VALUE(Priv, '$.default_role')), JSON_VALUE(Priv, '$.plugin'), \
    HEX(JSON_VALUE(Priv, '$.authentication_string')), \
    COALESCE(JSON_LENGTH(Priv, '$.auth_or'), 0)";

/// Number of columns before the first authentication method of a row.
const COLUMNS_BEFORE: usize = 8;

/// Queries servers about users, over connections that are kept.
pub struct MysqlAuthQuery {
    login: Login,
    user: String,
    kept: Mutex<Vec<Kept>>,
    turns: Semaphore,
}

struct Kept {
    target: Target,
    connection: Conn,
    mariadb: bool,
    from: Vec<String>,
    default_plugin: String,
}

impl MysqlAuthQuery {
    /// Creates the query. The account must be allowed to read `mysql.user` (MariaDB:
    /// `mysql.global_priv`).
    ///
    /// # Errors
    /// If `tls` cannot be used.
    pub fn new(account: MonitorAccount, tls: &Tls) -> Result<Self, ProbeSetupError> {
        Ok(Self {
            user: account.user.clone(),
            login: Login::new(account, tls, "evenkeel-auth")?,
            kept: Mutex::default(),
            turns: Semaphore::new(CONNECTIONS_MAX),
        })
    }

    /// Queries a user's rows, within `timeout`.
    ///
    /// # Errors
    /// If the server cannot be queried.
    pub async fn ask(
        &self,
        target: &Target,
        user: &str,
        timeout: Duration,
    ) -> Result<MysqlAuthRecords, LookupError> {
        let progress = Progress::new(timeout);
        match tokio::time::timeout(timeout, self.run(target, user, &progress)).await {
            Ok(answer) => answer.map_err(LookupError::Unavailable),
            Err(_) => Err(LookupError::Unavailable(progress.timed_out(timeout))),
        }
    }

    /// Takes a connection out of the pool while it is used: one that breaks, or whose query is
    /// canceled, does not return.
    async fn run(
        &self,
        target: &Target,
        user: &str,
        progress: &Progress,
    ) -> Result<MysqlAuthRecords, String> {
        let _turn = self.turns.acquire().await;
        let found = self.kept.lock().await.pop();
        if let Some(mut kept) = found.filter(|kept| kept.target == *target) {
            progress.logged_in(STEP);
            // It may have ended while it was idle.
            if let Ok(answer) = self.question(&mut kept, user, target, progress).await {
                self.kept.lock().await.push(kept);
                return Ok(answer);
            }
        }
        let mut kept = self.call(target, progress).await?;
        let answer = self.question(&mut kept, user, target, progress).await?;
        self.kept.lock().await.push(kept);
        Ok(answer)
    }

    async fn call(&self, target: &Target, progress: &Progress) -> Result<Kept, String> {
        let connected = self.login.connect(target, progress).await;
        let mut connection = connected.map_err(|failure| reported(failure.into()))?;
        progress.logged_in(STEP);
        let learning = catch_panic(async move {
            let basics = learn(&mut connection).await;
            (connection, basics)
        });
        let (connection, basics) = match learning.await {
            Some((connection, Ok(basics))) => (connection, basics),
            Some((_, Err(error))) => return Err(self.classify(error, target, progress).await),
            None => return Err(reported(malformed(target).await.into())),
        };
        let (mariadb, host, default_plugin) = basics;
        Ok(Kept {
            from: names(&host, target),
            target: target.clone(),
            connection,
            mariadb,
            default_plugin,
        })
    }

    async fn question(
        &self,
        kept: &mut Kept,
        user: &str,
        target: &Target,
        progress: &Progress,
    ) -> Result<MysqlAuthRecords, String> {
        let query = query(kept.mariadb, user);
        let asking = catch_panic(kept.connection.query::<Row, _>(query));
        let found = match asking.await {
            Some(Ok(found)) => found,
            Some(Err(error)) => return Err(self.classify(error, target, progress).await),
            None => return Err(reported(malformed(target).await.into())),
        };
        let mariadb = kept.mariadb;
        let rows = found.into_iter().filter_map(|row| read(row, mariadb));
        Ok(MysqlAuthRecords {
            mariadb: kept.mariadb,
            from: kept.from.clone(),
            // The server's comparison of names may be lenient.
            rows: rows
                .filter(|row| row.user == user || row.user.is_empty())
                .collect(),
            default_plugin: kept.default_plugin.clone(),
        })
    }

    async fn classify(&self, error: Error, target: &Target, progress: &Progress) -> String {
        match &error {
            // Denied: a table, a column.
            Error::Server(server) if matches!(server.code, 1142 | 1143) => format!(
                "account '{user}' lacks the privilege to read user accounts: {text} (error \
                 {code}); GRANT SELECT ON mysql.user TO '{user}'@'…' on the server (MariaDB: ON \
                 mysql.global_priv)",
                user = self.user,
                text = messages::truncated(&server.message),
                code = server.code,
            ),
            Error::Server(server) => format!(
                "user lookup failed: {} (error {})",
                messages::truncated(&server.message),
                server.code
            ),
            _ => reported(self.login.classify(error, target, progress).await.into()),
        }
    }
}

fn reported(error: WatchError) -> String {
    error.to_string()
}

/// Returns the dialect, Evenkeel's host as the server sees it, and the usual plugin.
async fn learn(connection: &mut Conn) -> Result<(bool, String, String), Error> {
    let variables = variables(connection).await?;
    let mariadb = variables.has("gtid_binlog_state");
    let basics = match mariadb {
        true => MARIADB_BASICS,
        false => MYSQL_BASICS,
    };
    let row: Option<(String, Option<String>)> = connection.query_first(basics).await?;
    let (us, default_plugin) = row.unwrap_or_default();
    let host = us.rsplit_once('@').map(|(_, host)| host.to_owned());
    Ok((
        mariadb,
        host.unwrap_or_default(),
        default_plugin.unwrap_or_default(),
    ))
}

/// Returns the names by which the server knows Evenkeel. It compares hosts with the resolved name
/// and with the address. A server that resolves names reports only the name, so the address is that
/// of the socket.
fn names(host: &str, target: &Target) -> Vec<String> {
    let mut names = vec![host.to_owned()];
    let is_address = host.parse::<std::net::IpAddr>().is_ok();
    if let (TargetAddress::Tcp(address), false) = (&target.address, is_address) {
        let any = if address.is_ipv4() {
            "0.0.0.0:0"
        } else {
            "[::]:0"
        };
        // Sends no data: the system only selects the route.
        let ours = UdpSocket::bind(any).and_then(|socket| {
            socket.connect(address)?;
            socket.local_addr()
        });
        names.extend(ours.map(|ours| ours.ip().to_canonical().to_string()));
    }
    names
}

/// Writes the name as bytes, so that no character in it can end a string.
fn query(mariadb: bool, user: &str) -> String {
    let mut query = String::from(if mariadb { MARIADB_ROWS } else { MYSQL_ROWS });
    if mariadb {
        for method in 0..METHODS_MAX {
            query.push_str(&format!(
                ", COALESCE(JSON_VALUE(Priv, '$.auth_or[{method}].plugin'), ''), \
                 HEX(JSON_VALUE(Priv, '$.auth_or[{method}].authentication_string'))"
            ));
        }
        query.push_str(" FROM mysql.global_priv");
    }
    query.push_str(" WHERE User IN (_utf8mb4 x'");
    for byte in user.as_bytes() {
        query.push_str(&format!("{byte:02x}"));
    }
    query.push_str("', '')");
    if mariadb {
        // Roles are in the same table.
        query.push_str(" AND COALESCE(JSON_VALUE(Priv, '$.is_role'), '0') NOT IN ('1', 'true')");
    }
    query
}

fn read(row: Row, mariadb: bool) -> Option<MysqlAuthRecord> {
    let values: Vec<Option<Zeroizing<Vec<u8>>>> = row
        .unwrap()
        .into_iter()
        .map(|value| match value {
            Value::Bytes(bytes) => Some(Zeroizing::new(bytes)),
            _ => None,
        })
        .collect();
    let bytes = |at: usize| values.get(at).and_then(Option::as_ref);
    let text = |at: usize| -> Option<String> {
        let bytes = bytes(at).map(|bytes| bytes.as_slice());
        String::from_utf8(bytes.unwrap_or_default().to_vec()).ok()
    };
    let is = |at: usize| bytes(at).is_some_and(|bytes| bytes.as_slice() == b"1");
    let stored = |at: usize| {
        let digits = bytes(at).map(|bytes| bytes.as_slice());
        unhex(digits.unwrap_or_default())
    };
    let method = |at: usize| -> Option<AuthMethod> {
        Some(AuthMethod {
            plugin: text(at)?,
            stored: stored(at + 1)?,
            retained: Zeroizing::default(),
        })
    };
    let mut own = method(COLUMNS_BEFORE)?;
    let further = COLUMNS_BEFORE + 2;
    if !mariadb {
        own.retained = stored(further)?;
    }
    let count = text(further).filter(|_| mariadb);
    let count = count.and_then(|count| count.parse::<usize>().ok());
    let methods = match count {
        None | Some(0) => vec![own],
        // Of several methods, one without a name stands for the account's own.
        Some(count) => (0..count.min(METHODS_MAX))
            .filter_map(|which| method(further + 1 + 2 * which))
            .map(|one| {
                if one.plugin.is_empty() {
                    own.clone()
                } else {
                    one
                }
            })
            .collect(),
    };
    Some(MysqlAuthRecord {
        host: text(0)?,
        user: text(1)?,
        is_locked: is(2),
        is_expired: is(3),
        requires: requires(&text(4)?, || RequiredNames {
            subject: bytes(5).map(|bytes| bytes.to_vec()).unwrap_or_default(),
            issuer: bytes(6).map(|bytes| bytes.to_vec()).unwrap_or_default(),
        }),
        privileges_text: text(7)?,
        methods,
    })
}

/// Parses MariaDB's number of the requirement; MySQL's names are mapped to it.
fn requires(number: &str, names: impl FnOnce() -> RequiredNames) -> TlsRequirement {
    match number {
        "0" => TlsRequirement::Nothing,
        "1" => TlsRequirement::Tls,
        // X509; names may remain from an earlier setting.
        "2" => TlsRequirement::Certificate(RequiredNames::default()),
        // Also unknown future values: too strict rather than too lenient.
        _ => TlsRequirement::Certificate(names()),
    }
}

fn unhex(digits: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = digits.chunks_exact(2).map(|pair| {
        let (high, low) = (digit(pair[0])?, digit(pair[1])?);
        u8::try_from(high * 16 + low).ok()
    });
    pairs.collect::<Option<Vec<u8>>>().map(Zeroizing::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_end_the_string_that_it_stands_in() {
        let query = query(false, "a'b");
        assert!(
            query.ends_with("WHERE User IN (_utf8mb4 x'612762', '')"),
            "{query}"
        );
    }

    #[test]
    fn hexadecimal_digits_are_read_or_refused() {
        assert_eq!(unhex(b"2A00fF").unwrap().as_slice(), b"\x2a\x00\xff");
        assert!(unhex(b"zz").is_none());
    }

    #[test]
    fn a_server_that_looks_names_up_knows_us_by_our_address_too() {
        let local = Target::tcp("127.0.0.1:3306".parse().unwrap());
        assert_eq!(names("localhost", &local), ["localhost", "127.0.0.1"]);
        assert_eq!(names("10.0.0.1", &local), ["10.0.0.1"]);
    }
}
