//! Tests balancers and servers that die during a run, or never start: the rest of the report
//! remains valid.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use evenkeel_lab::{eventually, procfs};
use serde_json::Value;

use crate::{LIMIT, bench, printed, results, sound, text_of};

const HEAD: &str = r#"
name = "mishaps"
title = "Mishaps"
quick = { blocks = 3, seconds = 1 }
normal = { blocks = 3, seconds = 1 }
full = { blocks = 3, seconds = 1 }
"#;

const FRONTS: &str = r#"
[[part]]
name = "fronts"
servers = { kind = "web", count = 2 }

[[part.target]]
name = "direct"
program = "direct"

[[part.target]]
name = "haproxy"
program = "haproxy"

[[part.target]]
name = "quits"
program = "command"
start = ["/bin/sh", "-c", "echo no licence was found; exit 3"]

[[part.load]]
name = "pages"
tool = "wrk"
page = "/29b"
sweep = "connections"
points = { quick = [2], normal = [2], full = [2] }
"#;

const SERVERS: &str = r#"
[[part]]
name = "database"
servers = { kind = "mariadb", count = 1 }

[[part.target]]
name = "database"
program = "direct"

[[part.load]]
name = "queries"
tool = "sysbench"
sql = ["SELECT 1"]
sweep = "threads"
points = { quick = [1], normal = [1], full = [1] }

[[part]]
name = "web"
servers = { kind = "web", count = 1 }

[[part.target]]
name = "web"
program = "direct"

[[part.load]]
name = "web-pages"
tool = "wrk"
page = "/29b"
sweep = "connections"
points = { quick = [2], normal = [2], full = [2] }
"#;

#[test]
fn a_haproxy_killed_in_a_run_is_started_again_and_a_balancer_that_ends_at_once_is_a_failure() {
    let home = tempfile::tempdir().unwrap();
    let (run, out) = begin(home.path(), FRONTS, None);
    kill_under_load(&run, "haproxy", &out.join("raw/mishaps/pages"));
    let output = run.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", printed(&output));
    let own = &results(&out)["experiments"][0];
    assert_eq!(sound(own, "direct").len(), 3, "{}", printed(&output));
    let cells = own["cells"].as_array().unwrap().iter();
    let cells: Vec<&Value> = cells.filter(|cell| cell["target"] == "haproxy").collect();
    let is_hurt = |cell: &Value| !cell["failure"].is_null() || cell["values"]["errors"] != 0.0;
    let hurt: Vec<bool> = cells.iter().map(|cell| is_hurt(cell)).collect();
    assert_eq!(hurt, [false, true, false], "{}", printed(&output));
    let ended = failure(own, "had ended before this run");
    assert!(ended.contains("it was started again"), "{ended}");

    let quits = failure(own, "quits");
    assert!(quits.contains("no licence was found"), "{quits}");
    let mut targets = own["targets"].as_array().unwrap().iter();
    let row = targets.find(|row| row["name"] == "quits").unwrap();
    let missing = row["missing"].as_str().unwrap();
    assert!(missing.starts_with("does not start"), "{missing}");
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("no licence was found") && page.contains("it was started again"));
}

#[test]
fn a_database_that_does_not_start_ends_its_part_only_and_a_killed_server_comes_back() {
    let home = tempfile::tempdir().unwrap();
    let wrapped = unwilling_mariadbd(home.path());
    let (run, out) = begin(home.path(), SERVERS, Some(&wrapped));
    kill_under_load(&run, "nginx", &out.join("raw/mishaps/web-pages"));
    let output = run.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", printed(&output));
    let own = &results(&out)["experiments"][0];
    let why = failure(own, "do not start");
    assert!(
        why.contains("\"at\":\"database\"") && why.contains("no-such-setting"),
        "{why}"
    );
    let back = failure(own, "the server web-1 has ended");
    assert!(back.contains("it was started again"), "{back}");
    assert!(sound(own, "web").len() >= 2, "{}", printed(&output));
    assert!(sound(own, "database").is_empty());
    assert!(out.join("report.html").exists());
}

/// Creates a real server with an option that it does not know.
fn unwilling_mariadbd(home: &Path) -> PathBuf {
    let directory = home.join("bin");
    fs::create_dir(&directory).unwrap();
    let file = directory.join("mariadbd");
    let text = "#!/bin/sh\nexec /usr/sbin/mariadbd \"$@\" --no-such-setting=1\n";
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
    directory
}

fn begin(home: &Path, parts: &str, first_in_path: Option<&Path>) -> (Child, PathBuf) {
    let out = home.join("out");
    let file = home.join("mishaps.toml");
    fs::write(&file, format!("{HEAD}{parts}")).unwrap();
    let mut command = bench(&[&text_of(&file), "--quick", "--out", &text_of(&out)]);
    if let Some(directory) = first_in_path {
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", directory.display()));
    }
    let run = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    (run.unwrap(), out)
}

/// Kills the first process with this name by SIGKILL under load, in the second block.
fn kill_under_load(run: &Child, name: &str, raw: &Path) {
    eventually(LIMIT, "the end of the first block", || {
        let last = fs::read_dir(raw).into_iter().flatten().flatten().count();
        let targets = if name == "haproxy" { 2 } else { 1 };
        Ok((last >= targets).then_some(()))
    })
    .unwrap();
    let pids = procfs::tree(run.id());
    let comm = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let mut named = pids.into_iter().filter(|pid| comm(pid).trim() == name);
    let pid = named.next().unwrap();
    eventually(LIMIT, "work for it", || {
        let before_us = procfs::cpu_us(&procfs::tree(pid));
        sleep(Duration::from_millis(100));
        let busy_us = procfs::cpu_us(&procfs::tree(pid)) - before_us;
        Ok((busy_us >= 20_000).then_some(()))
    })
    .unwrap();
    let mut kill = Command::new("kill");
    let status = kill.args(["-KILL", &pid.to_string()]).status();
    assert!(status.unwrap().success());
}

/// Returns the failure that contains `part`, as JSON.
fn failure(experiment: &Value, part: &str) -> String {
    let mut failures = experiment["failures"].as_array().unwrap().iter();
    let found = failures.find(|failure| failure.to_string().contains(part));
    found
        .unwrap_or_else(|| panic!("{part:?} is not in {}", experiment["failures"]))
        .to_string()
}
