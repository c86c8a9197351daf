//! Runs a page's examples on machines with stock Debian servers, as `site.sh` creates them.
//!
//! A block belongs to the run if its opening line names a machine: `sh db1`. SQL is sent to the
//! superuser's client. TOML is the file with the next name: `toml evenkeel evenkeel.toml`. In a
//! `console` block each line that begins with `$` is a command, and the lines below are its output.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use evenkeel_lab::balancer::find_binary;
use evenkeel_lab::own_uid;

use crate::page::{Block, Location};

const MACHINES: [&str; 5] = ["evenkeel", "db1", "db2", "web1", "web2"];

/// Matches any text in an expected output, and any lines if on a line of its own.
const ANYTHING: &str = "…";

/// A script that runs on a machine.
pub(crate) struct Step {
    location: Location,
    machine: &'static str,
    script: String,
    /// Expected output lines; `None` means any.
    expected: Option<Vec<String>>,
}

/// Returns the steps of a page, in order. An error names a block that cannot be run.
pub(crate) fn steps(blocks: &[Block]) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    for block in blocks {
        let named = MACHINES.into_iter().find(|name| block.has_word(name));
        let Some(machine) = named else { continue };
        let step = |script: String| Step {
            location: block.location.clone(),
            machine,
            script,
            expected: None,
        };
        let text = block.text();
        match block.language.as_str() {
            "sh" => steps.push(step(text)),
            "console" => steps.extend(commands(block, machine)),
            "sql" if machine == "db1" => steps.push(step(given_to(
                "sudo -u postgres psql --quiet --set=ON_ERROR_STOP=1",
                &text,
            ))),
            "sql" => steps.push(step(given_to("sudo mariadb", &text))),
            "toml" => {
                let file = block.words.get(1).map_or("", String::as_str);
                steps.push(step(given_to(&format!("tee {file} >/dev/null"), &text)));
            }
            other => return Err(format!("{}: {other} cannot be run", block.location)),
        }
    }
    Ok(steps)
}

/// Returns a script that runs `command` with the text as its input.
fn given_to(command: &str, text: &str) -> String {
    format!("{command} <<'END OF BLOCK'\n{text}END OF BLOCK\n")
}

/// Returns a step for each command of a console.
fn commands(block: &Block, machine: &'static str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for (index, line) in block.lines.iter().enumerate() {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step {
                location: block.location.below(index),
                machine,
                script: format!("{command}\n"),
                expected: Some(Vec::new()),
            });
        } else if let Some(step) = steps.last_mut() {
            step.expected.get_or_insert_default().push(line.clone());
        }
    }
    steps
}

/// Runs the steps. An error names the step that failed, and its output. `Ok(Some(reason))` means
/// that this machine cannot run them.
pub(crate) fn run(steps: &[Step]) -> Result<Option<String>, String> {
    if own_uid() != 0 {
        return Ok(Some("root is needed".to_owned()));
    }
    let work_dir = tempfile::tempdir().expect("a directory");
    let list = steps.iter().enumerate();
    let list = list.map(|(number, step)| {
        fs::write(work_dir.path().join(format!("{number}.sh")), &step.script).expect("a file");
        format!("{number} {}\n", step.machine)
    });
    fs::write(work_dir.path().join("list"), list.collect::<String>()).expect("a file");
    let output = site(work_dir.path());
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if let Some(reason) = printed.strip_prefix("not run: ") {
        return Ok(Some(reason.trim_end().to_owned()));
    }
    let mut ended = printed.lines();
    for (number, step) in steps.iter().enumerate() {
        let Step {
            location, script, ..
        } = step;
        let text = fs::read(work_dir.path().join(format!("{number}.out"))).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        match ended.next().and_then(|line| line.split(' ').nth(1)) {
            Some("0") => {}
            Some(code) => return Err(format!("{location}: exit code {code} of\n{script}\n{text}")),
            None => {
                let errors = String::from_utf8_lossy(&output.stderr);
                return Err(format!("{location}: the machines failed before:\n{errors}"));
            }
        }
        let expected = step.expected.as_deref();
        if expected.is_some_and(|expected| !is_like(&lines(&text), expected)) {
            let expected = step.expected.as_deref().unwrap_or_default().join("\n");
            return Err(format!(
                "{location}: {script}printed\n{text}\nand the page says\n{expected}"
            ));
        }
    }
    Ok(None)
}

/// Runs `site.sh` in separate namespaces, which end with it.
fn site(steps: &Path) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/documents/site.sh");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--pid", "--fork", "--mount-proc"]);
    command.arg("--kill-child=KILL").arg("bash").arg(script);
    command
        .arg(find_binary().expect("a binary"))
        .arg(steps)
        .stdin(Stdio::null());
    command.output().expect("unshare runs")
}

fn lines(text: &str) -> Vec<String> {
    let lines = text.trim_end().lines();
    lines.map(|line| line.trim_end().to_owned()).collect()
}

/// Returns whether the lines match those of the page.
fn is_like(lines: &[String], expected: &[String]) -> bool {
    match expected.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first == ANYTHING => {
            (0..=lines.len()).any(|skipped| is_like(&lines[skipped..], rest))
        }
        Some((first, rest)) => lines
            .split_first()
            .is_some_and(|(line, others)| is_line_like(line, first) && is_like(others, rest)),
    }
}

fn is_line_like(line: &str, expected: &str) -> bool {
    match expected.split_once(ANYTHING) {
        None => line == expected,
        Some((start, rest)) => line.strip_prefix(start).is_some_and(|line| {
            let ends = line.char_indices().map(|(index, _)| index);
            ends.chain([line.len()])
                .any(|end| is_line_like(&line[end..], rest))
        }),
    }
}
