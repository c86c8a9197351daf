//! Runs one trial of a cluster's servers, from calm to calm.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde_json::Value;

use super::super::super::experiment::{Fault, How, Sends, Victim};
use super::super::super::outcome::{FaultStep, FaultTrial};
use super::super::super::target::Front;
use super::super::Seen;
use super::super::steps::{cut, ms};
use crate::scenario::{self, Change};
use crate::write_probe::{Outage, WriteLog};
use crate::{Scenario, Server, WriteProbe, WriteProbeOptions, eventually};

/// Successful writes required before and after a fault.
const CALM_WRITES: usize = 30;
/// Limit for the writes to return.
const RETURN_LIMIT: Duration = Duration::from_secs(30);
/// Downtime of a secondary.
const AWAY: Duration = Duration::from_millis(1500);

pub(super) struct Trial<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) front: &'a Front,
    pub(super) fault: &'a Fault,
}

impl Trial<'_> {
    pub(super) fn run(&self) -> Result<Seen> {
        let old = self.victim()?;
        let address = *self
            .front
            .addresses(Sends::Writes)
            .first()
            .context("the target has no port for writes")?;
        let options = WriteProbeOptions::new(self.scenario.kind.driver(), address);
        // A balancer that has just started may not know the primary yet.
        let probe = eventually(RETURN_LIMIT, "a first write", || {
            Ok(WriteProbe::start(options).ok())
        })?;
        wait_undisturbed(&probe, SystemTime::now()).context("writes before the fault")?;
        let last_event = self.events().len();
        let change = self.inject_fault(&old)?;
        let is_back = wait_undisturbed(&probe, change.writable_at).is_ok();
        let known_by = SystemTime::now();
        self.scenario
            .bring_back(&old)
            .context("the server's return")?;
        let stays_back = !is_back || wait_undisturbed(&probe, SystemTime::now()).is_ok();
        let log = probe.finish();
        self.scenario.wait_caught_up()?;
        let mut trial = self.verified(&log, &old)?;
        let seen = outage(&log, &change, known_by);
        let silence = log.longest_silence(change.started, known_by);
        trial.silence_ms = silence.map(|silence| silence.as_secs_f64() * 1000.0);
        trial.first_error_ms = seen
            .as_ref()
            .map(|seen| ms(seen.first_error, change.started));
        trial.first_success_ms = seen
            .as_ref()
            .filter(|_| is_back)
            .and_then(|seen| Some(ms(seen.first_success?, change.started)));
        if let Some(success_ms) = trial.first_success_ms {
            let events = self.events().split_off(last_event);
            trial.steps = self.steps(&change, success_ms, &events, &old);
        }
        Ok(Seen {
            trial,
            note: (!stays_back).then(|| self.note_of_return()),
        })
    }

    /// Returns the note for balancers without cluster support, which send the writes to a former
    /// primary after its return.
    fn note_of_return(&self) -> String {
        format!(
            "{}, {}: after the server's return writes failed again, until the first server was \
             the primary again",
            self.front.name, self.fault.name
        )
    }

    fn victim(&self) -> Result<Server> {
        let writer = self.scenario.writer()?;
        if self.fault.victim == Victim::Primary {
            return Ok(writer);
        }
        let mut others = self.scenario.servers.iter();
        let found = others.rfind(|one| one.name != writer.name && one.is_running());
        found.cloned().context("there is no secondary")
    }

    fn inject_fault(&self, old: &Server) -> Result<Change> {
        let started = SystemTime::now();
        let change = match (self.fault.victim, self.fault.how) {
            (Victim::Primary, How::Stop) => Some(scenario::How::Stopped),
            (Victim::Primary, How::Kill) => Some(scenario::How::Killed),
            _ => None,
        };
        if let Some(how) = change {
            return self
                .scenario
                .change(old, how)
                .context("the change of the primary");
        }
        match self.fault.how {
            How::Nothing => {}
            How::Stop => old.stop()?,
            How::Kill | How::Crash => old.kill()?,
        }
        std::thread::sleep(AWAY);
        Ok(Change {
            started,
            decided_at: None,
            writable_at: started,
        })
    }

    /// Compares the servers' rows with the acknowledged writes.
    fn verified(&self, log: &WriteLog, returned: &Server) -> Result<FaultTrial> {
        let seen = log.verify(&self.scenario.writer()?)?;
        let acknowledged = log.acknowledged().len();
        // The server that was down is a member again and has the rows of the others.
        let behind = log
            .verify(returned)?
            .lost
            .len()
            .saturating_sub(seen.lost.len());
        Ok(FaultTrial {
            acknowledged: acknowledged as u64,
            failed: (log.attempts.len() - acknowledged) as u64,
            lost: seen.lost.len() as u64,
            doubled: seen.doubled.len() as u64,
            unexpected: seen.unexpected.len() as u64,
            behind: behind as u64,
            ..FaultTrial::default()
        })
    }

    /// Returns the events that Evenkeel has reported; empty for other balancers.
    fn events(&self) -> Vec<Value> {
        let balancer = self.front.evenkeel();
        let output = balancer.and_then(|one| one.command(&["events", "--json"]).ok());
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let text = text.unwrap_or_default();
        text.lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect()
    }

    /// Splits the outage of a primary into steps at the known times.
    fn steps(
        &self,
        change: &Change,
        success_ms: f64,
        events: &[Value],
        old: &Server,
    ) -> Vec<FaultStep> {
        if self.fault.victim != Victim::Primary {
            return Vec::new();
        }
        let reported = |kind: &str, ending: &str| {
            let mut found = events.iter().filter(|event| {
                let what = event["what"].as_str().unwrap_or_default();
                let of_old = what.starts_with(&format!("{} ", old.name));
                let concerns = if kind == "state" { of_old } else { !of_old };
                event["kind"] == kind && concerns && what.contains(ending)
            });
            let at = found.next()?["at_unix_ms"].as_u64()?;
            Some(ms(UNIX_EPOCH + Duration::from_millis(at), change.started))
        };
        let decided_ms = change.decided_at.map(|at| ms(at, change.started));
        let writable_ms = ms(change.writable_at, change.started);
        let cuts = [
            ("detect", reported("state", "is down")),
            ("decide", decided_ms),
            ("promote", Some(writable_ms)),
            ("route", reported("primary", "is the primary")),
            ("reconnect", Some(success_ms)),
        ];
        cut(&cuts, success_ms)
    }
}

/// Returns the longest outage between the fault and the server's return. An outage without an end
/// counts as longest.
fn outage(log: &WriteLog, change: &Change, until: SystemTime) -> Option<Outage> {
    let mut outages = log.outages();
    outages.retain(|one| (change.started..=until).contains(&one.first_error));
    outages.into_iter().max_by_key(|one| {
        let end = one.first_success.unwrap_or(until);
        let length = end.duration_since(one.first_error).unwrap_or_default();
        (one.first_success.is_none(), length)
    })
}

/// Waits until enough writes begun after `since` have succeeded.
fn wait_undisturbed(probe: &WriteProbe, since: SystemTime) -> Result<()> {
    eventually(RETURN_LIMIT, "acknowledged writes", || {
        let log = probe.so_far();
        let later = log.attempts.iter().rev();
        let later = later.take_while(|attempt| attempt.started >= since);
        let count = later.filter(|attempt| attempt.is_acknowledged()).count();
        Ok((count >= CALM_WRITES).then_some(()))
    })
}
