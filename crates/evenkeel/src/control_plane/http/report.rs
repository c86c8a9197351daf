//! Builds the status of an HTTP service.

use std::collections::HashMap;

use evenkeel_engine::clock::now_us;
use evenkeel_proxy::http::HttpService;
use evenkeel_proxy::http::route_stats::RouteStats;
use evenkeel_proxy::http::stats::HttpStats;
use evenkeel_proxy::stats::LocalCounter;

use crate::control_plane::database::report::total;
use crate::control_plane::service::ManagedService;
use crate::status::{
    CountStatus, Histogram, HttpPoolStatus, HttpRouteStatus, HttpStatus, ServerStatus,
};

/// Classes of the status of a response.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Outcomes of copies of requests, in the order of their counters.
const COPY_OUTCOMES: [&str; 3] = ["answered", "failed", "dropped"];

/// Returns the HTTP part of a service's status. `None` for a service with another protocol.
///
/// Lists the connections to the listed servers.
pub(in crate::control_plane) fn status(
    managed: &ManagedService,
    listed: &[ServerStatus],
) -> Option<HttpStatus> {
    let shared = managed.service.http()?;
    let stats = shared.stats();
    let sum = |of: fn(&HttpStats) -> &LocalCounter| stats.iter().map(|one| of(one).get()).sum();
    let class = |(index, what): (usize, &str)| CountStatus {
        what: what.to_owned(),
        count: stats.iter().map(|one| one.responses[index].get()).sum(),
    };
    let (pools, all_pools) = pools(managed, shared, listed);
    Some(HttpStatus {
        requests_total: shared.requests(),
        responses: CLASSES.into_iter().enumerate().map(class).collect(),
        own_responses_total: sum(|one| &one.own_responses),
        retried_total: sum(|one| &one.retries),
        refused_total: sum(|one| &one.refused),
        aborted_total: sum(|one| &one.aborted),
        tunnels_total: sum(|one| &one.tunnels),
        pools,
        all_pools,
        routes: shared.route_stats().iter().map(|one| route(one)).collect(),
        request_us: total(stats.iter().map(|one| Histogram::from(&one.request_us))),
        first_byte_us: total(stats.iter().map(|one| Histogram::from(&one.first_byte_us))),
    })
}

fn route(stats: &RouteStats) -> HttpRouteStatus {
    let counters = stats.counters();
    let class = |(index, what): (usize, &str)| CountStatus {
        what: what.to_owned(),
        count: counters.iter().map(|one| one.responses[index].get()).sum(),
    };
    let copies = |(index, what): (usize, &str)| CountStatus {
        what: what.to_owned(),
        count: counters.iter().map(|one| one.copies[index].get()).sum(),
    };
    let responses: Vec<_> = CLASSES.into_iter().enumerate().map(class).collect();
    HttpRouteStatus {
        route: stats.name.clone(),
        requests_total: responses.iter().map(|class| class.count).sum(),
        responses,
        request_us: total(counters.iter().map(|one| Histogram::from(&one.request_us))),
        copies: COPY_OUTCOMES.into_iter().enumerate().map(copies).collect(),
    }
}

/// Returns the smoothed time to the first byte of a server. `None`: unknown, or no HTTP service.
pub(in crate::control_plane) fn latency_us(
    managed: &ManagedService,
    server_id: u64,
) -> Option<u64> {
    let server = managed.service.http()?.server(server_id);
    let latency_us = server.load.latency_us(now_us());
    (latency_us > 0).then_some(latency_us)
}

/// Returns the connections to each listed server of the snapshot, in its order, and the sums over
/// all servers.
fn pools(
    managed: &ManagedService,
    shared: &HttpService,
    listed: &[ServerStatus],
) -> (Vec<HttpPoolStatus>, HttpPoolStatus) {
    let names = listed.iter().map(|one| (&*one.address, &*one.name));
    let names: HashMap<&str, &str> = names.collect();
    let open = shared.pools();
    let open: HashMap<&str, _> = open.iter().map(|pool| (&*pool.server, pool)).collect();
    let snapshot = managed.service.snapshot();
    let (mut pools, mut all) = (Vec::new(), HttpPoolStatus::default());
    for server in &snapshot.servers {
        let mut status = HttpPoolStatus {
            requests: u64::from(shared.server(server.id).load.active()),
            ..HttpPoolStatus::default()
        };
        if let Some(pool) = open.get(&*server.name) {
            status.connections = u64::from(pool.connections);
            status.idle = u64::from(pool.idle);
            status.opening = u64::from(pool.opening);
            status.waiting = pool.waiting as u64;
            status.longest_wait_ms = pool.longest_wait_ms;
        }
        all.add(&status);
        if let Some(name) = names.get(&*server.name) {
            status.server = (*name).to_owned();
            pools.push(status);
        }
    }
    (pools, all)
}
