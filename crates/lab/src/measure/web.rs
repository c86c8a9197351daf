//! Measures HTTP requests with a new connection for each.

use anyhow::Result;
use evenkeel_lab::{Lab, Wrk};

use super::Options;
use super::blocks::{Comparison, Metric, Target, interleaved};
use super::front::{ALL, Front, Kind};
use crate::stop::Stop;

/// Clients of the loads with a new connection for each request.
pub(super) const CLIENTS: u32 = 64;

pub(super) const METRICS: &[Metric] = &[
    Metric {
        name: "requests/s",
        decimals: 0,
    },
    Metric {
        name: "us CPU/request",
        decimals: 1,
    },
    Metric {
        name: "errors",
        decimals: 0,
    },
];

/// Measures with two web servers, a 1 kB file, 64 clients, `Connection: close`.
pub(crate) fn measure(options: &Options, stop: &Stop) -> Result<()> {
    let lab = Lab::new("web")?;
    let fronts = Front::start_all(&ALL, &lab.web(2)?, options)?;
    let comparison = Comparison {
        title: "HTTP over TCP services, 1 kB, a new connection per request, 64 clients",
        metrics: METRICS,
        rival: Kind::Nginx.name(),
        blocks: options.blocks,
    };
    let mut targets: Vec<Target> = fronts
        .iter()
        .map(|front| target(front, load(front, CLIENTS, false, options)))
        .collect();
    interleaved(&comparison, &mut targets, stop)
}

/// Returns requests for a file of 1 kB, over connections that are kept or a new one for each.
pub(super) fn load(front: &Front, clients: u32, keep_alive: bool, options: &Options) -> Wrk {
    Wrk {
        address: front.address,
        path: "/1k".to_owned(),
        connections: clients,
        seconds: options.seconds,
        keep_alive,
        fields: &[],
    }
}

/// Returns a run of this load, with the processor time of the front during it.
pub(super) fn target(front: &Front, wrk: Wrk) -> Target<'_> {
    let run = move || {
        let before = front.cpu_us();
        let report = wrk.run()?;
        let used_us = (front.cpu_us() - before) as f64;
        Ok(vec![
            report.requests_per_s,
            used_us / report.requests.max(1) as f64,
            report.errors as f64,
        ])
    };
    Target {
        name: front.name.clone(),
        run: Box::new(run),
    }
}
