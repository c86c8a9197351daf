//! Writes the balancer's config for servers of the lab.

use std::fmt::Write;
use std::net::SocketAddr;

use crate::Server;

/// A `[[service]]` of a config file; the fields may be changed before it is written.
#[derive(Clone, Debug)]
pub struct Service {
    /// Name of the service.
    pub name: String,
    /// Protocol, `tcp` or `http`.
    pub protocol: String,
    /// Address on which it listens.
    pub listen: SocketAddr,
    /// Balancing algorithm.
    pub balance: String,
    /// Name and address of each server.
    pub servers: Vec<(String, SocketAddr)>,
    /// Kind of probe; `mysql` and `postgres` get the lab's monitor account.
    pub probe: String,
    /// Time between two probes of a server, in ms.
    pub interval_ms: u32,
    /// Timeout of a probe in ms; `None` means the interval.
    pub timeout_ms: Option<u32>,
    /// Further lines of `[[service]]`, for example `slow_start_ms = 0`.
    pub extra: Vec<String>,
}

impl Service {
    /// Returns a service with round robin over these servers and frequent probes, as tests and
    /// demonstrations need.
    pub fn new(name: &str, listen: SocketAddr, probe: &str, servers: &[Server]) -> Service {
        Service {
            name: name.to_owned(),
            protocol: "tcp".to_owned(),
            listen,
            balance: "round-robin".to_owned(),
            servers: servers
                .iter()
                .map(|server| (server.name.clone(), server.address))
                .collect(),
            probe: probe.to_owned(),
            interval_ms: 500,
            timeout_ms: None,
            extra: Vec::new(),
        }
    }

    /// Returns the lines of the file.
    pub fn toml(&self) -> String {
        let Service {
            name,
            protocol,
            listen,
            balance,
            probe,
            interval_ms,
            timeout_ms,
            ..
        } = self;
        let servers: Vec<String> = self
            .servers
            .iter()
            .map(|(name, address)| format!("  {{ name = {name:?}, address = \"{address}\" }},\n"))
            .collect();
        let mut toml = format!(
            "[[service]]\nname = {name:?}\nprotocol = {protocol:?}\n\
             listen = \"{listen}\"\nbalance = {balance:?}\n\
             servers = [\n{}]\n",
            servers.concat()
        );
        for line in &self.extra {
            toml.push_str(line);
            toml.push('\n');
        }
        let _ = writeln!(
            toml,
            "[service.health]\nprobe = {probe:?}\ninterval_ms = {interval_ms}"
        );
        let timeout_ms = timeout_ms.unwrap_or(*interval_ms);
        let _ = writeln!(toml, "timeout_ms = {timeout_ms}\nrise = 2\nfall = 2");
        let _ = writeln!(toml, "dead_interval_ms_max = {interval_ms}");
        if matches!(probe.as_str(), "mysql" | "postgres") {
            toml.push_str("[service.monitor]\nuser = \"monitor\"\npassword = \"monitor\"\n");
        }
        toml
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_written_with_its_servers_and_the_monitor_account() {
        let address = SocketAddr::from(([127, 0, 0, 1], 20_001));
        let mut service = Service::new("reads", address, "mysql", &[]);
        service.servers.push(("db1".to_owned(), address));
        service.extra.push("retries = 3".to_owned());
        let table: toml::Table = service.toml().parse().expect("it is TOML");
        let written = &table["service"][0];
        assert_eq!(
            written["servers"][0]["address"].as_str(),
            Some("127.0.0.1:20001")
        );
        assert_eq!(written["retries"].as_integer(), Some(3));
        assert_eq!(written["monitor"]["user"].as_str(), Some("monitor"));
    }
}
