//! Writes the report: one self-contained page, and its content as JSON and CSV.

mod csv;
mod figure;
mod html;
pub mod images;
mod number;
mod page;
#[cfg(test)]
pub(crate) mod sample;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;

use super::keeper;
use super::outcome::{FORMAT, Outcome};
use super::statistics::{Analysis, analyse};

/// Run to report, and the destination.
#[derive(Args, Debug)]
pub struct Options {
    /// Directory of a run, or its outcome.json or report.json.
    run: PathBuf,
    /// Output directory [default: the directory of the run].
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
}

/// Writes the report from the existing results, including those of a killed run.
pub fn run(options: &Options) -> Result<ExitCode> {
    let file = results(&options.run);
    let folder = options
        .to
        .as_deref()
        .or(file.parent())
        .unwrap_or(Path::new("."));
    let page = write(&read(&file)?, folder)?;
    println!("{}", page.display());
    Ok(ExitCode::SUCCESS)
}

/// Returns the results' file; in a directory, the runner's own file is the newest.
fn results(run: &Path) -> PathBuf {
    if !run.is_dir() {
        return run.to_owned();
    }
    let own = run.join("outcome.json");
    if own.is_file() {
        own
    } else {
        run.join("report.json")
    }
}

/// The measured facts with the computed values; [`read`] takes only the facts.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    outcome: &'a Outcome,
    analysis: &'a Analysis,
}

/// Writes `report.html`, `report.json`, `cells.csv`, `ratios.csv` and `faults.csv` into a folder
/// and returns the page's path. Each file replaces its predecessor only when complete, the JSON
/// first: from it the others can be written again.
pub(crate) fn write(outcome: &Outcome, folder: &Path) -> Result<PathBuf> {
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    let analysis = analyse(outcome);
    let document = Document {
        outcome,
        analysis: &analysis,
    };
    let json = serde_json::to_string_pretty(&document)?;
    replace(&folder.join("report.json"), &json)?;
    replace(&folder.join("cells.csv"), &csv::cells(outcome))?;
    replace(&folder.join("ratios.csv"), &csv::ratios(&analysis))?;
    replace(&folder.join("faults.csv"), &csv::faults(outcome))?;
    let page = folder.join("report.html");
    replace(&page, &page::render(outcome, &analysis))?;
    Ok(page)
}

/// Reads a file that [`write()`] or the runner has written.
pub(crate) fn read(path: &Path) -> Result<Outcome> {
    let path = &results(path);
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let outcome: Outcome = serde_json::from_str(&text).with_context(|| {
        format!(
            "{} is not the outcome.json or report.json of a bench run",
            path.display()
        )
    })?;
    if outcome.format > FORMAT {
        anyhow::bail!(
            "{} was written by a newer program ({}): read it with that one",
            path.display(),
            outcome.program
        );
    }
    Ok(outcome)
}

fn replace(path: &Path, text: &str) -> Result<()> {
    keeper::replace(path, text.as_bytes())
        .with_context(|| format!("cannot write {}", path.display()))
}
