//! A cluster, Evenkeel in front of it with a read-write and a read-only port, and probes.

use std::net::SocketAddr;
use std::time::SystemTime;

use evenkeel_lab::{
    Balancer, ClusterKind, ReadProbe, ReadProbeOptions, Scenario, Server, WriteProbe,
    WriteProbeOptions,
};
use serde_json::Value;

use crate::harness::{done, loopback, service, wait_until};

pub(crate) struct TestBed {
    // In the order in which they are stopped.
    pub(crate) balancer: Balancer,
    pub(crate) writes: SocketAddr,
    pub(crate) reads: SocketAddr,
    pub(crate) scenario: Scenario,
}

impl TestBed {
    /// Starts with default settings; if the servers are not installed, prints the reason and
    /// returns `None`.
    pub(crate) fn set_up(kind: ClusterKind) -> Option<TestBed> {
        TestBed::set_with(kind, "")
    }

    /// Starts with further lines for the service of reads.
    pub(crate) fn set_with(kind: ClusterKind, of_reads: &str) -> Option<TestBed> {
        if let Some(why) = kind.missing() {
            println!("skipped: {why}");
            return None;
        }
        let scenario = Scenario::start(kind).unwrap();
        let (writes, reads) = (loopback(), loopback());
        let config = scenario.service("writes", writes, "primary", "")
            + &scenario.service("reads", reads, "replica", of_reads);
        let balancer = Balancer::start(&config).unwrap();
        let bed = TestBed {
            balancer,
            writes,
            reads,
            scenario,
        };
        bed.wait_whole();
        Some(bed)
    }

    pub(crate) fn server(&self, index: usize) -> &Server {
        &self.scenario.servers[index]
    }

    pub(crate) fn writer(&self) -> WriteProbe {
        let options = WriteProbeOptions::new(self.scenario.kind.driver(), self.writes);
        WriteProbe::start(options).unwrap()
    }

    pub(crate) fn reader(&self) -> ReadProbe {
        let options = ReadProbeOptions::new(self.scenario.kind.driver(), self.reads);
        ReadProbe::start(options).unwrap()
    }

    pub(crate) fn cluster(&self) -> Value {
        self.balancer.status().unwrap()["clusters"][0].clone()
    }

    pub(crate) fn primary(&self) -> Option<String> {
        self.cluster()["primary"].as_str().map(str::to_owned)
    }

    pub(crate) fn wait_primary(&self, server: &Server) {
        let what = format!("{} as the primary", server.name);
        self.wait(&what, || self.primary().as_ref() == Some(&server.name));
    }

    /// Returns the server's role in the cluster, with its lag and the reason.
    pub(crate) fn role(&self, server: &Server) -> Value {
        self.listed("reads", server)["role"].clone()
    }

    pub(crate) fn wait_role(&self, server: &Server, role: &str, because: &str) {
        let what = format!("{} as {role} ({because})", server.name);
        self.wait(&what, || {
            let now = self.role(server);
            now["role"] == role && now["reason"].as_str().unwrap_or_default().contains(because)
        });
    }

    pub(crate) fn listed(&self, name: &str, server: &Server) -> Value {
        let service = service(&self.balancer.status().unwrap(), name);
        let servers = service["servers"].as_array().unwrap();
        let found = servers.iter().find(|one| one["name"] == server.name);
        found.unwrap_or_else(|| panic!("{service:#}")).clone()
    }

    pub(crate) fn wait_problem(&self, words: &str) {
        self.wait(&format!("a problem: {words}"), || {
            let problems = self.cluster()["problems"].to_string();
            problems.contains(words)
        });
    }

    /// Waits until there is one primary, all other servers are replicas, and no problem is
    /// reported.
    pub(crate) fn wait_whole(&self) {
        self.wait("a whole cluster", || {
            let status = self.balancer.status().unwrap();
            let services = status["services"].as_array().unwrap();
            services.iter().all(|service| service["state"] == "up")
                && status["clusters"][0]["problems"] == Value::Array(Vec::new())
                && services[0]["servers"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .all(|server| {
                        let role = &server["role"]["role"];
                        server["state"] == "up" && (role == "primary" || role == "replica")
                    })
        });
    }

    /// Waits until this server has answered the reader.
    pub(crate) fn wait_read_by(&self, reader: &ReadProbe, server: &Server) {
        let since = SystemTime::now();
        self.wait(&format!("reads answered by {}", server.name), || {
            let ports = reader.answered_since(since);
            ports.contains(&server.address.port())
        });
    }

    pub(crate) fn wait_not_read_by(&self, reader: &ReadProbe, server: &Server) {
        self.wait(&format!("no reads answered by {}", server.name), || {
            let readings = reader.so_far();
            let last: Vec<_> = readings.iter().rev().take(10).collect();
            let port = server.address.port();
            last.iter().all(|one| one.outcome != Ok(port))
        });
    }

    pub(crate) fn wait_writes(&self, writer: &WriteProbe) {
        let since = SystemTime::now();
        self.wait("acknowledged writes", || {
            let log = writer.so_far().since(since);
            log.acknowledged().len() >= 10
        });
    }

    /// Returns the texts (`what`) of the last events.
    pub(crate) fn story(&self) -> Vec<String> {
        let text = done(&self.balancer, &["events", "--json"]);
        let events = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        events
            .map(|event| event["what"].as_str().unwrap().to_owned())
            .collect()
    }

    pub(crate) fn wait(&self, what: &str, is_so: impl FnMut() -> bool) {
        wait_until(&self.balancer, what, is_so);
    }
}

/// Checks that no read failed.
#[track_caller]
pub(crate) fn assert_all_read(reader: ReadProbe) {
    let readings = reader.finish();
    let failed: Vec<_> = readings.iter().filter(|one| one.outcome.is_err()).collect();
    assert!(failed.is_empty(), "of {}: {failed:#?}", readings.len());
    assert!(!readings.is_empty());
}
