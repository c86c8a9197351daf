//! Helpers of all tests of the whole program: both drivers, the state of a server, deadlines.

#![allow(
    dead_code,
    reason = "each test program takes what it needs of this file"
)]

pub(crate) mod certificates;
pub(crate) mod cluster;
pub(crate) mod intercepting_proxy;
pub(crate) mod line;
pub(crate) mod own;
pub(crate) mod pool;
pub(crate) mod progress;
pub(crate) mod proxy_protocol_peer;
pub(crate) mod rng;
pub(crate) mod storm;

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use evenkeel_lab::{Balancer, eventually, free_port};
use serde_json::Value;

/// Limit for events that must occur; long, because the machine may be busy with other work.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// Both I/O drivers; `auto` is io_uring if the kernel supports it.
pub(crate) const DRIVERS: [&str; 2] = ["auto", "epoll"];

/// Returns the `[engine]` lines for a driver.
pub(crate) fn engine(io: &str) -> String {
    format!("[engine]\nio = {io:?}\nshutdown_limit_ms = 3000\n")
}

/// Returns a free loopback address.
pub(crate) fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

/// Returns a service of a status; panics with the status if it is missing.
pub(crate) fn service(status: &Value, name: &str) -> Value {
    let services = status["services"].as_array().expect("services");
    let found = services.iter().find(|service| service["name"] == name);
    found
        .unwrap_or_else(|| panic!("no service {name}: {status:#}"))
        .clone()
}

/// Returns the current status of the server `service/server`.
pub(crate) fn server(balancer: &Balancer, path: &str) -> Value {
    let (service_name, name) = path.split_once('/').expect("service/server");
    let status = balancer.status().expect("status");
    let service = service(&status, service_name);
    let servers = service["servers"].as_array().expect("servers");
    let found = servers.iter().find(|server| server["name"] == name);
    found
        .unwrap_or_else(|| panic!("no server {path}: {service:#}"))
        .clone()
}

/// Waits until the server is in this state.
pub(crate) fn wait_state(balancer: &Balancer, path: &str, state: &str) {
    wait_until(balancer, &format!("{path} {state}"), || {
        server(balancer, path)["state"] == state
    });
}

/// Waits for a condition; a failure prints the balancer's log.
pub(crate) fn wait_until(balancer: &Balancer, what: &str, mut is_so: impl FnMut() -> bool) {
    let waited = eventually(LIMIT, what, || Ok(is_so().then_some(())));
    waited.unwrap_or_else(|error| panic!("{error}; the balancer said:\n{}", balancer.log()));
}

/// Ends the loops of other threads, also if the thread that ends them panics: a scope waits for all
/// of its threads.
pub(crate) struct SetOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Returns both outputs of a command.
pub(crate) fn printed(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .concat()
}

/// Runs a command of a running balancer and expects success.
pub(crate) fn done(balancer: &Balancer, arguments: &[&str]) -> String {
    let output = balancer.command(arguments).expect("the command runs");
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        printed(&output)
    );
    printed(&output)
}

/// Runs a command of a running balancer and expects exit code 1.
pub(crate) fn refused(balancer: &Balancer, arguments: &[&str]) -> String {
    let output = balancer.command(arguments).expect("the command runs");
    assert_eq!(
        output.status.code(),
        Some(1),
        "{arguments:?}: {}",
        printed(&output)
    );
    printed(&output)
}

/// A server that accepts connections and sends nothing.
pub(crate) struct Mute {
    listener: TcpListener,
}

impl Mute {
    pub(crate) fn new() -> Mute {
        Mute {
            listener: TcpListener::bind("127.0.0.1:0").expect("it works"),
        }
    }

    /// Returns the next connection.
    pub(crate) fn accept(&self) -> (TcpStream, SocketAddr) {
        self.listener.accept().expect("a connection")
    }

    /// Fills the backlog, so that the kernel answers no further client until one of these
    /// connections has been accepted.
    pub(crate) fn fill_its_backlog(&self) -> Vec<TcpStream> {
        #[expect(unsafe_code, reason = "the standard library cannot shorten a backlog")]
        // SAFETY: the descriptor is the listener's own, and it is open.
        let shortened = unsafe { libc::listen(self.listener.as_raw_fd(), 0) };
        assert_eq!(shortened, 0);
        let short = Duration::from_millis(200);
        std::iter::from_fn(|| TcpStream::connect_timeout(&self.address(), short).ok()).collect()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.local_addr().expect("it works")
    }
}

/// Returns a service without probes in front of servers that are only addresses.
pub(crate) fn plain(name: &str, listen: SocketAddr, servers: &[SocketAddr], extra: &str) -> String {
    let servers: Vec<String> = servers
        .iter()
        .map(|server| format!("\"{server}\""))
        .collect();
    format!(
        "[[service]]\nname = {name:?}\nlisten = \"{listen}\"\nservers = [{}]\n{extra}\n\
         [service.health]\nprobe = \"off\"\n",
        servers.join(", ")
    )
}

/// End of a connection: a reset, an orderly end, or none within a limit.
#[derive(Debug, PartialEq)]
pub(crate) enum End {
    Reset,
    Orderly,
    Open,
}

pub(crate) fn end_of(stream: &mut TcpStream, limit: Duration) -> End {
    stream.set_read_timeout(Some(limit)).expect("it works");
    match stream.read(&mut [0; 1]) {
        Ok(0) => End::Orderly,
        Err(error) if error.kind() == ErrorKind::ConnectionReset => End::Reset,
        Err(error) if error.kind() == ErrorKind::WouldBlock => End::Open,
        other => panic!("{other:?}"),
    }
}

/// Opens a client whose session the balancer has registered.
pub(crate) fn open(balancer: &Balancer, name: &str, listen: SocketAddr) -> TcpStream {
    let before = current(balancer, name);
    let stream = TcpStream::connect(listen).expect("it works");
    wait_until(balancer, "one more session on a server", || {
        current(balancer, name) > before
    });
    stream
}

pub(crate) fn current(balancer: &Balancer, name: &str) -> u64 {
    let service = service(&balancer.status().expect("it works"), name);
    let servers = service["servers"].as_array().expect("it works");
    servers
        .iter()
        .map(|server| server["sessions"]["current"].as_u64().expect("it works"))
        .sum()
}
