//! Tests of a primary that fails, returns, is drained, or is replaced.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use evenkeel_lab::{ReadProbe, Server};

use crate::harness::cluster::service_toml;
use crate::harness::{DRIVERS, done, loopback, wait_until};
use crate::stage::{Client, TestBed, WHERE};

fn stage() -> TestBed {
    let stage = TestBed::set("auto", "primary_reads = false");
    // Each acknowledged write is on a replica, too.
    stage.sql("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'");
    stage.sql("SELECT pg_reload_conf()");
    let direct = stage.direct();
    direct.run("CREATE TABLE things (id int PRIMARY KEY, what text)");
    stage.scene.wait_caught_up().unwrap();
    stage.wait_split(&stage.client());
    stage
}

fn assert_all_read(reader: ReadProbe) {
    let readings = reader.finish();
    let failed: Vec<_> = readings.iter().filter(|one| one.outcome.is_err()).collect();
    assert!(failed.is_empty(), "of {}: {failed:#?}", readings.len());
    assert!(!readings.is_empty());
}

fn wait_primary(stage: &TestBed, server: &Server) {
    let what = format!("{} as the primary", server.name);
    stage.wait(&what, || stage.cluster()["primary"] == server.name.as_str());
}

#[test]
fn when_the_primary_dies_writers_wait_readers_notice_nothing_and_no_row_is_lost_or_doubled() {
    let stage = stage();
    let (writer, reader) = (stage.writer(), stage.reader());
    let old = stage.primary();
    let session = stage.client();
    session.run("SET application_name = 'of before'");
    let cut = stage.client();
    cut.run("BEGIN");
    cut.run("INSERT INTO things VALUES (1, 'never')");
    thread::sleep(Duration::from_millis(300));
    old.kill().unwrap();
    thread::sleep(Duration::from_millis(200));
    // A client that writes while there is no primary waits.
    let waiting = thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            session.run("INSERT INTO things VALUES (2, 'waited')");
            session.text("SHOW application_name").unwrap()
        });
        stage.scene.lab.fail_over(&old).unwrap();
        waiting.join().unwrap()
    });
    assert_eq!(waiting, ["of before"]);
    let failed = cut.text("INSERT INTO things VALUES (3, 'never')");
    let state = failed.unwrap_err().state;
    assert!(
        state == "57P01" || state == "40001" || cut.is_closed(),
        "{state}"
    );
    let new = stage.primary();
    wait_primary(&stage, &new);
    thread::sleep(Duration::from_millis(500));
    assert_all_read(reader);
    let log = writer.finish();
    let failed: Vec<_> = log
        .attempts
        .iter()
        .filter(|one| !one.is_acknowledged())
        .collect();
    // At most the one attempt whose answer was lost.
    assert!(failed.len() <= 1, "{failed:#?}");
    let verified = log.verify(&new).unwrap();
    assert!(verified.is_faultless(), "{verified:?}");
    let ids = "/* evenkeel: primary */ SELECT id FROM things ORDER BY id";
    assert_eq!(stage.client().text(ids).unwrap(), ["2"]);

    // The old primary returns and considers itself the primary: no session is routed there.
    old.start().unwrap();
    let port = i32::from(new.address.port());
    for _ in 0..100 {
        let sql = "/* evenkeel: primary */ SELECT inet_server_port()";
        assert_eq!(stage.client().port(sql), port);
        thread::sleep(Duration::from_millis(10));
    }
    stage.scene.lab.rejoin(&old).unwrap();
    stage.wait_whole();
}

#[test]
fn a_planned_change_of_the_primary_fails_nothing_outside_of_transactions() {
    let stage = stage();
    let (writer, reader) = (stage.writer(), stage.reader());
    for _ in 0..2 {
        thread::sleep(Duration::from_millis(300));
        let candidate = stage.replicas()[0].clone();
        stage.scene.lab.promote(&candidate).unwrap();
        stage.sql("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'");
        stage.sql("SELECT pg_reload_conf()");
        stage.wait_whole();
        wait_primary(&stage, &candidate);
    }
    thread::sleep(Duration::from_millis(300));
    assert_all_read(reader);
    let log = writer.finish();
    let failed: Vec<_> = log
        .attempts
        .iter()
        .filter(|one| !one.is_acknowledged())
        .collect();
    assert!(failed.len() <= 2, "{failed:#?}");
    let verified = log.verify(&stage.primary()).unwrap();
    assert!(verified.is_faultless(), "{verified:?}");
}

#[test]
fn a_frozen_primary_cuts_what_it_has_and_the_rest_goes_on() {
    let stage = stage();
    let reader = stage.reader();
    let old = stage.primary();
    let client = stage.client();
    client.run("INSERT INTO things VALUES (10, 'before')");
    old.freeze().unwrap();
    let written = thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let client = stage.client();
            client.text("INSERT INTO things VALUES (11, 'meanwhile')")
        });
        stage.wait("the primary is missed", || {
            stage.cluster()["primary"].is_null()
        });
        stage.scene.lab.fail_over(&old).unwrap();
        writing.join().unwrap()
    });
    // The write was sent to the frozen primary, which never replied, or waited for the new primary.
    if let Err(failed) = written {
        assert_eq!(failed.state, "08007", "{failed:?}");
    }
    client.run("INSERT INTO things VALUES (12, 'after')");
    assert_all_read(reader);
    old.thaw().unwrap();
    thread::sleep(Duration::from_millis(500));
    client.run("INSERT INTO things VALUES (13, 'after')");
    let port = i32::from(stage.primary().address.port());
    assert_eq!(
        client.port("/* evenkeel: primary */ SELECT inet_server_port()"),
        port
    );
}

#[test]
fn who_waits_for_a_connection_to_the_primary_gets_one_to_its_successor() {
    let pool = "primary_reads = false\n[service.pool]\nsize = 1\nwait_ms = 30000";
    let stage = TestBed::set("auto", pool);
    let direct = stage.direct();
    direct.run("CREATE TABLE things (id int PRIMARY KEY, what text)");
    let old = stage.primary();
    let (holder, waiter) = (stage.client(), stage.client());
    holder.run("BEGIN");
    holder.run("INSERT INTO things VALUES (1, 'never')");
    stage.scene.wait_caught_up().unwrap();
    old.freeze().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| waiter.run("INSERT INTO things VALUES (2, 'waited')"));
        stage.scene.lab.fail_over(&old).unwrap();
        wait_primary(&stage, &stage.primary());
        // The old primary accepts writes as before, but they would be lost.
        old.thaw().unwrap();
        waiting.join().unwrap();
    });
    assert_eq!(stage.direct().text("SELECT id FROM things").unwrap(), ["2"]);
}

#[test]
fn reads_do_not_wait_where_all_connections_are_in_use_while_another_server_has_one() {
    for io in DRIVERS {
        let stage = TestBed::set(io, "[service.pool]\nsize = 2\nwait_ms = 30000");
        stage.direct().run("CREATE TABLE things (id int)");
        stage.scene.wait_caught_up().unwrap();
        let (writers, readers) = ([(); 2], [(); 2]);
        let writers = writers.map(|()| begun(&stage, "BEGIN", "INSERT INTO things VALUES (1)"));
        // One reader at each replica: the weight makes the primary the least busy server from here
        // on.
        let readers = readers.map(|()| begun(&stage, "BEGIN READ ONLY", WHERE));
        let primary = stage.primary();
        done(&stage.balancer, &["weight", &primary.name, "100"]);
        let (reader, since) = (stage.client(), Instant::now());
        let port = i32::from(primary.address.port());
        for _ in 0..12 {
            assert_ne!(reader.port(WHERE), port, "{io}");
        }
        assert!(since.elapsed() < Duration::from_secs(10), "{io}");
        writers.iter().for_each(|client| client.run("ROLLBACK"));
        // Evenkeel first checks the server for leftover state of the transactions.
        wait_until(&stage.balancer, "reads at the primary again", || {
            reader.port(WHERE) == port
        });
        readers.iter().for_each(|client| client.run("COMMIT"));
    }
}

#[test]
fn reads_that_wait_are_run_where_a_connection_comes_free() {
    for io in DRIVERS {
        let stage = TestBed::set(io, "[service.pool]\nsize = 1\nwait_ms = 20000");
        stage.direct().run("CREATE TABLE things (id int)");
        stage.scene.wait_caught_up().unwrap();
        let clients: Vec<Client> = (0..6).map(|_| stage.client()).collect();
        let writer = begun(&stage, "BEGIN", "INSERT INTO things VALUES (1)");
        let holders = [(); 2].map(|()| begun(&stage, "BEGIN READ ONLY", WHERE));
        let since = Instant::now();
        thread::scope(|scope| {
            for client in &clients {
                scope.spawn(|| client.run(WHERE));
            }
            thread::sleep(Duration::from_millis(300));
            holders[0].run("COMMIT");
        });
        assert!(since.elapsed() < Duration::from_secs(10), "{io}");
        holders[1].run("COMMIT");
        writer.run("ROLLBACK");
    }
}

#[test]
fn a_read_that_waits_at_the_primary_goes_to_a_replica_that_is_back() {
    let stage = TestBed::set("auto", "[service.pool]\nsize = 1\nwait_ms = 20000");
    stage.direct().run("CREATE TABLE things (id int)");
    let (client, replicas) = (stage.client(), stage.replicas());
    let each = |verb| {
        for replica in &replicas {
            done(&stage.balancer, &[verb, &replica.name]);
        }
    };
    each("drain");
    let writer = begun(&stage, "BEGIN", "INSERT INTO things VALUES (1)");
    let since = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| client.run(WHERE));
        thread::sleep(Duration::from_millis(300));
        each("undrain");
    });
    assert!(since.elapsed() < Duration::from_secs(10));
    writer.run("ROLLBACK");
}

/// Opens a client in a transaction that has sent a statement to the server.
fn begun(stage: &TestBed, begin: &str, first: &str) -> Client {
    let client = stage.client();
    client.run(begin);
    client.run(first);
    client
}

#[test]
fn a_drained_primary_takes_no_new_work_and_that_waits_until_it_is_back() {
    let stage = stage();
    let primary = stage.primary().name;
    let (busy, client) = (stage.client(), stage.client());
    busy.run("BEGIN");
    busy.run("INSERT INTO things VALUES (20, 'in a transaction')");
    done(&stage.balancer, &["drain", &primary]);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| client.run("INSERT INTO things VALUES (21, 'waited')"));
        thread::sleep(Duration::from_millis(500));
        assert!(!waiting.is_finished());
        // Reads continue, and so do open transactions.
        let reads = stage.client();
        assert!(reads.port("SELECT inet_server_port()") > 0);
        busy.run("INSERT INTO things VALUES (22, 'still')");
        busy.run("COMMIT");
        done(&stage.balancer, &["undrain", &primary]);
        waiting.join().unwrap();
    });
    let ids = "/* evenkeel: primary */ SELECT count(*) FROM things";
    assert_eq!(client.text(ids).unwrap(), ["3"]);
}

#[test]
fn a_transaction_on_a_drained_primary_ends_once_another_server_is_the_primary() {
    let stage = stage();
    let old = stage.primary();
    let busy = stage.client();
    busy.run("BEGIN");
    busy.run("INSERT INTO things VALUES (40, 'never')");
    let patient = ["drain", &old.name, "--limit-ms", "300000"];
    done(&stage.balancer, &patient);
    let new = stage.replicas()[0].clone();
    new.sql("SELECT pg_promote()").unwrap();
    wait_primary(&stage, &new);
    stage.wait("its end", || busy.text("SELECT 1").is_err());
}

/// Runs balanced reads, also on the primary, while `disturb` is applied to it. Returns the longest
/// time.
fn longest_read(stage: &TestBed, disturb: impl FnOnce(&Server)) -> Duration {
    stage.wait_split(&stage.client());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let read = || {
            let client = stage.client();
            let mut longest = Duration::ZERO;
            while !is_over.load(Relaxed) {
                let begun = Instant::now();
                assert!(client.port("SELECT inet_server_port()") > 0);
                assert!(client.port_prepared("SELECT inet_server_port()") > 0);
                longest = longest.max(begun.elapsed());
            }
            longest
        };
        let reading: Vec<_> = (0..4).map(|_| scope.spawn(read)).collect();
        thread::sleep(Duration::from_millis(500));
        disturb(&stage.primary());
        thread::sleep(Duration::from_secs(2));
        is_over.store(true, Relaxed);
        let done = reading.into_iter().map(|one| one.join().unwrap());
        done.max().unwrap()
    })
}

#[test]
fn reads_that_the_primary_takes_its_part_of_go_on_without_it() {
    let stage = TestBed::set("auto", "");
    // No replica is promoted: a session that waits for a primary waits long.
    let longest = longest_read(&stage, |primary| primary.kill().unwrap());
    assert!(longest < Duration::from_secs(2), "{longest:?}");
}

#[test]
fn reads_on_a_primary_that_freezes_are_run_elsewhere_as_soon_as_it_is_found_out() {
    let stage = TestBed::set("auto", "");
    let longest = longest_read(&stage, |primary| {
        primary.freeze().unwrap();
        stage.wait("the primary is missed", || {
            stage.cluster()["primary"].is_null()
        });
    });
    assert!(longest < Duration::from_secs(20), "{longest:?}");
    stage.primary().thaw().unwrap();
}

#[test]
fn reads_on_a_primary_that_hands_over_do_not_fail() {
    let stage = TestBed::set("auto", "");
    longest_read(&stage, |_| {
        for _ in 0..2 {
            let candidate = stage.replicas()[0].clone();
            stage.scene.lab.promote(&candidate).unwrap();
            stage.wait_whole();
        }
    });
}

#[test]
fn who_waited_for_the_primary_lets_the_next_one_follow_though_it_keeps_its_connection() {
    let further = "[service.failover]\nresume_at_once = 1\nwait_ms = 8000";
    let stage = TestBed::set_with("auto", further);
    let primary = stage.primary().name;
    let clients: Vec<Client> = (0..6).map(|_| stage.client()).collect();
    stage.direct().run("CREATE TABLE things (id int)");
    for keeps in ["BEGIN", "CREATE TEMP TABLE own (a int)"] {
        done(&stage.balancer, &["drain", &primary]);
        thread::scope(|scope| {
            let waiting: Vec<_> = clients
                .iter()
                .map(|client| scope.spawn(|| client.text(keeps)))
                .collect();
            thread::sleep(Duration::from_millis(300));
            done(&stage.balancer, &["undrain", &primary]);
            for one in waiting {
                one.join().unwrap().unwrap();
            }
        });
        clients.iter().for_each(|client| client.run("COMMIT"));
    }
}

/// TO SEE THIS RED: queue a session again at the end if the primary has failed again.
#[test]
fn who_waits_for_a_primary_that_is_back_and_gone_again_takes_nobody_s_turn() {
    let further = "[service.pool]\nsize = 1\nwait_ms = 20000\n\
                   [service.failover]\nresume_at_once = 1\nwait_ms = 8000";
    let stage = TestBed::set_with("auto", further);
    stage.direct().run("CREATE TABLE things (id int)");
    let (holder, waiter) = (stage.client(), stage.client());
    let primary = stage.primary().name;
    let tell = |command: &str| {
        done(&stage.balancer, &[command, &primary]);
        thread::sleep(Duration::from_millis(800));
    };
    tell("drain");
    thread::scope(|scope| {
        scope.spawn(|| holder.run("BEGIN"));
        thread::sleep(Duration::from_millis(300));
        let waiting = scope.spawn(|| waiter.text("INSERT INTO things VALUES (1)"));
        thread::sleep(Duration::from_millis(300));
        // The first session has the only connection, and the second one waits for it.
        ["undrain", "drain", "undrain"].into_iter().for_each(tell);
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn a_slow_statement_of_one_who_waited_for_a_primary_does_not_hold_up_the_others() {
    let further = "[service.failover]\nresume_at_once = 1\nwait_ms = 9000";
    let stage = TestBed::set_with("auto", further);
    stage.direct().run("CREATE TABLE things (id int)");
    let (slow, quick) = (stage.client(), stage.client());
    let primary = stage.primary().name;
    done(&stage.balancer, &["drain", &primary]);
    thread::sleep(Duration::from_millis(800));
    thread::scope(|scope| {
        scope.spawn(|| slow.run("INSERT INTO things SELECT 1 FROM pg_sleep(7)"));
        thread::sleep(Duration::from_millis(300));
        let quick = scope.spawn(|| {
            quick.run("INSERT INTO things VALUES (2)");
            Instant::now()
        });
        thread::sleep(Duration::from_millis(300));
        done(&stage.balancer, &["undrain", &primary]);
        let since = Instant::now();
        let took = quick.join().unwrap().saturating_duration_since(since);
        assert!(took < Duration::from_secs(4), "{took:?}");
    });
}

#[test]
fn without_a_primary_writes_are_told_so_in_time_and_reads_go_on() {
    let further = "[service.split]\nreads = true\nprimary_reads = false\n\
                   [service.failover]\nwait_ms = 1000";
    let stage = TestBed::set_with("auto", further);
    stage.direct().run("CREATE TABLE things (id int)");
    let client = stage.client();
    stage.wait_split(&client);
    let reader = stage.reader();
    stage.primary().kill().unwrap();
    stage.wait("the primary is missed", || {
        stage.cluster()["primary"].is_null()
    });
    let failed = client.text("INSERT INTO things VALUES (1)").unwrap_err();
    assert_eq!(failed.state, "57P03", "{failed:?}");
    assert!(client.port("SELECT inet_server_port()") > 0);
    let failed: Result<i32, _> = client.value("INSERT INTO things VALUES (1) RETURNING id", &[]);
    assert_eq!(failed.unwrap_err().state, "57P03");
    assert!(client.port_prepared("SELECT inet_server_port()") > 0);
    assert_all_read(reader);
}

#[test]
fn one_server_alone_needs_no_monitor() {
    let stage = stage();
    let primary = stage.primary();
    // Health probes may or may not notice the failure.
    for (round, further) in ["", "[service.health]\nfall = 100"].into_iter().enumerate() {
        let listen = loopback();
        let servers = std::slice::from_ref(&primary);
        let toml = service_toml("alone", stage.scene.kind, listen, servers, further);
        let monitor = "[service.monitor]\nuser = \"monitor\"\npassword = \"monitor\"\n\
                       database = \"postgres\"\n";
        assert!(toml.contains(monitor));
        let config = stage.head.clone() + &toml.replace(monitor, "");
        let balancer = evenkeel_lab::Balancer::start(&config).unwrap();
        let client = Client::connect(listen);
        let insert = |id| {
            format!(
                "INSERT INTO things VALUES ({}, 'alone')",
                30 + 10 * round + id
            )
        };
        client.run("BEGIN");
        client.run(&insert(0));
        // The reload must not make it a former primary.
        balancer.reload(&config).unwrap();
        client.run("COMMIT");
        // The server restarts: a client that writes meanwhile waits.
        primary.kill().unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| client.text(&insert(1)));
            thread::sleep(Duration::from_millis(2_000));
            primary.start().unwrap();
            let waited = waiting.join().unwrap();
            assert!(waited.is_ok(), "{waited:?}\n{}", balancer.log());
        });
    }
}

#[test]
fn a_server_that_was_promoted_is_not_doubted_for_a_session_that_wants_to_read_only() {
    let further = "[service.split]\nreads = true\nprimary_reads = false\n\
                   [service.failover]\nwait_ms = 20000";
    let stage = TestBed::set_with("auto", further);
    stage.direct().run("CREATE TABLE things (id int)");
    stage.scene.wait_caught_up().unwrap();
    let clients: Vec<Client> = (0..6).map(|_| stage.client()).collect();
    stage.wait_split(&clients[0]);
    // Connections that were opened while the server was a replica.
    clients
        .iter()
        .for_each(|client| client.run("BEGIN READ ONLY; SELECT 1"));
    clients.iter().for_each(|client| client.run("COMMIT"));
    let candidate = stage.replicas()[0].clone();
    stage.scene.lab.promote(&candidate).unwrap();
    stage.wait_whole();
    wait_primary(&stage, &candidate);
    let since = Instant::now();
    for client in &clients {
        let twice = "INSERT INTO things VALUES (1); COMMIT; BEGIN READ ONLY; \
                     INSERT INTO things VALUES (2); COMMIT";
        let failed = client.text(twice).unwrap_err();
        assert_eq!(failed.state, "25006", "{failed:?}");
        client.run("ROLLBACK");
        client.run("SET default_transaction_read_only = on");
        let failed = client.text("INSERT INTO things VALUES (3)").unwrap_err();
        assert_eq!(failed.state, "25006", "{failed:?}");
    }
    assert!(
        since.elapsed() < Duration::from_secs(5),
        "{:?}",
        since.elapsed()
    );
    let count = "/* evenkeel: primary */ SELECT count(*) || ' ' || sum(id) FROM things";
    assert_eq!(stage.client().text(count).unwrap(), ["6 6"]);
}
