//! Metrics of a cell, with unit and direction.

use serde::{Deserialize, Serialize};

/// A measured quantity.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Metric {
    /// Counted units of the load per second.
    #[default]
    Rate,
    MeanMs,
    P50Ms,
    P95Ms,
    P99Ms,
    MaxMs,
    /// Inequality of the threads: the standard deviation of their counts, in per cent of the mean.
    UnfairnessPercent,
    /// Number of failed requests.
    Errors,
    /// Failed requests, in per cent of those sent.
    ErrorPercent,
    /// Answers, in per cent of the offered rate.
    AnsweredPercent,
    /// Processor time of the balancer per request.
    BalancerCpuUs,
    /// Processor time of all servers together, per request.
    ServersCpuUs,
    /// Processor time of the load generator, per request.
    LoadCpuUs,
    /// Memory of the running balancer.
    BalancerMemoryMb,
    /// Processor time of all cores together.
    MachineCpuPercent,
    /// Memory of the whole machine.
    MachineMemoryPercent,
}

/// Direction in which a metric is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    More,
    Less,
}

impl Metric {
    /// All metrics, in the order of the tables.
    pub(crate) const ALL: [Metric; 16] = [
        Metric::Rate,
        Metric::MeanMs,
        Metric::P50Ms,
        Metric::P95Ms,
        Metric::P99Ms,
        Metric::MaxMs,
        Metric::UnfairnessPercent,
        Metric::Errors,
        Metric::ErrorPercent,
        Metric::AnsweredPercent,
        Metric::BalancerCpuUs,
        Metric::ServersCpuUs,
        Metric::LoadCpuUs,
        Metric::BalancerMemoryMb,
        Metric::MachineCpuPercent,
        Metric::MachineMemoryPercent,
    ];

    /// Returns the name with its unit, for an axis; `counted` is the load's counted unit.
    pub(crate) fn label(self, counted: &str) -> String {
        let name = match self {
            Metric::Rate => return format!("{counted} per second"),
            Metric::MeanMs => "mean latency (ms)",
            Metric::P50Ms => "median latency (ms)",
            Metric::P95Ms => "95th percentile of latency (ms)",
            Metric::P99Ms => "99th percentile of latency (ms)",
            Metric::MaxMs => "longest latency (ms)",
            Metric::UnfairnessPercent => "spread between threads (% of mean)",
            Metric::Errors => "failed (count)",
            Metric::ErrorPercent => "failed (% of asked)",
            Metric::AnsweredPercent => "answered (% of offered)",
            Metric::BalancerCpuUs => "balancer CPU (µs per request)",
            Metric::ServersCpuUs => "servers' CPU (µs per request)",
            Metric::LoadCpuUs => "load generator's CPU (µs per request)",
            Metric::BalancerMemoryMb => "balancer's memory (MB)",
            Metric::MachineCpuPercent => "processor in use (% of all cores)",
            Metric::MachineMemoryPercent => "memory in use (% of all)",
        };
        name.to_owned()
    }

    /// Returns the name for a sentence, without its unit.
    pub(crate) fn noun(self, counted: &str) -> String {
        match self {
            Metric::AnsweredPercent => "answered share".to_owned(),
            Metric::BalancerCpuUs => "processor time of the balancer".to_owned(),
            other => {
                let label = other.label(counted);
                let unit = label.find(" (").unwrap_or(label.len());
                label[..unit].to_owned()
            }
        }
    }

    /// Returns the name for a narrow column.
    pub(crate) fn short(self) -> &'static str {
        match self {
            Metric::Rate => "per second",
            Metric::MeanMs => "mean ms",
            Metric::P50Ms => "p50 ms",
            Metric::P95Ms => "p95 ms",
            Metric::P99Ms => "p99 ms",
            Metric::MaxMs => "max ms",
            Metric::UnfairnessPercent => "spread %",
            Metric::Errors => "failed",
            Metric::ErrorPercent => "failed %",
            Metric::AnsweredPercent => "answered %",
            Metric::BalancerCpuUs => "balancer µs",
            Metric::ServersCpuUs => "servers µs",
            Metric::LoadCpuUs => "load µs",
            Metric::BalancerMemoryMb => "memory MB",
            Metric::MachineCpuPercent => "CPU %",
            Metric::MachineMemoryPercent => "memory %",
        }
    }

    /// Returns the direction in which the metric is better.
    pub(crate) fn better(self) -> Better {
        match self {
            Metric::Rate | Metric::AnsweredPercent => Better::More,
            _ => Better::Less,
        }
    }
}
