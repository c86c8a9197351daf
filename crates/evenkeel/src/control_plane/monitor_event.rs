//! Defines what tasks of the monitor report to the control plane.

use std::collections::BTreeSet;

use evenkeel_config::plan::Address;
use evenkeel_monitor::WatchError;
use evenkeel_monitor::probe::Observation;
use evenkeel_policy::cluster;
use evenkeel_proxy::Endpoint;

use super::cluster::switchover::Switchover;

/// Result of a task outside of the control plane.
#[derive(Debug)]
pub(super) enum MonitorEvent {
    /// Result of a probe, and whether the server responded to clients while the probe waited.
    Probed(Address, Observation, bool),
    Resolved(Address, Result<Vec<Endpoint>, String>),
    RoleReport(Address, Result<cluster::RoleReport, WatchError>),
    /// Server that does not respond over a new connection.
    FellSilent(Address),
    /// Switchover whose time limit for active work has passed.
    SwitchoverExpired(Switchover),
    /// Switchover whose active work has ended.
    SwitchoverEnded(Switchover),
    /// Servers whose roles contradict what sessions have observed.
    RoleDoubted(BTreeSet<u64>),
}
