//! The tables of SHOW by name, and their columns.

/// SHOW HELP.
pub(in crate::admin::console) const HELP: &str = "the console knows:
SHOW HELP | CONFIG | DATABASES | POOLS | CLIENTS | SERVERS | USERS | VERSION | LISTS
SHOW STATS | STATS_TOTALS | STATS_AVERAGES
PAUSE [database]        new transactions wait; answers when nothing runs
RESUME [database]       ends a pause
RECONNECT [database]    server connections close as soon as nobody uses them
KILL [database]         ends all clients and pauses; RESUME lets new ones work
KILL_CLIENT id          cancels what a client does, and ends it
RELOAD                  reads the config file again
A database is that of all services; service/database is that of one, service/ all of one.";

/// A table to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::admin::console) enum Show {
    Clients,
    Config,
    Databases,
    Lists,
    Pools,
    Servers,
    Stats,
    StatsAverages,
    StatsTotals,
    Users,
    Version,
}

/// A name as it is asked for, what it shows, and its columns.
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
            "doing",
            "server",
            "bound_by",
            "service",
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
    ("VERSION", Show::Version, &["version"]),
];

impl Show {
    /// What a word asks for; `Some(None)`: for help.
    pub(in crate::admin::console) fn named(word: &str) -> Option<Option<Self>> {
        if word.eq_ignore_ascii_case("HELP") {
            return Some(None);
        }
        let mut known = TABLES.iter();
        known
            .find(|(name, ..)| word.eq_ignore_ascii_case(name))
            .map(|(_, show, _)| Some(*show))
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
            assert_eq!(Show::named(&name.to_lowercase()), Some(Some(*show)));
            assert_eq!(show.columns(), *columns);
        }
        assert_eq!(Show::named("help"), Some(None));
        assert_eq!(Show::named("mem"), None);
    }
}
