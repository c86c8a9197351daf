//! Asks a MySQL or MariaDB server what it is, and what the account may not do.

use evenkeel_policy::cluster::report::ReplicationState;

use super::{Link, Monitor, QueryError, rows};
use crate::{
    WatchError,
    inspect::Facts,
    persistent::RoleQuery as _,
    probe::{MonitorAccount, Progress, Target, Tls, messages},
    row::{Row, only},
};

const STEP: &str = "querying its facts";

const QUESTION: &str = "SELECT VERSION() AS version, @@global.ssl_cert AS certificate, \
    CURRENT_USER() AS account";

const WITHOUT_PASSWORD: &str = "SELECT user AS name FROM mysql.user \
    WHERE authentication_string = '' AND plugin IN ('', 'mysql_native_password') LIMIT 20";

/// Privilege, and the objects that it is for.
type Grant = (&'static str, &'static str);

const MARIADB: [Grant; 6] = [
    ("REPLICATION CLIENT", "*.*"),
    ("SLAVE MONITOR", "*.*"),
    ("SHOW VIEW", "*.*"),
    ("TRIGGER", "*.*"),
    ("SELECT", "mysql.global_priv"),
    ("SELECT", "mysql.proc"),
];

const MYSQL: [Grant; 6] = [
    ("REPLICATION CLIENT", "*.*"),
    ("SHOW VIEW", "*.*"),
    ("TRIGGER", "*.*"),
    ("SHOW_ROUTINE", "*.*"),
    ("SELECT", "mysql.user"),
    ("SELECT", "performance_schema.*"),
];

/// Names under which SHOW GRANTS lists a privilege, besides its own.
const OTHER_NAMES: [(&str, &str); 2] = [
    ("REPLICATION CLIENT", "BINLOG MONITOR"),
    ("SLAVE MONITOR", "REPLICA MONITOR"),
];

pub(crate) async fn facts(
    target: &Target,
    account: MonitorAccount,
    tls: &Tls,
    progress: &Progress,
) -> Result<Facts, WatchError> {
    let monitor = Monitor::named(account, tls, "evenkeel-init")
        .map_err(|error| WatchError::CannotTell(error.to_string()))?;
    let mut link = monitor.connect(target, progress).await?;
    progress.logged_in(STEP);
    let read = match read(&mut link).await {
        Ok(read) => read,
        Err(error) => {
            let dialect = Some(&link.dialect);
            return Err(monitor.classify(error, dialect, target, progress).await);
        }
    };
    // Without the privileges the role stays unknown.
    let role = match monitor.ask(&mut link).await {
        Ok(state) => role(state),
        Err(_) => (false, None),
    };
    let _ = link.connection.disconnect().await;
    let (is_replica, source) = role;
    Ok(Facts {
        is_replica,
        source,
        ..read
    })
}

async fn read(link: &mut Link) -> Result<Facts, QueryError> {
    let is_mariadb = link.dialect.is_mariadb();
    let connection = &mut link.connection;
    let answer = only(rows(connection, QUESTION).await?)?;
    let grants: Vec<String> = rows(connection, "SHOW GRANTS")
        .await?
        .iter()
        .filter_map(|row| row.first().map(str::to_owned))
        .collect();
    let account = answer.text(&["account"])?;
    let needed = if is_mariadb { MARIADB } else { MYSQL };
    let lacks = |grant: &&Grant| !has(&grants, **grant);
    let missing = needed.iter().filter(lacks);
    let missing: Vec<_> = missing
        .map(|(privilege, on)| format!("GRANT {privilege} ON {on} TO {}", quoted(account)))
        .collect();
    let reads_hashes = has(&grants, needed[4]);
    let mut without_password = Vec::new();
    if reads_hashes && let Ok(found) = rows(connection, WITHOUT_PASSWORD).await {
        let names = found.iter().filter_map(Row::first);
        without_password = names
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
    }
    Ok(Facts {
        product: product(answer.text(&["version"])?, is_mariadb),
        is_superuser: has(&grants, ("SUPER", "*.*")),
        reads_hashes,
        missing,
        has_passing_certificate: answer
            .value(&["certificate"])?
            .unwrap_or_default()
            .is_empty(),
        without_password,
        ..Facts::default()
    })
}

pub(crate) fn product(version: &str, is_mariadb: bool) -> String {
    let version = version.strip_prefix("5.5.5-").unwrap_or(version);
    let number = version.split('-').next().unwrap_or_default();
    let name = if is_mariadb { "MariaDB" } else { "MySQL" };
    format!("{name} {}", messages::truncated(number))
}

fn role(state: ReplicationState) -> (bool, Option<String>) {
    match state {
        ReplicationState::Replication(state) => {
            let source = state.replica.map(|replica| replica.source);
            (source.is_some(), source)
        }
        ReplicationState::Group(state) => (!state.is_primary, None),
        ReplicationState::Galera(_) | ReplicationState::Postgres(_) => (false, None),
    }
}

/// Returns whether rows of SHOW GRANTS include a privilege. `GRANT a, b ON x TO y`.
fn has(grants: &[String], (privilege, on): Grant) -> bool {
    let (schema, _) = on.split_once('.').unwrap_or((on, ""));
    let whole_schema = format!("{schema}.*");
    grants.iter().any(|line| {
        let line = line.replace('`', "");
        let Some((privileges, rest)) = line
            .strip_prefix("GRANT ")
            .and_then(|rest| rest.split_once(" ON "))
        else {
            return false;
        };
        let scope = rest.split(' ').next().unwrap_or_default();
        let other = OTHER_NAMES.iter().find(|(name, _)| *name == privilege);
        let names = [
            privilege,
            "ALL PRIVILEGES",
            other.map_or("", |(_, other)| *other),
        ];
        let mut listed = privileges.split(',').map(str::trim);
        (scope == "*.*" || scope == whole_schema || scope == on)
            && listed.any(|one| names.contains(&one))
    })
}

/// Returns `user@host` as SQL writes it.
fn quoted(account: &str) -> String {
    let (user, host) = account.rsplit_once('@').unwrap_or((account, "%"));
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
    format!("{}@{}", quoted(user), quoted(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn privileges_are_found_under_their_names_and_scopes() {
        let lines = [
            "GRANT BINLOG MONITOR, SLAVE MONITOR, SHOW VIEW ON *.* TO `evenkeel`@`%`",
            "GRANT SELECT ON `mysql`.`global_priv` TO `evenkeel`@`%`",
        ];
        let grants = lines.map(str::to_owned);
        assert!(has(&grants, ("REPLICATION CLIENT", "*.*")));
        assert!(has(&grants, ("SHOW VIEW", "*.*")));
        assert!(!has(&grants, ("TRIGGER", "*.*")));
        assert!(has(&grants, ("SELECT", "mysql.global_priv")));
        assert!(!has(&grants, ("SELECT", "mysql.proc")));
        let all = ["GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost`".to_owned()];
        assert!(MARIADB.iter().all(|grant| has(&all, *grant)));
        let schema = ["GRANT SELECT ON `performance_schema`.* TO `a`@`%`".to_owned()];
        assert!(has(&schema, ("SELECT", "performance_schema.*")));
        assert!(!has(&schema, ("SELECT", "mysql.user")));
        assert_eq!(quoted("o'b@10.0.0.%"), "'o''b'@'10.0.0.%'");
        assert_eq!(product("5.5.5-10.4.1-MariaDB-log", true), "MariaDB 10.4.1");
    }
}
