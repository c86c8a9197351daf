//! Runs experiments one after another, saves results, and continues after failures.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use super::experiment::{self, Depth, Effort, Load, Target};
use super::keeper::{Keeper, Order};
use super::outcome::{self, Cell, FORMAT, Failure, Metric, Outcome};
use super::part::{self, TestBed, step_time};
use super::progress::{Progress, short};
use super::{companion, fault, machine, rows, target, versions};
use crate::stop::Stop;

/// Interval of saves: the maximum loss by a kill.
const SAVE_EVERY: Duration = Duration::from_secs(10);

/// Restrictions and changes of the experiments.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Limits {
    pub(crate) blocks: Option<usize>,
    pub(crate) seconds: Option<u32>,
    /// Substrings of the names or programs of targets to include; all if empty.
    pub(crate) targets: Vec<String>,
    /// Substrings of the names of loads to include; all if empty.
    pub(crate) loads: Vec<String>,
    /// Trials of each fault; zero runs none.
    pub(crate) trials: Option<usize>,
}

/// Result of a run.
pub(crate) struct Ended {
    pub(crate) outcome: Outcome,
    pub(crate) directory: PathBuf,
    /// Reason why the run ended early, with advice.
    pub(crate) full: Option<String>,
}

/// A whole run.
pub(crate) struct Runner {
    pub(crate) depth: Depth,
    pub(crate) progress: Progress,
    pub(crate) stop: Stop,
    pub(crate) limits: Limits,
    order: Order,
    outcome: Outcome,
    keeper: Keeper,
    /// Runs whose numbers have not been printed yet, without a live line.
    shown: Option<(String, String)>,
    /// Numbers of the last run, for the live line.
    last: String,
    saved: Instant,
}

impl Runner {
    /// Continues an outcome, which may be empty.
    pub(crate) fn new(outcome: Outcome, keeper: Keeper, order: Order, stop: Stop) -> Runner {
        let depth = match outcome.scale.as_str() {
            "quick" => Depth::Quick,
            "full" => Depth::Full,
            _ => Depth::Normal,
        };
        Runner {
            depth,
            progress: Progress::new(Duration::ZERO),
            stop,
            limits: order.limits.clone(),
            order,
            outcome,
            keeper,
            shown: None,
            last: String::new(),
            saved: Instant::now(),
        }
    }

    /// Returns an empty outcome.
    pub(crate) fn fresh(depth: Depth, seed: u64, command: String) -> Outcome {
        Outcome {
            format: FORMAT,
            program: format!("evenkeel-lab {}", env!("EVENKEEL_VERSION")),
            command,
            started_unix_s: unix_s(),
            ended_unix_s: None,
            scale: name(depth).to_owned(),
            seed,
            machine: machine::describe(),
            versions: BTreeMap::new(),
            notes: Vec::new(),
            experiments: Vec::new(),
        }
    }

    /// Runs all experiments. The outcome is valid up to its end even if the user stopped the run.
    pub(crate) fn run(mut self, experiments: &[experiment::Experiment]) -> Ended {
        self.outcome.ended_unix_s = None;
        // A run that is killed while the first servers start can be resumed too.
        self.save();
        let planned: Duration = experiments.iter().map(|one| self.time_of(one)).sum();
        self.progress = Progress::new(planned);
        self.progress.event(&format!(
            "{} runs, about {}, results in {}",
            name(self.depth),
            short(planned),
            self.keeper.directory().display()
        ));
        let mut whole = true;
        for wanted in experiments {
            whole &= self.experiment(wanted);
            if self.check().is_err() {
                break;
            }
        }
        if whole {
            self.outcome.ended_unix_s = Some(unix_s());
        }
        self.save();
        self.progress.clear();
        Ended {
            outcome: self.outcome,
            directory: self.keeper.directory().to_owned(),
            full: self.keeper.full().map(str::to_owned),
        }
    }

    /// Returns an error if the run must end: the user has stopped it, or the disk is full.
    pub(crate) fn check(&self) -> Result<()> {
        self.stop.check()?;
        match self.keeper.full() {
            Some(why) => bail!("{why}"),
            None => Ok(()),
        }
    }

    /// Runs one experiment; returns whether it is complete.
    fn experiment(&mut self, wanted: &experiment::Experiment) -> bool {
        self.progress
            .event(&format!("{} {}", wanted.code, wanted.title));
        let place = self.place_of(wanted);
        let mut state = self.outcome.experiments[place].clone();
        let effort = self.effort(wanted);
        let mut whole = true;
        for part in &wanted.part {
            let name = full_name(wanted, part);
            if self.order.finished.contains(&name) {
                continue;
            }
            for (load, why) in part::missing_tools(part) {
                let note = format!("{load}: left out: {why}");
                if !state.notes.contains(&note) {
                    state.notes.push(note);
                }
            }
            state.failures.retain(|failure| failure.at != part.name);
            match self.part(part, effort, &mut state) {
                Ok(()) => self.order.finished.push(name),
                Err(_) if self.stop.is_asked_for() => {
                    self.outcome.experiments[place] = state;
                    self.save();
                    self.progress.event("interrupted: what is done is kept");
                    return false;
                }
                Err(error) => {
                    whole = false;
                    self.fail(&mut state, &part.name, &format!("{error:#}"));
                    // Servers end, or do not start, if the disk is full.
                    self.keeper.check_disks();
                }
            }
            self.outcome.experiments[place] = state.clone();
            self.save();
            if self.check().is_err() {
                return false;
            }
        }
        whole
    }

    fn part(
        &mut self,
        part: &experiment::Part,
        effort: Effort,
        state: &mut outcome::Experiment,
    ) -> Result<()> {
        let has_target = part.target.iter().any(|one| self.wants(one, self.depth));
        if !has_target || !part.load.iter().any(|load| self.wants_load(load)) {
            return Ok(());
        }
        self.keeper.check_disks();
        self.check()?;
        let mut bed = TestBed::set_up(part, self, state, effort)?;
        bed.run(self, state)?;
        companion::run(&mut bed, self, state)?;
        fault::run(&mut bed, self, state)
    }

    /// Returns the index of the experiment's results; those of an earlier run are continued.
    fn place_of(&mut self, wanted: &experiment::Experiment) -> usize {
        let mut known = self.outcome.experiments.iter();
        if let Some(place) = known.position(|one| one.name == wanted.name) {
            return place;
        }
        let fresh = self.blank(wanted);
        self.outcome.experiments.push(fresh);
        self.outcome.experiments.len() - 1
    }

    fn blank(&self, wanted: &experiment::Experiment) -> outcome::Experiment {
        let effort = self.effort(wanted);
        let parts = || wanted.part.iter();
        let targets = parts().flat_map(|part| &part.target);
        let targets = targets.filter(|target| self.wants(target, self.depth));
        let loads = parts().flat_map(|part| &part.load);
        let loads: Vec<&Load> = loads
            .filter(|load| self.wants_load(load) && (self.depth != Depth::Quick || load.quick))
            .collect();
        let closed = loads.iter().map(|load| rows::of_load(load, &effort));
        let mut all: Vec<outcome::Load> = closed.collect();
        if effort.open_loop_percent.iter().next().is_some() {
            let open = loads.iter().filter(|load| load.open_loop);
            all.extend(open.map(|load| rows::of_companion(load, &effort)));
        }
        outcome::Experiment {
            name: wanted.name.clone(),
            title: if wanted.code.is_empty() {
                wanted.title.clone()
            } else {
                format!("{} {}", wanted.code, wanted.title)
            },
            study: wanted.study.clone(),
            topology: wanted.topology.trim().to_owned(),
            targets: targets.map(rows::of_target).collect(),
            loads: all,
            references: wanted.references.clone(),
            blocks_wanted: effort.blocks as u32,
            findings: wanted.finding.clone(),
            figures: wanted.figure.clone(),
            published: wanted.published.clone(),
            notes: wanted.notes.clone(),
            ..outcome::Experiment::default()
        }
    }

    /// Returns the experiment's effort, with the user's changes.
    fn effort(&self, wanted: &experiment::Experiment) -> Effort {
        let mut effort = wanted.effort(self.depth);
        effort.blocks = self.limits.blocks.unwrap_or(effort.blocks).max(1);
        effort.trials = self.limits.trials.unwrap_or(effort.trials);
        effort.seconds = self.limits.seconds.unwrap_or(effort.seconds).max(1);
        effort
    }

    /// Returns the approximate duration of an experiment.
    pub(crate) fn time_of(&self, wanted: &experiment::Experiment) -> Duration {
        const SERVERS: Duration = Duration::from_secs(25);
        let effort = self.effort(wanted);
        let mut time = Duration::ZERO;
        for part in &wanted.part {
            if self.order.finished.contains(&full_name(wanted, part)) {
                continue;
            }
            if part.target.iter().any(|one| self.wants(one, self.depth)) {
                time += SERVERS;
            }
            for load in part.load.iter().filter(|load| self.wants_load(load)) {
                if self.depth == Depth::Quick && !load.quick {
                    continue;
                }
                let takers = part.target.iter().filter(|target| {
                    let is_there = !target::is_absent(target.program);
                    target.takes(load) && is_there && self.wants(target, self.depth)
                });
                let takers = takers.count();
                let runs = takers * load.points(self.depth).len() * effort.blocks;
                time += step_time(&effort) * runs as u32;
                if load.open_loop {
                    let points = effort.open_loop_percent.iter().count();
                    time += step_time(&effort) * (takers * points * effort.blocks) as u32;
                }
            }
            time += fault::time_of(part, &effort);
        }
        time
    }

    pub(crate) fn wants(&self, target: &Target, depth: Depth) -> bool {
        let program = format!("{:?}", target.program).to_lowercase();
        let named = |word: &String| target.name.contains(word.as_str()) || program == *word;
        (depth != Depth::Quick || target.quick)
            && (self.limits.targets.is_empty() || self.limits.targets.iter().any(named))
    }

    pub(crate) fn wants_load(&self, load: &Load) -> bool {
        let named = |word: &String| load.name.contains(word.as_str());
        let wanted = self.limits.loads.is_empty() || self.limits.loads.iter().any(named);
        wanted && super::load::missing(&load.tool).is_none()
    }

    pub(crate) fn seed(&self) -> u64 {
        self.outcome.seed
    }

    pub(crate) fn note_versions(&mut self, versions: BTreeMap<String, String>) {
        self.outcome.versions.extend(versions);
    }

    /// Records the first command of a load as representative of all.
    pub(crate) fn note_command(&mut self, state: &mut outcome::Experiment, load: &str, raw: &str) {
        let mut loads = state.loads.iter_mut();
        let Some(row) = loads.find(|row| row.name == load && row.command.is_empty()) else {
            return;
        };
        let line = raw.lines().next().unwrap_or_default();
        line.trim_start_matches("$ ").clone_into(&mut row.command);
    }

    pub(crate) fn keep_raw(
        &mut self,
        state: &mut outcome::Experiment,
        path: &str,
        text: &str,
    ) -> String {
        let kept = self.keeper.keep_raw(path, text);
        if let Some(why) = self.keeper.take_write_error() {
            self.fail(state, "the generators' own output", &why);
        }
        kept
    }

    /// Prepares a block: saves the results and checks the disk space.
    pub(crate) fn begin_block(&mut self, state: &outcome::Experiment) -> Result<()> {
        self.take(state);
        self.save();
        self.keeper.check_disks();
        self.check()
    }

    fn take(&mut self, state: &outcome::Experiment) {
        let mut known = self.outcome.experiments.iter_mut();
        if let Some(kept) = known.find(|one| one.name == state.name) {
            kept.clone_from(state);
        }
    }

    /// Shows the current step and the result of the run before it.
    pub(crate) fn now(&self, at: &str) {
        if self.last.is_empty() {
            self.progress.now(at);
        } else {
            self.progress.now(&format!("{at}   before: {}", self.last));
        }
    }

    /// Adds a run and shows its numbers.
    pub(crate) fn add(
        &mut self,
        state: &mut outcome::Experiment,
        cell: Cell,
        at: &str,
        planned: Duration,
    ) {
        self.progress.done(planned);
        forget(state, &cell, at);
        if let Some(why) = &cell.failure {
            self.fail(state, at, why);
        }
        self.show(&cell);
        state.cells.push(cell);
        if self.saved.elapsed() > SAVE_EVERY {
            self.take(state);
            self.write();
        }
    }

    /// Shows all targets of a load and point on one line.
    fn show(&mut self, cell: &Cell) {
        let title = format!("block {} {} at {}:", cell.block, cell.load, cell.point);
        let numbers = numbers(cell);
        self.last.clone_from(&numbers);
        match &mut self.shown {
            Some((known, line)) if *known == title => {
                line.push_str("; ");
                line.push_str(&numbers);
            }
            _ => {
                self.flush();
                self.shown = Some((title, numbers));
            }
        }
    }

    pub(crate) fn flush(&mut self) {
        if let Some((title, line)) = self.shown.take() {
            let left = short(self.progress.left());
            self.progress
                .event(&format!("{title} {line} ({left} left)"));
        }
    }

    /// Records a failure, which is shown immediately and in the report.
    pub(crate) fn fail(&mut self, state: &mut outcome::Experiment, at: &str, why: &str) {
        let first = why.lines().next().unwrap_or_default();
        self.progress.event(&format!("FAILED {at}: {first}"));
        state.failures.push(Failure {
            at: at.to_owned(),
            why: why.to_owned(),
        });
    }

    fn save(&mut self) {
        self.flush();
        self.write();
    }

    fn write(&mut self) {
        self.saved = Instant::now();
        let saved = self.keeper.save(&self.outcome);
        if let Err(error) = saved.and_then(|()| self.keeper.remember(&self.order)) {
            let then = match self.keeper.full() {
                Some(_) => "",
                None => "; going on without",
            };
            self.progress.event(&format!("{error:#}{then}"));
        }
    }
}

/// Removes an earlier failed run and its failure.
fn forget(state: &mut outcome::Experiment, new: &Cell, at: &str) {
    let is_same = |old: &Cell| {
        (old.block, old.point) == (new.block, new.point)
            && old.target == new.target
            && old.load == new.load
    };
    let failed = state.cells.iter().filter(|old| is_same(old));
    let why: Vec<String> = failed.filter_map(|old| old.failure.clone()).collect();
    state
        .failures
        .retain(|old| old.at != at || !why.contains(&old.why));
    state.cells.retain(|old| !is_same(old));
}

/// Formats the rate and 99th percentile, or the failure.
fn numbers(cell: &Cell) -> String {
    let value = |metric| cell.values.get(&metric).copied();
    match (value(Metric::Rate), &cell.failure) {
        (_, Some(_)) | (None, _) => format!("{} failed", cell.target),
        (Some(rate), None) => {
            let slow = value(Metric::P99Ms)
                .or(value(Metric::MeanMs))
                .unwrap_or(0.0);
            format!("{} {rate:.0}/s {slow:.1} ms", cell.target)
        }
    }
}

/// Returns the part's name in the saved request.
fn full_name(experiment: &experiment::Experiment, part: &experiment::Part) -> String {
    format!("{}/{}", experiment.name, part.name)
}

/// Returns the versions of the generators that will run.
pub(crate) fn tool_versions(experiments: &[experiment::Experiment]) -> BTreeMap<String, String> {
    let parts = experiments.iter().flat_map(|one| &one.part);
    let loads = parts.flat_map(|part| &part.load);
    loads
        .filter_map(|load| versions::of_tool(load.tool))
        .collect()
}

pub(crate) fn name(depth: Depth) -> &'static str {
    match depth {
        Depth::Quick => "quick",
        Depth::Normal => "normal",
        Depth::Full => "full",
    }
}

fn unix_s() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |span| span.as_secs())
}

/// Returns the default directory of the results: `evenkeel-bench-` and the seconds since 1970.
pub(crate) fn default_directory() -> PathBuf {
    Path::new(&format!("evenkeel-bench-{}", unix_s())).to_owned()
}
