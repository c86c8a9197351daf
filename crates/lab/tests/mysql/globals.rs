//! Tests of global variables that clients set: later logins begin with the new values.

use evenkeel_lab::rootfs;

use super::client::{Client, Login};
use super::stage::{ONE, Setup, TestBed, same_as_direct, start_mysql, start_own};
use crate::harness::DRIVERS;

const VALUES: &str = "select concat_ws(' ', @@sql_mode, @@max_allowed_packet, @@join_buffer_size)";
const BEFORE: &str = "ANSI_QUOTES 67108864 262144";
const AFTER: &str = "PIPES_AS_CONCAT 33554432 524288";

/// TO SEE THIS RED: reuse connections after a SET GLOBAL.
#[test]
fn who_logs_in_behind_a_set_global_has_what_it_set_and_who_was_there_what_it_had() {
    let (_lab, server) = start_own();
    let sql = |text: &str| server.sql(text).unwrap();
    sql("grant all on *.* to sbtest@'127.0.0.1'");
    sql("set global sql_mode = 'ANSI_QUOTES', global join_buffer_size = 262144");
    let setup = Setup {
        pool: "size = 3",
        ..ONE
    };
    let bed = TestBed::before(&server, "auto", setup);
    let mut there = bed.client();
    let mut busy = bed.client();
    for client in [&mut there, &mut busy] {
        assert_eq!(client.value(VALUES), BEFORE);
    }
    busy.run("begin");
    let mut setter = bed.client();
    setter.run("set global sql_mode = 'PIPES_AS_CONCAT', @@global.max_allowed_packet = 33554432");
    setter.run("set global join_buffer_size = 524288");
    for _ in 0..5 {
        assert_eq!(Client::connect(bed.address).value(VALUES), AFTER);
    }
    // A transaction keeps its connection; a session keeps the settings that follow it.
    assert_eq!(busy.value(VALUES), BEFORE);
    busy.run("commit");
    assert_eq!(there.value("select @@sql_mode"), "ANSI_QUOTES");
}

/// TO SEE THIS RED: search for global variables in assignments only.
#[test]
fn so_it_is_behind_a_set_global_transaction() {
    let (_lab, server) = start_own();
    server
        .sql("grant all on *.* to sbtest@'127.0.0.1'")
        .unwrap();
    for (io, level) in DRIVERS.into_iter().zip(["SERIALIZABLE", "READ COMMITTED"]) {
        let bed = TestBed::before(&server, io, ONE);
        let mut setter = bed.client();
        setter.run(&format!("set global transaction isolation level {level}"));
        let reply = bed.client().value("select @@tx_isolation");
        assert_eq!(reply, level.replace(' ', "-"), "{io}");
    }
}

/// A server's own defaults may make a connection report what was done on it before.
#[test]
fn what_others_did_on_a_connection_is_not_told_whatever_the_server_begins_with() {
    let (_lab, server) = start_own();
    server
        .sql("set global sql_auto_is_null = 1, global optimizer_trace = 'enabled=on'")
        .unwrap();
    for io in DRIVERS {
        let bed = TestBed::before(&server, io, ONE);
        let (mut mine, mut other) = (bed.client(), bed.client());
        mine.run("create or replace table autos (id int auto_increment primary key)");
        for is_reset in [false, true] {
            if is_reset {
                other.reset();
            }
            mine.run("insert into autos values ()");
            let found = other.query("select count(*) from autos where id is null");
            assert!(found.contains(&"row 0".to_owned()), "{io}: {found:?}");
            mine.run("select 'mine' from autos");
            let traced = other.query("select query from information_schema.optimizer_trace");
            let is_told = traced.iter().any(|line| line.contains("mine"));
            assert!(!is_told, "{io}: {traced:?}");
        }
    }
}

/// TO SEE THIS RED: treat the tracker of GTIDs as the client's own at MariaDB, too.
#[test]
fn a_tracker_that_a_server_lacks_is_refused_by_it_and_binds_nobody() {
    same_as_direct(ONE, |address| {
        let (mut client, mut other) = (Client::connect(address), Client::connect(address));
        let mut received = client.all(&["set session session_track_gtids = OWN_GTID"]);
        received.extend(other.all(&["select 1"]));
        received
    });
}

/// TO SEE THIS RED: query accounts on connections with the server's own defaults.
#[test]
fn a_changed_password_holds_where_sessions_begin_without_autocommit() {
    if let Some(why) = rootfs::missing_program("mysqld") {
        println!("skipped: {why}");
        return;
    }
    let (_lab, server) = start_mysql("mysql-autocommit");
    let sql = |text: &str| server.sql(text).unwrap();
    sql("set global autocommit = 0");
    for io in DRIVERS {
        sql("drop user if exists changing@'127.0.0.1'; \
             create user changing@'127.0.0.1' identified by 'first'");
        let bed = TestBed::before(&server, io, ONE);
        let enters = |password| {
            let login = Login {
                user: "changing",
                password,
                schema: None,
                ..Login::default()
            };
            Client::log_in(bed.address, &login).is_ok()
        };
        assert!(enters("first"), "{io}");
        sql("alter user changing@'127.0.0.1' identified by 'second'");
        assert!(!enters("first") && enters("second"), "{io}");
    }
}
