//! Tests of session trackers: Evenkeel has its own on each server connection, while a client reads,
//! sets and receives its own as if alone.

use std::net::SocketAddr;

use evenkeel_lab::{MariadbOptions, Server, rootfs};
use evenkeel_wire::mysql::flags::Capabilities;

use super::client::{Client, Login, USUAL, Value};
use super::stage::{
    ONE, Setup, TestBed, same_as_at, same_as_direct, shared, start_mariadb, start_mysql,
};
use crate::harness::DRIVERS;

const TWO: Setup<'_> = Setup {
    pool: "size = 2\nwait_ms = 2000",
    ..ONE
};

/// Ends of results: with the trackers of an OK, or without any.
const ENDINGS: [Capabilities; 2] = [USUAL, USUAL.without(Capabilities::DEPRECATE_EOF)];

/// Connects a client that receives tracker data.
fn tracking(address: SocketAddr, ending: Capabilities) -> Client {
    let login = Login {
        capabilities: ending.with(Capabilities::SESSION_TRACK),
        ..Login::default()
    };
    Client::with(address, &login)
}

/// Sorts the variables of an OK: servers report them in the order of a hash, which differs between
/// connections.
fn in_order(received: Vec<String>) -> Vec<String> {
    let sort = |line: String| match line.split_once(" [") {
        Some((begin, reply)) if line.starts_with("ok ") => {
            let mut reply: Vec<&str> = reply.trim_end_matches(']').split("] [").collect();
            reply.sort_unstable();
            format!("{begin} [{}]", reply.join("] ["))
        }
        _ => line,
    };
    received.into_iter().map(sort).collect()
}

/// First statements of MariaDB Connector/J, and alternatives of other drivers and of people.
const SETS: [&str; 21] = [
    "set sql_mode=CONCAT(@@sql_mode,',STRICT_TRANS_TABLES'),session_track_system_variables = \
     CONCAT(@@global.session_track_system_variables,',tx_isolation'),NAMES utf8mb4",
    "set session_track_system_variables = \
     CONCAT(@@global.session_track_system_variables,',transaction_isolation'), autocommit = 1",
    "set autocommit=1, sql_mode = concat(@@sql_mode,',STRICT_TRANS_TABLES'), \
     session_track_system_variables = CONCAT(@@session_track_system_variables,',sql_mode')",
    "set NAMES latin1, session_track_schema=1, @@session.session_track_system_variables = \
     CONCAT(@@session.session_track_system_variables, ',wait_timeout'), wait_timeout = 1234",
    "SET SESSION session_track_transaction_info = 'STATE', @@session_track_schema = OFF",
    "SET @@session.`session_track_state_change` = not @@session_track_state_change",
    "set session_track_system_variables = 'time_zone, SQL_MODE', time_zone = '+03:00'",
    "set session_track_system_variables = default, session_track_schema = default",
    "set session_track_system_variables = '*'",
    "set session_track_system_variables = concat(@@session_track_system_variables, ',sql_mode')",
    "set names utf8mb4; set session_track_schema = 1, @a = 5; \
     select @@session_track_schema, @a; set time_zone = '+04:00'",
    "set session_track_system_variables = ''",
    "set session_track_system_variables = null",
    "set session_track_system_variables = 'autocommit,there_is_none'",
    "set session_track_schema = 7, time_zone = '+05:00'",
    "set time_zone = '+06:00', session_track_schema = 0, there_is_none = 1",
    "set session_track_schema = 1, sql_mode = 'nonsense'",
    "set max_join_size = 100000, character_set_results = null, session_track_schema = 1",
    "set foreign_key_checks = 0, unique_checks = 0, session_track_state_change = 1",
    "set tx_isolation = 'READ-COMMITTED', session_track_transaction_info = 'CHARACTERISTICS'",
    "execute immediate 'set session_track_schema = 0, sql_select_limit = 100'",
];

/// Queries that show them.
const READS: [&str; 6] = [
    "select @@session_track_system_variables, @@session_track_schema, \
     @@session_track_state_change, @@session_track_transaction_info",
    "select concat(@@session.session_track_system_variables, '!'), \
     if(@@local.session_track_schema, 'on', 'off') as told",
    "show variables like 'session_track%'",
    "show session variables where variable_name like '%state_change'",
    "select * from information_schema.session_variables \
     where variable_name like 'session\\_track%' order by 1",
    "select session_value from information_schema.system_variables \
     where variable_name = 'SESSION_TRACK_SYSTEM_VARIABLES'",
];

/// Query for what the statements above may also have set.
const OTHERS: &str = "select @@sql_mode, @@time_zone, @@wait_timeout, @@autocommit, \
    @@character_set_client, @@character_set_results, @@collation_connection, @@tx_isolation, \
    @@foreign_key_checks, @@unique_checks, @@max_join_size, @@sql_big_selects, @a";

/// Statements that trackers report.
const REPORTED: [&str; 6] = [
    "set time_zone = '+01:00', sql_mode = 'ANSI'",
    "set names utf8mb4, wait_timeout = 99",
    "use other",
    "use sbtest",
    "set @a = 'y'",
    "begin; select 1; commit",
];

/// Runs the statement in three clients that share two connections; then each reads its values.
fn three_say(address: SocketAddr, ending: Capabilities, set: &str) -> Vec<String> {
    let mut clients: Vec<Client> = (0..3).map(|_| tracking(address, ending)).collect();
    let mut received = Vec::new();
    for client in &mut clients {
        received.extend(client.all(&[set, "select 1"]));
    }
    let mut stranger = tracking(address, ending);
    for client in &mut clients {
        received.extend(client.all(&READS));
        received.extend(client.all(&[OTHERS]));
        received.extend(stranger.all(&[OTHERS, READS[0]]));
        received.extend(client.all(&REPORTED));
        received.extend(client.all(&[OTHERS, READS[0]]));
        received.extend(stranger.all(&REPORTED));
        received.extend(stranger.all(&[OTHERS, READS[0]]));
        received.extend(stranger.reset());
    }
    received
}

/// TO SEE THIS RED: let a SET of trackers pin its client.
#[test]
fn a_client_sets_and_reads_its_own_trackers_and_is_bound_to_nothing() {
    every_set_is_as_direct(shared(), &SETS);
}

#[test]
fn a_client_of_mariadb_11_sets_and_reads_its_own_trackers() {
    if let Some(why) = rootfs::missing_mariadb(11) {
        println!("skipped: {why}");
        return;
    }
    let (_lab, server) = start_mariadb(MariadbOptions {
        version: Some(11),
        ..MariadbOptions::default()
    });
    // A tracker of all variables reports other names there (MDEV-31746).
    let sets = SETS.into_iter().filter(|set| !set.contains("'*'"));
    every_set_is_as_direct(&server, &sets.collect::<Vec<_>>());
}

fn every_set_is_as_direct(server: &Server, sets: &[&str]) {
    for ending in ENDINGS {
        same_as_at(server, TWO, |address| {
            let received = sets.iter().map(|set| three_say(address, ending, set));
            in_order(received.flatten().collect())
        });
    }
}

/// TO SEE THIS RED: leave our trackers enabled when a statement reads them.
#[test]
fn no_set_binds_its_client_and_each_client_keeps_its_own() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, TWO);
        let mut clients: Vec<Client> = (0..3).map(|_| tracking(bed.address, USUAL)).collect();
        for (index, client) in clients.iter_mut().enumerate() {
            client.run(SETS[0]);
            client.run(&format!(
                "set session_track_system_variables = \
                 concat(@@session_track_system_variables, ',{}')",
                ["sql_mode", "wait_timeout", "sql_select_limit"][index]
            ));
        }
        let pins = &bed.status()["database"]["pins"];
        assert_eq!(pins, &serde_json::json!([]), "{io}");
        for (index, client) in clients.iter_mut().enumerate() {
            let list = client.value("select @@session_track_system_variables");
            let own = ["sql_mode", "wait_timeout", "sql_select_limit"];
            let has = own.map(|name| list.split(',').any(|one| one == name));
            let expected = [0, 1, 2].map(|other| other == index);
            assert_eq!(has, expected, "{io}: {list}");
        }
    }
}

/// TO SEE THIS RED: return our value as the client's when it is read within a transaction.
#[test]
fn trackers_are_set_and_read_within_a_transaction_too() {
    for ending in ENDINGS {
        same_as_direct(TWO, |address| {
            let mut client = tracking(address, ending);
            let mut other = tracking(address, ending);
            let mut received = client.all(&["create or replace table tracked (a int)"]);
            for begin in [
                "begin",
                "start transaction read only",
                "set autocommit = 0",
                "set transaction isolation level serializable",
            ] {
                received.extend(client.all(&[begin, READS[0], "insert into tracked values (1)"]));
                received.extend(client.all(&[SETS[0], READS[0], READS[2]]));
                received.extend(other.all(&["select count(*) from tracked", READS[0]]));
                received.extend(client.all(&[
                    "select 1",
                    "rollback",
                    "select count(*) from tracked",
                ]));
                received.extend(client.all(&["set autocommit = 1", SETS[4], "begin", "select 1"]));
                received.extend(client.all(&[
                    "commit",
                    SETS[7],
                    "set session_track_transaction_info = OFF",
                    READS[0],
                ]));
            }
            in_order(received)
        });
    }
}

/// TO SEE THIS RED: evaluate the trackers of a prepared statement when it is prepared.
#[test]
fn prepared_statements_set_and_read_the_trackers_of_who_runs_them() {
    for ending in ENDINGS {
        same_as_direct(TWO, |address| {
            let mut clients: Vec<Client> = (0..3).map(|_| tracking(address, ending)).collect();
            let set = "set session_track_system_variables = \
                       concat(@@session_track_system_variables, ?), sql_mode = ''";
            let mut received = Vec::new();
            for client in &mut clients {
                received.extend(client.prepare("set", set));
                received.extend(client.prepare("read", READS[0]));
                received.extend(client.prepare("show", READS[2]));
            }
            for (index, client) in clients.iter_mut().enumerate() {
                let name = [",sql_mode", ",wait_timeout", ",there_is_none"][index];
                received.extend(client.execute("set", &[Value::Text(name)]));
                received.extend(client.all(&["select 1"]));
            }
            for client in &mut clients {
                received.extend(client.execute("read", &[]));
                received.extend(client.execute("show", &[]));
                received.extend(client.all(&["set sql_mode = 'ANSI', wait_timeout = 7"]));
            }
            in_order(received)
        });
    }
}

/// Statements of MySQL clients.
const MYSQL_SETS: [&str; 9] = [
    "set session_track_system_variables = concat(@@session_track_system_variables, \
     ',transaction_isolation'), names latin1, sql_mode = concat(@@sql_mode, ',ANSI')",
    "set session_track_gtids = @@global.session_track_gtids, session_track_schema = 0",
    "set session_track_gtids = OWN_GTID, time_zone = '+03:00'",
    "set session_track_system_variables = null",
    "set session_track_system_variables = 'time_zone,autocommit'",
    "set session_track_transaction_info = 'STATE', wait_timeout = 77",
    "set names utf8mb4; set session_track_schema = 1, @a = 5; select @@session_track_schema, @a",
    "set session_track_schema = 7, time_zone = '+05:00'",
    "set time_zone = '+06:00', session_track_schema = 0, there_is_none = 1",
];

const MYSQL_READS: [&str; 4] = [
    "select @@session_track_system_variables, @@session_track_schema, \
     @@session_track_state_change, @@session_track_transaction_info, @@session_track_gtids",
    "select concat(@@session.session_track_system_variables, '!')",
    "show variables like 'session_track%'",
    "select * from performance_schema.session_variables \
     where variable_name like 'session\\_track%' order by 1",
];

const MYSQL_OTHERS: &str = "select @@sql_mode, @@time_zone, @@wait_timeout, @@autocommit, \
    @@character_set_client, @@character_set_results, @@collation_connection, @a";

#[test]
fn a_client_of_mysql_sets_and_reads_its_own_trackers() {
    if let Some(why) = rootfs::missing_program("mysqld") {
        println!("skipped: {why}");
        return;
    }
    let (_lab, server) = start_mysql("mysql-trackers");
    same_as_at(&server, TWO, |address| {
        let mut received = Vec::new();
        for set in MYSQL_SETS {
            let mut clients: Vec<Client> = (0..3).map(|_| tracking(address, USUAL)).collect();
            let mut stranger = tracking(address, USUAL);
            for client in &mut clients {
                received.extend(client.all(&[set, "select 1"]));
            }
            for client in &mut clients {
                received.extend(client.all(&MYSQL_READS));
                received.extend(client.all(&[MYSQL_OTHERS]));
                // MySQL reports transactions even to clients that have not requested it.
                received.extend(client.all(&REPORTED[..5]));
                received.extend(stranger.all(&[MYSQL_OTHERS, MYSQL_READS[0]]));
            }
        }
        in_order(received)
    });
}

/// Variables with a separate value for each connection.
const OF_EACH: &str = "'gtid_binlog_state', 'last_gtid', 'pseudo_thread_id', 'rand_seed1', \
    'rand_seed2', 'timestamp', 'in_transaction', 'gtid_binlog_pos', 'gtid_current_pos'";

/// Evenkeel's own settings are hidden: a client reads the server's values.
///
/// TO SEE THIS RED: set `innodb_lock_wait_timeout` to 1 with the trackers.
#[test]
fn a_new_client_reads_of_every_variable_what_it_reads_at_the_server() {
    same_as_direct(ONE, |address| {
        let mut client = Client::connect(address);
        let all = format!("show session variables where variable_name not in ({OF_EACH})");
        client.all(&["do 1", &all])
    });
}
