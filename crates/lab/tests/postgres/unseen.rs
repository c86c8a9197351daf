//! Tests of effects that a text does not show: of functions, views, portals, and texts that cannot
//! be parsed.

use super::client::Client;
use super::script::{Script, prepare};
use super::stage::{ONE, Setup, admin, same_as_direct};

/// A pinned client leaves one connection to the other client.
const TWO: Setup<'static> = Setup {
    pool: "size = 2",
    service: "",
    tables: "",
    workers: 1,
};

const MADE: &str = "
    create or replace function makes_items() returns void language plpgsql as $$
      begin create temp table unseen_items (a int, b text) on commit drop;
      insert into unseen_items values (3, 'mine'); end $$;
    create or replace function goes_to_tokyo() returns void language plpgsql as $$
      begin perform set_config('TimeZone', 'Asia/Tokyo', true); end $$;
    create or replace function goes_to_lima() returns void language plpgsql as $$
      begin set local timezone = 'America/Lima'; end $$;
    create or replace function sets_by_view() returns void language plpgsql as $$
      begin update pg_settings set setting = '777' where name = 'work_mem'; end $$;
    create sequence if not exists unseen_numbers;
    grant all on unseen_numbers to sbtest;";

/// TO SEE THIS RED: assume that a table that is dropped at the end of its transaction hides no
/// other table.
#[test]
fn what_a_function_makes_for_a_transaction_stands_before_what_others_have_prepared() {
    admin().query(MADE);
    same_as_direct(ONE, |address| {
        let mut other = Client::connect(address);
        other.run("drop table if exists unseen_items; create table unseen_items (a int)");
        other.run("insert into unseen_items values (1)");
        other.run("create temp table gone (a int)");
        other.run("discard temp");
        let text = "select * from unseen_items";
        let run = Script::new().bind("s", &[]).describe("s").execute().sync();
        let mut received = other.exchange(&prepare("s", text), 1);
        received.extend(other.exchange(&run, 1));
        let mut client = Client::connect(address);
        client.run("begin");
        client.run("select makes_items()");
        received.extend(client.exchange(&prepare("s", text), 1));
        received.extend(client.exchange(&run, 1));
        client.run("commit");
        received.extend(other.exchange(&run, 1));
        received
    });
}

/// TO SEE THIS RED: search bodies only for effects that outlast the transaction.
#[test]
fn what_a_function_sets_for_a_transaction_is_in_nobody_elses_statements() {
    admin().query(MADE);
    for sets in ["select goes_to_tokyo()", "select goes_to_lima()"] {
        same_as_direct(ONE, |address| {
            let (mut client, mut other) = (Client::connect(address), Client::connect(address));
            let text = format!("select timestamptz '2020-01-01 00:00' as {}", &sets[7..16]);
            let script = Script::new().parse("", sets).bind("", &[]).execute();
            let mut received = client.exchange(&script.parse("s", &text).sync(), 1);
            let run = Script::new().bind("s", &[]).execute().sync();
            received.extend(client.exchange(&run, 1));
            received.extend(other.exchange(&prepare("s", &text), 1));
            received.extend(other.exchange(&run, 1));
            received
        });
    }
}

/// TO SEE THIS RED: do not check the view's own rule.
#[test]
fn what_is_set_by_way_of_a_view_is_its_client_s_alone() {
    admin().query(MADE);
    let update = "update pg_settings set setting = '777' where name = 'work_mem'";
    for sets in [
        update.to_owned(),
        format!("do $$ begin {update}; end $$"),
        format!("explain analyze {update}"),
        "select sets_by_view()".to_owned(),
        format!("prepare s as {update}; execute s; deallocate all"),
    ] {
        same_as_direct(TWO, |address| {
            let (mut client, mut other) = (Client::connect(address), Client::connect(address));
            client.query(&sets);
            vec![other.value("show work_mem"), client.value("show work_mem")]
        });
    }
}

/// TO SEE THIS RED: consider a portal only when Execute runs it.
#[test]
fn what_a_portal_sets_that_sql_fetches_is_its_client_s_alone() {
    for sets in [
        "select set_config('work_mem', '777kB', false)",
        "select set_config('work' || '_mem', '777kB', false)",
    ] {
        same_as_direct(TWO, |address| {
            let (mut client, mut other) = (Client::connect(address), Client::connect(address));
            client.run("begin");
            let script = Script::new().parse("", sets).bind_to("p", "", &[]).sync();
            let mut received = client.exchange(&script, 1);
            client.run("fetch all from p");
            client.run("commit");
            received.push(other.value("show work_mem"));
            received.push(client.value("show work_mem"));
            received
        });
    }
}

/// TO SEE THIS RED: hide the values of other sessions only from statements that certainly read
/// them.
#[test]
fn what_others_drew_is_told_to_nobody_however_it_is_asked() {
    admin().query(MADE);
    let long = format!("select lastval() /* {} */", "x".repeat(1_100_000));
    for ask in [
        Script::new().query(&long),
        Script::new()
            .parse("", &long)
            .bind("", &[])
            .execute()
            .sync(),
        // `lastval()` by a function call message.
        Script::new().message(b'F', b"\0\0\x09\xff\0\0\0\0\0\0"),
    ] {
        same_as_direct(ONE, |address| {
            let (mut client, mut other) = (Client::connect(address), Client::connect(address));
            client.run("select nextval('unseen_numbers')");
            other.exchange(&ask, 1)
        });
    }
    same_as_direct(ONE, |address| {
        let (mut client, mut other) = (Client::connect(address), Client::connect(address));
        client.run("select nextval('unseen_numbers')");
        other.run("set client_encoding to 'SJIS'");
        other.query("select lastval()")
    });
    same_as_direct(ONE, |address| {
        let (mut client, mut other) = (Client::connect(address), Client::connect(address));
        other.run("drop function if exists unseen_last()");
        other
            .run("create function unseen_last() returns bigint language sql as 'select lastval()'");
        client.run("select nextval('unseen_numbers')");
        other.query("select unseen_last()")
    });
}

/// The session could execute no statement, not even one that sets another role.
#[test]
fn a_session_whose_role_is_gone_is_ended_and_not_refused_for_ever() {
    let mut own = admin();
    for io in crate::harness::DRIVERS {
        own.query("create role unseen_role; grant unseen_role to sbtest");
        let bed = super::stage::TestBed::set_up(io, ONE);
        let (mut client, mut other) = (bed.client(), bed.client());
        client.run("set role unseen_role");
        other.run("select 1");
        own.run("drop role unseen_role");
        let reply = client.query("reset role");
        assert_eq!(reply, ["E 22023", "end"], "{io}");
        assert_eq!(bed.client().value("select 'on'"), "on", "{io}");
    }
}
