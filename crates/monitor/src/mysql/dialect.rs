//! Determines the dialect of a server of the MySQL family, once per connection.

use super::galera;
use crate::row::{Row, UnexpectedValue};

/// WSREP_LAST_SEEN_GTID() ("Galera Functions").
const SEEN_SINCE: (u32, u32, u32) = (10, 4, 3);

/// Distinguishes the dialects by a server's features rather than its name. Works even where a
/// Galera node refuses to read tables.
pub(super) const VARIABLES: &str = "SHOW GLOBAL VARIABLES WHERE Variable_name IN \
    ('version', 'gtid_binlog_state', 'super_read_only', 'wsrep_on', 'wsrep_provider', \
    'pxc_maint_mode')";

const MARIADB: &str = "SELECT @@global.server_id AS server_identity, \
    @@global.read_only AS read_only, @@global.gtid_binlog_state AS binlog_state, \
    @@global.gtid_slave_pos AS slave_pos, @@global.gtid_current_pos AS current_pos, \
    @@global.log_bin AS log_bin";

/// The group's name is selected from a table: without the plugin there is no such variable.
const MYSQL: &str = "SELECT @@global.server_uuid AS server_identity, \
    @@global.read_only AS read_only, @@global.gtid_executed AS executed, \
    (SELECT VARIABLE_VALUE FROM performance_schema.global_variables \
     WHERE VARIABLE_NAME = 'group_replication_group_name') AS group_name";

/// Column that shows whether the server takes writes, in a result of the position query.
pub(super) const READ_ONLY: &str = "read_only";

/// Exists in MySQL only.
pub(super) const GTID_MODE: &str = "gtid_mode";

const MARIADB_POSITION: &str = "SELECT @@global.read_only AS read_only, \
    @@global.gtid_binlog_state AS binlog_state, @@global.gtid_slave_pos AS slave_pos, \
    @@global.gtid_current_pos AS current_pos, @@global.log_bin AS log_bin";

const MYSQL_POSITION: &str = "SELECT @@global.read_only AS read_only, \
    @@global.gtid_executed AS executed, @@global.gtid_mode AS gtid_mode";

const SUPER_READ_ONLY: &str = ", @@global.super_read_only AS super_read_only";

const WSREP: &str = ", @@global.wsrep_on AS wsrep_on, @@global.wsrep_provider AS wsrep_provider, \
    @@global.wsrep_desync AS wsrep_desync, @@global.wsrep_reject_queries AS wsrep_reject_queries";

const PXC: &str = ", @@global.pxc_maint_mode AS pxc_maint_mode";

/// Age of the oldest transaction that is being applied; NULL if there is none.
const APPLYING: &str = ", (SELECT TIMESTAMPDIFF(MICROSECOND, \
     MIN(APPLYING_TRANSACTION_ORIGINAL_COMMIT_TIMESTAMP), NOW(6)) \
     FROM performance_schema.replication_applier_status_by_worker \
     WHERE APPLYING_TRANSACTION <> '' AND CHANNEL_NAME NOT LIKE 'group\\_replication\\_%') \
    AS applying_us";

const MAY_SEE_WORKERS: &str = "SELECT APPLYING_TRANSACTION_ORIGINAL_COMMIT_TIMESTAMP \
    FROM performance_schema.replication_applier_status_by_worker LIMIT 1";

/// Queries for a server, and their variants.
#[derive(Debug, Clone)]
pub(super) struct Dialect {
    mariadb: bool,
    wsrep: bool,
    /// True if a Galera library reports its position.
    tells_seen: bool,
    version: (u32, u32, u32),
    facts: String,
}

impl Dialect {
    pub(super) fn new(variables: &Row) -> Result<Self, UnexpectedValue> {
        let mariadb = variables.has("gtid_binlog_state");
        let wsrep = variables.has("wsrep_on");
        let mut facts = if mariadb { MARIADB } else { MYSQL }.to_owned();
        let more = [
            ("super_read_only", SUPER_READ_ONLY),
            ("wsrep_on", WSREP),
            ("pxc_maint_mode", PXC),
        ];
        for (variable, columns) in more {
            if variables.has(variable) {
                facts.push_str(columns);
            }
        }
        let version = version(variables.text(&["version"])?);
        let is_loaded = wsrep && is_loaded(variables)?;
        Ok(Self {
            mariadb,
            wsrep,
            tells_seen: mariadb && is_loaded && version >= SEEN_SINCE,
            version,
            facts,
        })
    }

    /// Returns the query that is sent each time.
    pub(super) fn facts(&self) -> &str {
        &self.facts
    }

    pub(super) fn is_mariadb(&self) -> bool {
        self.mariadb
    }

    /// Returns the query for the position alone.
    pub(super) fn position(&self) -> &'static str {
        match self.mariadb {
            true if self.tells_seen => galera::POSITION,
            true => MARIADB_POSITION,
            false => MYSQL_POSITION,
        }
    }

    /// Returns the query that completes after the server has applied everything acknowledged
    /// elsewhere; `None`: a new primary has done that already.
    pub(super) fn catch_up(&self) -> Option<&'static str> {
        self.tells_seen.then_some(galera::CATCH_UP)
    }

    /// Returns the query for the replication channels.
    pub(super) fn channels(&self) -> &'static str {
        match self.mariadb {
            true => "SHOW ALL SLAVES STATUS",
            false if self.version >= (8, 0, 22) => "SHOW REPLICA STATUS",
            false => "SHOW SLAVE STATUS",
        }
    }

    /// Returns a query that tests whether the lag is available in fractions of a second; `None` if
    /// the version does not support that.
    pub(super) fn may_see_workers(&self) -> Option<&'static str> {
        (!self.mariadb && self.version >= (8, 0, 1)).then_some(MAY_SEE_WORKERS)
    }

    /// Records that the test query succeeded.
    pub(super) fn sees_workers(&mut self) {
        self.facts.push_str(APPLYING);
    }

    /// Returns the session's setup. In local time an hour of each year would occur twice.
    pub(super) fn setup(&self) -> Option<&'static str> {
        (!self.mariadb).then_some("SET SESSION time_zone = '+00:00'")
    }

    /// Returns whether a Galera library is configured, so that its state should be queried.
    pub(super) fn may_be_galera(&self, facts: &Row) -> Result<bool, UnexpectedValue> {
        Ok(self.wsrep && is_loaded(facts)?)
    }

    /// Returns the privilege that shows the replication channels.
    pub(super) fn privilege(&self) -> &'static str {
        match self.mariadb {
            true if self.version >= (10, 5, 0) => "SLAVE MONITOR ON *.*",
            _ => "REPLICATION CLIENT ON *.*",
        }
    }
}

fn is_loaded(facts: &Row) -> Result<bool, UnexpectedValue> {
    if !facts.has("wsrep_provider") {
        return Ok(false);
    }
    let provider = facts.value(&["wsrep_provider"])?.unwrap_or_default();
    Ok(!matches!(provider, "" | "none"))
}

/// Parses "10.11.19-MariaDB-0+deb12u1-log": the first three numbers.
fn version(text: &str) -> (u32, u32, u32) {
    let mut numbers = text
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next(), next())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dialect(variables: &[(&str, &str)]) -> Dialect {
        let cell = |(name, value): &(&str, &str)| ((*name).to_owned(), Some((*value).to_owned()));
        Dialect::new(&Row::new(variables.iter().map(cell))).unwrap()
    }

    #[test]
    fn each_server_is_asked_for_what_it_has() {
        let mariadb = dialect(&[
            ("version", "10.11.19-MariaDB-0+deb12u1-log"),
            ("gtid_binlog_state", ""),
            ("wsrep_on", "OFF"),
        ]);
        assert_eq!(mariadb.channels(), "SHOW ALL SLAVES STATUS");
        assert_eq!(mariadb.privilege(), "SLAVE MONITOR ON *.*");
        assert!(mariadb.facts().contains("wsrep_desync"));
        assert!(!mariadb.facts().contains("super_read_only"));
        assert_eq!(mariadb.position(), MARIADB_POSITION);
        assert_eq!(mariadb.catch_up(), None);
        assert_eq!(mariadb.may_see_workers(), None);

        let galera = dialect(&[
            ("version", "10.11.19-MariaDB-0+deb12u1-log"),
            ("gtid_binlog_state", ""),
            ("wsrep_on", "ON"),
            ("wsrep_provider", "/usr/lib/galera/libgalera_smm.so"),
        ]);
        assert_eq!(galera.position(), galera::POSITION);
        assert_eq!(galera.catch_up(), Some(galera::CATCH_UP));

        let mysql = dialect(&[("version", "9.4.0"), ("super_read_only", "OFF")]);
        assert_eq!(mysql.channels(), "SHOW REPLICA STATUS");
        assert!(mysql.facts().contains("super_read_only"));
        assert!(!mysql.facts().contains("wsrep"));
        assert!(mysql.may_see_workers().is_some());

        let old = dialect(&[("version", "8.0.21")]);
        assert_eq!(old.channels(), "SHOW SLAVE STATUS");
        let old = dialect(&[("version", "10.4.34-MariaDB"), ("gtid_binlog_state", "")]);
        assert_eq!(old.privilege(), "REPLICATION CLIENT ON *.*");
    }

    #[test]
    fn a_version_is_its_first_three_numbers() {
        assert_eq!(version("8.0.36-28.1"), (8, 0, 36));
        assert_eq!(version("5.5.5-10.4.1-MariaDB"), (5, 5, 5));
        assert_eq!(version("9"), (9, 0, 0));
        assert_eq!(version("devel"), (0, 0, 0));
    }
}
