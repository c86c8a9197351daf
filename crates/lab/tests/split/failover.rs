//! Tests of a primary that fails, returns, is drained, or is replaced.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use evenkeel_lab::{ReadProbe, Server};

use crate::harness::cluster::service_toml;
use crate::harness::progress::{wait_clients, wait_counts};
use crate::harness::{DRIVERS, SetOnDrop, done, loopback, wait_until};
use crate::stage::{Client, TestBed, WHERE};

fn start_bed() -> TestBed {
    let bed = TestBed::set_up("auto", "primary_reads = false");
    // Each acknowledged write is on a replica, too.
    bed.sql("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'");
    bed.sql("SELECT pg_reload_conf()");
    let direct = bed.direct();
    direct.run("CREATE TABLE things (id int PRIMARY KEY, what text)");
    bed.scenario.wait_caught_up().unwrap();
    bed.wait_split(&bed.client());
    bed
}

fn assert_all_read(reader: ReadProbe) {
    let readings = reader.finish();
    let failed: Vec<_> = readings.iter().filter(|one| one.outcome.is_err()).collect();
    assert!(failed.is_empty(), "of {}: {failed:#?}", readings.len());
    assert!(!readings.is_empty());
}

fn wait_primary(bed: &TestBed, server: &Server) {
    let what = format!("{} as the primary", server.name);
    bed.wait(&what, || bed.cluster()["primary"] == server.name.as_str());
}

#[test]
fn when_the_primary_dies_writers_wait_readers_notice_nothing_and_no_row_is_lost_or_doubled() {
    let bed = start_bed();
    let (writer, reader) = (bed.writer(), bed.reader());
    let old = bed.primary();
    let session = bed.client();
    session.run("SET application_name = 'of before'");
    let cut = bed.client();
    cut.run("BEGIN");
    cut.run("INSERT INTO things VALUES (1, 'never')");
    bed.wait_load(&writer, &reader);
    old.kill().unwrap();
    // A client that writes while there is no primary waits.
    let waiting = thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            session.run("INSERT INTO things VALUES (2, 'waited')");
            session.text("SHOW application_name").unwrap()
        });
        // The session, and the writer.
        bed.wait_for_primary(2);
        bed.scenario.lab.fail_over(&old).unwrap();
        waiting.join().unwrap()
    });
    assert_eq!(waiting, ["of before"]);
    let failed = cut.text("INSERT INTO things VALUES (3, 'never')");
    let state = failed.unwrap_err().state;
    assert!(
        state == "57P01" || state == "40001" || cut.is_closed(),
        "{state}"
    );
    let new = bed.primary();
    wait_primary(&bed, &new);
    bed.wait_load(&writer, &reader);
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
    assert_eq!(bed.client().text(ids).unwrap(), ["2"]);

    // The old primary returns and considers itself the primary: no session is routed there during
    // this time.
    old.start().unwrap();
    let port = i32::from(new.address.port());
    for _ in 0..100 {
        let sql = "/* evenkeel: primary */ SELECT inet_server_port()";
        assert_eq!(bed.client().port(sql), port);
        thread::sleep(Duration::from_millis(10));
    }
    bed.scenario.lab.rejoin(&old).unwrap();
    bed.wait_whole();
}

#[test]
fn a_planned_change_of_the_primary_fails_nothing_outside_of_transactions() {
    let bed = start_bed();
    let (writer, reader) = (bed.writer(), bed.reader());
    for _ in 0..2 {
        bed.wait_load(&writer, &reader);
        let candidate = bed.replicas()[0].clone();
        bed.scenario.lab.promote(&candidate).unwrap();
        bed.sql("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'");
        bed.sql("SELECT pg_reload_conf()");
        bed.wait_whole();
        wait_primary(&bed, &candidate);
    }
    bed.wait_load(&writer, &reader);
    assert_all_read(reader);
    let log = writer.finish();
    let failed: Vec<_> = log
        .attempts
        .iter()
        .filter(|one| !one.is_acknowledged())
        .collect();
    assert!(failed.len() <= 2, "{failed:#?}");
    let verified = log.verify(&bed.primary()).unwrap();
    assert!(verified.is_faultless(), "{verified:?}");
}

#[test]
fn a_frozen_primary_cuts_what_it_has_and_the_rest_goes_on() {
    let bed = start_bed();
    let reader = bed.reader();
    let old = bed.primary();
    let client = bed.client();
    client.run("INSERT INTO things VALUES (10, 'before')");
    old.freeze().unwrap();
    let written = thread::scope(|scope| {
        let writing = scope.spawn(|| {
            let client = bed.client();
            client.text("INSERT INTO things VALUES (11, 'meanwhile')")
        });
        bed.wait("the primary is missed", || {
            bed.cluster()["primary"].is_null()
        });
        bed.scenario.lab.fail_over(&old).unwrap();
        writing.join().unwrap()
    });
    // The write was sent to the frozen primary, which never replied, or waited for the new primary.
    if let Err(failed) = written {
        assert_eq!(failed.state, "08007", "{failed:?}");
    }
    client.run("INSERT INTO things VALUES (12, 'after')");
    assert_all_read(reader);
    old.thaw().unwrap();
    // Time in which a mistake about the primary would show.
    thread::sleep(Duration::from_millis(500));
    client.run("INSERT INTO things VALUES (13, 'after')");
    let port = i32::from(bed.primary().address.port());
    assert_eq!(
        client.port("/* evenkeel: primary */ SELECT inet_server_port()"),
        port
    );
}

#[test]
fn who_waits_for_a_connection_to_the_primary_gets_one_to_its_successor() {
    let pool = "primary_reads = false\n[service.pool]\nsize = 1\nwait_ms = 30000";
    let bed = TestBed::set_up("auto", pool);
    let direct = bed.direct();
    direct.run("CREATE TABLE things (id int PRIMARY KEY, what text)");
    let old = bed.primary();
    let (holder, waiter) = (bed.client(), bed.client());
    holder.run("BEGIN");
    holder.run("INSERT INTO things VALUES (1, 'never')");
    bed.scenario.wait_caught_up().unwrap();
    old.freeze().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| waiter.run("INSERT INTO things VALUES (2, 'waited')"));
        wait_clients(&bed.balancer, "db", "waiting", 1);
        bed.scenario.lab.fail_over(&old).unwrap();
        wait_primary(&bed, &bed.primary());
        // The old primary accepts writes as before, but they would be lost.
        old.thaw().unwrap();
        waiting.join().unwrap();
    });
    assert_eq!(bed.direct().text("SELECT id FROM things").unwrap(), ["2"]);
}

#[test]
fn reads_do_not_wait_where_all_connections_are_in_use_while_another_server_has_one() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, "[service.pool]\nsize = 2\nwait_ms = 30000");
        bed.direct().run("CREATE TABLE things (id int)");
        bed.scenario.wait_caught_up().unwrap();
        let (writers, readers) = ([(); 2], [(); 2]);
        let writers =
            writers.map(|()| open_transaction(&bed, "BEGIN", "INSERT INTO things VALUES (1)"));
        // One reader at each replica: the weight makes the primary the least busy server from here
        // on.
        let readers = readers.map(|()| open_transaction(&bed, "BEGIN READ ONLY", WHERE));
        let primary = bed.primary();
        done(&bed.balancer, &["weight", &primary.name, "100"]);
        let (reader, since) = (bed.client(), Instant::now());
        let port = i32::from(primary.address.port());
        for _ in 0..12 {
            assert_ne!(reader.port(WHERE), port, "{io}");
        }
        assert!(since.elapsed() < Duration::from_secs(10), "{io}");
        writers.iter().for_each(|client| client.run("ROLLBACK"));
        // Evenkeel first checks the server for leftover state of the transactions.
        wait_until(&bed.balancer, "reads at the primary again", || {
            reader.port(WHERE) == port
        });
        readers.iter().for_each(|client| client.run("COMMIT"));
    }
}

#[test]
fn reads_that_wait_are_run_where_a_connection_comes_free() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, "[service.pool]\nsize = 1\nwait_ms = 20000");
        bed.direct().run("CREATE TABLE things (id int)");
        bed.scenario.wait_caught_up().unwrap();
        let clients: Vec<Client> = (0..6).map(|_| bed.client()).collect();
        let writer = open_transaction(&bed, "BEGIN", "INSERT INTO things VALUES (1)");
        let holders = [(); 2].map(|()| open_transaction(&bed, "BEGIN READ ONLY", WHERE));
        let since = Instant::now();
        thread::scope(|scope| {
            for client in &clients {
                scope.spawn(|| client.run(WHERE));
            }
            wait_clients(&bed.balancer, "db", "waiting", clients.len());
            holders[0].run("COMMIT");
        });
        assert!(since.elapsed() < Duration::from_secs(10), "{io}");
        holders[1].run("COMMIT");
        writer.run("ROLLBACK");
    }
}

#[test]
fn a_read_that_waits_at_the_primary_goes_to_a_replica_that_is_back() {
    let bed = TestBed::set_up("auto", "[service.pool]\nsize = 1\nwait_ms = 20000");
    bed.direct().run("CREATE TABLE things (id int)");
    let (client, replicas) = (bed.client(), bed.replicas());
    let each = |verb| {
        for replica in &replicas {
            done(&bed.balancer, &[verb, &replica.name]);
        }
    };
    each("drain");
    let writer = open_transaction(&bed, "BEGIN", "INSERT INTO things VALUES (1)");
    let since = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| client.run(WHERE));
        wait_clients(&bed.balancer, "db", "waiting", 1);
        each("undrain");
    });
    assert!(since.elapsed() < Duration::from_secs(10));
    writer.run("ROLLBACK");
}

/// Opens a client in a transaction that has sent a statement to the server.
fn open_transaction(bed: &TestBed, begin: &str, first: &str) -> Client {
    let client = bed.client();
    client.run(begin);
    client.run(first);
    client
}

#[test]
fn a_drained_primary_takes_no_new_work_and_that_waits_until_it_is_back() {
    let bed = start_bed();
    let primary = bed.primary().name;
    let (busy, client) = (bed.client(), bed.client());
    busy.run("BEGIN");
    busy.run("INSERT INTO things VALUES (20, 'in a transaction')");
    done(&bed.balancer, &["drain", &primary]);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| client.run("INSERT INTO things VALUES (21, 'waited')"));
        bed.wait_for_primary(1);
        // Reads continue, and so do open transactions.
        let reads = bed.client();
        assert!(reads.port("SELECT inet_server_port()") > 0);
        busy.run("INSERT INTO things VALUES (22, 'still')");
        busy.run("COMMIT");
        done(&bed.balancer, &["undrain", &primary]);
        waiting.join().unwrap();
    });
    let ids = "/* evenkeel: primary */ SELECT count(*) FROM things";
    assert_eq!(client.text(ids).unwrap(), ["3"]);
}

#[test]
fn a_transaction_on_a_drained_primary_ends_once_another_server_is_the_primary() {
    let bed = start_bed();
    let old = bed.primary();
    let busy = bed.client();
    busy.run("BEGIN");
    busy.run("INSERT INTO things VALUES (40, 'never')");
    let patient = ["drain", &old.name, "--limit-ms", "300000"];
    done(&bed.balancer, &patient);
    let new = bed.replicas()[0].clone();
    new.sql("SELECT pg_promote()").unwrap();
    wait_primary(&bed, &new);
    bed.wait("its end", || busy.text("SELECT 1").is_err());
}

/// Runs balanced reads, also on the primary, while `disturb` is applied to it. Returns the longest
/// time.
fn longest_read(bed: &TestBed, disturb: impl FnOnce(&Server)) -> Duration {
    bed.wait_split(&bed.client());
    let is_over = AtomicBool::new(false);
    let counts = [const { AtomicUsize::new(0) }; 4];
    let read = |count: &AtomicUsize| {
        let client = bed.client();
        let mut longest = Duration::ZERO;
        while !is_over.load(Relaxed) {
            let started = Instant::now();
            assert!(client.port("SELECT inet_server_port()") > 0);
            assert!(client.port_prepared("SELECT inet_server_port()") > 0);
            longest = longest.max(started.elapsed());
            count.fetch_add(1, Relaxed);
        }
        longest
    };
    thread::scope(|scope| {
        let end = SetOnDrop(&is_over);
        let read = &read;
        let reading = counts.iter().map(|count| scope.spawn(move || read(count)));
        let reading: Vec<_> = reading.collect();
        wait_counts(&bed.balancer, &counts, 20);
        disturb(&bed.primary());
        wait_counts(&bed.balancer, &counts, 100);
        drop(end);
        let done = reading.into_iter().map(|one| one.join().unwrap());
        done.max().unwrap()
    })
}

#[test]
fn reads_that_the_primary_takes_its_part_of_go_on_without_it() {
    let bed = TestBed::set_up("auto", "");
    // No replica is promoted: a session that waits for a primary waits long.
    let longest = longest_read(&bed, |primary| primary.kill().unwrap());
    assert!(longest < Duration::from_secs(2), "{longest:?}");
}

#[test]
fn reads_on_a_primary_that_freezes_are_run_elsewhere_as_soon_as_it_is_found_out() {
    let bed = TestBed::set_up("auto", "");
    let longest = longest_read(&bed, |primary| {
        primary.freeze().unwrap();
        bed.wait("the primary is missed", || {
            bed.cluster()["primary"].is_null()
        });
    });
    assert!(longest < Duration::from_secs(20), "{longest:?}");
    bed.primary().thaw().unwrap();
}

#[test]
fn reads_on_a_primary_that_hands_over_do_not_fail() {
    let bed = TestBed::set_up("auto", "");
    longest_read(&bed, |_| {
        for _ in 0..2 {
            let candidate = bed.replicas()[0].clone();
            bed.scenario.lab.promote(&candidate).unwrap();
            bed.wait_whole();
        }
    });
}

#[test]
fn who_waited_for_the_primary_lets_the_next_one_follow_though_it_keeps_its_connection() {
    let further = "[service.failover]\nresume_at_once = 1\nwait_ms = 8000";
    let bed = TestBed::set_with("auto", further);
    let primary = bed.primary().name;
    let clients: Vec<Client> = (0..6).map(|_| bed.client()).collect();
    bed.direct().run("CREATE TABLE things (id int)");
    for keeps in ["BEGIN", "CREATE TEMP TABLE own (a int)"] {
        done(&bed.balancer, &["drain", &primary]);
        thread::scope(|scope| {
            let waiting: Vec<_> = clients
                .iter()
                .map(|client| scope.spawn(|| client.text(keeps)))
                .collect();
            bed.wait_for_primary(6);
            done(&bed.balancer, &["undrain", &primary]);
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
    let bed = TestBed::set_with("auto", further);
    bed.direct().run("CREATE TABLE things (id int)");
    let (holder, waiter) = (bed.client(), bed.client());
    let primary = bed.primary().name;
    let send_command = |command: &str| {
        done(&bed.balancer, &[command, &primary]);
        // Time for the sessions to take a turn, or to lose it.
        thread::sleep(Duration::from_millis(800));
    };
    send_command("drain");
    thread::scope(|scope| {
        scope.spawn(|| holder.run("BEGIN"));
        bed.wait_for_primary(1);
        let waiting = scope.spawn(|| waiter.text("INSERT INTO things VALUES (1)"));
        bed.wait_for_primary(2);
        // The first session has the only connection, and the second one waits for it.
        ["undrain", "drain", "undrain"]
            .into_iter()
            .for_each(send_command);
        waiting.join().unwrap().unwrap();
    });
}

#[test]
fn a_slow_statement_of_one_who_waited_for_a_primary_does_not_hold_up_the_others() {
    let further = "[service.failover]\nresume_at_once = 1\nwait_ms = 9000";
    let bed = TestBed::set_with("auto", further);
    bed.direct().run("CREATE TABLE things (id int)");
    let (slow, quick) = (bed.client(), bed.client());
    let primary = bed.primary().name;
    done(&bed.balancer, &["drain", &primary]);
    thread::scope(|scope| {
        scope.spawn(|| slow.run("INSERT INTO things SELECT 1 FROM pg_sleep(7)"));
        bed.wait_for_primary(1);
        let quick = scope.spawn(|| {
            quick.run("INSERT INTO things VALUES (2)");
            Instant::now()
        });
        bed.wait_for_primary(2);
        done(&bed.balancer, &["undrain", &primary]);
        let since = Instant::now();
        let took = quick.join().unwrap().saturating_duration_since(since);
        assert!(took < Duration::from_secs(4), "{took:?}");
    });
}

#[test]
fn without_a_primary_writes_are_told_so_in_time_and_reads_go_on() {
    let further = "[service.split]\nreads = true\nprimary_reads = false\n\
                   [service.failover]\nwait_ms = 1000";
    let bed = TestBed::set_with("auto", further);
    bed.direct().run("CREATE TABLE things (id int)");
    let client = bed.client();
    bed.wait_split(&client);
    let reader = bed.reader();
    bed.primary().kill().unwrap();
    bed.wait("the primary is missed", || {
        bed.cluster()["primary"].is_null()
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
    let bed = start_bed();
    let primary = bed.primary();
    // Health probes may or may not notice the failure.
    for (round, further) in ["", "[service.health]\nfall = 100"].into_iter().enumerate() {
        let listen = loopback();
        let servers = std::slice::from_ref(&primary);
        let toml = service_toml("alone", bed.scenario.kind, listen, servers, further);
        let monitor = "[service.monitor]\nuser = \"monitor\"\npassword = \"monitor\"\n\
                       database = \"postgres\"\n";
        assert!(toml.contains(monitor));
        let config = bed.head.clone() + &toml.replace(monitor, "");
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
            // Longer than a probe takes to notice.
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
    let bed = TestBed::set_with("auto", further);
    bed.direct().run("CREATE TABLE things (id int)");
    bed.scenario.wait_caught_up().unwrap();
    let clients: Vec<Client> = (0..6).map(|_| bed.client()).collect();
    bed.wait_split(&clients[0]);
    // Connections that were opened while the server was a replica.
    clients
        .iter()
        .for_each(|client| client.run("BEGIN READ ONLY; SELECT 1"));
    clients.iter().for_each(|client| client.run("COMMIT"));
    let candidate = bed.replicas()[0].clone();
    bed.scenario.lab.promote(&candidate).unwrap();
    bed.wait_whole();
    wait_primary(&bed, &candidate);
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
    assert_eq!(bed.client().text(count).unwrap(), ["6 6"]);
}
