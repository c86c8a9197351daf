//! Tests targets that parse HTTP: trusted proxies, sticky sessions, kept connections.

use std::fs;

use serde_json::Value;

use crate::{bench, printed, results, sound, text_of};

const BEGIN: &str = r#"
name = "http"
title = "HTTP"
quick = { blocks = 1, seconds = 1 }
normal = { blocks = 1, seconds = 1 }
full = { blocks = 1, seconds = 1 }

[[part]]
name = "web"
servers = { kind = "web", count = 3 }

[[part.load]]
name = "clients"
tool = "wrk"
page = "/29b"
sweep = "connections"
client_addresses = 60
points = { quick = [4], normal = [4], full = [4] }

[[part.load]]
name = "sessions"
tool = "httperf"
page = "/29b"
sweep = "rate"
session_requests = 10
points = { quick = [100], normal = [100], full = [100] }
"#;

#[test]
fn requests_of_a_trusted_proxy_and_of_sessions_reach_the_servers_that_they_belong_to() {
    let targets = [
        target("unknown", "evenkeel", "clients", ""),
        target(
            "evenkeel-forwarded",
            "evenkeel",
            "clients",
            "forwarded = true",
        ),
        target(
            "haproxy-forwarded",
            "haproxy",
            "clients",
            "forwarded = true",
        ),
        target("nginx-forwarded", "nginx", "clients", "forwarded = true"),
        target("evenkeel-sticky", "evenkeel", "sessions", "sticky = true"),
        target("haproxy-sticky", "haproxy", "sessions", "sticky = true"),
    ];
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("http.toml");
    fs::write(&file, BEGIN.to_owned() + &targets.concat()).unwrap();
    let out = home.path().join("out");
    let mut run = bench(&[&text_of(&file), "--quick", "--out", &text_of(&out)]);
    let output = run.output().unwrap();
    assert!(output.status.success(), "{}", printed(&output));
    let own = &results(&out)["experiments"][0];
    assert_eq!(own["failures"], Value::Array(vec![]));

    assert_eq!(servers_used(own, "unknown"), 1, "it knows one client only");
    for name in ["evenkeel", "haproxy", "nginx"] {
        let target = format!("{name}-forwarded");
        assert_eq!(servers_used(own, &target), 3, "{target}");
    }
    for name in ["evenkeel", "haproxy"] {
        let values = &sound(own, &format!("{name}-sticky"))[0]["values"];
        assert_eq!(values["answered-percent"], 100.0, "{name}: {values}");
        assert!(
            values["mean-ms"].as_f64().unwrap() > 0.0,
            "{name}: {values}"
        );
        assert_eq!(values["errors"], 0.0, "{name}: {values}");
    }
    let config = config(own, "nginx-forwarded");
    assert!(config.contains("keepalive 512;"), "{config}");
    let config = self::config(own, "evenkeel-sticky");
    assert!(config.contains("[service.sticky]"), "{config}");
    let config = self::config(own, "haproxy-sticky");
    for part in ["http-reuse always", "check cookie web-2"] {
        assert!(config.contains(part), "no {part:?} in {config}");
    }
}

fn target(name: &str, program: &str, load: &str, further: &str) -> String {
    format!(
        "[[part.target]]\nname = {name:?}\nprogram = {program:?}\nmode = \"http\"\n\
         balance = {:?}\nloads = [{load:?}]\n{further}\n",
        if load == "clients" {
            "source"
        } else {
            "round-robin"
        }
    )
}

/// Returns the number of servers that received more than probes.
fn servers_used(experiment: &Value, target: &str) -> usize {
    let cell = sound(experiment, target)[0];
    let shares = cell["shares"].as_array().unwrap().iter();
    let counts = shares.map(|share| share["requests"].as_u64().unwrap());
    counts.filter(|requests| *requests > 50).count()
}

fn config(experiment: &Value, target: &str) -> String {
    let mut rows = experiment["targets"].as_array().unwrap().iter();
    let row = rows.find(|row| row["name"] == target).unwrap();
    row["configs"][0]["text"].as_str().unwrap().to_owned()
}
