//! Sets up the demonstration: two clusters behind Evenkeel, and a probe at each port.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use evenkeel_lab::{
    Balancer, Driver, Greeting, Lab, MariadbOptions, NewConnections, PostgresOptions, Server,
    Service, free_port,
};
use serde_json::Value;

const SBTEST_ROWS: u32 = 20_000;
const NEWCOMER_EVERY: Duration = Duration::from_millis(20);
const NEWCOMER_LIMIT: Duration = Duration::from_secs(10);

/// One database behind Evenkeel.
pub(crate) struct Act {
    /// Title.
    pub(crate) title: &'static str,
    pub(crate) driver: Driver,
    /// Servers, the primary first.
    pub(crate) servers: Vec<Server>,
    pub(crate) reads: Service,
    pub(crate) writes: Service,
    greeting: Greeting,
}

impl Act {
    /// Returns the server to kill.
    pub(crate) fn victim(&self) -> Result<&Server> {
        self.servers.last().context("a cluster has servers")
    }

    /// Opens new connections for reads until it is finished.
    pub(crate) fn newcomers(&self) -> NewConnections {
        NewConnections::start(
            self.reads.listen,
            self.greeting,
            NEWCOMER_EVERY,
            NEWCOMER_LIMIT,
        )
    }
}

/// Starts both clusters concurrently.
pub(crate) fn acts(lab: &Lab) -> Result<[Act; 2]> {
    let sbtest_rows = Some(SBTEST_ROWS);
    let (mariadb, postgres) = thread::scope(|scope| {
        let mariadb = scope.spawn(|| {
            lab.mariadb(MariadbOptions {
                replicas: 2,
                sbtest_rows,
                ..Default::default()
            })
        });
        let postgres = lab.postgres(PostgresOptions {
            replicas: 1,
            sbtest_rows,
            ..Default::default()
        });
        (mariadb.join().expect("starting does not panic"), postgres)
    });
    let (mariadb, postgres) = (mariadb?.servers(), postgres?.servers());
    Ok([
        act("MariaDB", "mysql", Driver::Mysql, Greeting::Mysql, mariadb),
        act(
            "PostgreSQL",
            "postgres",
            Driver::Pgsql,
            Greeting::Postgres,
            postgres,
        ),
    ])
}

fn act(
    title: &'static str,
    probe: &str,
    driver: Driver,
    greeting: Greeting,
    servers: Vec<Server>,
) -> Act {
    let service = |role: &str, servers: &[Server]| {
        let name = format!("{}-{role}", title.to_lowercase());
        let listen = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let mut service = Service::new(&name, listen, probe, servers);
        // The load uses the whole machine, so a slow login does not mean a dead server. The killed
        // one is detected by its refused connections, much earlier.
        service.timeout_ms = Some(3000);
        service
    };
    let reads = service("reads", &servers);
    let mut writes = service("writes", &servers);
    writes.extra.push("role = \"primary\"".to_owned());
    Act {
        title,
        driver,
        servers,
        reads,
        writes,
        greeting,
    }
}

/// Starts Evenkeel in front of both clusters.
pub(crate) fn balancer(acts: &[Act]) -> Result<Balancer> {
    let services = acts
        .iter()
        .flat_map(|act| [act.reads.toml(), act.writes.toml()]);
    let config: String = services.collect();
    Balancer::start(&format!("[engine]\nworkers = 2\n\n{config}"))
}

/// Returns the connections that a service has opened to each server so far.
pub(crate) fn shares(status: &Value, service: &str) -> Vec<(String, u64)> {
    let services = status["services"].as_array().into_iter().flatten();
    let found = services.filter(|entry| entry["name"] == service);
    let servers = found
        .filter_map(|entry| entry["servers"].as_array())
        .flatten();
    servers
        .map(|server| {
            let name = server["name"].as_str().unwrap_or_default().to_owned();
            (name, server["sessions"]["total"].as_u64().unwrap_or(0))
        })
        .collect()
}

/// Returns Evenkeel's state of a server, for example `up`.
pub(crate) fn state_of(status: &Value, service: &str, server: &str) -> String {
    let services = status["services"].as_array().into_iter().flatten();
    let servers = services
        .filter(|entry| entry["name"] == service)
        .filter_map(|entry| entry["servers"].as_array())
        .flatten();
    let state = servers
        .filter(|entry| entry["name"] == server)
        .find_map(|entry| entry["state"].as_str());
    state.unwrap_or("unknown").to_owned()
}
