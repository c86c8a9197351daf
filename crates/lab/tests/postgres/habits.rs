//! Tests of habits of drivers and tools: none of them keeps a connection from other clients.

use super::client::Client;
use super::script::Script;
use super::stage::TestBed;
use super::uncertain::{TWO, bound};
use crate::harness::DRIVERS;

fn query(texts: &[&str]) -> (Script, usize) {
    let script = texts
        .iter()
        .fold(Script::new(), |script, text| script.query(text));
    (script, texts.len())
}

/// Habits of drivers and tools after which the server holds nothing for the client but settings:
/// each is a list of simple queries.
const HABITS: [(&str, &[&str]); 34] = [
    (
        "Flyway, tern, Atlas: a lock for migrations",
        &[
            "select pg_try_advisory_lock(7)",
            "select pg_advisory_unlock(7)",
        ],
    ),
    (
        "golang-migrate: a lock by a computed key",
        &[
            "select pg_advisory_lock(hashtext('migrations'))",
            "select pg_advisory_unlock(hashtext('migrations'))",
            "select 1",
        ],
    ),
    (
        "GoodJob: a lock in a common table expression",
        &[
            "with rows as materialized (select 11::bigint as id) \
             select id from rows where pg_try_advisory_lock(id)",
            "select pg_advisory_unlock(('x' || '000000000000000b')::bit(64)::bigint)",
        ],
    ),
    (
        "Que: locks of several jobs",
        &[
            "select pg_try_advisory_lock(21), pg_try_advisory_lock(22)",
            "select pg_advisory_unlock_all()",
        ],
    ),
    (
        "dbt: a temporary table per model",
        &[
            "create temporary table \"x__dbt_tmp\" as (select 1 as a)",
            "drop table if exists \"x__dbt_tmp\" cascade",
        ],
    ),
    (
        "Alembic, pandas: staging",
        &[
            "create temp table x (a int)",
            "insert into x values (1)",
            "drop table x",
        ],
    ),
    (
        "Airflow: staging within a transaction",
        &[
            "begin",
            "create temp table y (a int) on commit drop",
            "insert into y values (1)",
            "commit",
        ],
    ),
    (
        "a temporary view, sequence and function",
        &[
            "create temp view v as select 1",
            "create temp sequence q",
            "create function pg_temp.f() returns int language sql as 'select 1'",
            "drop view v",
            "drop sequence q",
            "drop function pg_temp.f()",
        ],
    ),
    (
        "PHP, old JDBC: a statement prepared in SQL",
        &["prepare p as select 1", "execute p", "deallocate p"],
    ),
    (
        "pg_dump: settings and a prepared statement",
        &[
            "set statement_timeout = 0",
            "set synchronize_seqscans to off",
            "set row_security = off",
            "select pg_catalog.set_config('search_path', '', false)",
            "prepare dumpfunc(pg_catalog.oid) as select $1",
            "execute dumpfunc(1)",
            "deallocate dumpfunc",
        ],
    ),
    (
        "Oban: listening ended",
        &[
            "listen \"public.oban_insert\"",
            "unlisten \"public.oban_insert\"",
        ],
    ),
    (
        "asyncpg: reset of a connection",
        &[
            "select pg_advisory_unlock_all()",
            "close all",
            "unlisten *",
            "reset all",
        ],
    ),
    (
        "Npgsql: reset of a connection",
        &["listen a", "discard all"],
    ),
    (
        "a cursor held over a commit",
        &[
            "begin; declare c cursor with hold for select 1; commit",
            "fetch c",
            "close c",
        ],
    ),
    (
        "a cursor in a transaction",
        &[
            "begin",
            "declare c cursor for select generate_series(1, 9)",
            "fetch 2 from c",
            "commit",
        ],
    ),
    (
        "Rails: first statements",
        &[
            "set client_min_messages to 'warning'",
            "set standard_conforming_strings = on",
            "set session timezone to 'UTC'",
            "select t.oid, t.typname from pg_type as t limit 1",
        ],
    ),
    (
        "pgjdbc, Hibernate: first statements",
        &[
            "set extra_float_digits = 3",
            "set application_name = 'PostgreSQL JDBC Driver'",
            "set session characteristics as transaction isolation level read committed",
            "show transaction isolation level",
        ],
    ),
    (
        "SQLAlchemy: first statements",
        &[
            "select pg_catalog.version()",
            "select current_schema()",
            "show standard_conforming_strings",
        ],
    ),
    (
        "an isolation level in a transaction",
        &[
            "begin",
            "set transaction isolation level serializable",
            "select 1",
            "commit",
        ],
    ),
    (
        "PostgREST, Hasura: settings of a transaction",
        &[
            "begin",
            "select set_config('search_path', 'public', true), \
             set_config('request.jwt.claims', '{}', true)",
            "select 1",
            "commit",
        ],
    ),
    (
        "Django: a setting by a function",
        &["select set_config('TimeZone', 'UTC', false)"],
    ),
    (
        "a setting with a computed value",
        &["select set_config('work_mem', (1 + 1) || 'MB', false)"],
    ),
    (
        "SET ROLE and back",
        &["set role sbtest", "select current_user", "reset role"],
    ),
    (
        "Liquibase, Flyway: a search path",
        &["set search_path to public, \"$user\"", "select 1"],
    ),
    (
        "a block that makes what is missing",
        &[
            "do $$ begin if not exists (select from pg_type where typname = 'text') then \
           create type missing as enum ('a'); end if; end $$",
        ],
    ),
    (
        "a block with a lock",
        &["do $$ begin perform pg_advisory_lock(9); perform pg_advisory_unlock(9); end $$"],
    ),
    (
        "a block with dynamic SQL",
        &["do $$ begin execute 'select ' || 1; end $$"],
    ),
    (
        "a lock of a transaction",
        &["begin", "select pg_advisory_xact_lock(5)", "commit"],
    ),
    (
        "a large object",
        &["begin", "select lo_unlink(lo_create(0)) > 0", "commit"],
    ),
    (
        "PL/pgSQL with an error that is caught",
        &["do $$ begin perform 1 / 0; exception when division_by_zero then null; end $$"],
    ),
    (
        "the planner's settings for one report",
        &[
            "set enable_seqscan = off",
            "select 1",
            "reset enable_seqscan",
        ],
    ),
    (
        "a savepoint and its end",
        &[
            "begin",
            "savepoint a",
            "set work_mem = '3MB'",
            "rollback to a",
            "commit",
        ],
    ),
    (
        "psql: a description of a table",
        &["select c.oid from pg_catalog.pg_class c where c.relname \
             operator(pg_catalog.~) '^(pg_class)$' collate pg_catalog.default"],
    ),
    ("a check before use", &["", ";", "/* ping */ select 1"]),
];

/// Habits of drivers that use the extended protocol, and of bulk loads.
fn bound_habits() -> Vec<(Script, usize)> {
    let long = format!("select length('{}')", "x".repeat(2 << 20));
    let asyncpg = "select current_setting('jit') as cur, set_config('jit', 'off', false) as new";
    vec![
        bound("select set_config('app.tenant', $1, false)", &["7"]),
        bound("select set_config('work_mem', $1, false)", &["1MB"]),
        bound(asyncpg, &[]),
        query(&[&long]),
    ]
}

fn habits() -> Vec<(String, (Script, usize))> {
    let habits = HABITS.iter();
    let habits = habits.map(|(name, texts)| ((*name).to_owned(), query(texts)));
    let bound = bound_habits().into_iter().enumerate();
    let bound = bound.map(|(index, habit)| (format!("bound {index}"), habit));
    habits.chain(bound).collect()
}

/// TO SEE THIS RED: accept no offer.
#[test]
fn three_clients_with_a_habit_share_two_connections() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, TWO);
        let mut starving = Vec::new();
        for (name, habit) in &habits() {
            let mut clients: Vec<Client> = (0..3).map(|_| bed.client()).collect();
            for client in &mut clients {
                let (script, replies) = habit;
                let received = client.exchange(script, *replies);
                if let Some(error) = received.iter().find(|line| line.starts_with("E ")) {
                    starving.push(format!("{name}: {error}"));
                }
            }
            for client in &mut clients {
                let received = client.query("select 'served'");
                if received.get(1).is_none_or(|row| row != "D served") {
                    starving.push(format!("{name}: {received:?}"));
                }
            }
        }
        assert!(starving.is_empty(), "{io}: {starving:#?}");
    }
}
