//! Tests that each alarm has its own trigger, and no other.

use super::super::sample::{cell, experiment, outcome};
use super::super::{Bootstrap, summary};
use super::*;

fn alarms(experiment: Experiment) -> Vec<Alarm> {
    let outcome = outcome(experiment);
    let experiment = &outcome.experiments[0];
    of_experiment(
        &outcome,
        experiment,
        &summary::ratios(experiment, &Bootstrap::new(1)),
    )
}

fn kinds(experiment: Experiment) -> Vec<Kind> {
    alarms(experiment).iter().map(|alarm| alarm.kind).collect()
}

/// Five quiet blocks of a proxy at this rate, and of direct connections at 100 per second.
fn five_blocks(rate: f64) -> Experiment {
    let mut experiment = experiment(&["direct", "own"], &["read"]);
    experiment.references = vec!["direct".to_owned()];
    for block in 1..=5 {
        experiment
            .cells
            .push(cell("direct", "read", 8.0, block, 100.0));
        experiment.cells.push(cell("own", "read", 8.0, block, rate));
    }
    experiment
}

#[test]
fn a_quiet_run_raises_none() {
    assert_eq!(kinds(five_blocks(90.0)), []);
    assert_eq!(of_machine(&outcome(five_blocks(90.0))), []);
}

#[test]
fn a_load_generator_at_its_limit_is_named_with_its_place() {
    let mut experiment = five_blocks(90.0);
    experiment.cells[3].vitals.load_busy_percent = 97.0;
    let found = alarms(experiment);
    assert_eq!(found[0].kind, Kind::SaturatedLoad);
    assert_eq!(
        found[0].seen,
        "the load generator was busy up to 97 %, in 1 of 10 runs: read, 8 threads"
    );
}

#[test]
fn a_rate_that_was_not_offered_is_named_with_its_place() {
    let mut experiment = five_blocks(90.0);
    experiment.cells[2].vitals.offered_percent = Some(96.0);
    experiment.cells[4].vitals.offered_percent = Some(130.0);
    assert_eq!(kinds(experiment.clone()), [], "within 5 %, or catching up");
    experiment.cells[3].vitals.offered_percent = Some(88.0);
    let found = alarms(experiment);
    assert_eq!(found[0].kind, Kind::RateNotOffered);
    assert_eq!(
        found[0].seen,
        "the load generator offered less than the requested rate, up to 12 %, in 1 of 10 runs: \
         read, 8 threads"
    );
}

#[test]
fn faster_than_direct_needs_more_servers_for_an_excuse() {
    assert_eq!(kinds(five_blocks(150.0)), [Kind::FasterThanDirect]);
    assert_eq!(kinds(five_blocks(102.0)), [], "within 3 %");
    let mut two_servers = five_blocks(150.0);
    two_servers.targets[1].servers = 2;
    assert_eq!(kinds(two_servers), []);
}

#[test]
fn ports_and_steal_have_their_limits() {
    let mut ports = five_blocks(90.0);
    ports.cells[0].vitals.local_ports_used = 22_000;
    assert_eq!(kinds(ports.clone()), [], "78 % of 28,232");
    ports.cells[0].vitals.local_ports_used = 23_000;
    assert_eq!(kinds(ports), [Kind::PortExhaustion]);
    let mut steal = five_blocks(90.0);
    steal.cells[0].vitals.steal_percent = 1.9;
    assert_eq!(kinds(steal.clone()), []);
    steal.cells[0].vitals.steal_percent = 4.0;
    assert_eq!(kinds(steal), [Kind::StealTime]);
}

#[test]
fn missing_blocks_and_failed_runs_are_told() {
    let mut cut_short = five_blocks(90.0);
    cut_short.cells.truncate(6);
    let found = alarms(cut_short);
    assert_eq!(found[0].kind, Kind::FewBlocks);
    assert_eq!(found[0].seen, "3 of 5 blocks done");
    let mut quick = five_blocks(90.0);
    quick.blocks_wanted = 3;
    quick.cells.truncate(6);
    assert_eq!(kinds(quick), [Kind::FewBlocks]);
    let mut failed = five_blocks(90.0);
    failed.cells[9].failure = Some("gave up".to_owned());
    assert_eq!(kinds(failed), [Kind::FailedRuns]);
}

#[test]
fn many_places_are_cut_short() {
    let places: Vec<String> = (0..9).map(|number| number.to_string()).collect();
    assert_eq!(listed(&places), "0; 1; 2; 3; and 5 more");
    assert_eq!(listed(&places[..4]), "0; 1; 2; 3");
}

#[test]
fn a_busy_machine_and_an_early_end_concern_the_whole_run() {
    let mut outcome = outcome(five_blocks(90.0));
    outcome.machine.load_average = 1.4;
    outcome.ended_unix_s = None;
    let kinds: Vec<Kind> = of_machine(&outcome)
        .iter()
        .map(|alarm| alarm.kind)
        .collect();
    assert_eq!(kinds, [Kind::BusyBefore, Kind::Unfinished]);
}
