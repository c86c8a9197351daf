//! Tests random conversations: the pool answers like a direct connection, packet by packet.

use super::client::{Client, Value};
use super::stage::{Setup, TestBed, shared};
use crate::harness::DRIVERS;
use crate::harness::rng::{TestRng, conversations};

/// Number of conversations per driver, and of steps in each.
const CONVERSATIONS: u64 = 40;
const STEPS: u64 = 60;

const TEXTS: [&str; 44] = [
    "select 1",
    "select @a, @b",
    "select @@time_zone, @@sql_mode",
    "select database(), @@autocommit, @@tx_isolation",
    "select seq from seq_1_to_3",
    "select 1; select 2",
    "select 1; selekt",
    "selekt",
    "",
    "begin",
    "begin",
    "start transaction read only",
    "commit",
    "rollback",
    "commit; begin",
    "savepoint s",
    "rollback to s",
    "set autocommit = 0",
    "set autocommit = 1",
    "set @a = 5",
    "set @a = 'x', @b := null",
    "set @b = @a",
    "select @a := 7",
    "set time_zone = '+01:00'",
    "set time_zone = default",
    "set sql_mode = 'ANSI_QUOTES'",
    "set sql_mode = ''",
    "set sql_mode = default",
    "set names latin1",
    "set names utf8mb4",
    "set session transaction isolation level read committed",
    "set transaction isolation level serializable",
    "set tx_isolation = default",
    "use other",
    "use sbtest",
    "use there_is_none",
    "insert into sbtest.by_chance (a) values (1)",
    "insert into sbtest.by_chance (a) values (1), (2)",
    "select row_count()",
    "select cast('x' as signed)",
    "show warnings",
    "select count(*) > 0 from sbtest.by_chance where a < 0",
    "create temporary table if not exists by_chance_t (a int)",
    "drop temporary table if exists by_chance_t",
];

const PREPARED: [&str; 8] = [
    "select 1",
    "select ?",
    "select @a, ?",
    "insert into sbtest.by_chance (a) values (?)",
    "select @@time_zone",
    "select database()",
    "selekt ?",
    "select a from (select 1 as a union select 2 union select 3 union select 4) as four",
];

/// Runs one step of a client, which depends only on the random numbers.
fn step(client: &mut Client, rng: &mut TestRng, known: &mut Vec<(String, usize)>) -> Vec<String> {
    let pick = rng.below(16);
    let which = rng.below(100);
    let text = rng.of(&TEXTS);
    let prepared = rng.of(&PREPARED);
    let chosen = usize::try_from(which).unwrap() % known.len().max(1);
    let statement = known.get(chosen).cloned();
    let mut received = vec![format!("> {pick} {text} / {prepared}")];
    received.extend(match (pick, statement) {
        (0..=7, _) => client.query(text),
        (8, _) => {
            let name = format!("s{}", known.len());
            let printed = client.prepare(&name, prepared);
            if printed[0].starts_with("prepared") {
                known.push((name, prepared.matches('?').count()));
            }
            printed
        }
        (9..=11, Some((name, count))) => client.execute(&name, &vec![Value::Number(8); count]),
        (12, Some((name, 0))) => {
            let mut printed = client.open(&name, &[]);
            printed.extend(client.fetch(&name, 2));
            printed
        }
        (13, Some((name, _))) => client.reset_statement(&name),
        (14, _) if which < 20 => {
            known.clear();
            client.reset()
        }
        (15, _) => client.ping(),
        _ => client.init_db(["sbtest", "other"][chosen % 2]),
    });
    received
}

#[test]
fn conversations_by_chance_go_as_at_the_server() {
    let mut direct = Client::connect(shared().address);
    direct.run("drop table if exists sbtest.by_chance");
    direct.run(
        "create table sbtest.by_chance (id int auto_increment primary key, a int) engine=memory",
    );
    let setup = Setup {
        pool: "size = 2\nstatements_max = 2",
        ..Setup::default()
    };
    let mut differences = Vec::new();
    for io in DRIVERS {
        let bed = TestBed::before(shared(), io, setup);
        let mut other = bed.client();
        for seed in conversations(CONVERSATIONS) {
            let differs = differs(&bed, &mut other, seed);
            differences.extend(differs.map(|words| format!("{io}, seed {seed}, {words}")));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Returns the first step of the conversation that goes otherwise than at the server.
fn differs(bed: &TestBed, other: &mut Client, seed: u64) -> Option<String> {
    let mut rng = TestRng(seed * 7_919 + 17);
    let mut direct = Client::connect(shared().address);
    let mut client = bed.client();
    let (mut of_direct, mut of_client) = (Vec::new(), Vec::new());
    let mut steps = Vec::new();
    for number in 0..STEPS {
        let mut same_rng = rng.clone();
        let expected = step(&mut direct, &mut rng, &mut of_direct);
        let received = step(&mut client, &mut same_rng, &mut of_client);
        steps.push(expected[0].clone());
        if without_ids(&received) != without_ids(&expected) {
            return Some(format!(
                "{steps:#?}:\n  {received:#?}\nis at the server\n  {expected:#?}"
            ));
        }
        let row = format!("row other {seed} {number}");
        let reply = other.query(&format!("select 'other {seed} {number}'"));
        assert_eq!(reply[1], row);
        other.run("set @a = 'other', @b = 'other', time_zone = '-06:00'");
    }
    None
}

/// Removes ids: both insert into one table, and get different numbers.
fn without_ids(lines: &[String]) -> Vec<String> {
    let without = lines.iter().map(|line| match line.split_once(" id=") {
        Some((before, after)) => {
            let rest = after.split_once(' ').map_or("", |(_, rest)| rest);
            format!("{before} {rest}")
        }
        None => line.clone(),
    });
    without.collect()
}
