//! Lists the metrics of executed statements: by user, by server, and by digest.

use std::fmt;

use super::SECONDS;
use super::families::{Emit, Family, Value, counter, gauge};
use super::pools::{users, with_database};
use crate::status::{ServerStatus, ServiceStatus, WorkStatus};
use Value::{Count, Now, Sum};

/// Defines the families that are identical for each kind of object.
macro_rules! families {
    ($object:literal, $whose:literal, $each:path) => {
        [
            counter(
                concat!("evenkeel_", $object, "_queries"),
                concat!("Queries and batches ", $whose),
                None,
                |one, emit| $each(one, emit, |work| Count(work.queries_total)),
            ),
            counter(
                concat!("evenkeel_", $object, "_query_errors"),
                concat!("Failed queries and batches ", $whose),
                None,
                |one, emit| $each(one, emit, |work| Count(work.errors_total)),
            ),
            counter(
                concat!("evenkeel_", $object, "_rows_sent"),
                concat!("Rows returned ", $whose),
                None,
                |one, emit| $each(one, emit, |work| Count(work.rows_sent_total)),
            ),
            counter(
                concat!("evenkeel_", $object, "_rows_affected"),
                concat!("Rows changed ", $whose),
                None,
                |one, emit| $each(one, emit, |work| Count(work.rows_affected_total)),
            ),
            counter(
                concat!("evenkeel_", $object, "_busy"),
                concat!("Server time used ", $whose),
                SECONDS,
                |one, emit| $each(one, emit, |work| Sum(work.busy_us_total as f64 / 1e6)),
            ),
            gauge(
                concat!("evenkeel_", $object, "_query_p95"),
                concat!("95th percentile of query duration ", $whose),
                SECONDS,
                |one, emit| $each(one, emit, |work| Now(work.p95_us as f64 / 1e6)),
            ),
        ]
    };
}

pub(super) static USER: [Family<ServiceStatus>; 6] =
    families!("user", "per user and database", of_users);

pub(super) static SERVER: [Family<ServerStatus>; 6] = families!(
    "server",
    "per server, over all postgres and mysql services",
    of_server
);

pub(super) static DIGEST: [Family<ServiceStatus>; 6] = families!(
    "digest",
    "per statement digest, for the 20 with the highest server time of each service",
    of_digests
);

type Of = fn(&WorkStatus) -> Value;

fn of_users(service: &ServiceStatus, emit: Emit, value: Of) -> fmt::Result {
    users(service, emit, |user| value(&user.work))
}

fn of_server(server: &ServerStatus, emit: Emit, value: Of) -> fmt::Result {
    let work = server.work.as_ref();
    work.map_or(Ok(()), |work| emit(&[], value(work)))
}

fn of_digests(service: &ServiceStatus, emit: Emit, value: Of) -> fmt::Result {
    with_database(service, |pooled| {
        let mut digests = pooled.digests.iter();
        digests.try_for_each(|one| emit(&[("digest", &one.digest)], value(&one.work)))
    })
}
