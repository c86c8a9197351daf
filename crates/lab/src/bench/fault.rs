//! Fault trials: a server is taken away and given back while somebody writes through a target.

mod trial;

use std::time::Duration;

use anyhow::{Context, Result};

use super::experiment::{Effort, Fault, Part, Program, Target};
use super::outcome::{Experiment, FaultTrial};
use super::part::Stage;
use super::runner::Runner;
use super::target::{self, Front, Started};
use crate::Scene;
use trial::Trial;

/// About as long as a trial takes, with the server's return.
const TRIAL: Duration = Duration::from_secs(15);

/// About how long all of a part's trials take.
pub(crate) fn time_of(part: &Part, effort: &Effort) -> Duration {
    let targets = part
        .target
        .iter()
        .filter(|target| can_be_tried(target))
        .count();
    TRIAL * (part.fault.len() * targets * effort.trials) as u32
}

/// Every fault, in rounds in which each target has its turn.
pub(crate) fn run(
    stage: &mut Stage,
    runner: &mut Runner,
    experiment: &mut Experiment,
) -> Result<()> {
    let trials = stage.effort.trials as u32;
    let part = stage.part;
    if trials == 0 || part.fault.is_empty() {
        return Ok(());
    }
    let present: Vec<usize> = stage
        .fronts
        .iter_mut()
        .filter_map(|seat| seat.front.take().map(|_| seat.number))
        .collect();
    let Some(scene) = stage.topology.scene() else {
        experiment.notes.push(format!(
            "{}: no fault trials: nobody here takes over writes",
            part.name
        ));
        return Ok(());
    };
    if !part.servers.cpu_percent.is_empty() && stage.topology.lift_shares().is_ok() {
        let note = "in the fault trials the servers are held to no share of the processor";
        note_once(experiment, format!("{}: {note}.", part.name));
    }
    let wanted: Vec<&Target> = present
        .into_iter()
        .map(|number| &part.target[number])
        .filter(|target| can_be_tried(target))
        .collect();
    for fault in &part.fault {
        let fronts = start(&wanted, stage, runner, experiment);
        for trial in 1..=trials {
            runner.begin_block(experiment)?;
            for turn in 0..fronts.len() {
                runner.check()?;
                let front = &fronts[(trial as usize + turn) % fronts.len()];
                one(scene, front, (fault, trial), runner, experiment)?;
            }
        }
    }
    Ok(())
}

/// Whether its writes can follow a primary, and the experiment wants to know.
fn can_be_tried(target: &Target) -> bool {
    target.faults && follows(target.program)
}

/// Direct connections have nowhere to go, and nginx asks no server whether it takes writes.
fn follows(program: Program) -> bool {
    !matches!(
        program,
        Program::Direct
            | Program::OwnRoundRobin
            | Program::Nginx
            | Program::Glb
            | Program::Proxysql
            | Program::Maxscale
            | Program::MysqlProxy
            | Program::Ipvs
    )
}

/// The targets anew, told to follow the primary.
fn start(
    wanted: &[&Target],
    stage: &Stage,
    runner: &mut Runner,
    experiment: &mut Experiment,
) -> Vec<Front> {
    let mut fronts = Vec::new();
    for target in wanted {
        match target::start(target, &stage.topology, true) {
            Ok(Started::Front(front)) => {
                let mut rows = experiment.targets.iter_mut();
                if let Some(row) = rows.find(|row| row.name == target.name) {
                    for config in &front.configs {
                        let mut config = config.clone();
                        config.name = format!("{} (fault trials)", config.name);
                        row.configs.retain(|old| old.name != config.name);
                        row.configs.push(config);
                    }
                    row.notes.extend(
                        front
                            .notes
                            .iter()
                            .filter(|note| !row.notes.contains(note))
                            .cloned()
                            .collect::<Vec<_>>(),
                    );
                }
                fronts.push(*front);
            }
            Ok(Started::Missing(_)) => {}
            Err(error) => {
                let at = format!("the start of {} for fault trials", target.name);
                runner.fail(experiment, &at, &format!("{error:#}"));
            }
        }
    }
    fronts
}

/// One trial, unless an earlier run has done it.
fn one(
    scene: &Scene,
    front: &Front,
    (fault, number): (&Fault, u32),
    runner: &mut Runner,
    experiment: &mut Experiment,
) -> Result<()> {
    let is_this = |old: &FaultTrial| {
        old.target == front.name && old.scenario == fault.name && old.trial == number
    };
    if experiment
        .faults
        .iter()
        .any(|old| is_this(old) && old.failure.is_none())
    {
        runner.progress.skipped(TRIAL);
        return Ok(());
    }
    let at = format!("{}, {}, trial {number}", front.name, fault.name);
    experiment.failures.retain(|failure| failure.at != at);
    runner.progress.now(&at);
    let trial = Trial {
        scene,
        front,
        fault,
    };
    let mut outcome = match trial.run() {
        Ok(seen) => {
            note_return(front, fault, seen.stays_back, experiment);
            seen.trial
        }
        Err(error) => FaultTrial {
            failure: Some(format!("{error:#}")),
            ..FaultTrial::default()
        },
    };
    outcome.target.clone_from(&front.name);
    outcome.scenario.clone_from(&fault.name);
    outcome.trial = number;
    outcome.probe_ms = 10.0;
    match (&outcome.failure, outcome.outage_ms()) {
        (Some(why), _) => runner.fail(experiment, &at, &why.clone()),
        (None, Some(ms)) => runner.progress.event(&format!(
            "{at}: outage {ms:.0} ms, lost {}, doubled {}",
            outcome.lost, outcome.doubled
        )),
        (None, None) => runner
            .progress
            .event(&format!("{at}: writes never came back")),
    }
    runner.progress.done(TRIAL);
    experiment.faults.retain(|old| !is_this(old));
    experiment.faults.push(outcome);
    settle(scene)
}

/// Balancers that know no cluster send the writes to a former primary once it is there again.
fn note_return(front: &Front, fault: &Fault, stays_back: bool, experiment: &mut Experiment) {
    let note = format!(
        "{}, {}: after the server's return writes failed again, until the first server was the \
         primary again",
        front.name, fault.name
    );
    if !stays_back {
        note_once(experiment, note);
    }
}

fn note_once(experiment: &mut Experiment, note: String) {
    if !experiment.notes.contains(&note) {
        experiment.notes.push(note);
    }
}

/// All servers run and have all rows, and the first takes the writes again, which is where those
/// balancers send them that know no cluster; or nothing more can be tried here.
fn settle(scene: &Scene) -> Result<()> {
    for server in scene.servers.iter().filter(|server| !server.is_running()) {
        scene.bring_back(server)?;
    }
    scene.wait_caught_up()?;
    scene
        .hand_back()
        .context("the first server's return as primary")?;
    scene.wait_caught_up()
}
