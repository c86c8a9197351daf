//! Creates small made-up experiments for the tests of the statistics.

use std::collections::BTreeMap;

use crate::bench::outcome::{Cell, Experiment, Load, Machine, Metric, Outcome, Target};

/// Returns a cell with this number of requests per second.
pub(crate) fn cell(target: &str, load: &str, point: f64, block: u32, rate: f64) -> Cell {
    Cell {
        target: target.to_owned(),
        load: load.to_owned(),
        point,
        block,
        values: BTreeMap::from([(Metric::Rate, rate)]),
        ..Cell::default()
    }
}

/// Returns an experiment with targets and loads of these names and no cells.
pub(crate) fn experiment(targets: &[&str], loads: &[&str]) -> Experiment {
    let target = |name: &&str| Target {
        name: (*name).to_owned(),
        title: (*name).to_owned(),
        program: if *name == "direct" { "" } else { name }.to_owned(),
        servers: 1,
        ..Target::default()
    };
    let load = |name: &&str| Load {
        name: (*name).to_owned(),
        title: (*name).to_owned(),
        counted: "requests".to_owned(),
        axis: "threads".to_owned(),
        ..Load::default()
    };
    Experiment {
        name: "made-up".to_owned(),
        targets: targets.iter().map(target).collect(),
        loads: loads.iter().map(load).collect(),
        blocks_wanted: 5,
        ..Experiment::default()
    }
}

/// Returns an outcome with one experiment, on a quiet machine of two cores.
pub(crate) fn outcome(experiment: Experiment) -> Outcome {
    Outcome {
        format: crate::bench::outcome::FORMAT,
        program: "evenkeel-lab 0.0.0".to_owned(),
        command: "evenkeel-lab bench made-up".to_owned(),
        started_unix_s: 1_700_000_000,
        ended_unix_s: Some(1_700_000_600),
        scale: "quick".to_owned(),
        seed: 1,
        machine: Machine {
            cores: 2,
            local_ports: (32_768, 60_999),
            ..Machine::default()
        },
        versions: BTreeMap::new(),
        notes: Vec::new(),
        experiments: vec![experiment],
    }
}
