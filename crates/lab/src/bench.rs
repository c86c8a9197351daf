//! `evenkeel-lab bench`: repeats the published experiments on this machine.

mod cell;
mod companion;
pub mod compare;
mod experiment;
mod fault;
mod keeper;
mod load;
mod machine;
pub(crate) mod outcome;
mod part;
mod progress;
pub mod report;
mod rows;
mod runner;
mod schedule;
mod settle;
pub(crate) mod statistics;
mod target;
mod topology;
mod versions;

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};
use clap::Args;

use crate::stop::Stop;
use experiment::{Depth, Experiment};
use keeper::{Keeper, Order};
use runner::{Limits, Runner};
pub use statistics::median;

/// Key of Evenkeel's own binary among the marks of the experiments.
const PROGRAM: &str = "the program evenkeel";

/// Experiments to run, and the length of the runs.
#[derive(Args, Debug)]
pub struct Options {
    /// Experiments to run: names or numbers (E1) of built-in ones, `all`, or your own files.
    experiments: Vec<String>,
    /// List the built-in experiments.
    #[arg(long)]
    list: bool,
    /// Quick run: two load points, few blocks, no fault trials (5 to 8 minutes per experiment).
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Full run, as published; takes hours.
    #[arg(long)]
    full: bool,
    /// Output directory for the report and all results; must not contain another run.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Resume an interrupted run with its experiments, seed and scale.
    #[arg(
        long,
        value_name = "DIR",
        conflicts_with_all = [
            "experiments", "out", "seed", "quick", "full", "blocks", "seconds", "target", "load",
            "trials",
        ],
    )]
    resume: Option<PathBuf>,
    /// Random seed for the order of runs and for the loads.
    #[arg(long)]
    seed: Option<u64>,
    /// Number of blocks [default: set by the experiment].
    #[arg(long)]
    blocks: Option<usize>,
    /// Duration of a run [default: set by the experiment].
    #[arg(long)]
    seconds: Option<u32>,
    /// Only targets whose name contains one of these words, or whose program is one of them.
    #[arg(long, value_delimiter = ',', value_name = "WORDS")]
    target: Vec<String>,
    /// Only loads whose name contains one of these words.
    #[arg(long, value_delimiter = ',', value_name = "WORDS")]
    load: Vec<String>,
    /// Number of trials per fault, 0 for none [default: set by the experiment].
    #[arg(long)]
    trials: Option<usize>,
}

/// Runs experiments and writes the report.
pub fn run(options: &Options) -> Result<ExitCode> {
    if options.list {
        return list();
    }
    let stop = Stop::on_signals()?;
    crate::raise_open_files_limit();
    let (mut runner, experiments) = match &options.resume {
        Some(directory) => resumed(directory, stop.clone())?,
        None => start_new(options, stop.clone())?,
    };
    runner.note_versions(runner::tool_versions(&experiments));
    let ended = runner.run(&experiments);
    let directory = ended.directory.display();
    let written = report::write(&ended.outcome, &ended.directory);
    match &written {
        Ok(page) => println!("{}", page.display()),
        // The results exist in spite of the error: `evenkeel-lab report` makes a report from them.
        Err(error) => eprintln!("no report: {error:#}; results: {directory}"),
    }
    if stop.is_asked_for() {
        eprintln!("interrupted; continue with: evenkeel-lab bench --resume {directory}");
        return Ok(ExitCode::from(130));
    }
    if let Some(why) = ended.full {
        bail!("{why}");
    }
    Ok(match written {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    })
}

fn list() -> Result<ExitCode> {
    for one in experiment::all()? {
        println!("{}  {:24} {}", one.code, one.name, one.title);
    }
    Ok(ExitCode::SUCCESS)
}

fn start_new(options: &Options, stop: Stop) -> Result<(Runner, Vec<Experiment>)> {
    if options.experiments.is_empty() {
        bail!("no experiment given: use `all`, a name from --list, or your own file");
    }
    let experiments = experiment::find(&options.experiments)?;
    let depth = match (options.quick, options.full) {
        (true, _) => Depth::Quick,
        (_, true) => Depth::Full,
        _ => Depth::Normal,
    };
    let limits = Limits {
        blocks: options.blocks,
        seconds: options.seconds,
        targets: options.target.clone(),
        loads: options.load.clone(),
        trials: options.trials,
    };
    let directory = options
        .out
        .clone()
        .unwrap_or_else(runner::default_directory);
    let mut keeper = Keeper::create(&directory)?;
    let order = Order {
        experiments: options.experiments.iter().map(lasting).collect(),
        limits,
        marks: marks(&experiments),
        finished: Vec::new(),
    };
    keeper.remember(&order)?;
    let outcome = Runner::fresh(depth, options.seed.unwrap_or_else(random_seed), command());
    Ok((Runner::new(outcome, keeper, order, stop), experiments))
}

/// Makes a path absolute, so that the file is found from another directory too.
fn lasting(word: &String) -> String {
    let path = std::path::Path::new(word);
    let full = path.is_file().then(|| path.canonicalize().ok()).flatten();
    full.map_or_else(|| word.clone(), |path| path.display().to_string())
}

/// Resumes a run with its original experiments, seed and extent.
fn resumed(directory: &std::path::Path, stop: Stop) -> Result<(Runner, Vec<Experiment>)> {
    let (keeper, outcome) = Keeper::open(directory)?;
    let order = keeper.order()?;
    let experiments = experiment::find(&order.experiments)?;
    let marks = marks(&experiments);
    let mut known = order.marks.iter();
    if let Some((name, _)) = known.find(|(name, mark)| marks.get(*name) != Some(*mark)) {
        bail!(
            "{name} has changed since {} was started, so old and new results cannot be combined; \
             revert the change, or start a new run",
            directory.display()
        );
    }
    Ok((Runner::new(outcome, keeper, order, stop), experiments))
}

/// Returns a hash of each experiment and of the measured Evenkeel, to detect changes before a run
/// is resumed.
fn marks(experiments: &[Experiment]) -> BTreeMap<String, u64> {
    let of = |what: &dyn Fn(&mut DefaultHasher)| {
        let mut hasher = DefaultHasher::new();
        what(&mut hasher);
        hasher.finish()
    };
    let texts = experiments.iter().map(|one| {
        let mark = of(&|hasher| format!("{one:?}").hash(hasher));
        (one.name.clone(), mark)
    });
    let program = crate::balancer::find_binary().and_then(|path| Ok(std::fs::read(path)?));
    let program = program.map(|bytes| (PROGRAM.to_owned(), of(&|hasher| bytes.hash(hasher))));
    texts.chain(program).collect()
}

fn command() -> String {
    let words: Vec<String> = std::env::args().skip(1).collect();
    format!("evenkeel-lab {}", words.join(" "))
}

/// Returns a random seed that is short enough to type.
fn random_seed() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(1, |span| u64::from(span.subsec_micros()))
}
