//! Tests that session state set by routines stays with its client, whether or not the server
//! reports it.

use std::net::SocketAddr;

use evenkeel_lab::{Server, rootfs};
use evenkeel_wire::mysql::flags::Capabilities;

use super::client::{Client, Login, USUAL};
use super::stage::{
    ONE, Setup, TestBed, same_as_at, same_as_direct, shared, start_mysql, start_own,
};
use crate::harness::DRIVERS;

/// Functions that a service has read before its first client connects.
const FUNCTIONS: [&str; 6] = [
    "drop function if exists sets_length",
    "drop function if exists sets_and_fails",
    "drop function if exists sets_clock",
    "create function sets_length(n int) returns int \
     begin set session group_concat_max_len = n; return n; end",
    "create function sets_and_fails() returns int \
     begin set session group_concat_max_len = 4444; signal sqlstate '45000'; return 1; end",
    "create function sets_clock(n int) returns int \
     begin set session timestamp = n; return n; end",
];

fn make_functions(server: &Server) {
    let trust = "set global log_bin_trust_function_creators = 1";
    server.sql(trust).unwrap();
    let mut direct = Client::connect(server.address);
    FUNCTIONS.iter().for_each(|text| direct.run(text));
}

/// Results end in an EOF, which reports nothing, or in an OK.
const ENDINGS: [Capabilities; 2] = [USUAL.without(Capabilities::DEPRECATE_EOF), USUAL];

/// TO SEE THIS RED: treat an EOF as an OK without session changes.
#[test]
fn variables_that_a_function_sets_stay_with_its_client_however_its_results_end() {
    make_functions(shared());
    functions_set_variables(shared());
}

/// MySQL reports changes omitted by an EOF in its next OK, whichever client receives it.
#[test]
fn they_do_so_at_mysql() {
    if let Some(why) = rootfs::missing_program("mysqld") {
        println!("skipped: {why}");
        return;
    }
    let (_lab, server) = start_mysql("mysql-routines");
    make_functions(&server);
    functions_set_variables(&server);
}

fn functions_set_variables(server: &Server) {
    for capabilities in ENDINGS {
        let tracking = Login {
            capabilities: capabilities.with(Capabilities::SESSION_TRACK),
            ..Login::default()
        };
        same_as_at(server, ONE, |address| {
            let (mut client, mut other) = (
                Client::with(address, &tracking),
                Client::with(address, &tracking),
            );
            let shown = "select @@group_concat_max_len";
            other.query("set session_track_system_variables = 'group_concat_max_len'");
            let mut received = Vec::new();
            for text in [
                "select sets_length(4321)",
                "select sets_length(4322) union all select sets_length(4323)",
                "select 1; select sets_length(4324); select 2",
                "select sets_and_fails()",
                "do sets_length(4325)",
            ] {
                received.extend(client.all(&[text]));
                received.extend(other.all(&["do 1", shown, "select 1"]));
                received.extend(client.all(&[shown]));
            }
            client.prepare("sets", "select sets_length(4326)");
            for run in [Client::execute, Client::open] {
                received.extend(run(&mut client, "sets", &[]));
                client.reset_statement("sets");
                received.extend(other.all(&["do 1", shown]));
                received.extend(client.all(&[shown, "set group_concat_max_len = 4327"]));
            }
            received
        });
    }
}

#[test]
fn a_clock_that_a_function_sets_is_its_client_s_own() {
    make_functions(shared());
    for capabilities in ENDINGS {
        let login = Login {
            capabilities,
            ..Login::default()
        };
        let setup = Setup {
            pool: "size = 2",
            ..ONE
        };
        same_as_direct(setup, |address| {
            let (mut client, mut other) =
                (Client::with(address, &login), Client::with(address, &login));
            let shown = "select unix_timestamp() = 1000000";
            let mut received = Vec::new();
            for _ in 0..2 {
                received.extend(client.all(&["select sets_clock(1000000)"]));
                received.extend(other.all(&[shown, shown]));
                received.extend(client.all(&[shown]));
            }
            received
        });
    }
}

/// TO SEE THIS RED: ignore locks in bodies.
#[test]
fn a_procedure_that_locks_all_tables_binds_its_client() {
    let (_lab, server) = start_own();
    let procedure = "create procedure sbtest.locks_all() flush tables with read lock";
    server.sql(procedure).unwrap();
    server.sql("create table sbtest.locked (a int)").unwrap();
    for io in DRIVERS {
        let setup = Setup {
            pool: "size = 2",
            ..ONE
        };
        let bed = TestBed::before(&server, io, setup);
        let (mut client, mut other) = (bed.client(), bed.client());
        client.run("call locks_all()");
        other.query_later("insert into locked values (1)");
        let reply = client.refusal("insert into locked values (2)");
        assert!(reply.starts_with("1223 "), "{io}: {reply}");
        client.run("unlock tables");
        let reply = other.reply();
        assert!(reply[0].starts_with("ok "), "{io}: {reply:?}");
    }
}

/// TO SEE THIS RED: search for variables in the text of a CALL only.
#[test]
fn what_a_procedure_gives_a_variable_by_using_is_its_client_s_own() {
    let (_lab, server) = start_own();
    let procedure = "create procedure sbtest.gives(out a int) set a = 7";
    server.sql(procedure).unwrap();
    for io in DRIVERS {
        let ways: [&[&str]; 2] = [
            &[
                "prepare p from 'call gives(?)'",
                "execute p using @a",
                "deallocate prepare p",
            ],
            &["execute immediate 'call gives(?)' using @a"],
        ];
        for way in ways {
            let setup = Setup {
                pool: "size = 2",
                ..ONE
            };
            let bed = TestBed::before(&server, io, setup);
            let (mut client, mut other) = (bed.client(), bed.client());
            way.iter().for_each(|text| client.run(text));
            assert_eq!(other.value("select @a"), "NULL", "{io}: {way:?}");
            assert_eq!(client.value("select @a"), "7", "{io}: {way:?}");
        }
    }
}

/// The OK to a CALL reports each commit in it if others commit between them.
///
/// TO SEE THIS RED: buffer no more of an OK than 16 KiB.
#[test]
fn a_call_that_commits_very_often_is_answered() {
    if let Some(why) = rootfs::missing_program("mysqld") {
        println!("skipped: {why}");
        return;
    }
    let (_lab, server) = start_mysql("mysql-commits");
    let trust = "set global log_bin_trust_function_creators = 1";
    server.sql(trust).unwrap();
    let mut direct = Client::connect(server.address);
    direct.run("create table commits (a int)");
    direct.run(
        "create procedure commits(n int) begin while n > 0 do insert into commits values (n); \
         set n = n - 1; end while; end",
    );
    let mut others = [(); 3].map(|()| Client::connect(server.address));
    for io in DRIVERS {
        let bed = TestBed::before(&server, io, ONE);
        for capabilities in [USUAL, USUAL.with(Capabilities::SESSION_TRACK)] {
            let login = Login {
                capabilities,
                ..Login::default()
            };
            let mut client = Client::with(bed.address, &login);
            others
                .iter_mut()
                .for_each(|other| other.query_later("call commits(6000)"));
            let reply = client.query("call commits(6000)");
            assert!(reply[0].starts_with("ok "), "{io}: {reply:?}");
            assert_eq!(client.value("select 1"), "1", "{io}");
            for other in &mut others {
                other.reply();
            }
        }
    }
}

/// A quoted function name may also mean a built-in function.
const QUOTED: [&str; 2] = [
    "drop function if exists locks_quoted",
    "create function locks_quoted() returns int reads sql data return `get_lock`('quoted', 0)",
];

/// TO SEE THIS RED: search for built-in functions without quotes only.
#[test]
fn what_functions_do_whose_names_are_in_quotes_is_their_client_s_own() {
    quoted_names_are_seen(shared());
}

#[test]
fn so_it_is_at_mysql() {
    if let Some(why) = rootfs::missing_program("mysqld") {
        println!("skipped: {why}");
        return;
    }
    let (_lab, server) = start_mysql("mysql-quoted");
    quoted_names_are_seen(&server);
}

fn quoted_names_are_seen(server: &Server) {
    let trust = "set global log_bin_trust_function_creators = 1";
    server.sql(trust).unwrap();
    let mut direct = Client::connect(server.address);
    QUOTED.iter().for_each(|text| direct.run(text));
    same_as_at(server, ONE, |address| {
        let (mut client, mut other) = (Client::connect(address), Client::connect(address));
        let mut received = client.all(&["select locks_quoted()"]);
        client.quit();
        // The server closes a connection before it frees its locks.
        received.extend(other.query("do sleep(0.5); select is_free_lock('quoted')"));
        received
    });
    same_as_at(server, ONE, asks_in_quotes);
}

fn asks_in_quotes(address: SocketAddr) -> Vec<String> {
    let mut received = Vec::new();
    for (leaves, asked) in [
        ("select 1 union select 2", "select `found_rows`() > 1"),
        (
            "create or replace table counted select 1 as a union select 2",
            "select `row_count`() > 1",
        ),
        ("do last_insert_id(7)", "select `last_insert_id`()"),
        ("select 1 union select 2", "select \"found_rows\"() > 1"),
    ] {
        let (mut client, mut other) = (Client::connect(address), Client::connect(address));
        other.run("set sql_mode = 'ANSI_QUOTES'");
        other.run("select 1");
        client.query(leaves);
        received.extend(other.all(&[asked]));
    }
    received
}
