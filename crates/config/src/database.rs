//! Reads the settings of services with a database protocol.

use crate::keys;
use crate::plan::{
    DatabasePlan, FailoverPlan, Monitor, PoolMode, SplitPlan, SqlProtocol, TimesPlan,
};
use crate::problem::Problems;
use crate::reader::Table;
use crate::setting::Settings;
use crate::sources::Sources;
use crate::{auth, pool, split, tls};

/// Reads these settings from the service's keys and its tables.
pub(crate) fn read(
    protocol: SqlProtocol,
    table: &Table<'_>,
    monitor: Option<&Monitor>,
    sources: &Sources,
    problems: &mut Problems,
) -> DatabasePlan {
    let mut database = DatabasePlan {
        times: TimesPlan::of(table, problems),
        ..DatabasePlan::new(protocol)
    };
    database.read(table, problems);
    if let Some(pool) = table.table("pool", &keys::POOL, problems) {
        database.pool = pool::read(protocol, &pool, problems);
    }
    if let Some(split) = table.table("split", &keys::SPLIT, problems) {
        database.split = split::read(&split, problems);
        if database.pool.mode == PoolMode::Session {
            split::stays_at_primary(&database.split, &split, problems);
        }
    }
    database.split.lag_ms_max = read_lag(&database.split, table, problems);
    if let Some(failover) = table.table("failover", &keys::FAILOVER, problems) {
        database.failover = FailoverPlan::of(&failover, problems);
    }
    let tls = table.table("tls", &keys::TLS, problems);
    database.tls = tls.and_then(|tls| tls::read(&tls, sources, problems));
    let auth = table.table("auth", &keys::AUTH, problems);
    database.auth = auth.map_or_else(
        || auth::from_monitor(monitor),
        |auth| auth::read((protocol, &auth), monitor, sources, problems),
    );
    database
}

fn read_lag(split: &SplitPlan, table: &Table<'_>, problems: &mut Problems) -> Option<u64> {
    let span = table.key_span("lag_ms_max");
    if span.is_some() && !split.reads {
        let message = "`lag_ms_max` has no effect: reads are not sent to replicas";
        let help = "set `reads = true` in [service.split], or remove it";
        problems.warning(&span, "W_NO_EFFECT", message, help);
    }
    table.number("lag_ms_max", problems)
}
