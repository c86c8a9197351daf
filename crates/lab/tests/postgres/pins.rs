//! What cannot be moved keeps its client on one server connection, until it is over; and is gone
//! when the client is gone.

use evenkeel_lab::eventually;

use super::client::Client;
use super::script::Script;
use super::stage::{Setup, Stage, admin, same_as_direct};
use crate::rig::{DRIVERS, LIMIT};

const TWO: Setup<'static> = Setup {
    pool: "size = 2",
    service: "",
    tables: "",
    workers: 2,
};

const ONE: Setup<'static> = Setup {
    pool: "size = 1",
    ..TWO
};

#[test]
fn notifications_reach_who_listens_while_it_is_idle() {
    for io in DRIVERS {
        let stage = Stage::set(io, TWO);
        let (mut listener, mut sender) = (stage.client(), stage.client());
        listener.run("listen news");
        sender.run("notify news, 'first'");
        assert_eq!(listener.hear(), "A news first", "{io}");
        sender.run("select pg_notify('news', 'second')");
        assert_eq!(listener.hear(), "A news second");
        listener.run("unlisten *");
        sender.run("notify news, 'third'");
        let mut other = stage.client();
        let _taken = other.query("begin");
        // It is not bound any more: two others can have both connections.
        sender.run("begin");
        sender.run("commit");
        other.run("commit");
        assert_eq!(listener.value("select 'quiet'"), "quiet");
    }
}

#[test]
fn a_listener_that_leaves_leaves_no_channel_behind() {
    for io in DRIVERS {
        let stage = Stage::set(io, ONE);
        for by_reset in [true, false] {
            let mut listener = stage.client();
            listener.run("listen gone");
            listener.vanish(by_reset);
            let mut next = stage.client();
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
        let mut heard = client.query("create temp table mine (a int)");
        heard.extend(client.query("insert into mine values (1)"));
        let mut other = Client::connect(address);
        heard.extend(other.query("select * from mine"));
        heard.extend(other.query("create temp table mine (b text)"));
        heard.extend(other.query("select * from mine"));
        heard.extend(client.query("select * from mine"));
        heard.extend(client.query("drop table mine"));
        heard.extend(other.query("drop table mine"));
        heard.extend(client.query("declare c cursor with hold for select generate_series(1, 3)"));
        heard.extend(client.query("fetch 1 from c"));
        heard.extend(other.query("fetch 1 from c"));
        heard.extend(client.query("fetch 1 from c"));
        heard.extend(client.query("close c"));
        heard.extend(client.query("prepare p as select 'p'"));
        heard.extend(other.query("execute p"));
        heard.extend(client.query("execute p"));
        heard.extend(client.query("deallocate p"));
        heard
    });
}

#[test]
fn who_has_dropped_what_bound_it_is_bound_no_longer() {
    for io in DRIVERS {
        let stage = Stage::set(io, ONE);
        let (mut client, mut other) = (stage.client(), stage.client());
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
            let heard = other.query("select 'free'");
            assert_eq!(heard[1], "D free", "{io}: {bind}; {free}");
        }
    }
}

#[test]
fn a_client_that_dies_frees_its_locks_and_its_tables() {
    for io in DRIVERS {
        let stage = Stage::set(io, ONE);
        for (number, by_reset) in [true, false, true, false].into_iter().enumerate() {
            let mut client = stage.client();
            client.run("select pg_advisory_lock(4711)");
            client.run("create temp table left_behind (a int)");
            client.run("set work_mem to '1MB'");
            if number > 1 {
                client.run("begin");
                client.run("create temp table more (a int)");
            }
            client.vanish(by_reset);
            let mut next = stage.client();
            assert_eq!(
                next.value("select count(*) from pg_class where relname = 'left_behind'"),
                "0"
            );
            assert_eq!(
                next.value(
                    "select count(*) from pg_locks where locktype = 'advisory' and objid = 4711"
                ),
                "0"
            );
            assert_ne!(next.value("show work_mem"), "1MB");
            assert!(next.query("insert into left_behind values (1)")[0].starts_with("E 42P01"));
        }
    }
}

#[test]
fn locks_of_a_transaction_bind_nobody_behind_it() {
    for io in DRIVERS {
        let stage = Stage::set(io, ONE);
        let (mut client, mut other) = (stage.client(), stage.client());
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
fn open_transactions_of_clients_that_die_are_rolled_back_at_once() {
    for io in DRIVERS {
        let stage = Stage::set(io, TWO);
        let mut admin = admin();
        admin.run("drop table if exists undone");
        admin.run("create table undone (a int)");
        admin.run("grant all on undone to sbtest");
        for by_reset in [true, false] {
            let mut client = stage.client();
            client.run("begin; insert into undone values (1)");
            client.vanish(by_reset);
            let open = "select count(*) from pg_stat_activity where state like 'idle in%'";
            let waited = eventually(LIMIT, "its transaction is over", || {
                Ok((admin.value(open) == "0").then_some(()))
            });
            waited.unwrap();
            assert_eq!(admin.value("select count(*) from undone"), "0");
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
            // Until somebody asks, drawing binds nobody: the one connection goes on to the next.
            let stage = Stage::set(io, ONE);
            let (mut client, mut other) = (stage.client(), stage.client());
            client.run("select nextval('drawn')");
            let heard = other.ask(&asking, replies);
            assert!(
                heard.iter().any(|line| line.starts_with("E 55000")),
                "{io}: {heard:?}"
            );
            let drawn = client.value("select nextval('drawn')");
            assert_eq!(client.value("select currval('drawn')"), drawn, "{io}");
            assert_eq!(client.value("select lastval()"), drawn, "{io}");
        }
    }
}
