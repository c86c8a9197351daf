//! Tests that reads always see the writes of their session.

use std::thread;
use std::time::{Duration, Instant};

use evenkeel_lab::Server;

use crate::harness::DRIVERS;
use crate::harness::cluster::service_toml;
use crate::stage::{Client, TestBed, WHERE};

const SCHEMA: &str = "
    CREATE TABLE counters (id int PRIMARY KEY, v bigint NOT NULL);
    INSERT INTO counters SELECT n, 0 FROM generate_series(0, 15) n;
    CREATE FUNCTION bump(which int, what bigint) RETURNS bigint LANGUAGE sql AS
        'UPDATE counters SET v = $2 WHERE id = $1 RETURNING v';";

/// Each statement sets counter `$id` to `$v`, as text.
const WRITES: &[&str] = &[
    "UPDATE counters SET v = $v WHERE id = $id",
    "BEGIN; UPDATE counters SET v = $v WHERE id = $id; COMMIT",
    "SELECT bump($id, $v)",
    "WITH w AS (UPDATE counters SET v = $v WHERE id = $id RETURNING 1) SELECT count(*) FROM w",
    "DO 'BEGIN PERFORM bump($id, $v); END'",
    "DELETE FROM counters WHERE id = $id; INSERT INTO counters VALUES ($id, $v)",
    "EXPLAIN ANALYZE UPDATE counters SET v = $v WHERE id = $id",
    "SAVEPOINT_TRANSACTION",
];

fn start_bed(io: &str, consistency: &str) -> TestBed {
    let further = format!("primary_reads = false\nconsistency = {consistency:?}");
    let bed = TestBed::set_up(io, &further);
    bed.direct().run(SCHEMA);
    bed.scenario.wait_caught_up().unwrap();
    let client = bed.client();
    bed.wait_split(&client);
    bed
}

fn write(client: &Client, id: i32, v: i64, rounds: i64) {
    let sql = WRITES[usize::try_from(rounds).unwrap() % WRITES.len()];
    if rounds % 2 == 1 {
        let sql = "UPDATE counters SET v = $2 WHERE id = $1 RETURNING v";
        let written: i64 = client.value(sql, &[&id, &v]).unwrap();
        assert_eq!(written, v);
    } else if sql == "SAVEPOINT_TRANSACTION" {
        client.run("BEGIN");
        client.run("SAVEPOINT a");
        client.run(&format!("UPDATE counters SET v = {v} WHERE id = {id}"));
        client.run("RELEASE a");
        client.run("COMMIT");
    } else {
        let sql = sql.replace("$id", &id.to_string());
        client.run(&sql.replace("$v", &v.to_string()));
    }
}

/// Returns the value that a session reads of a counter, and the port of the server.
fn read(client: &Client, id: i32, rounds: i64) -> (i64, i32) {
    if rounds % 3 == 0 {
        let sql = "SELECT v, inet_server_port() FROM counters WHERE id = $1";
        let rows = client.wait(client.client.query(sql, &[&id])).unwrap();
        return (rows[0].get(0), rows[0].get(1));
    }
    let sql = format!("SELECT v || ' ' || inet_server_port() FROM counters WHERE id = {id}");
    let rows = client.text(&sql).unwrap();
    let (v, port) = rows[0].split_once(' ').unwrap();
    (v.parse().unwrap(), port.parse().unwrap())
}

/// Alternates writes and reads; returns the number of reads at the primary, and at other servers.
fn write_and_read(bed: &TestBed, rounds: i64, sessions: i32) -> (usize, usize) {
    let primary = bed.port_of_primary();
    let all = thread::scope(|scope| {
        let threads: Vec<_> = (0..sessions)
            .map(|id| {
                scope.spawn(move || {
                    let client = bed.client();
                    let (mut here, mut elsewhere) = (0, 0);
                    for round in 1..=rounds {
                        let v = round + 1_000_000 * i64::from(id);
                        write(&client, id, v, round + i64::from(id));
                        // The first read follows immediately, the others when replicas may have the
                        // write.
                        for _ in 0..3 {
                            let (seen, port) = read(&client, id, round);
                            assert_eq!(seen, v, "round {round} of session {id}, at {port}");
                            match port == primary {
                                true => here += 1,
                                false => elsewhere += 1,
                            }
                        }
                    }
                    (here, elsewhere)
                })
            })
            .collect();
        let done = threads.into_iter().map(|one| one.join().unwrap());
        done.collect::<Vec<_>>()
    });
    let sum = |which: fn(&(usize, usize)) -> usize| all.iter().map(which).sum();
    (sum(|one| one.0), sum(|one| one.1))
}

#[test]
fn a_session_reads_what_it_wrote_while_replicas_fall_behind_on_both_drivers() {
    for io in DRIVERS {
        let bed = start_bed(io, "read-your-writes");
        let [first, second] = two(&bed);
        write_and_read(&bed, 200, 4);
        wait_for_replica(&bed);
        // One replica receives nothing, the other one is late.
        first.stop_replication().unwrap();
        second.lag(Duration::from_millis(30)).unwrap();
        let (here, _) = write_and_read(&bed, 200, 4);
        assert!(here > 0);
        second.lag(Duration::ZERO).unwrap();
        write_and_read(&bed, 100, 4);
        wait_for_replica(&bed);
        first.start_replication().unwrap();
    }
}

#[test]
fn who_wrote_long_ago_reads_at_replicas_all_the_time() {
    let bed = start_bed("auto", "read-your-writes");
    let primary = bed.port_of_primary();
    let client = bed.client();
    write(&client, 1, 1, 1);
    wait_for_replica(&bed);
    // The write becomes an old one.
    thread::sleep(Duration::from_secs(2));
    let until = Instant::now() + Duration::from_secs(3);
    let (mut all, mut here) = (0, 0);
    while Instant::now() < until {
        let (_, port) = read(&client, 1, all);
        all += 1;
        here += i64::from(port == primary);
        thread::sleep(Duration::from_millis(2));
    }
    assert!(
        here * 50 <= all,
        "{here} of {all} reads were at the primary"
    );
}

#[test]
fn with_global_consistency_a_session_reads_what_others_wrote() {
    let bed = start_bed("auto", "global");
    let [first, _] = two(&bed);
    first.stop_replication().unwrap();
    let (writer, reader) = (bed.client(), bed.client());
    let primary = bed.port_of_primary();
    let mut elsewhere = 0;
    for round in 1..=300 {
        write(&writer, 1, round, round);
        for _ in 0..3 {
            let (seen, port) = read(&reader, 1, round);
            assert_eq!(seen, round, "at {port}");
            elsewhere += usize::from(port != primary);
        }
    }
    assert!(elsewhere > 0, "no read was at the replica that follows");
    first.start_replication().unwrap();
}

#[test]
fn with_global_consistency_others_read_what_was_committed_in_a_chain() {
    let bed = start_bed("auto", "global");
    for replica in bed.replicas() {
        replica.stop_replication().unwrap();
    }
    let (writer, reader) = (bed.client(), bed.client());
    writer.run("BEGIN");
    for round in 1..=3 {
        writer.run(&format!("UPDATE counters SET v = {round} WHERE id = 1"));
        writer.run("COMMIT AND CHAIN");
        for _ in 0..3 {
            let (seen, port) = read(&reader, 1, 1);
            assert_eq!(seen, round, "at {port}");
        }
    }
    writer.run("ROLLBACK");
    for replica in bed.replicas() {
        replica.start_replication().unwrap();
    }
}

#[test]
fn eventual_consistency_reads_what_a_replica_has() {
    let bed = start_bed("auto", "eventual");
    for replica in bed.replicas() {
        replica.stop_replication().unwrap();
    }
    let client = bed.client();
    write(&client, 1, 77, 2);
    let (seen, port) = read(&client, 1, 1);
    assert_eq!((seen, port != bed.port_of_primary()), (0, true));
    for replica in bed.replicas() {
        replica.start_replication().unwrap();
    }
}

/// TO SEE THIS RED: leave `writes_recorded_since_us` at zero.
#[test]
fn a_session_reads_what_it_wrote_before_a_reload_that_has_reads_see_it() {
    for (reads, consistency) in [(true, "eventual"), (false, "read-your-writes")] {
        let lines = |reads: bool, consistency: &str| {
            format!(
                "[service.split]\nreads = {reads}\nprimary_reads = false\nconsistency = \
                 {consistency:?}"
            )
        };
        let bed = TestBed::set_with("auto", &lines(true, "eventual"));
        bed.direct().run(SCHEMA);
        bed.scenario.wait_caught_up().unwrap();
        bed.wait_split(&bed.client());
        for replica in bed.replicas() {
            replica.stop_replication().unwrap();
        }
        let reload = |lines: &str| {
            let (kind, servers) = (bed.scenario.kind, &bed.scenario.servers);
            let service = service_toml("db", kind, bed.listen, servers, lines);
            let config = bed.head.clone() + &service;
            bed.balancer.reload(&config).unwrap();
        };
        reload(&lines(reads, consistency));
        let client = bed.client();
        write(&client, 1, 77, 2);
        reload(&lines(true, "read-your-writes"));
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until {
            let (seen, port) = read(&client, 1, 1);
            assert_eq!(seen, 77, "at {port}");
        }
        for replica in bed.replicas() {
            replica.start_replication().unwrap();
        }
        let primary = bed.port_of_primary();
        bed.wait("a read at a replica", || client.port(WHERE) != primary);
    }
}

#[test]
fn a_session_reads_what_it_wrote_across_a_change_of_the_primary() {
    let bed = start_bed("auto", "read-your-writes");
    let clients: Vec<Client> = (0..4).map(|_| bed.client()).collect();
    for round in 1..=3 {
        for (id, client) in (0..).zip(&clients) {
            write(client, id, round, 0);
        }
        let candidate = bed.replicas()[0].clone();
        bed.scenario.lab.promote(&candidate).unwrap();
        for _ in 0..50 {
            for (id, client) in (0..).zip(&clients) {
                let (seen, port) = read(client, id, round);
                assert_eq!(seen, round, "session {id} at {port}");
            }
        }
        bed.wait_whole();
    }
}

/// Waits until reads reach a replica: without further writes, a replica soon has the last one.
fn wait_for_replica(bed: &TestBed) {
    let primary = bed.port_of_primary();
    let client = bed.client();
    for round in 1..=20 {
        write(&client, 15, round, round);
        bed.wait("a read at a replica", || {
            let (seen, port) = read(&client, 15, round);
            assert_eq!(seen, round, "at {port}");
            port != primary
        });
    }
}

fn two(bed: &TestBed) -> [Server; 2] {
    <[Server; 2]>::try_from(bed.replicas()).unwrap_or_else(|_| panic!("not two replicas"))
}

/// Sessions of both processes write and read.
///
/// TO SEE THIS RED: let a process consider only its own writes.
#[test]
fn with_global_consistency_a_session_reads_what_another_process_wrote_in_an_upgrade() {
    let split = "[service.split]\nreads = true\nconsistency = \"global\"";
    let head = "[engine]\nshutdown_limit_ms = 30000\n";
    let bed = TestBed::start(head, split);
    bed.direct().run(SCHEMA);
    bed.scenario.wait_caught_up().unwrap();
    let old = bed.client();
    bed.balancer.upgrade(&[]).unwrap();
    let new = bed.client();
    for replica in bed.replicas() {
        replica.lag(Duration::from_secs(4)).unwrap();
    }
    for (round, (writer, reader)) in [(&old, &new), (&new, &old)].into_iter().enumerate() {
        for id in 0..8 {
            let v = i64::try_from(round).unwrap() + 7;
            writer.run(&format!("UPDATE counters SET v = {v} WHERE id = {id}"));
            assert_eq!(read(reader, id, 1).0, v, "round {round}");
        }
    }
}

/// A role is verified at the server where it is set, and at each other server that the session
/// uses.
///
/// TO SEE THIS RED: forward a replica's error about the role.
#[test]
fn who_has_a_role_that_has_not_come_to_the_replicas_yet_reads_at_the_primary() {
    let bed = start_bed("auto", "read-your-writes");
    for replica in bed.replicas() {
        replica.lag(Duration::from_secs(4)).unwrap();
    }
    bed.sql("CREATE ROLE newcomer");
    bed.sql("GRANT newcomer TO sbtest");
    let client = bed.client();
    client.run("/* evenkeel: primary */ SET ROLE newcomer");
    let role = "SELECT current_user || ' ' || inet_server_port()";
    let expected = format!("newcomer {}", bed.port_of_primary());
    assert_eq!(client.text(role).unwrap(), [expected]);
}
