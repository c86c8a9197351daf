//! Tests of sessions that may have left state on their connection: they keep it until another
//! client needs one, and then only if the server reports state there.

use std::time::Duration;

use evenkeel_lab::eventually;
use serde_json::Value;

use super::client::{Client, Login};
use super::script::Script;
use super::stage::{ONE, Setup, TestBed, admin};
use super::unnamed::database;
use crate::harness::{DRIVERS, LIMIT, done};

pub(super) const TWO: Setup<'static> = Setup {
    pool: "size = 2\nwait_ms = 3000",
    ..ONE
};

pub(super) fn bound(text: &str, values: &[&str]) -> (Script, usize) {
    let script = Script::new().parse("", text).bind("", values);
    (script.execute().sync(), 1)
}

fn does(client: &mut Client, (script, replies): &(Script, usize)) {
    let received = client.exchange(script, *replies);
    let is_refused = received.iter().any(|line| line.starts_with('E'));
    assert!(!is_refused, "{received:?}");
}

/// Statements after which the server holds something, with the reason that it reports.
const HOLDING: [(&[&str], &str, &str); 6] = [
    (
        &["select pg_advisory_lock(7)"],
        "advisory or named locks",
        "7",
    ),
    (
        &["select pg_try_advisory_lock(3, 4)"],
        "advisory or named locks",
        "3, 4",
    ),
    (
        &["create temp table held (a int)"],
        "temporary tables",
        "held",
    ),
    (&["begin; listen held; commit"], "LISTEN", "held"),
    (
        &["begin; declare held cursor with hold for select 1; commit"],
        "cursor WITH HOLD",
        "held",
    ),
    (&["prepare held as select 1"], "SQL PREPARE", "held"),
];

fn causes(bed: &TestBed) -> Vec<(String, String)> {
    let listed = done(&bed.balancer, &["clients", "pool", "--json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let clients = listed["clients"].as_array().unwrap();
    let causes = clients.iter().filter_map(|one| one["pinned_by"].as_array());
    let text = |cause: &Value, key: &str| cause[key].as_str().unwrap_or_default().to_owned();
    let causes = causes.flatten();
    causes
        .map(|cause| (text(cause, "reason"), text(cause, "object")))
        .collect()
}

/// TO SEE THIS RED: release a connection whatever the server reports.
#[test]
fn a_client_that_holds_something_keeps_its_connection_with_the_reason_that_the_server_reports() {
    for io in DRIVERS {
        for (texts, reason, object) in HOLDING {
            let bed = TestBed::set_up(io, ONE);
            let mut holder = bed.client();
            let backend = holder.backend();
            texts.iter().for_each(|text| holder.run(text));
            let mut other = bed.client();
            other.run_later("select 'waited'");
            let expected = (reason.to_owned(), object.to_owned());
            let shown = eventually(LIMIT, "the reported reason", || {
                Ok(causes(&bed).contains(&expected).then_some(()))
            });
            shown.unwrap_or_else(|error| panic!("{io}: {error}: {:?}", causes(&bed)));
            assert_eq!(holder.backend(), backend, "{io}: {reason}");
            holder.run("discard all");
            assert_eq!(other.reply()[1], "D waited", "{io}: {reason}");
        }
    }
}

/// Settings with values that their texts do not show, and the values.
const NAMED: [(&str, &str); 5] = [
    ("select set_config('app.tenant', $1, false)", "a'b \\ ä"),
    ("select set_config('work_mem', $1, false)", "3MB"),
    ("select set_config('DateStyle', $1, false)", "SQL, DMY"),
    (
        "select set_config('search_path', $1, false)",
        "\"A b\", public",
    ),
    ("select set_config('statement_timeout', $1, false)", "77s"),
];

/// TO SEE THIS RED: do not take over the settings that the server reports.
#[test]
fn settings_that_the_server_reports_follow_their_client() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let (mut client, mut other) = (bed.client(), bed.client());
        for (text, value) in NAMED {
            does(&mut client, &bound(text, &[value]));
        }
        let shown = "select concat_ws('|', current_setting('app.tenant', true), \
                     current_setting('work_mem'), current_setting('datestyle'), \
                     current_setting('search_path'), current_setting('statement_timeout'))";
        let own = "a'b \\ ä|3MB|SQL, DMY|\"A b\", public|77s";
        for _ in 0..3 {
            let others = other.value(shown);
            assert!(
                !others.contains("3MB") && !others.contains("77s"),
                "{io}: {others}"
            );
            assert!(!others.contains("a'b"), "{io}: {others}");
            assert_eq!(client.value(shown), own, "{io}");
        }
        client.run("reset all");
        assert_eq!(client.value("show work_mem"), other.value("show work_mem"));
    }
}

/// TO SEE THIS RED: read `pg_settings` although the text has the setting's name.
#[test]
fn a_setting_that_the_text_names_is_the_only_one_that_the_server_is_asked_for() {
    const BLIND: &str = "-- superuser
        revoke select on pg_catalog.pg_settings from public;";
    for io in DRIVERS {
        for (text, value) in NAMED {
            let login: Login<'static> = database("uncertain_named_only", "", BLIND);
            let bed = TestBed::set_as(io, ONE, &login);
            let log_in = || Client::log_in(bed.address, &login).unwrap();
            let (mut client, mut other) = (log_in(), log_in());
            client.run("set lock_timeout to '5s'");
            let name = text.split('\'').nth(1).unwrap();
            let current = format!("select current_setting('{name}', true)");
            for _ in 0..2 {
                does(&mut client, &bound(text, &[value]));
                let others = other.query(&current);
                let is_apart = others[1].starts_with("D ") && others[1] != format!("D {value}");
                assert!(is_apart, "{io}: {name}: {others:?}");
                assert_eq!(client.value(&current), value, "{io}");
                assert_eq!(client.value("show lock_timeout"), "5s", "{io}: {name}");
            }
            client.run("reset all");
            let reset = client.query(&current);
            let is_reset = reset == other.query(&current) || reset[1] == "D ";
            assert!(is_reset, "{io}: {name}: {reset:?}");
        }
    }
}

const TENANTS: &str = "
    create function enter_named(tenant text) returns text language plpgsql as
      $$ begin perform set_config('app.tenant', tenant, false); return tenant; end $$;
    create function enter_computed(tenant text) returns text language plpgsql as
      $$ begin perform set_config('app.' || 'tenant', tenant, false); return tenant; end $$;
    create function enter_dynamic(tenant text) returns text language plpgsql as
      $$ begin execute format('set app.%I = %L', 'tenant', tenant); return tenant; end $$;
    create table entered (tenant text);
    create function entering() returns trigger language plpgsql as
      $$ begin perform enter_computed(new.tenant); return new; end $$;
    create trigger enters before insert on entered for each row execute function entering();
    create table rows_of_tenants (tenant text, a int);
    insert into rows_of_tenants values ('7', 1), ('8', 2);
    alter table rows_of_tenants enable row level security, force row level security;
    create policy own on rows_of_tenants using (tenant = current_setting('app.tenant', true));
    grant all on entered, rows_of_tenants to public;";

const TENANT: &str = "select coalesce(current_setting('app.tenant', true), '')";

/// TO SEE THIS RED: release a connection with settings that no catalog lists.
#[test]
fn a_tenant_that_a_function_sets_is_its_clients_and_nobody_elses() {
    for io in DRIVERS {
        for enters in [
            "select enter_named('7')",
            "select enter_computed('7')",
            "select enter_dynamic('7')",
            "insert into entered values ('7')",
            "do $$ begin perform set_config('app.' || 'tenant', '7', false); end $$",
            "select set_config('app.' || 'tenant', '7', false)",
        ] {
            let login = database("uncertain_tenants", TENANTS, "");
            let bed = TestBed::set_as(io, TIRELESS, &login);
            let log_in = || Client::log_in(bed.address, &login).unwrap();
            let (mut first, mut next) = (log_in(), log_in());
            first.run(enters);
            next.run_later("select string_agg(tenant, ',') from rows_of_tenants");
            std::thread::sleep(Duration::from_millis(300));
            assert_eq!(first.value(TENANT), "7", "{io}: {enters}");
            assert_eq!(
                first.value("select a from rows_of_tenants"),
                "1",
                "{io}: {enters}"
            );
            let received = next.reply();
            let is_apart = received[0].starts_with("E 53300") || received[1] == "D NULL";
            assert!(is_apart, "{io}: {enters}: {received:?}");
            first.abort(false);
            assert_eq!(next.value(TENANT), "", "{io}: {enters}");
        }
    }
}

/// TO SEE THIS RED: ask for no setting that a function's body names.
#[test]
fn tenants_that_a_function_sets_by_name_follow_their_clients() {
    for io in DRIVERS {
        let login = database("uncertain_named", TENANTS, "");
        let bed = TestBed::set_as(io, TWO, &login);
        let log_in = || Client::log_in(bed.address, &login).unwrap();
        let known = eventually(LIMIT, "the function's body is read", || {
            let mut client = log_in();
            client.run("select enter_named('0')");
            let is_unread = |(reason, _): &(String, String)| reason.contains("not read");
            Ok((!causes(&bed).iter().any(is_unread)).then_some(()))
        });
        known.unwrap();
        let mut clients: Vec<Client> = (0..3).map(|_| log_in()).collect();
        for (index, client) in clients.iter_mut().enumerate() {
            client.run(&format!("select enter_named('{index}')"));
        }
        for _ in 0..3 {
            for (index, client) in clients.iter_mut().enumerate() {
                assert_eq!(client.value(TENANT), index.to_string(), "{io}");
            }
        }
        assert_eq!(log_in().value(TENANT), "", "{io}");
    }
}

/// A pool of one whose clients do not wait long.
const TIRELESS: Setup<'static> = Setup {
    pool: "size = 1\nwait_ms = 1000",
    ..ONE
};

const HARMLESS: &str = "
    create function enter_later(tenant text) returns text language plpgsql as
      $$ begin return tenant; end $$;
    create function of_trigger() returns trigger language plpgsql as
      $$ begin return new; end $$;
    create table entered_later (tenant text);
    create trigger enters before insert on entered_later for each row execute function of_trigger();
    grant all on entered_later to public;
    alter function enter_later(text) owner to sbtest; alter function of_trigger() owner to sbtest;";

/// TO SEE THIS RED: doubt functions only in the session that has replaced them.
#[test]
fn a_function_that_another_session_replaces_and_calls_at_once_leaves_nothing_to_others() {
    let replaced = "perform set_config('app.tenant', '7', false);";
    for io in DRIVERS {
        for (replaces, enters) in [
            (
                format!(
                    "create or replace function enter_later(tenant text) returns text \
                         language plpgsql as $$ begin {replaced} return tenant; end $$"
                ),
                "select enter_later('7')",
            ),
            (
                format!(
                    "create or replace function of_trigger() returns trigger \
                         language plpgsql as $$ begin {replaced} return new; end $$"
                ),
                "insert into entered_later values ('7')",
            ),
        ] {
            let login = database("uncertain_replaced", HARMLESS, "");
            let setup = Setup {
                pool: "size = 2\nwait_ms = 3000",
                ..ONE
            };
            let bed = TestBed::set_as(io, setup, &login);
            let log_in = || Client::log_in(bed.address, &login).unwrap();
            let (mut replacer, mut caller, mut next) = (log_in(), log_in(), log_in());
            caller.run("select 1");
            next.run("begin");
            // The caller has the other connection, which the next client then takes.
            replacer.run(&replaces);
            caller.run(enters);
            next.run("commit");
            let mut holders: Vec<Client> = (0..2).map(|_| log_in()).collect();
            for holder in &mut holders {
                holder.run("begin");
                assert_eq!(holder.value(TENANT), "", "{io}: {enters}");
            }
        }
    }
}

const MADE: &str = "
    create function hidden_makes() returns text language plpgsql as $$
      begin create table hidden_table (a text); insert into hidden_table values ('mine');
      return 'made'; end $$;";

const HIDDEN: &str = "select to_regclass('pg_temp.hidden_table') is not null";

/// Sets the path by a parameter only, which the text does not show.
fn in_temporary_path(text: &str) -> (Script, usize) {
    let sets = Script::new()
        .parse("", "select set_config('search_path', $1, true)")
        .bind("", &["pg_temp, public"]);
    let mut script = Script::new().query("begin");
    script.0.extend(sets.execute().sync().0);
    (script.query(text).query("commit"), 4)
}

/// TO SEE THIS RED: do not ask for temporary tables after a function that creates one.
#[test]
fn a_table_that_a_function_makes_in_a_temporary_path_is_its_clients_and_nobody_elses() {
    for io in DRIVERS {
        for text in [
            "select hidden_makes()",
            "create table hidden_table (a text)",
        ] {
            let login = database("uncertain_hidden", MADE, "");
            let bed = TestBed::set_as(io, TIRELESS, &login);
            let log_in = || Client::log_in(bed.address, &login).unwrap();
            let (mut first, mut next) = (log_in(), log_in());
            does(&mut first, &in_temporary_path(text));
            assert!(next.query(HIDDEN)[0].starts_with("E 53300"), "{io}: {text}");
            assert_eq!(first.value("select count(*) >= 0 from hidden_table"), "t");
            first.abort(false);
            assert_eq!(next.value(HIDDEN), "f", "{io}: {text}");
            does(&mut log_in(), &in_temporary_path(text));
            assert_eq!(log_in().value(HIDDEN), "f", "{io}: {text}");
        }
    }
}

/// TO SEE THIS RED: continue with another client while the session has sent a statement.
#[test]
fn what_a_client_sends_while_the_server_is_asked_is_done_on_its_connection() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, TWO);
        let mut clients: Vec<Client> = (0..4).map(|_| bed.client()).collect();
        for round in 0..50 {
            for (index, client) in clients.iter_mut().enumerate() {
                let value = format!("{index}-{round}");
                does(
                    client,
                    &bound("select set_config('app.mine', $1, false)", &[&value]),
                );
                client.run_later("select current_setting('app.mine')");
            }
            for (index, client) in clients.iter_mut().enumerate() {
                let expected = format!("D {index}-{round}");
                assert_eq!(client.reply()[1], expected, "{io}");
            }
        }
    }
}

/// TO SEE THIS RED: release a connection that may not be asked.
#[test]
fn a_client_whose_server_may_not_be_asked_keeps_its_connection() {
    const BLIND: &str = "-- superuser
        revoke select on pg_catalog.pg_locks from public;";
    let long = format!(
        "select length('{}'), pg_advisory_lock(11)",
        "x".repeat(2 << 20)
    );
    for io in DRIVERS {
        for text in ["select pg_advisory_lock(11)", &long] {
            let login: Login<'static> = database("uncertain_blind", "", BLIND);
            let bed = TestBed::set_as(io, TIRELESS, &login);
            let log_in = || Client::log_in(bed.address, &login).unwrap();
            let (mut first, mut next) = (log_in(), log_in());
            first.run(text);
            assert!(next.query("select 1")[0].starts_with("E 53300"), "{io}");
            assert_eq!(first.value("select pg_advisory_unlock(11)"), "t", "{io}");
            first.abort(false);
            assert_eq!(next.value("select 'free'"), "free", "{io}");
        }
    }
}

const NEVER_EQUAL: &str = "create schema other;
    create function other.never(text, text) returns bool language sql as 'select false';
    create operator other.= (leftarg = text, rightarg = text, function = other.never);";

/// TO SEE THIS RED: name an operator of the question without its schema.
#[test]
fn an_operator_in_the_clients_search_path_does_not_change_the_answer() {
    for io in DRIVERS {
        let login = database("uncertain_operator", NEVER_EQUAL, "");
        let bed = TestBed::set_as(io, TIRELESS, &login);
        let log_in = || Client::log_in(bed.address, &login).unwrap();
        let (mut first, mut next) = (log_in(), log_in());
        first.run("set search_path to other, pg_catalog");
        first.run("select pg_advisory_lock(11)");
        assert!(next.query("select 1")[0].starts_with("E 53300"), "{io}");
        assert_eq!(first.value("select pg_advisory_unlock(11)"), "t", "{io}");
    }
}

/// Ways to set the modes of one transaction, each a whole transaction.
const MODES: [&[&str]; 4] = [
    &[
        "begin",
        "set transaction isolation level serializable, read only, deferrable",
        "select 1",
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

/// TO SEE THIS RED: take the three settings of the transaction for settings of the session.
#[test]
fn modes_of_a_transaction_do_not_follow_a_client_to_its_next_connection() {
    for io in DRIVERS {
        for (round, texts) in MODES.iter().enumerate() {
            let bed = TestBed::set_up(io, ONE);
            let (mut first, mut second) = (bed.client(), bed.client());
            texts.iter().for_each(|text| first.run(text));
            does(
                &mut first,
                &bound("select set_config('work_mem', $1, false)", &["1MB"]),
            );
            for client in [&mut second, &mut first] {
                assert_eq!(client.value("show transaction_isolation"), "read committed");
                assert_eq!(
                    client.value("show transaction_read_only"),
                    "off",
                    "{io} {round}"
                );
            }
        }
    }
}

/// TO SEE THIS RED: remember no value of `lastval()`, or give the server's.
#[test]
fn two_clients_that_read_lastval_on_a_pool_of_one_get_their_own() {
    admin().run("drop table if exists asked_rows; drop sequence if exists asked_two");
    admin().run("create table asked_rows (id serial, a int); create sequence asked_two start 1000");
    admin().run("grant all on asked_rows to public");
    admin().run("grant all on sequence asked_two, asked_rows_id_seq to public");
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let (mut one, mut two) = (bed.client(), bed.client());
        // No client has asked for a value yet, so the first one may be lost with the connection.
        one.run("insert into asked_rows (a) values (1)");
        two.run("select 1");
        let received = one.query("select lastval()");
        let is_known = received[0].starts_with("E 55000") || received.len() > 2;
        assert!(is_known, "{io}: {received:?}");
        for round in 0..3 {
            one.run("insert into asked_rows (a) values (1)");
            let own = two.value("select nextval('asked_two')");
            let rows = admin().value("select last_value from asked_rows_id_seq");
            for _ in 0..2 {
                assert_eq!(one.value("select lastval()"), rows, "{io} {round}");
                assert_eq!(two.value("SELECT LASTVAL() as id"), own, "{io} {round}");
            }
            // Reads leave it as it is; a write may have drawn another value unseen.
            one.run("select count(*) from asked_rows");
            assert_eq!(one.value("select lastval()"), rows, "{io} {round}");
        }
    }
}

/// TO SEE THIS RED: forget that the connection's values are the session's own.
#[test]
fn the_first_client_that_reads_a_sequence_value_gets_it_if_no_other_used_the_connection() {
    admin().run("drop table if exists first_rows");
    admin().run("create table first_rows (id serial, a int); grant all on first_rows to public");
    admin().run("grant all on sequence first_rows_id_seq to public");
    let currval = "select currval('first_rows_id_seq')";
    for io in DRIVERS {
        for reads in ["select lastval()", currval] {
            let bed = TestBed::set_up(io, TWO);
            let (mut one, mut two) = (bed.client(), bed.client());
            one.run("insert into first_rows (a) values (1)");
            let own = admin().value("select last_value from first_rows_id_seq");
            assert_eq!(one.value(reads), own, "{io}: {reads}");
            // Newer values on another connection make those on this one outdated.
            two.run("begin");
            one.run("insert into first_rows (a) values (1)");
            let newest = admin().value("select last_value from first_rows_id_seq");
            two.run("commit");
            for _ in 0..4 {
                let received = one.query(reads);
                let is_own = received.iter().any(|line| *line == format!("D {newest}"));
                assert!(is_own || received[0].starts_with("E 55000"), "{received:?}");
            }
        }
    }
}
