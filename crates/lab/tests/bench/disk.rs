//! Tests a disk that fills during a run: the run ends with a message, and can be resumed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use evenkeel_lab::{eventually, own_uid};
use serde_json::Value;

use crate::resume::has_one_of;
use crate::{LIMIT, bench, printed, results, text_of};

/// Size slightly above the free space that the bench requires.
const DISK_MB: usize = 330;

/// Two runs of a second in each block.
const EXPERIMENT: &str = r#"
name = "NAME"
title = "On a small disk"
quick = { blocks = 3, seconds = 1 }
normal = { blocks = 3, seconds = 1 }
full = { blocks = 3, seconds = 1 }

[[part]]
name = "web"
servers = { kind = "web", count = 1 }

[[part.target]]
name = "direct"
program = "direct"

[[part.target]]
name = "nginx"
program = "nginx"

[[part.load]]
name = "NAME-pages"
tool = "wrk"
page = "/29b"
sweep = "connections"
points = { quick = [2], normal = [2], full = [2] }
"#;

#[test]
fn with_little_left_on_the_disk_the_run_ends_at_once_and_resume_goes_on() {
    let Some(disk) = Disk::mount() else { return };
    let (run, out) = disk.begin(&["first", "second"]);
    wait_for_a_block(&out);
    disk.fill(290 << 10);
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", printed(&output));
    let words = printed(&output);
    let last = words.lines().last().unwrap();
    for part in [
        "evenkeel-lab: the disk of",
        "nearly full",
        "300",
        "--resume",
    ] {
        assert!(last.contains(part), "{part:?} is not in {words}");
    }
    let kept = results(&out);
    assert_eq!(kept["experiments"].as_array().unwrap().len(), 1, "{words}");
    assert!(kept["ended_unix_s"].is_null());
    let count = cells(&kept, 0).len();
    assert!((2..6).contains(&count), "{count} runs");
    let page = fs::read_to_string(out.join("report.html")).unwrap();
    assert!(page.contains("nearly full") && page.trim_end().ends_with("</html>"));

    let again = bench(&["--resume", &text_of(&out)]).output().unwrap();
    assert_eq!(again.status.code(), Some(1), "{}", printed(&again));
    assert_eq!(cells(&results(&out), 0), cells(&kept, 0));

    disk.empty();
    let output = bench(&["--resume", &text_of(&out)]).output().unwrap();
    assert!(output.status.success(), "{}", printed(&output));
    let whole = results(&out);
    assert!(whole["ended_unix_s"].is_number());
    assert_eq!(cells(&whole, 0)[..count], cells(&kept, 0));
    assert_eq!([0, 1].map(|place| cells(&whole, place).len()), [6, 6]);
    assert_eq!(whole["experiments"][0]["failures"], Value::Array(vec![]));
}

#[test]
fn a_disk_that_is_full_in_the_middle_of_a_block_leaves_the_results_whole() {
    let Some(disk) = Disk::mount() else { return };
    let (run, out) = disk.begin(&["first", "second"]);
    wait_for_a_block(&out);
    let order = fs::read_to_string(out.join("order.json")).unwrap();
    let before = results(&out);
    disk.fill(0);
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", printed(&output));
    assert!(
        printed(&output).contains("is full: free some and go on"),
        "{}",
        printed(&output)
    );
    let kept = results(&out);
    let count = cells(&kept, 0).len();
    assert!((2..6).contains(&count), "{count} runs");
    assert_eq!(cells(&kept, 0)[..2], cells(&before, 0)[..2]);
    assert_eq!(fs::read_to_string(out.join("order.json")).unwrap(), order);
    assert!(!out.join("report.html").exists(), "half a report is none");

    disk.empty();
    let output = bench(&["--resume", &text_of(&out)]).output().unwrap();
    assert!(output.status.success(), "{}", printed(&output));
    let whole = results(&out);
    assert_eq!(cells(&whole, 0)[..count], cells(&kept, 0));
    assert_eq!([0, 1].map(|place| cells(&whole, place).len()), [6, 6]);
    assert!(out.join("report.html").exists());
}

/// A small separate disk, removed with the test.
struct Disk(tempfile::TempDir);

impl Disk {
    /// Mounts the disk; `None` without the necessary rights.
    fn mount() -> Option<Disk> {
        if own_uid() != 0 {
            eprintln!("skipped: a small disk can be mounted by root only");
            return None;
        }
        let disk = Disk(tempfile::tempdir().unwrap());
        let size = format!("size={DISK_MB}m");
        let words = ["-t", "tmpfs", "-o", &size, "evenkeel-lab-test"];
        let output = Command::new("mount").args(words).arg(disk.path()).output();
        let output = output.unwrap();
        if !output.status.success() {
            eprintln!(
                "skipped: no small disk can be mounted here: {}",
                printed(&output)
            );
            return None;
        }
        Some(disk)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn begin(&self, names: &[&str]) -> (Child, PathBuf) {
        let out = self.path().join("out");
        let files = names.iter().map(|name| {
            let file = self.path().join(format!("{name}.toml"));
            fs::write(&file, EXPERIMENT.replace("NAME", name)).unwrap();
            text_of(&file)
        });
        let files: Vec<String> = files.collect();
        let run = bench(&["--quick", "--out", &text_of(&out)])
            .args(files)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        (run.unwrap(), out)
    }

    /// Fills the disk except for `left_kb`, immediately, before the next run ends.
    fn fill(&self, left_kb: usize) {
        let mut df = Command::new("df");
        let df = df.arg("--output=avail").arg(self.path()).output();
        let df = String::from_utf8(df.unwrap().stdout).unwrap();
        let free_kb: usize = df.lines().last().unwrap().trim().parse().unwrap();
        let size = format!("{}KiB", free_kb - left_kb);
        let mut fallocate = Command::new("fallocate");
        let status = fallocate.args(["-l", &size]).arg(self.filler()).status();
        assert!(status.unwrap().success());
    }

    fn empty(&self) {
        fs::remove_file(self.filler()).unwrap();
    }

    fn filler(&self) -> PathBuf {
        self.path().join("filler")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

/// Waits until one block is complete, and the next in progress.
fn wait_for_a_block(out: &Path) {
    eventually(LIMIT, "a run of the second block", || {
        Ok(has_one_of(&out.join("raw/first/first-pages"), "block-2.txt").then_some(()))
    })
    .unwrap();
}

fn cells(results: &Value, place: usize) -> Vec<Value> {
    let cells = results["experiments"][place]["cells"].as_array();
    cells.cloned().unwrap_or_default()
}
