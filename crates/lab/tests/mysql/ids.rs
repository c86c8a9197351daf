//! Tests of connection ids: they fit into a signed int, and no client receives the id of a recent
//! one.

use std::collections::HashSet;

use evenkeel_lab::eventually;
use evenkeel_wire::mysql::frontend::Code;

use super::client::Client;
use super::limits::was_ended;
use super::stage::{Setup, TestBed, sql};
use crate::harness::{DRIVERS, LIMIT};

/// Number of sequential logins, on two workers.
const LOGINS: usize = 2_000;

const SLEEP: &str = "select sleep(20) /* by a signed id */";

/// Returns the id as Connector/J, mysql_thread_id() of older libraries and many others store it.
fn signed(client: &Client) -> i32 {
    client.connection.cast_signed()
}

fn wait_for_sleep() {
    let sleeping = || {
        let query = format!(
            "select count(*) from information_schema.processlist \
             where info = '{SLEEP}' and db = database()"
        );
        Ok((sql(&query) == "1").then_some(()))
    };
    eventually(LIMIT, "a query that sleeps", sleeping).unwrap();
}

#[test]
fn thousands_of_logins_have_positive_ids_and_each_another_one() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, Setup::default());
        let mut kept = Vec::new();
        let mut seen = HashSet::new();
        for count in 0..LOGINS {
            let client = bed.client();
            assert!(signed(&client) > 0, "{io}: {}", client.connection);
            assert!(seen.insert(client.connection), "{io}: {count} logins");
            if count % 500 == 0 {
                kept.push(client);
            }
        }
        for mut client in kept {
            let id = client.connection.to_string();
            assert_eq!(client.value("select connection_id()"), id, "{io}");
        }
    }
}

#[test]
fn a_driver_that_keeps_its_id_in_a_signed_int_kills_by_it() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, Setup::default());
        let (mut victim, mut killer) = (bed.client(), bed.client());
        let id = signed(&victim);
        victim.query_later(SLEEP);
        wait_for_sleep();
        killer.run(&format!("KILL QUERY {id}"));
        let reply = victim.reply();
        assert!(was_ended(&reply), "{io}: {reply:?}");
        assert_eq!(victim.value("select 'alive'"), "alive");
        let reply = killer.command(Code::ProcessKill, &id.to_le_bytes());
        assert!(reply[0].starts_with("ok"), "{io}: {reply:?}");
        assert_eq!(victim.ping().last().map(String::as_str), Some("end"));
        // A number of the server's own is none of these.
        let theirs = killer.backend();
        let reply = killer.refusal(&format!("kill query {theirs}"));
        assert!(reply.starts_with("1094 "), "{io}: {reply}");
    }
}

/// TO SEE THIS RED: send the text as it is.
#[test]
fn the_id_is_the_client_s_in_every_text_that_selects_it() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, Setup::default());
        let (mut victim, mut killer) = (bed.client(), bed.client());
        let id = victim.connection.to_string();
        let commented = "/* app:web */ SELECT CONNECTION_ID()";
        assert_eq!(victim.value(commented), id, "{io}");
        let several = victim.value("SELECT CONNECTION_ID(), VERSION() is not null");
        assert_eq!(several, format!("{id}|1"), "{io}");
        let named = victim.value("select 1 as a, connection_id() as id from dual");
        assert_eq!(named, format!("1|{id}"), "{io}");
        let columns = victim.query("SELECT CONNECTION_ID(), 1");
        assert!(
            columns.iter().any(|line| line.contains("CONNECTION_ID()")),
            "{io}: {columns:?}"
        );
        let prepared = victim.prepare_and_execute("select connection_id()");
        assert!(
            prepared.contains(&format!("row {id}")),
            "{io}: {prepared:?}"
        );
        victim.query_later(SLEEP);
        wait_for_sleep();
        killer.run(&format!("KILL QUERY {id}"));
        let reply = victim.reply();
        assert!(was_ended(&reply), "{io}: {reply:?}");
    }
}
