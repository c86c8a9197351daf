//! Tests of prepared statements: names belong to the client, whichever server connection it gets.

use super::client::Client;
use super::script::{Script, execute, prepare};
use super::stage::{ONE, Setup, TestBed, admin, same_as_direct};
use crate::harness::DRIVERS;

const TWO: Setup<'static> = Setup {
    pool: "size = 4\nstatements_max = 2",
    service: "",
    tables: "",
    workers: 2,
};

#[test]
fn a_statement_is_there_on_whichever_server_connection_its_client_gets() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, Setup::default());
        let mut client = bed.client();
        client.exchange(&prepare("s", "select $1::int + 1"), 1);
        let there = client.exchange(&execute("s", &["41"]), 1);
        assert_eq!(there, ["2", "D 42", "C SELECT 1", "Z Idle"]);
        let _others = bed.elsewhere(&mut client);
        let described = Script::new().describe("s").sync();
        assert_eq!(
            client.exchange(&described, 1),
            ["t", "T ?column?", "Z Idle"]
        );
        let elsewhere = client.exchange(&execute("s", &["1"]), 1);
        assert_eq!(elsewhere, ["2", "D 2", "C SELECT 1", "Z Idle"]);
    }
}

#[test]
fn one_name_of_many_clients_is_the_statement_of_each() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, Setup::default());
        let mut clients: Vec<Client> = (0..8).map(|_| bed.client()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            let text = format!("select {number}, $1::text");
            assert_eq!(client.exchange(&prepare("s", &text), 1), ["1", "Z Idle"]);
        }
        for round in 0..20 {
            let script = execute("s", &[&round.to_string()]);
            for client in &mut clients {
                client.send_script(&script);
            }
            for (number, client) in clients.iter_mut().enumerate() {
                let row = format!("D {number}|{round}");
                assert_eq!(client.reply(), ["2", &row, "C SELECT 1", "Z Idle"]);
            }
        }
    }
}

#[test]
fn a_name_is_free_again_after_a_parse_that_failed() {
    same_as_direct(TWO, |address| {
        let mut client = Client::connect(address);
        [
            client.exchange(&prepare("s", "selekt 1"), 1),
            client.exchange(&execute("s", &[]), 1),
            client.exchange(&prepare("s", "select 2"), 1),
            client.exchange(&execute("s", &[]), 1),
        ]
        .concat()
    });
}

#[test]
fn a_name_that_is_taken_is_refused_and_goes_on_to_mean_what_it_meant() {
    same_as_direct(TWO, |address| {
        let mut other = Client::connect(address);
        other.exchange(&prepare("o", "select 'other'"), 1);
        let mut client = Client::connect(address);
        [
            client.exchange(&prepare("s", "select 1"), 1),
            client.exchange(&prepare("s", "select 1"), 1),
            client.exchange(&execute("s", &[]), 1),
            client.exchange(&prepare("s", "select 2"), 1),
            client.exchange(&execute("s", &[]), 1),
            client.exchange(&prepare("s", "select 'other'"), 1),
            client.exchange(&execute("s", &[]), 1),
            client.exchange(
                &Script::new()
                    .parse("t", "select 3")
                    .parse("t", "select 4")
                    .bind("t", &[])
                    .execute()
                    .sync(),
                1,
            ),
            client.exchange(&execute("t", &[]), 1),
            other.exchange(&execute("o", &[]), 1),
        ]
        .concat()
    });
}

#[test]
fn closed_and_deallocated_names_are_gone() {
    same_as_direct(TWO, |address| {
        let mut client = Client::connect(address);
        let mut received = Vec::new();
        for drop in ["close", "deallocate s", "deallocate all", "discard all"] {
            received.extend(client.exchange(&prepare("s", "select 1"), 1));
            received.extend(client.exchange(&execute("s", &[]), 1));
            received.extend(match drop {
                "close" => client.exchange(&Script::new().close("s").sync(), 1),
                text => client.query(text),
            });
            received.extend(client.exchange(&execute("s", &[]), 1));
            received.extend(client.exchange(&prepare("s", "select 'new'"), 1));
            received.extend(client.exchange(&execute("s", &[]), 1));
            received.extend(client.exchange(&Script::new().close("s").close("never").sync(), 1));
        }
        let inside = Script::new()
            .parse("s", "select 1")
            .bind("s", &[])
            .execute()
            .close("s")
            .parse("s", "select 2")
            .bind("s", &[])
            .execute()
            .sync();
        received.extend(client.exchange(&inside, 1));
        received.extend(client.query("deallocate s"));
        received.extend(client.query("deallocate s"));
        received
    });
}

/// The reply to an earlier query does not end the query that removes the statements.
#[test]
fn a_name_is_free_behind_a_deallocation_that_was_sent_behind_something_else() {
    let one = Setup {
        pool: "size = 1",
        ..TWO
    };
    same_as_direct(one, |address| {
        let mut client = Client::connect(address);
        let mut received = client.exchange(&prepare("s", "select 1"), 1);
        let script = Script::new()
            .query("select 'first'")
            .query("select pg_sleep(0.2); deallocate all")
            .parse("s", "select 2")
            .sync()
            .bind("s", &[])
            .execute()
            .sync();
        received.extend(client.exchange(&script, 4));
        let mut other = Client::connect(address);
        received.extend(other.exchange(&prepare("o", "select 1"), 1));
        received.extend(other.exchange(&execute("o", &[]), 1));
        received.extend(client.exchange(&execute("s", &[]), 1));
        received
    });
}

#[test]
fn more_statements_than_a_server_connection_keeps_all_work() {
    same_as_direct(TWO, |address| {
        let mut client = Client::connect(address);
        let mut received = Vec::new();
        for number in 0..6 {
            let (name, text) = (format!("s{number}"), format!("select {number}"));
            received.extend(client.exchange(&prepare(&name, &text), 1));
        }
        for round in 0..3 {
            let script = (0..6).fold(Script::new(), |script, number| {
                let name = format!("s{}", (number * 5 + round) % 6);
                script.bind(&name, &[]).execute().describe(&name)
            });
            received.extend(client.exchange(&script.sync(), 1));
        }
        // An error in the middle undoes the Close and Parse messages that follow it.
        let broken = Script::new()
            .bind("s0", &[])
            .execute()
            .parse("bad", "selekt")
            .bind("s3", &[])
            .execute()
            .bind("s4", &[])
            .execute()
            .sync();
        received.extend(client.exchange(&broken, 1));
        for number in 0..6 {
            received.extend(client.exchange(&execute(&format!("s{number}"), &[]), 1));
        }
        received
    });
}

#[test]
fn the_unnamed_statement_lasts_over_syncs_to_the_next_parse_or_query() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, Setup::default());
        let mut client = bed.client();
        // A move sends its own queries, which end the unnamed statement; here, other clients cause
        // the move.
        client.exchange(&prepare("", "select $1::int * 2"), 1);
        let mut others: Vec<Client> = (0..3).map(|_| bed.client()).collect();
        for (round, other) in others.iter_mut().enumerate() {
            other.run("begin");
            let received = client.exchange(&execute("", &[&round.to_string()]), 1);
            let row = format!("D {}", round * 2);
            assert_eq!(received, ["2", &row, "C SELECT 1", "Z Idle"]);
            other.exchange(&prepare("", "select 'not yours'"), 1);
        }
        let described = Script::new().describe("").sync();
        assert_eq!(
            client.exchange(&described, 1),
            ["t", "T ?column?", "Z Idle"]
        );
        client.run("select 1");
        assert_eq!(
            client.exchange(&execute("", &["1"]), 1),
            ["E 26000", "Z Idle"]
        );
    }
}

#[test]
fn an_unnamed_statement_that_was_closed_on_another_connection_is_gone() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, Setup::default());
        let mut client = bed.client();
        let mut others: Vec<Client> = (0..3).map(|_| bed.client()).collect();
        let close = || Script::new().close("");
        let gone = ["E 26000", "Z Idle"];

        client.exchange(&prepare("", "select 'mine'"), 1);
        others[0].run("begin");
        let passed_over = Script::new().bind("nosuch", &[]).close("").sync();
        assert_eq!(client.exchange(&passed_over, 1), gone, "{io}");
        let own = client.exchange(&execute("", &[]), 1);
        assert_eq!(own, ["2", "D mine", "C SELECT 1", "Z Idle"], "{io}");

        others[1].run("begin");
        assert_eq!(client.exchange(&close().sync(), 1), ["3", "Z Idle"], "{io}");
        assert_eq!(client.exchange(&execute("", &[]), 1), gone, "{io}");

        client.exchange(&prepare("", "select 'mine'"), 1);
        others[2].run("begin");
        let at_once = client.exchange(&close().describe("").sync(), 1);
        assert_eq!(at_once, ["3", "E 26000", "Z Idle"], "{io}");
    }
}

#[test]
fn a_failed_parse_leaves_no_unnamed_statement() {
    same_as_direct(TWO, |address| {
        let mut client = Client::connect(address);
        [
            client.exchange(&prepare("", "select 1"), 1),
            client.exchange(&prepare("", "selekt"), 1),
            client.exchange(&execute("", &[]), 1),
            client.exchange(&prepare("", "select 2"), 1),
            client.exchange(&execute("", &[]), 1),
            client.query("select 3"),
            client.exchange(&execute("", &[]), 1),
        ]
        .concat()
    });
}

#[test]
fn what_stands_behind_an_error_has_not_happened() {
    same_as_direct(TWO, |address| {
        let mut client = Client::connect(address);
        let behind = Script::new()
            .parse("bad", "selekt")
            .close("s")
            .parse("s", "select 'not this'")
            .bind("s", &[])
            .execute()
            .sync()
            .bind("s", &[])
            .execute()
            .sync();
        let other = Script::new()
            .parse("s", "select 2")
            .parse("t", "select 3")
            .close("t")
            .bind("s", &[])
            .execute()
            .sync();
        [
            client.exchange(&prepare("s", "select 'this'"), 1),
            client.exchange(&behind, 2),
            client.exchange(&other, 1),
            client.exchange(&execute("s", &[]), 1),
            client.exchange(&execute("t", &[]), 1),
        ]
        .concat()
    });
}

#[test]
fn no_client_meets_the_unnamed_statement_of_another() {
    for io in DRIVERS {
        let setup = Setup {
            pool: "size = 1",
            ..Setup::default()
        };
        let bed = TestBed::set_up(io, setup);
        let (mut mine, mut other) = (bed.client(), bed.client());
        other.exchange(&prepare("", "select 'other'"), 1);
        assert_eq!(mine.exchange(&execute("", &[]), 1), ["E 26000", "Z Idle"]);
        let described = Script::new().describe("").sync();
        assert_eq!(mine.exchange(&described, 1), ["E 26000", "Z Idle"]);
        let received = other.exchange(&execute("", &[]), 1);
        assert_eq!(received, ["2", "D other", "C SELECT 1", "Z Idle"]);
        mine.run("select 'a query ends it'");
        let received = other.exchange(&execute("", &[]), 1);
        assert_eq!(received, ["2", "D other", "C SELECT 1", "Z Idle"]);
        let script = Script::new().parse("x", "select 'mine'").close("").sync();
        mine.exchange(&script, 1);
        let received = other.exchange(&execute("", &[]), 1);
        assert_eq!(received, ["2", "D other", "C SELECT 1", "Z Idle"]);
    }
}

#[test]
fn a_deallocate_that_we_answer_in_a_transaction_binds_nobody() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, super::stage::ONE);
        let mut mine = bed.client();
        mine.exchange(&prepare("s", "select 1"), 1);
        mine.run("begin");
        mine.run("deallocate s");
        mine.exchange(&prepare("t", "select 2"), 1);
        mine.run("commit");
        // There is one connection only.
        assert_eq!(bed.client().value("select 3"), "3", "{io}");
    }
}

#[test]
fn an_unnamed_statement_that_an_error_has_passed_over_is_nobody_s() {
    for io in DRIVERS {
        let setup = Setup {
            pool: "size = 1",
            ..Setup::default()
        };
        let bed = TestBed::set_up(io, setup);
        let (mut mine, mut other) = (bed.client(), bed.client());
        other.exchange(&prepare("", "select 'other'"), 1);
        let script = Script::new()
            .bind("nothing", &[])
            .parse("", "select 'mine'")
            .sync()
            .bind("", &[])
            .execute()
            .sync();
        let received = mine.exchange(&script, 2);
        assert_eq!(received, ["E 26000", "Z Idle", "E 26000", "Z Idle"], "{io}");
    }
}

#[test]
fn a_parse_behind_an_error_that_was_heard_already_leaves_the_unnamed_statement_as_it_was() {
    same_as_direct(TWO, |address| {
        let mut client = Client::connect(address);
        let mut received = Vec::new();
        for before in ["", "select 'before'"] {
            received.extend(client.exchange(&prepare("", before), 1));
            client.send_script(&Script::new().bind("nothing", &[]).flush());
            received.push(client.receive_message());
            received.extend(client.exchange(&prepare("", "select 'passed over'"), 1));
            received.extend(client.exchange(&execute("", &[]), 1));
        }
        received
    });
}

#[test]
fn a_statement_too_long_to_be_read_works_named_and_unnamed() {
    same_as_direct(Setup::default(), |address| {
        let long = format!("select 'long' /* {} */", "x".repeat(3_000_000));
        let mut client = Client::connect(address);
        [
            client.exchange(&prepare("", "select 'short'"), 1),
            client.exchange(&prepare("", &long), 1),
            client.exchange(&execute("", &[]), 1),
            client.exchange(&execute("", &[]), 1),
            client.exchange(&prepare("l", &long), 1),
            client.exchange(&execute("l", &[]), 1),
            client.query(&long),
            client.exchange(&execute("l", &[]), 1),
            client.exchange(&Script::new().close("l").sync(), 1),
            client.exchange(&execute("l", &[]), 1),
        ]
        .concat()
    });
}

/// Evenkeel's own SETs after a RESET end the unnamed statement, and the older statement must not
/// come back.
#[test]
fn an_unnamed_statement_too_long_to_be_kept_is_never_the_one_before_it() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, Setup::default());
        let mut admin = admin();
        admin.run("drop table if exists deleted; create table deleted (a int)");
        admin.run("grant all on deleted to sbtest");
        let mut client = Client::with(bed.address, &[("work_mem", "5MB")]);
        let long = format!("select 'long' /* {} */", "x".repeat(3_000_000));
        client.exchange(&prepare("r", "reset work_mem"), 1);
        client.exchange(&prepare("", "insert into deleted values (1)"), 1);
        assert_eq!(client.exchange(&prepare("", &long), 1), ["1", "Z Idle"]);
        client.exchange(&execute("r", &[]), 1);
        assert_eq!(
            client.exchange(&execute("", &[]), 1),
            ["E 26000", "Z Idle"],
            "{io}"
        );
        assert_eq!(admin.value("select count(*) from deleted"), "0", "{io}");
    }
}

#[test]
fn a_plan_whose_result_has_changed_is_refused_once_and_can_be_prepared_anew() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let mut client = bed.client();
        client.run("drop table if exists changing");
        client.run("create table changing (a int)");
        client.run("insert into changing values (1)");
        client.exchange(&prepare("s", "select * from changing"), 1);
        client.exchange(&execute("s", &[]), 1);
        let mut other = bed.client();
        other.run("alter table changing add column b int");
        assert_eq!(
            client.exchange(&execute("s", &[]), 1),
            ["E 0A000", "Z Idle"]
        );
        client.exchange(&Script::new().close("s").sync(), 1);
        client.exchange(&prepare("s", "select * from changing"), 1);
        let received = client.exchange(&execute("s", &[]), 1);
        assert_eq!(received, ["2", "D 1|NULL", "C SELECT 1", "Z Idle"], "{io}");
        // Another client that prepares the same text must not get the old plan either.
        let mut stranger = bed.client();
        stranger.exchange(&prepare("x", "select * from changing"), 1);
        let received = stranger.exchange(&execute("x", &[]), 1);
        assert_eq!(received, ["2", "D 1|NULL", "C SELECT 1", "Z Idle"], "{io}");
    }
}

#[test]
fn statements_of_sql_and_of_the_protocol_share_their_names() {
    same_as_direct(TWO, |address| {
        let mut client = Client::connect(address);
        [
            client.query("prepare q as select 5"),
            client.exchange(&execute("q", &[]), 1),
            client.query("execute q"),
            client.query("deallocate q"),
            client.query("execute q"),
            client.exchange(&prepare("p", "select $1::int as p"), 1),
            client.query("explain (costs off) execute p(7)"),
            client.query("execute p(7)"),
            client.query("create temp table of_p as execute p(8)"),
            client.query("table of_p"),
            client.query("deallocate p"),
            client.query("execute p(7)"),
            client.exchange(&execute("p", &["1"]), 1),
        ]
        .concat()
    });
}

#[test]
fn statements_that_nobody_closes_do_not_outlive_a_connection_of_another_client() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, TWO);
        for number in 0..40 {
            let mut client = bed.client();
            client.exchange(&prepare("s", &format!("select {number}")), 1);
            let row = format!("D {number}");
            let received = client.exchange(&execute("s", &[]), 1);
            assert_eq!(received, ["2", &row, "C SELECT 1", "Z Idle"]);
        }
        let mut client = bed.client();
        let kept = client.value("select count(*) from pg_prepared_statements");
        assert!(kept.parse::<u32>().unwrap() <= 2, "{kept}");
    }
}

#[test]
fn statements_that_a_function_has_taken_away_are_prepared_anew() {
    for io in DRIVERS {
        let setup = Setup {
            pool: "size = 1",
            ..Setup::default()
        };
        admin().run(
            "create or replace function takes_away() returns void language plpgsql as \
             $$ begin execute 'deallocate ' || 'all'; end $$",
        );
        let bed = TestBed::set_up(io, setup);
        let (mut mine, mut other) = (bed.client(), bed.client());
        mine.exchange(&prepare("s", "select 's'"), 1);
        other.run("select takes_away()");
        let received = mine.exchange(&execute("s", &[]), 1);
        assert_eq!(received, ["2", "D s", "C SELECT 1", "Z Idle"], "{io}");
        other.run("select takes_away()");
        let described = Script::new().describe("s").sync();
        let received = mine.exchange(&described, 1);
        assert_eq!(received, ["t", "T ?column?", "Z Idle"], "{io}");
        // In a transaction the client receives the error, once.
        mine.run("begin; select takes_away()");
        assert_eq!(
            mine.exchange(&execute("s", &[]), 1),
            ["E 26000", "Z Failed"]
        );
        mine.run("rollback");
        let received = mine.exchange(&execute("s", &[]), 1);
        assert_eq!(received, ["2", "D s", "C SELECT 1", "Z Idle"], "{io}");
    }
}

#[test]
fn a_statement_of_another_client_cannot_be_named_in_sql() {
    for io in DRIVERS {
        let setup = Setup {
            pool: "size = 1",
            ..Setup::default()
        };
        let bed = TestBed::set_up(io, setup);
        let (mut mine, mut other) = (bed.client(), bed.client());
        other.exchange(&prepare("s", "select 'other'"), 1);
        let name = mine.value("select name from pg_prepared_statements");
        for text in [
            format!("execute {name}"),
            format!("select 1; execute {}", name.to_uppercase()),
            format!("deallocate \"{name}\""),
            format!("prepare {name} as select 1"),
            format!("explain (costs off) execute {name}"),
            format!("create table stolen as execute {name}"),
        ] {
            assert_eq!(mine.refusal(&text), "42501", "{io}: {text}");
            for statement in ["", "mine"] {
                let received = mine.exchange(&prepare(statement, &text), 1);
                assert!(received[0].starts_with('E'), "{io}: {text}: {received:?}");
            }
        }
        let received = other.exchange(&execute("s", &[]), 1);
        assert_eq!(received, ["2", "D other", "C SELECT 1", "Z Idle"], "{io}");
    }
}
