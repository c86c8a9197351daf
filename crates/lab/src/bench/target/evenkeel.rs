//! Starts Evenkeel: one port for reads and one for writes, or one port that parses the protocol.

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;

use super::super::experiment::{Balance, Mode, Speech, Target};
use super::super::versions;
use super::{Order, Process, Running, another_port};
use crate::pooler::let_monitor_read;
use crate::rival::WORKERS;
use crate::{Balancer, eventually};

/// Limit for its servers to be found up.
const UP_LIMIT: Duration = Duration::from_secs(10);

/// Limit for a web server to be found up again.
const RETURN_LIMIT: Duration = Duration::from_secs(10);

/// Probes of the lab's web servers. It restarts overloaded ones, which must be found up before the
/// next run.
const WEB_PROBE: &str = "[service.health]\nprobe = \"http\"\ndead_interval_ms_max = 1000\n";

/// Probes of servers of which nothing is known.
const EXTERNAL_PROBE: &str = "[service.health]\nprobe = \"tcp\"\n";

/// Starts Evenkeel; `None` if this build does not support the requested protocol.
pub(super) fn start(order: &Order) -> Result<Option<Running>> {
    let writes = if order.has_two_ports() && order.target.mode == Mode::Tcp {
        another_port()
    } else {
        order.listen
    };
    if order.target.mode == Mode::Mysql
        && let Some(primary) = order.topology.servers().first()
    {
        let_monitor_read(primary)?;
    }
    let balancer = Balancer::start_in(order.endpoint.namespace.clone(), &config(order, writes))?;
    wait_up(&balancer);
    let mut notes = Vec::new();
    if order.target.mode == Mode::Tcp && order.topology.speech == Speech::Mysql {
        notes.push("tcp mode: it does not look into the queries".to_owned());
    }
    Ok(Some(Running {
        reads: order.endpoint.address,
        writes,
        process: Process::Evenkeel(Box::new(balancer)),
        version: versions::of_evenkeel(),
        notes,
    }))
}

/// Waits until every server is up, after an overload or a restart; a server that is not up in time
/// shows in the runs.
pub(super) fn wait_servers_up(balancer: &Balancer) {
    let _ = eventually(RETURN_LIMIT, "servers that are up", || {
        let status = balancer.status()?;
        let services = status["services"].as_array().cloned().unwrap_or_default();
        let servers = services
            .iter()
            .filter_map(|service| service["servers"].as_array());
        let is_up = servers.flatten().all(|server| server["state"] == "up");
        Ok(is_up.then_some(()))
    });
}

/// Waits for the services; a service that is not up in time shows in the runs.
fn wait_up(balancer: &Balancer) {
    let _ = eventually(UP_LIMIT, "services that are up", || {
        let status = balancer.status()?;
        let services = status["services"].as_array().cloned().unwrap_or_default();
        let up = services.iter().all(|service| service["state"] == "up");
        Ok(up.then_some(()))
    });
}

fn config(order: &Order, writes: SocketAddr) -> String {
    let mut text = format!("[engine]\nworkers = {WORKERS}\n\n");
    let protocol = match order.target.mode {
        Mode::Tcp => "tcp",
        Mode::Http => "http",
        Mode::Mysql => "mysql",
        Mode::Postgres => "postgres",
    };
    if writes == order.listen {
        text.push_str(&service(order, "servers", protocol, order.listen, ""));
    } else {
        text.push_str(&service(order, "reads", protocol, order.listen, ""));
        let role = "role = \"primary\"\n";
        text.push_str(&service(order, "writes", protocol, writes, role));
    }
    text
}

fn service(order: &Order, name: &str, protocol: &str, listen: SocketAddr, further: &str) -> String {
    let servers: String = order
        .topology
        .named(&order.servers)
        .map(|(name, address)| format!("  {{ name = {name:?}, address = \"{address}\" }},\n"))
        .collect();
    let balance = order.target.balance.map(words).unwrap_or_default();
    let mut text = format!(
        "[[service]]\nname = {name:?}\nprotocol = {protocol:?}\nlisten = \"{listen}\"\n\
         max_connections = 20000\n{balance}{further}servers = [\n{servers}]\n"
    );
    if protocol == "http" {
        text.push_str(&health(order));
        text.push_str(&of_http(order.target));
    } else if protocol == "tcp" {
        text.push_str(&health(order));
    } else {
        let (user, password) = match order.topology.speech {
            Speech::Postgres => ("postgres", "postgres"),
            _ => ("monitor", "monitor"),
        };
        let reads = order.servers.len() > 1;
        let _ = writeln!(
            text,
            "[service.monitor]\nuser = {user:?}\npassword = {password:?}\n\
             [service.pool]\nmode = \"transaction\"\nsize = 20\n[service.split]\nreads = {reads}"
        );
    }
    // In network namespaces the lab's servers are not on loopback, and have no certificates.
    let is_local = order.servers.iter().all(|server| server.ip().is_loopback());
    if !is_local && !order.topology.is_external() && order.topology.speech != Speech::Http {
        text.push_str("[service.server_tls]\nmode = \"off\"\n");
    }
    text.push('\n');
    text
}

/// Returns the health check of a service that parses no SQL, with the monitor's account.
fn health(order: &Order) -> String {
    if order.topology.is_external() {
        return EXTERNAL_PROBE.to_owned();
    }
    let (probe, account) = match order.topology.speech {
        Speech::Mysql => ("mysql", "monitor"),
        Speech::Postgres => ("postgres", "postgres"),
        Speech::Http => return WEB_PROBE.to_owned(),
    };
    // The lab's accounts have their names as passwords.
    format!(
        "[service.health]\nprobe = {probe:?}\n\
         [service.monitor]\nuser = {account:?}\npassword = {account:?}\n"
    )
}

/// Returns the tables of a service that parses HTTP, except those of its servers.
fn of_http(target: &Target) -> String {
    let mut text = String::new();
    if target.forwarded {
        text.push_str("[service.http]\nforwarded_from = [\"127.0.0.0/8\"]\n");
    }
    if target.sticky {
        text.push_str("[service.sticky]\ncookie = \"SERVER\"\n");
    }
    text
}

fn words(balance: Balance) -> String {
    let name = match balance {
        Balance::RoundRobin => "round-robin",
        Balance::LeastConnections => "least-connections",
        Balance::Source => "source",
        Balance::RandomTwo => "random-two",
        Balance::LeastLatency => "least-latency",
        Balance::First => "first",
    };
    format!("balance = \"{name}\"\n")
}
