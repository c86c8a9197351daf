//! Hands out loopback ports that no other lab on this machine will hand out too.
//!
//! The ports lie below the kernel's range for outgoing connections: a server that was killed must
//! find its port free again, however many clients came and went meanwhile.

use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};

const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// Reservations of this process; an abstract Unix socket leaves no trace and dies with its owner.
static RESERVED: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
static NEXT: AtomicU16 = AtomicU16::new(0);

/// A free TCP port of 127.0.0.1, reserved against other labs until this process ends.
///
/// # Panics
/// When all of the lab's ports are taken.
pub fn free_port() -> u16 {
    let start = (std::process::id().wrapping_mul(97) % u32::from(COUNT)) as u16;
    for _ in 0..COUNT {
        let offset = (start + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT) % COUNT;
        if let Some(reservation) = reserve(FIRST + offset) {
            RESERVED
                .lock()
                .expect("no holder of the lock panics")
                .push(reservation);
            return FIRST + offset;
        }
    }
    panic!("no free port between {FIRST} and {}", FIRST + COUNT - 1);
}

fn reserve(port: u16) -> Option<UnixListener> {
    let name = SocketAddr::from_abstract_name(format!("evenkeel-lab-port-{port}")).ok()?;
    let reservation = UnixListener::bind_addr(&name).ok()?;
    TcpListener::bind(("127.0.0.1", port)).ok()?;
    TcpListener::bind(("0.0.0.0", port)).ok()?;
    Some(reservation)
}
