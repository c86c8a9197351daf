//! Tests the operation of a service of `protocol = "postgres"` with a real PostgreSQL: displays, on
//! the console and elsewhere, and pauses, kills, reconnects.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

#[path = "harness/harness.rs"]
mod harness;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use evenkeel_lab::{Balancer, Lab, PostgresCluster, PostgresOptions};
use harness::{DRIVERS, LIMIT, done, engine, loopback, refused, service, wait_until};
use serde_json::Value;
use tokio::runtime::{Builder, Handle};
use tokio_postgres::{Client, Config, NoTls, Row, SimpleQueryMessage};

const TOKEN: &str = "open sesame";

/// A service with a pool of two, and its console.
struct TestBed {
    runtime: Handle,
    balancer: Balancer,
    cluster: PostgresCluster,
    clients: SocketAddr,
    console: SocketAddr,
    _lab: Lab,
}

impl TestBed {
    fn set_up(name: &str, io: &str) -> TestBed {
        let lab = Lab::new(name).unwrap();
        let cluster = lab.postgres(PostgresOptions::default()).unwrap();
        // The account that reads logins needs this right.
        cluster.primary.sql("ALTER ROLE monitor SUPERUSER").unwrap();
        let (clients, console) = (loopback(), loopback());
        let admin =
            format!("[admin]\nlisten = \"off\"\npostgres = \"{console}\"\ntoken = \"{TOKEN}\"\n");
        let service = format!(
            "[[service]]\nname = \"orders\"\nprotocol = \"postgres\"\nlisten = \"{clients}\"\n\
             servers = [\"{}\"]\n[service.monitor]\nuser = \"monitor\"\npassword = \"monitor\"\n\
             [service.pool]\nsize = 2\n",
            cluster.primary.address
        );
        let config = engine(io) + "workers = 2\n" + &admin + &service;
        let balancer = Balancer::start(&config).unwrap();
        let bed = TestBed {
            runtime: runtime(),
            balancer,
            cluster,
            clients,
            console,
            _lab: lab,
        };
        wait_until(&bed.balancer, "a login", || bed.try_client().is_some());
        bed
    }

    fn try_client(&self) -> Option<Client> {
        self.try_connect(self.clients, "sbtest", "sbtest", "sbtest")
    }

    fn client(&self) -> Client {
        self.try_client().expect("a login")
    }

    /// Connects to the console; with a password, as `admin`.
    fn console(&self, password: Option<&str>) -> Option<Client> {
        match password {
            Some(password) => self.try_connect(self.console, "admin", password, "pgbouncer"),
            None => self.try_connect(self.console, "somebody", "", "pgbouncer"),
        }
    }

    fn try_connect(
        &self,
        to: SocketAddr,
        user: &str,
        password: &str,
        database: &str,
    ) -> Option<Client> {
        let mut config = Config::new();
        config.host(to.ip().to_string()).port(to.port());
        config.user(user).dbname(database).password(password);
        config.connect_timeout(LIMIT);
        let connecting = config.connect(NoTls);
        let (client, connection) = self.runtime.block_on(connecting).ok()?;
        // The next query reports its end.
        self.runtime.spawn(async move { connection.await.ok() });
        Some(client)
    }

    fn run(&self, client: &Client, sql: &str) -> Result<Vec<SimpleQueryMessage>, String> {
        let asked = self.runtime.block_on(client.simple_query(sql));
        asked.map_err(|error| match error.as_db_error() {
            Some(error) => format!("{} {}", error.code().code(), error.message()),
            None => error.to_string(),
        })
    }

    fn value(&self, client: &Client, sql: &str) -> String {
        let messages = self.run(client, sql).unwrap();
        let mut rows = messages.iter().filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0),
            _ => None,
        });
        rows.next().unwrap().to_owned()
    }

    /// Reads a table of the console by the extended protocol.
    fn show(&self, client: &Client, what: &str) -> Vec<Row> {
        let text = format!("SHOW {what}");
        self.runtime.block_on(client.query(&text, &[])).unwrap()
    }

    fn postgres(&self) -> Value {
        service(&self.balancer.status().unwrap(), "orders")["database"].clone()
    }

    /// Returns how many client sessions run a statement on the server.
    fn active(&self) -> String {
        let sql = "SELECT count(*) FROM pg_stat_activity \
                   WHERE usename = 'sbtest' AND state = 'active' AND query LIKE '%pg_sleep%'";
        self.cluster.primary.sql(sql).unwrap().trim().to_owned()
    }
}

/// Returns a runtime in its own thread, which runs until the tests end.
fn runtime() -> Handle {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let handle = runtime.handle().clone();
    std::thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
    handle
}

fn text(row: &Row, column: &str) -> String {
    row.get::<_, Option<String>>(column).unwrap_or_default()
}

#[test]
fn what_clients_do_is_shown_on_the_console_and_elsewhere() {
    let bed = TestBed::set_up("test-console-show", "auto");
    let (in_transaction, bound) = (bed.client(), bed.client());
    let (waiting, idle) = (bed.client(), bed.client());
    bed.run(&in_transaction, "BEGIN; SELECT 1").unwrap();
    bed.run(&bound, "BEGIN; LISTEN news; COMMIT").unwrap();
    let asked = bed.runtime.spawn(async move {
        let answer = waiting.simple_query("SELECT 2").await;
        answer.map(|_| waiting).map_err(|error| error.to_string())
    });
    let console = bed.console(None).unwrap();
    let mut seen = Vec::new();
    wait_until(&bed.balancer, "what each of them does", || {
        let rows = bed.show(&console, "CLIENTS");
        seen = rows.iter().map(|row| text(row, "client_state")).collect();
        seen.sort();
        seen == ["idle", "idle in transaction", "pinned", "waiting"]
    });
    let pools = bed.show(&console, "POOLS");
    let [pool] = &pools[..] else {
        panic!("{pools:?}")
    };
    let shown = [
        "database",
        "user",
        "cl_active",
        "cl_waiting",
        "sv_active",
        "sv_idle",
        "service",
    ];
    let shown = shown.map(|column| text(pool, column));
    assert_eq!(shown, ["sbtest", "sbtest", "3", "1", "2", "0", "orders"]);
    assert_eq!(bed.show(&console, "SERVERS").len(), 2);
    let clients = bed.show(&console, "CLIENTS");
    let listener = clients
        .iter()
        .find(|row| text(row, "client_state") == "pinned");
    let listener = listener.unwrap();
    assert_eq!(text(listener, "pinned_by"), "LISTEN (news)");
    let pid = bed.value(&bound, "SELECT pg_backend_pid() + 0");
    assert_eq!(text(listener, "remote_pid"), pid);
    let joined = "SELECT c.pinned_by, s.remote_pid, count(*) OVER () AS clients FROM clients c \
                  LEFT JOIN servers s ON s.client_id = c.id ORDER BY c.pinned_by DESC LIMIT 1";
    let joined = bed.runtime.block_on(console.query(joined, &[])).unwrap();
    let joined = ["pinned_by", "remote_pid", "clients"].map(|column| text(&joined[0], column));
    assert_eq!(joined, ["LISTEN (news)", &*pid, "4"]);
    let reply = bed
        .run(&console, "SELECT 1 FROM pragma_table_list")
        .unwrap_err();
    assert!(reply.starts_with("0A000"), "{reply}");

    let printed = done(&bed.balancer, &["clients", "orders"]);
    assert!(printed.contains("idle in transaction"), "{printed}");
    assert!(printed.contains("LISTEN"), "{printed}");
    wait_until(&bed.balancer, "the census", || {
        let status = bed.postgres();
        status["pins"] == serde_json::json!([{"what": "LISTEN", "count": 1}])
            && status["pools"][0]["waiting"] == 1
    });
    let printed = done(&bed.balancer, &["pools", "orders"]);
    assert!(printed.contains("1 waiting"), "{printed}");
    bed.run(&in_transaction, "COMMIT").unwrap();
    assert!(bed.runtime.block_on(asked).unwrap().is_ok());
    drop(idle);
}

#[test]
fn users_and_databases_have_figures_of_their_own() {
    let bed = TestBed::set_up("test-console-stats", "epoll");
    let client = bed.client();
    let before = bed.postgres();
    for _ in 0..5 {
        bed.run(&client, "BEGIN; SELECT pg_sleep(0.01)").unwrap();
        bed.run(&client, "SELECT 1").unwrap();
        bed.run(&client, "COMMIT").unwrap();
    }
    let after = bed.postgres();
    let grown = |path: &[&str]| {
        let of = |status: &Value| {
            path.iter()
                .fold(status.clone(), |at, name| at[*name].clone())
        };
        of(&after).as_u64().unwrap() - of(&before).as_u64().unwrap()
    };
    assert_eq!(grown(&["queries_total"]), 15);
    assert_eq!(grown(&["transactions_total"]), 5);
    assert_eq!(grown(&["query_us", "count"]), 15);
    assert_eq!(grown(&["transaction_us", "count"]), 5);
    // The client's own time counts for its transactions, but not for its queries.
    assert!(grown(&["transaction_us", "sum"]) >= 50_000);
    assert!(grown(&["query_us", "sum"]) >= 50_000);
    assert!(grown(&["query_us", "sum"]) <= grown(&["transaction_us", "sum"]));

    let console = bed.console(None).unwrap();
    let rows = bed.show(&console, "STATS");
    let row = rows.iter().find(|row| text(row, "database") == "sbtest");
    let number = |column| -> u64 { text(row.unwrap(), column).parse().unwrap() };
    assert!(number("total_query_count") >= 15);
    assert!(number("total_xact_count") >= 5);
    assert!(number("total_query_time") >= 50_000);
    assert!(number("total_received") >= 15 * 10);
    assert!(number("total_sent") >= 15 * 10);
    for what in ["DATABASES", "USERS", "LISTS", "CONFIG", "VERSION"] {
        assert!(!bed.show(&console, what).is_empty(), "{what}");
    }
}

#[test]
fn statements_are_counted_without_their_literals() {
    for io in DRIVERS {
        let bed = TestBed::set_up("test-console-digests", io);
        let client = bed.client();
        let run = |text: &str| bed.run(&client, text);
        run("CREATE TABLE digests (a int PRIMARY KEY, b text)").unwrap();
        run("INSERT INTO digests VALUES (1, 'Geheim1'), (2, 'x')").unwrap();
        run("insert into digests values (1, 'Geheim2')").unwrap_err();
        run("SELECT b FROM digests WHERE a > 0 /* Geheim3 */").unwrap();
        let select = "select b from digests where a > $1";
        for one in 0..2 {
            bed.runtime.block_on(client.query(select, &[&one])).unwrap();
        }
        // Queries that are sent before earlier answers are counted separately, too.
        let both = async {
            tokio::join!(
                client.query(select, &[&0]),
                client.simple_query("BEGIN; ROLLBACK")
            )
        };
        bed.runtime.block_on(both).0.unwrap();
        let console = bed.console(None).unwrap();
        let of = |statement: &str| -> String {
            let rows = bed.show(&console, "DIGESTS");
            let row = rows.iter().find(|row| text(row, "statement") == statement);
            let row = row.unwrap_or_else(|| panic!("{io}: no {statement}"));
            let columns = ["queries", "errors", "rows_sent", "rows_affected"];
            columns.map(|column| text(row, column)).join(" ")
        };
        assert_eq!(of("insert into digests values (?)"), "2 1 0 2", "{io}");
        assert_eq!(of("select b from digests where a > ?"), "4 0 7 0", "{io}");
        assert_eq!(of("begin; rollback"), "1 0 0 0", "{io}");
        let all = format!("{:?}{}", bed.postgres(), bed.balancer.log());
        assert!(!all.contains("Geheim"), "{io}: {all}");
        let users = bed.show(&console, "STATS_USERS WHERE user = 'sbtest'");
        assert_eq!(text(&users[0], "errors"), "1", "{io}");
    }
}

#[test]
fn a_server_is_restarted_behind_a_pause_and_no_client_sees_it() {
    for io in DRIVERS {
        let bed = TestBed::set_up("test-console-pause", io);
        let (busy, late) = (bed.client(), bed.client());
        bed.run(&busy, "BEGIN; SELECT 1").unwrap();
        let admin = bed.console(Some(TOKEN)).unwrap();
        let pausing = bed.runtime.spawn(async move {
            let paused = admin.simple_query("PAUSE").await.map(|_| ());
            (admin, paused.map_err(|error| error.to_string()))
        });
        wait_until(&bed.balancer, "the pause", || {
            bed.postgres()["all_paused"] == true
        });
        // A transaction that has begun continues.
        assert_eq!(bed.value(&busy, "SELECT 1"), "1");
        assert!(!pausing.is_finished());
        bed.run(&busy, "COMMIT").unwrap();
        let (admin, paused) = bed.runtime.block_on(pausing).unwrap();
        paused.unwrap();
        let console = bed.console(None).unwrap();
        assert!(bed.show(&console, "SERVERS").is_empty());
        let database = &bed.show(&console, "DATABASES")[0];
        let shown = ["current_connections", "paused"].map(|column| text(database, column));
        assert_eq!(shown, ["0", "1"]);

        let asking = bed.runtime.spawn(async move {
            let answer = late.simple_query("SELECT 1").await;
            answer.map(|_| ()).map_err(|error| error.to_string())
        });
        bed.cluster.primary.stop().unwrap();
        bed.cluster.primary.start().unwrap();
        assert!(!asking.is_finished());
        bed.run(&admin, "RESUME").unwrap();
        bed.runtime.block_on(asking).unwrap().unwrap();
        assert_eq!(bed.value(&busy, "SELECT 1"), "1");
        let again = bed.run(&admin, "RESUME").unwrap_err();
        assert!(again.contains("not paused"), "{again}");
    }
}

#[test]
fn a_pause_that_does_not_come_about_is_taken_back() {
    let bed = TestBed::set_up("test-console-limit", "auto");
    let (busy, other) = (bed.client(), bed.client());
    bed.run(&busy, "BEGIN; SELECT 1").unwrap();
    let reply = refused(
        &bed.balancer,
        &["pause", "orders", "sbtest", "--limit-ms", "100"],
    );
    assert!(reply.contains("pause was cancelled"), "{reply}");
    assert_eq!(bed.value(&other, "SELECT 1"), "1");
    let reply = refused(&bed.balancer, &["pause", "nobody"]);
    assert!(reply.contains("no service"), "{reply}");
    bed.run(&busy, "COMMIT").unwrap();
    done(&bed.balancer, &["pause", "orders", "sbtest"]);
    assert_eq!(bed.postgres()["paused"], serde_json::json!(["sbtest"]));
    done(&bed.balancer, &["resume", "orders", "sbtest"]);
    assert_eq!(bed.value(&other, "SELECT 1"), "1");
}

#[test]
fn a_killed_client_is_told_so_and_its_query_ends_at_the_server() {
    let bed = TestBed::set_up("test-console-kill", "auto");
    let sleep = |client: Client| {
        bed.runtime.spawn(async move {
            let slept = client.simple_query("SELECT pg_sleep(600)").await;
            let error = slept.expect_err("it was killed");
            error
                .as_db_error()
                .map(|error| error.code().code().to_owned())
        })
    };
    let console = bed.console(None).unwrap();
    let admin = bed.console(Some(TOKEN)).unwrap();
    assert!(bed.console(Some("shut")).is_none(), "a wrong token");
    let sleeping = sleep(bed.client());
    let mut id = String::new();
    wait_until(&bed.balancer, "the sleeper", || {
        let clients = bed.show(&console, "CLIENTS");
        let active = clients
            .iter()
            .find(|row| text(row, "client_state") == "active");
        id = active.map(|row| text(row, "id")).unwrap_or_default();
        !id.is_empty() && bed.active() == "1"
    });
    let refused = bed.run(&console, &format!("KILL_CLIENT {id}")).unwrap_err();
    assert!(refused.starts_with("42501"), "{refused}");
    bed.run(&admin, &format!("KILL_CLIENT {id}")).unwrap();
    let reply = bed.runtime.block_on(sleeping).unwrap();
    assert_eq!(reply.as_deref(), Some("57P01"));
    wait_until(&bed.balancer, "the end of its query", || {
        bed.active() == "0"
    });

    let bystander = bed.client();
    let sleeping = sleep(bed.client());
    wait_until(&bed.balancer, "the other sleeper", || bed.active() == "1");
    let pid = bed.cluster.primary.sql(
        "SELECT pid FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%' AND state = 'active' \
         AND pid <> pg_backend_pid()",
    );
    done(
        &bed.balancer,
        &["kill", "orders", "--server-pid", pid.unwrap().trim()],
    );
    bed.runtime.block_on(sleeping).unwrap();
    assert_eq!(bed.value(&bystander, "SELECT 1"), "1");

    bed.run(&admin, "KILL sbtest").unwrap();
    wait_until(&bed.balancer, "the end of all", || bystander.is_closed());
    bed.run(&admin, "RESUME sbtest").unwrap();
    assert_eq!(bed.value(&bed.client(), "SELECT 1"), "1");
}

#[test]
fn clients_see_nothing_of_reconnects_and_short_pauses() {
    for io in DRIVERS {
        let bed = TestBed::set_up("test-console-reconnect", io);
        let (is_over, answered) = (
            Arc::new(AtomicBool::new(false)),
            Arc::<AtomicUsize>::default(),
        );
        let working: Vec<_> = (0..6)
            .map(|_| {
                let (client, is_over) = (bed.client(), Arc::clone(&is_over));
                let answered = Arc::clone(&answered);
                bed.runtime.spawn(async move {
                    while !is_over.load(Relaxed) {
                        let text = "SELECT count(*) FROM generate_series(1, 2000)";
                        client
                            .query(text, &[])
                            .await
                            .map_err(|error| error.to_string())?;
                        answered.fetch_add(1, Relaxed);
                    }
                    Ok::<(), String>(())
                })
            })
            .collect();
        let started = Instant::now();
        let mut pids = std::collections::BTreeSet::new();
        let console = bed.console(None).unwrap();
        while answered.load(Relaxed) < 200 || pids.len() < 10 {
            assert!(started.elapsed() < LIMIT, "{answered:?} answers, {pids:?}");
            done(&bed.balancer, &["reconnect", "orders"]);
            let servers = bed.show(&console, "SERVERS");
            pids.extend(servers.iter().map(|row| text(row, "remote_pid")));
            done(&bed.balancer, &["pause", "orders"]);
            done(&bed.balancer, &["resume", "orders"]);
        }
        is_over.store(true, Relaxed);
        for one in working {
            bed.runtime.block_on(one).unwrap().unwrap();
        }
    }
}

#[test]
fn the_console_is_handed_on_in_an_upgrade() {
    let bed = TestBed::set_up("test-console-upgrade", "auto");
    done(&bed.balancer, &["pause", "orders"]);
    let reply = refused(&bed.balancer, &["upgrade"]);
    assert!(reply.contains("evenkeel resume orders"), "{reply}");
    done(&bed.balancer, &["resume", "orders"]);
    bed.balancer.upgrade(&[]).unwrap();
    let console = bed.console(None).expect("the new process answers");
    assert_eq!(bed.show(&console, "VERSION").len(), 1);
    assert!(bed.try_client().is_some());
}
