//! Measures services that parse HTTP: requests over kept and new connections, and idle clients.

use anyhow::Result;
use evenkeel_lab::Lab;

use super::Options;
use super::blocks::{Comparison, Target, interleaved_against};
use super::front::{Front, HTTP, Kind};
use super::idle;
use super::web::{self, CLIENTS, METRICS};
use crate::stop::Stop;

/// Rivals with which the others are compared, a table for each.
const RIVALS: [&str; 2] = [Kind::NginxHttp.name(), Kind::HaproxyHttp.name()];

/// Measures with two web servers, a 1 kB file, and programs that keep connections to the servers.
pub(super) fn measure(options: &Options, stop: &Stop) -> Result<()> {
    let lab = Lab::new("http")?;
    let servers = lab.web(2)?;
    let fronts = Front::start_all(&HTTP, &servers, options)?;
    for clients in &options.clients {
        let title = format!("HTTP, 1 kB, {clients} connections that are kept");
        compare(&title, (*clients, true), &fronts, options, stop)?;
    }
    let title = format!("HTTP, 1 kB, a new connection per request, {CLIENTS} clients");
    compare(&title, (CLIENTS, false), &fronts, options, stop)?;
    drop(fronts);
    let title = format!(
        "{} idle clients of HTTP services that have each sent a request",
        options.connections
    );
    let without_direct = &HTTP[..HTTP.len() - 1];
    let against = (without_direct, Kind::HaproxyHttp);
    idle::compare(&title, against, &servers, options, stop)
}

fn compare(
    title: &str,
    (clients, keep_alive): (u32, bool),
    fronts: &[Front],
    options: &Options,
    stop: &Stop,
) -> Result<()> {
    let comparison = Comparison {
        title,
        metrics: METRICS,
        rival: RIVALS[0],
        blocks: options.blocks,
    };
    let mut targets: Vec<Target> = fronts
        .iter()
        .map(|front| web::target(front, web::load(front, clients, keep_alive, options)))
        .collect();
    interleaved_against(&RIVALS, &comparison, &mut targets, stop)
}
