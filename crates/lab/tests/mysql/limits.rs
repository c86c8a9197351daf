//! Tests of time limits, operator actions, and KILL permissions: no other client is affected.

use std::time::{Duration, Instant};

use evenkeel_lab::eventually;
use serde_json::Value;

use super::client::{Client, Login};
use super::stage::{ONE, Setup, TestBed, sql};
use crate::harness::{DRIVERS, LIMIT, done, refused};

/// Statement that sleeps until it is ended.
const LONG: &str = "select sleep(30)";

#[test]
fn a_query_that_takes_too_long_ends_at_its_server() {
    for io in DRIVERS {
        let setup = Setup {
            service: "query_timeout_ms = 600",
            ..ONE
        };
        let stage = TestBed::set(io, setup);
        let mut client = stage.client();
        let begun = Instant::now();
        let told = client.query("select sleep(30) /* too long */");
        assert!(begun.elapsed() < LIMIT / 2, "{io}");
        assert!(was_ended(&told), "{io}: {told:?}");
        let running = "select count(*) from information_schema.processlist \
                       where info like '%too long%' and info not like '%processlist%'";
        let is_over = || Ok((sql(running) == "0").then_some(()));
        eventually(LIMIT, "its end at the server", is_over).unwrap();
        // A wait is no query, and several short ones are no long one.
        client.run("begin");
        std::thread::sleep(Duration::from_millis(1_500));
        for _ in 0..5 {
            client.run("select sleep(0.2)");
        }
        client.run("commit");
        assert_eq!(stage.client().value("select 'free'"), "free", "{io}");
    }
}

#[test]
fn a_client_that_says_nothing_in_a_transaction_is_ended_and_its_work_undone() {
    sql("create or replace table sbtest.limits_idle (a int)");
    for io in DRIVERS {
        let setup = Setup {
            service: "idle_in_transaction_timeout_ms = 700",
            ..ONE
        };
        let stage = TestBed::set(io, setup);
        let mut client = stage.client();
        client.run("begin");
        client.run("insert into limits_idle values (1)");
        let mut next = stage.client();
        assert_eq!(next.value("select count(*) from limits_idle"), "0", "{io}");
        // The client receives the reason with its next command.
        let told = client.ping();
        let why = "error 1053 08S01 terminating connection due to idle-in-transaction timeout";
        assert!(told[0].starts_with(why), "{io}: {told:?}");
        assert!(
            client.was_last_word,
            "{io}: it looks like the answer to a ping"
        );
    }
}

#[test]
fn clients_of_one_user_cannot_end_those_of_another() {
    sql("drop user if exists meddler@'127.0.0.1'");
    sql("create user meddler@'127.0.0.1' identified by 'meddler'");
    for io in DRIVERS {
        let stage = TestBed::set(io, Setup::default());
        let mut victim = stage.client();
        let login = Login {
            user: "meddler",
            password: "meddler",
            schema: None,
            ..Login::default()
        };
        let mut meddler = Client::with(stage.address, &login);
        let number = victim.connection;
        for text in ["kill", "kill query"] {
            let told = meddler.refusal(&format!("{text} {number}"));
            assert!(told.starts_with("1095 "), "{io}: {told}");
        }
        assert_eq!(victim.value("select 'alive'"), "alive");
        // A number of the server's own identifies no client here.
        let theirs = victim.backend();
        let told = meddler.refusal(&format!("kill query {theirs}"));
        assert!(told.starts_with("1094 "), "{io}: {told}");
        for text in [
            &format!("kill query {theirs}; select 1"),
            &format!("prepare k from 'kill query {theirs}'"),
            &format!("execute immediate 'kill query {theirs}'"),
            "kill connection_id()",
        ] {
            let told = victim.refusal(text);
            assert!(told.starts_with("1235 "), "{io} {text}: {told}");
        }
        let told = victim.prepare("kill", "kill ?");
        assert!(told[0].starts_with("error 1295 "), "{io}: {told:?}");
        // A client can end its own query although the pool has no other connection.
        victim.query_later(LONG);
        let mut other = stage.client();
        eventually(LIMIT, "a query that sleeps", || {
            let clients = stage.status()["database"]["clients"].clone();
            let mut active = clients.as_array().into_iter().flatten();
            let is_it = |one: &Value| one["what"] == "active" && one["count"] == 1;
            Ok(active.any(is_it).then_some(()))
        })
        .unwrap();
        other.run(&format!("kill query {number}"));
        let told = victim.reply();
        assert!(was_ended(&told), "{io}: {told:?}");
    }
}

#[test]
fn a_service_is_paused_reconnected_and_killed_as_an_operator_says() {
    for io in DRIVERS {
        let stage = TestBed::set(io, ONE);
        let mut client = stage.client();
        let before = client.backend();
        done(&stage.balancer, &["reconnect", "pool"]);
        assert_ne!(client.backend(), before, "{io}");
        for command in ["pause", "reconnect"] {
            let told = refused(&stage.balancer, &[command, "pool", "sbtest"]);
            assert!(told.contains("the whole service"), "{io}: {told}");
        }
        done(&stage.balancer, &["pause", "pool"]);
        client.query_later("select 'after'");
        std::thread::sleep(Duration::from_millis(300));
        let listed = done(&stage.balancer, &["clients", "pool"]);
        assert!(listed.contains("waiting"), "{io}: {listed}");
        assert!(listed.contains("sbtest"), "{io}: {listed}");
        done(&stage.balancer, &["resume", "pool"]);
        let told = client.reply();
        assert!(told.contains(&"row after".to_owned()), "{io}: {told:?}");
        let mut victim = stage.client();
        victim.query_later(LONG);
        std::thread::sleep(Duration::from_millis(300));
        let number = victim.connection.to_string();
        done(&stage.balancer, &["kill", "pool", &number]);
        let told = victim.reply();
        assert!(told[0].starts_with("error 1053 "), "{io}: {told:?}");
        let told = victim.ping();
        assert_eq!(
            told.last().map(String::as_str),
            Some("end"),
            "{io}: {told:?}"
        );
        assert_eq!(client.value("select 'free'"), "free", "{io}");
    }
}

/// Returns whether the query was ended: MariaDB's sleep() returns early, or fails.
pub(crate) fn was_ended(told: &[String]) -> bool {
    let is_it = |line: &String| line == "row 1" || line.starts_with("error 1317 ");
    told.iter().any(is_it)
}
