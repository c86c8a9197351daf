//! Lists the metrics of services that pool server connections. They are absent for other services.

use std::fmt;

use super::families::{Emit, Family, Value, counter, gauge};
use super::{BYTES, SECONDS};
use crate::status::{DatabaseStatus, PoolStatus, ServiceStatus, UsageStatus};
use Value::{Count, Now};

/// Metrics of each service. Every sample also has the label `service`.
pub(super) static SERVICE: &[Family<ServiceStatus>] = &[
    gauge(
        "evenkeel_service_clients_current",
        "Clients by state",
        None,
        |service, emit| {
            with_database(service, |pooled| {
                let mut clients = pooled.clients.iter();
                clients.try_for_each(|one| emit(&[("state", &one.what)], Now(one.count as f64)))
            })
        },
    ),
    gauge(
        "evenkeel_service_pinned_clients_current",
        "Clients pinned to their server connection, by reason; reasons without clients are absent",
        None,
        |service, emit| {
            with_database(service, |pooled| {
                let mut pins = pooled.pins.iter();
                pins.try_for_each(|one| emit(&[("reason", &one.what)], Now(one.count as f64)))
            })
        },
    ),
    gauge(
        "evenkeel_service_waiting_for_primary_current",
        "Clients waiting for a primary",
        None,
        |service, emit| {
            with_database(service, |pooled| {
                emit(&[], Now(pooled.waiting_for_primary as f64))
            })
        },
    ),
    gauge(
        "evenkeel_service_paused",
        "1 while the service is paused; a series per paused database",
        None,
        |service, emit| {
            with_database(service, |pooled| {
                emit(&[], Now(f64::from(u8::from(pooled.all_paused))))?;
                let mut paused = pooled.paused.iter();
                paused.try_for_each(|name| emit(&[("database", name)], Now(1.0)))
            })
        },
    ),
    counter(
        "evenkeel_service_queries",
        "Queries and batches completed",
        None,
        |service, emit| with_database(service, |pooled| emit(&[], Count(pooled.queries_total))),
    ),
    counter(
        "evenkeel_service_transactions",
        "Transactions completed",
        None,
        |service, emit| {
            with_database(service, |pooled| {
                emit(&[], Count(pooled.transactions_total))
            })
        },
    ),
    counter(
        "evenkeel_service_replica_queries",
        "Queries and batches completed on replicas",
        None,
        |service, emit| with_database(service, |pooled| emit(&[], Count(pooled.on_replicas_total))),
    ),
    counter(
        "evenkeel_service_retried_queries",
        "Queries and batches retried on another server after a failure",
        None,
        |service, emit| with_database(service, |pooled| emit(&[], Count(pooled.retried_total))),
    ),
    counter(
        "evenkeel_service_pool_timeouts",
        "Clients that timed out waiting for a server connection",
        None,
        |service, emit| {
            with_database(service, |pooled| {
                emit(&[], Count(pooled.wait_timeouts_total))
            })
        },
    ),
    counter(
        "evenkeel_service_lost_transactions",
        "Transactions lost because their server failed",
        None,
        |service, emit| {
            with_database(service, |pooled| {
                emit(&[], Count(pooled.lost_transactions_total))
            })
        },
    ),
    counter(
        "evenkeel_service_failed_logins",
        "Failed logins",
        None,
        |service, emit| {
            with_database(service, |pooled| {
                emit(&[], Count(pooled.failed_logins_total))
            })
        },
    ),
    counter(
        "evenkeel_rule_hits",
        "Statements matched by the rule that no earlier active rule matched",
        None,
        |service, emit| {
            with_database(service, |pooled| {
                let mut rules = pooled.rules.iter();
                rules.try_for_each(|rule| {
                    let active = if rule.active { "true" } else { "false" };
                    let labels = [("rule", &*rule.name), ("active", active)];
                    emit(&labels, Count(rule.hits_total))
                })
            })
        },
    ),
    gauge(
        "evenkeel_pool_connections_current",
        "Server connections per user, database and server",
        None,
        |service, emit| pools(service, emit, |pool| Now(pool.connections as f64)),
    ),
    gauge(
        "evenkeel_pool_idle_current",
        "Idle server connections per user, database and server",
        None,
        |service, emit| pools(service, emit, |pool| Now(pool.idle as f64)),
    ),
    gauge(
        "evenkeel_pool_opening_current",
        "Server connections being opened per user, database and server",
        None,
        |service, emit| pools(service, emit, |pool| Now(pool.opening as f64)),
    ),
    gauge(
        "evenkeel_pool_waiting_current",
        "Clients waiting for a server connection per user, database and server",
        None,
        |service, emit| pools(service, emit, |pool| Now(pool.waiting as f64)),
    ),
    gauge(
        "evenkeel_pool_longest_wait",
        "Waiting time of the longest-waiting client per user, database and server",
        SECONDS,
        |service, emit| pools(service, emit, |pool| Now(pool.longest_wait_ms as f64 / 1e3)),
    ),
    counter(
        "evenkeel_user_transactions",
        "Transactions per user and database",
        None,
        |service, emit| users(service, emit, |user| Count(user.transactions_total)),
    ),
    counter(
        "evenkeel_user_received",
        "Bytes received from clients per user and database",
        BYTES,
        |service, emit| users(service, emit, |user| Count(user.from_clients)),
    ),
    counter(
        "evenkeel_user_sent",
        "Bytes sent to clients per user and database",
        BYTES,
        |service, emit| users(service, emit, |user| Count(user.to_clients)),
    ),
];

pub(super) fn with_database(
    service: &ServiceStatus,
    emit: impl FnOnce(&DatabaseStatus) -> fmt::Result,
) -> fmt::Result {
    service.database.as_ref().map_or(Ok(()), emit)
}

fn pools(service: &ServiceStatus, emit: Emit, value: fn(&PoolStatus) -> Value) -> fmt::Result {
    with_database(service, |pooled| {
        let mut pools = pooled.pools.iter();
        pools.try_for_each(|pool| {
            let labels = [
                ("database", &*pool.database),
                ("user", &*pool.user),
                ("server", &*pool.server),
            ];
            emit(&labels, value(pool))
        })
    })
}

pub(super) fn users(
    service: &ServiceStatus,
    emit: Emit,
    value: impl Fn(&UsageStatus) -> Value,
) -> fmt::Result {
    with_database(service, |pooled| {
        let mut users = pooled.users.iter();
        users.try_for_each(|user| {
            let labels = [("database", &*user.database), ("user", &*user.user)];
            emit(&labels, value(user))
        })
    })
}
