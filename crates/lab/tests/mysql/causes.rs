//! Tests of pin causes: clients, status and log show the statement and the setting or object.

use evenkeel_lab::eventually;
use serde_json::Value;

use super::stage::{TestBed, own_schema, sql};
use crate::harness::pool::Setup;
use crate::harness::{DRIVERS, LIMIT, done};

/// Statement of a client, the reason of its pin, the object, and a part of the statement shown.
const CASES: [(&str, &str, &str, &str); 6] = [
    (
        "create temporary table cause_t (a int)",
        "temporary tables",
        "OWN.cause_t",
        "create temporary table",
    ),
    (
        "select get_lock('cause', 1)",
        "advisory or named locks",
        "cause",
        "select get_lock(?)",
    ),
    (
        "prepare s from 'select 1'",
        "SQL PREPARE",
        "s",
        "prepare s from ?",
    ),
    (
        "set @a = 1 + 1",
        "untracked user variables",
        "a",
        "set @a = ?",
    ),
    (
        "lock tables cause_locked read",
        "LOCK TABLES",
        "",
        "lock tables cause_locked read",
    ),
    (
        "handler cause_locked open",
        "open HANDLER",
        "cause_locked",
        "handler cause_locked open",
    ),
];

fn pinned_by(bed: &TestBed, index: usize) -> Option<Value> {
    let listed = done(&bed.balancer, &["clients", "pool", "--json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let first = &listed["clients"][index]["pinned_by"][0];
    (!first.is_null()).then(|| first.clone())
}

/// TO SEE THIS RED: do not record the source of an analysis.
#[test]
fn clients_status_and_log_name_the_statement_and_the_object_that_pinned() {
    sql("create table if not exists cause_locked (a int)");
    let many = Setup {
        pool: "size = 20",
        ..Setup::default()
    };
    for io in DRIVERS {
        let bed = TestBed::set_up(io, many);
        let mut clients = Vec::new();
        for (index, (text, reason, object, statement)) in CASES.into_iter().enumerate() {
            let mut client = bed.client();
            client.run(text);
            clients.push(client);
            let found = eventually(LIMIT, "a cause", || Ok(pinned_by(&bed, index)));
            let found = found.unwrap_or_else(|error| panic!("{io}: {error}: {text}"));
            let reasons = found["reason"].as_str().unwrap();
            assert!(
                reasons.split(", ").any(|one| one == reason),
                "{io}: {text}: {found}"
            );
            let object = object.replace("OWN", own_schema());
            assert_eq!(found["object"], object, "{io}: {text}: {found}");
            let shown = found["statement"].as_str().unwrap();
            assert!(shown.contains(statement), "{io}: {text}: {found}");
        }
        let causes = bed.status()["database"]["pin_causes"].clone();
        assert_eq!(
            causes.as_array().unwrap().len(),
            CASES.len(),
            "{io}: {causes}"
        );
        let log = bed.balancer.log();
        let is_named = |line: &&str| {
            line.contains("session pinned to its server connection") && line.contains("(cause)")
        };
        assert!(log.lines().any(|line| is_named(&line)), "{io}: {log}");
    }
}
