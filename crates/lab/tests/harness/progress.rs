//! Waits until clients of a running balancer have come so far: events are counted, no time is
//! guessed.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use evenkeel_lab::{Balancer, ReadProbe, WriteProbe};
use serde_json::Value;

use super::{done, service, wait_until};

/// Reads or writes that show that a load runs.
const SOME: usize = 10;

/// Waits until further writes are acknowledged.
pub(crate) fn wait_writes(balancer: &Balancer, writer: &WriteProbe) {
    let count = || {
        let attempts = writer.so_far().attempts;
        attempts.iter().filter(|one| one.is_acknowledged()).count()
    };
    let before = count();
    wait_until(balancer, "writes", || count() >= before + SOME);
}

/// Waits until further reads are answered.
pub(crate) fn wait_reads(balancer: &Balancer, reader: &ReadProbe) {
    let count = || {
        let readings = reader.so_far();
        readings.iter().filter(|one| one.outcome.is_ok()).count()
    };
    let before = count();
    wait_until(balancer, "reads", || count() >= before + SOME);
}

/// Waits until each of the counters has grown by `more`.
pub(crate) fn wait_counts(balancer: &Balancer, counts: &[AtomicUsize], more: usize) {
    let now = || counts.iter().map(|one| one.load(Relaxed));
    let before: Vec<usize> = now().collect();
    wait_until(balancer, "progress of each client", || {
        now().zip(&before).all(|(now, before)| now >= before + more)
    });
}

/// Waits until this many clients of a service wait for a primary.
pub(crate) fn wait_for_primary(balancer: &Balancer, name: &str, clients: u64) {
    wait_until(balancer, "clients that wait for a primary", || {
        let database = &service(&balancer.status().expect("a status"), name)["database"];
        database["waiting_for_primary"].as_u64() == Some(clients)
    });
}

/// Returns how many clients of a service are in this state: `waiting`, `active`, `pinned` or
/// another one that `evenkeel clients` prints.
pub(crate) fn clients_that_are(balancer: &Balancer, name: &str, state: &str) -> usize {
    let listed = done(balancer, &["clients", name, "--json"]);
    let listed: Value = serde_json::from_str(&listed).expect("JSON");
    let clients = listed["clients"].as_array().expect("clients");
    clients.iter().filter(|one| one["state"] == state).count()
}

/// Waits until this many clients of a service are in this state.
pub(crate) fn wait_clients(balancer: &Balancer, name: &str, state: &str, count: usize) {
    wait_until(balancer, &format!("{count} clients: {state}"), || {
        clients_that_are(balancer, name, state) == count
    });
}
