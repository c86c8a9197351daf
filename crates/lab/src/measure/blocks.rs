//! Runs every target once per block, in rotating order, and compares within the blocks.

use anyhow::{Context, Result};
use evenkeel_lab::bench::median;

use crate::stop::Stop;
use crate::{row, table};

/// A measured value: name, unit, and number of significant decimals.
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) decimals: usize,
}

/// A target of the measurement; a run returns one value for each metric.
pub(crate) struct Target<'a> {
    pub(crate) name: String,
    pub(crate) run: Box<dyn FnMut() -> Result<Vec<f64>> + 'a>,
}

/// The values of one target, one row per block.
struct Measured {
    name: String,
    blocks: Vec<Vec<f64>>,
}

/// A comparison: its title, its metrics, and the rival with which all are compared.
pub(crate) struct Comparison<'a> {
    pub(crate) title: &'a str,
    pub(crate) metrics: &'a [Metric],
    pub(crate) rival: &'a str,
    pub(crate) blocks: usize,
}

/// Runs the comparison and prints medians, and ratios to the rival as median (smallest..largest).
pub(crate) fn interleaved(
    comparison: &Comparison,
    targets: &mut [Target],
    stop: &Stop,
) -> Result<()> {
    interleaved_against(&[comparison.rival], comparison, targets, stop)
}

/// Runs [`interleaved`], with one table for each of these rivals that took part.
pub(crate) fn interleaved_against(
    rivals: &[&str],
    comparison: &Comparison,
    targets: &mut [Target],
    stop: &Stop,
) -> Result<()> {
    let mut measured: Vec<Measured> = targets
        .iter()
        .map(|target| Measured {
            name: target.name.clone(),
            blocks: Vec::new(),
        })
        .collect();
    for block in 0..comparison.blocks {
        for turn in 0..targets.len() {
            stop.check()?;
            let index = (block + turn) % targets.len();
            let target = &mut targets[index];
            let values =
                (target.run)().with_context(|| format!("{}: {}", comparison.title, target.name))?;
            measured[index].blocks.push(values);
        }
        eprintln!(
            "{}: block {} of {}",
            comparison.title,
            block + 1,
            comparison.blocks
        );
    }
    println!("{}", comparison.title);
    let took_part = |rival: &&&str| measured.iter().any(|target| target.name == **rival);
    let present = rivals.iter().filter(took_part).copied();
    // Without any rival, the values alone still make a table.
    for rival in present.chain(rivals.first().filter(|one| !took_part(one)).copied()) {
        println!("{}", rendered(comparison.metrics, rival, &measured));
    }
    Ok(())
}

fn rendered(metrics: &[Metric], rival_name: &str, measured: &[Measured]) -> String {
    let rival = measured.iter().find(|target| target.name == rival_name);
    let mut heading = row![""];
    for metric in metrics {
        heading.extend([metric.name.to_owned(), format!("x {rival_name}")]);
    }
    let mut rows = vec![heading];
    for target in measured {
        let mut row = row![target.name];
        for (column, metric) in metrics.iter().enumerate() {
            row.push(format!(
                "{:.*}",
                metric.decimals,
                median(&target.column(column)).unwrap_or(f64::NAN)
            ));
            row.push(rival.map_or(String::new(), |rival| ratio(target, rival, column)));
        }
        rows.push(row);
    }
    table::columns(&rows)
}

impl Measured {
    fn column(&self, column: usize) -> Vec<f64> {
        self.blocks.iter().map(|values| values[column]).collect()
    }
}

/// Returns the ratio within each block, which cancels slowdowns of a whole block.
fn ratio(target: &Measured, rival: &Measured, column: usize) -> String {
    let pairs = target.column(column).into_iter().zip(rival.column(column));
    let mut ratios: Vec<f64> = pairs
        .map(|(own, other)| own / other)
        .filter(|ratio| ratio.is_finite())
        .collect();
    ratios.sort_by(f64::total_cmp);
    match (ratios.first(), ratios.last()) {
        (Some(least), Some(most)) => {
            let middle = median(&ratios).unwrap_or(f64::NAN);
            format!("{middle:.2} ({least:.2}..{most:.2})")
        }
        _ => "-".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(name: &str, values: &[f64]) -> Measured {
        let blocks = values.iter().map(|value| vec![*value]).collect();
        Measured {
            name: name.to_owned(),
            blocks,
        }
    }

    #[test]
    fn a_ratio_is_taken_within_each_block() {
        let (own, rival) = (
            measured("own", &[5.0, 20.0, 3.0]),
            measured("rival", &[10.0, 40.0, 4.0]),
        );
        assert_eq!(ratio(&own, &rival, 0), "0.50 (0.50..0.75)");
    }

    #[test]
    fn a_rival_that_used_nothing_gives_no_ratio() {
        assert_eq!(
            ratio(&measured("own", &[1.0]), &measured("direct", &[0.0]), 0),
            "-"
        );
    }
}
