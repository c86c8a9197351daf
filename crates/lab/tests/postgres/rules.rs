//! Tests of ordered rules: rejections, outside transactions and inside, and time limits.

use std::time::Instant;

use super::client::Client;
use super::script::Script;
use super::stage::{KIND, Setup, TestBed, shared};
use crate::harness::pool::config;
use crate::harness::{DRIVERS, LIMIT};

fn of(rules: &str) -> Setup<'_> {
    Setup {
        pool: "size = 1",
        tables: rules,
        ..Setup::default()
    }
}

const REFUSING: &str = "\
    [[service.rule]]\nname = 'tried'\nactive = false\nmatch = '^select'\nreject = 'never'\n\
    [[service.rule]]\nname = 'drop'\nmatch = '^drop'\nreject = \"it's $not$ here\"\n\
    [[service.rule]]\nname = 'others'\nuser = 'somebody'\nreject = 'not you'\n";

/// Returns the number of statements that a rule matched.
fn hits(bed: &TestBed, rule: &str) -> u64 {
    let status = bed.status();
    let rules = status["database"]["rules"].as_array().unwrap().iter();
    let mut rules = rules.filter(|one| one["name"] == rule);
    rules.next().unwrap()["hits_total"].as_u64().unwrap()
}

fn prepared(name: &str, text: &str) -> Script {
    Script::new()
        .parse(name, text)
        .bind(name, &[])
        .execute()
        .sync()
}

#[test]
fn what_a_rule_refuses_reaches_no_server_and_the_session_goes_on() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, of(REFUSING));
        let mut client = bed.client();
        let refused = ["E 42501", "Z Idle"];
        for text in [
            "drop table nothing",
            " /* c */ DROP TABLE nothing;",
            "select 1; drop table nothing",
            "prepare p as drop table nothing",
        ] {
            assert_eq!(client.query(text), refused, "{io}: {text}");
        }
        for name in ["", "named"] {
            let script = prepared(name, "drop table nothing");
            assert_eq!(client.exchange(&script, 1), refused, "{io}: {name:?}");
        }
        assert_eq!(client.value("select 'on'"), "on", "{io}");
        assert_eq!(hits(&bed, "drop"), 6, "{io}");
        assert_eq!(hits(&bed, "others"), 0, "{io}");
        assert!(hits(&bed, "tried") > 0, "{io}");
    }
}

#[test]
fn what_is_refused_within_a_transaction_ends_it_as_an_error_of_the_server_does() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, of(REFUSING));
        let mut client = bed.client();
        client.run("begin");
        let refused = client.query("drop table nothing");
        assert_eq!(refused, ["E 42501", "Z Failed"], "{io}");
        assert_eq!(client.refusal("select 1"), "25P02", "{io}");
        client.run("rollback");
        // The server reports the error, with the text that we put into it.
        for name in ["", "named"] {
            client.run("begin");
            let script = prepared(name, "drop table nothing");
            assert_eq!(
                client.exchange(&script, 1),
                ["E 22P02", "Z Failed"],
                "{io}: {name:?}"
            );
            client.run("rollback");
            let script = prepared(name, "select 'after'");
            let reply = client.exchange(&script, 1);
            assert_eq!(reply, ["1", "2", "D after", "C SELECT 1", "Z Idle"], "{io}");
            let close = Script::new().close(name).sync();
            assert_eq!(client.exchange(&close, 1), ["3", "Z Idle"], "{io}");
        }
        // Sent without waiting in between: statements that are not rejected are executed in order.
        let script = Script::new()
            .query("select 'first'")
            .query("drop table nothing")
            .query("select 'third'");
        let reply = client.exchange(&script, 3);
        let rows: Vec<_> = reply.iter().filter(|line| !line.starts_with('T')).collect();
        let expected = [
            "D first",
            "C SELECT 1",
            "Z Idle",
            "E 42501",
            "Z Idle",
            "D third",
            "C SELECT 1",
            "Z Idle",
        ];
        assert_eq!(rows, expected, "{io}");
    }
}

#[test]
fn a_reload_refuses_what_was_prepared_before() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, of(""));
        let mut client = bed.client();
        let script = Script::new().parse("p", "select 'prepared'").sync();
        assert_eq!(client.exchange(&script, 1), ["1", "Z Idle"], "{io}");
        let rules = "[[service.rule]]\nname = 'r'\nmatch = 'prepared'\nreject = 'now'\n";
        let with = |rules: &str| config(KIND, shared(), bed.address, io, of(rules));
        bed.balancer.reload(&with(rules)).unwrap();
        let run = || Script::new().bind("p", &[]).execute().sync();
        assert_eq!(client.exchange(&run(), 1), ["E 42501", "Z Idle"], "{io}");
        client.run("begin");
        assert_eq!(client.exchange(&run(), 1), ["E 26000", "Z Failed"], "{io}");
        client.run("rollback");
        assert_eq!(hits(&bed, "r"), 2, "{io}");
        bed.balancer.reload(&with("")).unwrap();
        let reply = client.exchange(&run(), 1);
        assert_eq!(reply, ["2", "D prepared", "C SELECT 1", "Z Idle"], "{io}");
    }
}

#[test]
fn a_rule_meets_what_comes_behind_a_flush_and_what_an_earlier_batch_prepared_without_a_name() {
    let rules = "[[service.rule]]\nname = 'r'\nmatch = 'forbidden'\nreject = 'never'\n";
    for io in DRIVERS {
        let bed = TestBed::set_up(io, of(rules));
        let mut client = bed.client();
        let allowed = || {
            Script::new()
                .parse("", "select 'fine'")
                .bind("", &[])
                .execute()
                .flush()
        };
        let behind = || prepared("", "select 'forbidden'");
        let together = Script([allowed().0, behind().0].concat());
        assert_eq!(client.exchange(&together, 1), ["E 42501", "Z Idle"], "{io}");
        client.send_script(&allowed());
        let received: Vec<_> = (0..4).map(|_| client.receive_message()).collect();
        assert_eq!(received, ["1", "2", "D fine", "C SELECT 1"], "{io}");
        assert_eq!(client.exchange(&behind(), 1), ["E 22P02", "Z Idle"], "{io}");
        assert_eq!(hits(&bed, "r"), 2, "{io}");
        let with = |rules: &str| config(KIND, shared(), bed.address, io, of(rules));
        bed.balancer.reload(&with("")).unwrap();
        let prepare = Script::new()
            .parse("s", "select 's'")
            .parse("", "select 'forbidden'");
        assert_eq!(
            client.exchange(&prepare.sync(), 1),
            ["1", "1", "Z Idle"],
            "{io}"
        );
        bed.balancer.reload(&with(rules)).unwrap();
        let both = Script::new()
            .bind("s", &[])
            .execute()
            .bind("", &[])
            .execute();
        assert_eq!(
            client.exchange(&both.sync(), 1),
            ["E 42501", "Z Idle"],
            "{io}"
        );
    }
}

/// Returns whether the statement was canceled early.
fn is_cut(client: &mut Client, ask: impl Fn(&mut Client) -> Vec<String>) -> bool {
    let started = Instant::now();
    let reply = ask(client);
    let is_told = reply.contains(&"E 57014".to_owned());
    assert_eq!(
        is_told,
        started.elapsed() < LIMIT / 2 && is_told,
        "{reply:?}"
    );
    is_told
}

#[test]
fn a_rule_s_time_holds_instead_of_the_service_s() {
    let rules = "[[service.rule]]\nname = 'short'\nmatch = 'short'\ntimeout_ms = 300\n\
                 [[service.rule]]\nname = 'long'\nmatch = 'long'\ntimeout_ms = 0\n";
    for io in DRIVERS {
        let setup = Setup {
            service: "query_timeout_ms = 1000",
            ..of(rules)
        };
        let bed = TestBed::set_up(io, setup);
        let mut client = bed.client();
        let text = |text: &'static str| move |client: &mut Client| client.query(text);
        assert!(
            is_cut(&mut client, text("select pg_sleep(30) /* short */")),
            "{io}"
        );
        assert!(is_cut(&mut client, text("select pg_sleep(30)")), "{io}");
        assert!(
            !is_cut(&mut client, text("select pg_sleep(2.5) /* long */")),
            "{io}"
        );
        let script = || prepared("", "select pg_sleep(30) /* short */");
        assert!(
            is_cut(&mut client, |client| client.exchange(&script(), 1)),
            "{io}"
        );
        client.run("begin");
        assert!(
            !is_cut(&mut client, text("select pg_sleep(2.5) /* long */")),
            "{io}"
        );
        assert!(is_cut(&mut client, text("select pg_sleep(30)")), "{io}");
        client.run("rollback");
        assert_eq!((hits(&bed, "short"), hits(&bed, "long")), (2, 2), "{io}");
    }
}
