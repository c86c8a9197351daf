//! Tests of ordered rules: rejections, time limits, and routing of reads.

use std::time::{Duration, Instant};

use serde_json::Value as Json;

use super::client::{Client, Value};
use super::split;
use super::stage::{ONE, Setup, TestBed, config, own_schema, shared, sql};
use crate::harness::cluster::service_toml;
use crate::harness::{DRIVERS, LIMIT, engine, service};

/// Returns the error that a client receives for a rule's statements.
fn refusal_of(rule: &str, words: &str) -> String {
    format!("error 1148 42000 rejected by rule \"{rule}\": {words}")
}

/// Returns how often a rule has matched.
fn hits(status: &Json, rule: &str) -> u64 {
    let rules = status["database"]["rules"].as_array().unwrap().iter();
    let mut rules = rules.filter(|one| one["name"] == rule);
    rules.next().unwrap()["hits_total"].as_u64().unwrap()
}

fn of(rules: &str) -> Setup<'_> {
    Setup {
        tables: rules,
        ..ONE
    }
}

const REFUSING: &str = "\
    [[service.rule]]\nname = 'tried'\nactive = false\nmatch = '^select'\nreject = 'never'\n\
    [[service.rule]]\nname = 'orders'\nmatch = '^delete from rules_orders$'\nreject = 'all of it?'\n\
    [[service.rule]]\nname = 'others'\nuser = 'somebody'\nreject = 'not you'\n\
    [[service.rule]]\nname = 'schema'\ndatabase = 'other'\nreject = 'not here'\n";

#[test]
fn what_a_rule_refuses_reaches_no_server_and_the_session_goes_on() {
    sql("create or replace table rules_orders (a int); \
         insert into rules_orders values (1)");
    for io in DRIVERS {
        let bed = TestBed::set_up(io, of(REFUSING));
        let mut client = bed.client();
        let refused = refusal_of("orders", "all of it?");
        for text in [
            "delete from rules_orders",
            "  DELETE FROM rules_orders ; ",
            "/* app */ delete from rules_orders",
            "prepare p from 'delete from rules_orders'",
        ] {
            assert_eq!(
                client.query(text),
                std::slice::from_ref(&refused),
                "{io}: {text}"
            );
        }
        client.run("begin");
        client.run("insert into rules_orders values (2)");
        assert_eq!(
            client.query("delete from rules_orders"),
            std::slice::from_ref(&refused)
        );
        client.run("rollback");
        assert_eq!(
            client.prepare("d", "delete from rules_orders"),
            std::slice::from_ref(&refused)
        );
        assert_eq!(
            client.value("select count(*) from rules_orders"),
            "1",
            "{io}"
        );
        client.run("set @a = 'delete from rules_orders'");
        client.run("delete from rules_orders where a > 5");
        let status = bed.status();
        assert_eq!(hits(&status, "orders"), 6, "{io}: {status}");
        assert_eq!(hits(&status, "others"), 0, "{io}: {status}");
        assert!(hits(&status, "tried") > 0, "{io}: {status}");
        // Conditions apply to the session's current schema.
        client.init_db("other");
        assert_eq!(client.query("select 1"), [refusal_of("schema", "not here")]);
        client.init_db(own_schema());
        assert_eq!(client.value("select 1"), "1", "{io}");
    }
}

#[test]
fn one_of_several_statements_that_is_refused_is_enough() {
    sql("create or replace table rules_orders (a int); \
         insert into rules_orders values (1)");
    let bed = TestBed::set_up("auto", of(REFUSING));
    let mut client = bed.client();
    let text = "insert into rules_orders values (3); delete from rules_orders; select 1";
    assert_eq!(client.query(text), [refusal_of("orders", "all of it?")]);
    assert_eq!(client.value("select count(*) from rules_orders"), "1");
}

#[test]
fn a_digest_is_met_by_every_text_that_differs_in_literals_only() {
    let bed = TestBed::set_up("auto", of(""));
    let explained = |text: &str| {
        let output = bed.balancer.command(&["explain", "--json", text]).unwrap();
        serde_json::from_slice::<Json>(&output.stdout).unwrap()
    };
    let told_of = explained("select 'x', 1");
    assert_eq!(told_of["normalized"], "select ?");
    // A part of the text is for servers of this kind only.
    let versioned = explained("select 1 /*M!100100 from dual */");
    assert_eq!(versioned["normalized"], "select ? from dual");
    let rule = |name: &str, told_of: &Json| {
        let digest = told_of["digest"].as_str().unwrap();
        format!("[[service.rule]]\nname = '{name}'\ndigest = '{digest}'\nreject = 'no'\n")
    };
    let rules = rule("d", &told_of) + &rule("v", &versioned);
    let bed = TestBed::set_up("auto", of(&rules));
    let mut client = bed.client();
    for text in ["SELECT 'y'", "select 2, 3 -- c"] {
        assert_eq!(client.query(text), [refusal_of("d", "no")], "{text}");
    }
    let text = "select 2 /*M!100100 FROM dual */";
    assert_eq!(client.query(text), [refusal_of("v", "no")], "{text}");
    assert_eq!(client.value("select @@port > 0"), "1");
}

#[test]
fn a_rule_s_time_holds_instead_of_the_service_s() {
    let rules = "[[service.rule]]\nname = 'short'\nmatch = 'short'\ntimeout_ms = 300\n\
                 [[service.rule]]\nname = 'long'\nmatch = 'long'\ntimeout_ms = 0\n";
    for io in DRIVERS {
        let setup = Setup {
            service: "query_timeout_ms = 1000",
            ..of(rules)
        };
        let bed = TestBed::set_up(io, setup);
        let mut client = bed.client();
        for text in ["select sleep(30) /* short */", "select sleep(30)"] {
            let started = Instant::now();
            let reply = client.query(text);
            assert!(started.elapsed() < LIMIT / 2, "{io}: {text} {reply:?}");
        }
        // The limit is checked twice a second.
        let started = Instant::now();
        assert_eq!(client.value("select sleep(2.5) /* long */"), "0", "{io}");
        assert!(started.elapsed() > Duration::from_secs(2), "{io}");
        client.prepare("p", "select sleep(30) /* short */");
        let started = Instant::now();
        client.execute("p", &[]);
        assert!(started.elapsed() < LIMIT / 2, "{io}");
        let status = bed.status();
        assert_eq!(
            (hits(&status, "short"), hits(&status, "long")),
            (2, 1),
            "{io}"
        );
    }
}

#[test]
fn a_reload_replaces_the_rules_of_those_who_are_there_and_keeps_the_hits() {
    for io in DRIVERS {
        let bed = TestBed::set_up(io, of(""));
        let with = |rules: &str| config(shared(), bed.address, io, of(rules));
        let mut client = bed.client();
        client.prepare("p", "select 'prepared'");
        assert_eq!(client.execute("p", &[])[1], "row prepared");
        bed.balancer.reload(&with(REFUSING)).unwrap();
        client.run("select 1");
        let rules = "[[service.rule]]\nname = 'tried'\nmatch = '^select'\nreject = 'now'\n";
        bed.balancer.reload(&with(rules)).unwrap();
        assert_eq!(
            client.query("select 1"),
            [refusal_of("tried", "now")],
            "{io}"
        );
        assert_eq!(
            client.execute("p", &[]),
            [refusal_of("tried", "now")],
            "{io}"
        );
        assert_eq!(hits(&bed.status(), "tried"), 3, "{io}");
        let wrong = "[[service.rule]]\nname = 'tried'\nmatch = '('\nreject = 'now'\n";
        let why = bed.balancer.reload(&with(wrong)).unwrap_err().to_string();
        assert!(why.contains("E_VALUE"), "{why}");
        assert_eq!(
            client.query("select 1"),
            [refusal_of("tried", "now")],
            "{io}"
        );
        bed.balancer.reload(&with("")).unwrap();
        assert_eq!(client.execute("p", &[])[1], "row prepared", "{io}");
        let status = bed.status();
        assert_eq!(status["database"]["rules"], Json::Array(Vec::new()), "{io}");
    }
}

/// TO SEE THIS RED: keep data on the server that was sent for a refused execution.
#[test]
fn what_was_sent_ahead_of_an_execution_that_a_rule_refuses_is_gone_with_it() {
    let rules = "[[service.rule]]\nname = 'tried'\nmatch = '^select'\nreject = 'now'\n";
    for io in DRIVERS {
        let bed = TestBed::set_up(io, of(""));
        let with = |rules: &str| config(shared(), bed.address, io, of(rules));
        let mut client = bed.client();
        client.prepare("p", "select ?");
        client.send_long_data("p", 0, b"refused");
        bed.balancer.reload(&with(rules)).unwrap();
        let told_of = client.execute("p", &[Value::Sent]);
        assert_eq!(told_of, [refusal_of("tried", "now")], "{io}");
        bed.balancer.reload(&with("")).unwrap();
        client.send_long_data("p", 0, b"whole");
        let received = client.execute("p", &[Value::Sent]);
        assert!(
            received.contains(&"row whole".to_owned()),
            "{io}: {received:?}"
        );
    }
}

/// Clients of MariaDB execute a statement before they know its number.
#[test]
fn what_is_executed_behind_a_refused_prepare_is_not_the_statement_before_it() {
    const LAST: u32 = u32::MAX;
    sql("create or replace table rules_last (a int)");
    for io in DRIVERS {
        let bed = TestBed::set_up(io, of(REFUSING));
        let mut client = bed.client();
        client.prepare("p", "insert into rules_last values (1)");
        let refused = client.prepare("d", "delete from rules_orders");
        assert_eq!(refused, [refusal_of("orders", "all of it?")], "{io}");
        let executed = client.execute_id(LAST);
        assert!(executed[0].starts_with("error 1243 "), "{io}: {executed:?}");
        let count = client.value("select count(*) from rules_last");
        assert_eq!(count, "0", "{io}");
    }
}

const SENDING: &str = "\
    [[service.rule]]\nname = 'pinned'\nmatch = '@pinned'\nto = 'replicas'\n\
    [[service.rule]]\nname = 'vouched'\nmatch = 'vouched'\nto = 'replicas'\nassume_read = true\n\
    [[service.rule]]\nname = 'to-primary'\nmatch = 'fresh'\nto = 'primary'\n\
    [[service.rule]]\nname = 'reports'\nmatch = 'report'\nto = ['REPLICA']\n\
    [[service.rule]]\nname = 'anywhere'\nmatch = 'anywhere'\nto = 'any'\n";

fn explains_rules(bed: &split::TestBed, report: &str) {
    let status = service(&bed.balancer.status().unwrap(), "db");
    assert!(hits(&status, "reports") >= 11, "{status}");
    let reply = tried(bed, "reports");
    assert_eq!(reply["servers"], serde_json::json!([report]), "{reply}");
    assert_eq!(reply["rule_test"], "reports matches");
    assert_eq!(reply["rules"][0]["name"], "reports");
    assert_eq!(
        tried(bed, "anywhere")["rule_test"],
        "anywhere does not match: see its `match`"
    );
}

/// Returns the output of `explain` for a report under this rule.
fn tried(bed: &split::TestBed, rule: &str) -> Json {
    let sql = "select here() /* report */";
    let args = ["explain", "--json", "--rule", rule, sql];
    let output = bed.balancer.command(&args).unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn reads_go_where_a_rule_says_and_nothing_else_does() {
    let bed = split::TestBed::of_mariadb("auto", "consistency = \"eventual\"");
    let primary = bed.port_of_primary();
    let report = &bed.replicas()[0];
    let rules = SENDING.replace("REPLICA", &report.name);
    let split = format!(
        "[service.split]\nreads = true\nprimary_reads = false\nconsistency = \"eventual\"\n{rules}"
    );
    let lines = service_toml(
        "db",
        bed.scenario.kind,
        bed.listen,
        &bed.scenario.servers,
        &split,
    );
    let claims = "create function claims() returns int modifies sql data return @@port";
    Client::connect(bed.primary().address).run(claims);
    bed.scenario.wait_caught_up().unwrap();
    bed.balancer.reload(&(engine("auto") + &lines)).unwrap();
    let mut client = bed.client();
    let at = |client: &mut Client, text: &str| {
        let row = client.value(text);
        row.split('|').next().unwrap_or_default().to_owned()
    };
    assert_eq!(at(&mut client, "select here() /* fresh */"), primary);
    for _ in 0..10 {
        let there = at(&mut client, "select here() /* report */");
        assert_eq!(there, report.address.port().to_string());
    }
    client.prepare("r", "select here() /* report */");
    let row = format!("row {}", report.address.port());
    assert_eq!(client.execute("r", &[])[1], row);
    let mut seen: Vec<String> = (0..60)
        .map(|_| at(&mut client, "select here() /* anywhere */"))
        .collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 3, "the primary and both replicas: {seen:?}");
    // Writing and locking statements stay on the primary, even if declared safe; so do undeclared
    // ones.
    for text in [
        "select here() from counters where id = 1 for update /* vouched */",
        "select here(), @pinned := 1",
        "select here(), bump(1, 5) /* report */",
        "/* evenkeel: primary */ select here() /* report */",
    ] {
        assert_eq!(at(&mut client, text), primary, "{text}");
        client.reset();
    }
    // The rule declares functions safe, rightly or not: if a replica refuses one, its answer is
    // final.
    assert_eq!(
        client.value("select here(), bump(1, 6) /* vouched */"),
        format!("{primary}|6")
    );
    assert_eq!(at(&mut bed.client(), "select claims()"), primary);
    let there = at(&mut bed.client(), "select claims() /* vouched */");
    assert_ne!(there, primary);
    // Transactions have precedence over rules.
    let mut client = bed.client();
    client.run("begin");
    assert_eq!(at(&mut client, "select here() /* report */"), primary);
    client.run("commit");
    explains_rules(&bed, &report.name);
}
