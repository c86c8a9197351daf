//! Processes that end, or are told to, while one takes over from the other.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use evenkeel_lab::Balancer;
use evenkeel_lab::procfs::is_alive as runs;

use super::{Kind, Scripted, engine, held, is_alive, on_both_drivers, peer, until};
use crate::peer::try_connect;

on_both_drivers! {
    told_to_stop_during_an_upgrade_both_processes_end
    told_to_stop_while_a_program_hangs_it_is_ended_too
}

/// A service, and another one for which a new process asks for three seconds who the primary is.
fn slow_to_upgrade(io: &str) -> (Scripted, String, Balancer) {
    let server = Scripted::echo(Kind::V4);
    let listen = peer::own_address(Kind::V4);
    let service = peer::service(&listen, &[server.address()], "");
    let (other, nobody) = (peer::own_address(Kind::V4), peer::own_address(Kind::V4));
    let more = "role = \"primary\"\n[service.health]\nprobe = \"postgres\"\n\
                [service.monitor]\nuser = \"nobody\"\n";
    let cluster = peer::named_service("cluster", &other, &[&nobody], more);
    let config = format!("{}{service}{cluster}", engine(io, 60_000));
    (server, listen, Balancer::start(&config).unwrap())
}

/// Until the new process has its engine: it has the sockets a moment later, and learns then.
fn until_two(balancer: &Balancer) {
    until("a new process", || {
        balancer.log().matches("data plane:").count() == 2
    });
}

/// Runs an upgrade, and this while it is under way; what the upgrade came to.
fn during_upgrade(
    balancer: &Balancer,
    arguments: &[&str],
    what: impl FnOnce(),
) -> anyhow::Result<String> {
    std::thread::scope(|scope| {
        let upgrade = scope.spawn(|| balancer.upgrade(arguments));
        what();
        upgrade.join().unwrap()
    })
}

/// Red when the old process only closes its sockets, and the new one goes on to serve.
fn told_to_stop_during_an_upgrade_both_processes_end(io: &str) {
    let (_server, listen, balancer) = slow_to_upgrade(io);
    let client = held(&listen, 1);
    let outcome = during_upgrade(&balancer, &[], || {
        until_two(&balancer);
        balancer.signal(libc::SIGTERM);
    });
    let error = format!("{:#}", outcome.unwrap_err());
    assert!(error.contains("told to stop"), "{error}");
    assert!(try_connect(&listen).is_err(), "the port is closed");
    assert!(client.iter().all(is_alive));
    drop(client);
    until("the end", || balancer.pids().is_empty());
    assert!(try_connect(&listen).is_err(), "nobody has taken over");
}

fn told_to_stop_while_a_program_hangs_it_is_ended_too(io: &str) {
    let (_server, listen, balancer) = slow_to_upgrade(io);
    let room = tempfile::tempdir().unwrap();
    let (hangs, pid) = (room.path().join("hangs"), room.path().join("pid"));
    let text = format!("#!/bin/sh\necho $$ >{}\nexec sleep 600\n", pid.display());
    fs::write(&hangs, text).unwrap();
    fs::set_permissions(&hangs, Permissions::from_mode(0o700)).unwrap();
    let read_pid = || fs::read_to_string(&pid).ok()?.trim().parse::<u32>().ok();
    let arguments = ["--binary", &hangs.display().to_string()];
    let outcome = during_upgrade(&balancer, &arguments, || {
        until("a program that hangs", || read_pid().is_some());
        balancer.signal(libc::SIGTERM);
    });
    let error = format!("{:#}", outcome.unwrap_err());
    assert!(error.contains("told to stop"), "{error}");
    until("the end", || balancer.pids().is_empty());
    assert!(!runs(read_pid().unwrap()), "no orphan");
    assert!(try_connect(&listen).is_err());
}
