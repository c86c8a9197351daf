//! What cannot be moved keeps its client on one server connection, until it is over; and is gone
//! when the client is gone.

use super::client::Client;
use super::stage::{ONE, Setup, Stage, same_as_direct, shared};
use crate::rig::{DRIVERS, LIMIT};
use evenkeel_lab::eventually;

const TWO: Setup<'_> = Setup {
    pool: "size = 2",
    ..ONE
};

/// One client's steps, between which another does its worst.
fn undisturbed(steps: &[&str], disturbances: &[&str]) {
    same_as_direct(TWO, |address| {
        let (mut client, mut other) = (Client::connect(address), Client::connect(address));
        let mut heard = Vec::new();
        for step in steps {
            heard.extend(client.all(&[step]));
            heard.extend(other.all(disturbances));
        }
        heard
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
        let mut heard = client.all(&["select get_lock('mine', 1)"]);
        heard.extend(other.all(&["select get_lock('mine', 0)", "select is_free_lock('mine')"]));
        heard.extend(client.all(&["select release_lock('mine')"]));
        heard.extend(other.all(&["select get_lock('mine', 0)", "select release_all_locks()"]));
        heard.extend(client.all(&[
            "drop table if exists locked",
            "create table locked (a int)",
            "lock tables locked write",
            "insert into locked values (1)",
            "select * from other.there_is_none",
            "unlock tables",
        ]));
        heard.extend(other.all(&["select * from locked"]));
        heard
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

#[test]
fn what_binds_a_client_is_told_and_ends() {
    for io in DRIVERS {
        let stage = Stage::set(io, TWO);
        let mut client = stage.client();
        let pins = || stage.status()["database"]["pins"].clone();
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
            ("lock tables sbtest.bound read", "unlock tables"),
            ("prepare s from 'select 1'", "deallocate prepare s"),
            ("handler sbtest.bound open", "handler bound close"),
        ] {
            super::stage::sql("create table if not exists sbtest.bound (a int)");
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
fn a_client_that_leaves_takes_all_of_it_along() {
    for io in DRIVERS {
        let stage = Stage::set(io, ONE);
        for by_reset in [true, false] {
            let mut leaver = stage.client();
            leaver.run("create temporary table gone (a int)");
            leaver.run("select get_lock('gone', 1)");
            leaver.run("select @gone := 5");
            leaver.run("set sql_mode = 'ANSI'");
            leaver.run("use other");
            leaver.vanish(by_reset);
            let mut next = stage.client();
            assert!(next.refusal("select * from gone").starts_with("1146 "));
            let left = "select is_free_lock('gone'), @gone, database(), @@sql_mode like '%ANSI%'";
            assert_eq!(next.value(left), "1|NULL|sbtest|0", "{io}");
        }
    }
}

#[test]
fn a_bound_client_keeps_its_connection_and_the_others_share_the_rest() {
    for io in DRIVERS {
        let stage = Stage::set(io, TWO);
        let mut bound = stage.client();
        bound.run("create temporary table mine (a int)");
        let here = bound.backend();
        let mut others: Vec<Client> = (0..4).map(|_| stage.client()).collect();
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
