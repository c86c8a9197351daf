//! Tests glb as a target if it is installed: Debian has no package of it.

use std::fs;
use std::process::Command;

use crate::{bench, printed, results, sound, text_of};

const EXPERIMENT: &str = r#"
name = "glb"
title = "glb"
quick = { blocks = 2, seconds = 1 }
normal = { blocks = 2, seconds = 1 }
full = { blocks = 2, seconds = 1 }

[[part]]
name = "databases"
servers = { kind = "mariadb", count = 2 }

[[part.target]]
name = "round"
program = "glb"
balance = "round-robin"

[[part.target]]
name = "least"
program = "glb"

[[part.load]]
name = "queries"
tool = "sysbench"
sql = ["SELECT 1"]
sweep = "threads"
points = { quick = [4], normal = [4], full = [4] }
"#;

#[test]
fn glb_stands_between_with_its_words_and_its_version_in_the_report() {
    if Command::new("glbd").arg("--version").output().is_err() {
        eprintln!("skipped: glbd is not installed");
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("glb.toml");
    fs::write(&file, EXPERIMENT).unwrap();
    let out = home.path().join("out");
    let mut run = bench(&[&text_of(&file), "--quick", "--out", &text_of(&out)]);
    let output = run.output().unwrap();
    assert!(output.status.success(), "{}", printed(&output));
    let own = &results(&out)["experiments"][0];
    let row = |name: &str| {
        let mut rows = own["targets"].as_array().unwrap().iter();
        rows.find(|row| row["name"] == name).unwrap()
    };
    for (name, has_word) in [("round", true), ("least", false)] {
        assert_eq!(sound(own, name).len(), 2, "{name}: {}", printed(&output));
        let words = row(name)["configs"][0]["text"].as_str().unwrap();
        assert!(words.contains("--threads 4"), "{words}");
        assert_eq!(words.contains("--round"), has_word, "{words}");
        let version = row(name)["version"].as_str().unwrap();
        assert!(version.starts_with("glb v"), "{version}");
    }
    let cell = sound(own, "round")[0];
    assert!(cell["values"]["balancer-cpu-us"].as_f64().unwrap() > 0.0);
    let shares = cell["shares"].as_array().unwrap().iter();
    let shares: Vec<u64> = shares
        .map(|one| one["requests"].as_u64().unwrap())
        .collect();
    assert!(shares.iter().all(|requests| *requests > 50), "{shares:?}");
}
