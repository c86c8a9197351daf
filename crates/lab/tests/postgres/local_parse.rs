//! Tests of a Parse and a Sync of a text that a server has parsed before: no connection is needed.

use std::time::Duration;

use super::client::Client;
use super::script::{execute, prepare};
use super::stage::{ONE, Setup, TestBed, same_as_direct};
use crate::harness::DRIVERS;

const PREPARED: [&str; 2] = ["1", "Z Idle"];
const SHORT: Duration = Duration::from_millis(300);

/// TO SEE THIS RED: let `Session::prepare_locally` return `None`.
#[test]
fn a_known_text_is_prepared_while_no_connection_is_free() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let (mut first, mut holder, mut other) = (bed.client(), bed.client(), bed.client());
        assert_eq!(first.exchange(&prepare("a", "select 'known'"), 1), PREPARED);
        holder.run("begin");
        for name in ["b", "c"] {
            let received = other.exchange(&prepare(name, "select 'known'"), 1);
            assert_eq!(received, PREPARED, "{io}");
        }
        other.send_script(&execute("b", &[]));
        assert!(other.is_silent_for(SHORT), "{io}");
        holder.run("commit");
        let row = ["2", "D known", "C SELECT 1", "Z Idle"];
        assert_eq!(other.reply(), row, "{io}");
        for (client, name) in [(&mut other, "c"), (&mut first, "a")] {
            assert_eq!(client.exchange(&execute(name, &[]), 1), row, "{io}");
        }
    }
}

/// TO SEE THIS RED: let `ParsedStatements::contains` return true.
#[test]
fn an_unknown_text_waits_for_a_connection() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let (mut first, mut holder, mut other) = (bed.client(), bed.client(), bed.client());
        first.exchange(&prepare("wrong", "select nothing"), 1);
        holder.run("begin");
        for text in ["select nothing", "select 'new'"] {
            other.send_script(&prepare("s", text));
            assert!(other.is_silent_for(SHORT), "{io}: {text}");
            holder.run("commit");
            other.reply();
            holder.run("begin");
        }
    }
}

/// TO SEE THIS RED: leave out the check of `taken` in `Session::prepare_locally`.
#[test]
fn names_and_changed_tables_are_as_without_a_pool() {
    same_as_direct(ONE, |address| {
        let (mut client, mut other) = (Client::connect(address), Client::connect(address));
        client.run("create table known (a int)");
        let mut received = Vec::new();
        for name in ["a", "a", "b", "c"] {
            received.extend(other.exchange(&prepare(name, "select a from known"), 1));
        }
        received.extend(other.exchange(&execute("b", &[]), 1));
        client.run("drop table known");
        received.extend(other.exchange(&prepare("gone", "select a from known"), 1));
        client.run("create table known (a text)");
        client.run("insert into known values ('text')");
        received.extend(other.exchange(&prepare("again", "select a from known"), 1));
        received.extend(other.exchange(&execute("again", &[]), 1));
        received.extend(other.query("deallocate all"));
        received.extend(other.exchange(&prepare("again", "select a from known"), 1));
        received.extend(other.exchange(&execute("again", &[]), 1));
        client.run("drop table known");
        received
    });
}

/// Texts that mean something else in another session are parsed there.
#[test]
fn a_text_whose_meaning_depends_on_the_session_is_parsed_by_a_server() {
    let two = Setup {
        pool: "size = 2",
        ..ONE
    };
    same_as_direct(two, |address| {
        let (mut client, mut other) = (Client::connect(address), Client::connect(address));
        client.run("create schema hidden");
        client.run("create table hidden.there (a int)");
        client.run("set search_path = hidden");
        let mut received = client.exchange(&prepare("s", "select a from there"), 1);
        received.extend(other.exchange(&prepare("s", "select a from there"), 1));
        client.run("create temporary table mine (a int)");
        received.extend(client.exchange(&prepare("t", "select a from mine"), 1));
        received.extend(other.exchange(&prepare("t", "select a from mine"), 1));
        client.run("drop schema hidden cascade");
        received
    });
}
