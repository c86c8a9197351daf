//! Allocates loopback ports that no other lab on this machine allocates.
//!
//! The ports are below the kernel's range for outgoing connections: a killed server must find its
//! port free again, independent of the number of clients in the meantime.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};

use socket2::{Domain, Socket, Type};

const FIRST: u16 = 20_000;
const COUNT: u16 = 12_000;

/// Reservations of this process; an abstract Unix socket leaves no trace and ends with its owner.
static RESERVED: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
static NEXT: AtomicU16 = AtomicU16::new(0);

/// Returns a free TCP port of 127.0.0.1, reserved against other labs until this process ends.
///
/// # Panics
///
/// Panics if all of the lab's ports are taken.
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
    (!is_used(port)).then_some(reservation)
}

/// Returns whether a server could not listen there. The test socket itself never listens: a child
/// process that another thread is starting holds a copy of it until exec. A socket that does not
/// listen blocks no server.
fn is_used(port: u16) -> bool {
    [Ipv4Addr::LOCALHOST, Ipv4Addr::UNSPECIFIED]
        .iter()
        .any(|ip| {
            let bind = || {
                let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
                socket.set_reuse_address(true)?;
                socket.bind(&SocketAddrV4::new(*ip, port).into())
            };
            bind().is_err()
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::process::Command;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn a_port_is_used_while_somebody_listens() {
        for ip in [Ipv4Addr::LOCALHOST, Ipv4Addr::UNSPECIFIED] {
            let listener = TcpListener::bind((ip, 0)).expect("it works");
            let port = listener.local_addr().expect("it works").port();
            assert!(is_used(port));
        }
    }

    #[test]
    fn a_port_that_was_given_can_be_listened_on_while_children_are_started() {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let status = Command::new("true").status().expect("it runs");
                    assert!(status.success());
                }
            });
            let refused =
                (0..500).filter(|_| TcpListener::bind(("127.0.0.1", free_port())).is_err());
            let refused = refused.count();
            over.store(true, Ordering::Relaxed);
            assert_eq!(refused, 0);
        });
    }

    #[test]
    fn no_port_is_given_twice() {
        let ports: std::collections::BTreeSet<u16> = (0..100).map(|_| free_port()).collect();
        assert_eq!(ports.len(), 100);
    }
}
