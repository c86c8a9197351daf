//! Tests of processes that end, or are stopped, while one takes over from the other.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use evenkeel_lab::Balancer;
use evenkeel_lab::procfs::is_alive as runs;

use super::{Kind, Scripted, engine, held, is_alive, on_both_drivers, peer, until};
use crate::peer::try_connect;

on_both_drivers! {
    told_to_stop_during_an_upgrade_both_processes_end
    told_to_stop_while_a_program_hangs_it_is_ended_too
    killed_during_an_upgrade_the_old_process_leaves_one_that_serves
    a_new_process_is_no_child_of_the_old_one
    a_process_that_drains_serves_again_when_the_new_one_is_killed
    a_process_that_drains_does_not_serve_again_when_the_new_one_is_stopped
}

/// Starts a service, and another one for which a new process queries the servers' roles for three
/// seconds.
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

/// Waits until the new process has its engine: it gets the sockets a moment later, and then queries
/// the roles.
fn until_two(balancer: &Balancer) {
    until("a new process", || {
        balancer.log().matches("data plane:").count() == 2
    });
}

/// Runs an upgrade, and `what` during it; returns the result of the upgrade.
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

/// TO SEE THIS RED: let the old process only close its sockets, so that the new one continues to
/// serve.
fn told_to_stop_during_an_upgrade_both_processes_end(io: &str) {
    let (_server, listen, balancer) = slow_to_upgrade(io);
    let client = held(&listen, 1);
    let outcome = during_upgrade(&balancer, &[], || {
        until_two(&balancer);
        balancer.signal(libc::SIGTERM);
    });
    let error = format!("{:#}", outcome.unwrap_err());
    assert!(error.contains("stop signal"), "{error}");
    assert!(try_connect(&listen).is_err(), "the port is closed");
    assert!(client.iter().all(is_alive));
    drop(client);
    until("the end", || balancer.pids().is_empty());
    assert!(try_connect(&listen).is_err(), "nobody has taken over");
}

fn told_to_stop_while_a_program_hangs_it_is_ended_too(io: &str) {
    let (_server, listen, balancer) = slow_to_upgrade(io);
    let work_dir = tempfile::tempdir().unwrap();
    let (hangs, pid) = (work_dir.path().join("hangs"), work_dir.path().join("pid"));
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
    assert!(error.contains("stop signal"), "{error}");
    until("the end", || balancer.pids().is_empty());
    assert!(!runs(read_pid().unwrap()), "no orphan");
    assert!(try_connect(&listen).is_err());
}

/// TO SEE THIS RED: let the new process exit with the old one whose sockets it has.
fn killed_during_an_upgrade_the_old_process_leaves_one_that_serves(io: &str) {
    let (_server, listen, balancer) = slow_to_upgrade(io);
    let outcome = during_upgrade(&balancer, &[], || {
        until_two(&balancer);
        // The sockets of the service, of the cluster and of the status page, and the control
        // socket.
        let old = sockets(balancer.pid());
        until("the sockets in both", || {
            let new = new_process(&balancer).map(sockets).unwrap_or_default();
            new.intersection(&old).count() >= 4
        });
        balancer.signal(libc::SIGKILL);
    });
    assert!(outcome.is_err(), "nobody was there to answer");
    drop(held(&listen, 3));
    until("no old process in the status", || {
        balancer.status().unwrap()["upgrade"] == serde_json::json!([])
    });
    assert!(balancer.log().contains("continuing without it"));
    let pid = balancer.status().unwrap()["pid"].to_string();
    assert!(Command::new("kill").arg(pid).status().unwrap().success());
    until("the end of the new one", || try_connect(&listen).is_err());
}

/// Returns the sockets that a process has, by their names in /proc.
fn sockets(pid: u32) -> BTreeSet<PathBuf> {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return BTreeSet::new();
    };
    let names = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    names
        .filter(|name| name.to_string_lossy().starts_with("socket:"))
        .collect()
}

/// Returns the parent of a process.
fn parent(pid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}

/// Returns the grandchild of the process that serves: an intermediate process waits between them.
fn new_process(balancer: &Balancer) -> Option<u32> {
    let entries = fs::read_dir("/proc").ok()?;
    let mut pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.find(|pid| parent(*pid).and_then(parent) == Some(balancer.pid()))
}

/// TO SEE THIS RED: start the new process as a child of the old one: systemd would not consider it
/// its own child, and would not wait for its end.
fn a_new_process_is_no_child_of_the_old_one(io: &str) {
    let server = Scripted::echo(Kind::V4);
    let listen = peer::own_address(Kind::V4);
    let service = peer::service(&listen, &[server.address()], "");
    let balancer = Balancer::start(&format!("{}{service}", engine(io, 60_000))).unwrap();
    let client = held(&listen, 1);
    let old = balancer.pid();
    balancer.upgrade(&[]).unwrap();
    assert!(runs(old) && runs(balancer.pid()));
    let ours = parent(old);
    assert!(ours.is_some() && parent(balancer.pid()) != Some(old));
    assert_eq!(
        evenkeel_lab::procfs::tree(old),
        [old],
        "nobody is left in between"
    );
    assert!(client.iter().all(is_alive));
}

/// TO SEE THIS RED: let no process have the port until the end of the drain.
fn a_process_that_drains_serves_again_when_the_new_one_is_killed(io: &str) {
    let (_server, listen, balancer) = super::echo_behind(io, "max_connections = 4\n");
    let old = balancer.pid();
    let mut clients = held(&listen, 1);
    balancer.upgrade(&[]).unwrap();
    let lost = held(&listen, 1);
    balancer.signal(libc::SIGKILL);
    until("an answer", || {
        balancer.status().is_ok_and(|s| s["pid"] == old)
    });
    assert!(
        balancer
            .log()
            .contains(&format!("process {old} resumed serving"))
    );
    drop(lost);
    clients.extend(held(&listen, 3));
    let full = peer::connect(&listen);
    assert_eq!(crate::peer::end_of(&full), crate::peer::End::Clean);
    assert!(clients.iter().all(is_alive));
    // The next upgrade finds one process, as the first one did.
    balancer.upgrade(&[]).unwrap();
    assert!(clients.iter().all(is_alive));
    balancer.signal(libc::SIGTERM);
    drop(clients);
    until("the end of all", || balancer.pids().is_empty());
    assert!(try_connect(&listen).is_err());
}

fn a_process_that_drains_does_not_serve_again_when_the_new_one_is_stopped(io: &str) {
    let (_server, listen, balancer) = super::echo_behind(io, "");
    let client = held(&listen, 1);
    balancer.upgrade(&[]).unwrap();
    let (old, new) = (balancer.pids()[0], balancer.pid());
    balancer.signal(libc::SIGTERM);
    until("the end of the new one", || !runs(new));
    until("some reports", || client.iter().all(is_alive) && runs(old));
    assert!(try_connect(&listen).is_err());
    drop(client);
    until("the end", || !runs(old));
    assert!(!balancer.log().contains("resumed serving"));
}
