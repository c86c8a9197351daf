//! Tests of `evenkeel-lab bench` as users run it: their own experiment, failures, a resumed run.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

#[path = "bench/disk.rs"]
mod disk;
#[path = "bench/glb.rs"]
mod glb;
#[path = "bench/http.rs"]
mod http;
#[path = "bench/mishaps.rs"]
mod mishaps;
#[path = "bench/resume.rs"]
mod resume;
#[path = "bench/topology.rs"]
mod topology;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use evenkeel_lab::eventually;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);

/// Three running targets, one of which dies after a second, and one that is not installed.
const WEB: &str = r#"
name = "own"
title = "My own"
references = ["direct"]
quick = { blocks = BLOCKS, seconds = 1 }
normal = { blocks = 1, seconds = 1 }
full = { blocks = 1, seconds = 1 }

[[part]]
name = "web"
servers = { kind = "web", count = 2 }

[[part.target]]
name = "direct"
program = "direct"

[[part.target]]
name = "nginx"
program = "nginx"
mode = "http"

[[part.target]]
name = "mine"
program = "command"
start = ["/bin/sh", "-c", "nginx -e stderr -c {config} & trap 'kill -9 $!' EXIT; sleep 1; kill -9 $!"]
config = """
daemon off; master_process off; pid {room}/pid; events { worker_connections 100; }
stream_or_http
"""

[[part.target]]
name = "mysql-proxy"
program = "mysql-proxy"

[[part.load]]
name = "pages"
tool = "ab"
page = "/29b"
sweep = "requests"
at_once = 2
points = { quick = [POINTS], normal = [100], full = [100] }

[[finding]]
statement = "a proxy costs something"
checks = [{ check = "ratio", load = "pages", target = "nginx", to = "direct", at_most = 0.95 }]

[[figure]]
title = "pages"
drawing = "bars"
load = "pages"
"#;

const HTTP: &str = "http { access_log off; client_body_temp_path {room}/a; proxy_temp_path \
    {room}/b; fastcgi_temp_path {room}/c; uwsgi_temp_path {room}/d; scgi_temp_path {room}/e; \
    server { listen {listen}; location / { return 200 mine; } } }";

/// An address without a listener, and servers that cannot be started.
const MISHAPS: &str = r#"
[[part]]
name = "nobody there"
servers = { kind = "external", address = ["127.0.0.1:1"], speaks = "http" }

[[part.target]]
name = "nobody"
program = "direct"

[[part.load]]
name = "nobody-pages"
tool = "ab"
sweep = "requests"
points = { quick = [10], normal = [10], full = [10] }

[[part]]
name = "no servers"
servers = { kind = "mysql", count = 2 }

[[part.target]]
name = "none"
program = "direct"

[[part.load]]
name = "queries"
tool = "sysbench"
script = "oltp_point_select"
sweep = "threads"
points = { quick = [1], normal = [1], full = [1] }
"#;

#[test]
fn an_experiment_of_ones_own_survives_a_dying_rival_and_servers_that_do_not_start() {
    let home = tempfile::tempdir().unwrap();
    let text = WEB.to_owned() + MISHAPS;
    let file = experiment(home.path(), &text, "3", "200, 400");
    let out = home.path().join("out");
    let output = bench(&[&file, "--quick", "--seed", "7", "--out", &text_of(&out)])
        .env("EVENKEEL_RIVALS", "/nonexistent")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", printed(&output));

    let outcome = results(&out);
    let own = &outcome["experiments"][0];
    assert_eq!(outcome["seed"], 7);
    let lab = Command::new(env!("CARGO_BIN_EXE_evenkeel-lab"))
        .arg("--version")
        .output()
        .unwrap();
    assert_eq!(outcome["program"], printed(&lab).trim(), "with its commit");
    for target in ["direct", "nginx"] {
        assert_eq!(
            sound(own, target).len(),
            6,
            "{target}: {}",
            printed(&output)
        );
    }
    let cell = sound(own, "nginx")[0];
    for value in ["rate", "p99-ms", "balancer-cpu-us", "servers-cpu-us"] {
        assert!(cell["values"][value].is_number(), "no {value}: {cell}");
    }
    assert!(cell["shares"][1]["requests"].as_u64().unwrap() >= 90);
    let raw = fs::read_to_string(out.join(cell["raw"].as_str().unwrap())).unwrap();
    assert!(raw.starts_with("$ ") && raw.contains("Requests per second"));

    let row = |name: &str| {
        let mut rows = own["targets"].as_array().unwrap().iter();
        rows.find(|row| row["name"] == name).unwrap()
    };
    assert_eq!(row("mysql-proxy")["missing"], "not installed");
    let config = row("nginx")["configs"][0]["text"].as_str().unwrap();
    assert!(config.contains("proxy_pass"), "{config}");

    let servers = &own["servers"][0];
    assert_eq!(servers["part"], "web");
    let config = servers["configs"].to_string();
    for part in ["web-1: command line", "web-2: nginx.conf", "stub_status"] {
        assert!(config.contains(part), "{part:?} is not in {config}");
    }

    let failures = own["failures"].to_string();
    for part in [
        "it had ended before this run; it was started again",
        "no root file system in /nonexistent",
        "no request was answered",
    ] {
        let found = failures.to_lowercase().contains(&part.to_lowercase());
        assert!(found, "{part:?} is not in {failures}");
    }
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("a proxy costs something") && page.contains("not installed"));
    assert!(page.contains("web-2: nginx.conf: differences from web-1: nginx.conf"));
    assert_eq!(page.matches("stub_status").count(), 1, "once per part");
}

/// One server of each program, with the same page to compute.
const APACHE: &str = r#"
name = "own"
title = "Apache and nginx"
quick = { blocks = 3, seconds = 1 }
normal = { blocks = 1, seconds = 1 }
full = { blocks = 1, seconds = 1 }

[[part]]
name = "by Apache"
servers = { kind = "web", program = "apache", count = 2 }

[[part.target]]
name = "nginx"
program = "nginx"
mode = "http"

[[part.load]]
name = "of-apache"
tool = "ab"
page = "/work"
options = ["-H", "Accept-Encoding: gzip"]
sweep = "requests"
at_once = 2
points = { quick = [100], normal = [100], full = [100] }

[[part]]
name = "by nginx"
servers = { kind = "web", count = 1 }

[[part.target]]
name = "direct"
program = "direct"

[[part.load]]
name = "of-nginx"
tool = "ab"
page = "/work"
options = ["-H", "Accept-Encoding: gzip"]
sweep = "requests"
at_once = 2
points = { quick = [100], normal = [100], full = [100] }
"#;

#[test]
fn apache_serves_a_page_that_costs_as_much_as_nginxs() {
    let home = tempfile::tempdir().unwrap();
    let file = experiment(home.path(), APACHE, "", "");
    let out = home.path().join("out");
    let output = bench(&[&file, "--quick", "--out", &text_of(&out)])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", printed(&output));
    let outcome = results(&out);
    let own = &outcome["experiments"][0];
    let behind_apache = sound(own, "nginx");
    assert_eq!(behind_apache.len(), 3, "{}", printed(&output));
    for cell in behind_apache {
        assert_eq!(cell["values"]["errors"], 0.0, "{cell}");
        let shares = cell["shares"].as_array().unwrap();
        let each = shares.iter().map(|one| one["requests"].as_u64().unwrap());
        assert!(each.clone().all(|requests| requests >= 40), "{shares:?}");
    }
    let cost_us = |target: &str| {
        let costs = sound(own, target).into_iter();
        let costs = costs.map(|cell| cell["values"]["servers-cpu-us"].as_f64().unwrap());
        costs.fold(f64::INFINITY, f64::min)
    };
    let (apaches, nginxs) = (cost_us("nginx"), cost_us("direct"));
    assert!(
        nginxs > 1_000.0 && (apaches / nginxs - 1.0).abs() < 0.5,
        "{apaches} and {nginxs} us a page"
    );
    let version = outcome["versions"]["web servers, Apache"].to_string();
    assert!(version.contains("Apache/2."), "{version}");
    let config = own["servers"][0]["configs"].to_string();
    assert!(config.contains("apache.conf") && config.contains("MaxRequestWorkers"));
}

#[test]
fn servers_that_are_not_installed_end_their_part_only() {
    // Hides the program for this run only; without the right to do that, the other tests must
    // suffice.
    let hidden = "mount --bind /dev/null \"$(command -v apache2)\"";
    let can_hide = Command::new("unshare")
        .args(["--mount", "sh", "-c", hidden])
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .status();
    if !can_hide.is_ok_and(|status| status.success()) {
        println!("skipped: no right to hide a program");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let file = experiment(home.path(), APACHE, "", "");
    let out = home.path().join("out");
    let line = format!("{hidden} && exec \"$@\"");
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", &line, "sh"])
        .arg(env!("CARGO_BIN_EXE_evenkeel-lab"))
        .args(["bench", &file, "--quick", "--out", &text_of(&out)])
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .output()
        .unwrap();
    let outcome = results(&out);
    let own = &outcome["experiments"][0];
    assert_eq!(sound(own, "direct").len(), 3, "{}", printed(&output));
    let failures = own["failures"].to_string();
    let why = "Apache is not installed: apache2 not found: apt-get install apache2-bin";
    assert!(failures.contains(why), "{failures}");
    let row = &own["targets"][0];
    assert_eq!(
        row["missing"],
        "its servers do not start: see below, what went wrong"
    );
}

#[test]
fn what_was_done_before_ctrl_c_is_kept_and_gone_on_with() {
    let home = tempfile::tempdir().unwrap();
    let file = experiment(home.path(), WEB, "10", "1000");
    let out = home.path().join("out");
    let mut running = bench(&[
        &file,
        "--quick",
        "--target",
        "direct,nginx",
        "--out",
        &text_of(&out),
    ])
    .stderr(Stdio::null())
    .spawn()
    .unwrap();
    eventually(LIMIT, "results of two blocks", || {
        Ok((out.join("outcome.json").exists() && done(&out) >= 2).then_some(()))
    })
    .unwrap();
    interrupt(&running);
    assert_eq!(running.wait().unwrap().code(), Some(130));
    let before = results(&out);
    let kept = done(&out);
    assert!(before["ended_unix_s"].is_null() && kept < 20, "{kept} runs");
    assert!(out.join("report.html").exists());

    let again = bench(&[&file, "--quick", "--out", &text_of(&out)])
        .output()
        .unwrap();
    assert!(printed(&again).contains("--resume"), "{}", printed(&again));

    let written = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, written.replace("1000", "1001")).unwrap();
    let other = bench(&["--resume", &text_of(&out)]).output().unwrap();
    assert!(!other.status.success(), "{}", printed(&other));
    assert!(
        printed(&other).contains("has changed since"),
        "{}",
        printed(&other)
    );
    std::fs::write(&file, written).unwrap();

    let output = bench(&["--resume", &text_of(&out)]).output().unwrap();
    assert!(output.status.success(), "{}", printed(&output));
    let whole = bench(&["--resume", &text_of(&out)]).output().unwrap();
    let nothing_left = !printed(&whole).contains("block");
    assert!(
        whole.status.success() && nothing_left,
        "{}",
        printed(&whole)
    );
    let after = results(&out);
    assert!(after["ended_unix_s"].is_number());
    assert_eq!(done(&out), 20);
    assert_eq!(
        after["experiments"][0]["cells"][0],
        before["experiments"][0]["cells"][0]
    );
}

#[test]
fn a_mistake_in_an_experiment_is_said_before_anything_is_started() {
    let home = tempfile::tempdir().unwrap();
    let file = experiment(
        home.path(),
        &WEB.replace("tool = \"ab\"", "tool = \"abc\""),
        "1",
        "1",
    );
    let output = bench(&[&file, "--quick"]).output().unwrap();
    let printed = printed(&output);
    assert!(!output.status.success());
    assert!(printed.contains("unknown variant `abc`"), "{printed}");
}

fn experiment(home: &Path, text: &str, blocks: &str, points: &str) -> String {
    let text = text
        .replace("BLOCKS", blocks)
        .replace("POINTS", points)
        .replace("stream_or_http", HTTP);
    let file = home.join("own.toml");
    fs::write(&file, text).unwrap();
    text_of(&file)
}

fn bench(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel-lab"));
    command.arg("bench").args(arguments).stdin(Stdio::null());
    command
}

fn results(out: &Path) -> Value {
    serde_json::from_slice(&fs::read(out.join("outcome.json")).unwrap()).unwrap()
}

/// Returns the number of runs with results.
fn done(out: &Path) -> usize {
    let results = results(out);
    let cells = results["experiments"][0]["cells"].as_array();
    cells.map_or(0, |cells| {
        let sound = cells.iter().filter(|cell| cell["failure"].is_null());
        sound.count()
    })
}

fn sound<'a>(experiment: &'a Value, target: &str) -> Vec<&'a Value> {
    let cells = experiment["cells"].as_array().unwrap().iter();
    cells
        .filter(|cell| cell["target"] == target && cell["failure"].is_null())
        .collect()
}

fn interrupt(child: &Child) {
    let status = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.clone(), output.stderr.clone()].concat()).into_owned()
}

fn text_of(path: &Path) -> String {
    path.display().to_string()
}
