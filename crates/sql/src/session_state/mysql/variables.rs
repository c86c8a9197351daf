//! System variables, and whether a session's values can follow the client to other servers.

use evenkeel_policy::pins::Pin;

/// Variables that are queried on a server connection after its login, before its trackers are set,
/// and again after a reset. Their initial values are compared between servers, and restored where
/// servers differ.
pub const FOLLOWED: &[&str] = &[
    "autocommit",
    "character_set_client",
    "character_set_collations",
    "character_set_results",
    "collation_connection",
    "default_week_format",
    "div_precision_increment",
    "explain_format",
    // MySQL 9.7 sets it to 0 by DEFAULT.
    "foreign_key_checks",
    "group_concat_max_len",
    "lc_time_names",
    "old_mode",
    "sql_if_exists",
    "sql_mode",
    "sql_safe_updates",
    "sql_select_limit",
    "time_zone",
    "transaction_isolation",
    "tx_isolation",
    "transaction_read_only",
    "tx_read_only",
    // MySQL 9.7 sets it to 0 by DEFAULT, too.
    "unique_checks",
    "session_track_gtids",
    "session_track_schema",
    "session_track_state_change",
    "session_track_system_variables",
    "session_track_transaction_info",
];

/// Handling of a variable that a session sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum VariableHandling {
    /// The server reports its value, which follows the client.
    Tracked,
    /// `timestamp`: followed by its text, since the value that the server reports may be the clock.
    Timestamp,
    /// `last_insert_id`, which every insert changes: see [`super::ResultReads`].
    InsertId,
    /// A pin, except with these values.
    Pins(Pin, &'static [&'static str]),
    /// Depends on the schema, or belongs to the server: never set by Evenkeel, and a SET of it
    /// pins.
    Unfollowed,
    /// A session tracker.
    Tracker,
}

/// Handling of the variables that are not tracked.
const SPECIAL: &[(&str, VariableHandling)] = &[
    ("timestamp", VariableHandling::Timestamp),
    ("last_insert_id", VariableHandling::InsertId),
    ("identity", VariableHandling::InsertId),
    // The next insert may or may not use it up.
    ("insert_id", VariableHandling::Pins(Pin::Settings, &[])),
    // Write-only.
    ("rand_seed1", VariableHandling::Pins(Pin::RandomSeed, &[])),
    ("rand_seed2", VariableHandling::Pins(Pin::RandomSeed, &[])),
    (
        "sql_log_bin",
        VariableHandling::Pins(Pin::Binlog, &["ON", "1"]),
    ),
    (
        "gtid_next",
        VariableHandling::Pins(Pin::Binlog, &["AUTOMATIC"]),
    ),
    ("gtid_seq_no", VariableHandling::Pins(Pin::Binlog, &["0"])),
    (
        "skip_replication",
        VariableHandling::Pins(Pin::Binlog, &["OFF", "0"]),
    ),
    (
        "wsrep_on",
        VariableHandling::Pins(Pin::Binlog, &["ON", "1"]),
    ),
    // If on, `IS NULL` finds the row that was inserted last on the connection, by any client.
    (
        "sql_auto_is_null",
        VariableHandling::Pins(Pin::Settings, &["OFF", "0"]),
    ),
    // The connection has the measurements.
    (
        "profiling",
        VariableHandling::Pins(Pin::Settings, &["OFF", "0"]),
    ),
    (
        "optimizer_trace",
        VariableHandling::Pins(Pin::Settings, &["enabled=off", "enabled=off,one_line=off"]),
    ),
    // Each connection has a value of its own.
    (
        "pseudo_thread_id",
        VariableHandling::Pins(Pin::Settings, &[]),
    ),
    (
        "pseudo_slave_mode",
        VariableHandling::Pins(Pin::Settings, &["OFF", "0"]),
    ),
    (
        "pseudo_replica_mode",
        VariableHandling::Pins(Pin::Settings, &["OFF", "0"]),
    ),
    // They act immediately, and the server does not report which session state they leave.
    ("debug", VariableHandling::Pins(Pin::Unknown, &[])),
    ("debug_dbug", VariableHandling::Pins(Pin::Unknown, &[])),
    ("debug_sync", VariableHandling::Pins(Pin::Unknown, &[])),
    ("character_set_database", VariableHandling::Unfollowed),
    ("collation_database", VariableHandling::Unfollowed),
    // They belong to the replication connection that `default_master_connection` names.
    ("max_relay_log_size", VariableHandling::Unfollowed),
    ("sql_slave_skip_counter", VariableHandling::Unfollowed),
    ("session_track_gtids", VariableHandling::Tracker),
    ("session_track_schema", VariableHandling::Tracker),
    ("session_track_state_change", VariableHandling::Tracker),
    ("session_track_system_variables", VariableHandling::Tracker),
    ("session_track_transaction_info", VariableHandling::Tracker),
];

/// Returns the handling of a variable; the name is in lower case.
pub(super) fn handling(name: &[u8]) -> VariableHandling {
    let known = SPECIAL
        .iter()
        .find(|(special, _)| special.as_bytes() == name);
    known.map_or(VariableHandling::Tracked, |(_, handling)| *handling)
}

/// Returns whether nothing of a variable that pins remains once it has a harmless value again.
/// `profiling` and `optimizer_trace` leave measurements, which SHOW PROFILES and the table
/// `OPTIMIZER_TRACE` show until a reset.
pub(super) fn is_undone(name: &[u8]) -> bool {
    let leaves_measurements = matches!(name, b"profiling" | b"optimizer_trace");
    match handling(name) {
        VariableHandling::Pins(_, harmless) => !harmless.is_empty() && !leaves_measurements,
        _ => false,
    }
}

/// Returns whether servers report the variable although no session sets it.
pub(super) fn is_no_setting(name: &[u8]) -> bool {
    let names: [&[u8]; 7] = [
        b"last_gtid",
        b"redirect_url",
        b"warning_count",
        b"error_count",
        b"in_transaction",
        b"statement_id",
        b"connection_id",
    ];
    names.contains(&name)
}

/// Returns whether every user may set the variable to DEFAULT, but not to a value, not even to the
/// default one.
pub(super) fn is_restricted(name: &[u8]) -> bool {
    let names: [&[u8]; 8] = [
        b"binlog_annotate_row_events",
        b"binlog_direct_non_transactional_updates",
        b"binlog_format",
        b"binlog_row_image",
        b"gtid_domain_id",
        b"innodb_strict_mode",
        b"innodb_tmpdir",
        b"server_id",
    ];
    names.contains(&name)
}

/// Returns whether the variable changes how strings are parsed.
pub(super) fn is_charset(name: &[u8]) -> bool {
    name == CLIENT || name == COLLATION || is_of_connection(name)
}

/// Returns whether the analysis of texts and their effects depends on the variable.
pub(super) fn is_of_analysis(name: &[u8]) -> bool {
    is_charset(name) || name == SQL_MODE || name == b"old_mode" || name == b"sql_select_limit"
}

/// Returns whether it is the connection's character set, which is one variable with its collation.
pub(super) fn is_of_connection(name: &[u8]) -> bool {
    name == CONNECTION
}

/// Returns the other name under which a server may report a variable that has two.
pub(super) fn other_name(name: &[u8]) -> Option<&'static [u8]> {
    match name {
        CONNECTION => Some(COLLATION),
        b"character_set_server" => Some(b"collation_server"),
        _ => None,
    }
}

/// Returns whether the variable is stored in one place with `autocommit`
/// ([`super::client_trackers::has_merged_reports`]).
pub(super) fn is_switch(name: &[u8]) -> bool {
    let switches: [&[u8]; 6] = [
        b"check_constraint_checks",
        b"foreign_key_checks",
        b"sql_notes",
        b"sql_safe_updates",
        b"sql_warnings",
        b"unique_checks",
    ];
    switches.contains(&name)
}

/// MariaDB 11: collations of character sets.
pub(super) const COLLATIONS: &[u8] = b"character_set_collations";
pub(super) const CONNECTION: &[u8] = b"character_set_connection";
pub(super) const COLLATION: &[u8] = b"collation_connection";
pub(super) const CLIENT: &[u8] = b"character_set_client";
pub(super) const RESULTS: &[u8] = b"character_set_results";
pub(super) const AUTOCOMMIT: &[u8] = b"autocommit";
pub(super) const SQL_MODE: &[u8] = b"sql_mode";
pub(super) const TIMESTAMP: &[u8] = b"timestamp";
pub(super) const ISOLATION: &[u8] = b"transaction_isolation";
pub(super) const READ_ONLY: &[u8] = b"transaction_read_only";

/// Returns the name that is used here for a variable with two names.
pub(super) fn canonical(name: &[u8]) -> &[u8] {
    match name {
        b"tx_isolation" => ISOLATION,
        b"tx_read_only" => READ_ONLY,
        b"identity" => b"last_insert_id",
        b"storage_engine" => b"default_storage_engine",
        b"sql_low_priority_updates" => b"low_priority_updates",
        name => name,
    }
}

/// Returns whether the value is a text, which needs quotes even if it looks like a number.
pub(super) fn is_text(name: &[u8]) -> bool {
    name == b"default_master_connection" || name.ends_with(b"_engine")
}

/// Pairs of variables: setting the first also sets the second, which the server does not report.
pub(super) const IMPLIED: [(&[u8], &[u8]); 2] = [
    (b"max_join_size", b"sql_big_selects"),
    (b"old", b"old_mode"),
];

/// Returns the name that servers of this kind and version have for the variable.
pub(super) fn spelling(name: &[u8], mariadb: bool, version: u32) -> &[u8] {
    let is_old = mariadb && version < 110_101;
    match name {
        b"transaction_isolation" if is_old => b"tx_isolation",
        b"transaction_read_only" if is_old => b"tx_read_only",
        name => name,
    }
}

/// Returns the variable whose value changes when this one is set: the collation of a character set
/// or the reverse, or the second variable of an [`IMPLIED`] pair.
pub(super) fn sibling(name: &[u8]) -> Option<&'static [u8]> {
    match name {
        b"character_set_server" => Some(b"collation_server"),
        b"collation_server" => Some(b"character_set_server"),
        b"max_join_size" => Some(b"sql_big_selects"),
        b"old" => Some(b"old_mode"),
        _ => None,
    }
}

/// Returns whether the variable is a transaction mode: taken from the session by every transaction,
/// unless set for that transaction only.
pub(super) fn is_of_transaction(name: &[u8]) -> bool {
    let names: [&[u8]; 4] = [
        b"transaction_isolation",
        b"tx_isolation",
        b"transaction_read_only",
        b"tx_read_only",
    ];
    names.contains(&name)
}

/// Returns whether it is one of [`FOLLOWED`]. Names are in lower case.
#[must_use]
pub fn is_followed(name: &[u8]) -> bool {
    FOLLOWED.iter().any(|one| one.as_bytes() == name)
}

/// Returns whether the variable is queried on every connection and is a setting.
pub(super) fn is_compared(name: &[u8]) -> bool {
    is_followed(name) && handling(name) == VariableHandling::Tracked
}

pub(super) fn is_one_of(value: &[u8], values: &[&str]) -> bool {
    values
        .iter()
        .any(|one| one.as_bytes().eq_ignore_ascii_case(value))
}
