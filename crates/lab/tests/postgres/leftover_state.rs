//! Tests that state which a client leaves on its connection affects no other, however it was
//! created.

use super::script::{Script, prepare};
use super::stage::{LOCKS, ONE, TestBed, admin};
use crate::harness::{DRIVERS, wait_until};

fn query(text: &str) -> (Script, usize) {
    (Script::new().query(text), 1)
}

/// Returns each text as a separate query.
fn queries(texts: &[&str]) -> (Script, usize) {
    let script = texts
        .iter()
        .fold(Script::new(), |all, text| all.query(text));
    (script, texts.len())
}

fn run(text: &str, values: &[&str]) -> Script {
    let script = Script::new().parse("", text).bind("", values);
    script.execute().sync()
}

/// Checks that the next client after one that has run `does` receives `expect`, as on its own
/// connection.
fn leaves(does: &[(Script, usize)], asks: &str, expect: &str) {
    for io in DRIVERS {
        for (number, (script, replies)) in does.iter().enumerate() {
            let bed = TestBed::set_up(io, ONE);
            let mut client = bed.client();
            let received = client.exchange(script, *replies);
            let is_refused = received.iter().any(|line| line.starts_with('E'));
            assert!(!is_refused, "{io}: {number}: {received:?}");
            client.abort(false);
            assert_eq!(bed.client().value(asks), expect, "{io}: {number}");
        }
    }
}

/// Runs the texts sequentially: each is sent after the answer to its predecessor.
fn leaves_in_turn(does: &[&[&str]], asks: &str, expect: &str) {
    for io in DRIVERS {
        for texts in does {
            let bed = TestBed::set_up(io, ONE);
            let mut client = bed.client();
            texts.iter().for_each(|text| client.run(text));
            client.abort(false);
            assert_eq!(bed.client().value(asks), expect, "{io}: {texts:?}");
        }
    }
}

const TENANT: &str = "select coalesce(current_setting('app.tenant', true), '')";

/// TO SEE THIS RED: take LOCAL as a table's name, or ignore creations whose names have escapes.
#[test]
fn a_temporary_table_is_its_client_s_however_it_is_made() {
    let mut by_parameter = Script::new().query("begin");
    let sets = run("select set_config('search_path', $1, true)", &["pg_temp"]);
    by_parameter.0.extend(sets.0);
    let in_path = "select set_config('search_path', E'pg\\x5ftemp', true)";
    let creates = "create table left_hidden (a int)";
    leaves(
        &[
            query("select 'mine' as a into local temp left_hidden"),
            query("select 'mine' as a into local temporary table left_hidden"),
            query("select 'mine' as a into global temp left_hidden"),
            query("create table U&\"pg_temp\".left_hidden (a int)"),
            (by_parameter.query(creates).query("commit"), 4),
            queries(&["begin", in_path, creates, "commit"]),
            queries(&["begin", "discard temp", in_path, creates, "commit"]),
            query(&format!("begin; {in_path}; {creates}; commit")),
            query(&format!("{in_path}; select 1 as a into left_hidden")),
            queries(&[
                "begin",
                in_path,
                &format!("do 'begin {creates}; end'"),
                "commit",
            ]),
        ],
        "select count(*) from pg_class where relname = 'left_hidden'",
        "0",
    );
}

/// TO SEE THIS RED: let the release queued by a DEALLOCATE ALL end a later pin.
#[test]
fn a_statement_that_sql_was_given_behind_a_deallocate_all_goes_with_its_client() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let mut client = bed.client();
        client.run("begin");
        client.run("deallocate all");
        client.exchange(&prepare("left_given", "select 'mine'"), 1);
        assert_eq!(client.value("execute left_given"), "mine", "{io}");
        client.run("commit");
        client.abort(false);
        let reply = bed.client().refusal("execute left_given");
        assert_eq!(reply, "26000", "{io}");
    }
}

/// TO SEE THIS RED: let a release end what its own transaction has named before it.
#[test]
fn what_a_transaction_takes_behind_a_release_by_what_it_named_before_goes_with_its_client() {
    admin().query(
        "create table if not exists left_late (a int); grant all on left_late to sbtest;
         create or replace function left_late() returns trigger language plpgsql as
           $$ begin perform pg_advisory_lock(4729); return new; end $$;
         drop trigger if exists late on left_late;
         create constraint trigger late after insert on left_late
           deferrable initially deferred for each row execute function left_late()",
    );
    let declare = "declare c cursor for \
                   select pg_advisory_lock(i) from generate_series(4720, 4728) i";
    let hold = "declare c cursor with hold for \
                select pg_advisory_lock(i) from generate_series(4720, 4728) i";
    let unlock = "select pg_advisory_unlock_all()";
    let insert = "insert into left_late values (1)";
    leaves_in_turn(
        &[
            &["begin", declare, "fetch 1 c", unlock, "fetch 1 c", "commit"],
            &["begin", declare, unlock, "move 2 c", "commit"],
            &["begin", hold, unlock, "commit", "close all"],
            &["begin", insert, unlock, "commit"],
        ],
        LOCKS,
        "0",
    );
    let declare = "declare c cursor for select set_config('app.tenant', '7', false)";
    leaves_in_turn(
        &[&["begin", declare, "reset all", "fetch c", "commit"]],
        TENANT,
        "",
    );
    let bind = Script::new()
        .parse(
            "",
            "select pg_advisory_lock(i) from generate_series(4720, 4728) i",
        )
        .bind_to("p", "", &[])
        .sync();
    let script = Script([Script::new().query("begin").0, bind.0].concat());
    let script = script.query(unlock).query("fetch 1 p").query("commit");
    leaves(&[(script, 5)], LOCKS, "0");
}

/// TO SEE THIS RED: let savepoints count releases by the number that remain.
#[test]
fn a_release_that_was_rolled_back_ends_nothing() {
    leaves_in_turn(
        &[&[
            "begin",
            "listen left_here",
            "commit",
            "begin",
            "reset all",
            "savepoint s",
            "select set_config('x.y', current_user, false)",
            "unlisten *",
            "rollback to s",
            "commit",
            "reset all",
        ]],
        "select count(*) from pg_listening_channels()",
        "0",
    );
}

const ENTERING: &str = "
    drop table if exists left_plain, left_emptied cascade; drop view if exists left_enters;
    create or replace function left_enter() returns text language plpgsql as
      $$ begin perform set_config('app.tenant', '7', false); return '7'; end $$;
    create or replace function left_entering() returns trigger language plpgsql as
      $$ begin perform set_config('app.tenant', '7', false); return null; end $$;
    create view left_enters as select left_enter() as tenant;
    create table left_plain (tenant text); insert into left_plain values ('x');
    create table left_emptied (tenant text);
    create trigger enters before truncate on left_emptied execute function left_entering();
    create or replace function left_lists() returns void language plpgsql as
      $$ begin perform 1 from left_plain, left_enters; end $$;
    create or replace function left_nests() returns bigint language sql as
      $$ select count(*) from (left_enters cross join left_plain) $$;
    create or replace function left_deletes() returns void language plpgsql as $$ begin
      delete from left_plain p using left_enters e where e.tenant = p.tenant; end $$;
    create or replace function left_empties() returns void language plpgsql as
      $$ begin truncate left_plain, left_emptied; end $$;
    grant all on left_plain, left_emptied, left_enters to sbtest";

/// TO SEE THIS RED: recognize a table only directly after FROM, JOIN or INTO.
#[test]
fn what_is_run_by_a_table_or_view_is_seen_wherever_that_is_named() {
    admin().run(ENTERING);
    let deletes = "delete from left_plain p using left_enters e where e.tenant = p.tenant";
    leaves(
        &[
            query(deletes),
            query(
                "merge into left_plain p using left_enters e on e.tenant = p.tenant \
                 when matched then delete",
            ),
            query("begin; truncate left_plain, left_emptied; rollback; select 1"),
            query("select 1 as distinct from left_enters"),
            query("select left_lists()"),
            query("select left_nests()"),
            query("select left_deletes()"),
            query(&format!("do 'begin {deletes}; end'")),
            query("do 'begin perform 1 from (select 1 where true) s, left_enters; end'"),
            query("do 'begin perform 1 from left_plain, left_enters; end'"),
            query("do 'begin perform 1 from (left_enters cross join left_plain); end'"),
        ],
        TENANT,
        "",
    );
}

fn binds_nobody(bed: &TestBed, texts: &[&str]) -> bool {
    let mut client = bed.client();
    client.run("begin");
    texts.iter().for_each(|text| client.run(text));
    client.run("commit");
    bed.status()["database"]["pins"] == serde_json::json!([])
}

/// TO SEE THIS RED: pin for a table after any SET, or for any lock that a release has ended.
#[test]
fn what_a_transaction_gives_back_itself_binds_nobody() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let sets = "select set_config('app.tenant', current_user, false)";
        let locks = [
            "select pg_advisory_lock(4720)",
            "select pg_advisory_unlock_all()",
        ];
        // Until the catalog is read, any function may be user-defined.
        wait_until(&bed.balancer, "a lock that is given back", || {
            binds_nobody(&bed, &locks)
        });
        bed.client().run("create schema if not exists left_tenant");
        for texts in [
            &[
                "set search_path to left_tenant",
                "create table if not exists left_own (a int)",
            ][..],
            &[
                "set local time zone 'UTC'",
                "alter table left_tenant.left_own add if not exists b int",
            ],
            &[
                "set local search_path to left_tenant",
                "do 'begin drop table if exists left_own; end'",
            ],
            &[sets, "reset all"],
        ] {
            // A statement before it has changed the catalog, which is read again.
            let what = format!("that {texts:?} pin no client");
            wait_until(&bed.balancer, &what, || binds_nobody(&bed, texts));
        }
    }
}
