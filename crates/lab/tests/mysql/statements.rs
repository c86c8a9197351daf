//! Tests of prepared statements, of the protocol and of SQL: each client has its own, on every
//! connection.

use std::time::{Duration, Instant};

use evenkeel_lab::eventually;
use evenkeel_wire::mysql::flags::Capabilities;

use super::client::{Client, Login, USUAL, Value};
use super::stage::{ONE, Setup, TestBed, same_as_direct, start_own};
use crate::harness::progress::wait_clients;
use crate::harness::{DRIVERS, LIMIT};

const TYPES: &str = "create table of_types (a tinyint, b smallint, c int, d bigint unsigned, \
    e float, f double, g decimal(12,3), h date, i datetime(6), j time, k year, l bit(9), \
    m varchar(20), n blob, o set('x', 'y'), p json)";

const ROW: &str = "insert into of_types values (-1, 300, -70000, 18446744073709551615, 1.5, -2.25, \
    '123.456', '2024-02-29', '2024-02-29 12:34:56.789', '-12:34:56', 2024, b'101', 'text', x'00ff', \
    'x,y', '{}'), (null, null, null, null, null, null, null, null, null, null, null, null, null, \
    null, null, null)";

#[test]
fn statements_give_what_they_give_at_the_server() {
    same_as_direct(ONE, |address| {
        let mut received = Vec::new();
        for capabilities in [USUAL, USUAL.without(Capabilities::DEPRECATE_EOF)] {
            let login = Login {
                capabilities,
                ..Login::default()
            };
            let mut client = Client::with(address, &login);
            let mut other = Client::with(address, &login);
            received.extend(client.all(&["drop table if exists of_types", TYPES, ROW]));
            received.extend(client.prepare("all", "select * from of_types"));
            received.extend(other.prepare("other", "select 'other', ?"));
            received.extend(client.execute("all", &[]));
            received.extend(other.execute("other", &[Value::Text("it")]));
            received.extend(client.prepare("add", "insert into of_types (a, m) values (?, ?)"));
            for values in [
                [Value::Number(1), Value::Text("one")],
                [Value::Null, Value::Text("")],
                [Value::Number(3), Value::Null],
                [Value::Number(3_000), Value::Text("too big")],
            ] {
                received.extend(client.execute("add", &values));
            }
            received.extend(client.execute("all", &[]));
            received.extend(client.prepare("wrong", "selekt ?"));
            received.extend(client.prepare("none", "select * from there_is_none"));
            received.extend(client.prepare("two", "select 1; select 2"));
            received.extend(other.execute("other", &[Value::Null]));
            received.extend(client.reset_statement("all"));
            client.close("add");
            received.extend(client.execute("all", &[]));
            received.extend(client.execute_id(4_000_000));
            received.extend(client.ping());
        }
        received
    });
}

/// TO SEE THIS RED: let `dispatch_reset` answer without a ping.
#[test]
fn a_reset_of_a_statement_that_the_connection_lacks_is_a_statement_without_rows() {
    let setup = Setup {
        pool: "size = 2\nstatements_max = 1",
        ..Setup::default()
    };
    same_as_direct(setup, |address| {
        let mut client = Client::connect(address);
        let mut received = client.prepare("gone", "select 1");
        received.extend(client.execute("gone", &[]));
        received.extend(client.prepare("kept", "select 2"));
        received.extend(client.all(&["begin"]));
        received.extend(client.execute("kept", &[]));
        received.extend(client.all(&["select 3 union select 4"]));
        received.extend(client.reset_statement("gone"));
        received.extend(client.all(&["select row_count()", "select found_rows()"]));
        received.extend(client.all(&["select cast('x' as signed)"]));
        received.extend(client.reset_statement("gone"));
        received.extend(client.all(&["show warnings", "commit"]));
        received
    });
}

#[test]
fn one_name_of_many_clients_means_each_one_s_own_statement() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let mut clients: Vec<Client> = (0..5).map(|_| bed.client()).collect();
        for (index, client) in clients.iter_mut().enumerate() {
            client.prepare("own", &format!("select 'client {index}', ?"));
            // All of them have this statement.
            client.prepare("shared", "select ? + 1");
        }
        for round in 0..3 {
            for (index, client) in clients.iter_mut().enumerate() {
                let own = client.execute("own", &[Value::Number(round)]);
                assert_eq!(own[1], format!("row client {index}|{round}"), "{io}");
                let shared = client.execute("shared", &[Value::Number(round)]);
                assert_eq!(shared[1], format!("row {}", round + 1), "{io}");
            }
        }
        let first = &mut clients[0];
        first.close("shared");
        assert_eq!(
            clients[1].execute("shared", &[Value::Number(1)])[1],
            "row 2"
        );
    }
}

#[test]
fn more_statements_than_a_connection_keeps_still_run() {
    let setup = Setup {
        pool: "size = 1\nstatements_max = 3",
        ..ONE
    };
    // The server counts the statements of all its connections.
    let (_lab, server) = start_own();
    for io in DRIVERS {
        let bed = TestBed::before(&server, io, setup);
        let (mut client, mut other) = (bed.client(), bed.client());
        for number in 0..20 {
            client.prepare(&format!("s{number}"), &format!("select {number}"));
        }
        for number in [0, 19, 7, 0, 3, 11] {
            let row = client.execute(&format!("s{number}"), &[]);
            assert_eq!(row[1], format!("row {number}"), "{io}");
            other.run("select 1");
        }
        // Each is really closed at the server, not only forgotten.
        let count = "select variable_value from information_schema.global_status \
                     where variable_name = 'Prepared_stmt_count'";
        let count: u64 = server.sql(count).unwrap().parse().unwrap();
        assert!(count < 100, "{count}");
    }
}

/// TO SEE THIS RED: close none while a cursor is open.
#[test]
fn a_connection_keeps_no_more_statements_while_a_cursor_is_open() {
    let (_lab, server) = start_own();
    let setup = Setup {
        pool: "size = 1\nstatements_max = 3",
        ..ONE
    };
    let bed = TestBed::before(&server, "auto", setup);
    let mut client = bed.client();
    client.prepare("rows", "select seq from seq_1_to_9");
    client.open("rows", &[]);
    for number in 0..50 {
        client.prepare(&format!("s{number}"), &format!("select {number}"));
        let row = client.execute(&format!("s{number}"), &[]);
        assert_eq!(row[1], format!("row {number}"));
    }
    let count = server.sql(
        "select variable_value from information_schema.global_status \
         where variable_name = 'Prepared_stmt_count'",
    );
    let count: u64 = count.unwrap().parse().unwrap();
    assert!(count < 8, "{count}");
    assert_eq!(client.fetch("rows", 2)[..2], ["row 1", "row 2"]);
}

#[test]
fn what_is_left_of_a_long_value_that_lost_its_beginning_is_in_no_later_one() {
    for io in DRIVERS {
        let setup = Setup {
            pool: "size = 1\nwait_ms = 200",
            ..ONE
        };
        let bed = TestBed::set_up(io, setup);
        let (mut client, mut other) = (bed.client(), bed.client());
        client.prepare("long", "select ?");
        other.run("begin");
        other.run("select 1");
        client.send_long_data("long", 0, b"lost");
        eventually(LIMIT, "the long value is given up", || {
            let given_up = bed.status()["database"]["wait_timeouts_total"].as_u64();
            Ok((given_up > Some(0)).then_some(()))
        })
        .unwrap();
        other.run("commit");
        client.send_long_data("long", 0, b"left");
        let reply = client.execute("long", &[Value::Sent]);
        assert!(reply[0].starts_with("error 1205"), "{io}: {reply:?}");
        client.send_long_data("long", 0, b"whole");
        let received = client.execute("long", &[Value::Sent]);
        assert!(
            received.contains(&"row whole".to_owned()),
            "{io}: {received:?}"
        );
    }
}

/// A client that has sent the types of its parameters need not repeat them, even if that execution
/// was refused, for lack of a connection or by a rule.
#[test]
fn types_that_came_with_an_execution_that_was_not_run_are_known_all_the_same() {
    const RULE: &str = "[[service.rule]]\nname = \"no\"\nuser = \"sbtest\"\n\
                        match = \"nothing\"\nreject = \"not now\"";
    for io in DRIVERS {
        let setup = Setup {
            pool: "size = 1\nwait_ms = 200",
            tables: RULE,
            ..ONE
        };
        let bed = TestBed::set_up(io, setup);
        let (mut client, mut other) = (bed.client(), bed.client());
        client.prepare("s", "select ? + 1");
        client.prepare("ruled", "select 'ruled', ?");
        other.run("begin");
        other.run("select 1");
        let reply = client.execute("s", &[Value::Number(5)]);
        assert!(reply[0].starts_with("error 1040"), "{io}: {reply:?}");
        other.run("commit");
        let without = bed.balancer.config();
        let with = without.replace("nothing", "ruled");
        bed.balancer.reload(&with).unwrap();
        let reply = client.execute("ruled", &[Value::Number(5)]);
        assert!(reply[0].starts_with("error 1148"), "{io}: {reply:?}");
        let received = client.execute_again("s", &[Value::Number(6)]);
        assert!(received.contains(&"row 7".to_owned()), "{io}: {received:?}");
        bed.balancer.reload(&without).unwrap();
        let received = client.execute_again("ruled", &[Value::Number(6)]);
        assert!(
            received.contains(&"row ruled|6".to_owned()),
            "{io}: {received:?}"
        );
    }
}

#[test]
fn long_data_and_cursors_stay_with_their_client() {
    same_as_direct(
        Setup {
            pool: "size = 2",
            ..ONE
        },
        |address| {
            let mut received = Vec::new();
            for capabilities in [USUAL, USUAL.without(Capabilities::DEPRECATE_EOF)] {
                let login = Login {
                    capabilities,
                    ..Login::default()
                };
                let mut client = Client::with(address, &login);
                let mut other = Client::connect(address);
                received.extend(client.prepare("long", "select length(?), left(?, 5)"));
                client.send_long_data("long", 0, &b"abc".repeat(1_000));
                received.extend(other.all(&["select 'between'"]));
                client.send_long_data("long", 0, b"de");
                received.extend(client.execute("long", &[Value::Sent, Value::Text("another")]));
                received.extend(client.execute("long", &[Value::Text("x"), Value::Text("y")]));
                client.send_long_data("long", 0, b"forgotten");
                received.extend(client.reset_statement("long"));
                received.extend(client.execute("long", &[Value::Text("x"), Value::Text("y")]));
                received.extend(client.prepare("rows", "select seq from seq_1_to_7"));
                received.extend(client.open("rows", &[]));
                received.extend(client.fetch("rows", 3));
                received.extend(other.all(&["select 'between'"]));
                received.extend(client.fetch("rows", 3));
                received.extend(client.all(&["select 'mine'"]));
                received.extend(client.fetch("rows", 3));
                received.extend(client.fetch("rows", 3));
                received.extend(client.execute("rows", &[]));
                received.extend(client.open("rows", &[]));
                received.extend(client.reset_statement("rows"));
                received.extend(client.fetch("rows", 1));
                received.extend(client.open("rows", &[]));
                client.close("rows");
                received.extend(client.ping());
            }
            received
        },
    );
}

#[test]
fn statements_of_sql_are_where_their_client_is() {
    same_as_direct(
        Setup {
            pool: "size = 2",
            ..ONE
        },
        |address| {
            let (mut client, mut other) = (Client::connect(address), Client::connect(address));
            let mut received = client.all(&["prepare s from 'select ?, 1'", "set @v = 'mine'"]);
            received.extend(other.all(&["prepare s from 'select 2'", "execute s"]));
            received.extend(client.all(&["execute s using @v"]));
            received.extend(other.all(&["deallocate prepare s", "execute s"]));
            received.extend(client.all(&[
                "execute s using @v",
                "drop prepare s",
                "execute s",
                "execute immediate 'select 5'",
            ]));
            received
        },
    );
}

#[test]
fn a_statement_whose_table_changes_changes_with_it() {
    same_as_direct(ONE, |address| {
        let (mut client, mut other) = (Client::connect(address), Client::connect(address));
        let mut received = client.all(&[
            "drop table if exists changing",
            "create table changing (a int)",
            "insert into changing values (1)",
        ]);
        received.extend(client.prepare("all", "select * from changing"));
        received.extend(other.prepare("all", "select * from changing"));
        received.extend(client.execute("all", &[]));
        received.extend(other.all(&["alter table changing add b varchar(3) default 'b'"]));
        received.extend(client.execute("all", &[]));
        received.extend(other.execute("all", &[]));
        received.extend(other.all(&["drop table changing"]));
        received.extend(client.execute("all", &[]));
        received
    });
}

#[test]
fn the_last_insert_id_is_the_client_s_own_in_either_protocol() {
    same_as_direct(ONE, |address| {
        let (mut client, mut other) = (Client::connect(address), Client::connect(address));
        let mut received = client.all(&[
            "drop table if exists numbered",
            "create table numbered (id int auto_increment primary key, who varchar(9))",
            "insert into numbered (who) values ('client')",
        ]);
        received.extend(other.all(&["insert into numbered (who) values ('other')"]));
        received.extend(client.prepare("last", "select last_insert_id()"));
        received.extend(client.execute("last", &[]));
        received.extend(other.all(&["select last_insert_id()"]));
        received.extend(client.all(&["select last_insert_id(), @@identity"]));
        received.extend(other.all(&["insert into numbered (who) values ('a'), ('b')"]));
        received.extend(client.execute("last", &[]));
        received.extend(client.all(&[
            "insert into numbered (who) values (last_insert_id())",
            "select * from numbered order by id",
            "select last_insert_id(77)",
        ]));
        received.extend(other.all(&["select last_insert_id()"]));
        received.extend(client.all(&["select last_insert_id()"]));
        received.extend(client.prepare("add", "insert into numbered (who) values (?)"));
        received.extend(client.execute("add", &[Value::Text("bin")]));
        received.extend(other.all(&["select 1"]));
        received.extend(client.execute("last", &[]));
        received
    });
}

/// Before any client has queried an id, no client is kept on a connection for such a query.
#[test]
fn inserts_of_clients_that_ask_for_no_id_take_turns_without_a_delay() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let mut clients: Vec<Client> = (0..4).map(|_| bed.client()).collect();
        clients[0].run("drop table if exists in_turn");
        clients[0].run("create table in_turn (id int auto_increment primary key) engine=memory");
        let started = Instant::now();
        for _ in 0..100 {
            for client in &mut clients {
                client.run("insert into in_turn values ()");
            }
        }
        // Each would have to wait for its predecessor.
        let took = started.elapsed();
        assert!(took < Duration::from_secs(6), "{io}: {took:?}");
    }
}

/// MariaDB returns the id in a result and not in the OK. TO SEE THIS RED: treat a result's end as
/// an OK without an id.
#[test]
fn an_insert_that_returns_rows_leaves_its_id_to_its_client_alone() {
    same_as_direct(ONE, |address| {
        let mut received = Vec::new();
        for capabilities in [USUAL, USUAL.without(Capabilities::DEPRECATE_EOF)] {
            let login = Login {
                capabilities,
                ..Login::default()
            };
            let mut client = Client::with(address, &login);
            let mut other = Client::with(address, &login);
            client.run("drop table if exists returned");
            client.run("create table returned (id int auto_increment primary key, v int unique)");
            received.extend(client.all(&["insert into returned (v) values (1) returning id"]));
            received.extend(other.all(&[LAST_ID]));
            received.extend(client.all(&[LAST_ID]));
            received.extend(other.all(&["insert into returned (v) values (2)", "do 1"]));
            // These assign no id: the last one is still the client's.
            received
                .extend(client.all(&["insert ignore into returned (v) values (2) returning id"]));
            received
                .extend(client.all(&["delete from returned where v = 2 returning id", LAST_ID]));
            received.extend(
                client.prepare("again", "replace into returned (v) values (?) returning id"),
            );
            received.extend(client.execute("again", &[Value::Number(1)]));
            received.extend(other.all(&[LAST_ID]));
            received.extend(client.all(&[LAST_ID]));
        }
        received
    });
}

/// Runs on the connection of a client that has inserted, before any client has queried an id.
#[test]
fn an_insert_that_returns_rows_and_gives_no_id_takes_nobody_else_s() {
    same_as_direct(ONE, |address| {
        let (mut client, mut other) = (Client::connect(address), Client::connect(address));
        client.run("drop table if exists returned_none");
        client.run("create table returned_none (id int auto_increment primary key, v int unique)");
        other.run("insert into returned_none (v) values (7)");
        client.run("insert ignore into returned_none (v) values (7) returning id");
        client.all(&[LAST_ID])
    });
}

const LAST_ID: &str = "select last_insert_id()";

/// TO SEE THIS RED: parse a statement again by the modes of the executing client.
#[test]
fn a_statement_means_what_it_meant_when_it_was_prepared_though_the_catalog_changes() {
    let trust = "set global log_bin_trust_function_creators = 1";
    super::stage::sql(trust);
    for io in DRIVERS {
        let setup = Setup {
            pool: "size = 3",
            ..ONE
        };
        let bed = TestBed::set_up(io, setup);
        let (mut client, mut other) = (bed.client(), bed.client());
        client.run("set sql_mode = 'NO_BACKSLASH_ESCAPES'");
        client.prepare("lock", r"select '\', get_lock('as_then', 0) -- ', 1");
        client.run("set sql_mode = ''");
        other.run(&format!(
            "create or replace function later_{io}() returns int no sql return 1"
        ));
        // Changes of the catalog are read once a second.
        std::thread::sleep(Duration::from_millis(2_500));
        let received = client.execute("lock", &[]);
        assert!(
            received.contains(&r"row \|1".to_owned()),
            "{io}: {received:?}"
        );
        let reply = || bed.status()["database"]["pins"].clone();
        let is_bound = || Ok((reply()[0]["count"] == 1).then_some(()));
        let waited = eventually(Duration::from_secs(3), "the lock binds", is_bound);
        waited.unwrap_or_else(|error| panic!("{io}: {error}: {}", reply()));
    }
}

/// A prepare executes nothing, whatever the statement does.
///
/// TO SEE THIS RED: treat it as a write that may have been executed.
#[test]
fn a_write_is_prepared_elsewhere_if_its_server_ends_meanwhile() {
    let (_lab, server) = start_own();
    let mut direct = Client::connect(server.address);
    direct.run("create table later (a int)");
    for io in DRIVERS {
        let bed = TestBed::before(&server, io, ONE);
        let mut client = bed.client();
        client.run("insert into later values (1)");
        server.freeze().unwrap();
        let preparing = std::thread::spawn(move || {
            let received = client.prepare("later", "insert into later values (2)");
            (received, client)
        });
        wait_clients(&bed.balancer, "pool", "active", 1);
        server.kill().unwrap();
        server.start().unwrap();
        let (received, mut client) = preparing.join().unwrap();
        let expect = "prepared parameters=0 columns=0 warnings=0";
        assert_eq!(received, [expect], "{io}: {}", bed.balancer.log());
        let received = client.execute("later", &[]);
        assert!(received[0].starts_with("ok rows=1 "), "{io}: {received:?}");
    }
}

/// Servers parse a string when they prepare its statement.
///
/// TO SEE THIS RED: assume the character set of its execution.
#[test]
fn a_variable_that_was_prepared_has_the_character_set_of_then() {
    same_as_direct(ONE, |address| {
        let (mut client, mut other) = (Client::connect(address), Client::connect(address));
        let shown = "select hex(@a), collation(@a), @b is null";
        let mut received = Vec::new();
        for (then, now) in [
            ("names utf8mb4", "names latin1"),
            ("names latin1", "names utf8mb4 collate utf8mb4_bin"),
            ("sql_mode = 'EMPTY_STRING_IS_NULL'", "sql_mode = ''"),
        ] {
            client.run(&format!("set {then}"));
            client.prepare("sets", "set @a = 'é', @b = ''");
            client.run(&format!("set {now}"));
            received.extend(client.execute("sets", &[]));
            received.extend(client.all(&["set names utf8mb4", shown]));
            other.query_later("set @a = 'x'");
            received.extend(client.all(&[shown]));
            client.reset();
            other.reply();
            received.extend(client.all(&[shown]));
        }
        received
    });
}
