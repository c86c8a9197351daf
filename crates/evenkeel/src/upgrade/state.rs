//! What one process tells the next: everything that the config file does not say.
//!
//! Every field has a default, so that a process may be told less, or more, than it knows of.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::status::{HistoryPoint, LastProbe, TimelineEvent};

/// What the old process says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum OldProcessMessage {
    /// The first word; its form never changes.
    Hello {
        /// [`super::VERSION`] of the old process.
        version: u32,
        /// Its program's version, for people.
        program: String,
        /// The process that it has started.
        #[serde(default)]
        pid: u32,
        /// Tells its keys of cancel requests from those of other processes.
        #[serde(default)]
        generation: u32,
    },
    /// What the sockets are that follow, in their order.
    Sockets(Vec<Purpose>),
    /// The last word before the new process serves.
    State(Box<UpgradeState>),
    /// While the old process drains.
    Report(Box<DrainReport>),
}

/// What the new process says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum NewProcessMessage {
    /// It likes its config and its engine, and asks for the sockets.
    Asks,
    /// It is ready to serve.
    Ready,
    /// It serves. These sockets it has taken; the others are the old one's to close.
    Serving(Vec<Purpose>),
    /// It received a stop signal: no process is to serve in its place.
    Stopping,
    /// The old process is to terminate its sessions now, as at the end of its drain.
    EndDraining,
}

/// What a socket is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Purpose {
    /// Clients connect here; the address is as the config has it.
    Clients(String),
    /// The status page.
    Admin(String),
    /// The control socket, by its path.
    Control(String),
    /// The console for PostgreSQL's clients.
    Console(String),
    /// The console for MySQL's clients.
    MySqlConsole(String),
    /// Cancel requests for clients of the old process go there.
    Cancels,
    /// Standard error.
    Log,
}

/// Everything that changed since the old process read its file, and what it has counted.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct UpgradeState {
    pub(crate) pid: u32,
    pub(crate) services: Vec<ServiceHandover>,
    pub(crate) servers: Vec<ServerHandover>,
    /// Servers that an operator has named as the primary.
    pub(crate) named: Vec<String>,
    /// What is known of clusters, one entry for each, told by addresses.
    pub(crate) clusters: Vec<ClusterHandover>,
    /// The timeline so far.
    pub(crate) events: Vec<TimelineEvent>,
    /// How it stands, as in the reports that follow.
    pub(crate) report: DrainReport,
}

/// What the servers of a cluster cannot tell again.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ClusterHandover {
    /// The servers' addresses.
    pub(crate) members: Vec<String>,
    /// The address of the primary.
    pub(crate) primary: Option<String>,
    /// See `policy::cluster::Memory`.
    pub(crate) identity: Option<String>,
    pub(crate) timelines: Vec<(u64, u32, String)>,
    /// What is known of the one that [`Handover::named`] has of them.
    pub(crate) name_held: bool,
    pub(crate) overruled: Option<u32>,
}

/// One service, known by its name.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ServiceHandover {
    pub(crate) name: String,
    /// Weights set by command, by address.
    pub(crate) weights: BTreeMap<String, u32>,
    pub(crate) history: Vec<HistoryPoint>,
}

/// One server, known by its address.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ServerHandover {
    pub(crate) address: String,
    /// What its name resolved to.
    pub(crate) resolved: Vec<String>,
    /// The verdict: `starting`, `up` or `down`.
    pub(crate) standing: String,
    pub(crate) standing_for_ms: u64,
    pub(crate) reason: String,
    pub(crate) last_probe: Option<LastProbe>,
    /// For its slow start.
    pub(crate) back_for_ms: Option<u64>,
    pub(crate) drain: Option<DrainHandover>,
    pub(crate) history: Vec<HistoryPoint>,
}

/// A drain by command.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct DrainHandover {
    pub(crate) since_ms: u64,
    pub(crate) left_ms: u64,
}

/// How a process that hands over, or has, stands: numbers that have not changed are left out.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct DrainReport {
    pub(crate) sessions: u64,
    /// Start of the oldest of them on the wall clock, in milliseconds. None without a session, and
    /// for up to 500 ms after the first one has begun.
    pub(crate) oldest_unix_ms: Option<u64>,
    /// Then the rest of them is cut.
    pub(crate) left_ms: u64,
    /// Places of each service that the next process must count as taken.
    pub(crate) services: BTreeMap<String, u32>,
    /// Places of each server, by address.
    pub(crate) servers: BTreeMap<String, u32>,
    /// Everything counted by each service since the very first process.
    pub(crate) service_counts: BTreeMap<String, CounterTotals>,
    /// The same of each server.
    pub(crate) server_counts: BTreeMap<String, CounterTotals>,
}

/// Counters by name: one that the other process does not know is not lost in between.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct CounterTotals {
    pub(crate) tallies: BTreeMap<String, u64>,
    pub(crate) histograms: BTreeMap<String, (Vec<u64>, u64)>,
    pub(crate) from_clients: u64,
    pub(crate) to_clients: u64,
}

impl CounterTotals {
    /// What was counted after `before`.
    pub(crate) fn since(&self, before: &CounterTotals) -> CounterTotals {
        let tally = |(name, now): (&String, &u64)| {
            let then = before.tallies.get(name).copied().unwrap_or(0);
            (name.clone(), now.saturating_sub(then))
        };
        let histogram = |(name, now): (&String, &(Vec<u64>, u64))| {
            let (counts, sum) = before.histograms.get(name).cloned().unwrap_or_default();
            let then = counts.iter().copied().chain(std::iter::repeat(0));
            let grown = now.0.iter().zip(then);
            let grown = grown.map(|(now, then)| now.saturating_sub(then)).collect();
            (name.clone(), (grown, now.1.saturating_sub(sum)))
        };
        CounterTotals {
            tallies: self.tallies.iter().map(tally).collect(),
            histograms: self.histograms.iter().map(histogram).collect(),
            from_clients: self.from_clients.saturating_sub(before.from_clients),
            to_clients: self.to_clients.saturating_sub(before.to_clients),
        }
    }
}

impl DrainReport {
    /// Takes over what a later report says; what it leaves out stays.
    pub(crate) fn follow(&mut self, later: DrainReport) {
        self.sessions = later.sessions;
        self.oldest_unix_ms = later.oldest_unix_ms;
        self.left_ms = later.left_ms;
        self.services.extend(later.services);
        self.servers.extend(later.servers);
        self.service_counts.extend(later.service_counts);
        self.server_counts.extend(later.server_counts);
    }

    /// What of this one is not said by `earlier`.
    pub(crate) fn news(&self, earlier: &DrainReport) -> DrainReport {
        DrainReport {
            sessions: self.sessions,
            oldest_unix_ms: self.oldest_unix_ms,
            left_ms: self.left_ms,
            services: changed_places(&self.services, &earlier.services),
            servers: changed_places(&self.servers, &earlier.servers),
            service_counts: changed(&self.service_counts, &earlier.service_counts),
            server_counts: changed(&self.server_counts, &earlier.server_counts),
        }
    }
}

/// Who is no longer there has none.
fn changed_places(
    now: &BTreeMap<String, u32>,
    before: &BTreeMap<String, u32>,
) -> BTreeMap<String, u32> {
    let gone = before
        .iter()
        .filter(|(key, places)| **places > 0 && !now.contains_key(*key));
    let gone = gone.map(|(key, _)| (key.clone(), 0));
    changed(now, before).into_iter().chain(gone).collect()
}

fn changed<T: Clone + PartialEq>(
    now: &BTreeMap<String, T>,
    before: &BTreeMap<String, T>,
) -> BTreeMap<String, T> {
    let new = now
        .iter()
        .filter(|(key, value)| before.get(*key) != Some(*value));
    new.map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}
