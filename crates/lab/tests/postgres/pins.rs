//! Tests that state that cannot be moved pins its client to one server connection until the state
//! ends, and is removed with the client.

use evenkeel_lab::eventually;

use super::client::Client;
use super::script::Script;
use super::stage::{LOCKS, ONE, Setup, TestBed, admin, same_as_direct};
use crate::harness::{DRIVERS, LIMIT, wait_until};

const TWO: Setup<'static> = Setup {
    pool: "size = 2",
    service: "",
    tables: "",
    workers: 2,
};

#[test]
fn notifications_reach_who_listens_while_it_is_idle() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, TWO);
        let (mut listener, mut sender) = (bed.client(), bed.client());
        listener.run("listen news");
        sender.run("notify news, 'first'");
        assert_eq!(listener.receive_message(), "A news first", "{io}");
        sender.run("select pg_notify('news', 'second')");
        assert_eq!(listener.receive_message(), "A news second");
        listener.run("unlisten *");
        sender.run("notify news, 'third'");
        let mut other = bed.client();
        let _taken = other.query("begin");
        // The client is no longer pinned: two other clients can have both connections.
        sender.run("begin");
        sender.run("commit");
        other.run("commit");
        assert_eq!(listener.value("select 'quiet'"), "quiet");
    }
}

#[test]
fn a_listener_that_leaves_leaves_no_channel_behind() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        for with_reset in [true, false] {
            let mut listener = bed.client();
            listener.run("listen gone");
            listener.abort(with_reset);
            let mut next = bed.client();
            assert_eq!(
                next.value("select count(*) from pg_listening_channels()"),
                "0"
            );
        }
    }
}

#[test]
fn temporary_tables_cursors_and_prepared_texts_are_where_their_client_is() {
    same_as_direct(TWO, |address| {
        let mut client = Client::connect(address);
        let mut received = client.query("create temp table mine (a int)");
        received.extend(client.query("insert into mine values (1)"));
        let mut other = Client::connect(address);
        received.extend(other.query("select * from mine"));
        received.extend(other.query("create temp table mine (b text)"));
        received.extend(other.query("select * from mine"));
        received.extend(client.query("select * from mine"));
        received.extend(client.query("drop table mine"));
        received.extend(other.query("drop table mine"));
        received
            .extend(client.query("declare c cursor with hold for select generate_series(1, 3)"));
        received.extend(client.query("fetch 1 from c"));
        received.extend(other.query("fetch 1 from c"));
        received.extend(client.query("fetch 1 from c"));
        received.extend(client.query("close c"));
        received.extend(client.query("prepare p as select 'p'"));
        received.extend(other.query("execute p"));
        received.extend(client.query("execute p"));
        received.extend(client.query("deallocate p"));
        received
    });
}

#[test]
fn who_has_dropped_what_bound_it_is_bound_no_longer() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let (mut client, mut other) = (bed.client(), bed.client());
        for (bind, free) in [
            (
                "select pg_advisory_lock(7)",
                "select pg_advisory_unlock_all()",
            ),
            ("prepare p as select 1", "deallocate all"),
            ("listen l", "unlisten *"),
            ("declare c cursor with hold for select 1", "close all"),
            ("create temp table t (a int)", "discard all"),
            ("select pg_advisory_lock(8)", "discard all"),
        ] {
            client.run(bind);
            client.run(free);
            let received = other.query("select 'free'");
            assert_eq!(received[1], "D free", "{io}: {bind}; {free}");
        }
    }
}

#[test]
fn a_client_that_dies_frees_its_locks_and_its_tables() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        for (number, with_reset) in [true, false, true, false].into_iter().enumerate() {
            let mut client = bed.client();
            client.run("select pg_advisory_lock(4711)");
            client.run("create temp table left_behind (a int)");
            client.run("set work_mem to '1MB'");
            if number > 1 {
                client.run("begin");
                client.run("create temp table more (a int)");
            }
            client.abort(with_reset);
            let mut next = bed.client();
            assert_eq!(
                next.value("select count(*) from pg_class where relname = 'left_behind'"),
                "0"
            );
            assert_eq!(next.value(LOCKS), "0");
            let locks = "select count(*) from pg_locks where locktype = 'advisory' and \
                         database = (select oid from pg_database where datname = current_database())";
            wait_until(&bed.balancer, "no lock of the dead client", || {
                next.value(locks) == "0"
            });
            assert_ne!(next.value("show work_mem"), "1MB");
            assert!(next.query("insert into left_behind values (1)")[0].starts_with("E 42P01"));
        }
    }
}

#[test]
fn locks_of_a_transaction_bind_nobody_behind_it() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let (mut client, mut other) = (bed.client(), bed.client());
        for text in [
            "select pg_advisory_xact_lock(1)",
            "begin; select pg_advisory_xact_lock(1); declare c cursor for select 1; commit",
            "begin; create temp table t (a int) on commit drop; commit",
        ] {
            client.run(text);
            assert_eq!(other.query("select 'free'")[1], "D free", "{io}: {text}");
        }
    }
}

#[test]
fn a_lock_of_a_statement_that_failed_binds_in_spite_of_the_release_before_it() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let (mut client, mut other) = (bed.client(), bed.client());
        client.run("begin");
        client.run("select pg_advisory_unlock_all()");
        client.run("savepoint s");
        client.query("select pg_advisory_lock(4712), 1 / (random() * 0)::int");
        client.run("rollback to s");
        client.run("commit");
        client.abort(false);
        // The server connection was reset on release, because the client was pinned.
        assert_eq!(other.value(LOCKS), "0", "{io}");
    }
}

#[test]
fn reset_all_leaves_nobody_elses_role_behind() {
    let mut admin = admin();
    admin.run("drop role if exists acted_as");
    admin.run("create role acted_as");
    admin.run("grant acted_as to sbtest");
    let acts = Script::new()
        .parse("", "select set_config('role', $1, false)")
        .bind("", &["acted_as"])
        .execute()
        .sync();
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let mut client = bed.client();
        client.exchange(&acts, 1);
        assert_eq!(client.value("select current_user"), "acted_as");
        client.run("select pg_advisory_unlock_all(); close all; unlisten *; reset all");
        client.abort(false);
        assert_eq!(bed.client().value("select current_user"), "sbtest", "{io}");
    }
}

#[test]
fn open_transactions_of_clients_that_die_are_rolled_back_at_once() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, TWO);
        let mut admin = admin();
        admin.run("drop table if exists undone");
        admin.run("create table undone (a int)");
        admin.run("grant all on undone to sbtest");
        for with_reset in [true, false] {
            let mut client = bed.client();
            client.run("begin; insert into undone values (1)");
            client.abort(with_reset);
            let open = "select count(*) from pg_stat_activity \
                        where state like 'idle in%' and datname = current_database()";
            let waited = eventually(LIMIT, "its transaction is over", || {
                Ok((admin.value(open) == "0").then_some(()))
            });
            waited.unwrap();
            assert_eq!(admin.value("select count(*) from undone"), "0");
        }
    }
}

const LEAVING: &str = "
    drop table if exists entered; drop view if exists enters; drop sequence if exists entries;
    create or replace function enter(tenant text) returns text language plpgsql stable as
      $$ begin perform set_config('app.tenant', tenant, false); return tenant; end $$;
    create or replace function enter_deep(tenant text) returns text language plpgsql as
      $$ begin return enter(tenant); end $$;
    create or replace procedure enter_by_call(tenant text) language plpgsql as
      $$ begin perform enter_deep(tenant); end $$;
    create or replace function entering() returns trigger language plpgsql as
      $$ begin execute format('set app.tenant = %L', new.tenant); return new; end $$;
    create table entered (tenant text);
    create trigger enters before insert on entered for each row execute function entering();
    create view enters as select enter('7') as tenant;
    grant all on entered, enters to sbtest";

#[test]
fn what_functions_procedures_triggers_and_views_leave_in_a_session_is_nobody_elses() {
    admin().run(LEAVING);
    let prepared = Script::new()
        .parse("", "select enter($1)")
        .bind("", &["7"])
        .execute()
        .sync();
    let copy = Script::new()
        .query("copy entered from stdin")
        .copy_data(b"7\n")
        .copy_done();
    for io in DRIVERS {
        for enters in [
            Script::new().query("select enter('7')"),
            Script::new().query("select * from enter_deep('7')"),
            Script::new().query("call enter_by_call('7')"),
            Script::new().query("do $$ begin call enter_by_call('7'); end $$"),
            Script::new().query("insert into entered values ('7')"),
            Script::new().query("do 'begin insert into entered values (7); end'"),
            Script::new().query("select * from enters"),
            prepared.clone(),
            copy.clone(),
        ] {
            let bed = TestBed::set_up(io, ONE);
            let mut client = bed.client();
            client.exchange(&enters, 1);
            assert_eq!(client.value("show app.tenant"), "7", "{io}");
            client.abort(false);
            let tenant = "select coalesce(current_setting('app.tenant', true), '')";
            assert_eq!(bed.client().value(tenant), "", "{io}");
        }
    }
}

#[test]
fn functions_that_leave_nothing_behind_bind_nobody() {
    admin().run(
        "create or replace function enter_for_now(tenant text) returns text language plpgsql as
           $$ begin perform set_config('app.tenant', tenant, true); return tenant; end $$",
    );
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let (mut client, mut other) = (bed.client(), bed.client());
        for text in [
            "select enter_for_now('7')",
            "select lower('A'), now(), count(*) from pg_class",
        ] {
            client.run(text);
            assert_eq!(other.query("select 'free'")[1], "D free", "{io}: {text}");
        }
    }
}

#[test]
fn what_another_session_drew_from_a_sequence_is_nobody_elses() {
    admin().run("drop sequence if exists drawn");
    admin().run("create sequence drawn");
    admin().run("grant all on sequence drawn to public");
    let extended = Script::new()
        .parse("", "select lastval()")
        .bind("", &[])
        .execute()
        .sync();
    for io in DRIVERS {
        for (asking, replies) in [
            (Script::new().query("select lastval()"), 1),
            (Script::new().query("select 1").query("select lastval()"), 2),
            (extended.clone(), 1),
        ] {
            // Until a session reads the last value, `nextval()` does not pin: the next client gets
            // the only connection.
            let bed = TestBed::set_up(io, ONE);
            let (mut client, mut other) = (bed.client(), bed.client());
            client.run("select nextval('drawn')");
            let received = other.exchange(&asking, replies);
            assert!(
                received.iter().any(|line| line.starts_with("E 55000")),
                "{io}: {received:?}"
            );
            let drawn = client.value("select nextval('drawn')");
            assert_eq!(client.value("select currval('drawn')"), drawn, "{io}");
            assert_eq!(client.value("select lastval()"), drawn, "{io}");
        }
    }
}

#[test]
fn each_of_several_portals_leaves_behind_what_it_was_bound_to() {
    for io in DRIVERS {
        for (text, left) in [
            (
                "listen here",
                "select count(*) from pg_listening_channels()",
            ),
            (
                "create temp table of_portal (a int)",
                "select count(*) from pg_class where relname = 'of_portal' \
                 and pg_table_is_visible(oid)",
            ),
            (
                "set app.portal = 'mine'",
                "select count(*) where current_setting('app.portal', true) = 'mine'",
            ),
        ] {
            let bed = TestBed::set_up(io, TWO);
            let (mut client, mut other) = (bed.client(), bed.client());
            let script = Script::new()
                .parse("binds", text)
                .parse("", "select 1")
                .bind_to("first", "binds", &[])
                .bind("", &[])
                .execute_of("first", 0)
                .execute()
                .sync();
            let received = client.exchange(&script, 1);
            assert!(
                !received.iter().any(|line| line.starts_with('E')),
                "{received:?}"
            );
            assert_eq!(other.value(left), "0", "{io}: {text}");
            assert_eq!(client.value(left), "1", "{io}: {text}");
        }
    }
}

#[test]
fn a_portal_that_a_bind_in_vain_has_not_replaced_leaves_behind_what_it_was_bound_to() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, TWO);
        let (mut client, mut other) = (bed.client(), bed.client());
        client.run("begin");
        let script = Script::new()
            .parse("binds", "listen here")
            .parse("plain", "select 1")
            .bind_to("first", "binds", &[])
            .sync();
        client.exchange(&script, 1);
        client.run("savepoint before");
        let taken = Script::new().bind_to("first", "plain", &[]).sync();
        assert_eq!(client.exchange(&taken, 1), ["E 42P03", "Z Failed"]);
        client.run("rollback to before");
        client.exchange(&Script::new().execute_of("first", 0).sync(), 1);
        client.run("commit");
        let channels = "select count(*) from pg_listening_channels()";
        assert_eq!(other.value(channels), "0", "{io}");
        assert_eq!(client.value(channels), "1", "{io}");
    }
}

#[test]
fn a_portal_of_an_earlier_batch_leaves_behind_what_it_was_bound_to() {
    for io in DRIVERS {
        // The client keeps its connection, because SQL can fetch from the portal, too.
        let setup = Setup {
            pool: "size = 2",
            ..ONE
        };
        let bed = TestBed::set_up(io, setup);
        let (mut client, mut other) = (bed.client(), bed.client());
        client.run("begin");
        let script = Script::new()
            .parse("sets", "set work_mem to '3MB'")
            .bind_to("first", "sets", &[])
            .parse("", "select 1")
            .bind("", &[])
            .sync();
        client.exchange(&script, 1);
        client.exchange(&Script::new().execute_of("first", 0).sync(), 1);
        client.run("commit");
        assert_ne!(other.value("show work_mem"), "3MB", "{io}");
        assert_eq!(client.value("show work_mem"), "3MB", "{io}");
    }
}

#[test]
fn what_another_session_drew_is_told_to_nobody_who_drew_from_another_sequence_or_asks_in_a_batch() {
    admin().run(
        "drop sequence if exists own, others; create sequence own; create sequence others;
         grant all on own, others to public",
    );
    let behind_another = Script::new()
        .parse("", "select 1")
        .bind("", &[])
        .execute()
        .parse("", "select lastval()")
        .bind("", &[])
        .execute()
        .sync();
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let (mut client, mut other) = (bed.client(), bed.client());
        client.run("select nextval('others')");
        let received = other.exchange(&behind_another, 1);
        let is_refused = |received: &[String]| received.iter().any(|line| line.starts_with("E "));
        assert!(is_refused(&received), "{io}: asks first: {received:?}");
        let received = other.exchange(&behind_another, 1);
        assert!(is_refused(&received), "{io}: {received:?}");
        other.run("select nextval('own')");
        assert_eq!(other.refusal("select currval('others')"), "55000", "{io}");
        assert_eq!(
            other.value("select currval('own')"),
            other.value("select lastval()")
        );
    }
}

/// The settings that decide the meaning of the text are about to change when it arrives.
#[test]
fn a_lock_in_a_text_that_a_setting_sent_just_before_it_reveals_goes_with_its_client() {
    const BACKSLASH: &[u8] = b"select 'x\\'', pg_advisory_lock(4713) --'\0";
    const SJIS: &[u8] = b"select E'\x83\\', pg_advisory_lock(4713) --'\0";
    let run = |script: Script| script.bind("", &[]).execute();
    let parse = |text: &[u8]| [&b"\0"[..], text, b"\0\0"].concat();
    let sets = |text: &str| run(Script::new().parse("", text));
    let off = "set standard_conforming_strings = off";
    let locks = |io: &str, script: &Script, replies: usize| {
        let bed = TestBed::set_up(io, ONE);
        let mut client = bed.client();
        let received = client.exchange(script, replies);
        assert!(
            !received.iter().any(|line| line.starts_with('E')),
            "{received:?}"
        );
        client.abort(false);
        assert_eq!(bed.client().value(LOCKS), "0", "{io}: {received:?}");
    };
    for io in DRIVERS {
        let query = |text: &str| Script::new().query(text);
        locks(io, &query(off).message(b'Q', BACKSLASH), 2);
        locks(
            io,
            &query("select 1").query(off).message(b'Q', BACKSLASH),
            3,
        );
        let encoded = query("set client_encoding to 'SJIS'");
        locks(io, &encoded.message(b'Q', SJIS), 2);
        locks(
            io,
            &run(sets(off).message(b'P', &parse(BACKSLASH))).sync(),
            1,
        );
        let local = "select set_config('standard_conforming_strings', 'off', true)";
        let local = sets(local).message(b'P', &parse(BACKSLASH));
        locks(io, &run(local).sync(), 1);
    }
}
