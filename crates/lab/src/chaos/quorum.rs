//! Finds the times at which a Galera group lost its quorum, from its nodes' logs.
//!
//! Galera may then acknowledge transactions that waited for certification, and then no
//! node has them. Observed with clients that reach the nodes through a plain forwarder only, and
//! reported by others.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use anyhow::Result;

use crate::Server;
use crate::replication::parse_instant;

/// Begin and end of an interval.
pub(super) type Span = (SystemTime, SystemTime);

const SAID: &str = "WSREP: Received NON-PRIMARY.";
/// Tolerance: logs have whole seconds, and clients receive the error a moment later.
const SPAN: Duration = Duration::from_secs(2);

/// Minimum number of nodes: a single node without quorum was isolated or frozen, and acknowledges
/// nothing.
const NODES_MIN: usize = 2;

/// Returns the intervals in which several nodes lost quorum in the same second.
pub(super) fn losses(servers: &[Server]) -> Result<Vec<Span>> {
    let logs: Vec<String> = servers.iter().map(Server::log).collect();
    let instant = |time: &String| {
        // The log uses the server's time zone.
        let seconds = servers[0].sql(&format!("SELECT UNIX_TIMESTAMP('{time}')"))?;
        let from = parse_instant(&seconds)?;
        Ok((from, from + SPAN))
    };
    shared(&logs).iter().map(instant).collect()
}

/// Returns the times that enough of these logs contain.
fn shared(logs: &[String]) -> Vec<String> {
    let mut nodes: BTreeMap<String, usize> = BTreeMap::new();
    for log in logs {
        let mut times: Vec<String> = log.lines().filter_map(time).collect();
        times.dedup();
        for time in times {
            *nodes.entry(time).or_default() += 1;
        }
    }
    nodes.retain(|_, count| *count >= NODES_MIN);
    nodes.into_keys().collect()
}

/// Returns the time of a line that reports it, for example `2026-11-23  6:52:33`.
fn time(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    let (day, time) = (words.next()?, words.next()?);
    line.contains(SAID).then(|| format!("{day} {time}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_counts_in_which_two_nodes_lost_it() {
        let line = |time: &str| format!("2026-11-23  {time} 0 [Note] {SAID}\nsomething else\n");
        let logs = [
            line("6:52:23") + &line("6:52:33"),
            line("6:52:33") + &line("6:52:33"),
            line("6:53:16") + &line("6:53:16"),
        ];
        assert_eq!(shared(&logs), ["2026-11-23 6:52:33"]);
    }
}
