//! Lists the keys of the tables that only database services have.

use super::{Section, TEN_MINUTES_MS, WEEK_MS, flag, number, table, text, word};

/// `[service.pool]`
pub static POOL: Section = Section {
    title: "[service.pool]",
    keys: &[
        word("mode", &["transaction", "session"]),
        number("size", 1, 100_000),
        number("service_size", 0, 1_000_000),
        number("user_size", 0, 1_000_000),
        number("database_size", 0, 1_000_000),
        number("min_idle", 0, 100_000),
        number("idle_ms", 0, WEEK_MS),
        number("lifetime_ms", 0, WEEK_MS),
        number("wait_ms", 1, TEN_MINUTES_MS),
        number("queue_length", 0, 1_000_000),
        number("statements_max", 1, 10_000),
        table("users"),
        table("databases"),
    ],
};

/// `[service.pool.users.NAME]`
pub static POOL_USER: Section = Section {
    title: "[service.pool.users.NAME]",
    keys: &[number("size", 0, 1_000_000)],
};

/// `[service.pool.databases.NAME]`
pub static POOL_DATABASE: Section = Section {
    title: "[service.pool.databases.NAME]",
    keys: &[number("size", 0, 1_000_000)],
};

/// `[service.split]`
pub static SPLIT: Section = Section {
    title: "[service.split]",
    keys: &[
        flag("reads"),
        flag("primary_reads"),
        word("consistency", &["read-your-writes", "global", "eventual"]),
        number("wait_ms", 0, TEN_MINUTES_MS),
        number("stale_ms", 1, TEN_MINUTES_MS),
        flag("galera_wait"),
    ],
};

/// `[[service.rule]]`
pub static RULE: Section = Section {
    title: "[[service.rule]]",
    keys: &[
        text("name"),
        flag("active"),
        text("user"),
        text("database"),
        text("digest"),
        text("match"),
        text("to"),
        flag("assume_read"),
        number("timeout_ms", 0, WEEK_MS),
        text("reject"),
    ],
};

/// `[service.failover]`
pub static FAILOVER: Section = Section {
    title: "[service.failover]",
    keys: &[
        number("wait_ms", 0, TEN_MINUTES_MS),
        number("queue_length", 0, 1_000_000),
        number("resume_at_once", 1, 1_000_000),
    ],
};
