//! Tests that settings follow their client, and affect no other.

use std::thread;
use std::time::Duration;

use evenkeel_lab::rootfs;

use super::client::{Client, Login, Value};
use super::stage::{
    ONE, Setup, TestBed, same_as_at, same_as_direct, shared, sql, start_mysql, start_own,
};
use crate::harness::DRIVERS;

/// Settings of clients, each with three different values.
const SETTINGS: [(&str, [&str; 3]); 17] = [
    (
        "sql_mode",
        [
            "'ANSI_QUOTES'",
            "'NO_BACKSLASH_ESCAPES'",
            "'STRICT_ALL_TABLES'",
        ],
    ),
    ("time_zone", ["'+02:00'", "'+09:00'", "'-05:00'"]),
    ("character_set_client", ["latin1", "utf8mb4", "utf8mb3"]),
    ("character_set_results", ["utf8mb4", "latin1", "null"]),
    (
        "collation_connection",
        ["latin1_german1_ci", "utf8mb4_bin", "utf8mb3_bin"],
    ),
    (
        "tx_isolation",
        ["'SERIALIZABLE'", "'READ-COMMITTED'", "'READ-UNCOMMITTED'"],
    ),
    ("sql_select_limit", ["11", "12", "13"]),
    ("group_concat_max_len", ["1001", "1002", "1003"]),
    ("lc_time_names", ["de_DE", "ja_JP", "fr_FR"]),
    ("wait_timeout", ["1001", "1002", "1003"]),
    ("lock_wait_timeout", ["1001", "1002", "1003"]),
    ("innodb_lock_wait_timeout", ["101", "102", "103"]),
    ("foreign_key_checks", ["0", "1", "0"]),
    ("unique_checks", ["0", "1", "0"]),
    ("max_statement_time", ["61", "62", "63"]),
    ("auto_increment_increment", ["2", "3", "4"]),
    ("div_precision_increment", ["6", "7", "8"]),
];

const TWO: Setup<'_> = Setup {
    pool: "size = 2",
    ..ONE
};

#[test]
fn clients_of_one_server_connection_never_see_each_other_s_settings() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let mut clients: Vec<Client> = (0..3).map(|_| bed.client()).collect();
        let mut servers: Vec<Client> = (0..3).map(|_| Client::connect(shared().address)).collect();
        for (name, values) in SETTINGS {
            for (index, value) in values.iter().enumerate() {
                for client in [&mut clients[index], &mut servers[index]] {
                    client.run(&format!("set {name} = {value}"));
                }
            }
        }
        for (name, _) in SETTINGS {
            for (client, server) in clients.iter_mut().zip(&mut servers) {
                let show = format!("select @@session.{name}");
                assert_eq!(client.query(&show), server.query(&show), "{io} {name}");
            }
        }
        // No setting remains for the next client.
        let (mut stranger, mut direct) = (bed.client(), Client::connect(shared().address));
        for (name, _) in SETTINGS {
            let show = format!("select @@session.{name}");
            assert_eq!(stranger.query(&show), direct.query(&show), "{io} {name}");
        }
    }
}

#[test]
fn user_variables_of_literals_follow_their_client_and_bind_it_to_nothing() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let mut clients: Vec<Client> = (0..3).map(|_| bed.client()).collect();
        for (index, client) in clients.iter_mut().enumerate() {
            client.run(&format!(
                "set @ApplicationName = 'app {index}', @n := {index}"
            ));
            client.run(&format!(
                "set @updated := null, @x = {index}.5, @h = x'4{index}'"
            ));
        }
        for (index, client) in clients.iter_mut().enumerate() {
            let row = client.value("select @ApplicationName, @n, @updated, @x, @h");
            let (_, last) = row.rsplit_once('|').unwrap();
            assert_eq!(last, ["@", "A", "B"][index], "{io}");
            assert!(
                row.starts_with(&format!("app {index}|{index}|NULL|{index}.5|")),
                "{row}"
            );
        }
        let mut stranger = bed.client();
        assert_eq!(stranger.value("select @ApplicationName, @n"), "NULL|NULL");
        let pins = &bed.status()["database"]["pins"];
        assert_eq!(pins, &serde_json::json!([]), "{io}");
    }
}

/// TO SEE THIS RED: write an empty string, or an empty mode, as two quotes; take two quotes as an
/// empty string in every mode.
#[test]
fn a_client_for_whom_an_empty_string_is_null_disturbs_no_other() {
    for mode in ["EMPTY_STRING_IS_NULL", "ORACLE,EMPTY_STRING_IS_NULL"] {
        same_as_direct(TWO, |address| {
            let (mut client, mut other) = (Client::connect(address), Client::connect(address));
            let set_mode = format!("set sql_mode = '{mode}'");
            let mut received = client.all(&["set sql_mode = '', @a = ''"]);
            received.extend(other.all(&[&set_mode, "select '' is null"]));
            received.extend(client.all(&[OF_EMPTY_STRINGS]));
            received.extend(other.all(&[OF_EMPTY_STRINGS]));
            received.extend(client.all(&["set sql_mode = 'ANSI'", OF_EMPTY_STRINGS]));
            received.extend(other.all(&["select @@sql_mode"]));
            received.extend(client.all(&["set sql_mode = ''", OF_EMPTY_STRINGS]));
            received.extend(other.all(&["set @a = ''", "select @a is null"]));
            received.extend(client.all(&[OF_EMPTY_STRINGS]));
            received.extend(Client::connect(address).all(&[OF_EMPTY_STRINGS]));
            received
        });
    }
}

#[test]
fn empty_modes_and_strings_follow_their_client_at_mysql_too() {
    if let Some(why) = rootfs::missing_program("mysqld") {
        println!("skipped: {why}");
        return;
    }
    let (_lab, server) = start_mysql("mysql-empty");
    same_as_at(&server, ONE, |address| {
        let (mut client, mut other) = (Client::connect(address), Client::connect(address));
        let mut received = client.all(&["set sql_mode = '', @a = ''"]);
        for _ in 0..2 {
            received.extend(client.prepare("own", "select 'x', ?"));
            received.extend(other.all(&["set sql_mode = 'ANSI'", OF_EMPTY_STRINGS]));
            received.extend(client.execute("own", &[Value::Number(1)]));
            received.extend(client.all(&[OF_EMPTY_STRINGS]));
        }
        received
    });
}

const OF_EMPTY_STRINGS: &str = "select @@sql_mode, @a is null, @a = '', collation(@a), '' is null";

#[test]
fn the_schema_goes_with_its_client() {
    same_as_direct(ONE, |address| {
        let (mut client, mut other) = (Client::connect(address), Client::connect(address));
        let mut received = client.all(&["use other", "select database()"]);
        received.extend(other.all(&["select database()"]));
        received.extend(client.all(&[
            "drop table if exists of_other",
            "create table of_other (a int)",
            "use there_is_none",
            "select database()",
            "select * from of_other",
        ]));
        received.extend(other.all(&[
            "select * from of_other",
            "use other",
            "select * from of_other",
        ]));
        received.extend(client.all(&["use sbtest; select database(); use other"]));
        received.extend(other.all(&["use sbtest", "select database()"]));
        received.extend(client.all(&["select database()"]));
        let mut third = Client::with(
            address,
            &super::client::Login {
                schema: None,
                ..Default::default()
            },
        );
        received.extend(third.all(&["select database()", "select * from of_other", "use other"]));
        received.extend(client.all(&["select database()"]));
        received.extend(third.all(&["select database()"]));
        received
    });
}

/// A reset leaves a MySQL connection in its schema, but drops the schema's character set, by which
/// LOAD DATA reads.
///
/// TO SEE THIS RED: consider a schema restored if it is there after a reset.
#[test]
fn the_character_set_of_a_schema_is_there_after_a_reset() {
    if let Some(why) = rootfs::missing_program("mysqld") {
        println!("skipped: {why}");
        return;
    }
    let (_lab, server) = start_mysql("mysql-schema");
    let schema = "create database latin character set latin1; \
                  grant all on latin.* to sbtest@'127.0.0.1'";
    server.sql(schema).unwrap();
    for io in DRIVERS {
        let bed = TestBed::before(&server, io, ONE);
        let login = Login {
            schema: Some("latin"),
            ..Login::default()
        };
        let log_in = || Client::with(bed.address, &login);
        let (mut client, mut other) = (log_in(), log_in());
        client.run("create temporary table leaves (a int)");
        client.quit();
        let shown = "select database(), @@character_set_database, @@collation_database";
        let expect = "latin|latin1|latin1_swedish_ci";
        assert_eq!(other.value(shown), expect, "{io}");
    }
}

#[test]
fn statements_do_to_settings_what_they_do_at_the_server() {
    let is_11 = sql("select @@version").starts_with("11.");
    same_as_direct(ONE, |address| {
        let (mut client, mut other) = (Client::connect(address), Client::connect(address));
        let shown = "select @@time_zone, @@sql_mode, @@character_set_client, \
                     @@character_set_connection, @@collation_connection, \
                     @@character_set_results, @@autocommit, @@tx_isolation, @@tx_read_only, \
                     @@sql_select_limit, @@max_statement_time, @@wait_timeout, database(), @a, @b";
        let steps = [
            "set time_zone = '+01:00'",
            "set session time_zone = '+02:00', sql_mode = 'ANSI'",
            "set @@session.time_zone = 'nonsense'",
            "set time_zone = '+03:00', there_is_no = 1",
            "set names latin1",
            "set names utf8mb4 collate utf8mb4_bin",
            "set names nonsense",
            "set character set latin1",
            "set character set default",
            "set names default",
            "set sql_mode = concat(@@sql_mode, ',STRICT_TRANS_TABLES')",
            "set sql_mode = default",
            "set sql_mode = ''",
            "set session transaction isolation level read committed",
            "set @@tx_isolation = 'SERIALIZABLE'; begin; commit",
            "set session transaction read only",
            "set session transaction read write",
            "set tx_isolation = default",
            "set local wait_timeout = 77",
            "set sql_select_limit = 5",
            "set sql_select_limit = default",
            "set max_statement_time = 30.5",
            "set @a = 1, @b = 'it''s \\\\ \"it\"'",
            "set @a := null",
            "set @a = -1.5e3, @b = true",
            "set statement max_statement_time = 3 for select 1",
            "set time_zone = '+04:00'; set max_statement_time = 4; set @a = 9",
            "set sql_mode = 'NO_BACKSLASH_ESCAPES'",
            "set @b = 'a\\'",
            "set sql_mode = ''",
            "begin; set time_zone = '+05:00'; rollback",
            "set time_zone = @@global.time_zone",
            "set autocommit = 0",
            "set autocommit = 1",
            "set autocommit = off; set autocommit = on",
        ];
        // Then MariaDB 11 describes columns by a collation that no variable shows.
        let is_hidden = |step: &str| is_11 && step == "set character set default";
        let mut received = Vec::new();
        for step in steps.into_iter().filter(|step| !is_hidden(step)) {
            // Shown on failure.
            println!("{step}");
            received.extend(client.all(&[step]));
            // The other client waits for the connection.
            if !step.contains("autocommit = 0") {
                other.run("set time_zone = '-07:00', sql_mode = 'ANSI', names utf8mb3");
                other.run("set @a = 'other', @b = 'other', wait_timeout = 99");
                other.run("use other");
            }
            received.extend(client.all(&[shown]));
        }
        received.extend(client.reset());
        received.extend(client.all(&[shown]));
        received
    });
}

#[test]
fn what_is_said_in_one_character_set_is_understood_in_it() {
    same_as_direct(ONE, |address| {
        let (mut client, mut other) = (Client::connect(address), Client::connect(address));
        let mut received = client.all(&["set names latin1", "select hex('ä'), 'ä', charset('x')"]);
        received.extend(other.all(&["select hex('ä'), 'ä', charset('x')"]));
        received.extend(client.all(&["select hex('ä'), 'ä', charset('x')"]));
        received.extend(other.all(&["set names utf8mb4 collate utf8mb4_bin", "select 'a' = 'A'"]));
        received.extend(client.all(&["select 'a' = 'A'", "set names utf8mb3"]));
        received.extend(other.all(&["select 'a' = 'A', collation('a')"]));
        received.extend(client.all(&["select 'a' = 'A', collation('a')"]));
        for collation in [8, 33, 45, 46, 63] {
            let mut third = Client::with(
                address,
                &super::client::Login {
                    collation,
                    ..Default::default()
                },
            );
            received
                .extend(third.all(&["select @@character_set_client, @@collation_connection, 'ä'"]));
            received.extend(client.all(&["select @@collation_connection"]));
        }
        received
    });
}

#[test]
fn the_next_transaction_s_characteristics_are_not_the_session_s() {
    same_as_direct(
        Setup {
            pool: "size = 2",
            ..ONE
        },
        |address| {
            let (mut client, mut other) = (Client::connect(address), Client::connect(address));
            let mut received = Vec::new();
            for _ in 0..3 {
                received.extend(client.all(&[
                    "set transaction isolation level serializable",
                    "begin",
                    "select @@tx_isolation",
                    "commit",
                    "set transaction read only",
                    "drop table if exists next_one",
                    "set transaction isolation level read committed; begin",
                    "commit",
                    "select @@tx_isolation",
                    "set @@tx_isolation = 'READ-COMMITTED'",
                ]));
                received.extend(other.all(&["begin", "select @@tx_isolation", "rollback"]));
                received
                    .extend(client.all(&["select @@tx_isolation", "set tx_isolation = default"]));
            }
            received
        },
    );
}

#[test]
fn a_wait_timeout_of_the_client_s_own_holds_for_it_alone_wherever_it_is() {
    for io in DRIVERS {
        let bed = TestBed::set_up(
            io,
            Setup {
                pool: "size = 2",
                ..ONE
            },
        );
        let mut hasty: Vec<Client> = (0..2).map(|_| bed.client()).collect();
        let (mut calm, mut busy) = (bed.client(), bed.client());
        for client in &mut hasty {
            client.run("set wait_timeout = 1");
            assert_eq!(client.value("select @@wait_timeout"), "1", "{io}");
        }
        // In a transaction the server's limit ends it; an active client stays.
        hasty[1].run("begin");
        busy.run("set wait_timeout = 2");
        for _ in 0..7 {
            thread::sleep(Duration::from_millis(500));
            busy.ping();
        }
        for client in &mut hasty {
            let reply = client.ping();
            let is_over = reply[0].starts_with("error ") || reply[0] == "end";
            assert!(is_over, "{io}: {reply:?}");
        }
        assert_eq!(calm.value("select 'here'"), "here", "{io}");
        assert_eq!(busy.value("select @@wait_timeout"), "2", "{io}");
    }
}

/// The server does not repeat it for a connection that was reset for the next client.
#[test]
fn what_init_connect_sets_is_so_for_every_client() {
    let (_lab, server) = start_own();
    let init = "set time_zone = '+03:30', sql_select_limit = 77";
    server
        .sql(&format!("set global init_connect = {init:?}"))
        .unwrap();
    let shown = "select @@time_zone, @@sql_select_limit";
    for io in DRIVERS {
        let bed = TestBed::before(&server, io, ONE);
        let backend = bed.client().backend();
        for round in 0..3 {
            let mut client = bed.client();
            assert_eq!(client.value(shown), "+03:30|77", "{io} {round}");
            client.run("set time_zone = '-01:00'");
            // A connection with such state is reset before the next client receives it.
            client.run("create temporary table gone (a int)");
            client.run("select @left := 1");
            client.quit();
            assert_eq!(bed.client().backend(), backend, "{io} {round}");
        }
    }
}

/// TO SEE THIS RED: query the server.
#[test]
fn the_position_of_the_last_write_is_the_client_s_own() {
    sql("create or replace table positions (a int)");
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let (mut client, mut other) = (bed.client(), bed.client());
        let last = "select @@last_gtid";
        assert_eq!(client.value(last), "", "{io}");
        client.run("insert into positions values (1)");
        let own = client.value(last);
        other.run("insert into positions values (2)");
        let later = other.value("select @@session.last_gtid as last");
        assert!(
            own.contains('-') && later.contains('-') && own != later,
            "{io}"
        );
        assert_eq!(client.value(last), own, "{io}");
    }
}

/// Client libraries escape the strings of their first statement as the status requires.
#[test]
fn how_strings_are_read_is_told_from_the_greeting_on() {
    let (_lab, server) = start_own();
    let modes = "SET GLOBAL sql_mode = 'NO_BACKSLASH_ESCAPES,ANSI_QUOTES'";
    server.sql(modes).unwrap();
    same_as_at(&server, ONE, |address| {
        let mut client = Client::connect(address);
        let mut received = client.welcome.clone();
        received.extend(client.ping());
        received.extend(client.all(&["select '\\'", "set sql_mode = ''", "select 1"]));
        received.extend(client.ping());
        received
    });
}

/// A user without the right to set them may set them to DEFAULT, and call a procedure that its
/// owner may run.
///
/// TO SEE THIS RED: restore them as the server reports them.
#[test]
fn variables_that_not_everybody_may_set_are_not_set_for_who_may_not() {
    sql("create or replace procedure in_domain(d int) set session gtid_domain_id = d");
    let defaults = [
        "binlog_annotate_row_events",
        "binlog_direct_non_transactional_updates",
        "binlog_format",
        "binlog_row_image",
        "gtid_domain_id",
        "innodb_strict_mode",
        "innodb_tmpdir",
        "server_id",
    ];
    let setup = Setup {
        pool: "size = 3",
        ..ONE
    };
    same_as_direct(setup, |address| {
        let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(address)).collect();
        let mut received = Vec::new();
        for name in defaults {
            let own = format!("set session {name} = default");
            received.extend(clients[0].all(&[&own, "set gtid_domain_id = 5"]));
            // Its previous connection is assigned to another client.
            for client in clients.iter_mut().rev() {
                client.run("begin");
            }
            for client in clients.iter_mut().rev() {
                received.extend(client.all(&[&format!("select @@{name}"), "commit"]));
            }
        }
        received.extend(clients[0].all(&["call in_domain(7)"]));
        for _ in 0..2 {
            for client in &mut clients {
                received.extend(client.all(&["select @@gtid_domain_id", "select 1"]));
            }
        }
        received
    });
}
