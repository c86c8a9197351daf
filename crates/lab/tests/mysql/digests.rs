//! Tests of statement digests, and of the counters of users, servers and statements.

use serde_json::Value as Json;

use super::client::{Client, Login, Value};
use super::console::ConsoleBed;
use super::stage::{own_schema, sql};
use crate::harness::{DRIVERS, done};

/// The statements of a service, by their texts.
struct Digests(Vec<Json>);

impl Digests {
    fn of(console_bed: &ConsoleBed) -> Digests {
        let printed = done(&console_bed.bed.balancer, &["digests", "pool", "--json"]);
        Digests(serde_json::from_str(&printed).unwrap())
    }

    /// Returns queries, failures, rows sent, rows changed.
    fn counts(&self, text: &str) -> [u64; 4] {
        let found = self.0.iter().find(|one| one["statement"] == text);
        let found = found.unwrap_or_else(|| panic!("{text}: {:#?}", self.0));
        [
            "queries_total",
            "errors_total",
            "rows_sent_total",
            "rows_affected_total",
        ]
        .map(|key| found[key].as_u64().unwrap())
    }
}

#[test]
fn texts_executions_and_failures_are_counted_and_no_literal_is_kept() {
    sql("create or replace table digests (a int primary key, b varchar(50))");
    for io in DRIVERS {
        sql("delete from digests");
        let console_bed = ConsoleBed::set_up(io, "");
        let other = Login {
            user: "root_of_secrets",
            ..Login::default()
        };
        // A login with a wrong password is no statement.
        assert!(Client::log_in(console_bed.bed.address, &other).is_err());
        let mut client = console_bed.bed.client();
        for number in 1..=3 {
            let text = format!(
                "INSERT INTO digests VALUES ({number}, 'Geheim{number}'), (-{number}, 'x')"
            );
            client.run(&text);
        }
        client.refusal("insert into digests values (1, 'Geheim4'), (1, 'y')");
        client.prepare("some", "select a from digests where a > ?");
        for number in 0..2 {
            client.execute("some", &[Value::Number(number)]);
        }
        client.run("select a from digests where a > 0 /* Geheim5 */");
        client.prepare("wrong", "select nothing from digests where b = 'Geheim6'");
        client.run("update digests set b = \"Geheim7\" where a < 0");
        let mut second = console_bed.bed.client();
        second.run("select a\n from digests where a > -100");

        let digests = Digests::of(&console_bed);
        let insert = "insert into digests values (?)";
        assert_eq!(digests.counts(insert), [4, 1, 0, 6], "{io}");
        let select = "select a from digests where a > ?";
        // Three are above 0, two above 1.
        assert_eq!(digests.counts(select), [4, 0, 3 + 2 + 3 + 6, 0], "{io}");
        let update = "update digests set b = ? where a < ?";
        assert_eq!(digests.counts(update), [1, 0, 0, 3], "{io}");
        let wrong = "select nothing from digests where b = ?";
        assert_eq!(digests.counts(wrong), [1, 1, 0, 0], "{io}");
        for shown in [
            format!("{:?}", digests.0),
            console_bed.show("SHOW DIGESTS").join("\n"),
            console_bed.bed.status().to_string(),
            console_bed.bed.balancer.log(),
        ] {
            assert!(!shown.contains("Geheim"), "{io}: {shown}");
        }
        let text = "SELECT queries, errors, rows_affected FROM digests WHERE statement = '";
        let shown = console_bed.show(&format!("{text}{insert}'"));
        assert_eq!(shown, ["4\t1\t6"], "{io}");
    }
}

#[test]
fn users_and_servers_have_figures_of_their_own() {
    for io in DRIVERS {
        let console_bed = ConsoleBed::set_up(io, "");
        let before = console_bed.bed.status();
        let mut client = console_bed.bed.client();
        client.run("select 1 union select 2");
        client.refusal("select nothing");
        client.run("select sleep(0.05)");
        let after = console_bed.bed.status();
        let user = |status: &Json, key: &str| status["database"]["users"][0][key].as_u64();
        let server = |status: &Json, key: &str| status["servers"][0]["work"][key].as_u64();
        for of in [&user as &dyn Fn(&Json, &str) -> Option<u64>, &server] {
            let grown = |key| of(&after, key).unwrap() - of(&before, key).unwrap_or(0);
            assert_eq!(grown("queries_total"), 3, "{io}");
            assert_eq!(grown("errors_total"), 1, "{io}");
            assert_eq!(grown("rows_sent_total"), 3, "{io}");
            assert!(grown("busy_us_total") >= 50_000, "{io}");
            let p95_us = of(&after, "p95_us").unwrap();
            assert!((40_000..=400_000).contains(&p95_us), "{io}: {p95_us}");
        }
        let shown = console_bed.show("SELECT queries, errors, rows_sent FROM stats_servers");
        assert_eq!(shown.len(), 1, "{io}");
        let shown = console_bed.show("SELECT user, database FROM stats_users");
        assert_eq!(shown, [format!("sbtest\t{}", own_schema())], "{io}");
    }
}

#[test]
fn a_table_of_digests_has_room_for_so_many_and_counts_the_rest_as_one() {
    let console_bed = ConsoleBed::set_up("auto", "digests_max = 100");
    let mut client = console_bed.bed.client();
    for number in 0..5_000 {
        client.run(&format!("select {number} as n{number}"));
    }
    let digests = Digests::of(&console_bed).0;
    assert_eq!(digests.len(), 101);
    let other = digests.iter().find(|one| one["digest"] == "other").unwrap();
    let others = other["queries_total"].as_u64().unwrap();
    assert!((4_900..=5_000).contains(&others), "{others}");
    let shown = console_bed.bed.status()["database"]["digests"].clone();
    assert_eq!(shown.as_array().unwrap().len(), 20);
}

#[test]
fn digests_are_turned_off_and_on_by_a_reload() {
    let console_bed = ConsoleBed::set_up("auto", "digests_max = 0");
    let mut client = console_bed.bed.client();
    client.run("select 1");
    assert!(Digests::of(&console_bed).0.is_empty());
    let config = console_bed.bed.balancer.config();
    let config = config.replace("digests_max = 0", "digests_max = 5");
    console_bed.bed.balancer.reload(&config).unwrap();
    client.run("select 2");
    client.run("select 3");
    assert_eq!(Digests::of(&console_bed).counts("select ?"), [2, 0, 2, 0]);
}
