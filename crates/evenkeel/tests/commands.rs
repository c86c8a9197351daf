//! Tests the program's commands: exit codes, output, and the commands that reach the process.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Output};
use std::sync::{Arc, mpsc};
use std::thread;

use evenkeel::admin::{AdminSettings, Listeners, bind_socket, serve};
use evenkeel::status::{
    Command, ControlHandle, Reply, Request, ServiceStatus, Status, TimelineEvent,
};
use evenkeel_config::ReportedProblem;
use tempfile::TempDir;

const CONFIG: &str =
    "[[service]]\nname = 'a'\nlisten = '127.0.0.1:3306'\nservers = ['127.0.0.1:3307']\n";

fn evenkeel(arguments: &[&str]) -> Output {
    Process::new(env!("CARGO_BIN_EXE_evenkeel"))
        .args(arguments)
        .output()
        .expect("run evenkeel")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn write(directory: &TempDir, text: &str) -> PathBuf {
    let path = directory.path().join("evenkeel.toml");
    fs::write(&path, text).expect("write the config");
    path
}

/// Control plane that knows one server, `a/db:1`, with a real admin socket.
struct Running {
    directory: TempDir,
    commands: mpsc::Receiver<Command>,
}

impl Running {
    fn start() -> Running {
        let directory = TempDir::new().expect("a directory");
        let path = directory.path().join("own/evenkeel.sock");
        let (recorder, commands) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.expect("a runtime").block_on(async {
                let socket = bind_socket(&path).expect("the control socket");
                let (control, requests) = ControlHandle::channel();
                ready.send(()).expect("the test waits");
                let never = tokio::sync::watch::channel(false).1;
                let settings = AdminSettings::default();
                let listeners = Listeners {
                    socket: Some(socket),
                    ..Listeners::default()
                };
                let server = serve(listeners, settings, control, never);
                tokio::join!(server, answer(requests, recorder));
            });
        });
        is_ready.recv().expect("the socket is open");
        Running {
            directory,
            commands,
        }
    }

    fn socket(&self) -> String {
        self.directory
            .path()
            .join("own/evenkeel.sock")
            .display()
            .to_string()
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let socket = self.socket();
        evenkeel(&[arguments, &["--socket", &socket]].concat())
    }
}

const UNASKED: &str = "nobody asks for that here";

async fn answer(
    mut requests: tokio::sync::mpsc::Receiver<Request>,
    recorder: mpsc::Sender<Command>,
) {
    while let Some(request) = requests.recv().await {
        match request {
            Request::Status(selection, sender) => {
                let selected = ServiceStatus {
                    name: format!("{:?} {:?}", selection.service, selection.servers()),
                    ..ServiceStatus::default()
                };
                let is_unknown = selection.service.as_deref() == Some("unknown");
                let services = if is_unknown { vec![] } else { vec![selected] };
                let status = Status {
                    version: "9.8.7".to_owned(),
                    pid: 42,
                    services,
                    ..Status::default()
                };
                let _ = sender.send(Arc::new(status));
            }
            Request::Events { after, answer } => {
                let _ = answer.send(events(after));
            }
            Request::Connections { answer, .. } => drop(answer.send(Err(UNASKED.to_owned()))),
            Request::Digests { answer, .. } => drop(answer.send(Err(UNASKED.to_owned()))),
            Request::Explain { answer, .. } => drop(answer.send(Err(UNASKED.to_owned()))),
            Request::Open { answer, .. } => drop(answer.send(Err(UNASKED.to_owned()))),
            Request::Upgrade {
                binary,
                limit_ms,
                end_draining,
                answer,
            } => {
                let asked = format!("{binary:?} {limit_ms:?} {end_draining}");
                let _ = answer.send(Reply::done(format!("pid 2 serves: {asked}")));
            }
            Request::Revoke { answer, .. } => drop(answer.send(Reply::failed(UNASKED))),
            Request::Command(command, sender) => {
                let _ = sender.send(reply(&command));
                let _ = recorder.send(command);
            }
        }
    }
}

fn events(after: u64) -> Vec<TimelineEvent> {
    let event = |id| TimelineEvent {
        id,
        what: format!("db{id} is the primary"),
        ..TimelineEvent::default()
    };
    (after + 1..=2).map(event).collect()
}

fn reply(command: &Command) -> Reply {
    match command {
        Command::Undrain { .. } => Reply::failed("no server is called that"),
        Command::Reload => {
            let problem = ReportedProblem {
                file: Some("x.toml".to_owned()),
                line: Some(3),
                column: Some(4),
                severity: "error".to_owned(),
                code: "E_RANGE".to_owned(),
                message: "too much".to_owned(),
                help: Some("take less".to_owned()),
            };
            Reply {
                problems: vec![problem],
                ..Reply::failed("the file was not taken")
            }
        }
        _ => Reply::done("done"),
    }
}

#[test]
fn the_version_names_the_commit_where_it_is_known() {
    // HEAD may move between the build and the test, so the build's own commit is expected.
    let built = env!("EVENKEEL_VERSION");
    let printed = stdout(&evenkeel(&["--version"]));
    assert_eq!(printed, format!("evenkeel {built}\n"));
    if git(&["rev-parse", "HEAD"]).is_none() {
        return;
    }
    let commit = built.strip_prefix(concat!(env!("CARGO_PKG_VERSION"), " ("));
    let commit = commit.and_then(|rest| rest.strip_suffix(')'));
    let commit = commit.unwrap_or_else(|| panic!("no commit in {built:?}"));
    let found = git(&["rev-parse", "--verify", &format!("{commit}^{{commit}}")]);
    assert!(found.is_some_and(|id| id.starts_with(commit)), "{commit}");
}

/// Returns what Git prints; `None` if it fails.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Process::new("git").args(arguments).output().ok()?;
    output.status.success().then(|| stdout(&output))
}

#[test]
fn check_says_in_words_and_exit_code_whether_a_file_is_good() {
    let directory = TempDir::new().expect("a directory");
    let path = write(&directory, CONFIG).display().to_string();
    let good = evenkeel(&["check", "-c", &path]);
    assert_eq!(good.status.code(), Some(0), "{}", stderr(&good));
    assert!(
        stdout(&good).contains("OK: 1 service, 1 server"),
        "{}",
        stdout(&good)
    );
    write(&directory, &CONFIG.replace("name", "nmae"));
    let bad = evenkeel(&["check", "-c", &path]);
    assert_eq!(bad.status.code(), Some(1));
    let text = stderr(&bad);
    assert!(text.contains(":2:1: error[E_UNKNOWN_KEY]"), "{text}");
    assert!(
        text.contains("did you mean `name`?") && text.ends_with(": 1 error\n"),
        "{text}"
    );
    assert!(
        !text.contains('\u{1b}'),
        "colours without a terminal: {text}"
    );
}

#[test]
fn check_prints_json_for_machines() {
    let directory = TempDir::new().expect("a directory");
    let path = write(&directory, &CONFIG.replace("'a'", "'a'\nretries = -1"))
        .display()
        .to_string();
    let output = evenkeel(&["check", "--json", "-c", &path]);
    assert_eq!(output.status.code(), Some(1));
    let problems: Vec<ReportedProblem> = serde_json::from_slice(&output.stdout).expect("JSON");
    let [problem] = problems.as_slice() else {
        panic!("{problems:#?}")
    };
    let place = (problem.file.as_deref(), problem.line, problem.column);
    assert_eq!(place, (Some(path.as_str()), Some(3), Some(11)));
    assert_eq!(
        (problem.severity.as_str(), problem.code.as_str()),
        ("error", "E_RANGE")
    );
    assert!(problem.message.contains("0 to 100"), "{problem:?}");
    write(&directory, CONFIG);
    assert_eq!(stdout(&evenkeel(&["check", "--json", "-c", &path])), "[]\n");
}

#[test]
fn run_says_how_to_begin_and_what_is_wrong() {
    let check = |arguments: &[&str], code: i32, words: &str| {
        let output = evenkeel(arguments);
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    };
    check(&["run"], 2, "evenkeel run -c evenkeel.toml");
    check(
        &["run", "--listen", "127.0.0.1:1"],
        1,
        "`--listen` needs servers",
    );
    check(
        &["run", "--listen", "x", "--to", "a:1"],
        1,
        "--listen: `x` has no port",
    );
    check(&["run", "-c", "/nonexistent/x.toml"], 1, "no such file");
    check(
        &["run", "-c", "x.toml", "--to", "a:1"],
        2,
        "cannot be used with",
    );
    check(&["weight", "db1", "257"], 2, "257");
    check(&["frobnicate"], 2, "Usage");
}

#[test]
fn status_is_asked_for_over_the_socket() {
    let running = Running::start();
    let table = running.run(&["status"]);
    assert_eq!(table.status.code(), Some(0), "{}", stderr(&table));
    assert!(
        stdout(&table).contains("evenkeel 9.8.7, pid 42"),
        "{}",
        stdout(&table)
    );
    let json = running.run(&["status", "--json"]);
    let status: Status = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(status.pid, 42);
    for (arguments, selected) in [
        (&["status"][..], "None Default"),
        (&["status", "--all"], "None All"),
        (&["status", "--service", "a b"], "Some(\"a b\") All"),
    ] {
        let table = stdout(&running.run(arguments));
        assert!(table.contains(&format!("service {selected}: ")), "{table}");
    }
    for json in [&[][..], &["--json"]] {
        let refused = running.run(&[&["status", "--service", "unknown"], json].concat());
        assert_eq!(refused.status.code(), Some(1));
        assert!(stderr(&refused).contains("no service named \"unknown\""));
    }
}

#[test]
fn events_are_lines_for_people_or_json_for_machines() {
    let running = Running::start();
    let text = stdout(&running.run(&["events"]));
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.contains("db1 is the primary\n"), "{text}");
    let json = stdout(&running.run(&["events", "--json"]));
    let last: TimelineEvent = serde_json::from_str(json.lines().last().expect("two lines"))
        .expect("each line is an event");
    assert_eq!(last.id, 2);
}

#[test]
fn the_socket_is_found_through_the_config_file() {
    let running = Running::start();
    let text = format!("{CONFIG}[admin]\nsocket = 'own/evenkeel.sock'\n");
    let path = write(&running.directory, &text).display().to_string();
    let output = evenkeel(&["status", "-c", &path]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn commands_arrive_whole_whatever_the_servers_name() {
    let running = Running::start();
    let server = "a/unix:/run/x y%2F?#ü.sock".to_owned();
    let check = |arguments: &[&str], expected: Command| {
        let output = running.run(arguments);
        assert_eq!(
            (output.status.code(), stdout(&output)),
            (Some(0), "done\n".to_owned())
        );
        assert_eq!(running.commands.recv(), Ok(expected));
    };
    check(
        &["drain", &server],
        Command::Drain {
            server: server.clone(),
            limit_ms: None,
        },
    );
    let limited = Command::Drain {
        server: "[::1]:1".to_owned(),
        limit_ms: Some(5),
    };
    check(&["drain", "[::1]:1", "--limit-ms", "5"], limited);
    check(
        &["weight", &server, "0"],
        Command::Weight {
            server: server.clone(),
            weight: 0,
        },
    );
}

#[test]
fn an_upgrade_names_the_program_so_that_another_directory_does_not_matter() {
    let running = Running::start();
    let printed = stdout(&running.run(&["upgrade", "--binary", "new/evenkeel"]));
    let here = std::env::current_dir().expect("a directory");
    let expected = format!(
        "{:?} {:?} false",
        Some(here.join("new/evenkeel")),
        Some(10_000)
    );
    assert_eq!(printed, format!("pid 2 serves: {expected}\n"));
    let printed = stdout(&running.run(&["upgrade", "--limit-ms", "500", "--end-draining"]));
    assert_eq!(printed, "pid 2 serves: None Some(500) true\n");
    let output = running.run(&["upgrade", "--limit-ms", "20001"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn what_was_not_done_is_an_error_with_its_reason() {
    let running = Running::start();
    let output = running.run(&["undrain", "x"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output), "error: no server is called that\n");
    let output = running.run(&["reload"]);
    assert_eq!(output.status.code(), Some(1));
    let expected = "x.toml:3:4: error[E_RANGE]: too much\n  help: take less\n\
        error: the file was not taken\n";
    assert_eq!(stderr(&output), expected);
}

#[test]
fn nobody_and_a_stranger_at_the_socket_are_told_apart() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("x.sock");
    let run = |path: &Path| {
        let output = evenkeel(&["status", "--socket", &path.display().to_string()]);
        assert_eq!(output.status.code(), Some(1));
        stderr(&output)
    };
    assert!(run(&path).contains("is it running?"), "{}", run(&path));
    let listener = UnixListener::bind(&path).expect("a socket");
    let stranger = thread::spawn(move || drop(listener.accept()));
    let text = run(&path);
    stranger.join().expect("the stranger ends");
    assert!(text.contains("unexpected response"), "{text}");
}
