//! Runs clients that continue after the death of their server.
//!
//! sysbench stops at the first lost connection. Configured not to, it crashes when it uses prepared
//! statements. Each client is therefore a separate process, restarted if it ends early.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Result;
use evenkeel_lab::sysbench::RunningSysbench;
use evenkeel_lab::{Driver, Sysbench, SysbenchReport};

/// Number of clients: few enough for a laptop, enough to keep two cores busy.
const CLIENTS: u32 = 8;

/// A running load.
pub(crate) struct Load {
    template: Sysbench,
    began: Instant,
    parts: Vec<Part>,
    samples: Vec<Sample>,
    outcome: Outcome,
}

/// Result of a load.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// Queries per second: the median over the requested seconds.
    pub(crate) qps: f64,
    /// 95th percentile of the latency in ms: the median over the requested seconds.
    pub(crate) p95_ms: f64,
    /// Number of sessions that were open on a server when it was killed.
    pub(crate) broken: u64,
    /// Number of refused new connections, with the first reason.
    pub(crate) refused: Vec<String>,
}

struct Part {
    sysbench: RunningSysbench,
    seen: usize,
    /// Second of the load in which it began.
    begun_at_s: usize,
}

struct Sample {
    at_s: usize,
    qps: f64,
    p95_ms: f64,
}

impl Load {
    pub(crate) fn start(
        driver: Driver,
        address: SocketAddr,
        script: &str,
        seconds: u32,
    ) -> Result<Load> {
        let template = Sysbench {
            threads: 1,
            seconds,
            script: script.to_owned(),
            ..Sysbench::new(driver, address)
        };
        let mut load = Load {
            template,
            began: Instant::now(),
            parts: Vec::new(),
            samples: Vec::new(),
            outcome: Outcome::default(),
        };
        for _ in 0..CLIENTS {
            load.begin_part()?;
        }
        Ok(load)
    }

    /// Reads new reports, and restarts clients that were disconnected.
    pub(crate) fn step(&mut self) -> Result<()> {
        for mut part in std::mem::take(&mut self.parts) {
            self.collect(&mut part);
            if part.sysbench.is_running() {
                self.parts.push(part);
            } else {
                self.end_part(part)?;
            }
        }
        Ok(())
    }

    pub(crate) fn is_running(&self) -> bool {
        !self.parts.is_empty()
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Returns the queries of the last full second.
    pub(crate) fn qps_now(&self) -> f64 {
        let last = self.samples.last().map_or(0, |sample| sample.at_s);
        self.qps_of(last.saturating_sub(1))
    }

    /// Returns the result; rate and latency are those of the seconds before `until_s`.
    pub(crate) fn outcome(&self, until_s: u32) -> Outcome {
        let seconds = 1..(until_s as usize).max(2);
        let rates = seconds
            .clone()
            .map(|second| self.qps_of(second))
            .filter(|qps| *qps > 0.0);
        let early = self
            .samples
            .iter()
            .filter(|sample| seconds.contains(&sample.at_s));
        Outcome {
            qps: median(rates.collect()),
            p95_ms: median(early.map(|sample| sample.p95_ms).collect()),
            ..self.outcome.clone()
        }
    }

    fn begin_part(&mut self) -> Result<()> {
        let begun_at_s = self.began.elapsed().as_secs();
        let left = u64::from(self.template.seconds).saturating_sub(begun_at_s);
        let seconds = u32::try_from(left).unwrap_or(0).max(1);
        let sysbench = Sysbench {
            seconds,
            ..self.template.clone()
        }
        .start()?;
        self.parts.push(Part {
            sysbench,
            seen: 0,
            begun_at_s: begun_at_s as usize,
        });
        Ok(())
    }

    fn collect(&mut self, part: &mut Part) {
        let seconds = part.sysbench.so_far().seconds;
        for (number, second) in seconds.iter().enumerate().skip(part.seen) {
            self.samples.push(Sample {
                at_s: part.begun_at_s + number,
                qps: second.qps,
                p95_ms: second.p95_ms,
            });
        }
        part.seen = seconds.len();
    }

    fn end_part(&mut self, part: Part) -> Result<()> {
        let report = part.sysbench.finish()?;
        if report.failure.is_none() {
            return Ok(());
        }
        self.count_failure(report);
        if self.began.elapsed().as_secs() < u64::from(self.template.seconds) {
            self.begin_part()?;
        }
        Ok(())
    }

    /// Counts a client that could not connect as refused, and one that lost its connection as
    /// broken: it was on the dead server.
    fn count_failure(&mut self, report: SysbenchReport) {
        let why = report.failure.unwrap_or_default();
        let words = why.to_lowercase();
        if words.contains("connection to database failed") || words.contains("unable to connect") {
            self.outcome.refused.push(why);
        } else {
            self.outcome.broken += 1;
        }
    }

    fn qps_of(&self, second: usize) -> f64 {
        self.samples
            .iter()
            .filter(|sample| sample.at_s == second)
            .map(|sample| sample.qps)
            .sum()
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
