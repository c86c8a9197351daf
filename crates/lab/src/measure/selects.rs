//! Measures sysbench's point selects, prepared and as text, and their cost in a pooler.

use std::net::SocketAddr;

use evenkeel_lab::{Driver, Sysbench};

use super::Options;
use super::blocks::{Metric, Target};

pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: "us CPU/query",
        decimals: 1,
    },
    Metric {
        name: "queries/s",
        decimals: 0,
    },
    Metric {
        name: "p50 ms",
        decimals: 2,
    },
    Metric {
        name: "p99 ms",
        decimals: 2,
    },
];

/// Forms of sysbench's queries: its default, which prepares, and text.
pub(super) const FORMS: [(&str, &str); 2] = [
    ("prepared", "--db-ps-mode=auto"),
    ("text", "--db-ps-mode=disable"),
];

/// Returns a load of point selects in one of the forms, without explicit transactions.
pub(super) fn load(
    (driver, address): (Driver, SocketAddr),
    form: &str,
    clients: u32,
    options: &Options,
) -> Sysbench {
    let extra = ["--skip_trx=on", "--histogram=on", form];
    Sysbench {
        threads: clients,
        seconds: options.seconds,
        rows: options.rows,
        extra: extra.map(str::to_owned).into(),
        ..Sysbench::new(driver, address)
    }
}

/// Returns a run of this load, with the increase of `cpu_us` during it.
pub(super) fn target<'a>(name: &str, cpu_us: impl Fn() -> u64 + 'a, load: Sysbench) -> Target<'a> {
    let run = move || {
        let before = cpu_us();
        let report = load.run()?;
        let used_us = cpu_us().saturating_sub(before) as f64;
        let quantile_ms = |part| report.latencies.quantile_ms(part).unwrap_or(f64::NAN);
        Ok(vec![
            used_us / report.queries.max(1) as f64,
            report.qps,
            quantile_ms(0.5),
            quantile_ms(0.99),
        ])
    };
    Target {
        name: name.to_owned(),
        run: Box::new(run),
    }
}
