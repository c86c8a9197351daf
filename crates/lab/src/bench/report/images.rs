//! Writes the figures of a run as SVG files that a page can show without the report.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;

use super::figure::{self, dark_rules};
use super::html::{Html, Svg};
use super::{read, replace};
use crate::bench::outcome::{Experiment, Figure, Outcome};
use crate::bench::statistics::{Bootstrap, analyse};

/// Margin around a drawing, in drawing pixels.
const MARGIN: i32 = 24;

/// The run whose figures are drawn, and the directory for the files.
#[derive(Args, Debug)]
pub struct Options {
    /// The directory of a run, or a file with its results: outcome.json or report.json.
    run: PathBuf,
    /// The directory that receives one SVG file for each figure.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
}

/// Draws every figure that the results ask for.
///
/// Returns an error when the results cannot be read, a file cannot be written, or nothing was
/// drawn.
pub fn run(options: &Options) -> Result<ExitCode> {
    let outcome = read(&options.run)?;
    std::fs::create_dir_all(&options.to)
        .with_context(|| format!("cannot make the directory {}", options.to.display()))?;
    let paths = write(&outcome, &options.to)?;
    if paths.is_empty() {
        bail!("{}: no figure has data", options.run.display());
    }
    for path in &paths {
        println!("{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes the files and returns their paths.
fn write(outcome: &Outcome, directory: &Path) -> Result<Vec<PathBuf>> {
    let analysis = analyse(outcome);
    let bootstrap = Bootstrap::new(outcome.seed);
    let mut paths = Vec::new();
    for (experiment, analysed) in outcome.experiments.iter().zip(&analysis.experiments) {
        for wanted in &experiment.figures {
            let drawn = figure::draw(experiment, wanted, &analysed.summaries, &bootstrap)?;
            if let Some(svg) = drawn {
                let path = directory.join(file_name(experiment, wanted));
                replace(&path, &stand_alone(&svg, &wanted.title))?;
                paths.push(path);
            }
        }
    }
    Ok(paths)
}

/// Returns the experiment and the title in lower case, with hyphens for all characters that are
/// neither letters nor digits: `two-databases-point-selects.svg`.
fn file_name(experiment: &Experiment, wanted: &Figure) -> String {
    let words = format!("{} {}", experiment.name, wanted.title).to_lowercase();
    let words = words.split(|character: char| !character.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    format!("{}.svg", words.join("-"))
}

/// Adds to a drawing what the report's page gives it: a title, a font, a margin, dark colors. The
/// natural size is the size on a page.
fn stand_alone(svg: &Svg, title: &str) -> String {
    let Some((width, height)) = size(&svg.0) else {
        return svg.0.clone();
    };
    let mut html = Html::default();
    html.element("title", title);
    let (outer_width, outer_height) = (width + 2 * MARGIN, height + 2 * MARGIN);
    let scale = figure::SCALE;
    let style = format!(
        "text{{font-family:system-ui,-apple-system,'Segoe UI','Liberation Sans',sans-serif}}\
         .ground{{fill:#fefefe}}\
         @media (prefers-color-scheme:dark){{{}.ground{{fill:#151b23}}}}",
        dark_rules()
    );
    let drawn = svg.0.split_once('>').map_or("", |(_, rest)| rest);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"{}\" height=\"{}\" \
         viewBox=\"-{MARGIN} -{MARGIN} {outer_width} {outer_height}\">\n{}\
         <style>{style}</style>\n<rect class=\"ground\" x=\"-{MARGIN}\" y=\"-{MARGIN}\" \
         width=\"{outer_width}\" height=\"{outer_height}\" rx=\"16\"/>{drawn}\n",
        outer_width / scale,
        outer_height / scale,
        html.finish(),
    )
}

/// Returns the size that the charting library wrote into a drawing.
fn size(drawing: &str) -> Option<(i32, i32)> {
    let number = |name: &str| {
        let (_, rest) = drawing.split_once(&format!(" {name}=\""))?;
        rest.split_once('"')?.0.parse().ok()
    };
    Some((number("width")?, number("height")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::sample;

    #[test]
    fn each_figure_with_data_becomes_a_file_with_a_title_and_dark_colors() {
        let directory = tempfile::tempdir().unwrap();
        let paths = write(&sample::outcome(1), directory.path()).unwrap();
        assert_eq!(paths.len(), 8);
        assert!(paths[0].ends_with("router-against-haproxy-throughput-over-threads.svg"));
        let text = std::fs::read_to_string(&paths[0]).unwrap();
        assert!(text.contains("<title>Throughput over threads</title>"));
        assert!(text.contains("prefers-color-scheme:dark"));
        assert_eq!(text.matches("<svg").count(), 1);
        assert_eq!(text.matches("xmlns=").count(), 1);
    }
}
