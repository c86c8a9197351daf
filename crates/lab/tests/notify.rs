//! Tests of the service manager's notifications at start, reload and stop.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use evenkeel_lab::balancer::find_binary;
use evenkeel_lab::free_port;

const LIMIT: Duration = Duration::from_secs(20);

/// A balancer started like a service manager does, and its messages.
struct Managed {
    socket: UnixDatagram,
    process: Child,
    work_dir: tempfile::TempDir,
}

impl Managed {
    fn start(socket: UnixDatagram, address: &str, work_dir: tempfile::TempDir) -> Managed {
        socket.set_read_timeout(Some(LIMIT)).expect("it works");
        let (admin, listen) = (free_port(), free_port());
        let config = format!(
            "[engine]\nshutdown_limit_ms = 7000\n\
             [admin]\nlisten = \"127.0.0.1:{admin}\"\nsocket = \"control\"\n\
             [[service]]\nname = \"s\"\nlisten = \"127.0.0.1:{listen}\"\n\
             servers = [\"127.0.0.1:1\", \"127.0.0.1:2\"]\n[service.health]\nprobe = \"off\"\n"
        );
        let file = work_dir.path().join("evenkeel.toml");
        std::fs::write(&file, config).expect("it works");
        let mut command = Command::new(find_binary().expect("a binary"));
        command.arg("run").arg("-c").arg(&file);
        command.env("NOTIFY_SOCKET", address);
        command.env("WATCHDOG_USEC", "4000000");
        let process = command.spawn().expect("it starts");
        Managed {
            socket,
            process,
            work_dir,
        }
    }

    /// Reads until a message begins like this; periodic ones, about once a second, are skipped.
    fn receive(&self, start: &str) -> String {
        let deadline = Instant::now() + LIMIT;
        let mut bytes = [0; 512];
        while Instant::now() < deadline {
            let count = self.socket.recv(&mut bytes).expect(start);
            let message = String::from_utf8(bytes[..count].to_vec()).expect("text");
            if message.starts_with(start) {
                return message;
            }
            let pulse = message.starts_with("STATUS=") || message == "WATCHDOG=1";
            assert!(pulse, "{message:?} instead of {start:?}");
        }
        panic!("{start:?} did not come")
    }

    fn signal(&self, signal: i32) {
        let pid = self.process.id().cast_signed();
        #[expect(unsafe_code, reason = "kill has no wrapper in the standard library")]
        // SAFETY: kill takes no pointer; the process is our own child.
        let sent = unsafe { libc::kill(pid, signal) };
        assert_eq!(sent, 0);
    }

    fn config(&self) -> std::path::PathBuf {
        self.work_dir.path().join("evenkeel.toml")
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn on_a_path() -> Managed {
    let work_dir = tempfile::tempdir().expect("it works");
    let path = work_dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("it works");
    Managed::start(socket, &path.display().to_string(), work_dir)
}

#[test]
fn a_start_a_reload_and_a_stop_are_told() {
    let mut managed = on_a_path();
    assert_eq!(managed.receive("READY=1"), "READY=1");
    let status = managed.receive("STATUS=");
    assert!(
        status.starts_with("STATUS=1 service; 2 of 2 servers accepting clients"),
        "{status}"
    );
    managed.receive("WATCHDOG=1");

    managed.signal(libc::SIGHUP);
    let message = managed.receive("RELOADING=1");
    let (_, told_us) = message.split_once("\nMONOTONIC_USEC=").expect("a time");
    let age_us = uptime_us().abs_diff(told_us.parse().expect("a number"));
    assert!(age_us < 20_000_000, "{age_us}");
    assert_eq!(managed.receive("READY=1"), "READY=1");

    managed.signal(libc::SIGTERM);
    let message = managed.receive("STOPPING=1");
    assert_eq!(message, "STOPPING=1\nEXTEND_TIMEOUT_USEC=12000000");
    assert!(managed.process.wait().expect("it ends").success());
}

#[test]
fn a_reload_that_fails_is_over_too() {
    let managed = on_a_path();
    managed.receive("READY=1");
    std::fs::write(managed.config(), "nonsense = 1").expect("it works");
    managed.signal(libc::SIGHUP);
    managed.receive("RELOADING=1");
    managed.receive("READY=1");
}

#[test]
fn an_abstract_address_is_understood() {
    let name = format!("evenkeel-lab-notify-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("it works");
    let socket = UnixDatagram::bind_addr(&address).expect("it works");
    let work_dir = tempfile::tempdir().expect("it works");
    let managed = Managed::start(socket, &format!("@{name}"), work_dir);
    managed.receive("READY=1");
}

/// Returns the monotonic clock as the kernel prints it.
fn uptime_us() -> u64 {
    let text = std::fs::read_to_string(Path::new("/proc/uptime")).expect("it works");
    let seconds: f64 = text
        .split(' ')
        .next()
        .and_then(|s| s.parse().ok())
        .expect("a number");
    (seconds * 1e6) as u64
}
