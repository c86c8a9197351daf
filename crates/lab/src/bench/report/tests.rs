//! Tests of the report with the made-up outcome: complete, readable again, external text never as
//! markup.

use super::*;
use crate::bench::outcome::{Drawing, Figure, Metric, Published};
use crate::bench::statistics::{Bootstrap, Verdict};

fn page(outcome: &Outcome) -> String {
    page::render(outcome, &analyse(outcome))
}

#[test]
fn a_report_is_five_files_and_can_be_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = sample::outcome(1);
    let path = write(&outcome, folder.path()).unwrap();
    assert!(path.ends_with("report.html"));
    let mut names: Vec<String> = fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "cells.csv",
            "faults.csv",
            "ratios.csv",
            "report.html",
            "report.json"
        ]
    );
    let again = read(&folder.path().join("report.json")).unwrap();
    assert!(
        page(&again) == page(&outcome),
        "the same facts give the same page"
    );
}

#[test]
fn every_run_has_its_line_in_the_csv() {
    let outcome = sample::outcome(1);
    let runs: usize = outcome.experiments.iter().map(|e| e.cells.len()).sum();
    assert_eq!(csv::cells(&outcome).lines().count(), runs + 1);
    let trials: usize = outcome.experiments.iter().map(|e| e.faults.len()).sum();
    assert_eq!(csv::faults(&outcome).lines().count(), trials + 1);
    let fields = |line: &str| line.split(',').count();
    let table = csv::cells(&outcome);
    let mut lines = table.lines();
    let heading = fields(lines.next().unwrap());
    assert!(lines.all(|line| fields(line) == heading));
}

#[test]
fn what_comes_from_outside_cannot_become_markup() {
    let mut outcome = sample::outcome(1);
    let bad = "<script>alert(1)</script>\"'&";
    let experiment = &mut outcome.experiments[0];
    experiment.title = bad.to_owned();
    experiment.name = bad.to_owned();
    experiment.topology = bad.to_owned();
    experiment.notes.push(bad.to_owned());
    experiment.targets[1].title = bad.to_owned();
    experiment.targets[1].configs[0].text = bad.to_owned();
    experiment.loads[0].axis = bad.to_owned();
    experiment.loads[0].title = bad.to_owned();
    experiment.figures[0].title = bad.to_owned();
    experiment.findings[0].statement = bad.to_owned();
    experiment.failures[0].why = bad.to_owned();
    experiment.faults[0].scenario = bad.to_owned();
    experiment.cells[0].shares[0].server = bad.to_owned();
    experiment.cells[1].failure = Some(bad.to_owned());
    outcome.machine.processor = bad.to_owned();
    outcome.versions.insert(bad.to_owned(), bad.to_owned());
    let page = page(&outcome);
    assert!(!page.contains("<script"), "markup from outside");
    assert!(page.matches("&lt;script&gt;").count() >= 14);
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let page = page(&sample::outcome(1));
    for sign in ["src=", "<link", "@import", "url(", "<script"] {
        assert!(!page.contains(sign), "{sign}");
    }
    let elsewhere = page.replace("http://www.w3.org/2000/svg", "");
    assert!(!elsewhere.contains("http"), "an address");
}

#[test]
fn verdicts_stand_on_the_page_in_words() {
    let page = page(&sample::outcome(1));
    for (verdict, class, sign) in [
        (Verdict::Holds, "holds", "✓"),
        (Verdict::NotShown, "open", "○"),
        (Verdict::DoesNotHold, "fails", "✗"),
    ] {
        let words = verdict.words();
        let written = format!("<span class=\"verdict {class}\">{sign} {words}</span>");
        assert!(page.contains(&written), "{verdict:?}");
    }
    assert!(page.contains("not installed"));
    assert!(page.contains("The load generator was busy up to 93 %"));
}

#[test]
fn in_short_says_what_was_asked_what_came_out_and_whom_to_take() {
    let mut outcome = sample::outcome(1);
    let page_before = page(&outcome);
    let then = "In 2024 the question was whether MySQL Router or HAProxy is faster; the answer: ";
    for part in [
        then,
        "“MySQL Router is about three times as fast as HAProxy” does not hold: MySQL Router has ",
        "; of the other 3 findings, ",
        "Most queries per second (Flight records, read; threads: 8 to 128): <strong>Evenkeel</st",
        " of one server direct; the next, Evenkeel, least connections, × ",
        "Least processor time of the balancer per query (",
        // An experiment without a study states what it measured.
        "<dd>MySQL direct; HAProxy, one server; HAProxy, two servers; Evenkeel, two servers; \
         PostgreSQL direct; Pgpool-II, two servers, under MySQL simple read: one point select; ",
        "; no other balancer was run.",
    ] {
        assert!(page_before.contains(part), "{part:?}");
    }
    // Other numbers give another text.
    for cell in &mut outcome.experiments[0].cells {
        if cell.target == "mysql-router" {
            cell.values.insert(Metric::Rate, 90_000.0);
        }
    }
    let page_after = page(&outcome);
    assert!(page_after.contains("three times as fast as HAProxy” holds: "));
    assert!(page_after.contains("8 to 128): <strong>MySQL Router</strong>"));
}

#[test]
fn in_short_says_who_had_the_shortest_outage_with_all_rows_there() {
    let mut outcome = sample::outcome(1);
    let best = "Shortest outage of writes (primary stopped): <strong>Evenkeel</strong>, ";
    let before = page(&outcome);
    assert!(before.contains(best));
    assert!(before.contains(" Worse: MySQL Router ("));
    let mut trials = outcome.experiments[0].faults.iter_mut();
    trials.find(|t| t.target == "evenkeel").unwrap().lost = 1;
    let after = page(&outcome);
    assert!(!after.contains(best));
    assert!(after.contains("(primary stopped): <strong>MySQL Router</strong>, "));
    assert!(after.contains("writes never resumed: Evenkeel."));
}

#[test]
fn a_load_of_many_points_has_them_all_in_one_table_beside_what_was_published() {
    let mut outcome = sample::outcome(1);
    outcome.experiments[0].published.push(Published {
        load: "flights".to_owned(),
        target: "mysql-router".to_owned(),
        metric: Metric::Rate,
        values: vec![(8.0, 2_921.0), (128.0, 2_612.0)],
    });
    let page = page(&outcome);
    let from = page
        .find("<h3>Flight records, read – queries per second")
        .unwrap();
    let table = &page[from..from + page[from..].find("</table>").unwrap()];
    assert!(table.contains("<th class=\"published\">MySQL Router, published 2024</th>"));
    for threads in [8, 16, 32, 64, 80, 96, 112, 128] {
        assert!(
            table.contains(&format!("<tr><th>{threads}</th>")),
            "{threads}"
        );
    }
    assert_eq!(table.matches("<td>").count(), 8 * 6, "six have run");
    assert_eq!(table.matches("<span class=\"small\"> ").count(), 8 * 6);
    assert!(table.contains(">2,921<") && table.contains(">2,612<"));
    assert!(page.contains("ProxySQL: not installed"));
}

#[test]
fn a_table_of_one_point_has_all_percentiles_and_intervals() {
    let mut outcome = sample::outcome(1);
    for cell in &mut outcome.experiments[0].cells {
        cell.values.insert(Metric::P50Ms, 1.0);
        cell.values.insert(Metric::MaxMs, 9.0);
    }
    let page = page(&outcome);
    let from = page.find("<h3>Flight records, read – 8 threads").unwrap();
    let table = &page[from..from + page[from..].find("</table>").unwrap()];
    for column in [
        "mean ms", "p50 ms", "p95 ms", "p99 ms", "max ms", "failed %",
    ] {
        assert!(table.contains(&format!("<th>{column}</th>")), "{column}");
    }
    let rate = table.split("<td>").nth(1).unwrap();
    assert!(rate.contains("<span class=\"small\">"), "{rate}");
}

#[test]
fn every_kind_of_figure_is_drawn_with_its_unit() {
    let outcome = sample::outcome(1);
    let experiment = &outcome.experiments[0];
    let analysis = analyse(&outcome);
    for (drawing, unit) in [
        (Drawing::Lines, "queries per second"),
        (Drawing::Percent, "% of one server direct"),
        (Drawing::Bars, "queries per second"),
        (Drawing::Shares, "share of queries"),
        (Drawing::Outage, "ms since primary stopped"),
        (Drawing::Ratios, "× one server direct"),
        (Drawing::Cpu, "CPU µs per query"),
    ] {
        let figure = Figure {
            title: String::new(),
            caption: String::new(),
            drawing,
            load: None,
            metric: Metric::Rate,
            targets: Vec::new(),
            reference: None,
            points: None,
            scenario: None,
        };
        let summaries = &analysis.experiments[0].summaries;
        let svg = figure::draw(experiment, &figure, summaries, &Bootstrap::new(1))
            .unwrap()
            .unwrap()
            .0;
        assert!(svg.contains(unit), "{drawing:?}: {unit}");
        assert!(svg.contains("Evenkeel"), "{drawing:?}");
        assert!(svg.ends_with("</svg>\n"), "{drawing:?}");
    }
}

#[test]
fn an_empty_experiment_gives_a_page_all_the_same() {
    let mut outcome = sample::outcome(1);
    for experiment in &mut outcome.experiments {
        experiment.cells.clear();
        experiment.faults.clear();
    }
    outcome.ended_unix_s = None;
    let page = page(&outcome);
    assert!(page.contains("aborted"));
    assert!(page.contains("not shown here"));
    assert!(!page.contains("<svg"));
}

#[test]
fn a_sweep_of_one_point_becomes_bars() {
    let mut outcome = sample::outcome(1);
    let experiment = &mut outcome.experiments[0];
    experiment.cells.retain(|cell| cell.point == 8.0);
    let analysis = analyse(&outcome);
    let experiment = &outcome.experiments[0];
    let summaries = &analysis.experiments[0].summaries;
    let figure = &experiment.figures[0];
    let svg = figure::draw(experiment, figure, summaries, &Bootstrap::new(1))
        .unwrap()
        .unwrap()
        .0;
    assert!(svg.contains("rect"));
}

#[test]
fn a_file_of_a_newer_program_is_refused_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let mut outcome = sample::outcome(1);
    outcome.format = FORMAT + 1;
    write(&outcome, folder.path()).unwrap();
    let error = read(&folder.path().join("report.json")).unwrap_err();
    assert!(
        error.to_string().contains("written by a newer program"),
        "{error}"
    );
    let error = read(&folder.path().join("cells.csv")).unwrap_err();
    assert!(
        error.to_string().contains("is not the outcome.json"),
        "{error}"
    );
}
