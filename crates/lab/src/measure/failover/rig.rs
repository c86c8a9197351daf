//! Sets up Evenkeel in front of a cluster, with a permanent writer and reader.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use evenkeel_lab::read_probe::Reading;
use evenkeel_lab::{
    Balancer, ReadProbe, ReadProbeOptions, Scenario, Server, WriteProbe, WriteProbeOptions,
    eventually, free_port,
};
use serde_json::Value;

/// Limit for steps that are not measured, for example a node's rejoin.
const LIMIT: Duration = Duration::from_secs(90);

/// Successful writes required before and after a change.
const CALM_WRITES: usize = 30;

pub(super) struct Rig {
    // Fields in the order in which they are dropped.
    pub(super) writer: WriteProbe,
    pub(super) reader: ReadProbe,
    pub(super) balancer: Balancer,
    pub(super) scenario: Scenario,
}

impl Rig {
    pub(super) fn start(scenario: Scenario) -> Result<Rig> {
        let loopback = || SocketAddr::from(([127, 0, 0, 1], free_port()));
        let (writes, reads) = (loopback(), loopback());
        let balancer = Balancer::start(&scenario.config(writes, reads))?;
        settled(&balancer, &scenario)?;
        let driver = scenario.kind.driver();
        let writer = WriteProbe::start(WriteProbeOptions::new(driver, writes))?;
        let reader = ReadProbe::start(ReadProbeOptions::new(driver, reads))?;
        Ok(Rig {
            writer,
            reader,
            balancer,
            scenario,
        })
    }

    /// Waits until the cluster is complete and writes continue; returns the primary.
    pub(super) fn settle(&self) -> Result<&Server> {
        let primary = settled(&self.balancer, &self.scenario)
            .with_context(|| format!("Evenkeel said:\n{}", self.balancer.log()))?;
        self.wait_writes_since(SystemTime::now())?;
        self.scenario.named(&primary)
    }

    pub(super) fn wait_writes_since(&self, instant: SystemTime) -> Result<()> {
        eventually(LIMIT, "acknowledged writes", || {
            let log = self.writer.so_far();
            let later = log.attempts.iter().rev();
            let later = later.take_while(|attempt| attempt.started >= instant);
            let acknowledged = later.filter(|attempt| attempt.is_acknowledged()).count();
            Ok((acknowledged >= CALM_WRITES).then_some(()))
        })
        .with_context(|| format!("Evenkeel said:\n{}", self.balancer.log()))
    }

    /// Returns the primary that Evenkeel reports.
    pub(super) fn primary(&self) -> Result<&Server> {
        let status = self.balancer.status()?;
        let name = status["clusters"][0]["primary"].as_str();
        self.scenario.named(name.context("there is no primary")?)
    }

    /// Returns the number of reads begun since `instant`, and those that failed.
    pub(super) fn reads_since(&self, instant: SystemTime) -> (usize, Vec<Reading>) {
        let mut readings = self.reader.so_far();
        readings.retain(|reading| reading.started >= instant);
        let count = readings.len();
        readings.retain(|reading| reading.outcome.is_err());
        (count, readings)
    }

    pub(super) fn finish(self) -> Result<()> {
        self.writer.finish();
        self.reader.finish();
        self.balancer.stop()
    }
}

/// Waits until one server is the primary and all others are replicas, up and in use.
fn settled(balancer: &Balancer, scenario: &Scenario) -> Result<String> {
    eventually(LIMIT, "one primary and two replicas", || {
        let status = balancer.status()?;
        let Some(primary) = status["clusters"][0]["primary"].as_str() else {
            return Ok(None);
        };
        let services = status["services"].as_array().context("services")?;
        let all_up = services.iter().all(|service| service["state"] == "up");
        let servers = services[0]["servers"].as_array().context("servers")?;
        let is_settled = |server: &Value| {
            let role = if server["name"] == primary {
                "primary"
            } else {
                "replica"
            };
            server["state"] == "up" && server["role"]["role"] == role
        };
        let whole = servers.len() == scenario.servers.len() && servers.iter().all(is_settled);
        Ok((all_up && whole).then(|| primary.to_owned()))
    })
}
