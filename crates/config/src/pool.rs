//! Reads `[service.pool]`, and the sizes for single users and databases.

use std::collections::BTreeMap;

use crate::keys::{self, Section};
use crate::names;
use crate::plan::{PoolPlan, SqlProtocol};
use crate::problem::Problems;
use crate::protocol;
use crate::reader::Table;
use crate::setting::Settings;

/// Advice for keys that require connections to a fixed database.
const OF_DATABASES: [(&str, &str); 2] = [("database_size", OF_SCHEMAS), ("databases", OF_SCHEMAS)];
const OF_SCHEMAS: &str = "remove it: MySQL server connections are not tied to a schema; limit them \
                          with `size`, `user_size` and `service_size`";

/// Reads the table.
pub(crate) fn read(protocol: SqlProtocol, table: &Table<'_>, problems: &mut Problems) -> PoolPlan {
    let mut pool = PoolPlan::of(table, problems);
    let of = (protocol, table);
    pool.users = sizes(of, "users", &keys::POOL_USER, problems);
    match protocol {
        SqlProtocol::Postgres => {
            pool.databases = sizes(of, "databases", &keys::POOL_DATABASE, problems);
        }
        SqlProtocol::Mysql => protocol::refuse(protocol.name(), &OF_DATABASES, table, problems),
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
