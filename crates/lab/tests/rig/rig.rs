//! What the tests of the whole program share: both drivers, the state of a server, deadlines.

#![allow(
    dead_code,
    reason = "each test program takes what it needs of this file"
)]

use std::net::SocketAddr;
use std::process::Output;
use std::time::Duration;

use evenkeel_lab::{Balancer, eventually, free_port};
use serde_json::Value;

/// For what must happen; long, because the machine may be busy with other things.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// `auto` is io_uring wherever the kernel has it.
pub(crate) const DRIVERS: [&str; 2] = ["auto", "epoll"];

/// The `[engine]` lines for a driver.
pub(crate) fn engine(io: &str) -> String {
    format!("[engine]\nio = {io:?}\nshutdown_limit_ms = 3000\n")
}

/// A free address of loopback.
pub(crate) fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

/// A service of a status; panics with the status when it is not there.
pub(crate) fn service(status: &Value, name: &str) -> Value {
    let services = status["services"].as_array().expect("services");
    let found = services.iter().find(|service| service["name"] == name);
    found
        .unwrap_or_else(|| panic!("no service {name}: {status:#}"))
        .clone()
}

/// The server `service/server` as `status` shows it now.
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

/// Waits for a condition; when it does not come, the balancer's log says more.
pub(crate) fn wait_until(balancer: &Balancer, what: &str, mut is_so: impl FnMut() -> bool) {
    let waited = eventually(LIMIT, what, || Ok(is_so().then_some(())));
    waited.unwrap_or_else(|error| panic!("{error}; the balancer said:\n{}", balancer.log()));
}

/// What a command printed, both ways.
pub(crate) fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr]
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
        .concat()
}

/// Runs a command of a running balancer and expects it to be done.
pub(crate) fn done(balancer: &Balancer, arguments: &[&str]) -> String {
    let output = balancer.command(arguments).expect("the command runs");
    assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    said(&output)
}

/// Runs a command of a running balancer and expects exit code 1.
pub(crate) fn refused(balancer: &Balancer, arguments: &[&str]) -> String {
    let output = balancer.command(arguments).expect("the command runs");
    assert_eq!(
        output.status.code(),
        Some(1),
        "{arguments:?}: {}",
        said(&output)
    );
    said(&output)
}
