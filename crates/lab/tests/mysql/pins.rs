//! Tests that state which cannot be moved pins its client to one server connection until it ends,
//! and is removed with the client.

use std::net::SocketAddr;

use evenkeel_wire::mysql::build;
use evenkeel_wire::mysql::flags::Capabilities;
use evenkeel_wire::mysql::frontend::Code;

use super::client::{Client, Login, USUAL};
use super::stage::{
    ONE, Setup, TestBed, own_schema, same_as_at, same_as_direct, shared, start_mysql,
};
use crate::harness::{DRIVERS, LIMIT};
use evenkeel_lab::{eventually, rootfs};

const TWO: Setup<'_> = Setup {
    pool: "size = 2",
    ..ONE
};

/// Runs one client's steps, between which another client runs all disturbances.
fn undisturbed(steps: &[&str], disturbances: &[&str]) {
    same_as_direct(TWO, |address| {
        let (mut client, mut other) = (Client::connect(address), Client::connect(address));
        let mut received = Vec::new();
        for step in steps {
            received.extend(client.all(&[step]));
            received.extend(other.all(disturbances));
        }
        received
    });
}

#[test]
fn temporary_tables_are_where_their_client_is() {
    undisturbed(
        &[
            "create temporary table mine (a int)",
            "insert into mine values (1), (2)",
            "select * from mine",
            "create temporary table second select * from mine",
            "drop temporary table mine",
            "select * from mine",
            "select * from second",
            "drop table second",
        ],
        &["select * from mine", "select * from second"],
    );
}

#[test]
fn locks_are_held_by_who_took_them() {
    same_as_direct(TWO, |address| {
        let (mut client, mut other) = (Client::connect(address), Client::connect(address));
        let mut received = client.all(&[
            "select get_lock('mine', 1)",
            "select coalesce(get_lock('mine', 1), 0)",
            "select ifnull(release_lock('mine'), 0)",
        ]);
        received.extend(other.all(&["select get_lock('mine', 0)", "select is_free_lock('mine')"]));
        received.extend(client.all(&["select release_lock('mine')"]));
        received.extend(other.all(&["select get_lock('mine', 0)", "select release_all_locks()"]));
        received.extend(client.all(&[
            "drop table if exists locked",
            "create table locked (a int)",
            "lock tables locked write",
            "insert into locked values (1)",
            "select * from other.there_is_none",
            "unlock tables",
        ]));
        received.extend(other.all(&["select * from locked"]));
        received
    });
}

#[test]
fn user_variables_of_expressions_are_where_their_client_is() {
    undisturbed(
        &[
            "set @sum = 1 + 1",
            "select @sum",
            "select @sum := @sum + 1",
            "select @sum",
            "select 5 into @five",
            "select @five, @sum",
            "set @lit = 'x'",
            "select @lit, @five, @sum",
        ],
        &[
            "select @sum, @five, @lit",
            "set @sum = 'other', @five = 'other'",
        ],
    );
}

#[test]
fn what_a_statement_leaves_for_the_next_is_its_client_s_own() {
    undisturbed(
        &[
            "drop table if exists left_behind",
            "create table left_behind (a tinyint primary key)",
            // From here on such queries are expected, however late they arrive.
            "show warnings",
            "insert ignore into left_behind values (1), (1), (9999)",
            "show warnings",
            "select 1",
            "insert ignore into left_behind values (2), (2)",
            "show count(*) warnings",
            "insert ignore into left_behind values (3), (3)",
            "select @@warning_count, @@error_count",
            "selekt",
            "show errors",
            "insert into left_behind values (1)",
            "get diagnostics @n = number",
            "select @n",
            "insert into left_behind values (1)",
            "get diagnostics condition 1 @state = returned_sqlstate, @text = message_text",
            "select @state, @text",
            "select sql_calc_found_rows a from left_behind limit 1",
            "select found_rows()",
            "update left_behind set a = a + 50",
            "select row_count()",
        ],
        &["select cast('y' as signed)", "select 1 union select 2"],
    );
}

/// A client that queries immediately receives the warnings. A delayed client does not, so the test
/// tries a second time.
#[test]
fn the_first_of_all_to_ask_for_warnings_is_told_if_he_asks_at_once() {
    for io in DRIVERS {
        let is_told = || {
            let bed = TestBed::set_up(io, ONE);
            let mut client = bed.client();
            client.query("select cast('y' as signed)");
            let reply = client.query("show warnings");
            reply
                .iter()
                .any(|line| line.contains("Truncated incorrect"))
        };
        assert!((0..5).any(|_| is_told()), "{io}");
    }
}

#[test]
fn handlers_and_distributed_transactions_are_where_their_client_is() {
    undisturbed(
        &[
            "drop table if exists handled",
            "create table handled (a int primary key)",
            "insert into handled values (1), (2), (3)",
            "handler handled open",
            "handler handled read first",
            "handler handled read next",
            "handler handled close",
            "handler handled read next",
            "xa start 'mine'",
            "insert into handled values (4)",
            "xa end 'mine'",
            "xa prepare 'mine'",
            "xa commit 'mine'",
            "select count(*) from handled",
        ],
        &["handler handled read next", "select 'other'"],
    );
}

/// TO SEE THIS RED: treat SAVEPOINT as the end of a transaction.
#[test]
fn a_savepoint_that_begins_a_transaction_is_where_its_client_is() {
    same_as_direct(TWO, |address| {
        let mut client = Client::connect(address);
        let mut others = [Client::connect(address), Client::connect(address)];
        let mut received = client.all(&[
            "create or replace table of_savepoint (a int)",
            "set autocommit = 0",
            "savepoint s",
        ]);
        others[0].run("begin");
        received.extend(client.all(&[
            "insert into of_savepoint values (1)",
            "rollback to s",
            "select * from of_savepoint",
            "rollback",
        ]));
        others.iter_mut().for_each(|other| other.run("do 1"));
        received
    });
}

#[test]
fn what_binds_a_client_is_told_and_ends() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, TWO);
        let mut client = bed.client();
        let pins = || bed.status()["database"]["pins"].clone();
        let expect = |what: &str, is_so: &dyn Fn(&serde_json::Value) -> bool| {
            let waited = eventually(LIMIT, what, || Ok(is_so(&pins()).then_some(())));
            waited.unwrap_or_else(|error| panic!("{io}: {error}: {}", pins()));
        };
        let none = |pins: &serde_json::Value| *pins == serde_json::json!([]);
        for (bind, release) in [
            ("create temporary table t (a int)", "drop table t"),
            (
                "select get_lock('bound', 1)",
                "select release_lock('bound')",
            ),
            (
                "select concat(get_lock('bound', 1))",
                "select if(release_lock('bound'), 'yes', 'no')",
            ),
            ("lock tables bound read", "unlock tables"),
            ("prepare s from 'select 1'", "deallocate prepare s"),
            ("handler bound open", "handler bound close"),
        ] {
            super::stage::sql("create table if not exists bound (a int)");
            client.run(bind);
            expect(bind, &|pins| pins[0]["count"] == 1);
            client.run(release);
            expect(release, &none);
        }
        client.run("create temporary table t (a int)");
        client.reset();
        expect("a reset", &none);
    }
}

#[test]
fn what_follows_in_a_text_binds_whatever_its_beginning_is_about() {
    super::stage::sql("create or replace table event (a int)");
    for io in DRIVERS {
        let bed = TestBed::set_up(io, TWO);
        for (bind, release) in [
            (
                "alter table event comment 'x'; lock tables event write",
                "unlock tables",
            ),
            (
                "create or replace procedure follows() select 1; select get_lock('follows', 0)",
                "select release_lock('follows')",
            ),
            (
                "create temporary table package (a int)",
                "drop table package",
            ),
        ] {
            let mut client = bed.client();
            client.run(bind);
            let waited = eventually(LIMIT, bind, || {
                let pins = bed.status()["database"]["pins"].clone();
                Ok((pins[0]["count"] == 1).then_some(()))
            });
            waited.unwrap_or_else(|error| panic!("{io}: {error}"));
            client.run(release);
        }
    }
}

#[test]
fn who_may_send_one_statement_sends_one_behind_a_stored_program_too() {
    same_as_direct(ONE, |address| {
        let mut received = Client::connect(address).all(&["select 1; select 2"]);
        let login = Login {
            capabilities: USUAL.without(Capabilities::MULTI_STATEMENTS),
            ..Login::default()
        };
        let mut client = Client::with(address, &login);
        received.extend(client.all(&[
            "create or replace procedure alone() select 1; select 2",
            "create or replace procedure alone() begin select 1; select 2; end",
            "call alone()",
        ]));
        received
    });
}

/// TO SEE THIS RED: release the connection after the reset, whatever pins it.
#[test]
fn a_role_stays_through_a_reset_of_the_connection_and_is_nobody_else_s() {
    let of_mariadb = shared();
    let grant = "create role if not exists kept; grant kept to sbtest@'127.0.0.1'";
    of_mariadb.sql(grant).unwrap();
    same_as_at(of_mariadb, TWO, resets_in_a_role);
    if let Some(why) = rootfs::missing_program("mysqld") {
        println!("skipped: {why}");
        return;
    }
    let (_lab, server) = start_mysql("mysql-role");
    server.sql(grant).unwrap();
    same_as_at(&server, TWO, resets_in_a_role);
}

fn resets_in_a_role(address: SocketAddr) -> Vec<String> {
    let (mut client, mut other) = (Client::connect(address), Client::connect(address));
    let mut received = client.all(&["set role kept", "set @a = 7"]);
    for _ in 0..2 {
        received.extend(client.reset());
        // Strings may have another collation now.
        received.push(client.value("select current_role() like '%kept%', @a is null"));
        received.push(other.value("select current_role() like '%kept%'"));
    }
    received.extend(client.all(&["set role none"]));
    received.push(client.value("select current_role() like '%kept%'"));
    received
}

#[test]
fn a_role_is_gone_with_its_client_even_if_that_resets_its_connection() {
    super::stage::sql(
        "create role if not exists left_behind; grant left_behind to sbtest@'127.0.0.1'",
    );
    for pool in ["size = 1", "size = 1\nmode = \"session\""] {
        let bed = TestBed::set_up("auto", Setup { pool, ..ONE });
        let mut client = bed.client();
        client.run("set role left_behind");
        assert!(client.reset()[0].starts_with("ok "));
        client.run("select 1");
        client.quit();
        let role = bed.client().value("select current_role()");
        assert_eq!(role, "NULL", "{pool}");
    }
}

#[test]
fn a_client_that_leaves_takes_all_of_it_along() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        for with_reset in [true, false] {
            let mut leaver = bed.client();
            leaver.run("create temporary table gone (a int)");
            leaver.run("select get_lock('gone', 1)");
            leaver.run("select @gone := 5");
            leaver.run("set sql_mode = 'ANSI'");
            leaver.run("use other");
            leaver.abort(with_reset);
            let mut next = bed.client();
            assert!(next.refusal("select * from gone").starts_with("1146 "));
            let left = "select is_free_lock('gone'), @gone, database(), @@sql_mode like '%ANSI%'";
            let expected = format!("1|NULL|{}|0", own_schema());
            assert_eq!(next.value(left), expected, "{io}");
        }
    }
}

#[test]
fn a_bound_client_keeps_its_connection_and_the_others_share_the_rest() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, TWO);
        let mut bound = bed.client();
        bound.run("create temporary table mine (a int)");
        let here = bound.backend();
        let mut others: Vec<Client> = (0..4).map(|_| bed.client()).collect();
        for other in &mut others {
            assert_ne!(other.backend(), here, "{io}");
        }
        assert_eq!(bound.backend(), here);
        bound.run("drop table mine");
        bound.run("begin");
        others[0].run("begin");
        bound.run("rollback");
        others[0].run("rollback");
    }
    assert!(shared().is_running());
}

/// TO SEE THIS RED: skip a comment within an executable one; take the first of two strings as the
/// name; do not pin for refused statements that end in a string.
#[test]
fn what_the_server_reads_otherwise_than_it_seems_binds_its_client() {
    same_as_direct(TWO, |address| {
        let mut received = Vec::new();
        for (takes, name) in [
            ("select 1 /*! , /*! get_lock('nested', 1) */", "nested"),
            ("select get_lock('side', 1), 1", "side"),
            ("select get_lock('side' 'by', 1)", "sideby"),
        ] {
            let (mut client, mut other) = (Client::connect(address), Client::connect(address));
            received.extend(client.all(&[takes, "select release_lock('si' 'x')"]));
            let asks = format!("select get_lock('{name}', 0)");
            received.extend(other.all(&[&asks]));
        }
        let (mut client, mut other) = (Client::connect(address), Client::connect(address));
        received.extend(client.all(&[
            "select get_lock('one', 1)",
            "select release_lock('one' 'x')",
        ]));
        received.extend(other.all(&["select get_lock('one', 0)"]));
        received
    });
}

/// TO SEE THIS RED: use the status from before the error.
#[test]
fn who_loses_its_connection_behind_an_error_that_committed_is_not_told_to_do_it_again() {
    super::stage::sql("create or replace table committed (a int)");
    Client::connect(shared().address).run(
        "create or replace procedure commits() \
         begin insert into committed values (2); commit; signal sqlstate '45000'; end",
    );
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        for fails in ["create table committed (a int)", "call commits()"] {
            super::stage::sql("truncate committed");
            let mut client = bed.client();
            client.run("begin");
            client.run("insert into committed values (1)");
            let backend = client.backend();
            client.refusal(fails);
            super::stage::sql(&format!("kill {backend}"));
            let reply = client.query("select min(a) from committed");
            assert!(
                !reply[0].starts_with("error 1213"),
                "{io} {fails}: {reply:?}"
            );
        }
    }
}

/// The byte is a space in latin1. TO SEE THIS RED: treat it as part of a name.
#[test]
fn a_blank_beyond_ascii_hides_nothing() {
    same_as_direct(ONE, |address| {
        let (mut client, mut other) = (Client::connect(address), Client::connect(address));
        let mut received = client.all(&["set names latin1"]);
        let mut text = Vec::new();
        build::command(&mut text, Code::Query, b"select 5 into\xa0@hidden");
        client.send_packets(&text);
        received.extend(client.reply());
        other.query_later("select @hidden");
        received.extend(client.all(&["select @hidden"]));
        client.quit();
        received.extend(other.reply());
        received
    });
}
