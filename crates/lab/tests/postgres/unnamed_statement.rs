//! Tests of the unnamed prepared statement: which one exists after an error, and whose it is.

use super::client::Client;
use super::script::{Script, execute, prepare};
use super::stage::{ONE, TestBed, same_as_direct};
use crate::harness::DRIVERS;

/// TO SEE THIS RED: let a Close forget the statement before it.
#[test]
fn a_statement_exists_after_the_server_skipped_all_that_would_have_ended_it() {
    let skipped: [fn(Script) -> Script; 7] = [
        |script| script.close(""),
        |script| script.parse("", "select 'skipped'"),
        |script| script.query("select 'skipped'"),
        |script| script.query("select 'skipped'").query("select 'also'"),
        |script| script.close("").parse("", "select 'skipped'").close(""),
        |script| script.query("").parse("", "select 'skipped'"),
        |script| {
            script
                .parse("", "selekt")
                .close("")
                .query("selekt")
                .close("")
        },
    ];
    same_as_direct(ONE, |address| {
        let mut client = Client::connect(address);
        let mut received = Vec::new();
        for add in skipped {
            let before = Script::new().parse("", "select 'before'");
            for (script, replies) in [(before.clone().sync(), 2), (before, 1)] {
                let unknown = script.clone().bind("none", &[]);
                for fails in [unknown, script.parse("bad", "selekt")] {
                    let script = add(fails).sync();
                    received.extend(client.exchange(&script, replies));
                    received.extend(client.exchange(&execute("", &[]), 1));
                    // The same in one write.
                    client.send_script(&script);
                    client.send_script(&execute("", &[]));
                    received.extend((0..=replies).flat_map(|_| client.reply()));
                }
            }
        }
        received
    });
}

/// TO SEE THIS RED: send a Query in place of the client's without a note of it at the connection.
#[test]
fn a_statement_lasts_while_another_client_s_query_is_replaced_on_its_connection() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let (mut mine, mut other) = (bed.client(), bed.client());
        for text in ["select pg_backend_pid()", "deallocate s"] {
            mine.exchange(&prepare("s", "select 's'"), 1);
            other.exchange(&prepare("", "select 'other'"), 1);
            mine.run(text);
            let received = other.exchange(&execute("", &[]), 1);
            assert_eq!(
                received,
                ["2", "D other", "C SELECT 1", "Z Idle"],
                "{io}: {text}"
            );
        }
    }
}

/// TO SEE THIS RED: take a Parse that is too long to be kept for done as soon as it is sent.
#[test]
fn a_long_parse_that_the_server_skips_gives_nobody_another_client_s_statement() {
    let long = format!("select 'long' /* {} */", "x".repeat(2_000_000));
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let (mut mine, mut other) = (bed.client(), bed.client());
        other.exchange(&prepare("", "select 'other'"), 1);
        let skipped = Script::new().bind("none", &[]).parse("", &long).sync();
        assert_eq!(mine.exchange(&skipped, 1), ["E 26000", "Z Idle"], "{io}");
        let received = mine.exchange(&execute("", &[]), 1);
        assert_eq!(received, ["E 26000", "Z Idle"], "{io}");
    }
}
