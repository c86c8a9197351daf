//! Runs fault trials: a server or balancer is removed and restored while a probe sends requests
//! through a target.

mod pair;
mod steps;
mod writes;

use std::time::Duration;

use anyhow::Result;

use super::experiment::{Effort, Fault, Part, Target, Victim};
use super::outcome::{Experiment, FaultTrial, Probe};
use super::part::TestBed;
use super::runner::Runner;
use super::target::Front;

/// Approximate duration of a trial, including the repair.
const TRIAL: Duration = Duration::from_secs(15);

/// A running target, and the servers or balancers that its trials break and repair.
trait Contestant {
    fn name(&self) -> &str;

    /// Runs one trial, from the calm before it to the calm after it.
    fn trial(&mut self, fault: &Fault) -> Result<Seen>;

    /// Restores the state before the trial. After an error no further trial is possible here.
    fn settle(&mut self) -> Result<()>;
}

/// Result of a trial.
struct Seen {
    trial: FaultTrial,
    /// Note on the trial that the numbers do not show.
    note: Option<String>,
}

/// Returns the approximate duration of all trials of a part.
pub(crate) fn time_of(part: &Part, effort: &Effort) -> Duration {
    let faults = part.fault.iter();
    let tried = |fault| {
        part.target
            .iter()
            .filter(|one| is_tried(fault, one))
            .count()
    };
    TRIAL * (faults.map(tried).sum::<usize>() * effort.trials) as u32
}

/// Returns whether the fault is tested with the target.
fn is_tried(fault: &Fault, target: &Target) -> bool {
    fault.names(target)
        && match fault.victim {
            Victim::Balancer => pair::can_be_tried(target),
            Victim::Primary | Victim::Secondary => writes::can_be_tried(target),
        }
}

/// Runs the trials of every fault in rounds; each round has one trial of each target.
pub(crate) fn run(
    bed: &mut TestBed,
    runner: &mut Runner,
    experiment: &mut Experiment,
) -> Result<()> {
    let trials = bed.effort.trials as u32;
    let part = bed.part;
    if trials == 0 || part.fault.is_empty() {
        return Ok(());
    }
    let present: Vec<usize> = bed
        .fronts
        .iter_mut()
        .filter_map(|slot| slot.front.take().map(|_| slot.number))
        .collect();
    if part.fault.iter().any(|one| one.victim != Victim::Balancer) {
        lift_shares(bed, experiment);
    }
    for fault in &part.fault {
        let targets = present.iter().map(|number| &part.target[*number]);
        let wanted: Vec<&Target> = targets.filter(|target| is_tried(fault, target)).collect();
        let mut contestants = match fault.victim {
            Victim::Balancer => pair::contestants((fault, &wanted), bed, runner, experiment),
            _ => writes::contestants(&wanted, bed, runner, experiment),
        };
        let count = contestants.len();
        for trial in 1..=trials {
            runner.begin_block(experiment)?;
            for turn in 0..count {
                runner.check()?;
                let contestant = &mut *contestants[(trial as usize + turn) % count];
                one(contestant, (fault, trial), runner, experiment)?;
            }
        }
    }
    Ok(())
}

/// Removes the processor limits: with a share of a core, a server needs most of a minute to
/// restart.
fn lift_shares(bed: &TestBed, experiment: &mut Experiment) {
    let part = bed.part;
    let note = format!(
        "{}: in the fault trials the servers are held to no share of the processor.",
        part.name
    );
    let is_lifted = !part.servers.cpu_percent.is_empty() && bed.topology.lift_shares().is_ok();
    if is_lifted && !experiment.notes.contains(&note) {
        experiment.notes.push(note);
    }
}

/// Adds the configurations of the trials to those of the other runs.
fn note_start(front: &Front, experiment: &mut Experiment) {
    let mut rows = experiment.targets.iter_mut();
    let Some(row) = rows.find(|row| row.name == front.name) else {
        return;
    };
    for config in &front.configs {
        let mut config = config.clone();
        config.name = format!("{} (fault trials)", config.name);
        row.configs.retain(|old| old.name != config.name);
        row.configs.push(config);
    }
    for note in &front.notes {
        if !row.notes.contains(note) {
            row.notes.push(note.clone());
        }
    }
}

/// Runs one trial, unless an earlier run has done it.
fn one(
    contestant: &mut dyn Contestant,
    (fault, number): (&Fault, u32),
    runner: &mut Runner,
    experiment: &mut Experiment,
) -> Result<()> {
    let name = contestant.name().to_owned();
    let is_this =
        |old: &FaultTrial| old.target == name && old.scenario == fault.name && old.trial == number;
    if experiment
        .faults
        .iter()
        .any(|old| is_this(old) && old.failure.is_none())
    {
        runner.progress.skipped(TRIAL);
        return Ok(());
    }
    let at = format!("{name}, {}, trial {number}", fault.name);
    experiment.failures.retain(|failure| failure.at != at);
    runner.progress.now(&at);
    let mut outcome = match contestant.trial(fault) {
        Ok(seen) => {
            let new = seen.note.filter(|note| !experiment.notes.contains(note));
            experiment.notes.extend(new);
            seen.trial
        }
        Err(error) => FaultTrial {
            failure: Some(format!("{error:#}")),
            ..FaultTrial::default()
        },
    };
    outcome.target.clone_from(&name);
    outcome.scenario.clone_from(&fault.name);
    outcome.trial = number;
    outcome.probe_ms = 10.0;
    report_outcome(&outcome, &at, runner, experiment);
    runner.progress.done(TRIAL);
    experiment.faults.retain(|old| !is_this(old));
    experiment.faults.push(outcome);
    contestant.settle()
}

fn report_outcome(
    outcome: &FaultTrial,
    at: &str,
    runner: &mut Runner,
    experiment: &mut Experiment,
) {
    match (&outcome.failure, outcome.outage_ms()) {
        (Some(why), _) => runner.fail(experiment, at, why),
        (None, Some(ms)) => {
            let counts = match outcome.probe {
                Probe::Writes => format!("lost {}, doubled {}", outcome.lost, outcome.doubled),
                Probe::Pages => format!("{} tries failed", outcome.failed),
            };
            let line = format!("{at}: outage {ms:.0} ms, {counts}");
            runner.progress.event(&line);
        }
        (None, None) => runner
            .progress
            .event(&format!("{at}: no try ever succeeded again")),
    }
}
