//! Converts counters for the handover to the next process, and adds those of the previous one.

use evenkeel_proxy::Service;
use evenkeel_proxy::counters::{Bytes, Histogram, ServerCounters, SharedCounter};
use evenkeel_proxy::http::HttpService;
use evenkeel_proxy::http::route_stats::RouteStats;

use crate::upgrade::state::CounterTotals;

pub(super) fn counted_by_service(service: &Service) -> CounterTotals {
    let counters = &service.counters;
    let mut counts = counted(counters.tallies(), &counters.histograms(), &counters.bytes);
    if let Some(http) = service.http() {
        add_http(&mut counts, http);
    }
    counts
}

fn add_http(counts: &mut CounterTotals, http: &HttpService) {
    let tallies = http.tallies().into_iter();
    let tallies = tallies.map(|(name, count)| (name.to_owned(), count));
    counts.tallies.extend(tallies);
    for stats in http.stats() {
        for (name, seen) in stats.histograms() {
            add_seen(counts, name, seen);
        }
    }
    let routes = http.route_stats();
    counts.routes = routes
        .iter()
        .map(|stats| (stats.name.clone(), counted_by_route(stats)))
        .collect();
}

/// Adds a histogram of one thread to those of the same name.
fn add_seen(counts: &mut CounterTotals, name: &str, seen: &Histogram) {
    let (slots, sum) = counts.histograms.entry(name.to_owned()).or_default();
    let more = seen.counts();
    slots.resize(more.len(), 0);
    slots
        .iter_mut()
        .zip(more)
        .for_each(|(slot, more)| *slot += more);
    *sum += seen.sum();
}

fn counted_by_route(stats: &RouteStats) -> CounterTotals {
    let mut counts = CounterTotals::default();
    for counters in stats.counters() {
        for (name, tally) in counters.tallies() {
            *counts.tallies.entry(name.to_owned()).or_default() += tally.get();
        }
        for (name, seen) in counters.histograms() {
            add_seen(&mut counts, name, seen);
        }
    }
    counts
}

pub(super) fn counted_by_server(counters: &ServerCounters) -> CounterTotals {
    counted(counters.tallies(), &[], &counters.bytes)
}

pub(super) fn add_to_service(service: &Service, more: &CounterTotals) {
    let counters = &service.counters;
    add(counters.tallies(), &counters.bytes, more);
    for (name, histogram) in counters.histograms() {
        if let Some((counts, sum)) = more.histograms.get(name) {
            histogram.add_counted(counts, *sum);
        }
    }
    if let Some(http) = service.http() {
        let tallies = more.tallies.iter();
        tallies.for_each(|(name, count)| http.add_counted(name, *count));
        let histograms = more.histograms.iter();
        histograms.for_each(|(name, (counts, sum))| http.add_histogram(name, counts, *sum));
        for stats in http.route_stats() {
            if let Some(more) = more.routes.get(&stats.name) {
                add_to_route(&stats, more);
            }
        }
    }
}

fn add_to_route(stats: &RouteStats, more: &CounterTotals) {
    stats.add_counted(|name| more.tallies.get(name).copied().unwrap_or(0));
    for (name, (counts, sum)) in &more.histograms {
        stats.add_histogram(name, counts, *sum);
    }
}

pub(super) fn add_to_server(counters: &ServerCounters, more: &CounterTotals) {
    add(counters.tallies(), &counters.bytes, more);
}

fn counted(
    tallies: Vec<(&str, &SharedCounter)>,
    histograms: &[(&str, &Histogram)],
    bytes: &Bytes,
) -> CounterTotals {
    let tallies = tallies.into_iter();
    let histograms = histograms.iter();
    CounterTotals {
        tallies: tallies
            .map(|(name, tally)| (name.to_owned(), tally.get()))
            .collect(),
        histograms: histograms
            .map(|(name, seen)| ((*name).to_owned(), (seen.counts(), seen.sum())))
            .collect(),
        from_clients: bytes.from_clients(),
        to_clients: bytes.to_clients(),
        ..CounterTotals::default()
    }
}

fn add(tallies: Vec<(&str, &SharedCounter)>, bytes: &Bytes, more: &CounterTotals) {
    for (name, tally) in tallies {
        tally.add(more.tallies.get(name).copied().unwrap_or(0));
    }
    bytes.add_counted(more.from_clients, more.to_clients);
}
