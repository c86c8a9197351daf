//! When a Galera group lost its quorum, as its nodes' logs tell.
//!
//! At that moment Galera may acknowledge what waited for certification, and then no node has it:
//! seen with clients that talk to the nodes through nothing but a forwarder, and by others as well.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use anyhow::Result;

use crate::Server;
use crate::replication::parse_instant;

/// From when to when.
pub(super) type Span = (SystemTime, SystemTime);

const SAID: &str = "WSREP: Received NON-PRIMARY.";
/// Logs tell whole seconds, and clients hear of it a moment later.
const SPAN: Duration = Duration::from_secs(2);

/// A node alone that has none was cut off or stood still: it acknowledges nothing.
const NODES_MIN: usize = 2;

/// When several nodes lost it in the same second.
pub(super) fn losses(servers: &[Server]) -> Result<Vec<Span>> {
    let logs: Vec<String> = servers.iter().map(Server::log).collect();
    let instant = |time: &String| {
        // In the time zone of who has written it.
        let seconds = servers[0].sql(&format!("SELECT UNIX_TIMESTAMP('{time}')"))?;
        let from = parse_instant(&seconds)?;
        Ok((from, from + SPAN))
    };
    shared(&logs).iter().map(instant).collect()
}

/// The times at which enough of these logs say so.
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

/// Of a line that says it, for example `2026-11-23  6:52:33`.
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
