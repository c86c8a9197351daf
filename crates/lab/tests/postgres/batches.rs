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
        let mut received = other.exchange(&prepare("o", "select 'known'"), 1);
        received.extend(client.exchange(&prepare("old", "select 'old'"), 1));
        for text in ["select 'known'", "select 'new'"] {
            let batch = deallocate()
                .parse("s", text)
                .bind("s", &[])
                .execute()
                .sync();
            received.extend(client.exchange(&batch, 1));
            received.extend(client.exchange(&execute("s", &[]), 1));
            received.extend(client.exchange(&execute("old", &[]), 1));
            received.extend(other.exchange(&execute("o", &[]), 1));
        }
        received
    });
}

#[test]
fn an_error_behind_a_deallocation_undoes_neither_it_nor_what_was_prepared_before_the_error() {
    same_as_direct(ONE, |address| {
        let mut client = Client::connect(address);
        let mut received = client.exchange(&prepare("old", "select 'old'"), 1);
        let batch = deallocate()
            .parse("before", "select 'before'")
            .bind("nothing", &[])
            .parse("behind", "select 'behind'")
            .sync();
        received.extend(client.exchange(&batch, 1));
        for name in ["old", "before", "behind"] {
            received.extend(client.exchange(&execute(name, &[]), 1));
        }
        received
    });
}

#[test]
fn a_text_that_was_prepared_behind_a_deallocation_can_be_prepared_by_all() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let text = "select 'shared'";
        let batch = deallocate().parse("s", text).sync();
        bed.client().exchange(&batch, 1);
        for _ in 0..2 {
            let mut client = bed.client();
            assert_eq!(
                client.exchange(&prepare("o", text), 1),
                ["1", "Z Idle"],
                "{io}"
            );
            let received = client.exchange(&execute("o", &[]), 1);
            assert_eq!(received, ["2", "D shared", "C SELECT 1", "Z Idle"], "{io}");
        }
    }
}

#[test]
fn what_a_deallocation_takes_away_is_gone_for_the_rest_of_its_batch() {
    same_as_direct(ONE, |address| {
        let mut client = Client::connect(address);
        let mut received = Vec::new();
        let behind = [
            Script::new().bind("s", &[]).execute(),
            Script::new().describe("s"),
            Script::new().close("s").parse("s", "select 'new'"),
        ];
        for last in behind {
            received.extend(client.exchange(&prepare("s", "select 's'"), 1));
            let batch = Script([deallocate().0, last.sync().0].concat());
            received.extend(client.exchange(&batch, 1));
            received.extend(client.exchange(&execute("s", &[]), 1));
        }
        received
    });
}

/// TO SEE THIS RED: keep only parsed statements in `UnnamedStatement::replace`.
#[test]
fn the_unnamed_statement_before_an_error_remains_though_another_one_was_on_the_way() {
    same_as_direct(ONE, |address| {
        let mut client = Client::connect(address);
        let begin = Script::new().parse("", "select 'kept'").bind("none", &[]);
        let skipped = begin.parse("", "select 'skipped'").execute().sync();
        let mut received = client.exchange(&skipped, 1);
        received.extend(client.exchange(&execute("", &[]), 1));
        let begin = Script::new().parse("", "select 'kept'").parse("", "selekt");
        let failed = begin.parse("", "select 'skipped'").execute().sync();
        received.extend(client.exchange(&failed, 1));
        received.extend(client.exchange(&execute("", &[]), 1));
        received
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
        let bed = TestBed::set_up(io, ONE);
        let (mut client, mut other) = (bed.client(), bed.client());
        for one in [&mut other, &mut client] {
            let reply = one.exchange(&prepare("s", "select 'first'"), 1);
            assert_eq!(reply, ["1", "Z Idle"], "{io}");
        }
        client.run("select takes_away_unseen()");
        for _ in 0..2 {
            let answer = client.exchange(&prepare("s", "select 'second'"), 1);
            assert_eq!(answer, ["E 42P05", "Z Idle"], "{io}");
        }
        // An error in the text is reported first.
        let answer = client.exchange(&prepare("s", "selekt"), 1);
        assert_eq!(answer, ["E 42601", "Z Idle"], "{io}");
        for one in [&mut other, &mut client] {
            let reply = one.exchange(&execute("s", &[]), 1);
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
        let bed = TestBed::set_up(io, two);
        let mut client = bed.client();
        assert_eq!(
            client.exchange(&prepare("s", TEXT), 1),
            ["1", "Z Idle"],
            "{io}"
        );
        let _others = bed.elsewhere(&mut client);
        let batch = Script::new()
            .bind("s", &["0"])
            .execute()
            .parse("t", TEXT)
            .sync();
        let answer = client.exchange(&batch, 1);
        assert_eq!(answer, ["E 22012", "Z Idle"], "{io}");
        assert_eq!(
            client.exchange(&prepare("t", TEXT), 1),
            ["1", "Z Idle"],
            "{io}"
        );
    }
}

#[test]
fn what_could_not_be_executed_in_a_failed_transaction_can_be_behind_it() {
    same_as_direct(ONE, |address| {
        let mut client = Client::connect(address);
        let mut received = client.exchange(&prepare("s", "select 'there'"), 1);
        for text in [
            "begin",
            "select 1 / 0",
            "execute s",
            "rollback",
            "execute s",
        ] {
            received.extend(client.query(text));
        }
        received
    });
}

#[test]
fn an_answer_that_the_server_does_not_give_stands_before_the_rows_that_come_behind_it() {
    same_as_direct(ONE, |address| {
        let mut client = Client::connect(address);
        let rows = "select generate_series(1, 2)";
        let bound = |name: &str| Script::new().parse(name, rows).bind(name, &[]);
        let mut received = Vec::new();
        for batch in [
            bound("a").close("a").execute().sync(),
            bound("b").parse("c", rows).execute().sync(),
            bound("d").close("nothing").execute_of("", 1).close("d"),
            Script::new().execute_of("", 1).sync(),
            Script::new().query("begin").sync(),
            bound("e").execute_of("", 1).flush(),
            Script::new().close("e").execute().sync(),
        ] {
            client.send_script(&batch);
        }
        for _ in 0..6 {
            received.extend(client.reply());
        }
        received
    });
}

/// Statements that the batch prepared before its error exist in the next one.
#[test]
fn the_unnamed_statement_outlives_an_error_behind_it() {
    same_as_direct(ONE, |address| {
        let mut client = Client::connect(address);
        let mut other = Client::connect(address);
        let mut received = Vec::new();
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
            received.extend(client.exchange(&broken, 1));
            received.extend(other.query("select 'between'"));
            received.extend(client.exchange(&again, 1));
        }
        received
    });
}

/// TO SEE THIS RED: drop the unnamed statement when a Query is sent.
#[test]
fn the_unnamed_statement_outlives_a_query_that_the_server_skips() {
    same_as_direct(ONE, |address| {
        let mut client = Client::connect(address);
        let skipped = |text: &str| {
            Script::new()
                .parse("", text)
                .bind("nothing", &[])
                .query("select 'skipped'")
        };
        let mut received = client.exchange(&skipped("select 'kept'").sync(), 1);
        received.extend(client.exchange(&execute("", &[]), 1));
        let at_once = skipped("select 'kept, too'").sync().bind("", &[]).execute();
        received.extend(client.exchange(&at_once.sync(), 2));
        let executed = Script::new()
            .parse("", "select 'dropped'")
            .query("select 1");
        received.extend(client.exchange(&executed.sync(), 2));
        received.extend(client.exchange(&execute("", &[]), 1));
        let both = skipped("select 'dropped, too'").sync().query("select 1");
        received.extend(client.exchange(&both.bind("", &[]).execute().sync(), 3));
        received
    });
}

/// TO SEE THIS RED: forget the unnamed statement when a Parse of another is sent.
#[test]
fn an_unnamed_statement_remains_if_the_server_skips_the_parse_of_the_next() {
    let skipped = |batch: Script| batch.parse("", "select 'next'").sync();
    let wrong = || Script::new().bind("there_is_none", &[]).execute();
    for batch in [
        skipped(wrong()),
        skipped(wrong().parse("", "select 'between'")),
        // This one is executed: nothing of the first remains.
        skipped(Script::new().parse("", "selekt")),
        Script::new().parse("", "selekt").sync(),
    ] {
        same_as_direct(ONE, |address| {
            let (mut client, mut other) = (Client::connect(address), Client::connect(address));
            let mut received = client.exchange(&Script::new().parse("", "select 'old'").sync(), 1);
            received.extend(client.exchange(&batch, 1));
            other.run("select 1");
            for _ in 0..2 {
                received.extend(client.exchange(&execute("", &[]), 1));
            }
            received
        });
    }
}
