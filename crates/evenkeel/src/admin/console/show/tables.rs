//! Lists the tables of SHOW, and their columns.

/// Schema that SELECT may put before a table's name.
pub(in crate::admin::console) const SCHEMA: &str = "evenkeel";

/// Text of SHOW HELP.
pub(in crate::admin::console) const HELP: &str = "Commands:
SHOW HELP | CONFIG | DATABASES | POOLS | CLIENTS | SERVERS | USERS | VERSION | LISTS
SHOW STATS | STATS_TOTALS | STATS_AVERAGES | STATS_USERS | STATS_SERVERS | DIGESTS
SHOW RULES | PROCESSLIST | VARIABLES | TABLES | SCHEMAS
SHOW table LIKE 'pattern' | WHERE column = value   ORDER BY column [DESC]   LIMIT n
SELECT ... | WITH ... | VALUES ...   SQLite queries over the same tables
PAUSE [database]        hold new transactions; returns when no server connection is in use
RESUME [database]       end a pause
RECONNECT [database]    close server connections as they become idle
KILL [database]         terminate all clients and pause; RESUME to accept new ones
KILL_CLIENT id          cancel the client's query and terminate the client (mysql: also KILL id)
RELOAD                  reload the config file
database = in all services, service/database = in one service, service/ = whole service";

/// Table of SHOW.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::admin::console) enum Show {
    Clients,
    Config,
    Databases,
    Digests,
    Lists,
    Pools,
    Processlist,
    Rules,
    Schemas,
    Servers,
    Stats,
    StatsAverages,
    StatsServers,
    StatsTotals,
    StatsUsers,
    Tables,
    Users,
    Variables,
    Version,
    Warnings,
}

/// Name of each table, its variant, and its columns.
const TABLES: &[(&str, Show, &[&str])] = &[
    (
        "CLIENTS",
        Show::Clients,
        &[
            "type",
            "user",
            "database",
            "state",
            "addr",
            "port",
            "connect_time",
            "request_time",
            "wait",
            "wait_us",
            "close_needed",
            "remote_pid",
            "id",
            "client_state",
            "server",
            "pinned_by",
            "pinned_by_statement",
            "service",
            "application_name",
        ],
    ),
    (
        "CONFIG",
        Show::Config,
        &["key", "value", "default", "changeable"],
    ),
    (
        "DATABASES",
        Show::Databases,
        &[
            "name",
            "host",
            "port",
            "database",
            "force_user",
            "pool_size",
            "min_pool_size",
            "reserve_pool_size",
            "pool_mode",
            "current_connections",
            "current_client_connections",
            "paused",
            "disabled",
            "service",
        ],
    ),
    (
        "DIGESTS",
        Show::Digests,
        &[
            "service",
            "digest",
            "queries",
            "on_replicas",
            "errors",
            "rows_sent",
            "rows_affected",
            "total_us",
            "mean_us",
            "p95_us",
            "first_seen",
            "last_seen",
            "statement",
        ],
    ),
    ("LISTS", Show::Lists, &["list", "items"]),
    (
        "POOLS",
        Show::Pools,
        &[
            "database",
            "user",
            "cl_active",
            "cl_waiting",
            "sv_active",
            "sv_idle",
            "sv_used",
            "sv_tested",
            "sv_login",
            "maxwait",
            "maxwait_us",
            "pool_mode",
            "service",
        ],
    ),
    (
        "PROCESSLIST",
        Show::Processlist,
        &[
            "Id", "User", "Host", "db", "Command", "Time", "State", "Info",
        ],
    ),
    (
        "RULES",
        Show::Rules,
        &["service", "name", "active", "action", "hits"],
    ),
    ("SCHEMAS", Show::Schemas, &["Database"]),
    (
        "SERVERS",
        Show::Servers,
        &[
            "type",
            "user",
            "database",
            "state",
            "addr",
            "port",
            "connect_time",
            "request_time",
            "remote_pid",
            "client_id",
            "server",
            "service",
        ],
    ),
    (
        "STATS",
        Show::Stats,
        &[
            "database",
            "total_xact_count",
            "total_query_count",
            "total_received",
            "total_sent",
            "total_query_time",
            "avg_xact_count",
            "avg_query_count",
            "avg_recv",
            "avg_sent",
            "avg_query_time",
        ],
    ),
    (
        "STATS_AVERAGES",
        Show::StatsAverages,
        &[
            "database",
            "avg_xact_count",
            "avg_query_count",
            "avg_recv",
            "avg_sent",
            "avg_query_time",
        ],
    ),
    (
        "STATS_SERVERS",
        Show::StatsServers,
        &[
            "service",
            "server",
            "queries",
            "errors",
            "rows_sent",
            "rows_affected",
            "total_us",
            "mean_us",
            "p95_us",
        ],
    ),
    (
        "STATS_TOTALS",
        Show::StatsTotals,
        &[
            "database",
            "xact_count",
            "query_count",
            "bytes_received",
            "bytes_sent",
            "query_time",
        ],
    ),
    (
        "STATS_USERS",
        Show::StatsUsers,
        &[
            "service",
            "user",
            "database",
            "transactions",
            "queries",
            "errors",
            "rows_sent",
            "rows_affected",
            "total_us",
            "mean_us",
            "p95_us",
            "bytes_received",
            "bytes_sent",
        ],
    ),
    ("TABLES", Show::Tables, &["Tables_in_evenkeel"]),
    (
        "USERS",
        Show::Users,
        &[
            "name",
            "pool_mode",
            "current_connections",
            "current_client_connections",
            "service",
        ],
    ),
    ("VARIABLES", Show::Variables, &["Variable_name", "Value"]),
    ("VERSION", Show::Version, &["version"]),
    ("WARNINGS", Show::Warnings, &["Level", "Code", "Message"]),
];

/// Numeric columns of all tables; the others are texts.
const NUMBERS: &[&str] = &[
    "active",
    "avg_query_count",
    "avg_query_time",
    "avg_recv",
    "avg_sent",
    "avg_xact_count",
    "bytes_received",
    "bytes_sent",
    "cl_active",
    "cl_waiting",
    "client_id",
    "close_needed",
    "Code",
    "current_client_connections",
    "current_connections",
    "disabled",
    "errors",
    "hits",
    "id",
    "Id",
    "items",
    "maxwait",
    "maxwait_us",
    "mean_us",
    "min_pool_size",
    "on_replicas",
    "p95_us",
    "paused",
    "pool_size",
    "port",
    "queries",
    "query_count",
    "query_time",
    "remote_pid",
    "reserve_pool_size",
    "rows_affected",
    "rows_sent",
    "sv_active",
    "sv_idle",
    "sv_login",
    "sv_tested",
    "sv_used",
    "Time",
    "total_query_count",
    "total_query_time",
    "total_received",
    "total_sent",
    "total_us",
    "total_xact_count",
    "transactions",
    "wait",
    "wait_us",
    "xact_count",
];

/// Returns the type of a column in SQLite.
pub(in crate::admin::console) fn column_type(column: &str) -> &'static str {
    match NUMBERS.contains(&column) {
        true => "INTEGER",
        false => "TEXT",
    }
}

impl Show {
    pub(in crate::admin::console) fn all() -> impl Iterator<Item = Self> {
        TABLES.iter().map(|(_, show, _)| *show)
    }

    /// Returns the table's name in SELECT.
    pub(in crate::admin::console) fn name(self) -> String {
        let found = TABLES.iter().find(|(_, show, _)| *show == self);
        found.map_or_else(String::new, |(name, ..)| name.to_lowercase())
    }

    pub(in crate::admin::console) fn column_names(self) -> Vec<String> {
        self.columns()
            .iter()
            .map(|name| (*name).to_owned())
            .collect()
    }

    /// Returns the table of this name.
    pub(in crate::admin::console) fn named(word: &str) -> Option<Self> {
        let mut known = TABLES.iter();
        let found = known.find(|(name, ..)| word.eq_ignore_ascii_case(name));
        found.map(|(_, show, _)| *show)
    }

    /// Returns the names of all tables in SELECT.
    pub(in crate::admin::console) fn names() -> impl Iterator<Item = String> {
        TABLES.iter().map(|(name, ..)| name.to_lowercase())
    }

    pub(in crate::admin::console) fn columns(self) -> &'static [&'static str] {
        let mut known = TABLES.iter();
        known
            .find(|(_, show, _)| *show == self)
            .map_or(&[], |(.., columns)| columns)
    }
}

impl Show {
    pub(super) fn needs_connections(self) -> bool {
        matches!(
            self,
            Show::Clients
                | Show::Databases
                | Show::Lists
                | Show::Pools
                | Show::Processlist
                | Show::Servers
                | Show::Users
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_table_has_a_name_and_columns() {
        for (name, show, columns) in TABLES {
            assert_eq!(Show::named(&name.to_lowercase()), Some(*show));
            assert_eq!(show.columns(), *columns);
        }
        assert_eq!(Show::named("mem"), None);
    }

    #[test]
    fn every_number_is_a_column_of_a_table() {
        for number in NUMBERS {
            let is_known = Show::all().any(|show| show.columns().contains(number));
            assert!(is_known, "{number}");
        }
    }
}
