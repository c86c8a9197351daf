//! Tests of functions that are unknown, or have changed since the catalog was read: their effects
//! stay with their caller.

use super::client::{Client, Login};
use super::script::Script;
use super::stage::{ONE, Setup, TestBed, shared, start_own};
use crate::harness::certificates::file_of_sbtest;
use crate::harness::pool::config;
use crate::harness::{DRIVERS, wait_until};

const TENANT: &str = "select coalesce(current_setting('app.tenant', true), '')";

/// Returns a function that sets for the session, or for its transaction only.
fn enters(for_long: bool) -> String {
    format!(
        "create or replace function fresh() returns text language plpgsql as \
         $$ begin return set_config('app.tenant', '7', {}); end $$",
        !for_long
    )
}

#[test]
fn what_a_function_leaves_behind_that_was_just_made_or_replaced_is_nobody_else_s() {
    let prepared = Script::new().parse("s", "select fresh()").bind("s", &[]);
    let calls = [
        Script::new().query("select fresh()"),
        Script::new().query("select 1 where fresh() = '7'"),
        prepared.execute().sync(),
    ];
    for io in DRIVERS {
        for is_replaced in [false, true] {
            for call in &calls {
                let mut direct = Client::connect(shared().address);
                direct.run("drop function if exists fresh()");
                if is_replaced {
                    direct.run(&enters(false));
                }
                let bed = TestBed::set_up(io, ONE);
                let mut client = bed.client();
                // Its earlier definition is cached.
                for _ in 0..3 {
                    client.query("select fresh()");
                }
                client.run(&enters(true));
                client.exchange(call, 1);
                assert_eq!(client.value(TENANT), "7", "{io}");
                client.abort(false);
                assert_eq!(bed.client().value(TENANT), "", "{io}: {is_replaced}");
            }
            let mut direct = Client::connect(shared().address);
            direct.run("drop function if exists fresh()");
            let bed = TestBed::set_up(io, ONE);
            bed.client()
                .run(&format!("{}; select fresh()", enters(true)));
            assert_eq!(bed.client().value(TENANT), "", "{io}");
        }
    }
}

const ENTERING: &str = "
    drop table if exists entering, entering_later cascade;
    create table entering (a int); create table entering_later (a int);
    insert into entering values (1);
    create or replace function on_entering() returns trigger language plpgsql as
      $$ begin perform set_config('app.tenant', '7', true); return new; end $$;
    create or replace function on_entering_later() returns trigger language plpgsql as
      $$ begin perform set_config('app.tenant', '7', false); return new; end $$;
    create trigger enters before insert on entering for each row execute function on_entering();
    create or replace view enters_now as select fresh_view();
    create or replace function enters_by_field(entering) returns text language plpgsql as
      $$ begin return set_config('app.tenant', '7', false); end $$";

#[test]
fn what_runs_by_a_trigger_a_view_or_a_field_leaves_behind_nothing_for_anybody_else() {
    let replace_trigger = "create or replace function on_entering() returns trigger \
                           language plpgsql as \
                           $$ begin perform set_config('app.tenant', '7', false); \
                           return new; end $$";
    let make_trigger = "create trigger later before insert on entering_later \
                        for each row execute function on_entering_later()";
    let makes = |for_long| enters(for_long).replace("fresh()", "fresh_view()");
    let replace_function = &makes(true);
    let mut wrong = Vec::new();
    for io in DRIVERS {
        for (changes, runs) in [
            (replace_trigger, "insert into entering values (2)"),
            (
                replace_trigger,
                "do 'begin insert into entering values (2); end'",
            ),
            (replace_function, "select * from enters_now"),
            (make_trigger, "insert into entering_later values (2)"),
            ("", "select e.enters_by_field from entering e"),
            ("", "select (e).enters_by_field from (table entering) as e"),
        ] {
            let mut direct = Client::connect(shared().address);
            direct.run(&makes(false));
            direct.run(ENTERING);
            let bed = TestBed::set_up(io, ONE);
            let mut client = bed.client();
            client.run("insert into entering values (0); select * from enters_now");
            client.query(changes);
            client.run(runs);
            let own = client.value(TENANT);
            client.abort(false);
            let others = bed.client().value(TENANT);
            if (&*own, &*others) != ("7", "") {
                wrong.push((io, changes, runs, own, others));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn what_only_looks_like_a_call_binds_nobody() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let (mut client, mut other) = (bed.client(), bed.client());
        client.run("drop table if exists plain; create table plain (a int, b text)");
        for text in [
            "insert into plain (a, b) values (1, 'x')",
            "update plain p set (a, b) = (2, 'y') where p.a in (1, 2)",
            "with w (n) as (values (1)) insert into plain as t (a) select n from w",
            "merge into plain p using (values (1)) as v (n) on (p.a = v.n) \
             when not matched then insert (a) values (v.n)",
            "select b::character varying(10), cast(a as numeric(4, 1)) from plain",
            "select a, count(*) filter (where a > 1) from plain group by rollup (a)",
            "select a from plain group by grouping sets (cube (a), ())",
            "select row_number() over (partition by (a)), now() at time zone ('UTC') from plain",
            "select a operator(pg_catalog.+) 1 from plain where b like ('x') escape ('!')",
            "select * from json_to_recordset('[]') as x (a int, b varchar(3)) offset (0)",
            "select interval '1' second(3), time(3) '10:00', coalesce(null, greatest(1, 2))",
            "select xmlelement(name e, xmlattributes(a as x)), trim(both ('x') from b) from plain",
            "select * from xmltable('/r' passing ('<r/>') columns a int path '@a')",
            "copy (select a from plain) to stdout (format csv)",
            "copy plain (a, b) to stdout with (format csv, force_quote (b))",
            "analyze plain (a)",
            "explain (analyze, costs off) select a from plain fetch first (1) rows only",
            "prepare p (character varying(3)) as select $1; deallocate all",
        ] {
            client.run(text);
            assert_eq!(other.query("select 'free'")[1], "D free", "{io}: {text}");
        }
    }
}

#[test]
fn what_code_prepares_or_holds_open_is_nobody_else_s() {
    const EXECUTE: (&str, &str) = ("execute left_over", "26000");
    const FETCH: (&str, &str) = ("fetch all left_over", "34000");
    let block = "do $$ begin prepare left_over as select 'mine'; end $$";
    let mut direct = Client::connect(shared().address);
    for (name, code) in [
        ("prepares_one", "prepare left_over as select ''mine''"),
        (
            "prepares_text",
            "execute ''prepare '' || ''left_over as select 1''",
        ),
        (
            "holds_one",
            "execute ''declare left_over cursor with hold for select 1''",
        ),
    ] {
        direct.run(&format!(
            "create or replace function {name}() returns void language plpgsql as \
             'begin {code}; end'"
        ));
    }
    let two = Setup {
        pool: "size = 2",
        ..ONE
    };
    for io in DRIVERS {
        for (text, (again, refusal)) in [
            (block, EXECUTE),
            ("select prepares_one()", EXECUTE),
            ("select prepares_text()", EXECUTE),
            ("select holds_one()", FETCH),
        ] {
            let bed = TestBed::set_up(io, two);
            let (mut client, mut other) = (bed.client(), bed.client());
            client.run(text);
            assert_eq!(other.refusal(again), refusal, "{io}: {text}");
            client.run(again);
            client.abort(false);
            for _ in 0..3 {
                assert_eq!(other.refusal(again), refusal, "{io}: {text}");
            }
        }
    }
}

const KEEPING: &str = "
    create extension if not exists plperl;
    create or replace function keep(text) returns void language plperl as
      $$ $_SHARED{kept} = $_[0]; $$;
    create or replace function kept() returns text language plperl as
      $$ return $_SHARED{kept}; $$;
    create or replace function keep_in_passing(text) returns void language plpgsql as
      $$ begin execute $1; end $$";

/// Skipped if PL/Perl is not installed.
#[test]
fn what_a_procedural_language_keeps_for_one_client_no_other_finds() {
    let mut direct = Client::connect(shared().address);
    let has = "select count(*) from pg_available_extensions where name = 'plperl'";
    if direct.value(has) == "0" {
        println!("skipped: PL/Perl is not installed");
        return;
    }
    super::stage::admin().run(KEEPING);
    for io in DRIVERS {
        for keeping in [
            "select keep('mine')",
            "do language plperl $$ $_SHARED{kept} = 'mine'; $$",
            "do $$ begin execute 'select keep(''mine'')'; end $$",
            "select keep_in_passing('select keep(''mine'')')",
            "create or replace function keep_later() returns void language plperl as \
             $$ $_SHARED{kept} = 'mine'; $$; select keep_later()",
        ] {
            let bed = TestBed::set_up(io, ONE);
            let mut client = bed.client();
            // The catalog is known from here on.
            client.run("select 1");
            client.run(keeping);
            assert_eq!(client.value("select kept()"), "mine", "{io}: {keeping}");
            client.abort(false);
            let own = "select coalesce(kept(), '')";
            assert_eq!(bed.client().value(own), "", "{io}: {keeping}");
        }
    }
}

/// TO SEE THIS RED: report it in the log only.
#[test]
fn the_status_says_where_nobody_can_read_what_functions_do() {
    let (_lab, server) = start_own();
    for text in [
        "create role watcher login password 'watcher' in role pg_monitor",
        "revoke connect on database sbtest from public",
    ] {
        server.sql(text).unwrap();
    }
    let file = file_of_sbtest();
    let setup = Setup {
        tables: &format!("[service.auth]\nsource = \"file\"\nusers_file = {file:?}"),
        ..ONE
    };
    let monitor = "[service.monitor]\nuser = \"watcher\"\npassword = \"watcher\"\n";
    for (account, printed) in [
        (monitor, "cannot read the catalog of database 'sbtest'"),
        ("", "no monitor account is configured"),
    ] {
        let bed = TestBed::start(
            |address| {
                let config = config(("postgres", "watcher"), &server, address, "auto", setup);
                config.replace(monitor, account)
            },
            |bed| Client::log_in(bed.address, &Login::default()).map(|_| ()),
        );
        wait_until(&bed.balancer, printed, || {
            let problems = &bed.status()["database"]["problems"];
            problems.to_string().contains(printed)
        });
    }
}
