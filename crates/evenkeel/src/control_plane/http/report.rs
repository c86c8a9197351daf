//! Builds the status of an HTTP service.

use evenkeel_engine::clock::now_us;
use evenkeel_proxy::http::HttpService;
use evenkeel_proxy::http::route_stats::RouteStats;
use evenkeel_proxy::http::stats::HttpStats;
use evenkeel_proxy::stats::LocalCounter;

use crate::control_plane::database::report::{name_of, total};
use crate::control_plane::service::ManagedService;
use crate::status::{CountStatus, Histogram, HttpPoolStatus, HttpRouteStatus, HttpStatus};

/// Classes of the status of a response.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Returns the HTTP part of a service's status. `None` for a service with another protocol.
pub(in crate::control_plane) fn status(managed: &ManagedService) -> Option<HttpStatus> {
    let shared = managed.service.http()?;
    let stats = shared.stats();
    let sum = |of: fn(&HttpStats) -> &LocalCounter| stats.iter().map(|one| of(one).get()).sum();
    let class = |(index, what): (usize, &str)| CountStatus {
        what: what.to_owned(),
        count: stats.iter().map(|one| one.responses[index].get()).sum(),
    };
    Some(HttpStatus {
        requests_total: shared.requests(),
        responses: CLASSES.into_iter().enumerate().map(class).collect(),
        own_responses_total: sum(|one| &one.own_responses),
        retried_total: sum(|one| &one.retries),
        refused_total: sum(|one| &one.refused),
        aborted_total: sum(|one| &one.aborted),
        tunnels_total: sum(|one| &one.tunnels),
        pools: pools(managed, shared),
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
    let responses: Vec<_> = CLASSES.into_iter().enumerate().map(class).collect();
    HttpRouteStatus {
        route: stats.name.clone(),
        requests_total: responses.iter().map(|class| class.count).sum(),
        responses,
        request_us: total(counters.iter().map(|one| Histogram::from(&one.request_us))),
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

/// Returns the connections to each server of the snapshot, in its order.
fn pools(managed: &ManagedService, shared: &HttpService) -> Vec<HttpPoolStatus> {
    let open = shared.pools();
    let snapshot = managed.service.snapshot();
    let servers = snapshot.servers.iter().map(|server| {
        let requests = u64::from(shared.server(server.id).load.active());
        let mut status = HttpPoolStatus {
            server: name_of(&managed.plan, &server.name),
            requests,
            ..HttpPoolStatus::default()
        };
        if let Some(pool) = open.iter().find(|pool| pool.server == server.name) {
            status.connections = u64::from(pool.connections);
            status.idle = u64::from(pool.idle);
            status.opening = u64::from(pool.opening);
            status.waiting = pool.waiting as u64;
            status.longest_wait_ms = pool.longest_wait_ms;
        }
        status
    });
    servers.collect()
}
