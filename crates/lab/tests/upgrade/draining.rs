//! Tests of upgrades while a process still drains: refused, or after the end of its drain.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use evenkeel_lab::Balancer;
use evenkeel_lab::procfs::is_alive as runs;
use socket2::Socket;

use super::{Scripted, connect, echo_behind, held, is_alive, on_both_drivers, until, until_alone};
use crate::peer::end_of;

on_both_drivers! {
    an_upgrade_while_a_process_drains_is_refused_and_names_it
    end_draining_terminates_the_sessions_and_upgrades
    end_draining_gives_a_frozen_process_up
    a_stop_signal_ends_an_upgrade_that_waits_for_a_frozen_process
}

/// A new process serves, and the old one drains its sessions.
struct Draining {
    old: u32,
    clients: Vec<Socket>,
    listen: String,
    balancer: Balancer,
    _server: Scripted,
}

impl Draining {
    fn start(io: &str, sessions: usize) -> Draining {
        let (server, listen, balancer) = echo_behind(io, "");
        let clients = held(&listen, sessions);
        let old = balancer.pid();
        balancer.upgrade(&[]).unwrap();
        Draining {
            old,
            clients,
            listen,
            balancer,
            _server: server,
        }
    }
}

#[track_caller]
fn refused(balancer: &Balancer, arguments: &[&str]) -> String {
    let pids = balancer.pids();
    let error = format!("{:#}", balancer.upgrade(arguments).unwrap_err());
    assert_eq!(balancer.pids(), pids, "{error}");
    error
}

fn signal(pid: u32, signal: &str) {
    let sent = Command::new("kill")
        .args([signal, &pid.to_string()])
        .status();
    assert!(sent.unwrap().success());
}

/// TO SEE THIS RED: allow a second generation of draining processes.
fn an_upgrade_while_a_process_drains_is_refused_and_names_it(io: &str) {
    let bed = Draining::start(io, 2);
    let (old, listen, balancer) = (bed.old, &bed.listen, &bed.balancer);
    let mut clients = bed.clients;
    until("a session of more than a second", || {
        let status = balancer.status().unwrap();
        status["upgrade"][0]["oldest_session_ms"].as_u64() > Some(1_000)
    });
    let error = refused(balancer, &[]);
    let who = format!("cannot upgrade while process {old} is draining (2 sessions, oldest ");
    let then = " s): wait until it exits, or run `evenkeel upgrade --end-draining`";
    assert!(error.contains(&who) && error.contains(then), "{error}");
    drop(clients.pop());
    until("one session less", || {
        balancer.status().unwrap()["upgrade"][0]["sessions_left"] == 1
    });
    let error = refused(balancer, &[]);
    assert!(error.contains("(1 session, oldest "), "{error}");
    assert!(clients.iter().all(is_alive));
    drop(held(listen, 2));
    drop(clients);
    until("the end of the old process", || !runs(old));
    balancer.upgrade(&[]).unwrap();
    drop(held(listen, 2));
    until_alone(balancer);
}

/// TO SEE THIS RED: terminate the new sessions with the old ones, refuse a new client meanwhile, or
/// (in one of ten runs) report the upgrade before the old process has stopped accepting.
fn end_draining_terminates_the_sessions_and_upgrades(io: &str) {
    let bed = Draining::start(io, 2);
    let (old, listen, balancer) = (bed.old, &bed.listen, &bed.balancer);
    let (second, new_clients) = (balancer.pid(), held(listen, 2));
    let (over, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    let come = || {
        while !over.load(SeqCst) {
            assert!(is_alive(&connect(listen)), "refused");
            served.fetch_add(1, SeqCst);
        }
    };
    std::thread::scope(|scope| {
        let newcomers = scope.spawn(come);
        let started = Instant::now();
        let printed = balancer.upgrade(&["--end-draining"]);
        let took = started.elapsed();
        let before = served.load(SeqCst);
        until("newcomers", || {
            newcomers.is_finished() || served.load(SeqCst) > before + 5
        });
        over.store(true, SeqCst);
        newcomers.join().unwrap();
        let printed = printed.unwrap();
        assert!(
            printed.contains(&format!("pid {second} drains")),
            "{printed}"
        );
        assert!(took < Duration::from_secs(5), "{took:?}");
    });
    assert!(!runs(old));
    for client in &bed.clients {
        end_of(client);
    }
    assert!(new_clients.iter().all(is_alive));
    drop(new_clients);
    until_alone(balancer);
    // Without a draining process the upgrade is an ordinary one.
    balancer.upgrade(&["--end-draining"]).unwrap();
    drop(held(listen, 1));
}

/// TO SEE THIS RED: let the upgrade wait for a process that does nothing.
fn end_draining_gives_a_frozen_process_up(io: &str) {
    let bed = Draining::start(io, 1);
    let (old, listen, balancer) = (bed.old, &bed.listen, &bed.balancer);
    signal(old, "-STOP");
    let started = Instant::now();
    let error = refused(balancer, &["--end-draining"]);
    let took = started.elapsed();
    let who = format!("draining process {old} did not exit within 5000 ms");
    let then = format!("`kill -KILL {old}`");
    assert!(error.contains(&who) && error.contains(&then), "{error}");
    assert!(took < Duration::from_secs(10), "{took:?}");
    drop(held(listen, 2));
    // The process has received the request, and exits as soon as it resumes.
    signal(old, "-CONT");
    until("the end of the old process", || !runs(old));
    for client in &bed.clients {
        end_of(client);
    }
    balancer.upgrade(&[]).unwrap();
    drop(held(listen, 2));
}

fn a_stop_signal_ends_an_upgrade_that_waits_for_a_frozen_process(io: &str) {
    let bed = Draining::start(io, 1);
    let (old, balancer) = (bed.old, &bed.balancer);
    signal(old, "-STOP");
    let outcome = std::thread::scope(|scope| {
        let upgrade = scope.spawn(|| balancer.upgrade(&["--end-draining"]));
        until("the request", || balancer.log().contains("end its drain"));
        balancer.signal(libc::SIGTERM);
        upgrade.join().unwrap()
    });
    let error = format!("{:#}", outcome.unwrap_err());
    assert!(error.contains("the process is shutting down"), "{error}");
    until("the end of the new process", || balancer.pids() == [old]);
}
