//! Tests of reads that a replica rejects, loses or never answers.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::thread;

use crate::harness::DRIVERS;
use crate::harness::progress::wait_reads;
use crate::stage::{Client, TestBed, WHERE};

const SCHEMA: &str = "CREATE TABLE things (id int PRIMARY KEY, what text);
    INSERT INTO things SELECT n, 'thing ' || n FROM generate_series(1, 10) n;
    CREATE TABLE written (id int);
    CREATE FUNCTION liar() RETURNS int LANGUAGE plpgsql STABLE AS
        $$ BEGIN PERFORM pg_catalog.pg_stat_reset(); RETURN inet_server_port(); END $$;
    CREATE FUNCTION asks() RETURNS int LANGUAGE plpgsql STABLE AS
        $$ DECLARE much text := repeat('x', 30000000);
        BEGIN PERFORM pg_catalog.txid_current(); RETURN inet_server_port(); END $$;";

/// Runs for a second or more before it sends anything, and returns the port of its server.
const LONG: &str = "SELECT inet_server_port() FROM things, \
    (SELECT count(*) AS n FROM generate_series(1, 8000000)) AS x WHERE id = 1 AND n > 0";

fn start_bed(io: &str) -> TestBed {
    let bed = TestBed::set_up(io, "primary_reads = false\nconsistency = \"eventual\"");
    bed.direct().run(SCHEMA);
    bed.scenario.wait_caught_up().unwrap();
    let client = bed.client();
    let primary = bed.port_of_primary();
    let known = "SELECT inet_server_port() FROM things";
    bed.wait("a known table", || client.port(known) != primary);
    bed
}

/// Runs the long read, and applies `disturb` to the server that executes it.
fn disturbed(
    bed: &TestBed,
    prepared: bool,
    disturb: impl FnOnce(&evenkeel_lab::Server),
) -> (i32, i32) {
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let client = bed.client();
            let port = match prepared {
                true => client.port_prepared(LONG),
                false => client.port(LONG),
            };
            // The session is still usable.
            assert!(!client.is_closed());
            client.run("INSERT INTO written VALUES (1)");
            let again: i32 = client.value(WHERE, &[]).unwrap();
            assert!(again > 0);
            port
        });
        let busy = |server: &evenkeel_lab::Server| {
            let sql = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' \
                       AND query LIKE '%generate_series%' AND pid <> pg_backend_pid()";
            server.sql(sql).unwrap().contains('1')
        };
        let mut found = None;
        bed.wait("a server that works", || {
            let servers = bed.scenario.servers.iter();
            found = servers
                .filter(|one| one.is_running() && !one.is_frozen())
                .find(|one| busy(one))
                .cloned();
            found.is_some()
        });
        let found = found.unwrap();
        disturb(&found);
        (i32::from(found.address.port()), reading.join().unwrap())
    })
}

#[test]
fn a_read_that_replay_cancels_runs_on_the_primary_on_both_drivers() {
    for io in DRIVERS {
        let bed = start_bed(io);
        for replica in bed.replicas() {
            replica
                .sql("ALTER SYSTEM SET max_standby_streaming_delay = '20ms'")
                .unwrap();
            replica.sql("SELECT pg_reload_conf()").unwrap();
        }
        let direct = bed.direct();
        for (number, prepared) in [false, true].into_iter().enumerate() {
            let (before, after) = disturbed(&bed, prepared, |_| {
                direct.run(&format!("ALTER TABLE things ADD COLUMN more{number} int"));
            });
            assert_ne!(before, bed.port_of_primary());
            assert_eq!(after, bed.port_of_primary(), "prepared: {prepared}");
        }
    }
}

#[test]
fn a_read_whose_replica_dies_or_freezes_runs_elsewhere() {
    let bed = start_bed("auto");
    for prepared in [false, true] {
        let mut killed = None;
        let (before, after) = disturbed(&bed, prepared, |server| {
            server.kill().unwrap();
            killed = Some(server.clone());
        });
        assert_ne!(before, after, "prepared: {prepared}");
        killed.unwrap().start().unwrap();
        bed.wait_whole();
    }
    let mut frozen = None;
    let (before, after) = disturbed(&bed, false, |server| {
        server.freeze().unwrap();
        frozen = Some(server.clone());
    });
    assert_ne!(before, after);
    frozen.unwrap().thaw().unwrap();
    bed.wait_whole();
}

#[test]
fn nobody_notices_that_a_replica_is_killed_restarted_and_stopped() {
    let bed = start_bed("auto");
    let reader = bed.reader();
    let replica = bed.replicas()[0].clone();
    thread::scope(|scope| {
        let sessions: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let client = bed.client();
                    for _ in 0..1_500 {
                        assert!(client.port("SELECT inet_server_port() FROM things") > 0);
                        assert!(client.port_prepared("SELECT inet_server_port() FROM things") > 0);
                    }
                })
            })
            .collect();
        replica.kill().unwrap();
        wait_reads(&bed.balancer, &reader);
        replica.start().unwrap();
        replica.stop().unwrap();
        replica.start().unwrap();
        for one in sessions {
            one.join().unwrap();
        }
    });
    let readings = reader.finish();
    let failed: Vec<_> = readings.iter().filter(|one| one.outcome.is_err()).collect();
    assert!(failed.is_empty(), "of {}: {failed:#?}", readings.len());
}

#[test]
fn a_function_that_lies_about_itself_runs_on_the_primary_when_a_replica_refuses_it() {
    let bed = start_bed("auto");
    bed.sql("GRANT EXECUTE ON FUNCTION pg_stat_reset() TO public");
    let client = bed.client();
    let direct = bed.direct();
    direct.run(
        "CREATE FUNCTION sly() RETURNS int LANGUAGE plpgsql STABLE AS \
         $$ BEGIN PERFORM nextval('sly_numbers'); RETURN inet_server_port(); END $$; \
         CREATE SEQUENCE sly_numbers",
    );
    bed.scenario.wait_caught_up().unwrap();
    for _ in 0..20 {
        assert_eq!(client.port("SELECT sly()"), bed.port_of_primary());
        assert_eq!(client.port_prepared("SELECT sly()"), bed.port_of_primary());
    }
    assert!(!client.is_closed());
}

#[test]
fn what_was_answered_is_not_run_again_with_what_was_sent_behind_it() {
    let bed = start_bed("auto");
    for round in 0..20 {
        let client = bed.client();
        let insert = format!("INSERT INTO written VALUES ({round})");
        let mut first = pin!(client.client.simple_query(&insert));
        let end = "SELECT pg_terminate_backend(pg_backend_pid())";
        let mut second = pin!(client.client.simple_query(end));
        let (mut done, mut ended) = (None, None);
        // Both are sent before either is answered.
        client.wait(poll_fn(|context| {
            if done.is_none() {
                done = ready(first.as_mut().poll(context));
            }
            if ended.is_none() {
                ended = ready(second.as_mut().poll(context));
            }
            match done.is_some() && ended.is_some() {
                true => Poll::Ready(()),
                false => Poll::Pending,
            }
        }));
        assert!(done.unwrap().is_ok() && ended.unwrap().is_err());
    }
    let twice = "SELECT count(*) - count(DISTINCT id) || ' of ' || count(*) FROM written";
    assert_eq!(bed.direct().text(twice).unwrap(), ["0 of 20"]);
}

fn ready<T>(polled: Poll<T>) -> Option<T> {
    match polled {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

#[test]
fn a_write_whose_backend_is_ended_by_an_operator_is_run_once() {
    let bed = start_bed("auto");
    let client = bed.client();
    let end_all = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                   WHERE usename = 'sbtest' AND backend_type = 'client backend'";
    for round in 0..30 {
        bed.sql(end_all);
        client.run(&format!("INSERT INTO written VALUES ({round})"));
        bed.sql(end_all);
        let written = "INSERT INTO written VALUES ($1) RETURNING id";
        let back: i32 = client.value(written, &[&(round + 100)]).unwrap();
        assert_eq!(back, round + 100);
    }
    let count = "/* evenkeel: primary */ SELECT count(*) FROM written";
    assert_eq!(client.text(count).unwrap(), ["60"]);
    // In a transaction there is one error, and the session ends, as it does without Evenkeel.
    client.run("BEGIN");
    client.run("INSERT INTO written VALUES (1)");
    bed.sql(end_all);
    let failed = client.text("INSERT INTO written VALUES (2)").unwrap_err();
    assert!(failed.state == "57P01" || client.is_closed(), "{failed:?}");
    assert_eq!(Client::connect(bed.listen).text(count).unwrap(), ["60"]);
}

#[test]
fn what_was_set_and_committed_before_a_replica_refused_the_rest_stays_with_its_client() {
    for io in DRIVERS {
        let bed = start_bed(io);
        let (client, other) = (bed.client(), bed.client());
        let primary = bed.port_of_primary();
        for round in 0..3 {
            // The discarded reply may arrive separately from the error.
            let text = "BEGIN READ ONLY; SET work_mem TO '7MB'; COMMIT; SELECT asks()";
            assert_eq!(client.port(text), primary, "round {round}");
            // This reads at each replica.
            for _ in 0..4 {
                let seen = other.text("SELECT current_setting('work_mem')").unwrap();
                assert_eq!(seen, ["4MB"], "round {round}");
            }
            let own = client.text("SELECT current_setting('work_mem')").unwrap();
            assert_eq!(own, ["7MB"], "round {round}");
        }
    }
}

#[test]
fn a_read_in_an_isolation_that_replicas_lack_runs_on_the_primary() {
    let bed = start_bed("auto");
    bed.sql("ALTER ROLE sbtest SET default_transaction_isolation = 'serializable'");
    bed.scenario.wait_caught_up().unwrap();
    let end_all = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                   WHERE usename = 'sbtest' AND backend_type = 'client backend'";
    for server in &bed.scenario.servers {
        server.sql(end_all).unwrap();
    }
    let client = bed.client();
    let read = "SELECT inet_server_port() FROM things";
    for _ in 0..5 {
        assert_eq!(client.port(read), bed.port_of_primary());
        assert_eq!(client.port_prepared(read), bed.port_of_primary());
    }
}
