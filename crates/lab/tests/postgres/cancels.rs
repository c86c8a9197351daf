//! Tests that a cancel request reaches exactly the query that it means, on any connection.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use evenkeel_lab::eventually;

use super::client::{Client, cancel};
use super::script::Script;
use super::stage::{ONE, TestBed};
use crate::harness::{DRIVERS, LIMIT};

const SLEEP: &str = "select pg_sleep(60)";

/// Waits until the server runs a query of the client with this name.
fn wait_active(name: &str) {
    let mut admin = super::stage::admin();
    let active = format!(
        "select count(*) from pg_stat_activity where state = 'active' \
         and application_name = '{name}' and datname = current_database()"
    );
    let waited = eventually(LIMIT, "a query that runs", || {
        Ok((admin.value(&active) == "1").then_some(()))
    });
    waited.unwrap();
}

#[test]
fn a_query_that_runs_is_cancelled_and_its_session_goes_on() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        for minor in [0, 2] {
            let login = super::client::Login {
                minor,
                settings: &[("application_name", "sleeper")],
                ..super::client::Login::default()
            };
            let mut client =
                Client::log_in(bed.address, &login).unwrap_or_else(|answer| panic!("{answer}"));
            for script in [
                Script::new().query(SLEEP),
                Script::new()
                    .parse("", SLEEP)
                    .bind("", &[])
                    .execute()
                    .sync(),
            ] {
                client.send_script(&script);
                wait_active("sleeper");
                let began = Instant::now();
                client.cancel();
                let reply = client.reply();
                assert!(reply.contains(&"E 57014".to_owned()), "{io}: {reply:?}");
                assert!(began.elapsed() < Duration::from_secs(20));
                assert_eq!(client.value("select 'goes on'"), "goes on");
            }
            client.run("begin");
            client.send_script(&Script::new().query(SLEEP));
            wait_active("sleeper");
            client.cancel();
            assert_eq!(client.reply(), ["T pg_sleep", "E 57014", "Z Failed"]);
            assert_eq!(client.refusal("select 1"), "25P02");
            client.run("rollback");
        }
    }
}

#[test]
fn a_client_that_waits_for_a_connection_leaves_the_line_when_it_cancels() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let (mut holder, mut waiter) = (bed.client(), bed.client());
        holder.run("begin");
        waiter.run_later("select 1");
        assert!(waiter.is_silent_for(Duration::from_millis(100)));
        waiter.cancel();
        assert_eq!(waiter.reply(), ["E 57014", "Z Idle"], "{io}");
        waiter.send_script(
            &Script::new()
                .parse("", "select 1")
                .bind("", &[])
                .execute()
                .sync(),
        );
        assert!(waiter.is_silent_for(Duration::from_millis(100)));
        waiter.cancel();
        assert_eq!(waiter.reply(), ["E 57014", "Z Idle"], "{io}");
        assert_eq!(holder.value("select 'mine'"), "mine");
        holder.run("commit");
        assert_eq!(waiter.value("select 'now'"), "now");
    }
}

#[test]
fn keys_that_nobody_has_cancel_nothing() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let mut client = Client::with(bed.address, &[("application_name", "sleeper")]);
        let (process, secret) = client.key.clone().unwrap();
        client.send_script(&Script::new().query("select pg_sleep(1)"));
        for bit in 0..32 {
            cancel(bed.address, process ^ (1 << bit), &secret);
            let mut other = secret.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            cancel(bed.address, process, &other);
        }
        cancel(bed.address, process, b"");
        cancel(bed.address, process, &[7; 200]);
        assert_eq!(client.reply()[2], "C SELECT 1", "{io}");
    }
}

/// Two clients share one server connection; one sends cancels permanently, mostly between its
/// queries.
#[test]
fn a_late_cancel_never_hits_who_has_the_connection_now() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let canceller = bed.client();
        let (process, secret) = canceller.key.clone().unwrap();
        let address = bed.address;
        let until = Instant::now() + Duration::from_secs(4);
        let cancelling = std::thread::spawn(move || {
            while Instant::now() < until {
                cancel(address, process, &secret);
            }
        });
        let querying = std::thread::spawn(move || {
            let mut canceller = canceller;
            let mut hit = 0;
            while Instant::now() < until {
                let reply = canceller.query("select pg_sleep(0.002)");
                hit += u32::from(reply.contains(&"E 57014".to_owned()));
            }
            hit
        });
        let mut victim = bed.client();
        let mut count = 0;
        while Instant::now() < until {
            let reply = victim.query("select 'untouched' from pg_sleep(0.001)");
            assert_eq!(reply[1], "D untouched", "{io}: {reply:?}");
            count += 1;
        }
        cancelling.join().unwrap();
        let hit = querying.join().unwrap();
        assert!(count > 10 && hit > 0, "{io}: {count} and {hit}");
    }
}

/// Upper limit of Linux process ids.
const PID_LIMIT: u32 = 1 << 22;

/// Number of sequential logins, on two workers.
const LOGINS: usize = 50;

#[test]
fn process_ids_are_those_of_no_process_and_each_login_has_another_one() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let mut kept = Vec::new();
        let mut seen = HashSet::new();
        for count in 0..LOGINS {
            let client = Client::with(bed.address, &[("application_name", "sleeper")]);
            let (process, _) = client.key.clone().unwrap();
            assert!(process > PID_LIMIT, "{io}: {process}");
            assert!(process.cast_signed() > 0, "{io}: {process}");
            assert!(seen.insert(process), "{io}: {count} logins");
            if count % 20 == 0 {
                kept.push(client);
            }
        }
        for mut client in kept {
            client.send_script(&Script::new().query(SLEEP));
            wait_active("sleeper");
            client.cancel();
            // The cancel request may come before the description of the rows.
            let reply = client.reply();
            assert!(reply.contains(&"E 57014".to_owned()), "{io}: {reply:?}");
        }
    }
}
