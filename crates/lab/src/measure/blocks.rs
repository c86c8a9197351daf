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

/// Runs the comparison and prints medians, and ratios to the rival as median (interval).
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
    let mut rivals: Vec<&str> = rivals.iter().filter(took_part).copied().collect();
    let builds = measured
        .iter()
        .filter(|one| is_another_build(one, &measured));
    rivals.extend(builds.map(|build| build.name.as_str()));
    if rivals.is_empty() {
        // The values alone still make a table.
        rivals.push(comparison.rival);
    }
    for rival in rivals {
        println!("{}", rendered(comparison.metrics, rival, &measured));
    }
    Ok(())
}

/// Returns whether the target is another build of one of the targets.
fn is_another_build(target: &Measured, all: &[Measured]) -> bool {
    let is_of = |one: &Measured| target.name.starts_with(&format!("{} ", one.name));
    all.iter().any(is_of)
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

/// Returns the ratio within each block, which cancels slowdowns of a whole block: the median, and
/// an interval that contains the true median with at least 95 % confidence, from six blocks on.
fn ratio(target: &Measured, rival: &Measured, column: usize) -> String {
    let pairs = target.column(column).into_iter().zip(rival.column(column));
    let mut ratios: Vec<f64> = pairs
        .map(|(own, other)| own / other)
        .filter(|ratio| ratio.is_finite())
        .collect();
    ratios.sort_by(f64::total_cmp);
    let outside = outside_interval(ratios.len());
    let Some(middle) = median(&ratios) else {
        return "-".to_owned();
    };
    let (low, high) = (ratios[outside], ratios[ratios.len() - 1 - outside]);
    format!("{middle:.2} ({low:.2}..{high:.2})")
}

/// Returns the number of smallest values, and of largest ones, that are outside the interval of
/// the median.
///
/// The number of values below the true median has a binomial distribution, so each end may leave
/// out the values whose probabilities are 2.5 % together.
fn outside_interval(count: usize) -> usize {
    let mut outside = 0;
    let mut probability = 0.5_f64.powi(i32::try_from(count).unwrap_or(i32::MAX));
    let mut sum = probability;
    loop {
        // From the probability of `outside` values below the median to that of one more.
        probability *= (count - outside) as f64 / (outside + 1) as f64;
        sum += probability;
        if sum > 0.025 {
            return outside;
        }
        outside += 1;
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
    fn an_interval_leaves_out_the_extremes_of_many_blocks() {
        // From tables of the sign test, 95 %.
        let expected = [(1, 0), (5, 0), (6, 0), (8, 0), (9, 1), (12, 2), (20, 5)];
        for (count, outside) in expected {
            assert_eq!(outside_interval(count), outside, "{count} blocks");
        }
    }

    #[test]
    fn a_rival_that_used_nothing_gives_no_ratio() {
        assert_eq!(
            ratio(&measured("own", &[1.0]), &measured("direct", &[0.0]), 0),
            "-"
        );
    }
}
