//! Converts counters for the handover to the next process, and adds those of the previous one.

use evenkeel_proxy::counters::{Bytes, Histogram, ServerCounters, ServiceCounters, SharedCounter};

use crate::upgrade::state::CounterTotals;

pub(super) fn counted_by_service(counters: &ServiceCounters) -> CounterTotals {
    counted(counters.tallies(), &counters.histograms(), &counters.bytes)
}

pub(super) fn counted_by_server(counters: &ServerCounters) -> CounterTotals {
    counted(counters.tallies(), &[], &counters.bytes)
}

pub(super) fn add_to_service(counters: &ServiceCounters, more: &CounterTotals) {
    add(counters.tallies(), &counters.bytes, more);
    for (name, histogram) in counters.histograms() {
        if let Some((counts, sum)) = more.histograms.get(name) {
            histogram.add_counted(counts, *sum);
        }
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
    }
}

fn add(tallies: Vec<(&str, &SharedCounter)>, bytes: &Bytes, more: &CounterTotals) {
    for (name, tally) in tallies {
        tally.add(more.tallies.get(name).copied().unwrap_or(0));
    }
    bytes.add_counted(more.from_clients, more.to_clients);
}
