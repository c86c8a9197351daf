//! Provides a primary with two replicas, a service with read/write split in front of it, and
//! probes.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Duration;

use evenkeel_lab::{
    Balancer, ClusterKind, Driver, ReadProbe, ReadProbeOptions, Scenario, Server, WriteProbe,
    WriteProbeOptions,
};
use serde_json::Value;

use super::certificates::file_of_sbtest;
use super::progress::{wait_for_primary, wait_reads, wait_writes};
use super::{service, wait_until};

pub(crate) struct TestBed {
    // Fields in the order in which they are dropped.
    pub(crate) balancer: Balancer,
    pub(crate) listen: SocketAddr,
    pub(crate) scenario: Scenario,
    /// Lines before those of the service.
    pub(crate) head: String,
}

impl TestBed {
    /// Starts the balancer in front of ready servers; returns when it knows the role of each.
    pub(crate) fn before(
        scenario: Scenario,
        listen: SocketAddr,
        head: &str,
        further: &str,
    ) -> TestBed {
        let config = head.to_owned()
            + &service_toml("db", scenario.kind, listen, &scenario.servers, further);
        let balancer = Balancer::start(&config).expect("evenkeel starts");
        let bed = TestBed {
            balancer,
            listen,
            scenario,
            head: head.to_owned(),
        };
        bed.wait_whole();
        bed
    }

    pub(crate) fn primary(&self) -> Server {
        self.scenario.writer().expect("a primary")
    }

    /// Returns the two replicas.
    pub(crate) fn replicas(&self) -> Vec<Server> {
        let primary = self.primary().name;
        let servers = self.scenario.servers.iter();
        servers.filter(|one| one.name != primary).cloned().collect()
    }

    pub(crate) fn writer(&self) -> WriteProbe {
        let mut options = WriteProbeOptions::new(self.scenario.kind.driver(), self.listen);
        options.connect_limit = Duration::from_secs(15);
        options.write_limit = Duration::from_secs(15);
        WriteProbe::start(options).expect("it starts")
    }

    pub(crate) fn reader(&self) -> ReadProbe {
        let mut options = ReadProbeOptions::new(self.scenario.kind.driver(), self.listen);
        options.limit = Duration::from_secs(5);
        if options.driver == Driver::Mysql {
            // A function of the tests. A query of `@@port` itself would go to the primary.
            options.port = Some("here()");
        }
        ReadProbe::start(options).expect("it starts")
    }

    /// Waits until the probes have had further success.
    pub(crate) fn wait_load(&self, writer: &WriteProbe, reader: &ReadProbe) {
        wait_writes(&self.balancer, writer);
        wait_reads(&self.balancer, reader);
    }

    /// Waits until this many clients wait for a primary.
    pub(crate) fn wait_for_primary(&self, clients: u64) {
        wait_for_primary(&self.balancer, "db", clients);
    }

    pub(crate) fn cluster(&self) -> Value {
        self.balancer.status().expect("a status")["clusters"][0].clone()
    }

    pub(crate) fn wait(&self, what: &str, is_so: impl FnMut() -> bool) {
        wait_until(&self.balancer, what, is_so);
    }

    pub(crate) fn wait_primary(&self, server: &Server) {
        self.wait(&format!("{} as the primary", server.name), || {
            self.cluster()["primary"] == server.name.as_str()
        });
    }

    /// Waits for one primary, all others replicas, and no problem.
    pub(crate) fn wait_whole(&self) {
        self.wait("a whole cluster", || {
            let status = self.balancer.status().expect("a status");
            let servers = service(&status, "db")["servers"].clone();
            status["clusters"][0]["primary"].is_string()
                && status["clusters"][0]["problems"] == Value::Array(Vec::new())
                && servers.as_array().expect("servers").iter().all(|server| {
                    let role = &server["role"]["role"];
                    server["state"] == "up" && (role == "primary" || role == "replica")
                })
        });
    }
}

/// Returns the lines of a service with these servers' protocol.
pub(crate) fn service_toml(
    name: &str,
    kind: ClusterKind,
    listen: SocketAddr,
    servers: &[Server],
    further: &str,
) -> String {
    let mut listed = String::new();
    for server in servers {
        let (name, address) = (&server.name, server.address);
        let entry = write!(listed, "{{ name = {name:?}, address = \"{address}\" }}, ");
        entry.expect("a string has room");
    }
    let (protocol, database) = match kind {
        ClusterKind::Postgres => ("postgres", "database = \"postgres\"\n"),
        _ => ("mysql", ""),
    };
    format!(
        "[[service]]\nname = {name:?}\nprotocol = {protocol:?}\nlisten = \"{listen}\"\n\
         servers = [{listed}]\n\
         [service.monitor]\nuser = \"monitor\"\npassword = \"monitor\"\n{database}\
         [service.auth]\nsource = \"file\"\nusers_file = {:?}\n{further}\n",
        file_of_sbtest()
    )
}
