//! Tests of a primary with two replicas: reads go to replicas with the required data, writes to the
//! current primary.

use std::thread;
use std::time::{Duration, Instant};

use evenkeel_lab::{ClusterKind, Scenario, Server, eventually};

use super::client::{Client, Login, Value};
pub(crate) use crate::harness::cluster::TestBed;
use crate::harness::progress::{wait_clients, wait_reads};
use crate::harness::{DRIVERS, LIMIT, engine, loopback, own, wait_until};

/// Query for the server that answers; a query of `@@port` itself would go to the primary.
const WHERE: &str = "select here()";

impl TestBed {
    /// Routes reads to replicas only, unless `further` lines of `[service.split]` differ.
    pub(crate) fn of_mariadb(io: &str, further: &str) -> TestBed {
        TestBed::of(ClusterKind::Mariadb, io, further)
    }

    pub(crate) fn of(kind: ClusterKind, io: &str, further: &str) -> TestBed {
        own::is_the_labs();
        TestBed::in_front_of(Scenario::start(kind).unwrap(), io, further)
    }

    pub(crate) fn in_front_of(scenario: Scenario, io: &str, further: &str) -> TestBed {
        prepare(&scenario);
        let split = format!("[service.split]\nreads = true\nprimary_reads = false\n{further}");
        let bed = TestBed::before(scenario, loopback(), &engine(io), &split);
        bed.wait_split();
        bed
    }

    pub(crate) fn client(&self) -> Client {
        let mut last = String::new();
        let entered = eventually(LIMIT, "a session", || {
            let entered = Client::log_in(self.listen, &Login::to("sbtest"));
            Ok(entered.map_err(|reply| last = reply).ok())
        });
        entered.unwrap_or_else(|error| panic!("{error} ({last}): {}", self.balancer.log()))
    }

    pub(crate) fn port_of_primary(&self) -> String {
        self.primary().address.port().to_string()
    }

    /// Waits until the functions are known: a call by an earlier client would pin it.
    fn wait_split(&self) {
        let primary = self.port_of_primary();
        self.wait("a read at a replica", || {
            self.client().value(WHERE) != primary
        });
    }
}

/// Creates the objects of the tests, before the balancer starts.
fn prepare(scenario: &Scenario) {
    for server in &scenario.servers {
        let trust = "SET GLOBAL log_bin_trust_function_creators = 1";
        server.sql(trust).unwrap();
    }
    let primary = scenario.writer().unwrap();
    primary.sql(RIGHTS).unwrap();
    let mut direct = Client::connect(primary.address);
    SCHEMA.iter().for_each(|text| direct.run(text));
    scenario.wait_caught_up().unwrap();
}

/// Rights that the superuser grants.
const RIGHTS: &str = "\
    GRANT SHOW VIEW, TRIGGER ON *.* TO monitor@'127.0.0.1';\
    GRANT SELECT ON mysql.proc TO monitor@'127.0.0.1'";

const SCHEMA: [&str; 6] = [
    "create function here() returns int no sql return @@port",
    "create function locks() returns int no sql return get_lock('job', 0)",
    "create table counters (id int primary key, v bigint not null)",
    "insert into counters select seq, 0 from seq_0_to_15",
    "create table things (id int primary key, what text)",
    "create function bump(which int, what bigint) returns bigint modifies sql data \
     begin update counters set v = what where id = which; return what; end",
];

#[test]
fn each_statement_runs_where_it_belongs() {
    let bed = TestBed::of_mariadb("auto", "consistency = \"eventual\"");
    let mut client = bed.client();
    let primary = bed.port_of_primary();
    for reads in [
        "select here()",
        "select here(), count(*) from counters",
        "select here() from counters where id = 1",
        "(select here()) union all (select here()) limit 1",
        "select here(), @a, now(), database()",
    ] {
        assert_ne!(
            client.value(reads).split('|').next(),
            Some(&*primary),
            "{reads}"
        );
    }
    for writes in [
        "select here() from counters where id = 1 for update",
        "select here() from counters where id = 1 lock in share mode",
        "select here(), get_lock('x', 0), release_lock('x')",
        "select here(), bump(1, 5)",
        "select here(), @a := 1",
        "/* evenkeel: primary */ select here()",
    ] {
        let row = client.value(writes);
        assert_eq!(row.split('|').next(), Some(&*primary), "{writes}");
    }
    let mut client = bed.client();
    client.run("begin");
    assert_eq!(client.value(WHERE), primary);
    client.run("commit");
    client.run("start transaction read only");
    let there = client.value(WHERE);
    assert_ne!(there, primary);
    assert_eq!(client.value(WHERE), there, "one transaction, one server");
    client.run("commit");
    client.prepare("where", WHERE);
    assert_ne!(client.execute("where", &[])[1], format!("row {primary}"));
    client.run("set autocommit = 0");
    assert_eq!(client.value(WHERE), primary);
    client.run("commit");
    client.run("set autocommit = 1");
    let name = bed.primary().name;
    let named = format!("/* evenkeel: server={name} */ select here()");
    assert_eq!(client.value(&named), primary);
}

/// A locking read, which a replica would execute silently.
const LOCKING: &str = "select here() from counters where id = 1 for update";

#[test]
fn no_transaction_that_may_write_begins_at_a_replica() {
    let bed = TestBed::of_mariadb("auto", "consistency = \"eventual\"");
    let primary = bed.port_of_primary();
    for begin in [
        &["commit and chain"][..],
        &["rollback work and chain"],
        &["set completion_type = 1", "commit"],
        &["select 1", "commit and chain"],
    ] {
        let mut client = bed.client();
        begin.iter().for_each(|text| client.run(text));
        assert_eq!(client.value(WHERE), primary, "{begin:?}");
        assert_eq!(client.value(LOCKING), primary, "{begin:?}");
    }
    let mut client = bed.client();
    client.prepare("rows", "select id from counters");
    client.open("rows", &[]);
    client.run("start transaction");
    assert_eq!(client.value(LOCKING), primary, "behind a cursor");
}

/// Statements that take a named lock, which exists on one server only.
const NAMED: [&str; 6] = [
    "prepare locker from 'select get_lock(''job'', 0)'",
    "select get_lock('job', 0)",
    "do release_lock('job')",
    "select is_free_lock('job')",
    "select `is_used_lock`('job')",
    "select locks()",
];

/// TO SEE THIS RED: allow named locks in READ ONLY transactions.
#[test]
fn a_session_that_is_bound_to_a_replica_neither_locks_nor_begins_to_write_there() {
    let bed = TestBed::of_mariadb("auto", "consistency = \"eventual\"");
    let primary = bed.port_of_primary();
    let mut client = bed.client();
    client.prepare("rows", "select id from counters");
    client.run("start transaction read only");
    assert_ne!(client.value(WHERE), primary);
    client.open("rows", &[]);
    // A replica cannot write, and returns its own error.
    for text in [LOCKING, "update counters set v = 1 where id = 1"] {
        let reply = client.refusal(text);
        assert!(
            !reply.contains("pinned to a read-only replica"),
            "{text}: {reply}"
        );
    }
    // Each server would have its own lock, READ ONLY or not.
    for text in NAMED {
        let reply = client.refusal(text);
        assert!(reply.starts_with("1290 "), "{text}: {reply}");
    }
    let reply = client.prepare("lock", "select get_lock(?, 0)");
    assert!(reply[0].starts_with("error 1290 "), "{reply:?}");
    assert_ne!(client.value(WHERE), primary, "it goes on");
    client.run("commit");
    for text in [
        LOCKING,
        "start transaction",
        "commit and chain",
        "lock tables counters read",
    ] {
        let reply = client.refusal(text);
        assert!(reply.starts_with("1290 "), "{text}: {reply}");
    }
    client.close("rows");
    assert_eq!(client.value(LOCKING), primary);
}

/// TO SEE THIS RED: leave a replica for any statement other than a read.
#[test]
fn what_is_asked_of_a_read_at_a_replica_is_asked_there() {
    let bed = TestBed::of_mariadb("auto", "consistency = \"eventual\"");
    let primary = bed.port_of_primary();
    let mut client = bed.client();
    client.prepare("found", "select found_rows()");
    for _ in 0..2 {
        let counting = "select sql_calc_found_rows here() from counters limit 3";
        assert_ne!(client.value(counting), primary);
        assert_eq!(client.value("select found_rows()"), "16");
        assert_ne!(client.value(counting), primary);
        assert_eq!(client.execute("found", &[])[1], "row 16");
        let warning = "select here(), cast('x' as signed) from counters limit 1";
        assert_eq!(client.value(warning).split('|').nth(1), Some("0"));
        let reply = client.value("show warnings");
        assert!(reply.starts_with("Warning|1292|"), "{reply}");
        assert_ne!(client.value(warning).split('|').next(), Some(&*primary));
        assert_eq!(client.value("select @@warning_count"), "1");
    }
    // After the first such query, a client stays where its last statement ran.
    client.value("select row_count()");
    assert_ne!(
        client.value("select here() from counters where id = 1"),
        primary
    );
    assert_eq!(client.value("select row_count()"), "-1");
    assert_eq!(client.value(LOCKING), primary, "it is bound to nothing");
}

/// Statements that each set counter `$id` to `$v`.
const WRITES: [&str; 6] = [
    "update counters set v = $v where id = $id",
    "begin; update counters set v = $v where id = $id; commit",
    "select bump($id, $v)",
    "replace into counters values ($id, $v)",
    "insert into counters values ($id, 0) on duplicate key update v = $v",
    "prepared",
];

fn write(client: &mut Client, id: usize, v: i64, round: usize) {
    let text = WRITES[round % WRITES.len()];
    if text == "prepared" {
        client.prepare("w", "update counters set v = ? where id = ?");
        let id = Value::Number(i64::try_from(id).unwrap());
        let reply = client.execute("w", &[Value::Number(v), id]);
        assert!(reply[0].starts_with("ok"), "{reply:?}");
        client.close("w");
        return;
    }
    let text = text.replace("$id", &id.to_string());
    client.run(&text.replace("$v", &v.to_string()));
}

/// Writes and reads alternately; returns the number of reads at the primary, and elsewhere.
pub(crate) fn write_and_read(bed: &TestBed, rounds: usize, sessions: usize) -> (usize, usize) {
    let primary = &bed.port_of_primary();
    let counts: Vec<(usize, usize)> = thread::scope(|scope| {
        let threads: Vec<_> = (0..sessions)
            .map(|id| {
                scope.spawn(move || {
                    let mut client = bed.client();
                    let (mut here, mut elsewhere) = (0, 0);
                    for round in 0..rounds {
                        let v = i64::try_from(round + 1_000_000 * id).unwrap();
                        write(&mut client, id, v, round + id);
                        for _ in 0..3 {
                            let sql = format!("select v, here() from counters where id = {id}");
                            let row = client.value(&sql);
                            let (seen, port) = row.split_once('|').unwrap();
                            let reply = format!("round {round} of session {id}, at {port}");
                            assert_eq!(seen, v.to_string(), "{reply}");
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
        threads.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let sum = |which: fn(&(usize, usize)) -> usize| counts.iter().map(which).sum();
    (sum(|one| one.0), sum(|one| one.1))
}

#[test]
fn a_session_reads_what_it_wrote_while_replicas_fall_behind_on_both_drivers() {
    for io in DRIVERS {
        let bed = TestBed::of_mariadb(io, "");
        let replicas = bed.replicas();
        write_and_read(&bed, 100, 4);
        bed.wait_split();
        // One replica has stopped, the other lags.
        replicas[0].stop_replication().unwrap();
        replicas[1].lag(Duration::from_secs(1)).unwrap();
        let (here, _) = write_and_read(&bed, 60, 4);
        assert!(here > 0);
        replicas[1].lag(Duration::ZERO).unwrap();
        replicas[0].start_replication().unwrap();
        bed.scenario.wait_caught_up().unwrap();
        write_and_read(&bed, 100, 4);
    }
}

/// TO SEE THIS RED: take the position reported for one of its statements as that of all.
#[test]
fn a_session_reads_what_a_text_committed_that_failed_then() {
    let bed = TestBed::of_mariadb("auto", "");
    let mut client = bed.client();
    client.run(
        "create procedure late() begin do sleep(3); insert into things values (101, 'b'); \
         signal sqlstate '45000'; end",
    );
    client.run("create procedure known() begin end");
    bed.wait("that the procedures are known", || {
        let mut client = bed.client();
        client.run("call known()");
        client.value(WHERE) != bed.port_of_primary()
    });
    for replica in bed.replicas() {
        replica.lag(Duration::from_secs(2)).unwrap();
    }
    let reply = client.query("insert into things values (100, 'a'); call late()");
    assert!(reply[1].starts_with("error 1644"), "{reply:?}");
    // Time to learn where the primary is.
    thread::sleep(Duration::from_millis(300));
    assert_eq!(client.value("select max(id) from things"), "101");
}

#[test]
fn who_wrote_long_ago_reads_at_replicas() {
    let bed = TestBed::of_mariadb("auto", "");
    let mut client = bed.client();
    write(&mut client, 1, 1, 0);
    wait_until(&bed.balancer, "its own read at a replica", || {
        client.value(WHERE) != bed.port_of_primary()
    });
    // The write becomes an old one.
    thread::sleep(Duration::from_secs(2));
    let primary = bed.port_of_primary();
    let all = 500;
    let mut here = 0;
    for _ in 0..all {
        here += usize::from(client.value(WHERE) == primary);
        thread::sleep(Duration::from_millis(2));
    }
    assert!(
        here * 50 <= all,
        "{here} of {all} reads were at the primary"
    );
}

#[test]
fn with_global_consistency_a_session_reads_what_another_wrote() {
    let bed = TestBed::of_mariadb("auto", "consistency = \"global\"");
    bed.replicas()[0].stop_replication().unwrap();
    let (mut writer, mut reader) = (bed.client(), bed.client());
    let primary = bed.port_of_primary();
    let mut elsewhere = 0;
    for round in 1..=200 {
        write(&mut writer, 1, round, 0);
        for _ in 0..3 {
            let row = reader.value("select v, here() from counters where id = 1");
            let (seen, port) = row.split_once('|').unwrap();
            assert_eq!(seen, round.to_string(), "at {port}");
            elsewhere += usize::from(port != primary);
        }
    }
    assert!(elsewhere > 0, "no read was at the replica that follows");
    bed.replicas()[0].start_replication().unwrap();
}

/// Schemas that are not replicated lack permanently what others lack temporarily.
///
/// TO SEE THIS RED: return a replica's refusal of Evenkeel's own statements to the client.
#[test]
fn who_is_in_a_schema_that_replicas_lack_reads_at_the_primary() {
    let bed = TestBed::of_mariadb("auto", "consistency = \"eventual\"");
    let alone = "set sql_log_bin = 0; create database alone; \
                 grant all on alone.* to sbtest@'127.0.0.1'; create table alone.things (id int)";
    bed.primary().sql(alone).unwrap();
    let mut client = bed.client();
    client.prepare("before", "select database()");
    assert_ne!(client.value(WHERE), bed.port_of_primary());
    assert!(client.init_db("alone")[0].starts_with("ok "));
    let lists = "select database(), count(*) from things";
    for _ in 0..3 {
        assert_eq!(client.value(lists), "alone|0");
        assert_eq!(client.execute("before", &[])[1], "row sbtest");
        let prepared = client.prepare("here", lists);
        assert!(prepared[0].starts_with("prepared "), "{prepared:?}");
        assert_eq!(client.execute("here", &[])[1], "row alone|0");
    }
    client.init_db("sbtest");
    bed.wait("its read at a replica again", || {
        client.value(WHERE) != bed.port_of_primary()
    });
    // An error that the primary returns as well is returned.
    client.init_db("alone");
    let gone = "set sql_log_bin = 0; drop database alone";
    bed.primary().sql(gone).unwrap();
    let elsewhere = "/* evenkeel: primary */ select database()";
    assert_eq!(bed.client().value(elsewhere), "sbtest");
    let reply = client.refusal("select database()");
    assert!(reply.starts_with("1049 "), "{reply}");
}

/// Drivers do that if their clients share connections among schemas.
///
/// TO SEE THIS RED: treat COM_INIT_DB as an unknown command.
#[test]
fn who_goes_to_another_schema_while_there_is_no_primary_reads_there() {
    let bed = TestBed::of_mariadb("auto", "[service.pool]\nwait_ms = 30000");
    let old = bed.primary();
    let mut client = bed.client();
    bed.scenario.wait_caught_up().unwrap();
    old.kill().unwrap();
    let started = Instant::now();
    let reply = client.init_db("information_schema");
    assert!(
        reply[0].starts_with("ok "),
        "{reply:?} {:?} {}",
        started.elapsed(),
        bed.balancer.log()
    );
    assert_eq!(client.value("select database()"), "information_schema");
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn when_the_primary_dies_writers_wait_readers_notice_nothing_and_no_row_is_doubled() {
    let bed = TestBed::of_mariadb("auto", "");
    let reader = bed.reader();
    let old = bed.primary();
    let mut session = bed.client();
    session.run("set @name = 'of before', time_zone = '+01:00'");
    let mut cut = bed.client();
    cut.run("begin");
    cut.run("insert into things values (1, 'never')");
    let mut strict = bed.client();
    strict.run("set transaction isolation level serializable");
    bed.scenario.wait_caught_up().unwrap();
    old.kill().unwrap();
    // Of all clients, only the one that writes waits.
    let waited = thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            session.run("insert into things values (2, 'waited')");
            session.value("select @name, @@time_zone")
        });
        bed.wait_for_primary(1);
        bed.scenario.lab.fail_over(&old).unwrap();
        waiting.join().unwrap()
    });
    assert_eq!(waited, "of before|+01:00");
    let reply = cut.query("insert into things values (3, 'never')");
    let is_error = reply.last().is_some_and(|line| line.starts_with("error"));
    assert!(is_error || reply == ["end"], "{reply:?}");
    // The settings of the next transaction are lost with the connection.
    let reply = strict.refusal("start transaction");
    assert!(reply.contains("transaction"), "{reply}");
    let new = bed.primary();
    bed.wait_primary(&new);
    wait_reads(&bed.balancer, &reader);
    let readings = reader.finish();
    let failed: Vec<_> = readings.iter().filter(|one| one.outcome.is_err()).collect();
    assert!(failed.is_empty(), "of {}: {failed:#?}", readings.len());
    let ids = "/* evenkeel: primary */ select id from things order by id";
    assert_eq!(bed.client().query(ids)[1..2], ["row 2"]);
    // The old server returns as a second primary: no session is routed there during this time.
    old.start().unwrap();
    let port = new.address.port().to_string();
    for _ in 0..100 {
        let sql = "/* evenkeel: primary */ select here()";
        assert_eq!(bed.client().value(sql), port);
        thread::sleep(Duration::from_millis(10));
    }
    bed.scenario.lab.rejoin(&old).unwrap();
    bed.wait_whole();
}

/// No replica has the session's write, so its read runs at the primary, which dies during it.
#[test]
fn a_read_that_is_at_the_primary_since_replicas_are_late_is_run_again_when_that_dies() {
    let bed = TestBed::of_mariadb("auto", "");
    let (old, replicas) = (bed.primary(), bed.replicas());
    let mut client = bed.client();
    write(&mut client, 1, 1, 0);
    bed.scenario.wait_caught_up().unwrap();
    for replica in &replicas {
        replica.lag(Duration::from_secs(3)).unwrap();
    }
    write(&mut client, 1, 2, 0);
    let written = old.sql("select @@gtid_binlog_pos").unwrap();
    wait_until(&bed.balancer, "that replicas have received it", || {
        let has_it = |one: &Server| one.sql("show slave status").unwrap().contains(&written);
        replicas.iter().all(has_it)
    });
    old.freeze().unwrap();
    let row = thread::scope(|scope| {
        let reading = scope.spawn(|| client.value("select v from counters where id = 1"));
        wait_clients(&bed.balancer, "db", "active", 1);
        old.kill().unwrap();
        bed.scenario.lab.fail_over(&old).unwrap();
        reading.join().unwrap()
    });
    assert_eq!(row, "2");
}

/// Drivers run such queries after the login.
#[test]
fn what_only_asked_the_primary_is_asked_of_its_successor() {
    let bed = TestBed::of_mariadb("auto", "");
    let old = bed.primary();
    let mut client = bed.client();
    bed.scenario.wait_caught_up().unwrap();
    old.freeze().unwrap();
    let reply = thread::scope(|scope| {
        let asking = scope.spawn(|| client.value("select @@port, @@version_comment is null"));
        wait_clients(&bed.balancer, "db", "active", 1);
        old.kill().unwrap();
        bed.scenario.lab.fail_over(&old).unwrap();
        asking.join().unwrap()
    });
    assert_eq!(reply, format!("{}|0", bed.port_of_primary()));
}

#[test]
fn who_waits_for_a_connection_to_the_primary_gets_one_to_its_successor() {
    let bed = TestBed::of_mariadb("auto", "[service.pool]\nsize = 1\nwait_ms = 30000");
    let old = bed.primary();
    let mut holder = bed.client();
    holder.run("begin");
    holder.run("insert into things values (1, 'never')");
    let mut waiter = bed.client();
    bed.scenario.wait_caught_up().unwrap();
    old.freeze().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| waiter.run("insert into things values (2, 'waited')"));
        wait_clients(&bed.balancer, "db", "waiting", 1);
        bed.scenario.lab.fail_over(&old).unwrap();
        // Of two servers with equal data neither is the primary.
        let ahead = "insert into things values (3, 'ahead')";
        Client::connect(bed.primary().address).run(ahead);
        bed.wait_primary(&bed.primary());
        // It still accepts writes, and they are lost.
        old.thaw().unwrap();
        waiting.join().unwrap();
    });
    let ids = "select id from things order by id";
    let mut there = Client::connect(bed.primary().address);
    assert_eq!(there.query(ids)[1..3], ["row 2", "row 3"]);
}

#[test]
fn a_planned_change_of_the_primary_fails_nothing_outside_of_transactions() {
    let bed = TestBed::of_mariadb("auto", "");
    let (writer, reader) = (bed.writer(), bed.reader());
    for _ in 0..2 {
        bed.wait_load(&writer, &reader);
        let candidate = bed.replicas()[0].clone();
        bed.scenario.lab.promote(&candidate).unwrap();
        bed.wait_whole();
        bed.wait_primary(&candidate);
    }
    bed.wait_load(&writer, &reader);
    let readings = reader.finish();
    let failed: Vec<_> = readings.iter().filter(|one| one.outcome.is_err()).collect();
    assert!(failed.is_empty(), "of {}: {failed:#?}", readings.len());
    let log = writer.finish();
    let attempts = log.attempts.iter();
    let failed: Vec<_> = attempts.filter(|one| !one.is_acknowledged()).collect();
    assert!(failed.len() <= 2, "{failed:#?}");
    let verified = log.verify(&bed.primary()).unwrap();
    assert!(verified.is_faultless(), "{verified:?}");
}
