//! Runs the open-loop companion: the same load at a fixed rate, with latency counted from the
//! intended start.

use anyhow::Result;

use super::cell;
use super::experiment::{Load, Sweep, Tool};
use super::outcome::{Experiment, Metric};
use super::part::{RunParameters, TestBed};
use super::runner::Runner;

/// Runs each load that has a companion, at each percentage, block by block.
pub(crate) fn run(
    bed: &mut TestBed,
    runner: &mut Runner,
    experiment: &mut Experiment,
) -> Result<()> {
    let percentages: Vec<u32> = bed.effort.open_loop_percent.iter().collect();
    let part = bed.part;
    let loads = part.load.iter().filter(|load| load.open_loop);
    let loads: Vec<&Load> = loads
        .filter(|load| can_keep_a_rate(load) && runner.wants_load(load))
        .collect();
    if loads.is_empty() || percentages.is_empty() {
        return Ok(());
    }
    for block in 1..=bed.effort.blocks as u32 {
        runner.begin_block(experiment)?;
        for load in &loads {
            for percent in &percentages {
                turns(bed, runner, experiment, (load, *percent, block))?;
            }
        }
    }
    Ok(())
}

fn can_keep_a_rate(load: &Load) -> bool {
    match load.tool {
        Tool::Sysbench | Tool::Pgbench => {
            matches!(load.sweep, Sweep::Threads | Sweep::Connections)
        }
        Tool::Ab => true,
        Tool::Wrk | Tool::Httperf | Tool::Command => false,
    }
}

/// Runs every target once.
fn turns(
    bed: &mut TestBed,
    runner: &mut Runner,
    experiment: &mut Experiment,
    (load, percent, block): (&Load, u32, u32),
) -> Result<()> {
    let name = format!("{}-open", load.name);
    let count = bed.fronts.len();
    for turn in 0..count {
        runner.check()?;
        let number = bed.fronts[(block as usize + percent as usize + turn) % count].number;
        let target = &bed.part.target[number];
        if bed.front(number).is_none() || !target.takes(load) {
            continue;
        }
        let is_done = experiment.cells.iter().any(|cell| {
            cell.load == name
                && cell.target == target.name
                && cell.block == block
                && cell.point == f64::from(percent)
                && cell.failure.is_none()
        });
        let Some((point, peak)) = peak(experiment, &target.name, &load.name).filter(|_| !is_done)
        else {
            runner.progress.skipped(bed.step_time());
            continue;
        };
        let at = format!(
            "{}, {name}, {percent} % of its peak, block {block}",
            target.name
        );
        runner.now(&at);
        bed.prepare(number, experiment, &at)?;
        let Some(front) = bed.front(number) else {
            continue;
        };
        let parameters = RunParameters {
            point,
            seconds: bed.effort.seconds,
            rate: Some(peak * f64::from(percent) / 100.0),
            seed: runner.seed() + u64::from(block),
        };
        let task = bed.task(load, front, parameters);
        let (mut cell, raw) = cell::measure(&task, front, &bed.topology, &runner.stop)?;
        runner.note_command(experiment, &name, &raw);
        let file = format!(
            "raw/{}/{name}/{}-{percent}-block-{block}.txt",
            experiment.name, target.name
        );
        cell.raw = runner.keep_raw(experiment, &file, &raw);
        cell.load.clone_from(&name);
        cell.point = f64::from(percent);
        (cell.block, cell.turn) = (block, turn as u32 + 1);
        runner.add(experiment, cell, &at, bed.step_time());
    }
    Ok(())
}

/// Returns the point with the target's highest median rate over the blocks, and that rate.
fn peak(experiment: &Experiment, target: &str, load: &str) -> Option<(u32, f64)> {
    let own = || {
        let cells = experiment.cells.iter();
        cells.filter(|cell| cell.target == target && cell.load == load && cell.failure.is_none())
    };
    let mut points: Vec<u32> = own().map(|cell| cell.point as u32).collect();
    points.sort_unstable();
    points.dedup();
    let rate_at = |point: u32| {
        let here = own().filter(|cell| cell.point == f64::from(point));
        let mut rates: Vec<f64> = here
            .filter_map(|cell| cell.values.get(&Metric::Rate).copied())
            .collect();
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len() / 2).copied().unwrap_or(0.0)
    };
    let rates = points.into_iter().map(|point| (point, rate_at(point)));
    rates
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .filter(|(_, rate)| *rate > 0.0)
}

#[cfg(test)]
mod tests {
    use super::super::outcome::Cell;
    use super::*;

    #[test]
    fn the_peak_is_the_highest_median_not_the_highest_run() {
        let cell = |point: f64, block: u32, rate: f64| Cell {
            target: "a".to_owned(),
            load: "l".to_owned(),
            point,
            block,
            values: [(Metric::Rate, rate)].into(),
            ..Cell::default()
        };
        let experiment = Experiment {
            cells: vec![
                cell(1.0, 1, 10.0),
                cell(1.0, 2, 900.0),
                cell(1.0, 3, 11.0),
                cell(8.0, 1, 50.0),
                cell(8.0, 2, 51.0),
                cell(8.0, 3, 52.0),
            ],
            ..Experiment::default()
        };
        assert_eq!(peak(&experiment, "a", "l"), Some((8, 51.0)));
        assert_eq!(peak(&experiment, "b", "l"), None);
    }
}
