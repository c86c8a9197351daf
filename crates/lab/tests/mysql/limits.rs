//! Tests of time limits, operator actions, and KILL permissions: no other client is affected.

use std::time::{Duration, Instant};

use evenkeel_lab::eventually;
use serde_json::Value;

use super::client::{Client, Login};
use super::stage::{ONE, Setup, TestBed, sql};
use crate::harness::progress::wait_clients;
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
        let bed = TestBed::set_up(io, setup);
        let mut client = bed.client();
        let started = Instant::now();
        let reply = client.query("select sleep(30) /* too long */");
        assert!(started.elapsed() < LIMIT / 2, "{io}");
        assert!(was_ended(&reply), "{io}: {reply:?}");
        let running = "select count(*) from information_schema.processlist \
                       where info like '%too long%' and info not like '%processlist%' \
                       and db = database()";
        let is_over = || Ok((sql(running) == "0").then_some(()));
        eventually(LIMIT, "its end at the server", is_over).unwrap();
        // A wait is no query, and several short ones are no long one.
        client.run("begin");
        std::thread::sleep(Duration::from_millis(1_500));
        for _ in 0..5 {
            client.run("select sleep(0.2)");
        }
        client.run("commit");
        assert_eq!(bed.client().value("select 'free'"), "free", "{io}");
    }
}

#[test]
fn a_client_that_says_nothing_in_a_transaction_is_ended_and_its_work_undone() {
    sql("create or replace table limits_idle (a int)");
    for io in DRIVERS {
        let setup = Setup {
            service: "idle_in_transaction_timeout_ms = 700",
            ..ONE
        };
        let bed = TestBed::set_up(io, setup);
        let mut client = bed.client();
        client.run("begin");
        client.run("insert into limits_idle values (1)");
        let mut next = bed.client();
        assert_eq!(next.value("select count(*) from limits_idle"), "0", "{io}");
        // The client receives the reason with its next command.
        let reply = client.ping();
        let why = "error 1053 08S01 terminating connection due to idle-in-transaction timeout";
        assert!(reply[0].starts_with(why), "{io}: {reply:?}");
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
        let bed = TestBed::set_up(io, Setup::default());
        let mut victim = bed.client();
        let login = Login {
            user: "meddler",
            password: "meddler",
            schema: None,
            ..Login::default()
        };
        let mut meddler = Client::with(bed.address, &login);
        let number = victim.connection;
        for text in ["kill", "kill query"] {
            let reply = meddler.refusal(&format!("{text} {number}"));
            assert!(reply.starts_with("1095 "), "{io}: {reply}");
        }
        assert_eq!(victim.value("select 'alive'"), "alive");
        // A number of the server's own identifies no client here.
        let theirs = victim.backend();
        let reply = meddler.refusal(&format!("kill query {theirs}"));
        assert!(reply.starts_with("1094 "), "{io}: {reply}");
        for text in [
            &format!("kill query {theirs}; select 1"),
            &format!("prepare k from 'kill query {theirs}'"),
            &format!("execute immediate 'kill query {theirs}'"),
            "kill connection_id()",
        ] {
            let reply = victim.refusal(text);
            assert!(reply.starts_with("1235 "), "{io} {text}: {reply}");
        }
        let reply = victim.prepare("kill", "kill ?");
        assert!(reply[0].starts_with("error 1295 "), "{io}: {reply:?}");
        // A client can end its own query although the pool has no other connection.
        victim.query_later(LONG);
        let mut other = bed.client();
        eventually(LIMIT, "a query that sleeps", || {
            let clients = bed.status()["database"]["clients"].clone();
            let mut active = clients.as_array().into_iter().flatten();
            let is_it = |one: &Value| one["what"] == "active" && one["count"] == 1;
            Ok(active.any(is_it).then_some(()))
        })
        .unwrap();
        other.run(&format!("kill query {number}"));
        let reply = victim.reply();
        assert!(was_ended(&reply), "{io}: {reply:?}");
    }
}

#[test]
fn a_service_is_paused_reconnected_and_killed_as_an_operator_says() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let mut client = bed.client();
        let before = client.backend();
        done(&bed.balancer, &["reconnect", "pool"]);
        assert_ne!(client.backend(), before, "{io}");
        for command in ["pause", "reconnect"] {
            let reply = refused(&bed.balancer, &[command, "pool", "sbtest"]);
            assert!(reply.contains("the whole service"), "{io}: {reply}");
        }
        done(&bed.balancer, &["pause", "pool"]);
        client.query_later("select 'after'");
        wait_clients(&bed.balancer, "pool", "waiting", 1);
        let listed = done(&bed.balancer, &["clients", "pool"]);
        assert!(listed.contains("waiting"), "{io}: {listed}");
        assert!(listed.contains("sbtest"), "{io}: {listed}");
        done(&bed.balancer, &["resume", "pool"]);
        let reply = client.reply();
        assert!(reply.contains(&"row after".to_owned()), "{io}: {reply:?}");
        let mut victim = bed.client();
        victim.query_later(LONG);
        wait_clients(&bed.balancer, "pool", "active", 1);
        let number = victim.connection.to_string();
        done(&bed.balancer, &["kill", "pool", &number]);
        let reply = victim.reply();
        assert!(reply[0].starts_with("error 1053 "), "{io}: {reply:?}");
        let reply = victim.ping();
        assert_eq!(
            reply.last().map(String::as_str),
            Some("end"),
            "{io}: {reply:?}"
        );
        assert_eq!(client.value("select 'free'"), "free", "{io}");
    }
}

/// Returns whether the query was ended: MariaDB's sleep() returns early, or fails.
pub(crate) fn was_ended(reply: &[String]) -> bool {
    let is_it = |line: &String| line == "row 1" || line.starts_with("error 1317 ");
    reply.iter().any(is_it)
}

/// Maximum memory of an idle client that has logged in, in bytes.
const IDLE_BYTES_MAX: u64 = 5_000;

#[test]
fn an_idle_client_takes_little_memory() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, Setup::default());
        let each_bytes = bed.bytes_per_client(|| {
            let mut client = bed.client();
            assert_eq!(client.value("select 'in'"), "in");
            client
        });
        println!("{io}: {each_bytes} bytes per idle client");
        assert!(each_bytes <= IDLE_BYTES_MAX, "{io}: {each_bytes} bytes");
    }
}
