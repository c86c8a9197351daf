//! Tests random conversations: a client of the pool receives the same messages as a direct client
//! of the server.

use super::client::Client;
use super::script::Script;
use super::stage::{Setup, TestBed, shared};
use crate::harness::DRIVERS;
use crate::harness::rng::{TestRng, conversations};

/// Number of conversations per driver, of scripts in each, and of messages in each script.
const CONVERSATIONS: u64 = 40;
const SCRIPTS: u64 = 12;
const MESSAGES: u64 = 14;

/// Removes what the client may hold on its connection, so that the other one gets it.
const CLEANUP: &str =
    "drop table if exists by_chance_held; unlisten by_chance; select pg_advisory_unlock_all()";

/// Counts the statements for which the client keeps its connection.
const OF_SQL: &str = "select count(*) from pg_prepared_statements where from_sql";

const TEXTS: [&str; 44] = [
    "select 1",
    "select $1::text",
    "select $1::int + 1",
    "select 1 / (random() * 0)::int",
    "select generate_series(1, 3)",
    "selekt",
    "",
    "begin",
    "begin",
    "commit",
    "rollback",
    "savepoint a",
    "rollback to savepoint a",
    "set work_mem to '1MB'",
    "set local work_mem to '2MB'",
    "show work_mem",
    "reset work_mem",
    "set search_path to pg_catalog",
    "show search_path",
    "deallocate s1",
    "deallocate all",
    "insert into by_chance values (1)",
    "select count(*) from by_chance where a < 0",
    // After these it is uncertain what the connection holds.
    "create temp table by_chance_held (a int)",
    "select count(*) from by_chance_held",
    "listen by_chance",
    "select set_config('work_mem', $1::text || 'MB', false)",
    "select set_config('by_chance.own', $1::text || 'x', false)",
    // One that was reset is empty, one that was never set on the connection is NULL.
    "select coalesce(current_setting('by_chance.own', true), '')",
    "do $$ begin perform pg_advisory_unlock(4799); end $$",
    "select pg_try_advisory_lock(4799)",
    "select set_config('DateStyle', 'SQL, ' || 'DMY', false)",
    "select '2026-02-01'::date",
    "select set_config('search_path', 'public' || ', pg_catalog', false)",
    "select set_config('by_chance.' || 'own', 'y', true)",
    "reset all",
    // SQL that names statements of the protocol.
    "execute s1",
    "execute s2",
    "prepare s1 as select 'sql'",
    "prepare s2 as select 'sql'",
    "select 1; deallocate s1",
    "deallocate s2; execute s1",
    "deallocate s3",
    "execute s3; deallocate s3",
];

fn script(rng: &mut TestRng) -> Script {
    let mut script = Script::new();
    for _ in 0..=rng.below(MESSAGES) {
        let name = rng.of(&["", "", "s1", "s2", "s3"]);
        let portal = rng.of(&["", "", "", "p"]);
        script = match rng.below(16) {
            0..=2 => script.parse(name, rng.of(&TEXTS)),
            3..=5 => script.bind_to(portal, name, &[]).execute_of(portal, 0),
            6 => script.bind_to(portal, name, &["7"]).execute_of(portal, 1),
            7 => script.describe(name),
            8 => script.bind_to(portal, name, &["8"]).describe_portal(portal),
            9 => script.close(name).execute_of(portal, 2),
            10 => script.close(name),
            11 => script.close_portal(portal),
            12 => script.flush(),
            13 => script.query(rng.of(&TEXTS)),
            _ => script.sync(),
        };
    }
    script
}

/// Sends a script, and returns all messages up to the reply to a final query.
fn converse(client: &mut Client, script: &Script, number: u64) -> Vec<String> {
    client.send_script(script);
    let mark = format!("select 'mark {number}'");
    client.send_script(
        &Script::new()
            .sync()
            .query("rollback; begin; rollback")
            .query(CLEANUP)
            .query(&mark),
    );
    let row = format!("D mark {number}");
    let mut received = Vec::new();
    loop {
        let line = client.receive_message();
        let is_last = line == row || line == "end";
        if !line.starts_with("N ") {
            received.push(line);
        }
        if is_last {
            received.extend(client.reply());
            return received;
        }
    }
}

/// Returns whether the first difference is that a statement had to be prepared again, which the
/// server refused, because its table is gone or the transaction has failed. On the client's own
/// connection it would be there for a Describe, or for a Bind of too many values. From there on the
/// transactions differ.
fn is_of_statement_prepared_again(received: &[String], expected: &[String]) -> bool {
    let mut both = received.iter().zip(expected);
    let first = both.find(|(received, expected)| received != expected);
    first.is_some_and(|(received, expected)| {
        matches!(&**received, "E 42P01" | "E 25P02") && matches!(&**expected, "t" | "E 08P01")
    })
}

#[test]
fn conversations_by_chance_go_as_at_the_server() {
    let mut server = Client::connect(shared().address);
    server.run("drop table if exists by_chance");
    server.run("create table by_chance (a int)");
    let mut differences = Vec::new();
    for io in DRIVERS {
        let bed = TestBed::set_up(
            io,
            Setup {
                pool: "size = 1\nstatements_max = 2",
                ..Setup::default()
            },
        );
        let mut other = bed.client();
        for seed in conversations(CONVERSATIONS) {
            let differs = differs(&bed, &mut other, seed);
            differences.extend(differs.map(|words| format!("{io}, seed {seed}, {words}")));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Returns the first script of the conversation that goes otherwise than at the server.
fn differs(bed: &TestBed, other: &mut Client, seed: u64) -> Option<String> {
    let mut rng = TestRng(seed * 7_919 + 17);
    let mut direct = Client::connect(shared().address);
    let mut client = bed.client();
    let mut scripts = Vec::new();
    for number in 0..SCRIPTS {
        let script = script(&mut rng);
        scripts.push(String::from_utf8_lossy(&script.0).into_owned());
        let expected = converse(&mut direct, &script, number);
        let received = converse(&mut client, &script, number);
        if is_of_statement_prepared_again(&received, &expected) {
            break;
        }
        if received != expected {
            return Some(format!(
                "script {number} of {scripts:#?}:\n  {received:?}\nis at the server\n  {expected:?}"
            ));
        }
        if direct.value(OF_SQL) != "0" {
            continue;
        }
        let row = format!("D other {seed} {number}");
        let text = format!("select 'other {seed} {number}'");
        let parsed = Script::new().parse("", &text);
        let reply = other.exchange(&parsed.bind("", &[]).execute().sync(), 1);
        if reply.get(2) != Some(&row) {
            let log = bed.balancer.log();
            return Some(format!(
                "after {scripts:#?}:\n  {reply:?} for another client\n{log}"
            ));
        }
    }
    None
}
