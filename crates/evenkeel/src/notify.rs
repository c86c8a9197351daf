//! Tells the service manager how we are, as sd_notify(3) does; without one that asks it is silent.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

/// A manager that reads nothing must not stop the control plane for longer.
const SEND_LIMIT: Duration = Duration::from_secs(1);

/// The manager kills who says nothing for the watchdog's whole interval: so many words in each.
const TICKS_PER_INTERVAL: u32 = 4;

/// Beyond the sessions' own limit: the cut itself, and the end of the process.
const STOP_MARGIN_MS: u64 = 5_000;

/// Clients are served from now on; also the end of a reload.
pub fn ready() {
    tell(|| "READY=1".to_owned());
}

/// The process that served instead of this one is gone.
pub fn serve_again() {
    if let Some(manager) = manager() {
        manager.told().is_retired = false;
        took_over();
    }
}

/// This process serves instead of another one, which may not be there to say so.
pub fn took_over() {
    tell(|| format!("MAINPID={}", std::process::id()));
}

/// The file is read again; [`ready`] says when that is over, whatever came of it.
pub fn reloading() {
    // The manager tells by the time that this is not the answer to an earlier order.
    tell(|| format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic_us()));
}

/// No new clients: sessions may go on for so long, and the manager is to wait for them.
pub fn stopping(limit_ms: u64) {
    let limit_us = limit_ms
        .saturating_add(STOP_MARGIN_MS)
        .saturating_mul(1_000);
    tell(|| format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={limit_us}"));
}

/// Another process serves now. What this one has to say from here on is nobody's business: its
/// end, above all, is not the end of the service.
pub fn main_pid(pid: u32) {
    tell(|| format!("MAINPID={pid}"));
    if let Some(manager) = manager() {
        manager.told().is_retired = true;
    }
}

/// Called about once a second: a status line when it is a new one, and that we are alive.
pub fn ping_watchdog(status: &str) {
    if let Some(manager) = manager() {
        manager.pulse(status, Instant::now());
    }
}

fn tell(message: impl FnOnce() -> String) {
    if let Some(manager) = manager() {
        manager.tell(&message());
    }
}

/// Where the environment says; the same one as long as the process lives.
fn manager() -> Option<&'static Manager> {
    static MANAGER: OnceLock<Option<Manager>> = OnceLock::new();
    let connect = || {
        let address = std::env::var_os("NOTIFY_SOCKET")?;
        // WATCHDOG_PID is not compared: after an upgrade it names a process that is gone.
        let watchdog_us = std::env::var("WATCHDOG_USEC").ok();
        let watchdog_us = watchdog_us.and_then(|text| text.parse().ok());
        let manager = Manager::at(&address, watchdog_us.map(Duration::from_micros));
        let warn =
            |error| tracing::warn!("cannot use NOTIFY_SOCKET={}: {error}", address.display());
        manager.map_err(warn).ok()
    };
    MANAGER.get_or_init(connect).as_ref()
}

/// The manager's socket, and what it knows already.
struct Manager {
    socket: UnixDatagram,
    address: SocketAddr,
    /// It takes silence of this length for our death.
    watchdog: Option<Duration>,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    status: String,
    ticked: Option<Instant>,
    is_retired: bool,
}

impl Manager {
    /// A path, or an abstract name after an `@`.
    fn at(address: &OsStr, watchdog: Option<Duration>) -> io::Result<Self> {
        let address = match address.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(address)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(SEND_LIMIT))?;
        Ok(Self {
            socket,
            address,
            watchdog: watchdog.filter(|interval| !interval.is_zero()),
            told: Mutex::default(),
        })
    }

    fn tell(&self, message: &str) {
        if self.told().is_retired {
            return;
        }
        if let Err(error) = self.socket.send_to_addr(message.as_bytes(), &self.address) {
            tracing::warn!("cannot send {message:?} to the service manager: {error}");
        }
    }

    fn pulse(&self, status: &str, now: Instant) {
        let mut lines = Vec::new();
        let mut told = self.told();
        if told.status != status {
            status.clone_into(&mut told.status);
            lines.push(format!("STATUS={}", status.replace('\n', " ")));
        }
        let is_due = |pause: Duration| {
            let last = told.ticked;
            last.is_none_or(|last| now.duration_since(last) >= pause)
        };
        if self
            .watchdog
            .is_some_and(|interval| is_due(interval / TICKS_PER_INTERVAL))
        {
            told.ticked = Some(now);
            lines.push("WATCHDOG=1".to_owned());
        }
        drop(told);
        if !lines.is_empty() {
            self.tell(&lines.join("\n"));
        }
    }

    fn told(&self) -> std::sync::MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn monotonic_us() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    #[expect(
        unsafe_code,
        reason = "std does not tell what its monotonic clock shows"
    )]
    // SAFETY: `time` is a live timespec, and the clock exists on every Linux.
    unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time);
    }
    time.tv_sec.cast_unsigned() * 1_000_000 + time.tv_nsec.cast_unsigned() / 1_000
}
