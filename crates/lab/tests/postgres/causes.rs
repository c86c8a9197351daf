//! Tests of pin causes: clients, status and log show the statement and the setting or object.

use evenkeel_lab::eventually;
use serde_json::Value;

use super::client::{Client, Login};
use super::stage::{ONE, TestBed};
use super::unnamed::database;
use crate::harness::pool::Setup;
use crate::harness::{DRIVERS, LIMIT, done};

/// A pool in which every case has its own connection.
const MANY: Setup<'static> = Setup {
    pool: "size = 20",
    ..ONE
};

const FUNCTIONS: &str = "
    create function cause_locks(int) returns int language plpgsql as
      $$ begin perform pg_try_advisory_lock(4713); return $1; end $$;
    create table cause_written (a int);
    create function cause_trigger() returns trigger language plpgsql as
      $$ begin perform set_config('app.tenant', '7', false); return new; end $$;
    create trigger t before insert on cause_written for each row execute function cause_trigger();
    create view cause_view as select cause_locks(1);";

/// Statement of a client, the reason of its pin, the object, and a part of the statement shown.
const CASES: [(&str, &str, &str, &str); 11] = [
    ("begin; listen a; commit", "LISTEN", "", "listen a"),
    (
        "create temp table t (a int)",
        "temporary tables",
        "",
        "create temp table t (a int)",
    ),
    (
        "select pg_advisory_lock(4714)",
        "advisory or named locks",
        "function pg_advisory_lock",
        "select pg_advisory_lock(?)",
    ),
    (
        "select set_config('work_mem', current_setting('work_mem'), false)",
        "untracked values of settings",
        "setting work_mem",
        "select set_config(?",
    ),
    (
        "select set_config('app.' || 'x', 'y', false)",
        "untracked settings",
        "setting that the text does not name",
        "select set_config(?",
    ),
    (
        "prepare p as select 1",
        "SQL PREPARE",
        "",
        "prepare p as select ?",
    ),
    (
        "begin; declare c cursor with hold for select 1; commit",
        "cursor WITH HOLD",
        "",
        "declare c cursor with hold",
    ),
    (
        "select cause_locks(1)",
        "advisory or named locks",
        "function cause_locks",
        "select cause_locks(?)",
    ),
    (
        "insert into cause_written values (1)",
        "untracked settings",
        "table or view cause_written",
        "insert into cause_written",
    ),
    (
        "select * from cause_view",
        "advisory or named locks",
        "table or view cause_view",
        "select * from cause_view",
    ),
    (
        "do $$ begin perform pg_advisory_lock(4715); end $$",
        "advisory or named locks",
        "function pg_advisory_lock",
        "do ?",
    ),
];

fn pinned_by(bed: &TestBed, index: usize) -> Option<Value> {
    let listed = done(&bed.balancer, &["clients", "pool", "--json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let client = &listed["clients"][index];
    let first = &client["pinned_by"][0];
    (!first.is_null()).then(|| first.clone())
}

fn expect(bed: &TestBed, index: usize, (reason, object, statement): (&str, &str, &str)) {
    let found = eventually(LIMIT, "a cause", || Ok(pinned_by(bed, index)));
    let found = found.unwrap_or_else(|error| panic!("{error}: {statement}"));
    let reasons = found["reason"].as_str().unwrap();
    assert!(
        reasons.split(", ").any(|one| one == reason),
        "{statement}: {found}"
    );
    assert_eq!(found["object"], object, "{statement}: {found}");
    let shown = found["statement"].as_str().unwrap();
    assert!(shown.contains(statement), "{statement}: {found}");
}

/// TO SEE THIS RED: do not record the source of an analysis.
#[test]
fn clients_status_and_log_name_the_statement_and_the_object_that_pinned() {
    let login = database("causes", FUNCTIONS, "");
    for io in DRIVERS {
        let bed = TestBed::set_as(io, MANY, &login);
        let log_in = || Client::log_in(bed.address, &login).unwrap();
        let mut clients = Vec::new();
        for (index, (text, reason, object, statement)) in CASES.into_iter().enumerate() {
            let mut client = log_in();
            client.run(text);
            clients.push(client);
            expect(&bed, index, (reason, object, statement));
        }
        let mut unpinned = log_in();
        unpinned.run("select 1");
        assert_eq!(pinned_by(&bed, CASES.len()), None, "{io}");
        shown(&bed, io);
        clients[0].run("unlisten *");
        let freed = eventually(LIMIT, "a client without a cause", || {
            Ok(pinned_by(&bed, 0).is_none().then_some(()))
        });
        freed.unwrap_or_else(|error| panic!("{io}: {error}"));
    }
}

fn shown(bed: &TestBed, io: &str) {
    let status = bed.status();
    let causes = status["database"]["pin_causes"].as_array().unwrap().clone();
    let is_listen = |cause: &&Value| cause["reason"] == "LISTEN";
    let listen = causes.iter().find(is_listen);
    let listen = listen.unwrap_or_else(|| panic!("{io}: {causes:?}"));
    assert_eq!(listen["pinned_total"], 1);
    let table = done(&bed.balancer, &["clients", "pool"]);
    for part in ["function cause_locks", "select cause_locks(?)", "STATEMENT"] {
        assert!(table.contains(part), "{io}: {part}: {table}");
    }
    // Clients are counted twice a second.
    let summary = eventually(LIMIT, "pinned clients in the status", || {
        let summary = done(&bed.balancer, &["status"]);
        Ok(summary.contains("pinned by ").then_some(()))
    });
    summary.unwrap_or_else(|error| panic!("{io}: {error}"));
    let log = bed.balancer.log();
    let logged = log
        .lines()
        .filter(|line| line.contains("session pinned to its server connection"));
    let logged: Vec<_> = logged.collect();
    let is_named =
        |line: &&&str| line.contains("setting work_mem") && line.contains("set_config(?");
    assert!(
        logged.iter().any(|line| is_named(&line)),
        "{io}: {logged:#?}"
    );
}

/// TO SEE THIS RED: show the statement of the text and not of the prepared statement.
#[test]
fn a_prepared_statement_that_pins_is_named() {
    use super::script::Script;
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let mut client = bed.client();
        let script = Script::new()
            .parse("s", "select set_config('app.tenant', $1, false)")
            .bind("s", &["7"])
            .execute()
            .sync();
        client.exchange(&script, 1);
        let wanted = (
            "untracked values of settings",
            "setting app.tenant",
            "set_config(?",
        );
        expect(&bed, 0, wanted);
    }
}

/// A long text is not analyzed, and shown by its length.
#[test]
fn a_text_that_is_too_long_to_be_read_is_named_so() {
    for io in DRIVERS {
        let bed = TestBed::set_as(io, ONE, &Login::default());
        let mut client = bed.client();
        client.run(&format!("select length('{}')", "x".repeat(2 << 20)));
        let wanted = ("unknown session state", "", "a text of more than 1 MiB");
        expect(&bed, 0, wanted);
    }
}
