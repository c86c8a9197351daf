//! Reports the state of the process to the service manager, as sd_notify(3) does; does nothing
//! without `NOTIFY_SOCKET`.

use rustix::time::{ClockId, clock_gettime};
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

#[cfg(test)]
mod tests;

/// Limit for one send: a manager that does not read must not block the control plane longer.
const SEND_LIMIT: Duration = Duration::from_secs(1);

/// Number of watchdog messages per interval. The manager kills a process that sends none for a
/// whole interval.
const TICKS_PER_INTERVAL: u32 = 4;

/// Time added to the limit of the sessions, to terminate them and to end the process.
const STOP_MARGIN_MS: u64 = 5_000;

/// Sends `READY=1`: clients are served from now on, or a reload has ended.
pub fn ready() {
    send(|| "READY=1".to_owned());
}

/// Resumes notifications after the process that served in place of this one has exited.
pub fn serve_again() {
    if let Some(manager) = manager() {
        manager.sent().is_retired = false;
        took_over();
    }
}

/// Reports this process as the main process in place of another one, which may no longer exist.
pub fn took_over() {
    send(|| format!("MAINPID={}", std::process::id()));
}

/// Reports that the file is being read again. [`ready`] must follow, whatever the outcome.
pub fn reloading() {
    // By this time the manager knows that the message is not the response to an earlier request.
    send(|| format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic_us()));
}

/// Reports that no new clients are accepted and sessions may continue for up to `limit_ms`, so that
/// the manager waits for them.
pub fn stopping(limit_ms: u64) {
    let limit_us = limit_ms
        .saturating_add(STOP_MARGIN_MS)
        .saturating_mul(1_000);
    send(|| format!("STOPPING=1\nEXTEND_TIMEOUT_USEC={limit_us}"));
}

/// Reports another process as the main process. This process sends no further messages: its end,
/// above all, is not the end of the service.
pub fn main_pid(pid: u32) {
    send(|| format!("MAINPID={pid}"));
    if let Some(manager) = manager() {
        manager.sent().is_retired = true;
    }
}

/// Sends the status line if it has changed, and the watchdog message if it is due. Called about
/// once a second.
pub fn ping_watchdog(status: &str) {
    if let Some(manager) = manager() {
        manager.ping(status, Instant::now());
    }
}

fn send(message: impl FnOnce() -> String) {
    if let Some(manager) = manager() {
        manager.send(&message());
    }
}

/// Returns the manager named by the environment. The result stays the same while the process runs.
fn manager() -> Option<&'static Manager> {
    static MANAGER: OnceLock<Option<Manager>> = OnceLock::new();
    let connect = || {
        let address = std::env::var_os("NOTIFY_SOCKET")?;
        // WATCHDOG_PID is not compared: after an upgrade it names a process that has exited.
        let watchdog_us = std::env::var("WATCHDOG_USEC").ok();
        let watchdog_us = watchdog_us.and_then(|text| text.parse().ok());
        let manager = Manager::at(&address, watchdog_us.map(Duration::from_micros));
        let warn =
            |error| tracing::warn!("cannot use NOTIFY_SOCKET={}: {error}", address.display());
        manager.map_err(warn).ok()
    };
    MANAGER.get_or_init(connect).as_ref()
}

/// Socket of the service manager, and the state that has been reported to it.
struct Manager {
    socket: UnixDatagram,
    address: SocketAddr,
    /// Interval without a message after which the manager considers the process dead.
    watchdog: Option<Duration>,
    sent: Mutex<SentState>,
}

#[derive(Default)]
struct SentState {
    status: String,
    pinged: Option<Instant>,
    is_retired: bool,
}

impl Manager {
    /// Opens a socket to `address`: a path, or an abstract name after an `@`.
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
            sent: Mutex::default(),
        })
    }

    fn send(&self, message: &str) {
        if self.sent().is_retired {
            return;
        }
        if let Err(error) = self.socket.send_to_addr(message.as_bytes(), &self.address) {
            tracing::warn!("cannot send {message:?} to the service manager: {error}");
        }
    }

    fn ping(&self, status: &str, now: Instant) {
        let mut lines = Vec::new();
        let mut sent = self.sent();
        if sent.status != status {
            status.clone_into(&mut sent.status);
            lines.push(format!("STATUS={}", status.replace('\n', " ")));
        }
        let is_due = |pause: Duration| {
            let last = sent.pinged;
            last.is_none_or(|last| now.duration_since(last) >= pause)
        };
        if self
            .watchdog
            .is_some_and(|interval| is_due(interval / TICKS_PER_INTERVAL))
        {
            sent.pinged = Some(now);
            lines.push("WATCHDOG=1".to_owned());
        }
        drop(sent);
        if !lines.is_empty() {
            self.send(&lines.join("\n"));
        }
    }

    fn sent(&self) -> std::sync::MutexGuard<'_, SentState> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn monotonic_us() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000 + time.tv_nsec.cast_unsigned() / 1_000
}
