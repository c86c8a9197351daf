//! Tests a killed run: nothing of it remains, and it can be resumed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use evenkeel_lab::{eventually, procfs};
use serde_json::Value;

use crate::{LIMIT, bench, printed, results, text_of};

const BLOCKS: usize = 4;

/// Each server in a control group, if permitted: groups must be removed too.
const KILLED: &str = r#"
name = "killed"
title = "Killed in the middle"
quick = { blocks = 4, seconds = 1 }
normal = { blocks = 4, seconds = 1 }
full = { blocks = 4, seconds = 1 }

[[part]]
name = "web"
servers = { kind = "web", count = 2, cpu_percent = [50] }

[[part.target]]
name = "direct"
program = "direct"

[[part.target]]
name = "nginx"
program = "nginx"

[[part.load]]
name = "pages"
tool = "wrk"
page = "/29b"
sweep = "connections"
points = { quick = [2], normal = [2], full = [2] }
"#;

#[test]
fn of_a_run_killed_in_a_block_nothing_is_left_and_resume_does_the_other_blocks_once() {
    let home = tempfile::tempdir().unwrap();
    let out = home.path().join("out");
    let labs = home.path().join("t");
    fs::create_dir(&labs).unwrap();
    let mut run = begin(home.path(), &labs, &out);
    let raw = out.join("raw/killed/pages");
    eventually(LIMIT, "a run of the third block", || {
        Ok(has_one_of(&raw, "block-3.txt").then_some(()))
    })
    .unwrap();
    let before = cells(&out);
    assert_eq!(before.len(), 4, "two whole blocks: {before:?}");
    kill_and_see_all_gone(&mut run, &labs);
    assert_eq!(cells(&out), before, "the results are as of the last block");

    let output = bench(&["--resume", &text_of(&out)]).output().unwrap();
    assert!(output.status.success(), "{}", printed(&output));
    let after = cells(&out);
    assert_eq!(after[..4], before, "what was done is as it was");
    let runs: BTreeSet<String> = after.iter().map(place).collect();
    assert_eq!((after.len(), runs.len()), (2 * BLOCKS, 2 * BLOCKS));
    assert!(after.iter().all(|cell| cell["failure"].is_null()));
    assert!(results(&out)["ended_unix_s"].is_number());
    let csv = fs::read_to_string(out.join("cells.csv")).unwrap();
    assert_eq!(csv.lines().count(), 1 + 2 * BLOCKS, "{csv}");
}

#[test]
fn a_run_killed_before_its_first_block_is_gone_on_with_too() {
    let home = tempfile::tempdir().unwrap();
    let out = home.path().join("out");
    let labs = home.path().join("t");
    fs::create_dir(&labs).unwrap();
    let mut run = begin(home.path(), &labs, &out);
    eventually(LIMIT, "a server that starts", || {
        Ok((procfs::tree(run.id()).len() > 2).then_some(()))
    })
    .unwrap();
    kill_and_see_all_gone(&mut run, &labs);
    let output = bench(&["--resume", &text_of(&out)]).output().unwrap();
    assert!(output.status.success(), "{}", printed(&output));
    assert_eq!(cells(&out).len(), 2 * BLOCKS);
}

fn begin(home: &Path, labs: &Path, out: &Path) -> Child {
    let file = home.join("killed.toml");
    fs::write(&file, KILLED).unwrap();
    bench(&[&text_of(&file), "--quick", "--out", &text_of(out)])
        .env("TMPDIR", labs)
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Kills the run as `kill -9` does. Servers, balancers and the generator end with it. The reapers
/// remove the control groups, then the directories, and end last.
fn kill_and_see_all_gone(run: &mut Child, labs: &Path) {
    let pids = procfs::tree(run.id());
    assert!(pids.len() > 2, "servers run: {pids:?}");
    run.kill().unwrap();
    run.wait().unwrap();
    eventually(Duration::from_secs(20), "all gone with the run", || {
        let alive = pids.iter().any(|pid| procfs::is_alive(*pid));
        Ok((!alive && !has_one_of(labs, "")).then_some(()))
    })
    .unwrap();
}

pub(crate) fn has_one_of(directory: &Path, end: &str) -> bool {
    let mut entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.any(|entry| entry.file_name().to_string_lossy().ends_with(end))
}

fn cells(out: &Path) -> Vec<Value> {
    let results = results(out);
    let cells = results["experiments"][0]["cells"].as_array();
    cells.cloned().unwrap_or_default()
}

fn place(cell: &Value) -> String {
    format!("{} {} {}", cell["target"], cell["point"], cell["block"])
}
