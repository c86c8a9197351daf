//! Tests of where each kind of statement runs, sent as text and prepared.

use evenkeel_lab::eventually;

use crate::harness::cluster::service_toml;
use crate::harness::{DRIVERS, LIMIT, done, engine, refused};
use crate::stage::{Client, TestBed, WHERE};

const SCHEMA: &str = "
    CREATE TABLE things (id int PRIMARY KEY, what text);
    INSERT INTO things SELECT n, 'thing ' || n FROM generate_series(1, 10) n;
    CREATE SEQUENCE numbers;
    CREATE FUNCTION vol() RETURNS int LANGUAGE plpgsql VOLATILE AS
        $$ BEGIN INSERT INTO things VALUES (1000 + nextval('numbers'), 'vol'); RETURN 1; END $$;
    CREATE FUNCTION \"Vol\"() RETURNS int LANGUAGE sql AS 'SELECT vol()';
    CREATE FUNCTION stab() RETURNS bigint LANGUAGE sql STABLE AS 'SELECT count(*) FROM things';
    CREATE FUNCTION immu(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 + 1';
    CREATE FUNCTION volop(int, int) RETURNS boolean LANGUAGE sql VOLATILE AS 'SELECT vol() = 1';
    CREATE FUNCTION tells(things) RETURNS text LANGUAGE sql STABLE AS 'SELECT $1.what';
    CREATE VIEW harmless AS SELECT id, what FROM things WHERE id < 1000;
    CREATE VIEW harmful AS SELECT vol() AS one;
    CREATE VIEW over_harmful AS SELECT * FROM harmful;";

/// Each reports the port of its server in the first column of its last row.
const PRIMARY: &[&str] = &[
    "SELECT inet_server_port() FROM things WHERE id = 1 FOR UPDATE",
    "SELECT inet_server_port() FROM things WHERE id = 1 FOR KEY SHARE",
    "SELECT (SELECT inet_server_port() FROM things LIMIT 1 FOR SHARE)",
    "WITH w AS (UPDATE things SET id = 2 WHERE id = 2 RETURNING 1) \
     SELECT inet_server_port() FROM w",
    "WITH w AS (SELECT 1), v AS (DELETE FROM things WHERE id = -1 RETURNING 1) \
     SELECT inet_server_port()",
    "INSERT INTO things VALUES (nextval('numbers') + 100, 'x') RETURNING inet_server_port()",
    "SELECT inet_server_port(), vol()",
    "SELECT inet_server_port(), public.\"Vol\"()",
    "SELECT inet_server_port(), public . vol /* so */ ()",
    "SELECT inet_server_port() FROM harmful",
    "SELECT inet_server_port() FROM over_harmful",
    "SELECT inet_server_port(), nextval('numbers')",
    "SELECT inet_server_port(), setval('numbers', 5000)",
    "SELECT inet_server_port(), pg_advisory_xact_lock(1)",
    "SELECT inet_server_port(), pg_try_advisory_xact_lock(1)",
    "SELECT inet_server_port(), pg_notify('a', 'b')",
    "SELECT inet_server_port(), txid_current()",
    "SELECT inet_server_port(), pg_current_xact_id()",
    "SELECT inet_server_port(), query_to_xml('SELECT vol()', true, true, '')",
    "SELECT inet_server_port(), lo_create(0)",
    "SELECT inet_server_port(), set_config('work_mem', '5MB', true)",
    "/* evenkeel: primary */ SELECT inet_server_port()",
    "SELECT /* evenkeel: primary */ inet_server_port()",
];

const REPLICA: &[&str] = &[
    WHERE,
    "SELECT inet_server_port() FROM (SELECT 1 AS a) AS x, pg_sleep(0), random()",
    "SELECT inet_server_port() FROM things WHERE id = 1",
    "select Inet_Server_Port() from public.things where id in (1, 2, 3)",
    "SELECT inet_server_port(), t.tells FROM things AS t WHERE id = 1",
    "SELECT inet_server_port() FROM harmless",
    "SELECT inet_server_port(), stab(), immu(1), now(), lower('A'), count(*) FROM things",
    "WITH w AS (SELECT 1 AS a) SELECT inet_server_port() FROM w JOIN things ON a = id",
    "WITH w AS MATERIALIZED (SELECT 1 AS a) SELECT inet_server_port() FROM w",
    "SELECT inet_server_port() FROM (VALUES (1), (2)) AS v (x) ORDER BY row_number() OVER ()",
    "SELECT inet_server_port(), 'FOR UPDATE', $$ insert $$, \"what\" FROM things",
    "SELECT inet_server_port() FROM things -- FOR UPDATE",
    "SELECT /* evenkeel: replica */ inet_server_port()",
    "SELECT inet_server_port() FROM things UNION ALL SELECT inet_server_port() FROM harmless",
    "SELECT inet_server_port() FROM generate_series(1, 2)",
    "SELECT inet_server_port() FROM pg_class LIMIT 1",
    "SELECT inet_server_port() WHERE EXISTS (SELECT FROM things)",
];

/// Sent as text only: several statements, or statements that cannot be prepared.
const PRIMARY_TEXT: &[&str] = &[
    "SELECT 1; UPDATE things SET what = 'y' WHERE id = 3; SELECT inet_server_port()",
    "SELECT inet_server_port() AS x INTO into_a; SELECT x FROM into_a; DROP TABLE into_a",
    "BEGIN; SELECT inet_server_port(); COMMIT",
    "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY; SELECT inet_server_port(); COMMIT",
    "START TRANSACTION READ WRITE; SELECT inet_server_port(); ROLLBACK",
    "DO 'BEGIN PERFORM vol(); END'; SELECT inet_server_port()",
    "SELECT pg_advisory_lock(7); SELECT pg_advisory_unlock(7); SELECT inet_server_port()",
    "LOCK TABLE things IN SHARE MODE; SELECT inet_server_port()",
    "COPY things FROM STDIN; SELECT inet_server_port()",
];

const REPLICA_TEXT: &[&str] = &[
    "SELECT 1; SELECT inet_server_port()",
    "BEGIN READ ONLY; SELECT inet_server_port(); COMMIT",
    "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY; SELECT inet_server_port(); END",
    "START TRANSACTION READ ONLY; SELECT inet_server_port(); ROLLBACK",
    ";SELECT inet_server_port();;",
];

fn prepared_stage(io: &str) -> TestBed {
    let bed = TestBed::set_up(io, "primary_reads = false\nconsistency = \"eventual\"");
    bed.direct().run(SCHEMA);
    bed.scenario.wait_caught_up().unwrap();
    let client = bed.client();
    // The catalog is read in the background.
    let primary = bed.port_of_primary();
    let reads = "SELECT inet_server_port(), stab() FROM harmless";
    bed.wait("known functions", || client.port(reads) != primary);
    bed
}

#[test]
fn statements_run_where_they_belong_as_text_and_prepared_on_both_drivers() {
    for io in DRIVERS {
        let bed = prepared_stage(io);
        let primary = bed.port_of_primary();
        let mut client = bed.client();
        let mut wrong = Vec::new();
        let mut check = |what: &str, sql: &str, port: Result<i32, String>, at_primary: bool| {
            let is_right = port
                .as_ref()
                .is_ok_and(|port| (*port == primary) == at_primary);
            if !is_right {
                wrong.push(format!(
                    "{what}: {sql}: {port:?}, of the primary: {at_primary}"
                ));
            }
        };
        for (list, at_primary) in [(PRIMARY, true), (REPLICA, false)] {
            for sql in list {
                // A new client, which is not pinned to a server.
                client = bed.client();
                check("text", sql, of_text(&client, sql), at_primary);
                let prepared = client
                    .value(sql, &[])
                    .map_err(|failed| format!("{failed:?}"));
                check("prepared", sql, prepared, at_primary);
            }
        }
        for (list, at_primary) in [(PRIMARY_TEXT, true), (REPLICA_TEXT, false)] {
            client = bed.client();
            for sql in list.iter().filter(|sql| !sql.contains("STDIN")) {
                check("text", sql, of_text(&client, sql), at_primary);
            }
        }
        assert!(wrong.is_empty(), "{io}: {wrong:#?}\n{}", bed.balancer.log());
        assert!(!client.is_closed());
    }
}

fn of_text(client: &Client, sql: &str) -> Result<i32, String> {
    let rows = client.text(sql).map_err(|failed| format!("{failed:?}"))?;
    let numbers: Vec<i32> = rows.iter().filter_map(|row| row.parse().ok()).collect();
    // Of several statements, the one that returns a port.
    let port = numbers.into_iter().find(|number| *number > 1_000);
    port.ok_or_else(|| format!("{rows:?}"))
}

#[test]
fn what_explain_analyze_runs_is_looked_at_and_what_a_transaction_does_stays_in_it() {
    let bed = prepared_stage("auto");
    let primary = bed.port_of_primary();
    let client = bed.client();
    client.run("EXPLAIN ANALYZE INSERT INTO things VALUES (500, 'explained')");
    client.run("EXPLAIN (ANALYZE, COSTS off) SELECT vol()");
    let count = "/* evenkeel: primary */ SELECT count(*) FROM things WHERE id = 500";
    assert_eq!(client.text(count).unwrap(), ["1"]);

    client.run("BEGIN READ ONLY");
    let port = client.port(WHERE);
    assert_ne!(port, primary);
    for _ in 0..5 {
        assert_eq!(client.port(WHERE), port);
        assert_eq!(client.port_prepared(WHERE), port);
    }
    let refused = client
        .text("INSERT INTO things VALUES (501, 'no')")
        .unwrap_err();
    assert_eq!(refused.state, "25006");
    client.run("ROLLBACK");

    client.run("BEGIN");
    assert_eq!(client.port(WHERE), primary);
    assert_eq!(client.port_prepared(WHERE), primary);
    client.run("COMMIT");
    bed.wait_split(&client);
}

#[test]
fn temporary_tables_locks_and_defaults_of_a_session_keep_its_reads_on_the_primary() {
    let bed = prepared_stage("auto");
    let primary = bed.port_of_primary();
    let client = bed.client();
    client.run("CREATE TEMP TABLE own AS SELECT 1 AS a");
    assert_eq!(client.port("SELECT inet_server_port() FROM own"), primary);
    client.run("DROP TABLE own");

    let other = bed.client();
    other.run("SELECT pg_advisory_lock(3)");
    assert_eq!(other.port(WHERE), primary);
    other.run("SELECT pg_advisory_unlock(3)");

    let third = bed.client();
    third.run("SET default_transaction_isolation = 'serializable'");
    assert_eq!(third.port(WHERE), primary);
    third.run("RESET default_transaction_isolation");
    bed.wait_split(&third);
    third.run("SET default_transaction_read_only = on");
    third.run("BEGIN");
    assert_ne!(third.port(WHERE), primary);
    third.run("COMMIT");
    // The setting belongs to the session: other clients are not affected, and this one gets the
    // error immediately.
    let refused = third
        .text("INSERT INTO things VALUES (600, 'no')")
        .unwrap_err();
    assert_eq!(refused.state, "25006");
    bed.client().run("INSERT INTO things VALUES (601, 'yes')");
}

#[test]
fn who_is_bound_to_a_replica_reads_on_there_and_is_told_to_connect_again_to_write() {
    let bed = prepared_stage("auto");
    let primary = bed.port_of_primary();
    let write = "INSERT INTO things VALUES (800, 'x')";
    for (bind, begin) in [
        ("SELECT set_config('app.t', 'a' || 'b', false)", write),
        ("SELECT pg_advisory_lock_shared(8)", "BEGIN"),
        (
            "DECLARE held CURSOR WITH HOLD FOR SELECT id FROM things",
            write,
        ),
    ] {
        let client = bed.client();
        client.run("BEGIN READ ONLY");
        client.run(bind);
        client.run("COMMIT");
        assert_ne!(client.port(WHERE), primary, "{bind}");
        assert_ne!(client.port_prepared(WHERE), primary, "{bind}");
        client.run("BEGIN READ ONLY; SELECT 1; COMMIT");
        client.run("SELECT pg_advisory_unlock_shared(9)");
        let failed = client.text(begin).unwrap_err();
        assert_eq!(failed.state, "57P01", "{bind}: {failed:?}");
        assert!(client.is_closed());
    }
    let client = bed.client();
    client.run("BEGIN READ ONLY");
    client.run("DECLARE held CURSOR WITH HOLD FOR SELECT id FROM things ORDER BY id");
    client.run("COMMIT");
    assert_eq!(client.text("FETCH 1 FROM held").unwrap(), ["1"]);
    client.run("CLOSE ALL");
    client.run(write);
    assert_eq!(
        client
            .value::<i32>("DELETE FROM things WHERE id = 800 RETURNING id", &[])
            .unwrap(),
        800
    );
}

#[test]
fn functions_are_known_soon_after_somebody_made_them_and_catalogs_never_too_old() {
    let bed = prepared_stage("auto");
    let primary = bed.port_of_primary();
    let client = bed.client();
    client.run("CREATE FUNCTION later() RETURNS int LANGUAGE sql STABLE AS 'SELECT 1'");
    let sql = "SELECT inet_server_port(), later()";
    assert_eq!(client.port(sql), primary, "the session's own function");
    bed.scenario.wait_caught_up().unwrap();
    // A client that calls the function before it is known is pinned from then on.
    bed.wait("a new function at a replica", || {
        bed.client().port(sql) != primary
    });
    let other = bed.client();
    client.run("CREATE OR REPLACE FUNCTION later() RETURNS int LANGUAGE sql AS 'SELECT vol()'");
    assert_eq!(client.port(sql), primary, "it writes now");
    // Evenkeel's catalog is outdated for a moment: the statements are retried on the primary.
    assert_eq!(other.port(sql), primary);
    assert_eq!(other.port_prepared(sql), primary);
    let seen = "SELECT inet_server_port() FROM pg_class WHERE relname = 'made_just_now'";
    client.run("CREATE TABLE made_just_now (a int)");
    assert_eq!(client.port(seen), primary);
}

#[test]
fn hints_name_servers() {
    let bed = prepared_stage("auto");
    let client = bed.client();
    for server in &bed.scenario.servers {
        let sql = format!("/* evenkeel: server={} */ {WHERE}", server.name);
        let port = i32::from(server.address.port());
        assert_eq!(client.port(&sql), port, "{sql}");
        assert_eq!(client.port_prepared(&sql), port, "{sql}");
    }
    let nobody = format!("/* evenkeel: server=nobody */ {WHERE}");
    assert_eq!(client.port(&nobody), bed.port_of_primary());
    let replica = &bed.replicas()[0].name;
    let write = format!("/* evenkeel: server={replica} */ INSERT INTO things VALUES (700, 'x')");
    client.run(&write);
    let named = format!("/* evenkeel: server={replica} */ {WHERE}");
    // The replica has failed, and Evenkeel has not noticed yet.
    bed.replicas()[0].kill().unwrap();
    assert_eq!(client.port(&named), bed.port_of_primary());
    assert_eq!(client.port_prepared(&named), bed.port_of_primary());
}

#[test]
fn the_primary_takes_its_part_of_the_reads_unless_it_is_told_not_to() {
    let bed = TestBed::set_up("auto", "consistency = \"eventual\"");
    let client = bed.client();
    bed.wait_split(&client);
    let mut ports = std::collections::BTreeSet::new();
    let all = eventually(LIMIT, "reads at all three", || {
        ports.insert(client.port(WHERE));
        Ok((ports.len() == 3).then_some(()))
    });
    all.unwrap();
}

#[test]
fn explain_says_where_things_go() {
    let bed = prepared_stage("auto");
    let explained = |sql: &str| {
        let text = done(&bed.balancer, &["explain", "--json", sql]);
        serde_json::from_str::<serde_json::Value>(&text).unwrap()
    };
    let lists = [
        (PRIMARY, "the primary"),
        (REPLICA, "a replica"),
        (REPLICA_TEXT, "a replica"),
    ];
    for (list, target) in lists {
        for sql in list {
            let explanation = explained(sql);
            assert_eq!(explanation["target"], target, "{sql}: {explanation:#}");
        }
    }
    let text = done(&bed.balancer, &["explain", "SELECT vol()"]);
    assert!(
        text.starts_with("to the primary: calls a volatile function\n"),
        "{text}"
    );
    let other = refused(&bed.balancer, &["explain", "--service", "web", "SELECT 1"]);
    assert!(
        other.contains(
            "service \"web\" does not route statements or does not exist; choose one \
             of: db"
        ),
        "{other}"
    );
}

const RULES: &str = "\
    [[service.rule]]\nname = 'report'\nmatch = 'report'\nto = ['NAME']\n\
    [[service.rule]]\nname = 'fresh'\nmatch = 'fresh'\nto = 'primary'\n\
    [[service.rule]]\nname = 'vouched'\nmatch = 'vouched'\nto = 'replicas'\nassume_read = true\n";

#[test]
fn rules_send_reads_where_they_say_and_nothing_else() {
    let bed = prepared_stage("auto");
    let (primary, report) = (bed.port_of_primary(), bed.replicas()[0].clone());
    let rules = RULES.replace("NAME", &report.name);
    let split =
        "[service.split]\nreads = true\nprimary_reads = false\nconsistency = \"eventual\"\n";
    let further = format!("{split}{rules}");
    let lines = service_toml(
        "db",
        bed.scenario.kind,
        bed.listen,
        &bed.scenario.servers,
        &further,
    );
    let claims = "CREATE FUNCTION claims() RETURNS int LANGUAGE sql VOLATILE \
                  AS 'SELECT inet_server_port()'";
    bed.direct().run(claims);
    bed.scenario.wait_caught_up().unwrap();
    bed.balancer.reload(&(engine("auto") + &lines)).unwrap();
    let client = bed.client();
    let sql = "SELECT inet_server_port() /* report */";
    for _ in 0..10 {
        assert_eq!(client.port(sql), i32::from(report.address.port()));
        assert_eq!(client.port_prepared(sql), i32::from(report.address.port()));
    }
    for sql in [
        "SELECT inet_server_port() /* fresh */",
        "SELECT inet_server_port(), vol() /* report */",
        "SELECT inet_server_port() FROM things WHERE id = 1 FOR SHARE /* vouched */",
    ] {
        assert_eq!(client.port(sql), primary, "{sql}");
    }
    // `assume_read` makes functions count as reads, rightly or not: a replica that rejects one
    // decides.
    assert_eq!(client.port("SELECT claims()"), primary);
    // The function has not been read from the catalog: it has pinned its caller.
    let client = bed.client();
    let vouched = "SELECT inet_server_port(), vol() /* vouched */";
    assert_eq!(client.port(vouched), primary);
    assert_ne!(client.port("SELECT claims() /* vouched */"), primary);
}
