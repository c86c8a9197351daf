//! Tests of the process as its parent sees it: signals, exit codes, requirements and leftovers.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use evenkeel_lab::{balancer, eventually};

use crate::harness::{self, DRIVERS, End, LIMIT, Mute, end_of, engine, loopback, plain};

/// The program started directly, to observe its exit code.
struct Bare {
    child: Child,
    directory: PathBuf,
}

impl Bare {
    fn start(name: &str, arguments: &[&str], prepare: impl FnOnce(&mut Command)) -> Bare {
        let directory = create_work_dir(name);
        let log = fs::File::create(directory.join("log")).unwrap();
        let mut command = Command::new(balancer::find_binary().unwrap());
        command.arg("run").args(arguments);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        prepare(&mut command);
        let child = command.spawn().unwrap();
        Bare { child, directory }
    }

    fn with_config(name: &str, config: &str, prepare: impl FnOnce(&mut Command)) -> Bare {
        let file = create_work_dir(name).join("evenkeel.toml");
        let socket = create_work_dir(name).join("socket");
        let admin = format!("\n[admin]\nlisten = \"off\"\nsocket = {socket:?}\n");
        fs::write(&file, format!("{config}{admin}")).unwrap();
        let bare = Bare::start(name, &["-c", &file.display().to_string()], prepare);
        bare.wait_said("ready");
        bare
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.join("log")).unwrap()
    }

    fn wait_said(&self, what: &str) {
        let printed = || Ok(self.log().contains(what).then_some(()));
        eventually(LIMIT, what, printed).unwrap_or_else(|error| panic!("{error}: {}", self.log()));
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(sent.unwrap().success());
    }

    fn wait(&mut self) -> ExitStatus {
        eventually(LIMIT, "the end", || Ok(self.child.try_wait()?)).unwrap()
    }
}

/// Returns a directory of this test, removed with the process.
fn create_work_dir(name: &str) -> PathBuf {
    let unique = format!("evenkeel-operate-{name}-{}", std::process::id());
    let directory = std::env::temp_dir().join(unique);
    fs::create_dir_all(&directory).unwrap();
    directory
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

#[test]
fn sigterm_lets_sessions_finish_and_ends_with_code_0_when_the_last_one_has() {
    for io in DRIVERS {
        let (mute, listen) = (Mute::new(), loopback());
        let config = plain("front", listen, &[mute.address()], "");
        let config = format!("{}{config}", engine(io).replace("3000", "20000"));
        let mut bare = Bare::with_config(&format!("term-{io}"), &config, |_| {});
        let mut client = TcpStream::connect(listen).unwrap();
        let (mut session, _) = mute.accept();
        let reply = Instant::now();
        bare.signal("TERM");
        bare.wait_said("shutting down");
        let closed = || Ok(TcpStream::connect(listen).is_err().then_some(()));
        eventually(LIMIT, "the end of listening", closed).unwrap();
        session.write_all(b"still here").unwrap();
        let mut bytes = [0; 10];
        std::io::Read::read_exact(&mut client, &mut bytes).unwrap();
        drop((client, session));
        assert_eq!(bare.wait().code(), Some(0), "{}", bare.log());
        assert!(reply.elapsed() < Duration::from_secs(15));
    }
}

#[test]
fn sigterm_cuts_what_is_left_after_the_limit_and_a_second_one_does_not_wait() {
    for (io, signals) in [("auto", 1), ("epoll", 1), ("auto", 2), ("epoll", 2)] {
        let (mute, listen) = (Mute::new(), loopback());
        let limit_ms = if signals == 1 { 1_000 } else { 600_000 };
        let config = plain("front", listen, &[mute.address()], "");
        let engine = engine(io).replace("3000", &limit_ms.to_string());
        let config = format!("{engine}{config}");
        let mut bare = Bare::with_config(&format!("limit-{io}-{signals}"), &config, |_| {});
        let mut client = TcpStream::connect(listen).unwrap();
        let _session = mute.accept();
        let reply = Instant::now();
        bare.signal("TERM");
        bare.wait_said("shutting down");
        if signals == 2 {
            bare.signal("TERM");
        }
        assert_eq!(bare.wait().code(), Some(0), "{}", bare.log());
        assert_eq!(end_of(&mut client, LIMIT), End::Reset, "{io} {signals}");
        if signals == 1 {
            assert!(reply.elapsed() >= Duration::from_secs(1));
        }
        let log = bare.log();
        assert!(log.contains("stopped"), "{log}");
    }
}

#[test]
fn a_service_from_the_command_line_needs_no_file() {
    let (mute, listen) = (Mute::new(), loopback());
    let (listen_flag, to) = (format!("tcp://{listen}"), mute.address().to_string());
    let socket = create_work_dir("flags").join("socket");
    let socket = socket.display().to_string();
    let arguments = [
        "--listen",
        &listen_flag,
        "--to",
        &to,
        "--admin",
        "off",
        "--socket",
        &socket,
    ];
    let mut bare = Bare::start("flags", &arguments, |_| {});
    bare.wait_said("ready");
    let _client = TcpStream::connect(listen).unwrap();
    let _session = mute.accept();
    let status = Command::new(balancer::find_binary().unwrap())
        .args(["reload", "--socket", &socket])
        .output()
        .unwrap();
    assert_eq!(status.status.code(), Some(1));
    assert!(
        harness::printed(&status).contains("started without a config file"),
        "{}",
        harness::printed(&status)
    );
    bare.signal("INT");
    // Two simultaneous signals count as one.
    bare.wait_said("shutting down");
    bare.signal("INT");
    assert_eq!(bare.wait().code(), Some(0));
    assert!(
        !fs::exists(&socket).unwrap(),
        "the control socket is removed"
    );
}

#[test]
fn too_few_file_descriptors_are_reported_at_the_start() {
    let config = plain("front", loopback(), &[loopback()], "max_connections = 5000");
    let bare = Bare::with_config("descriptors", &config, |command| {
        #[expect(
            unsafe_code,
            reason = "limits can only be lowered between fork and exec"
        )]
        // SAFETY: both calls are async-signal-safe; the limit outlives its call.
        unsafe {
            command.pre_exec(|| {
                let limit = libc::rlimit {
                    rlim_cur: 600,
                    rlim_max: 600,
                };
                libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
                // Root could raise the limit again. Other users may not, and cannot drop a
                // capability that they lack.
                libc::prctl(libc::PR_CAPBSET_DROP, 24);
                Ok(())
            });
        }
    });
    let log = bare.log();
    for part in [
        "WARN",
        "10256 file descriptors",
        "the limit is 600",
        "ulimit -n",
    ] {
        assert!(log.contains(part), "{part} in {log}");
    }
}
