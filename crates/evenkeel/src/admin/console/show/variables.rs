//! Lists the variables that MySQL drivers query after they connect.

use super::{Row, text};
use crate::admin::console::mysql::{VERSION, VERSION_COMMENT};

/// Names and values.
pub(in crate::admin::console) static VARIABLES: &[(&str, &str)] = &[
    ("auto_increment_increment", "1"),
    ("autocommit", "1"),
    ("character_set_client", "utf8mb4"),
    ("character_set_connection", "utf8mb4"),
    ("character_set_database", "utf8mb4"),
    ("character_set_results", "utf8mb4"),
    ("character_set_server", "utf8mb4"),
    ("character_set_system", "utf8mb4"),
    ("collation_connection", "utf8mb4_general_ci"),
    ("collation_database", "utf8mb4_general_ci"),
    ("collation_server", "utf8mb4_general_ci"),
    ("init_connect", ""),
    ("interactive_timeout", "28800"),
    ("license", "MIT OR Apache-2.0"),
    ("lower_case_table_names", "0"),
    ("max_allowed_packet", "16384"),
    ("net_write_timeout", "10"),
    ("performance_schema", "0"),
    ("sql_mode", ""),
    ("system_time_zone", "UTC"),
    ("time_zone", "SYSTEM"),
    ("transaction_isolation", "READ-COMMITTED"),
    ("transaction_read_only", "0"),
    ("tx_isolation", "READ-COMMITTED"),
    ("tx_read_only", "0"),
    ("version", VERSION),
    ("version_comment", VERSION_COMMENT),
    ("wait_timeout", "28800"),
];

pub(super) fn rows() -> Vec<Row> {
    let row = |(name, value): &(&str, &str)| vec![text(name), text(value)];
    VARIABLES.iter().map(row).collect()
}
