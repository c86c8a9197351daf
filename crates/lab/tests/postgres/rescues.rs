//! Tests that statements that a server did not execute are retried if the client has received no
//! part of the reply. Statements that may have been executed are never retried.

use std::time::Duration;

use evenkeel_lab::eventually;
use evenkeel_wire::postgres::build;

use super::client::{Client, Login};
use super::script::Script;
use super::stage::{Setup, TestBed, admin, shared};
use crate::harness::intercepting_proxy::{InterceptingProxy, Interruption, MARK};
use crate::harness::storm::{Storm, storm};
use crate::harness::{DRIVERS, LIMIT, wait_until};

/// A pool with read/write split: statements that are known to only read may be retried.
const READING: Setup<'static> = Setup {
    pool: "size = 2",
    service: "",
    tables: "[service.split]\nreads = true",
    workers: 2,
};

const PLAIN: Setup<'static> = Setup {
    tables: "",
    ..READING
};

/// Starts a pool in front of the shared server, with an intercepting proxy between them.
fn behind(
    io: &str,
    setup: Setup<'_>,
    command: &'static str,
    interruption: Interruption,
) -> TestBed {
    let mut server = shared().clone();
    server.address = InterceptingProxy::start(server.address, command, interruption).address;
    TestBed::before(&server, io, setup)
}

fn make(client: &mut Client, table: &str) {
    client.run(&format!("drop table if exists {table}"));
    client.run(&format!("create table {table} (a text)"));
}

fn count(table: &str) -> String {
    admin().value(&format!("select count(*) from {table}"))
}

fn run(text: &str) -> Script {
    Script::new().parse("", text).bind("", &[]).execute()
}

const INSERTED: &str = "INSERT 0 1";

/// Number of bytes of a long message that the server has received when the connection ends.
const FIRST: usize = 8_000;

/// Returns a Bind whose value contains a Query and the header of data, placed so that `FIRST` bytes
/// of the message remain.
fn bind_with_a_query_in_it() -> Script {
    let mut query = Vec::new();
    build::query(&mut query, b"insert into shifted_in values ('smuggled')");
    let left = u32::try_from(FIRST - query.len() - 1).unwrap();
    query.push(b'd');
    query.extend_from_slice(&left.to_be_bytes());
    let mut value = vec![b'v'; 100_000];
    // The value is followed by two more bytes, the number of result formats.
    let from = value.len() + 2 - FIRST;
    value[from..from + query.len()].copy_from_slice(&query);
    let mut body = b"\0\0\0\x01\0\x01\0\x01".to_vec();
    body.extend_from_slice(&u32::try_from(value.len()).unwrap().to_be_bytes());
    body.extend_from_slice(&value);
    body.extend_from_slice(&[0, 0]);
    Script::new().message(b'B', &body)
}

#[test]
fn a_message_whose_server_goes_in_the_middle_of_it_stays_one_message() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, PLAIN);
        let mut client = Client::with(bed.address, &[("application_name", "in message")]);
        make(&mut client, "shifted_in");
        let mut script = Script::new().parse("", "insert into shifted_in select md5($1::bytea)");
        script.0.extend(bind_with_a_query_in_it().0);
        let of_bind = script.0.len();
        let script = script.execute().sync();
        let (first, rest) = script.0.split_at(FIRST);
        let (middle, last) = rest.split_at(of_bind - 2 * FIRST);
        client.send_script(&Script(first.to_vec()));
        assert!(client.is_silent_for(Duration::from_millis(300)), "{io}");
        admin().run(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity \
             where application_name = 'in message' and datname = current_database()",
        );
        assert!(client.is_silent_for(Duration::from_millis(300)), "{io}");
        client.send_script(&Script(middle.to_vec()));
        assert!(client.is_silent_for(Duration::from_millis(100)), "{io}");
        client.send_script(&Script(last.to_vec()));
        let reply = client.reply();
        let smuggled = "shifted_in where a = 'smuggled'";
        assert_eq!(count(smuggled), "0", "{io}: {reply:?}");
        assert_eq!(reply, ["1", "2", "C INSERT 0 1", "Z Idle"], "{io}");
        assert_eq!(count("shifted_in"), "1", "{io}");
    }
}

#[test]
fn what_was_committed_is_told_when_the_server_s_last_word_comes_right_behind_it() {
    for io in DRIVERS {
        for is_prepared in [false, true] {
            let bed = behind(io, PLAIN, INSERTED, Interruption::LastWord);
            let mut client = bed.client();
            make(&mut client, "told_once");
            let text = format!("insert into told_once values ('{MARK}')");
            let reply = match is_prepared {
                false => client.query(&text),
                true => client.exchange(&run(&text).sync(), 1),
            };
            assert_eq!(count("told_once"), "1", "{io}: {reply:?}");
            let before = if is_prepared { 2 } else { 0 };
            let last = ["C INSERT 0 1", "E 57P01", "end"];
            assert_eq!(reply[before..], last, "{io}");
        }
    }
}

#[test]
fn a_read_whose_server_s_last_word_comes_right_behind_its_rows_is_run_again() {
    for io in DRIVERS {
        let bed = behind(io, READING, "SELECT 1", Interruption::LastWord);
        let mut client = bed.client();
        let text = format!("select 'read' as {MARK}");
        let reply = client.query(&text);
        assert_eq!(reply[1..], ["D read", "C SELECT 1", "Z Idle"], "{io}");
    }
}

#[test]
fn a_write_behind_a_flush_makes_its_batch_one_that_is_not_run_again() {
    for io in DRIVERS {
        let read = format!("select 'read' as {MARK}");
        let write = || run("insert into flushed_once values ('once')").sync();
        // All in one write, and with the flushed part sent first.
        let together = Script([run(&read).flush().0, write().0].concat());
        let alone = Script::new().parse("s", &read).describe("s").flush();
        for parts in [vec![alone, write()], vec![together]] {
            let bed = behind(io, READING, INSERTED, Interruption::Silence);
            let mut client = bed.client();
            make(&mut client, "flushed_once");
            for part in &parts {
                assert!(client.is_silent_for(Duration::from_millis(100)), "{io}");
                client.send_script(part);
            }
            let reply = client.reply();
            assert_eq!(count("flushed_once"), "1", "{io}: {reply:?}");
            assert_eq!(reply, ["E 08007", "Z Idle"], "{io}");
        }
    }
}

#[test]
fn a_write_that_an_earlier_batch_prepared_without_a_name_is_not_run_again() {
    for io in DRIVERS {
        let bed = behind(io, READING, INSERTED, Interruption::Silence);
        let mut client = bed.client();
        make(&mut client, "bound_once");
        let prepare = Script::new()
            .parse("s", "select 's'")
            .parse("", "insert into bound_once values ('once')")
            .sync();
        assert_eq!(client.exchange(&prepare, 1), ["1", "1", "Z Idle"], "{io}");
        let both = Script::new()
            .bind("s", &[])
            .execute()
            .bind_to(MARK, "", &[])
            .execute_of(MARK, 0)
            .sync();
        let reply = client.exchange(&both, 1);
        assert_eq!(count("bound_once"), "1", "{io}: {reply:?}");
        assert_eq!(reply, ["E 08007", "Z Idle"], "{io}");
    }
}

#[test]
fn a_batch_without_its_sync_is_run_again_at_once() {
    for io in DRIVERS {
        let setup = Setup {
            pool: "size = 1",
            ..PLAIN
        };
        // The body of this function does not show that it removes statements.
        admin().run(
            "create or replace function takes_away_unseen() returns void language plpgsql as \
             $$ begin execute 'deallocate ' || 'all'; end $$",
        );
        let bed = TestBed::set_up(io, setup);
        let mut client = bed.client();
        let prepare = Script::new().parse("s", "select 'again'").sync();
        assert_eq!(client.exchange(&prepare, 1), ["1", "Z Idle"], "{io}");
        client.run("select takes_away_unseen()");
        client.send_script(&Script::new().bind("s", &[]).execute().flush());
        for line in ["2", "D again", "C SELECT 1"] {
            assert_eq!(client.receive_message(), line, "{io}");
        }
        assert_eq!(
            client.exchange(&Script::new().sync(), 1),
            ["Z Idle"],
            "{io}"
        );
        assert_eq!(client.value("select 'on'"), "on", "{io}");
    }
}

#[test]
fn what_commits_on_its_way_is_not_run_again_when_its_server_goes() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, PLAIN);
        let mut client = bed.client();
        make(&mut client, "half_built");
        let mut writer = admin();
        writer.run("begin; insert into half_built values ('open')");
        client.run_later("create index concurrently if not exists half_built_a on half_built (a)");
        let mut admin = admin();
        let waits = "select pid from pg_stat_activity where query like 'create index conc%' \
                     and wait_event_type = 'Lock' and datname = current_database()";
        eventually(LIMIT, "the index waits for the writer", || {
            let pids = admin.query(waits);
            Ok(pids.iter().any(|line| line.starts_with("D ")).then_some(()))
        })
        .unwrap();
        let pid = admin.value(waits);
        admin.run(&format!("select pg_terminate_backend({pid}, 5000)"));
        writer.run("rollback");
        let answer = client.reply();
        assert_eq!(answer, ["E 57P01", "end"], "{io}");
    }
}

/// TO SEE THIS RED: do not count a batch without its Sync.
#[test]
fn who_loses_its_server_with_half_a_batch_is_not_let_go_on_with_the_other_half() {
    for io in DRIVERS {
        let bed = behind(io, PLAIN, INSERTED, Interruption::Silence);
        let mut client = bed.client();
        make(&mut client, "halves");
        for value in ["1", "2", "3"] {
            let text = format!("insert into halves values ('{value}')");
            client.exchange(&Script::new().parse(value, &text).sync(), 1);
        }
        let first = Script::new().bind_to(MARK, "1", &[]).execute_of(MARK, 0);
        let half = first.sync().bind("2", &[]).execute();
        let reply = client.exchange(&half, 1);
        assert_eq!(reply, ["E 57P01", "end"], "{io}");
        assert_eq!(count("halves where a > '1'"), "0", "{io}");
    }
}

/// TO SEE THIS RED: use the transaction status from before the COMMIT.
#[test]
fn who_loses_its_server_while_it_commits_is_not_told_to_do_it_again() {
    let commit = format!("commit -- {MARK}");
    for io in DRIVERS {
        for is_prepared in [false, true] {
            let bed = behind(io, PLAIN, "COMMIT", Interruption::Silence);
            let mut client = bed.client();
            make(&mut client, "committed");
            client.run("begin");
            client.run("insert into committed values ('once')");
            let reply = match is_prepared {
                false => client.query(&commit),
                true => client.exchange(&run(&commit).sync(), 1),
            };
            assert_eq!(count("committed"), "1", "{io}: {reply:?}");
            assert_eq!(reply, ["E 08007", "Z Idle"], "{io}");
            assert_eq!(client.value("select 'goes on'"), "goes on", "{io}");
        }
    }
}

#[test]
fn a_read_whose_server_warned_before_it_went_is_run_again() {
    for io in DRIVERS {
        let bed = behind(io, READING, "SELECT 1", Interruption::Warning);
        let mut client = bed.client();
        let text = format!("select 'read' as {MARK}");
        let reply = client.query(&text);
        let last = &reply[reply.len() - 3..];
        assert_eq!(last, ["D read", "C SELECT 1", "Z Idle"], "{io}: {reply:?}");
    }
}

/// Sets a variable and reads in a loop; returns the replies if they are wrong. Each read needs a
/// restore of session state first, as every session has another name.
fn read_on(bed: &TestBed, number: usize, storm: &Storm) -> Option<Vec<String>> {
    let name = format!("storm {number}");
    let login = Login {
        settings: &[("application_name", &name)],
        ..bed.login()
    };
    let mut client = Client::log_in(bed.address, &login).unwrap();
    client.exchange(&Script::new().parse("s", "select 's'").sync(), 1);
    let run = Script::new().bind("s", &[]).execute().sync();
    let set = format!("set storm.own to '{name}'");
    while storm.goes_on(number) {
        let answer = client.query(&set);
        let reply = client.exchange(&run, 1);
        if answer != ["C SET", "Z Idle"] || reply != ["2", "D s", "C SELECT 1", "Z Idle"] {
            return Some([answer, reply].concat());
        }
    }
    None
}

/// TO SEE THIS RED: forward the server's final error while session state is restored.
#[test]
fn reads_fail_for_nobody_while_the_server_ends_connections_at_any_moment() {
    let mut admin = admin();
    for io in DRIVERS {
        let bed = TestBed::set_up(io, READING);
        let read = |number, storm: &Storm| read_on(&bed, number, storm);
        let wrong = storm(read, || {
            admin.run(
                "select pg_terminate_backend(pid) from pg_stat_activity \
                 where application_name like 'storm %' and datname = current_database()",
            );
        });
        assert!(wrong.is_empty(), "{io}: {wrong:?}");
    }
}

/// A user-defined function may write over its own connection, as dblink does; a change of a
/// sequence is not rolled back either. TO SEE THIS RED: retry statements that call such functions.
#[test]
fn what_may_have_acted_outside_of_its_transaction_is_not_run_again() {
    let mut own = admin();
    own.query(
        "create sequence if not exists outside_runs; grant all on outside_runs to sbtest;
         create table if not exists outside (a int); grant all on outside to sbtest;
         create or replace function acts_outside() returns int language plpgsql as $$
           begin perform nextval('outside_runs'); perform pg_sleep(1.5); return 1; end $$",
    );
    for io in DRIVERS {
        own.run("select setval('outside_runs', 100)");
        let bed = TestBed::set_up(io, PLAIN);
        let mut client = bed.client();
        let backend = client.backend();
        client.run_later("insert into outside values (acts_outside())");
        let runs = "select last_value from outside_runs";
        wait_until(&bed.balancer, "a call of the function", || {
            own.value(runs) == "101"
        });
        own.run(&format!("select pg_terminate_backend({backend})"));
        let answer = client.reply();
        assert!(answer[0].starts_with("E "), "{io}: {answer:?}");
        // Time in which a second call would begin.
        std::thread::sleep(Duration::from_millis(500));
        assert_eq!(own.value(runs), "101", "{io}");
    }
}

/// A function can raise any error number, even one of a server that ends an idle connection. TO SEE
/// THIS RED: treat such an error as the end of the connection although the connection continues.
#[test]
fn a_function_that_raises_the_number_of_an_idle_end_is_called_once() {
    let mut own = admin();
    own.query(
        "create sequence if not exists raised_runs; grant all on raised_runs to sbtest;
         create table if not exists raised (a int); grant all on raised to sbtest;
         create or replace function acts_and_raises() returns int language plpgsql as $$
           begin perform nextval('raised_runs');
                 raise exception 'raised' using errcode = '57P05'; end $$",
    );
    for io in DRIVERS {
        own.run("select setval('raised_runs', 100)");
        let bed = TestBed::set_up(io, PLAIN);
        let mut client = bed.client();
        let reply = client.query("insert into raised values (acts_and_raises())");
        let runs = own.value("select last_value from raised_runs");
        assert_eq!(runs, "101", "{io}: {reply:?}");
        assert_eq!(reply, ["E 57P05", "Z Idle"], "{io}");
    }
}
