//! Reads `[service.pool]`, and the sizes for single users and databases.

use std::collections::BTreeMap;

use super::keys::{self, Section};
use super::names;
use super::plan::{PoolMode, PoolPlan, SqlProtocol};
use super::problem::Problems;
use super::protocol;
use super::reader::Table;

/// Keys that require connections to a fixed database.
const DATABASE_KEYS: [(&str, &str); 2] = [("database_size", OF_SCHEMAS), ("databases", OF_SCHEMAS)];
const OF_SCHEMAS: &str = "remove it: MySQL server connections are not tied to a schema; limit them \
                          with `size`, `user_size` and `service_size`";

/// Reads the table.
pub(super) fn read(protocol: SqlProtocol, table: &Table<'_>, problems: &mut Problems) -> PoolPlan {
    let mut pool = PoolPlan::default();
    if let Some("session") = table.word("mode", problems) {
        pool.mode = PoolMode::Session;
    }
    let mut small = |key, field: &mut u32| {
        *field = table.small_number(key, problems).unwrap_or(*field);
    };
    small("size", &mut pool.size);
    small("service_size", &mut pool.service_size);
    small("user_size", &mut pool.user_size);
    small("database_size", &mut pool.database_size);
    small("min_idle", &mut pool.min_idle);
    small("queue_length", &mut pool.queue_length);
    small("statements_max", &mut pool.statements_max);
    let mut number = |key, field: &mut u64| {
        *field = table.number(key, problems).unwrap_or(*field);
    };
    number("idle_ms", &mut pool.idle_ms);
    number("lifetime_ms", &mut pool.lifetime_ms);
    number("wait_ms", &mut pool.wait_ms);
    pool.users = sizes((protocol, table), "users", &keys::POOL_USER, problems);
    match protocol {
        SqlProtocol::Postgres => {
            let of = (protocol, table);
            pool.databases = sizes(of, "databases", &keys::POOL_DATABASE, problems);
        }
        SqlProtocol::Mysql => {
            protocol::refuse(
                protocol.name(),
                "postgres",
                &DATABASE_KEYS,
                (table, problems),
            );
        }
    }
    check_order(&pool, table, problems);
    pool
}

fn sizes(
    (protocol, table): (SqlProtocol, &Table<'_>),
    key: &str,
    section: &'static Section,
    problems: &mut Problems,
) -> BTreeMap<String, u32> {
    let help = format!("write `size = …` below a line `{}`", section.title);
    let mut sizes = BTreeMap::new();
    for entry in table.entries(key, &help, problems) {
        names::check(protocol, &entry, problems);
        let Some(inner) = entry.table(section, problems) else {
            continue;
        };
        if inner.value("size").is_none() && !inner.has_unknown {
            let message = format!("`{}` has no `size`", entry.name);
            let help = "add `size = …`; 0 means no limit";
            problems.error(&inner.span, "E_MISSING_KEY", message, help);
        }
        if let Some(size) = inner.small_number("size", problems) {
            sizes.insert(entry.name.to_owned(), size);
        }
    }
    sizes
}

fn check_order(pool: &PoolPlan, table: &Table<'_>, problems: &mut Problems) {
    if pool.min_idle > pool.size {
        let message = format!("`min_idle` is more than `size`, which is {}", pool.size);
        let help = format!("use {} or less, or a larger `size`", pool.size);
        problems.error(&table.value_span("min_idle"), "E_ORDER", message, help);
    }
}
