//! Tests of session state that statements leave without showing it in their text or a known body.

use std::time::Duration;

use evenkeel_lab::eventually;

use super::client::Client;
use super::script::Script;
use super::stage::{ONE, TestBed, admin};
use super::unnamed::database;
use crate::harness::{DRIVERS, LIMIT, done};

const MADE: &str = "
    create function trial_makes() returns text language plpgsql as $$
      begin create table trial_hidden (a text); insert into trial_hidden values ('mine');
      return 'made'; end $$;";

/// Sets the path by a parameter only, which the text does not show.
fn in_temporary_path(texts: &[&str]) -> (Script, usize) {
    let sets = Script::new()
        .parse("", "select set_config('search_path', $1, true)")
        .bind("", &["pg_temp, public"]);
    let mut script = Script::new().query("begin");
    script.0.extend(sets.execute().sync().0);
    let script = texts.iter().fold(script, |script, text| script.query(text));
    (script.query("commit"), 3 + texts.len())
}

/// Only the login's own role may read locks.
const BLIND: &str = "-- superuser
    revoke select on pg_catalog.pg_locks from public; grant select on pg_catalog.pg_locks to sbtest;";

const MAKES: &str = "select trial_makes()";

fn makes(client: &mut Client) {
    does(client, &[MAKES]);
}

fn does(client: &mut Client, texts: &[&str]) {
    let (script, replies) = in_temporary_path(texts);
    let received = client.exchange(&script, replies);
    let is_refused = received.iter().any(|line| line.starts_with('E'));
    assert!(!is_refused, "{received:?}");
}

/// Returns the last query that the server received on a connection.
fn last_query(backend: &str) -> String {
    admin().value(&format!(
        "select query from pg_stat_activity where pid = {backend}"
    ))
}

const HIDDEN: &str = "select to_regclass('pg_temp.trial_hidden') is not null";

/// Starts a pool in front of a separate database: any other change there would restart all checks.
fn set_up(io: &str, name: &'static str) -> (TestBed, impl Fn(&TestBed) -> Client) {
    let login = database(name, MADE, "");
    let bed = TestBed::set_as(io, ONE, &login);
    (bed, move |bed: &TestBed| {
        Client::log_in(bed.address, &login).unwrap()
    })
}

/// TO SEE THIS RED: release a connection without checking for leftover state.
#[test]
fn what_a_statement_leaves_unseen_nobody_else_meets() {
    for io in DRIVERS {
        let (bed, log_in) = set_up(io, "trials_met");
        makes(&mut log_in(&bed));
        assert_eq!(log_in(&bed).value(HIDDEN), "f", "{io}: who left");
        let mut client = log_in(&bed);
        makes(&mut client);
        let own = client.value("select a from trial_hidden");
        assert_eq!(own, "mine", "{io}: it is bound");
        client.abort(false);
        assert_eq!(log_in(&bed).value(HIDDEN), "f", "{io}: who stayed");
    }
}

/// Completes the checks of all statements except the one that leaves state.
fn passes(client: &mut Client) {
    let (harmless, replies) = in_temporary_path(&["select 1"]);
    let backend = client.backend();
    let mut is_passed = || {
        client.exchange(&harmless, replies);
        last_query(&backend) == "commit"
    };
    // Again after the catalog has been read.
    assert!(
        (0..100)
            .map(|_| is_passed())
            .filter(|passed| *passed)
            .nth(20)
            .is_some()
    );
}

/// Lets the statement leave state twice: the first time it may come from an earlier one.
fn condemns(bed: &TestBed, log_in: impl Fn(&TestBed) -> Client) {
    passes(&mut log_in(bed));
    makes(&mut log_in(bed));
    makes(&mut log_in(bed));
}

/// TO SEE THIS RED: forget the result.
#[test]
fn what_has_left_something_unseen_binds_from_then_on() {
    for io in DRIVERS {
        let (bed, log_in) = set_up(io, "trials_bound");
        condemns(&bed, &log_in);
        let mut client = log_in(&bed);
        let backend = client.backend();
        makes(&mut client);
        assert_eq!(last_query(&backend), "commit", "{io}");
        let own = client.value("select a from trial_hidden");
        assert_eq!(own, "mine", "{io}");
    }
}

/// TO SEE THIS RED: do not check after statements that are known to leave state.
#[test]
fn what_is_known_to_leave_something_binds_though_its_transaction_released_as_much_before() {
    for io in DRIVERS {
        let (bed, log_in) = set_up(io, "trials_released");
        passes(&mut log_in(&bed));
        let mut client = log_in(&bed);
        for _ in 0..20 {
            does(&mut client, &["discard temp"]);
        }
        client.abort(false);
        makes(&mut log_in(&bed));
        does(&mut log_in(&bed), &["discard temp", MAKES]);
        assert_eq!(log_in(&bed).value(HIDDEN), "f", "{io}");
    }
}

/// TO SEE THIS RED: end the checks if any role has no permission for them.
#[test]
fn a_role_that_may_not_look_at_what_is_left_ends_nobody_elses_trial() {
    admin().query(
        "do $$ begin create role trial_tenant; exception when duplicate_object then null; end $$",
    );
    admin().query("grant trial_tenant to sbtest");
    for io in DRIVERS {
        let login = database("trials_blind", "", BLIND);
        let bed = TestBed::set_as(io, ONE, &login);
        let log_in = || Client::log_in(bed.address, &login).unwrap();
        let mut tenant = log_in();
        let backend = tenant.backend();
        tenant.run("set role trial_tenant");
        tenant.run("select 'of a tenant'");
        tenant.run("select 1");
        assert_ne!(tenant.backend(), backend, "{io}: nobody could look");
        tenant.abort(false);
        let mut client = log_in();
        let backend = client.backend();
        client.run("select 'of nobody', 2");
        log_in().run("select 1");
        let asked = last_query(&backend);
        assert!(asked.contains("pg_my_temp_schema"), "{io}: {asked}");
    }
}

/// TO SEE THIS RED: check each time.
#[test]
fn what_has_left_nothing_for_some_times_is_not_asked_about() {
    for io in DRIVERS {
        let (bed, log_in) = set_up(io, "trials_passed");
        let mut client = log_in(&bed);
        let backend = client.backend();
        let text = "select 'trial', 1";
        client.run(text);
        log_in(&bed).run("select 1");
        let asked = last_query(&backend);
        assert!(asked.contains("pg_my_temp_schema"), "{io}: {asked}");
        for _ in 0..20 {
            client.run(text);
        }
        assert_eq!(last_query(&backend), text, "{io}");
    }
}

/// TO SEE THIS RED: continue reading from a client during the check of its server connection.
#[test]
fn what_is_sent_and_left_while_the_server_is_asked_is_done() {
    const ROUNDS: usize = 20;
    admin().query("create table if not exists trial_left (a text)");
    admin().query("grant all on trial_left to sbtest");
    for io in DRIVERS {
        admin().query("truncate trial_left");
        let bed = TestBed::set_up(io, ONE);
        for round in 0..ROUNDS {
            let mut client = bed.client();
            client.run(&format!("select 1 as trial_{round}"));
            let text = format!("insert into trial_left values ('{round}')");
            client.send_script(&Script::new().query(&text).terminate());
            client.abort(false);
            // The next client must find the connection free: a queued client that disconnects is
            // not served.
            let count = "select count(*) from trial_left";
            let there = eventually(LIMIT, "its row", || {
                Ok((admin().value(count) == (round + 1).to_string()).then_some(()))
            });
            there.unwrap_or_else(|error| panic!("{io} {round}: {error}"));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Ways to set the modes of one transaction, each a whole transaction.
const MODES: [&[&str]; 6] = [
    &[
        "begin",
        "set transaction isolation level serializable",
        "select 1",
        "commit",
    ],
    &["begin", "set transaction read only", "select 1", "rollback"],
    &[
        "begin",
        "set transaction isolation level serializable, read only, deferrable",
        "commit",
    ],
    &[
        "begin isolation level repeatable read",
        "select 1",
        "commit",
    ],
    &[
        "begin",
        "select set_config('transaction_read_only', 'on', true)",
        "commit",
    ],
    &[
        "begin",
        "set local transaction_isolation = 'serializable'",
        "commit",
    ],
];

/// TO SEE THIS RED: treat the three settings of the transaction as leftover state.
#[test]
fn modes_of_a_transaction_pin_no_client_and_condemn_no_statement() {
    for io in DRIVERS {
        for (round, texts) in MODES.iter().enumerate() {
            let (bed, log_in) = set_up(io, "trials_modes");
            let mut first = log_in(&bed);
            texts.iter().for_each(|text| first.run(text));
            let mut second = log_in(&bed);
            let free = second.value("select 'the first is free'");
            assert_eq!(free, "the first is free", "{io} {round}");
            second.run("select 'a statement', 'of another client'");
            let mut third = log_in(&bed);
            let free = third.value("select 'the second is free'");
            assert_eq!(free, "the second is free", "{io} {round}");
            first.run("discard all");
            first.run("select 'after discard', 'all'");
            assert_eq!(third.value("select 'free'"), "free", "{io} {round}");
        }
    }
}

const MAY_MAKE: &str = "
    create function trial_may_make(make bool) returns text language plpgsql as $$
      begin if make then create table trial_hidden (a text); end if; return 'done'; end $$;";

/// TO SEE THIS RED: blame a statement whatever state its connection had before.
#[test]
fn state_of_an_earlier_client_condemns_no_statement_of_a_later_one() {
    for io in DRIVERS {
        let login = database("trials_earlier", MAY_MAKE, "");
        let bed = TestBed::set_as(io, ONE, &login);
        let log_in = || Client::log_in(bed.address, &login).unwrap();
        let mut first = log_in();
        let backend = first.backend();
        let (harmless, replies) = in_temporary_path(&["select trial_may_make(false)"]);
        let mut is_trusted = || {
            first.exchange(&harmless, replies);
            last_query(&backend) == "commit"
        };
        // Again after the catalog has been read.
        let trusted = (0..100).filter(|_| is_trusted()).nth(20);
        assert!(trusted.is_some(), "{io}");
        does(&mut first, &["select trial_may_make(true)"]);

        let new = "select 'new', 'of a later client'";
        let mut second = log_in();
        assert_eq!(second.value(HIDDEN), "t", "{io}: the table was left unseen");
        second.run(new);
        second.abort(false);

        let mut third = log_in();
        assert_eq!(third.value(HIDDEN), "f", "{io}: the connection was renewed");
        third.run(new);
        third.run(HIDDEN);
        assert_eq!(log_in().value("select 'free'"), "free", "{io}");
    }
}

/// TO SEE THIS RED: keep the verdicts over `reconnect`.
#[test]
fn renewed_connections_forget_which_statements_have_left_something() {
    for io in DRIVERS {
        let (bed, log_in) = set_up(io, "trials_renewed");
        condemns(&bed, &log_in);
        let is_condemned = || {
            let mut client = log_in(&bed);
            let backend = client.backend();
            makes(&mut client);
            last_query(&backend) == "commit"
        };
        assert!(is_condemned(), "{io}");
        done(&bed.balancer, &["reconnect", "pool"]);
        assert!(!is_condemned(), "{io}: it is on trial again");
    }
}

/// TO SEE THIS RED: leave the names out.
#[test]
fn the_log_names_the_service_the_statement_and_the_state_that_it_left() {
    for io in DRIVERS {
        let (bed, log_in) = set_up(io, "trials_named");
        condemns(&bed, &log_in);
        let line = eventually(LIMIT, "a warning", || {
            let log = bed.balancer.log();
            let mut lines = log.lines();
            let line =
                lines.find(|line| line.contains("it left state that its text does not show"));
            Ok(line.map(str::to_owned))
        });
        let line = line.unwrap_or_else(|error| panic!("{io}: {error}"));
        for part in [
            "service=\"pool\"",
            "trial_makes",
            "temporary tables (trial_hidden",
        ] {
            assert!(line.contains(part), "{io}: {part}: {line}");
        }
    }
}
