//! Converts the statement digests of a service for the status.

use std::cmp::Reverse;

use evenkeel_proxy::counters::work::WorkTotals;
use evenkeel_proxy::digests::Digest;

use crate::control_plane::clock::unix_ms;
use crate::control_plane::service::ManagedService;
use crate::status::{DigestStatus, WorkStatus};

/// Name of the digest that counts the statements beyond `digests_max`.
const OTHER: &str = "other";

/// Returns all digests of a service, by total time in descending order.
pub(in crate::control_plane) fn all(managed: &ManagedService) -> Vec<DigestStatus> {
    let shared = managed.service.database();
    let digests = shared.and_then(|shared| shared.digests().clone());
    let mut all = digests.map_or_else(Vec::new, |digests| digests.all());
    all.sort_by_key(|one| (Reverse(one.work.busy_us), one.digest));
    all.into_iter().map(status).collect()
}

fn status(one: Digest) -> DigestStatus {
    let digest = match one.digest {
        0 => OTHER.to_owned(),
        digest => format!("{digest:016x}"),
    };
    DigestStatus {
        digest,
        statement: one.text.into(),
        work: work(&one.work),
        on_replicas_total: one.on_replicas,
        first_seen_unix_ms: unix_ms(one.first_ms),
        last_seen_unix_ms: unix_ms(one.last_ms),
    }
}

pub(in crate::control_plane) fn work(worked: &WorkTotals) -> WorkStatus {
    WorkStatus {
        queries_total: worked.queries,
        errors_total: worked.errors,
        rows_sent_total: worked.rows_sent,
        rows_affected_total: worked.rows_affected,
        busy_us_total: worked.busy_us,
        p95_us: worked.percentile_us(95),
    }
}
