//! Defines the messages between two processes: everything that the config file does not contain.
//!
//! Every field has a default, so that a process may receive fewer or more fields than it knows.

use std::collections::BTreeMap;
use std::fmt;

use evenkeel_tls::TicketKey;
use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

use crate::status::{HistoryPoint, LastProbe, TimelineEvent};

/// Message of the old process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum OldProcessMessage {
    /// First message. Its format never changes.
    Hello {
        /// [`super::VERSION`] of the old process.
        version: u32,
        /// Version of its program, for error messages.
        program: String,
        /// Process id of the process that it has started.
        #[serde(default)]
        pid: u32,
        /// Distinguishes its keys of cancel requests from those of other processes.
        #[serde(default)]
        generation: u32,
    },
    /// Purposes of the sockets that follow, in their order.
    Sockets(Vec<Purpose>),
    /// State of the old process, its last message before the new process serves.
    State(Box<UpgradeState>),
    /// Report that the old process sends while it drains.
    Report(Box<DrainReport>),
}

/// Message of the new process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum NewProcessMessage {
    /// Request for the sockets, sent after the configuration and the engine were found usable.
    Asks,
    /// Notice that the new process is ready to serve.
    Ready,
    /// Notice that the new process serves, with the sockets that it has taken. The old process
    /// closes the others.
    Serving(Vec<Purpose>),
    /// Notice that the new process received a stop signal: no process is to serve in its place.
    Stopping,
    /// Request that the old process terminate its sessions now, as at the end of its drain.
    EndDraining,
}

/// Purpose of a socket.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Purpose {
    /// Socket for clients, by its address in the configuration.
    Clients(String),
    /// Socket of the status page, by its address.
    Admin(String),
    /// Control socket, by its path.
    Control(String),
    /// Console for PostgreSQL clients.
    Console(String),
    /// Console for MySQL clients.
    MySqlConsole(String),
    /// Socket for cancel requests that concern clients of the old process.
    Cancels,
    /// Standard error.
    Log,
}

/// Changes since the old process read its config file, and its counters.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct UpgradeState {
    pub(crate) pid: u32,
    pub(crate) services: Vec<ServiceHandover>,
    pub(crate) servers: Vec<ServerHandover>,
    /// Addresses of servers that an operator has set as the primary.
    pub(crate) named: Vec<String>,
    /// State of each cluster. Servers are identified by their addresses.
    pub(crate) clusters: Vec<ClusterHandover>,
    /// Timeline so far.
    pub(crate) events: Vec<TimelineEvent>,
    /// State of the drain, as in the reports that follow.
    pub(crate) report: DrainReport,
    /// Keys of TLS session tickets, the current one first.
    pub(crate) ticket_keys: Vec<TicketKeyHandover>,
}

/// A key of TLS session tickets, as text. It is secret.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct TicketKeyHandover(String);

impl TicketKeyHandover {
    pub(crate) fn new(key: &TicketKey) -> Self {
        Self(key.to_text().as_str().to_owned())
    }

    /// Returns the key. `None`: a later version of the program wrote it in another form.
    pub(crate) fn key(&self) -> Option<TicketKey> {
        TicketKey::from_text(&self.0)
    }
}

impl Drop for TicketKeyHandover {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl fmt::Debug for TicketKeyHandover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Cluster state that the servers cannot report again.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ClusterHandover {
    /// Addresses of the servers.
    pub(crate) members: Vec<String>,
    /// Address of the primary.
    pub(crate) primary: Option<String>,
    /// See `policy::cluster::HandoverState`.
    pub(crate) identity: Option<String>,
    pub(crate) timelines: Vec<(u64, u32, String)>,
    /// True if this cluster's server in [`UpgradeState::named`] has claimed since it was set.
    pub(crate) name_held: bool,
    pub(crate) overruled: Option<u32>,
}

/// One service, identified by its name.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ServiceHandover {
    pub(crate) name: String,
    /// Weights set by command, by server address.
    pub(crate) weights: BTreeMap<String, u32>,
    pub(crate) history: Vec<HistoryPoint>,
}

/// One server, identified by its address.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ServerHandover {
    pub(crate) address: String,
    /// Endpoints that its name resolved to.
    pub(crate) resolved: Vec<String>,
    /// Health state: `starting`, `up` or `down`.
    pub(crate) standing: String,
    pub(crate) standing_for_ms: u64,
    pub(crate) reason: String,
    pub(crate) last_probe: Option<LastProbe>,
    /// Time since the server recovered, for its slow start. `None`: it was never down.
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

/// Report of a process that hands over, or drains. Unchanged numbers are left out.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct DrainReport {
    pub(crate) sessions: u64,
    /// Start of the oldest session, in milliseconds since the Unix epoch. `None` without a session,
    /// and for up to 500 ms after the first one has begun.
    pub(crate) oldest_unix_ms: Option<u64>,
    /// Time left until the remaining sessions are terminated.
    pub(crate) left_ms: u64,
    /// Permits of each service that the next process must count as in use.
    pub(crate) services: BTreeMap<String, u32>,
    /// Permits of each server, by address.
    pub(crate) servers: BTreeMap<String, u32>,
    /// Totals of each service since the first process of the series.
    pub(crate) service_counts: BTreeMap<String, CounterTotals>,
    /// Totals of each server since the first process of the series, by address.
    pub(crate) server_counts: BTreeMap<String, CounterTotals>,
}

/// Counters by name, so that the two processes may know different ones. Unknown ones are ignored.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct CounterTotals {
    pub(crate) tallies: BTreeMap<String, u64>,
    pub(crate) histograms: BTreeMap<String, (Vec<u64>, u64)>,
    pub(crate) from_clients: u64,
    pub(crate) to_clients: u64,
    /// Counters of the routes of a service, by the name of the route.
    pub(crate) routes: BTreeMap<String, CounterTotals>,
}

impl CounterTotals {
    /// Returns the counts added since `before`.
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
        let nothing = CounterTotals::default();
        let route = |(name, now): (&String, &CounterTotals)| {
            let then = before.routes.get(name).unwrap_or(&nothing);
            (name.clone(), now.since(then))
        };
        CounterTotals {
            tallies: self.tallies.iter().map(tally).collect(),
            histograms: self.histograms.iter().map(histogram).collect(),
            from_clients: self.from_clients.saturating_sub(before.from_clients),
            to_clients: self.to_clients.saturating_sub(before.to_clients),
            routes: self.routes.iter().map(route).collect(),
        }
    }
}

impl DrainReport {
    /// Applies a later report. Numbers that it leaves out are kept.
    pub(crate) fn merge(&mut self, later: DrainReport) {
        self.sessions = later.sessions;
        self.oldest_unix_ms = later.oldest_unix_ms;
        self.left_ms = later.left_ms;
        self.services.extend(later.services);
        self.servers.extend(later.servers);
        self.service_counts.extend(later.service_counts);
        self.server_counts.extend(later.server_counts);
    }

    /// Returns the part of this report that differs from `earlier`.
    pub(crate) fn changes_since(&self, earlier: &DrainReport) -> DrainReport {
        DrainReport {
            sessions: self.sessions,
            oldest_unix_ms: self.oldest_unix_ms,
            left_ms: self.left_ms,
            services: changed_permits(&self.services, &earlier.services),
            servers: changed_permits(&self.servers, &earlier.servers),
            service_counts: changed(&self.service_counts, &earlier.service_counts),
            server_counts: changed(&self.server_counts, &earlier.server_counts),
        }
    }
}

/// Returns the changed permits. A removed entry has zero.
fn changed_permits(
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
