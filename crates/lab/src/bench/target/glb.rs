//! Starts glb, the Galera Load Balancer: one port, no configuration file, threads as in its sample.

use anyhow::Result;

use super::super::experiment::Balance;
use super::super::versions;
use super::{Order, Process, Running};
use crate::program::Program;
use crate::rival::{Rival, WORKERS, files_max};
use crate::tool;

/// Number of threads; glb's sample configuration: "It is always a good idea to have a few per CPU
/// core."
const THREADS: u32 = 2 * WORKERS;

/// Returns whether it is installed: Debian has no package, so it must be built manually.
pub(super) fn is_installed() -> bool {
    tool::find("glbd").is_ok()
}

pub(super) fn start(order: &Order) -> Result<Option<Running>> {
    let Ok(path) = tool::find("glbd") else {
        return Ok(None);
    };
    let version = versions::version_line(&path, &["--version"]);
    let rival = Rival::glb(Program::here(path), &words(order), order.listen)?;
    Ok(Some(Running {
        reads: order.listen,
        writes: order.listen,
        process: Process::Rival(Box::new(rival)),
        version,
        notes: Vec::new(),
    }))
}

/// Returns the arguments, without a control socket; its FIFO is always present.
fn words(order: &Order) -> Vec<String> {
    let connections = files_max() / 2 - 100;
    let mut words = ["--fifo", "{room}/fifo", "--threads"]
        .map(str::to_owned)
        .to_vec();
    words.extend([THREADS.to_string(), "--max_conn".to_owned()]);
    words.push(connections.to_string());
    match order.target.balance {
        Some(Balance::RoundRobin) => words.push("--round".to_owned()),
        Some(Balance::Source) => words.push("--source".to_owned()),
        // Its default; other algorithms are rejected when the experiment is read.
        _ => {}
    }
    words.push(order.listen.to_string());
    words.extend(order.servers.iter().map(ToString::to_string));
    words
}
