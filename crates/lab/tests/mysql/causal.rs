//! Tests of a Galera cluster: a session sees its writes on every node, because the node waits for
//! them, and on a node that became the primary while still applying.

use std::thread;
use std::time::{Duration, Instant};

use evenkeel_lab::{ClusterKind, Server};
use evenkeel_wire::mysql::build;

use super::client::Client;
use super::split::{TestBed, write_and_read};
use crate::harness::{DRIVERS, service, wait_until};

pub(crate) const PORT: &str = "select here()";
const WAIT: &str = "galera_wait = true";

/// A table whose rows take a node, at a fifth of a processor, far longer to apply than a read may
/// wait.
pub(crate) const BIG: &str = "create table big (id int primary key, v int not null); \
    insert into big select seq, 0 from seq_1_to_30000";

pub(crate) fn port(server: &Server) -> String {
    server.address.port().to_string()
}

#[test]
fn a_session_reads_what_it_wrote_on_the_other_nodes_of_galera_on_both_drivers() {
    for io in DRIVERS {
        let bed = TestBed::of(ClusterKind::Galera, io, WAIT);
        let (_, elsewhere) = write_and_read(&bed, 100, 4);
        assert!(elsewhere > 0, "every read was at the primary");
    }
}

#[test]
fn a_session_reads_what_it_wrote_at_the_primary_unless_the_nodes_may_wait() {
    let bed = TestBed::of(ClusterKind::Galera, "auto", "");
    let (_, elsewhere) = write_and_read(&bed, 30, 4);
    assert_eq!(elsewhere, 0);
}

#[test]
fn every_session_reads_what_any_has_written_under_global_consistency() {
    let bed = TestBed::of(
        ClusterKind::Galera,
        "auto",
        "galera_wait = true\nconsistency = \"global\"",
    );
    let (mut writer, mut reader) = (bed.client(), bed.client());
    let primary = port(&bed.scenario.servers[0]);
    let mut elsewhere = 0;
    for round in 0..200 {
        writer.run(&format!("update counters set v = {round} where id = 1"));
        let row = reader.value("select v, here() from counters where id = 1");
        let (seen, there) = row.split_once('|').unwrap();
        assert_eq!(seen, round.to_string(), "at {there}");
        elsewhere += usize::from(there != primary);
    }
    assert!(elsewhere > 0, "every read was at the primary");
}

#[test]
fn a_read_that_a_node_cannot_answer_in_time_is_answered_by_the_primary() {
    let bed = TestBed::of(ClusterKind::Galera, "auto", WAIT);
    let primary = port(&bed.scenario.servers[0]);
    bed.client().run(BIG);
    bed.scenario.wait_caught_up().unwrap();
    let others = &bed.scenario.servers[1..];
    others.iter().for_each(|node| node.cpu_share(20).unwrap());
    let mut client = bed.client();
    for round in 1..=3 {
        client.run(&format!("update big set v = {round}"));
        let started = Instant::now();
        let row = client.value("select v, here() from big where id = 30000");
        let took = started.elapsed();
        assert_eq!(row, format!("{round}|{primary}"), "after {took:?}");
        assert!(took < Duration::from_millis(500), "{took:?}");
        bed.scenario.wait_caught_up().unwrap();
    }
}

/// Opens clients that disconnect during a transaction, on connections that other sessions must not
/// receive.
fn leave_transactions(bed: &TestBed, begin: &str) {
    let mut clients: Vec<Client> = (0..12).map(|_| bed.client()).collect();
    for client in &mut clients {
        client.run(begin);
        client.run(PORT);
    }
    clients.into_iter().for_each(|client| client.abort(false));
    bed.wait("the ends of their sessions", || {
        let status = bed.balancer.status().unwrap();
        service(&status, "db")["sessions"]["current"] == 0
    });
}

/// A node does not wait on a connection that was reset, whatever its settings.
#[test]
fn a_connection_on_which_somebody_left_a_transaction_does_not_wait_in_vain() {
    let bed = TestBed::of(ClusterKind::Galera, "auto", WAIT);
    bed.client().run(BIG);
    bed.scenario.wait_caught_up().unwrap();
    leave_transactions(&bed, "start transaction read only");
    let [old, new, _] = &bed.scenario.servers[..] else {
        panic!("three nodes");
    };
    let mut client = bed.client();
    new.cpu_share(5).unwrap();
    client.run("update big set v = 7");
    old.sql("set global wsrep_desync = on").unwrap();
    bed.wait_primary(new);
    let applied = new.sql("select min(v) from sbtest.big").unwrap();
    let row = client.value("/* evenkeel: primary */ select v, here() from big where id = 30000");
    assert_eq!(row, format!("7|{}", port(new)));
    assert_eq!(applied, "0", "it had applied all before: nothing was shown");
}

#[test]
fn a_node_that_becomes_the_primary_while_it_still_applies_lets_its_sessions_wait() {
    let bed = TestBed::of(ClusterKind::Galera, "auto", WAIT);
    let [old, new, _] = &bed.scenario.servers[..] else {
        panic!("three nodes");
    };
    bed.client().run(BIG);
    bed.scenario.wait_caught_up().unwrap();
    let mut client = bed.client();
    new.cpu_share(5).unwrap();
    client.run("update big set v = 7");
    old.sql("set global wsrep_desync = on").unwrap();
    bed.wait_primary(new);
    let applied = new.sql("select min(v) from sbtest.big").unwrap();
    let row = client.value("/* evenkeel: primary */ select v, here() from big where id = 30000");
    assert_eq!(row, format!("7|{}", port(new)));
    assert_eq!(
        applied, "0",
        "it had applied all before it became the primary: nothing was shown"
    );
}

/// Measures the median wait; the values of later reads and of the primary's are only printed.
#[test]
fn a_read_behind_a_write_waits_no_more_than_a_moment() {
    let bed = TestBed::of(ClusterKind::Galera, "auto", WAIT);
    let primary = port(&bed.scenario.servers[0]);
    let mut client = bed.client();
    let (mut behind, mut later, mut at_primary) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..200 {
        client.run(&format!("update counters set v = {round} where id = 2"));
        behind.push(timed(&mut client, PORT, &primary));
        thread::sleep(Duration::from_millis(20));
        later.push(timed(&mut client, PORT, &primary));
        let hint = format!("/* evenkeel: primary */ {PORT}");
        at_primary.push(timed(&mut client, &hint, ""));
    }
    let [behind, later, at_primary] = [behind, later, at_primary].map(median_us);
    println!("behind a write {behind} us, later {later} us, at the primary {at_primary} us");
    assert!(behind < 20_000, "{behind}");
}

/// Returns the duration of a read that another node served.
fn timed(client: &mut Client, text: &str, not_at: &str) -> Option<u64> {
    let started = Instant::now();
    let there = client.value(text);
    let took_us = u64::try_from(started.elapsed().as_micros()).unwrap();
    (there != not_at).then_some(took_us)
}

fn median_us(taken: Vec<Option<u64>>) -> u64 {
    let mut known: Vec<u64> = taken.iter().flatten().copied().collect();
    assert!(
        known.len() * 2 > taken.len(),
        "most were at the primary: {taken:?}"
    );
    known.sort_unstable();
    known[known.len() / 2]
}

/// A node repeats a statement that lost a conflict (`wsrep_retry_autocommit`), and requests the
/// file a second time.
#[test]
fn a_file_that_a_node_asks_for_again_is_sent_again() {
    let bed = TestBed::of(ClusterKind::Galera, "auto", "");
    let (first, second) = (&bed.scenario.servers[0], &bed.scenario.servers[1]);
    let mut direct = Client::connect(first.address);
    direct.run("create table files (id int primary key)");
    bed.scenario.wait_caught_up().unwrap();
    let mut received = Vec::new();
    for address in [first.address, bed.listen] {
        direct.run("delete from files");
        let mut other = Client::connect(second.address);
        let mut client = Client::connect(address);
        client.file = b"9\n".to_vec();
        client.query_later("load data local infile 'rows' into table files");
        let asked = client.packet().unwrap();
        assert_eq!(asked[0], 0xfb);
        let mut part = Vec::new();
        build::packet(&mut part, 2, |out| out.extend_from_slice(b"7\n8\n"));
        client.send_packets(&part);
        let under_way = "select count(*) from information_schema.innodb_trx \
                         where trx_rows_modified > 0";
        wait_until(&bed.balancer, "rows that are not committed", || {
            first.sql(under_way).unwrap().trim() == "1"
        });
        other.run("insert into files values (7)");
        // The node reports nothing before it receives the end of the file.
        thread::sleep(Duration::from_millis(500));
        let mut rest = Vec::new();
        let next = build::packet(&mut rest, 3, |out| out.extend_from_slice(b"10\n"));
        build::packet(&mut rest, next, |_| {});
        client.send_packets(&rest);
        received.push((client.reply(), direct.query("select id from files")));
    }
    assert_eq!(received[0], received[1]);
    assert_eq!(received[0].0[0], "file rows");
}
