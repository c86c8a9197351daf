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
    ear: UnixDatagram,
    process: Child,
    room: tempfile::TempDir,
}

impl Managed {
    fn start(ear: UnixDatagram, address: &str, room: tempfile::TempDir) -> Managed {
        ear.set_read_timeout(Some(LIMIT)).expect("it works");
        let (admin, listen) = (free_port(), free_port());
        let config = format!(
            "[engine]\nshutdown_limit_ms = 7000\n\
             [admin]\nlisten = \"127.0.0.1:{admin}\"\nsocket = \"control\"\n\
             [[service]]\nname = \"s\"\nlisten = \"127.0.0.1:{listen}\"\n\
             servers = [\"127.0.0.1:1\", \"127.0.0.1:2\"]\n[service.health]\nprobe = \"off\"\n"
        );
        let file = room.path().join("evenkeel.toml");
        std::fs::write(&file, config).expect("it works");
        let mut command = Command::new(find_binary().expect("a binary"));
        command.arg("run").arg("-c").arg(&file);
        command.env("NOTIFY_SOCKET", address);
        command.env("WATCHDOG_USEC", "4000000");
        let process = command.spawn().expect("it starts");
        Managed { ear, process, room }
    }

    /// Reads until a message begins like this; periodic ones, about once a second, are skipped.
    fn hears(&self, start: &str) -> String {
        let deadline = Instant::now() + LIMIT;
        let mut bytes = [0; 512];
        while Instant::now() < deadline {
            let count = self.ear.recv(&mut bytes).expect(start);
            let said = String::from_utf8(bytes[..count].to_vec()).expect("text");
            if said.starts_with(start) {
                return said;
            }
            let pulse = said.starts_with("STATUS=") || said == "WATCHDOG=1";
            assert!(pulse, "{said:?} instead of {start:?}");
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
        self.room.path().join("evenkeel.toml")
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn on_a_path() -> Managed {
    let room = tempfile::tempdir().expect("it works");
    let path = room.path().join("notify");
    let ear = UnixDatagram::bind(&path).expect("it works");
    Managed::start(ear, &path.display().to_string(), room)
}

#[test]
fn a_start_a_reload_and_a_stop_are_told() {
    let mut managed = on_a_path();
    assert_eq!(managed.hears("READY=1"), "READY=1");
    let status = managed.hears("STATUS=");
    assert!(
        status.starts_with("STATUS=1 service; 2 of 2 servers accepting clients"),
        "{status}"
    );
    managed.hears("WATCHDOG=1");

    managed.signal(libc::SIGHUP);
    let said = managed.hears("RELOADING=1");
    let (_, told_us) = said.split_once("\nMONOTONIC_USEC=").expect("a time");
    let age_us = uptime_us().abs_diff(told_us.parse().expect("a number"));
    assert!(age_us < 20_000_000, "{age_us}");
    assert_eq!(managed.hears("READY=1"), "READY=1");

    managed.signal(libc::SIGTERM);
    let said = managed.hears("STOPPING=1");
    assert_eq!(said, "STOPPING=1\nEXTEND_TIMEOUT_USEC=12000000");
    assert!(managed.process.wait().expect("it ends").success());
}

#[test]
fn a_reload_that_fails_is_over_too() {
    let managed = on_a_path();
    managed.hears("READY=1");
    std::fs::write(managed.config(), "nonsense = 1").expect("it works");
    managed.signal(libc::SIGHUP);
    managed.hears("RELOADING=1");
    managed.hears("READY=1");
}

#[test]
fn an_abstract_address_is_understood() {
    let name = format!("evenkeel-lab-notify-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("it works");
    let ear = UnixDatagram::bind_addr(&address).expect("it works");
    let room = tempfile::tempdir().expect("it works");
    let managed = Managed::start(ear, &format!("@{name}"), room);
    managed.hears("READY=1");
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
