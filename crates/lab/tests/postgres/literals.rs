//! Tests that literals are parsed when a text is prepared, by the current settings of the client
//! that sent it.

use super::client::Client;
use super::script::{Script, execute, prepare};
use super::stage::{ONE, Setup, TestBed, same_as_direct};
use crate::harness::DRIVERS;

const TWO: Setup<'static> = Setup {
    pool: "size = 2",
    ..ONE
};

/// A setting, two values of it, and a text with a different meaning under each.
const READ_BY: [(&str, [&str; 2], &str); 10] = [
    ("timezone", ["UTC", "Europe/Berlin"], MIDNIGHT),
    (
        "datestyle",
        ["ISO, MDY", "ISO, DMY"],
        "select extract(day from date '02/03/2024')::int",
    ),
    (
        "intervalstyle",
        ["postgres", "sql_standard"],
        "select extract(epoch from interval '-1 2:00')::int",
    ),
    (
        "standard_conforming_strings",
        ["on", "off"],
        r"select length('a\\b')",
    ),
    ("client_encoding", ["UTF8", "LATIN1"], "select length('é')"),
    (
        "timezone_abbreviations",
        ["Default", "Australia"],
        "select extract(epoch from timestamptz '2024-06-01 00:00 EST')::int",
    ),
    (
        "transform_null_equals",
        ["off", "on"],
        "select (null = null) is null",
    ),
    (
        "array_nulls",
        ["on", "off"],
        "select ('{NULL}'::text[])[1] is null",
    ),
    (
        "bytea_output",
        ["hex", "escape"],
        r"select length('\x41'::bytea::text)",
    ),
    (
        "extra_float_digits",
        ["1", "-10"],
        "select length((1.0::float8 / 3)::text)",
    ),
];

const MIDNIGHT: &str = "select extract(epoch from timestamptz '2024-06-01 00:00')::int";

#[test]
fn a_text_of_two_clients_is_read_by_the_settings_of_each() {
    same_as_direct(ONE, |address| {
        let mut received = Vec::new();
        for (setting, values, text) in READ_BY {
            let mut clients = values.map(|value| {
                let mut client = Client::connect(address);
                client.run(&format!("set {setting} to '{value}'"));
                client
            });
            for client in &mut clients {
                received.extend(client.exchange(&prepare("s", text), 1));
                received.extend(client.exchange(&execute("s", &[]), 1));
            }
            for client in &mut clients {
                received.extend(client.exchange(&execute("s", &[]), 1));
            }
        }
        received
    });
}

/// Neither a report nor the end of a transaction has confirmed the setting yet.
#[test]
fn what_is_prepared_under_a_setting_that_is_not_settled_is_nobody_else_s() {
    for io in DRIVERS {
        for sets in [
            Script::new()
                .parse("", "set timezone to 'Asia/Tokyo'")
                .bind("", &[])
                .execute(),
            Script::new().query("begin; set local timezone to 'Asia/Tokyo'"),
            Script::new().query("begin; set timezone to 'Asia/Tokyo'"),
            Script::new().query("do $$ begin set timezone to 'Asia/Tokyo'; end $$"),
        ] {
            let bed = TestBed::set_up(io, ONE);
            let (mut mine, mut other) = (bed.client(), bed.client());
            let text = MIDNIGHT.replace("select", "select /* Tokyo, perhaps */");
            let expected = other.value(MIDNIGHT);
            mine.send_script(&sets.parse("s", &text).sync().query("rollback"));
            while !mine.reply().contains(&"C ROLLBACK".to_owned()) {}
            mine.run("reset all");
            other.exchange(&prepare("s", &text), 1);
            let received = other.exchange(&execute("s", &[]), 1);
            assert_eq!(received[1], format!("D {expected}"), "{io}");
        }
    }
}

#[test]
fn a_statement_that_moves_after_its_client_has_set_another_time_zone_is_nobody_else_s() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, TWO);
        let (mut mine, mut other) = (bed.client(), bed.client());
        let expected = other.value(MIDNIGHT);
        mine.exchange(&prepare("s", MIDNIGHT), 1);
        mine.run("set timezone to 'Asia/Tokyo'");
        let others = bed.elsewhere(&mut mine);
        mine.exchange(&execute("s", &[]), 1);
        other.exchange(&prepare("o", MIDNIGHT), 1);
        let received = other.exchange(&execute("o", &[]), 1);
        assert_eq!(received[1], format!("D {expected}"), "{io}");
        drop(others);
    }
}

#[test]
fn now_and_today_are_those_of_who_prepares_them() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        for text in [
            "select timestamptz 'now'",
            "select ' Now '::timestamptz",
            "select timestamptz E'n\\x6fw'",
            "select timestamptz 'no'\n'w'",
            "select timestamptz $$now$$",
        ] {
            let (mut mine, mut other) = (bed.client(), bed.client());
            mine.exchange(&prepare("s", text), 1);
            let first = mine.exchange(&execute("s", &[]), 1);
            other.exchange(&prepare("s", text), 1);
            assert_ne!(other.exchange(&execute("s", &[]), 1), first, "{io}: {text}");
            assert_eq!(mine.exchange(&execute("s", &[]), 1), first, "{io}: {text}");
        }
    }
}

const SCHEMAS: &str = "\
    drop schema if exists shelf_a, shelf_b cascade; \
    create schema shelf_a; create schema shelf_b; \
    create table shelf_a.goods (v int); insert into shelf_a.goods values (1); \
    create table shelf_b.goods (v text); insert into shelf_b.goods values ('b')";

/// The server resolves names again by itself, and refuses objects with changed types.
#[test]
fn what_is_prepared_under_a_path_of_names_that_is_not_settled_is_nobody_else_s() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        bed.client().run(SCHEMAS);
        for (number, sets) in [
            "set local search_path = shelf_b",
            "set search_path = shelf_b",
            "select set_config('search_path', 'shelf_b', true)",
        ]
        .iter()
        .enumerate()
        {
            let (mut mine, mut other) = (bed.client(), bed.client());
            for client in [&mut mine, &mut other] {
                client.run("set search_path = shelf_a");
            }
            for text in [
                format!("select /* {number} */ v from goods"),
                format!("insert /* {number} */ into goods values ($1)"),
            ] {
                mine.run("begin");
                mine.run(sets);
                mine.exchange(&prepare("s", &text), 1);
                mine.run("rollback");
                other.exchange(&prepare("s", &text), 1);
                let values: &[&str] = if text.contains("$1") { &["7"] } else { &[] };
                let received = other.exchange(&execute("s", values), 1);
                assert!(
                    !received[0].starts_with('E'),
                    "{io}: {sets}; {text}: {received:?}"
                );
                for client in [&mut mine, &mut other] {
                    client.run("deallocate s");
                }
            }
        }
    }
}

#[test]
fn a_statement_that_moves_after_its_client_has_set_another_path_is_nobody_else_s() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, TWO);
        bed.client().run(SCHEMAS);
        let (mut mine, mut other) = (bed.client(), bed.client());
        for client in [&mut mine, &mut other] {
            client.run("set search_path = shelf_a");
        }
        let text = "insert /* moves */ into goods values ($1)";
        mine.exchange(&prepare("s", text), 1);
        mine.run("set search_path = shelf_b");
        let others = bed.elsewhere(&mut mine);
        mine.exchange(&execute("s", &["b"]), 1);
        drop(others);
        for _ in 0..4 {
            other.exchange(&prepare("s", text), 1);
            let received = other.exchange(&execute("s", &["7"]), 1);
            assert!(!received[0].starts_with('E'), "{io}: {received:?}");
            other.run("deallocate s");
        }
    }
}
