//! Lists the metrics of HTTP services. They are absent for other services.

use std::fmt;

use super::SECONDS;
use super::families::{Emit, Family, Value, counter, gauge, seconds_from_ms};
use crate::status::{HttpPoolStatus, HttpStatus, ServiceStatus};
use Value::{Count, Now};

/// Metrics of each service. Every sample also has the label `service`.
pub(super) static SERVICE: &[Family<ServiceStatus>] = &[
    counter(
        "evenkeel_http_requests",
        "Requests answered, by class of the status",
        None,
        |service, emit| {
            with_http(service, |http| {
                let mut classes = http.responses.iter();
                classes.try_for_each(|one| emit(&[("class", &one.what)], Count(one.count)))
            })
        },
    ),
    counter(
        "evenkeel_http_route_requests",
        "Requests answered, by route and class of the status",
        None,
        |service, emit| {
            with_http(service, |http| {
                let mut routes = http.routes.iter();
                routes.try_for_each(|of| {
                    let mut classes = of.responses.iter();
                    classes.try_for_each(|one| {
                        let labels = [("route", &*of.route), ("class", &*one.what)];
                        emit(&labels, Count(one.count))
                    })
                })
            })
        },
    ),
    counter(
        "evenkeel_http_route_copies",
        "Copies of requests for the mirror of a route, by outcome",
        None,
        |service, emit| {
            with_http(service, |http| {
                let mut routes = http.routes.iter();
                routes.try_for_each(|of| {
                    let mut outcomes = of.copies.iter();
                    outcomes.try_for_each(|one| {
                        let labels = [("route", &*of.route), ("outcome", &*one.what)];
                        emit(&labels, Count(one.count))
                    })
                })
            })
        },
    ),
    counter(
        "evenkeel_http_own_responses",
        "Responses made by Evenkeel",
        None,
        |service, emit| with_http(service, |http| emit(&[], Count(http.own_responses_total))),
    ),
    counter(
        "evenkeel_http_retries",
        "Requests sent again after a failure",
        None,
        |service, emit| with_http(service, |http| emit(&[], Count(http.retried_total))),
    ),
    counter(
        "evenkeel_http_refusals",
        "Requests refused because they violate the protocol or a limit",
        None,
        |service, emit| with_http(service, |http| emit(&[], Count(http.refused_total))),
    ),
    counter(
        "evenkeel_http_aborts",
        "Requests that ended before their response was complete",
        None,
        |service, emit| with_http(service, |http| emit(&[], Count(http.aborted_total))),
    ),
    counter(
        "evenkeel_http_tunnels",
        "Connections that became tunnels",
        None,
        |service, emit| with_http(service, |http| emit(&[], Count(http.tunnels_total))),
    ),
    gauge(
        "evenkeel_http_service_requests_current",
        "Requests in progress",
        None,
        |service, emit| all_pools(service, emit, |all| Now(all.requests as f64)),
    ),
    gauge(
        "evenkeel_http_service_waiting_current",
        "Requests waiting for a connection",
        None,
        |service, emit| all_pools(service, emit, |all| Now(all.waiting as f64)),
    ),
    gauge(
        "evenkeel_http_service_connections_current",
        "Connections to servers",
        None,
        |service, emit| all_pools(service, emit, |all| Now(all.connections as f64)),
    ),
    gauge(
        "evenkeel_http_requests_current",
        "Requests in progress per server",
        None,
        |service, emit| pools(service, emit, |pool| Now(pool.requests as f64)),
    ),
    gauge(
        "evenkeel_http_connections_current",
        "Connections per server",
        None,
        |service, emit| pools(service, emit, |pool| Now(pool.connections as f64)),
    ),
    gauge(
        "evenkeel_http_idle_current",
        "Idle connections per server",
        None,
        |service, emit| pools(service, emit, |pool| Now(pool.idle as f64)),
    ),
    gauge(
        "evenkeel_http_opening_current",
        "Connections being opened per server",
        None,
        |service, emit| pools(service, emit, |pool| Now(pool.opening as f64)),
    ),
    gauge(
        "evenkeel_http_waiting_current",
        "Requests waiting for a connection per server",
        None,
        |service, emit| pools(service, emit, |pool| Now(pool.waiting as f64)),
    ),
    gauge(
        "evenkeel_http_longest_wait",
        "Longest current wait for a connection per server",
        SECONDS,
        |service, emit| {
            pools(service, emit, |pool| {
                Now(seconds_from_ms(pool.longest_wait_ms))
            })
        },
    ),
];

fn with_http(
    service: &ServiceStatus,
    emit: impl FnOnce(&HttpStatus) -> fmt::Result,
) -> fmt::Result {
    service.http.as_ref().map_or(Ok(()), emit)
}

fn all_pools(
    service: &ServiceStatus,
    emit: Emit,
    value: fn(&HttpPoolStatus) -> Value,
) -> fmt::Result {
    with_http(service, |http| emit(&[], value(&http.all_pools)))
}

fn pools(service: &ServiceStatus, emit: Emit, value: fn(&HttpPoolStatus) -> Value) -> fmt::Result {
    with_http(service, |http| {
        let mut pools = http.pools.iter();
        pools.try_for_each(|pool| emit(&[("server", &*pool.server)], value(pool)))
    })
}
