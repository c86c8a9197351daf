//! Tests of commands that drop prepared statements in the middle of a batch, and of later prepares
//! in it.

use super::client::Client;
use super::script::{Script, execute, prepare};
use super::stage::{ONE, Setup, TestBed, admin, same_as_direct};
use crate::harness::DRIVERS;

fn deallocate() -> Script {
    Script::new()
        .parse("", "deallocate all")
        .bind("", &[])
        .execute()
}

#[test]
fn what_is_prepared_behind_a_deallocation_in_its_batch_is_there() {
    same_as_direct(ONE, |address| {
        let (mut client, mut other) = (Client::connect(address), Client::connect(address));
        let mut heard = other.ask(&prepare("o", "select 'known'"), 1);
        heard.extend(client.ask(&prepare("old", "select 'old'"), 1));
        for text in ["select 'known'", "select 'new'"] {
            let batch = deallocate()
                .parse("s", text)
                .bind("s", &[])
                .execute()
                .sync();
            heard.extend(client.ask(&batch, 1));
            heard.extend(client.ask(&execute("s", &[]), 1));
            heard.extend(client.ask(&execute("old", &[]), 1));
            heard.extend(other.ask(&execute("o", &[]), 1));
        }
        heard
    });
}

#[test]
fn an_error_behind_a_deallocation_undoes_neither_it_nor_what_was_prepared_before_the_error() {
    same_as_direct(ONE, |address| {
        let mut client = Client::connect(address);
        let mut heard = client.ask(&prepare("old", "select 'old'"), 1);
        let batch = deallocate()
            .parse("before", "select 'before'")
            .bind("nothing", &[])
            .parse("behind", "select 'behind'")
            .sync();
        heard.extend(client.ask(&batch, 1));
        for name in ["old", "before", "behind"] {
            heard.extend(client.ask(&execute(name, &[]), 1));
        }
        heard
    });
}

#[test]
fn a_text_that_was_prepared_behind_a_deallocation_can_be_prepared_by_all() {
    for io in DRIVERS {
        let stage = TestBed::set(io, ONE);
        let text = "select 'shared'";
        let batch = deallocate().parse("s", text).sync();
        stage.client().ask(&batch, 1);
        for _ in 0..2 {
            let mut client = stage.client();
            assert_eq!(client.ask(&prepare("o", text), 1), ["1", "Z Idle"], "{io}");
            let heard = client.ask(&execute("o", &[]), 1);
            assert_eq!(heard, ["2", "D shared", "C SELECT 1", "Z Idle"], "{io}");
        }
    }
}

#[test]
fn what_a_deallocation_takes_away_is_gone_for_the_rest_of_its_batch() {
    same_as_direct(ONE, |address| {
        let mut client = Client::connect(address);
        let mut heard = Vec::new();
        let behind = [
            Script::new().bind("s", &[]).execute(),
            Script::new().describe("s"),
            Script::new().close("s").parse("s", "select 'new'"),
        ];
        for last in behind {
            heard.extend(client.ask(&prepare("s", "select 's'"), 1));
            let batch = Script([deallocate().0, last.sync().0].concat());
            heard.extend(client.ask(&batch, 1));
            heard.extend(client.ask(&execute("s", &[]), 1));
        }
        heard
    });
}

#[test]
fn a_name_that_is_prepared_twice_leaves_what_others_share_as_it_is() {
    for io in DRIVERS {
        // Its body does not show that it drops statements.
        admin().run(
            "create or replace function takes_away_unseen() returns void language plpgsql as \
             $$ begin execute 'deallocate ' || 'all'; end $$",
        );
        let stage = TestBed::set(io, ONE);
        let (mut client, mut other) = (stage.client(), stage.client());
        for one in [&mut other, &mut client] {
            let reply = one.ask(&prepare("s", "select 'first'"), 1);
            assert_eq!(reply, ["1", "Z Idle"], "{io}");
        }
        client.run("select takes_away_unseen()");
        for _ in 0..2 {
            let told = client.ask(&prepare("s", "select 'second'"), 1);
            assert_eq!(told, ["E 42P05", "Z Idle"], "{io}");
        }
        // An error in the text is reported first.
        let told = client.ask(&prepare("s", "selekt"), 1);
        assert_eq!(told, ["E 42601", "Z Idle"], "{io}");
        for one in [&mut other, &mut client] {
            let reply = one.ask(&execute("s", &[]), 1);
            assert_eq!(reply[1..], ["D first", "C SELECT 1", "Z Idle"], "{io}");
        }
    }
}

#[test]
fn what_an_error_passed_over_is_not_prepared_though_its_text_was_on_the_way_before_it() {
    const TEXT: &str = "select 1 / $1::int";
    let two = Setup {
        pool: "size = 2",
        ..ONE
    };
    for io in DRIVERS {
        let stage = TestBed::set(io, two);
        let mut client = stage.client();
        assert_eq!(client.ask(&prepare("s", TEXT), 1), ["1", "Z Idle"], "{io}");
        let _others = stage.elsewhere(&mut client);
        let batch = Script::new()
            .bind("s", &["0"])
            .execute()
            .parse("t", TEXT)
            .sync();
        let told = client.ask(&batch, 1);
        assert_eq!(told, ["E 22012", "Z Idle"], "{io}");
        assert_eq!(client.ask(&prepare("t", TEXT), 1), ["1", "Z Idle"], "{io}");
    }
}

#[test]
fn what_could_not_be_executed_in_a_failed_transaction_can_be_behind_it() {
    same_as_direct(ONE, |address| {
        let mut client = Client::connect(address);
        let mut heard = client.ask(&prepare("s", "select 'there'"), 1);
        for text in [
            "begin",
            "select 1 / 0",
            "execute s",
            "rollback",
            "execute s",
        ] {
            heard.extend(client.query(text));
        }
        heard
    });
}

#[test]
fn an_answer_that_the_server_does_not_give_stands_before_the_rows_that_come_behind_it() {
    same_as_direct(ONE, |address| {
        let mut client = Client::connect(address);
        let rows = "select generate_series(1, 2)";
        let bound = |name: &str| Script::new().parse(name, rows).bind(name, &[]);
        let mut heard = Vec::new();
        for batch in [
            bound("a").close("a").execute().sync(),
            bound("b").parse("c", rows).execute().sync(),
            bound("d").close("nothing").execute_of("", 1).close("d"),
            Script::new().execute_of("", 1).sync(),
            Script::new().query("begin").sync(),
            bound("e").execute_of("", 1).flush(),
            Script::new().close("e").execute().sync(),
        ] {
            client.tell(&batch);
        }
        for _ in 0..6 {
            heard.extend(client.reply());
        }
        heard
    });
}

/// Statements that the batch prepared before its error exist in the next one.
#[test]
fn the_unnamed_statement_outlives_an_error_behind_it() {
    same_as_direct(ONE, |address| {
        let mut client = Client::connect(address);
        let mut other = Client::connect(address);
        let mut heard = Vec::new();
        let parsed = |text: &str| Script::new().parse("", text);
        let again = Script::new().bind("", &[]).execute().sync();
        for broken in [
            parsed("select 'kept'").bind("", &["too many"]).sync(),
            parsed("select 'kept'").execute_of("no portal", 0).sync(),
            parsed("select 'kept'")
                .bind("", &[])
                .execute()
                .bind("unknown", &[])
                .sync(),
            parsed("select 'kept'").parse("s", "selekt").sync(),
            parsed("select 'kept'").describe("unknown").sync(),
            parsed("select 'old'").parse("", "selekt").sync(),
            Script::new()
                .parse("s", "selekt")
                .parse("", "select 'never'")
                .sync(),
            parsed("select 1 / (random() * 0)::int")
                .bind("", &[])
                .execute()
                .sync(),
        ] {
            heard.extend(client.ask(&broken, 1));
            heard.extend(other.query("select 'between'"));
            heard.extend(client.ask(&again, 1));
        }
        heard
    });
}
