//! Tests servers that imitate hosts: each with a delay, if this machine supports it.

use std::fs;
use std::process::Command;

use evenkeel_lab::own_uid;
use serde_json::Value;

use crate::{bench, printed, results, sound, text_of};

const DELAY_US: u32 = 3000;

const EXPERIMENT: &str = r#"
name = "far"
title = "Far away"
quick = { blocks = 1, seconds = 1 }
normal = { blocks = 1, seconds = 1 }
full = { blocks = 1, seconds = 1 }

[[part]]
name = "near"
servers = { kind = "web", count = 1, delay_us = 0 }

[[part.target]]
name = "near"
program = "direct"

[[part.load]]
name = "pages"
tool = "wrk"
page = "/29b"
sweep = "connections"
points = { quick = [1], normal = [1], full = [1] }

[[part]]
name = "far"
servers = { kind = "web", count = 1, delay_us = DELAY }

[[part.target]]
name = "far"
program = "direct"

[[part.load]]
name = "far-pages"
tool = "wrk"
page = "/29b"
sweep = "connections"
points = { quick = [1], normal = [1], full = [1] }
"#;

#[test]
fn a_delay_of_servers_in_namespaces_is_there_or_the_report_says_why_it_is_not() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("far.toml");
    fs::write(&file, EXPERIMENT.replace("DELAY", &DELAY_US.to_string())).unwrap();
    let out = home.path().join("out");
    let mut run = bench(&[&text_of(&file), "--quick", "--out", &text_of(&out)]);
    let output = run.output().unwrap();
    assert!(output.status.success(), "{}", printed(&output));
    let own = &results(&out)["experiments"][0];
    let mean_ms = |target: &str| sound(own, target)[0]["values"]["mean-ms"].as_f64().unwrap();
    let notes = own["notes"].to_string();
    if own_uid() != 0 {
        eprintln!("no delay was looked for: namespaces need root");
        assert!(notes.contains("network namespaces: not made"), "{notes}");
        return;
    }
    let raw = fs::read_to_string(out.join(sound(own, "far")[0]["raw"].as_str().unwrap()));
    assert!(
        raw.unwrap().contains("http://10.77."),
        "servers have addresses of their own"
    );
    let without = "far: network delay: not set, the servers run without: ";
    if has_netem() {
        let further_ms = mean_ms("far") - mean_ms("near");
        assert!(further_ms >= 2.0, "{further_ms} ms further away: {notes}");
    } else {
        eprintln!("no delay was looked for: this kernel has no netem");
        assert!(
            notes.contains(without) && notes.contains("CONFIG_NET_SCH_NETEM"),
            "{notes}"
        );
        let page = fs::read_to_string(out.join("report.html")).unwrap();
        assert!(page.contains("network delay: not set"));
    }
    assert!(!notes.contains("near: network delay"), "{notes}");
    assert_eq!(own["failures"], Value::Array(vec![]));
}

/// Returns whether the kernel has netem, tested with a link: its configuration is not always
/// readable.
fn has_netem() -> bool {
    let name = format!("eknetem{}", std::process::id() % 100_000);
    let run = |program: &str, words: &str| {
        let words = words.split(' ').map(|word| word.replace("NAME", &name));
        let output = Command::new(program).args(words).output();
        output.is_ok_and(|output| output.status.success())
    };
    assert!(run("ip", "link add NAME type bridge"));
    let has = run("tc", "qdisc add dev NAME root netem delay 1ms");
    assert!(run("ip", "link delete NAME"));
    has
}
