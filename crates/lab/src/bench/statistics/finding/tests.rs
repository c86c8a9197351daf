//! Tests of findings with made-up cells: each verdict for its reason.

use std::collections::BTreeMap;

use super::super::sample::{cell, experiment};
use super::*;
use crate::bench::outcome::{FaultTrial, Probe};

/// Five blocks of each target at each point. A target's rate is its number times the block's
/// weather, so that ratios are exact.
fn measured(rates: &[(&str, &[(f64, f64)])]) -> Experiment {
    let names: Vec<&str> = rates.iter().map(|(name, _)| *name).collect();
    let mut experiment = experiment(&names, &["read"]);
    for (block, weather) in [(1, 1.0), (2, 0.5), (3, 1.5), (4, 0.9), (5, 1.1)] {
        for (name, points) in rates {
            for (point, rate) in *points {
                let cell = cell(name, "read", *point, block, rate * weather);
                experiment.cells.push(cell);
            }
        }
    }
    experiment
}

#[track_caller]
fn judged(mut experiment: Experiment, check: &str, verdict: Verdict, numbers: &str) {
    let check = toml::from_str(check).expect("a check as an experiment's file has it");
    experiment.findings = vec![Finding {
        statement: "so it is".to_owned(),
        published: String::new(),
        checks: vec![check],
    }];
    let judged = &judge(&experiment, &Bootstrap::new(1))[0];
    assert_eq!(judged.numbers, [numbers]);
    assert_eq!(judged.verdict, verdict);
}

fn ratio_of(rate: f64, wanted: &str) -> (Experiment, String) {
    let experiment = measured(&[("direct", &[(8.0, 100.0)]), ("own", &[(8.0, rate)])]);
    let check =
        format!("check = \"ratio\"\nload = \"read\"\ntarget = \"own\"\nto = \"direct\"\n{wanted}");
    (experiment, check)
}

#[test]
fn a_ratio_must_lie_on_the_right_side_with_its_whole_interval() {
    let (experiment, check) = ratio_of(190.0, "at_least = 1.5");
    let numbers = "own has 1.90 times (1.90 to 1.90) the requests per second of direct \
         (read, 5 blocks); holds if at least 1.5";
    judged(experiment, &check, Verdict::Holds, numbers);
    let (experiment, check) = ratio_of(60.0, "at_most = 0.5");
    let numbers = "own has 0.60 times (0.60 to 0.60) the requests per second of direct \
         (read, 5 blocks); holds if at most 0.5";
    judged(experiment, &check, Verdict::DoesNotHold, numbers);
    let (mut experiment, check) = ratio_of(190.0, "at_least = 1.6");
    experiment.cells[1].values.insert(Metric::Rate, 140.0);
    let numbers = "own has 1.90 times (1.51 to 2.12) the requests per second of direct \
         (read, 5 blocks); holds if at least 1.6";
    judged(experiment, &check, Verdict::NotShown, numbers);
}

#[test]
fn two_blocks_say_nothing() {
    let (mut experiment, check) = ratio_of(190.0, "at_least = 1.5");
    experiment.cells.truncate(4);
    let numbers = "own has 1.90 times (1.90 to 1.90) the requests per second of direct \
         (read, 2 blocks); holds if at least 1.5";
    judged(experiment, &check, Verdict::NotShown, numbers);
}

#[test]
fn two_blocks_say_nothing_of_a_knee_either() {
    let mut experiment = measured(&[("direct", &[(4.0, 40.0)]), ("own", &[(4.0, 60.0)])]);
    experiment.cells.truncate(4);
    let numbers = "own by direct, requests per second, \
        read: reaches × 1.1 at 4 (× 1.50, 1.50 to 1.50; \
        2 blocks); holds if 3 to 8 threads";
    judged(experiment, KNEE, Verdict::NotShown, numbers);
}

#[test]
fn who_is_not_installed_is_the_reason() {
    let (mut experiment, check) = ratio_of(190.0, "at_least = 1.5");
    experiment.cells.retain(|cell| cell.target == "direct");
    experiment.targets[1].missing = Some("not installed".to_owned());
    let numbers = "own by direct, requests per second, read: own: not installed";
    judged(experiment, &check, Verdict::NotShown, numbers);
}

const ORDER: &str = "check = \"order\"\nload = \"read\"\ntargets = [\"a\", \"b\", \"c\"]";

#[test]
fn an_order_holds_when_each_is_better_than_the_next() {
    let of = |b: f64| {
        measured(&[
            ("a", &[(8.0, 300.0)]),
            ("b", &[(8.0, b)]),
            ("c", &[(8.0, 100.0)]),
        ])
    };
    let numbers = "a has 1.50 times (1.50 to 1.50) the requests per second of b (read, 5 blocks); \
                   b has 2.00 times (2.00 to 2.00) the requests per second of c (read, 5 blocks); \
                   holds if above 1.03";
    judged(of(200.0), ORDER, Verdict::Holds, numbers);
    let numbers = "a has 2.94 times (2.94 to 2.94) the requests per second of b (read, 5 blocks); \
                   b has 1.02 times (1.02 to 1.02) the requests per second of c (read, 5 blocks); \
                   holds if above 1.03";
    judged(of(102.0), ORDER, Verdict::DoesNotHold, numbers);
}

#[test]
fn of_latencies_the_smaller_is_better() {
    let mut experiment = measured(&[("a", &[(8.0, 10.0)]), ("b", &[(8.0, 20.0)])]);
    for cell in &mut experiment.cells {
        cell.values = BTreeMap::from([(Metric::P95Ms, cell.values[&Metric::Rate])]);
    }
    let check = "check = \"order\"\nload = \"read\"\nmetric = \"p95-ms\"\ntargets = [\"a\", \"b\"]";
    let numbers = "b has 2.00 times (2.00 to 2.00) the 95th percentile of latency of a (read, 5 \
                   blocks); holds if above 1.03";
    judged(experiment, check, Verdict::Holds, numbers);
}

const KNEE: &str = "check = \"knee\"\nload = \"read\"\ntarget = \"own\"\nto = \"direct\"\n\
    gain = 1.1\nfrom = 3\nuntil = 8";

#[test]
fn a_knee_lies_between_two_points_that_were_measured() {
    let direct: &[(f64, f64)] = &[(1.0, 10.0), (4.0, 40.0), (8.0, 45.0), (16.0, 50.0)];
    let reported = |own: &[(f64, f64)], verdict, what: &str| {
        let numbers = format!(
            "own by direct, requests per second, \
            read: {what}; holds if 3 to 8 threads"
        );
        judged(
            measured(&[("direct", direct), ("own", own)]),
            KNEE,
            verdict,
            &numbers,
        );
    };
    let at_4 = "reaches × 1.1 at 4 (× 1.50, 1.50 to 1.50; 5 blocks)";
    let at_16 = "reaches × 1.1 at 16 (× 1.80, 1.80 to 1.80; 5 blocks)";
    reported(
        &[(1.0, 8.0), (4.0, 60.0), (16.0, 90.0)],
        Verdict::Holds,
        at_4,
    );
    reported(&[(4.0, 60.0), (16.0, 90.0)], Verdict::NotShown, at_4);
    let missed_at_8 = &[(1.0, 8.0), (8.0, 45.0), (16.0, 90.0)];
    reported(missed_at_8, Verdict::DoesNotHold, at_16);
    reported(
        &[(1.0, 8.0), (4.0, 30.0), (16.0, 90.0)],
        Verdict::NotShown,
        at_16,
    );
    let never = "never reaches × 1.1; the most is × 0.80";
    reported(&[(1.0, 8.0), (4.0, 20.0)], Verdict::NotShown, never);
    reported(&[(1.0, 8.0), (16.0, 20.0)], Verdict::DoesNotHold, never);
    let early = "reaches × 1.1 at 1 (× 1.20, 1.20 to 1.20; 5 blocks)";
    reported(&[(1.0, 12.0), (4.0, 60.0)], Verdict::DoesNotHold, early);
}

#[test]
fn a_knee_is_reached_by_the_whole_interval() {
    let mut experiment = measured(&[
        ("direct", &[(1.0, 10.0), (4.0, 40.0)]),
        ("own", &[(1.0, 8.0), (4.0, 60.0)]),
    ]);
    let mut of_own = experiment
        .cells
        .iter_mut()
        .filter(|cell| cell.target == "own");
    of_own
        .find(|cell| cell.point == 4.0)
        .unwrap()
        .values
        .insert(Metric::Rate, 20.0);
    let numbers = "own by direct, requests per second, \
        read: reaches × 1.1 at 4 (× 1.50, 0.65 to 2.22; \
        5 blocks); holds if 3 to 8 threads";
    judged(experiment, KNEE, Verdict::NotShown, numbers);
}

#[test]
fn a_peak_may_be_missed_by_three_percent() {
    let of = |at_16: f64| measured(&[("own", &[(8.0, at_16), (64.0, 100.0), (128.0, 50.0)])]);
    let check = "check = \"peak\"\nload = \"read\"\ntarget = \"own\"\nfrom = 8\nuntil = 32";
    let numbers = "own is best at 64 (100 requests per second); holds if 8 to 32 threads";
    judged(of(98.0), check, Verdict::Holds, numbers);
    judged(of(90.0), check, Verdict::DoesNotHold, numbers);
    let only_within = measured(&[("own", &[(8.0, 50.0), (16.0, 90.0)])]);
    let numbers = "own is best at 16 (90.0 requests per second); holds if 8 to 32 threads";
    judged(
        only_within,
        check,
        Verdict::NotShown,
        &numbers.replace("90.0", "90.00"),
    );
}

#[test]
fn what_is_kept_of_the_best_is_seen_block_by_block() {
    let of = |at_128: f64| measured(&[("own", &[(8.0, 80.0), (64.0, 100.0), (128.0, at_128)])]);
    let check = "check = \"keeps\"\nload = \"read\"\ntarget = \"own\"\nat = 128\nat_least = 0.8";
    let reported = |kept: &str| {
        format!(
            "own at 128 threads: × {kept} of its best ({kept} to {kept}; 5 blocks); \
             holds if at least 0.8"
        )
    };
    judged(of(90.0), check, Verdict::Holds, &reported("0.90"));
    judged(of(140.0), check, Verdict::Holds, &reported("1.00"));
    judged(of(70.0), check, Verdict::DoesNotHold, &reported("0.70"));
    let alone = measured(&[("own", &[(128.0, 70.0)])]);
    judged(
        alone,
        check,
        Verdict::NotShown,
        "own was not run at 128 and at another point",
    );
}

fn trials(outages_ms: &[f64], lost: u64) -> Experiment {
    let mut experiment = experiment(&["own"], &[]);
    experiment.faults = outages_ms
        .iter()
        .map(|outage_ms| FaultTrial {
            target: "own".to_owned(),
            scenario: "primary killed".to_owned(),
            first_error_ms: Some(2.0),
            first_success_ms: Some(2.0 + outage_ms),
            lost,
            ..FaultTrial::default()
        })
        .collect();
    experiment
}

#[test]
fn an_outage_must_be_short_and_lose_nothing() {
    let check =
        "check = \"outage\"\ntarget = \"own\"\nscenario = \"primary killed\"\nat_most_ms = 2000";
    let short = [300.0, 500.0, 400.0];
    let numbers = "own: outage 400 ms (300 to 500), 3 trials, lost 0, doubled 0, not caught up 0; \
        holds if at most 2000 ms";
    judged(trials(&short, 0), check, Verdict::Holds, numbers);
    let numbers = "own: 3 trials, lost 3, doubled 0, not caught up 0, never ended 0";
    judged(trials(&short, 1), check, Verdict::DoesNotHold, numbers);
    let numbers = "own: outage 2400 ms (2100 to 2500), 3 trials, lost 0, doubled 0, \
        not caught up 0; holds if at most 2000 ms";
    judged(
        trials(&[2_100.0, 2_400.0, 2_500.0], 0),
        check,
        Verdict::DoesNotHold,
        numbers,
    );
    let numbers = "own: primary killed was not run";
    judged(trials(&[], 0), check, Verdict::NotShown, numbers);
}

#[test]
fn of_pages_nothing_can_be_lost() {
    let check =
        "check = \"outage\"\ntarget = \"own\"\nscenario = \"primary killed\"\nat_most_ms = 10";
    let mut fetched = trials(&[62.0, 60.0, 64.0], 0);
    for trial in &mut fetched.faults {
        (trial.probe, trial.acknowledged, trial.failed) = (Probe::Pages, 94, 6);
    }
    let numbers = "own: outage 62 ms (60 to 64), 3 trials (primary killed), 18 of 300 requests \
        failed; holds if at most 10 ms";
    judged(fetched, check, Verdict::DoesNotHold, numbers);
}

#[test]
fn the_worst_check_decides() {
    assert!(Verdict::DoesNotHold > Verdict::NotShown && Verdict::NotShown > Verdict::Holds);
}
