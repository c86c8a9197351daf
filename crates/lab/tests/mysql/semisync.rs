//! Tests of MariaDB's semi-synchronous replication: a commit waits until a replica has it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use evenkeel_lab::Server;

use super::client::Client;
use super::split::TestBed;
use crate::harness::SetOnDrop;

const CLIENTS: &str = "select variable_value from information_schema.global_status \
    where variable_name = 'rpl_semi_sync_master_clients'";

const REPLICA: &str = "set global rpl_semi_sync_slave_enabled = 1; \
    stop slave io_thread; start slave io_thread";

/// Creates servers that can each be the primary of the other two, and that never stop waiting for a
/// replica.
fn start_bed() -> TestBed {
    let bed = TestBed::of_mariadb("auto", "");
    for server in &bed.scenario.servers {
        server
            .sql(
                "set global rpl_semi_sync_master_timeout = 60000; \
                 set global rpl_semi_sync_master_wait_point = AFTER_SYNC",
            )
            .unwrap();
    }
    bed.replicas().iter().for_each(follow);
    let primary = bed.primary();
    let enable = "set global rpl_semi_sync_master_enabled = 1";
    primary.sql(enable).unwrap();
    bed.wait("two replicas that acknowledge", || {
        primary.sql(CLIENTS).unwrap().trim() == "2"
    });
    bed
}

fn follow(replica: &Server) {
    replica.sql(REPLICA).unwrap();
}

/// Writes rows until the end, and returns those that were acknowledged.
fn write(bed: &TestBed, ids: &AtomicU64, is_over: &AtomicBool) -> Vec<u64> {
    let (mut client, mut acknowledged) = (bed.client(), Vec::new());
    while !is_over.load(Relaxed) {
        let id = ids.fetch_add(1, Relaxed);
        let reply = client.query(&format!("insert into things values ({id}, 'x')"));
        match reply.last().map_or("end", String::as_str) {
            "end" => client = bed.client(),
            last if last.starts_with("error") => {}
            _ => acknowledged.push(id),
        }
    }
    acknowledged
}

#[test]
fn a_failover_loses_nothing_that_was_acknowledged() {
    let bed = start_bed();
    let (ids, is_over) = (AtomicU64::new(1), AtomicBool::new(false));
    let all = Mutex::new(Vec::new());
    let died_at = thread::scope(|scope| {
        let _end = SetOnDrop(&is_over);
        for _ in 0..8 {
            scope.spawn(|| {
                let acknowledged = write(&bed, &ids, &is_over);
                all.lock().unwrap().extend(acknowledged);
            });
        }
        bed.wait("writes", || ids.load(Relaxed) > 300);
        let died_at = ids.load(Relaxed);
        let (old, replicas) = (bed.primary(), bed.replicas());
        // A row that it acknowledged now would exist on no other server.
        for replica in &replicas {
            replica.sql("stop slave io_thread").unwrap();
        }
        // Time in which such a row would be acknowledged.
        thread::sleep(Duration::from_millis(200));
        old.kill().unwrap();
        bed.scenario.lab.fail_over(&old).unwrap();
        bed.wait_primary(&bed.primary());
        let back_at = ids.load(Relaxed);
        bed.wait("further writes", || ids.load(Relaxed) > back_at + 100);
        died_at
    });
    let acknowledged = all.into_inner().unwrap();
    let there = bed.primary().sql("select id from sbtest.things").unwrap();
    let there: Vec<u64> = there.lines().map(|id| id.trim().parse().unwrap()).collect();
    let lost: Vec<_> = acknowledged
        .iter()
        .filter(|id| !there.contains(id))
        .collect();
    assert!(lost.is_empty(), "{lost:?} of {}", acknowledged.len());
    let before = acknowledged.iter().filter(|id| **id < died_at).count();
    assert!(before > 100 && acknowledged.len() > before, "{before}");
}

#[test]
fn a_primary_that_waits_for_its_replicas_is_not_taken_for_dead() {
    let bed = start_bed();
    let replicas = bed.replicas();
    replicas.iter().for_each(|one| one.freeze().unwrap());
    let primary = bed.primary();
    let mut reader = bed.client();
    thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let started = Instant::now();
            bed.client().run("insert into things values (1, 'x')");
            started.elapsed()
        });
        let end = Instant::now() + Duration::from_secs(3);
        while Instant::now() < end {
            let started = Instant::now();
            let port = reader.value("/* evenkeel: primary */ select here()");
            assert_eq!(port, primary.address.port().to_string());
            let took = started.elapsed();
            assert!(took < Duration::from_secs(1), "{took:?}");
            assert_eq!(bed.cluster()["primary"], primary.name.as_str());
            thread::sleep(Duration::from_millis(50));
        }
        replicas.iter().for_each(|one| one.thaw().unwrap());
        let waited = writing.join().unwrap();
        assert!(
            waited > Duration::from_secs(2),
            "nothing was shown: {waited:?}"
        );
    });
    let mut direct = Client::connect(primary.address);
    assert_eq!(direct.value("select count(*) from things"), "1");
}
