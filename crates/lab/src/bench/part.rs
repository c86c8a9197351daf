//! Runs a part of an experiment: its servers, its targets, and their runs block by block.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};

use super::cell;
use super::experiment::{Depth, Effort, Load, Part, Sweep, Target};
use super::load::{self, Task};
use super::outcome::{Cell, Experiment, Failure, PartServers};
use super::runner::Runner;
use super::schedule::{Plan, Step};
use super::settle::settle;
use super::target::{self, Front, Started};
use super::topology::Topology;
use super::versions;
use crate::eventually;

/// Crashes after which a target is not started again.
const CRASHES_MAX: u32 = 2;

/// Limit for a server to restart after its death.
const RESTART_LIMIT: Duration = Duration::from_secs(30);

/// A part whose servers run.
pub(crate) struct TestBed<'a> {
    pub(crate) part: &'a Part,
    pub(crate) depth: Depth,
    pub(crate) effort: Effort,
    pub(crate) seed: u64,
    pub(crate) topology: Topology,
    pub(crate) fronts: Vec<FrontSlot>,
}

/// A target and its state in this part.
pub(crate) struct FrontSlot {
    /// Index in the part's list of targets.
    pub(crate) number: usize,
    pub(crate) front: Option<Box<Front>>,
    crashes: u32,
}

/// Parameters of a run, beyond those of its load.
#[derive(Clone, Copy)]
pub(crate) struct RunParameters {
    pub(crate) point: u32,
    pub(crate) seconds: u32,
    pub(crate) rate: Option<f64>,
    pub(crate) seed: u64,
}

impl<'a> TestBed<'a> {
    /// Starts servers and targets. Notes targets that are unavailable; returns an error if a server
    /// does not start.
    pub(crate) fn set_up(
        part: &'a Part,
        runner: &mut Runner,
        experiment: &mut Experiment,
        effort: Effort,
    ) -> Result<TestBed<'a>> {
        let depth = runner.depth;
        runner
            .progress
            .now(&format!("starting the servers of {:?}", part.name));
        let topology = Topology::start(&part.servers, part.servers.rows(depth))
            .inspect_err(|_| note_without_servers(part, experiment))
            .with_context(|| format!("the servers of {:?} do not start", part.name))?;
        runner.note_versions(versions::of_servers(&topology));
        for note in &topology.notes {
            let note = format!("{}: {note}", part.name);
            if !experiment.notes.contains(&note) {
                experiment.notes.push(note);
            }
        }
        experiment.servers.retain(|known| known.part != part.name);
        experiment.servers.push(PartServers {
            part: part.name.clone(),
            configs: topology.configs(),
        });
        let mut bed = TestBed {
            part,
            depth,
            effort,
            seed: runner.seed(),
            topology,
            fronts: Vec::new(),
        };
        for (number, target) in part.target.iter().enumerate() {
            if !runner.wants(target, depth) {
                continue;
            }
            runner.progress.now(&format!("starting {}", target.name));
            let front = bed.start(target, experiment);
            bed.fronts.push(FrontSlot {
                number,
                front,
                crashes: 0,
            });
        }
        Ok(bed)
    }

    /// Runs all blocks, after the discarded warm-up runs.
    pub(crate) fn run(&mut self, runner: &mut Runner, experiment: &mut Experiment) -> Result<()> {
        let plan = Plan {
            part: self.part,
            depth: self.depth,
            blocks: self.effort.blocks as u32,
            seed: self.seed,
            targets: self.present(),
        };
        let mut steps = plan.steps();
        steps.retain(|step| runner.wants_load(&self.part.load[step.load]));
        let planned = steps.len();
        steps.retain(|step| !self.is_done(step, experiment));
        let skipped = (planned - steps.len()) as u32;
        runner.progress.skipped(self.step_time() * skipped);
        if steps.is_empty() {
            return Ok(());
        }
        self.warm_up(runner, &steps)?;
        let mut block = 0;
        for step in &steps {
            if step.block != block {
                block = step.block;
                runner.begin_block(experiment)?;
            }
            self.step(runner, experiment, step)?;
        }
        Ok(())
    }

    /// Returns the approximate duration of one run with everything around it.
    pub(crate) fn step_time(&self) -> Duration {
        step_time(&self.effort)
    }

    fn present(&self) -> Vec<usize> {
        let slots = self.fronts.iter().filter(|slot| slot.front.is_some());
        slots.map(|slot| slot.number).collect()
    }

    fn is_done(&self, step: &Step, experiment: &Experiment) -> bool {
        let target = &self.part.target[step.target].name;
        let load = &self.part.load[step.load].name;
        experiment.cells.iter().any(|cell| {
            cell.block == step.block
                && cell.point == f64::from(step.point)
                && cell.target == *target
                && cell.load == *load
                && cell.failure.is_none()
        })
    }

    /// Runs each target with the first load, and each load with the first target.
    fn warm_up(&self, runner: &mut Runner, steps: &[Step]) -> Result<()> {
        let mut targets = Vec::new();
        let mut loads = Vec::new();
        for step in steps {
            if targets.contains(&step.target) && loads.contains(&step.load) {
                continue;
            }
            targets.push(step.target);
            loads.push(step.load);
            let (target, load) = (&self.part.target[step.target], &self.part.load[step.load]);
            let Some(front) = self.front(step.target) else {
                continue;
            };
            runner
                .progress
                .now(&format!("warming up: {}, {}", target.name, load.name));
            let parameters = RunParameters {
                point: match load.sweep {
                    Sweep::Requests => step.point.min(1000),
                    _ => step.point,
                },
                seconds: self.effort.warm_up_seconds,
                rate: None,
                seed: step.seed,
            };
            let task = self.task(load, front, parameters);
            task.run(&runner.stop)?;
        }
        Ok(())
    }

    fn step(
        &mut self,
        runner: &mut Runner,
        experiment: &mut Experiment,
        step: &Step,
    ) -> Result<()> {
        runner.check()?;
        let load = &self.part.load[step.load];
        let name = &self.part.target[step.target].name;
        let at = format!(
            "{name}, {}, {} {:?}, block {}",
            load.name, step.point, load.sweep, step.block
        )
        .to_lowercase();
        runner.now(&at);
        self.prepare(step.target, experiment, &at)?;
        let mut cell = match self.front(step.target) {
            None => Cell {
                failure: Some("the target no longer runs".to_owned()),
                ..Cell::default()
            },
            Some(front) => {
                let parameters = RunParameters {
                    point: step.point,
                    seconds: self.effort.seconds,
                    rate: None,
                    seed: step.seed,
                };
                let task = self.task(load, front, parameters);
                let (mut cell, raw) = cell::measure(&task, front, &self.topology, &runner.stop)?;
                runner.note_command(experiment, &load.name, &raw);
                let file = format!(
                    "raw/{}/{}/{}-{}-block-{}.txt",
                    experiment.name, load.name, name, step.point, step.block
                );
                cell.raw = runner.keep_raw(experiment, &file, &raw);
                cell
            }
        };
        cell.target.clone_from(name);
        cell.load.clone_from(&load.name);
        cell.point = f64::from(step.point);
        (cell.block, cell.turn) = (step.block, step.turn);
        runner.add(experiment, cell, &at, self.step_time());
        Ok(())
    }

    /// Prepares a run: waits for idle servers, and restarts dead servers or the target.
    pub(crate) fn prepare(
        &mut self,
        number: usize,
        experiment: &mut Experiment,
        at: &str,
    ) -> Result<()> {
        self.mend_servers(experiment, at)?;
        self.mend(number, experiment, at);
        settle(&self.topology)?;
        // Web servers have no roles: each of them is to be used.
        if self.topology.keeps_nothing()
            && let Some(front) = self.front(number)
        {
            front.wait_servers_up();
        }
        sleep(Duration::from_millis(self.effort.pause_ms));
        Ok(())
    }

    /// Restarts dead servers. Returns an error, which ends the part, if one does not start.
    fn mend_servers(&self, experiment: &mut Experiment, at: &str) -> Result<()> {
        while let Some((server, printed)) = self.topology.dead() {
            let name = server.name.clone();
            experiment.failures.push(Failure {
                at: at.to_owned(),
                why: format!(
                    "the server {name} has ended; it was started again. It said:\n{printed}"
                ),
            });
            // Processes left over from a killed server may still occupy its resources for a moment.
            eventually(RESTART_LIMIT, &format!("the return of {name}"), || {
                Ok(server.start().ok())
            })
            .with_context(|| format!("the server {name} ended and does not start again"))?;
        }
        Ok(())
    }

    /// Restarts a crashed target, up to `CRASHES_MAX` crashes.
    fn mend(&mut self, number: usize, experiment: &mut Experiment, at: &str) {
        let Some(slot) = self.fronts.iter_mut().find(|slot| slot.number == number) else {
            return;
        };
        let Some(printed) = slot.front.as_ref().and_then(|front| front.crash()) else {
            return;
        };
        slot.crashes += 1;
        let gives_up = slot.crashes > CRASHES_MAX;
        slot.front = None;
        let then = if gives_up {
            "it is not started again"
        } else {
            "it was started again"
        };
        experiment.failures.push(Failure {
            at: at.to_owned(),
            why: format!("it had ended before this run; {then}. It said:\n{printed}"),
        });
        if gives_up {
            return;
        }
        let front = self.start(&self.part.target[number], experiment);
        if let Some(slot) = self.fronts.iter_mut().find(|slot| slot.number == number) {
            slot.front = front;
        }
    }

    /// Starts a target and records the result for the report.
    fn start(&self, target: &Target, experiment: &mut Experiment) -> Option<Box<Front>> {
        let started = target::start(target, &self.topology, false);
        let wanted = self.topology.addresses.len();
        let mut entries = experiment.targets.iter_mut();
        let entry = entries.find(|entry| entry.name == target.name);
        let entry = entry.expect("every wanted target has its row");
        entry.servers = match target.program {
            super::experiment::Program::Direct => 1,
            _ => target.servers.unwrap_or(wanted) as u32,
        };
        match started {
            Ok(Started::Front(front)) => {
                entry.version.clone_from(&front.version);
                entry.configs.clone_from(&front.configs);
                entry.notes.clone_from(&front.notes);
                entry.missing = None;
                Some(front)
            }
            Ok(Started::Missing(why)) => {
                entry.missing = Some(why);
                None
            }
            Err(error) => {
                entry.missing = Some("does not start: see below, what went wrong".to_owned());
                experiment.failures.push(Failure {
                    at: format!("the start of {}", target.name),
                    why: format!("{error:#}"),
                });
                None
            }
        }
    }

    pub(crate) fn front(&self, number: usize) -> Option<&Front> {
        let slot = self.fronts.iter().find(|slot| slot.number == number)?;
        slot.front.as_deref()
    }

    pub(crate) fn task<'t>(
        &'t self,
        load: &'t Load,
        front: &'t Front,
        parameters: RunParameters,
    ) -> Task<'t> {
        let point = parameters.point;
        let (at_once, requests, rate) = match load.sweep {
            Sweep::Threads | Sweep::Connections => (point, None, parameters.rate),
            Sweep::Requests if parameters.rate.is_none() => {
                (load.at_once, Some(point.into()), None)
            }
            Sweep::Requests => (load.at_once, None, parameters.rate),
            Sweep::Rate => (
                load.at_once,
                None,
                parameters.rate.or(Some(f64::from(point))),
            ),
        };
        Task {
            load,
            driver: self.topology.driver(),
            addresses: front.addresses(load.sends),
            point: at_once,
            seconds: parameters.seconds,
            requests,
            rate,
            tables: self.part.servers.tables,
            rows: self.part.servers.rows(self.depth).max(1),
            seed: parameters.seed,
            work_dir: self.topology.work_dir(),
        }
    }
}

/// Records why none of the part's targets took part.
fn note_without_servers(part: &Part, experiment: &mut Experiment) {
    for target in &mut experiment.targets {
        if part.target.iter().any(|own| own.name == target.name) {
            let why = "its servers do not start: see below, what went wrong";
            target.missing = Some(why.to_owned());
        }
    }
}

/// Returns the approximate duration of a run with everything around it.
pub(crate) fn step_time(effort: &Effort) -> Duration {
    const AROUND: Duration = Duration::from_millis(250);
    Duration::from_secs(effort.seconds.into()) + Duration::from_millis(effort.pause_ms) + AROUND
}

/// Returns the loads whose generator is not installed, with the reason.
pub(crate) fn missing_tools(part: &Part) -> Vec<(String, String)> {
    let loads = part.load.iter();
    loads
        .filter_map(|load| Some((load.name.clone(), load::missing(&load.tool)?)))
        .collect()
}
