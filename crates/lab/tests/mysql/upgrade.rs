//! Tests of an upgrade with clients: connected ones stay, new ones reach the new process, and KILL
//! finds both.

use std::thread;
use std::time::Duration;

use evenkeel_lab::procfs;

use super::client::{Client, Login};
use super::limits::was_ended;
use super::stage::{ONE, Setup, TestBed, config, shared, sql};
use crate::harness::progress::wait_clients;
use crate::harness::{DRIVERS, wait_until};

/// Divisor of the processor time that a process with idle sessions may use.
const IDLE_SHARE: u64 = 4;

/// Sessions of the old process have enough time.
fn start_bed(io: &str) -> TestBed {
    let setup = Setup {
        pool: "size = 4",
        ..ONE
    };
    let patient = |config: String| config.replace("limit_ms = 3000", "limit_ms = 60000");
    TestBed::start(
        |address| patient(config(shared(), address, io, setup)),
        |bed| Client::log_in(bed.address, &Login::default()).map(|_| ()),
    )
}

#[test]
fn sessions_go_on_over_an_upgrade_and_are_killed_from_the_new_process() {
    sql("create or replace table upgraded (a int)");
    sql("drop user if exists bystander@'127.0.0.1'");
    sql("create user bystander@'127.0.0.1' identified by 'bystander'");
    for io in DRIVERS {
        sql("delete from upgraded");
        let bed = start_bed(io);
        let (mut idle, mut busy) = (bed.client(), bed.client());
        let (mut bound, mut running) = (bed.client(), bed.client());
        idle.run("set @name = 'idle', time_zone = '+01:00'");
        busy.run("begin");
        busy.run("insert into upgraded values (1)");
        bound.run("create temporary table mine (a int)");
        running.query_later("select sleep(30) /* of before */");
        wait_clients(&bed.balancer, "pool", "active", 1);
        bed.balancer.upgrade(&[]).unwrap();
        // A client that the old process has just accepted still belongs to it, which no status
        // shows.
        thread::sleep(Duration::from_millis(200));
        let mut newcomers: Vec<Client> = (0..5).map(|_| bed.client()).collect();
        let olds = [&idle, &busy, &bound, &running].map(|one| one.connection);
        for newcomer in &newcomers {
            assert!(!olds.contains(&newcomer.connection), "{io}: {olds:?}");
        }
        assert_eq!(idle.value("select @name, @@time_zone"), "idle|+01:00");
        busy.run("insert into upgraded values (2)");
        busy.run("commit");
        bound.run("select * from mine");
        assert_eq!(newcomers[0].value("select count(*) from upgraded"), "2");
        assert_idle(&bed, io);
        newcomers[0].run(&format!("kill query {}", olds[3]));
        let answer = running.reply();
        assert!(was_ended(&answer), "{io}: {answer:?}");
        assert_eq!(running.value("select 'alive'"), "alive", "{io}");
        // Another user's sessions are not visible to this user, in either process.
        let login = Login {
            user: "bystander",
            password: "bystander",
            schema: None,
            ..Login::default()
        };
        let mut bystander = Client::with(bed.address, &login);
        bystander.run(&format!("kill {}", olds[2]));
        // Time in which a wrong kill would end it.
        thread::sleep(Duration::from_millis(200));
        bound.run("select * from mine");
        newcomers[1].run(&format!("kill {}", olds[0]));
        wait_until(&bed.balancer, "the end of a client that was killed", || {
            idle.ping().last().is_some_and(|last| last == "end")
        });
        drop((busy, bound, running));
        wait_until(&bed.balancer, "the end of the old process", || {
            bed.balancer.pids().len() == 1
        });
        let answer = newcomers[2].refusal(&format!("kill query {}", olds[3]));
        assert!(answer.starts_with("1094 "), "{io}: {answer}");
        assert_eq!(newcomers[3].value("select 'on'"), "on", "{io}");
    }
}

/// Checks that both processes are idle during a query that sleeps.
fn assert_idle(bed: &TestBed, io: &str) {
    let pids = bed.balancer.pids();
    assert_eq!(pids.len(), 2, "{io}");
    let before_us = procfs::cpu_us(&pids);
    let window = Duration::from_secs(1);
    thread::sleep(window);
    let used_us = u128::from(procfs::cpu_us(&pids) - before_us);
    assert!(
        used_us * u128::from(IDLE_SHARE) < window.as_micros(),
        "{io}: {used_us} us"
    );
}
