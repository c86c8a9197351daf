//! Tests of functions that statements call without naming them: their leftover state reaches no
//! other client.

use super::client::{Client, Login};
use super::stage::{ONE, TestBed, shared};
use crate::harness::DRIVERS;

/// Returns the state that belongs to the session.
const LEFT: &str = "select concat(coalesce(current_setting('app.tenant', true), ''), \
    (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()))";

const NOTHING: &str = "0";

/// These functions are declared immutable, as indexes and generated columns require.
const FUNCTIONS: &str = "
    create function enters(int) returns int language plpgsql immutable as
      $$ begin perform set_config('app.tenant', '7', false); return $1; end $$;
    create function enters(int, int) returns bool language plpgsql immutable as
      $$ begin perform set_config('app.tenant', '7', false); return $1 = $2; end $$;
    create function locks(int) returns int language plpgsql as
      $$ begin perform pg_advisory_lock(4711); return $1; end $$;
    create table plain (a int); insert into plain values (1);";

/// Creates a separate database, as its functions and tables pin every client in it.
pub(crate) fn database(name: &'static str, functions: &str, rest: &str) -> Login<'static> {
    let superuser = |database| {
        let login = Login {
            user: "postgres",
            password: "postgres",
            database,
            ..Login::default()
        };
        Client::log_in(shared().address, &login).unwrap()
    };
    let mut admin = superuser("postgres");
    admin.run(&format!("drop database if exists {name} with (force)"));
    admin.run(&format!("create database {name} owner sbtest"));
    let login = Login {
        database: name,
        ..Login::default()
    };
    let mut owner = Client::log_in(shared().address, &login).unwrap();
    owner.run(functions);
    let (own, of_admin) = rest.split_once("-- superuser").unwrap_or((rest, ""));
    owner.run(own);
    superuser(name).run(of_admin);
    login
}

/// Returns the texts that leave no state for their client, or leave some for another one.
fn wrong(login: &Login<'_>, texts: &[&str]) -> Vec<String> {
    let mut wrong = Vec::new();
    for io in DRIVERS {
        for text in texts {
            let bed = TestBed::set_as(io, ONE, login);
            let mut client = Client::log_in(bed.address, login).unwrap();
            client.run(text);
            let own = client.value(LEFT);
            client.abort(false);
            let mut other = Client::log_in(bed.address, login).unwrap();
            let others = other.value(LEFT);
            if own == NOTHING || others != NOTHING {
                wrong.push(format!("{io}: {text}: {own:?} {others:?}"));
            }
        }
    }
    wrong
}

fn check(login: &Login<'_>, texts: &[&str]) {
    let wrong = wrong(login, texts);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Checks that none of the texts pins its client to the server connection.
fn check_free(login: &Login<'_>, texts: &[&str]) {
    for io in DRIVERS {
        let bed = TestBed::set_as(io, ONE, login);
        let mut client = Client::log_in(bed.address, login).unwrap();
        let mut other = Client::log_in(bed.address, login).unwrap();
        for text in texts {
            client.run(text);
            assert_eq!(other.query("select 'free'")[1], "D free", "{io}: {text}");
        }
    }
}

#[test]
fn what_writing_to_a_table_evaluates_leaves_behind_nothing_for_anybody_else() {
    let login = database(
        "unnamed_written",
        FUNCTIONS,
        "create table checked (a int check (enters(a) > 0)); insert into checked values (1);
         create table on_column (a int, b int); alter table on_column alter b set default enters(1);
         create table generated (a int, b int generated always as (enters(a)) stored);
         create table indexed (a int); create index on indexed (enters(a));
         create table partly_indexed (a int); create index on partly_indexed (a)
           where enters(a) > 0;
         create table parts (a int) partition by list (enters(a));
         create table part partition of parts default;
         create function nothing() returns trigger language plpgsql as
           'begin return new; end';
         create table watched (a int); create trigger t before insert on watched for each row
           when (enters(new.a) > 0) execute function nothing();
         create table ruled (a int); create rule r as on insert to ruled
           where enters(new.a) > 5 do instead nothing;
         create table guarded (a int); insert into guarded values (1);
         alter table guarded enable row level security, force row level security;
         create policy p on guarded using (enters(a) > 0);
         create table guarded_in (a int); insert into guarded_in values (1);
         alter table guarded_in enable row level security, force row level security;
         create policy p on guarded_in for insert with check (enters(a) > 0);
         create view calling as select enters(1);
         create materialized view kept as select locks(1);
         select pg_advisory_unlock_all()",
    );
    check(
        &login,
        &[
            "insert into checked values (1)",
            "do 'begin insert into checked values (1); end'",
            "alter table checked alter a type int using a + 0",
            "insert into on_column values (1)",
            "insert into generated values (1)",
            "insert into indexed values (1)",
            "insert into partly_indexed values (1)",
            "insert into parts values (1)",
            "insert into watched values (1)",
            "insert into ruled values (1)",
            "select * from guarded",
            "explain select enters(1)",
            "explain select * from calling",
            "update guarded set a = 2",
            "insert into guarded_in values (1)",
            "refresh materialized view kept",
        ],
    );
    check_free(
        &login,
        &["insert into plain values (1)", "select * from checked"],
    );
}

#[test]
fn what_operators_casts_and_types_call_leaves_behind_nothing_for_anybody_else() {
    let mut found = Vec::new();
    let operator = "create operator === (leftarg = int, rightarg = int, function = enters)";
    found.extend(wrong(
        &database("unnamed_operator", FUNCTIONS, operator),
        &[
            "select 1 === 2",
            "select a from plain where a === 1",
            "values (1 === 2)",
            "update plain set a = 1 where a === 1",
            "copy (select 1 === 2) to stdout",
            "do 'begin perform 1 === 2; end'",
            "begin; declare c cursor for select a === 1 from plain; fetch c; commit",
            "prepare p as select a === 1 from plain; execute p",
            "explain analyze select 1 === 2",
            "explain select 1 === 2",
            "create table made as select 1 === 2 as a; drop table made",
        ],
    ));
    let cast = "create type pair as (a int, b int);
        create function of_pair(pair) returns int language sql immutable
          as 'select enters(($1).a)';
        create cast (pair as int) with function of_pair(pair) as assignment";
    found.extend(wrong(
        &database("unnamed_cast", FUNCTIONS, cast),
        &[
            "select row(1, 2)::pair::int",
            "insert into plain values (row(1, 2)::pair)",
        ],
    ));
    let domain = "create domain checked as int check (enters(value) > 0)";
    found.extend(wrong(
        &database("unnamed_domain", FUNCTIONS, domain),
        &["select 1::checked", "select cast(a as checked) from plain"],
    ));
    let class = "create function compares(int, int) returns int language plpgsql immutable as
          $$ begin perform enters(1); return btint4cmp($1, $2); end $$;
        create table sorted (a int);
        -- superuser
        create operator class by_code for type int using btree as operator 1 <, operator 2 <=,
          operator 3 =, operator 4 >=, operator 5 >, function 1 compares(int, int);
        create index on sorted (a by_code); insert into sorted values (1)";
    found.extend(wrong(
        &database("unnamed_class", FUNCTIONS, class),
        &["insert into sorted values (2)"],
    ));
    let aggregate = "create function sums(int, int) returns int language plpgsql as
          $$ begin perform enters(1); return $1 + $2; end $$;
        create aggregate total(int) (sfunc = sums, stype = int, initcond = '0')";
    found.extend(wrong(
        &database("unnamed_aggregate", FUNCTIONS, aggregate),
        &["select total(a) from plain"],
    ));
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn what_event_triggers_call_leaves_behind_nothing_for_anybody_else() {
    let events = "create function makes() returns void language plpgsql as
          $$ begin create table if not exists made_deep (a int); end $$;
        create materialized view kept as select 1;
        -- superuser
        create function watches() returns event_trigger language plpgsql as
          $$ begin perform set_config('app.tenant', '7', false); end $$;
        create event trigger watches on ddl_command_end execute function watches()";
    let login = database("unnamed_event", FUNCTIONS, events);
    check(
        &login,
        &[
            "create table made (a int); drop table made",
            "begin; create temp table made (a int) on commit drop; commit",
            "do 'begin create table made (a int); drop table made; end'",
            "select makes()",
            "select 1 as a into made; drop table made",
            "refresh materialized view kept",
        ],
    );
    check_free(&login, &["insert into plain values (1)", "select 1 + 1"]);
}

#[test]
fn who_makes_what_runs_unnamed_is_bound_before_anybody_has_read_it() {
    let login = database(
        "unnamed_made",
        FUNCTIONS,
        "create table late (a int); insert into late values (1)",
    );
    check(
        &login,
        &[
            "create operator ==== (leftarg = int, rightarg = int, function = enters); \
             select 1 ==== 2; drop operator ==== (int, int)",
            "create view views as select enters(1); select * from views; drop view views",
            "alter table late alter a set default enters(1); insert into late default values; \
             alter table late alter a drop default",
            "create domain made as int check (enters(value) > 0); select 1::made; \
             drop domain made",
            "create function fresh() returns int language sql as \
             $$ select set_config('app.tenant', '7', false)::int $$; \
             alter table late add b int default fresh(); drop function fresh cascade; \
             alter table late drop b",
        ],
    );
}

#[test]
fn code_that_runs_unnamed_and_leaves_nothing_behind_binds_nobody() {
    let harmless = "create function same(int, int) returns bool language plpgsql immutable as
          $$ begin perform set_config('app.tenant', '7', true); return $1 = $2; end $$;
        create operator === (leftarg = int, rightarg = int, function = same);
        create domain checked as int check (same(value, value));
        create table plain (a checked check (same(a, a)));
        -- superuser
        create function watches() returns event_trigger language plpgsql as
          $$ begin notify watched; end $$;
        create event trigger watches on ddl_command_end execute function watches()";
    check_free(
        &database("unnamed_harmless", "select 1", harmless),
        &[
            "select 1 === 2, 1::checked",
            "insert into plain values (1)",
            "create table made (a int); drop table made",
            "explain select 1 === 2",
        ],
    );
}
