//! Builds the status of a service with a database protocol.

use std::collections::BTreeMap;

use evenkeel_config::plan::{DatabasePlan, PoolMode, RulePlan, RuleTo, ServicePlan};
use evenkeel_policy::pins::Pin;
use evenkeel_proxy::counters::work::WorkTotals;
use evenkeel_proxy::data_plane::describe::{Described, IdleInfo, SessionActivity, SessionInfo};
use evenkeel_proxy::database::{DatabaseService, PinCause};
use evenkeel_proxy::stats::{LocalCounter, ServiceStats};

use super::digests::{self, work};
use crate::control_plane::service::ManagedService;
use crate::status::{
    ClientStatus, Connections, CountStatus, DatabaseStatus, DigestStatus, Histogram, IdleStatus,
    PinCauseStatus, PoolStatus, RuleStatus, UsageStatus,
};

/// Number of digests in every status. Others are available on request.
const DIGESTS_SHOWN: usize = 20;

/// Number of statements in every status that pinned clients.
const PIN_CAUSES_SHOWN: usize = 10;

/// Returns the database part of a service's status. `None` for a service without a database
/// protocol.
pub(in crate::control_plane) fn status(managed: &ManagedService) -> Option<DatabaseStatus> {
    let plan = managed.plan.database()?;
    let shared = managed.service.database()?;
    let stats = shared.stats();
    let sum = |of: fn(&ServiceStats) -> &LocalCounter| stats.iter().map(|one| of(one).get()).sum();
    let paused = shared.paused();
    Some(DatabaseStatus {
        pool_mode: mode(plan.pool.mode).to_owned(),
        pool_size: u64::from(plan.pool.size),
        pool_min_idle: u64::from(plan.pool.min_idle),
        pools: pools(&managed.plan, shared),
        users: users(shared),
        digests: top_digests(managed),
        digests_max: u64::from(plan.digests_max),
        clients: SessionActivity::ALL
            .map(|doing| clients(stats, doing))
            .to_vec(),
        pins: Pin::ALL
            .iter()
            .filter_map(|pin| bound(stats, *pin))
            .collect(),
        pin_causes: pin_causes(shared),
        problems: managed
            .server_info
            .as_ref()
            .map(|known| known.problems())
            .unwrap_or_default(),
        rules: rules(plan, managed),
        all_paused: paused.all,
        paused: paused.databases.into_iter().collect(),
        waiting_for_primary: shared.waiting_for_primary() as u64,
        queries_total: sum(|one| &one.queries),
        transactions_total: sum(|one| &one.transactions),
        on_replicas_total: sum(|one| &one.on_replicas),
        retried_total: sum(|one| &one.rescued),
        wait_timeouts_total: sum(|one| &one.timed_out),
        lost_transactions_total: sum(|one| &one.transactions_lost),
        failed_logins_total: sum(|one| &one.refused_logins),
        wait_us: total(stats.iter().map(|one| Histogram::from(&one.wait_us))),
        query_us: total(stats.iter().map(|one| Histogram::from(&one.query_us))),
        transaction_us: total(stats.iter().map(|one| Histogram::from(&one.transaction_us))),
    })
}

fn rules(plan: &DatabasePlan, managed: &ManagedService) -> Vec<RuleStatus> {
    let hits = managed.rules.iter().flat_map(|book| book.hits());
    let pairs = plan.rules.iter().zip(hits);
    pairs
        .map(|(rule, (_, hits_total))| RuleStatus {
            name: rule.name.clone(),
            active: rule.active,
            action: action(rule, &managed.plan),
            hits_total,
        })
        .collect()
}

/// Describes the action of a rule.
fn action(rule: &RulePlan, plan: &ServicePlan) -> String {
    if let Some(message) = &rule.reject {
        return format!("reject: {message}");
    }
    let to = rule.to.as_ref().map(|to| match to {
        RuleTo::Primary => "to the primary".to_owned(),
        RuleTo::Replicas => "to replicas".to_owned(),
        RuleTo::Any => "to any server".to_owned(),
        RuleTo::Servers(indices) => {
            let servers = indices.iter().filter_map(|index| plan.servers.get(*index));
            let names: Vec<&str> = servers.map(|server| server.name.as_str()).collect();
            format!("to {}", names.join(", "))
        }
    });
    let limit = rule.timeout_ms.map(|limit_ms| match limit_ms {
        0 => "no timeout".to_owned(),
        limit_ms => format!("timeout {limit_ms} ms"),
    });
    let parts: Vec<String> = to.into_iter().chain(limit).collect();
    parts.join(", ")
}

fn mode(mode: PoolMode) -> &'static str {
    match mode {
        PoolMode::Transaction => "transaction",
        PoolMode::Session => "session",
    }
}

fn clients(stats: &[ServiceStats], doing: SessionActivity) -> CountStatus {
    CountStatus {
        what: doing.as_str().to_owned(),
        count: stats.iter().map(|one| one.activities.count(doing)).sum(),
    }
}

fn bound(stats: &[ServiceStats], pin: Pin) -> Option<CountStatus> {
    let count = stats.iter().map(|one| one.activities.pinned_by(pin)).sum();
    let what = pin.as_str().to_owned();
    (count > 0).then_some(CountStatus { what, count })
}

fn pools(plan: &ServicePlan, shared: &DatabaseService) -> Vec<PoolStatus> {
    let mut pools: Vec<_> = shared
        .pools()
        .into_iter()
        .map(|pool| PoolStatus {
            user: pool.user,
            database: pool.database,
            server: name_of(plan, &pool.server),
            connections: u64::from(pool.connections),
            idle: u64::from(pool.idle),
            opening: u64::from(pool.opening),
            waiting: pool.waiting as u64,
            longest_wait_ms: pool.longest_wait_ms,
        })
        .collect();
    let key = |one: &PoolStatus| (one.database.clone(), one.user.clone(), one.server.clone());
    pools.sort_by_key(key);
    pools
}

/// Returns the name of a server, which the data plane knows by its address.
pub(in crate::control_plane) fn name_of(plan: &ServicePlan, address: &str) -> String {
    let listed = plan.servers.iter();
    let mut named = listed.filter(|server| server.address.to_string() == address);
    named
        .next()
        .map_or_else(|| address.to_owned(), |server| server.name.clone())
}

fn users(shared: &DatabaseService) -> Vec<UsageStatus> {
    let mut users: BTreeMap<(String, String), (WorkTotals, UsageStatus)> = BTreeMap::new();
    for entry in shared.all_user_stats() {
        let key = (entry.database.to_string(), entry.user.to_string());
        let (worked, sum) = users.entry(key).or_default();
        worked.add(&entry.stats.work);
        sum.transactions_total += entry.stats.transactions.get();
        sum.from_clients += entry.stats.from_clients.get();
        sum.to_clients += entry.stats.to_clients.get();
    }
    let status = |((database, user), (worked, sum))| UsageStatus {
        user,
        database,
        work: work(&worked),
        ..sum
    };
    users.into_iter().map(status).collect()
}

fn top_digests(managed: &ManagedService) -> Vec<DigestStatus> {
    let mut all = digests::all(managed);
    all.truncate(DIGESTS_SHOWN);
    all
}

/// Adds up histograms with the same bounds.
pub(in crate::control_plane) fn total(parts: impl Iterator<Item = Histogram>) -> Histogram {
    parts
        .reduce(|mut sum, part| {
            for (slot, more) in sum.counts.iter_mut().zip(&part.counts) {
                *slot += more;
            }
            sum.sum += part.sum;
            sum.count += part.count;
            sum
        })
        .unwrap_or_default()
}

/// Merges the workers' reports about a service's connections.
pub(in crate::control_plane) fn connections(
    plan: &ServicePlan,
    parts: Vec<Described>,
) -> Connections {
    let mut all = Connections {
        service: plan.name.clone(),
        ..Connections::default()
    };
    for part in parts {
        let clients = part.sessions.into_iter();
        all.clients.extend(clients.map(|one| client(plan, one)));
        all.idle
            .extend(part.idle.into_iter().map(|one| idle(plan, one)));
    }
    all.clients.sort_by_key(|client| client.id);
    let key = |one: &IdleStatus| (one.database.clone(), one.user.clone(), one.server.clone());
    all.idle.sort_by_key(key);
    all
}

fn pin_causes(shared: &DatabaseService) -> Vec<PinCauseStatus> {
    let causes = shared.pin_causes().into_iter().take(PIN_CAUSES_SHOWN);
    let counted = causes.map(|one| PinCauseStatus {
        pinned_total: Some(one.sessions),
        ..pin_cause(&one.cause)
    });
    counted.collect()
}

fn pin_cause(cause: &PinCause) -> PinCauseStatus {
    PinCauseStatus {
        reason: cause.pins.to_string(),
        object: cause.object.to_string(),
        statement: cause.statement.to_string(),
        pinned_total: None,
    }
}

fn client(plan: &ServicePlan, one: SessionInfo) -> ClientStatus {
    ClientStatus {
        id: one.id,
        user: one.user,
        database: one.database,
        peer: one
            .peer
            .map_or_else(|| "unix".to_owned(), |peer| peer.to_string()),
        application: one.application,
        state: one.doing.as_str().to_owned(),
        age_ms: one.age_ms,
        state_for_ms: one.doing_for_ms,
        server: one.server.map(|server| name_of(plan, &server)),
        server_pid: one.server_process,
        pins: one.pins.iter().map(|pin| pin.as_str().to_owned()).collect(),
        pinned_by: one.causes.iter().map(|cause| pin_cause(cause)).collect(),
        from_client: one.from_client,
        to_client: one.to_client,
    }
}

fn idle(plan: &ServicePlan, one: IdleInfo) -> IdleStatus {
    IdleStatus {
        user: one.user,
        database: one.database,
        server: name_of(plan, &one.server),
        server_pid: one.process,
        age_ms: one.age_ms,
    }
}
