//! Measures responses that services and nginx compress by gzip.

use anyhow::Result;
use evenkeel_lab::{Lab, Wrk};

use super::Options;
use super::blocks::{Comparison, Target, interleaved};
use super::front::{Front, GZIP, Kind};
use super::web::{METRICS, target};
use crate::stop::Stop;

/// Clients, each with one request after the other.
const CLIENTS: u32 = 16;

/// Measures with two web servers and JSON of 80 kB.
pub(super) fn measure(options: &Options, stop: &Stop) -> Result<()> {
    let lab = Lab::new("compress")?;
    let fronts = Front::start_all(&GZIP, &lab.web(2)?, options)?;
    let comparison = Comparison {
        title: "HTTP, JSON of 80 kB that is compressed by gzip, level 5, 16 connections",
        metrics: METRICS,
        rival: Kind::NginxGzip.name(),
        blocks: options.blocks,
    };
    let load = |front: &Front| Wrk {
        address: front.address,
        path: "/rows".to_owned(),
        connections: CLIENTS,
        seconds: options.seconds,
        keep_alive: true,
        fields: &["Accept-Encoding: gzip"],
    };
    let targets = fronts.iter().map(|front| target(front, load(front)));
    interleaved(&comparison, &mut targets.collect::<Vec<Target>>(), stop)
}
