//! Tests of statements that require a database without other sessions: DROP DATABASE, ALTER
//! DATABASE … RENAME and SET TABLESPACE, CREATE DATABASE … TEMPLATE. A pool's idle connections must
//! not block them.

use std::cell::OnceCell;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use evenkeel_lab::{Lab, PostgresOptions, Server, postgres};

use super::client::{Client, Login};
use super::script::Script;
use super::stage::{KIND, Setup, TestBed, start_cluster, start_own};
use crate::harness::{DRIVERS, loopback, pool, printed, wait_until};

/// Limit below the 5 s that the server itself waits for other sessions.
const SOON: Duration = Duration::from_secs(4);

const DONE: &str = "Z Idle";

/// A server with its superuser, and Evenkeel in front of it.
struct ServerBed {
    bed: TestBed,
    server: Server,
}

/// Returns the server of the calling test, without what an earlier round of it has left.
fn own_server() -> Server {
    thread_local! {
        static OWN: OnceCell<(Lab, Server)> = const { OnceCell::new() };
    }
    let server = OWN.with(|own| own.get_or_init(start_own).1.clone());
    let made = "datname not in ('postgres', 'sbtest', 'template0', 'template1')";
    let listed = server.sql(&format!("select datname from pg_database where {made}"));
    for name in listed.unwrap().lines() {
        let drop = format!("drop database \"{name}\" with (force)");
        server.sql(&drop).unwrap();
    }
    server.sql("drop tablespace if exists apart").unwrap();
    server
}

fn superuser(database: &str) -> Login<'_> {
    Login {
        user: "postgres",
        password: "postgres",
        database,
        ..Login::default()
    }
}

fn log_in(address: SocketAddr, database: &str) -> Client {
    let entered = Client::log_in(address, &superuser(database));
    entered.unwrap_or_else(|reply| panic!("{database}: {reply}"))
}

impl ServerBed {
    fn set_up(io: &str) -> ServerBed {
        ServerBed::with(io, Setup::default())
    }

    fn with(io: &str, setup: Setup<'_>) -> ServerBed {
        let server = own_server();
        let bed = TestBed::before(&server, io, setup);
        ServerBed { bed, server }
    }

    /// Connects a client to a database.
    fn client(&self, database: &str) -> Client {
        log_in(self.bed.address, database)
    }

    /// Creates a database directly, and lets clients use connections to it concurrently.
    fn used(&self, database: &str, clients: usize) -> Vec<Client> {
        log_in(self.server.address, "postgres").run(&format!("create database \"{database}\""));
        use_at_once(self.bed.address, database, clients)
    }

    /// Returns the number of connections to a database.
    fn connections(&self, database: &str) -> String {
        log_in(self.server.address, "postgres").value(&format!(
            "select count(*) from pg_stat_activity where datname = '{database}'"
        ))
    }
}

fn use_at_once(address: SocketAddr, database: &str, clients: usize) -> Vec<Client> {
    let mut all: Vec<Client> = (0..clients).map(|_| log_in(address, database)).collect();
    for client in &mut all {
        client.run_later("select pg_sleep(0.1)");
    }
    for client in &mut all {
        assert_eq!(client.reply().last().map(String::as_str), Some(DONE));
    }
    all
}

/// Runs the script within the limit.
#[track_caller]
fn does(client: &mut Client, what: &str, script: &Script, replies: usize) {
    let since = Instant::now();
    let received = client.exchange(script, replies);
    let took = since.elapsed();
    let is_fine = received.iter().any(|line| line.starts_with("C "));
    assert!(is_fine && took < SOON, "{what}: {took:?}: {received:?}");
}

#[track_caller]
fn runs(client: &mut Client, text: &str) {
    does(client, text, &Script::new().query(text), 1);
}

/// Statements on the database `t 1`, which clients have used.
const MEMBERS: [&str; 10] = [
    "drop database \"t 1\"",
    "/* app */ DROP DATABASE IF EXISTS \"t 1\";",
    "drop database \"t 1\" with (force)",
    "alter database \"t 1\" rename to t_2",
    "alter database \"t 1\" set tablespace apart",
    "create database t_2 template \"t 1\"",
    "create database t_2 with owner = sbtest encoding 'utf8' template = 't 1' connection limit 5",
    "create database t_2 strategy file_copy template = \"t 1\"",
    "-- a copy\ncreate database t_2 owner sbtest template E't 1'",
    "alter database \"t 1\" rename to \"t 1 of before\"",
];

const CLEANING: [&str; 3] = [
    "drop database if exists \"t 1\" with (force)",
    "drop database if exists t_2 with (force)",
    "drop database if exists \"t 1 of before\" with (force)",
];

fn make_tablespace(server: &Server) {
    let mut direct = log_in(server.address, "postgres");
    direct.run("set allow_in_place_tablespaces = on");
    direct.run("create tablespace apart location ''");
}

/// TO SEE THIS RED: let `Session::start_database_change` do nothing.
#[test]
fn a_database_that_only_idle_connections_of_the_pool_are_in_can_be_dropped_renamed_and_copied() {
    for io in DRIVERS {
        let server_bed = ServerBed::set_up(io);
        make_tablespace(&server_bed.server);
        for text in MEMBERS {
            drop(server_bed.used("t 1", 4));
            assert_eq!(server_bed.connections("t 1"), "4", "{io}");
            runs(&mut server_bed.client("postgres"), text);
            let mut direct = log_in(server_bed.server.address, "postgres");
            CLEANING.iter().for_each(|text| direct.run(text));
        }
    }
}

#[test]
fn the_same_by_prepared_statements_while_clients_stay() {
    for io in DRIVERS {
        let server_bed = ServerBed::set_up(io);
        make_tablespace(&server_bed.server);
        for text in MEMBERS {
            for name in ["", "named"] {
                let stay = server_bed.used("t 1", 4);
                let mut client = server_bed.client("postgres");
                let run = match name {
                    "" => Script::new().parse("", text),
                    name => {
                        let received = client.exchange(&Script::new().parse(name, text).sync(), 1);
                        assert_eq!(received, ["1", DONE], "{io}: {text}");
                        Script::new()
                    }
                };
                let run = run.bind(name, &[]).execute().sync();
                does(&mut client, &format!("{io}: {text}"), &run, 1);
                drop(stay);
                let mut direct = log_in(server_bed.server.address, "postgres");
                CLEANING.iter().for_each(|text| direct.run(text));
            }
        }
    }
}

#[test]
fn a_database_is_made_after_clients_have_used_template1() {
    for io in DRIVERS {
        let server_bed = ServerBed::set_up(io);
        let mut client = server_bed.client("postgres");
        for text in [
            "create database made",
            "create database made_2 owner sbtest template default",
            "create database made_3 with encoding 'utf8'",
        ] {
            let stay = use_at_once(server_bed.bed.address, "template1", 4);
            assert_eq!(server_bed.connections("template1"), "4", "{io}");
            runs(&mut client, text);
            drop(stay);
        }
    }
}

#[test]
fn clients_of_a_dropped_database_are_told_so_and_go_on_in_the_next_one_of_that_name() {
    for io in DRIVERS {
        let server_bed = ServerBed::set_up(io);
        let mut clients = server_bed.used("t", 4);
        let mut admin = server_bed.client("postgres");
        clients[0].run("create table kept as select 'old' as word");
        clients[0].run("select word from kept");
        runs(&mut admin, "drop database t");
        for client in &mut clients[..2] {
            let received = client.query("select word from kept");
            assert_eq!(received, ["E 3D000", DONE], "{io}");
        }
        runs(&mut admin, "create database t");
        let mut maker = log_in(server_bed.server.address, "t");
        maker.run("create table kept as select 'new'::varchar as word, 7 as more");
        for client in &mut clients {
            assert_eq!(client.value("select * from kept"), "new|7", "{io}");
        }
    }
}

/// Returns a second service in front of the same server.
fn second_service(address: SocketAddr, server: SocketAddr) -> String {
    format!(
        "[[service]]\nname = \"second\"\nprotocol = \"postgres\"\nlisten = \"{address}\"\n\
         servers = [{{ name = \"other-name\", address = \"{server}\" }}]\n\
         [service.monitor]\nuser = \"postgres\"\npassword = \"postgres\"\n[service.pool]\nsize = 8\n"
    )
}

#[test]
fn connections_of_all_workers_and_of_all_services_before_the_server_count() {
    for io in DRIVERS {
        let server = own_server();
        let second = loopback();
        let setup = Setup {
            pool: "size = 8\nmin_idle = 2",
            tables: &second_service(second, server.address),
            workers: 3,
            ..Setup::default()
        };
        let bed = TestBed::before(&server, io, setup);
        let mut direct = log_in(server.address, "postgres");
        for text in ["drop database t", "alter database t rename to t_2"] {
            direct.run("create database t");
            let one = use_at_once(bed.address, "t", 24);
            let other = use_at_once(second, "t", 24);
            let count = "select count(*) from pg_stat_activity where datname = 't'";
            assert_eq!(direct.value(count), "16", "{io}");
            runs(&mut log_in(bed.address, "postgres"), text);
            drop((one, other));
            direct.run("drop database if exists t_2 with (force)");
        }
    }
}

fn program(server_bed: &ServerBed, name: &str, arguments: &[&str]) {
    let mut command = postgres::command(name).unwrap();
    command.env("PGPASSWORD", "postgres");
    command.args(["--host=127.0.0.1", "--username=postgres"]);
    command.arg(format!("--port={}", server_bed.bed.address.port()));
    let output = command.args(arguments).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", printed(&output));
}

#[test]
fn createdb_and_dropdb_run_through_it() {
    for io in DRIVERS {
        let server_bed = ServerBed::set_up(io);
        drop(use_at_once(server_bed.bed.address, "template1", 2));
        let since = Instant::now();
        program(&server_bed, "createdb", &["made"]);
        drop(use_at_once(server_bed.bed.address, "made", 4));
        program(&server_bed, "createdb", &["--template=made", "copied"]);
        drop(use_at_once(server_bed.bed.address, "copied", 4));
        program(&server_bed, "dropdb", &["made"]);
        program(&server_bed, "dropdb", &["--if-exists", "made"]);
        program(&server_bed, "dropdb", &["--force", "copied"]);
        assert!(since.elapsed() < 3 * SOON, "{io}: {:?}", since.elapsed());
    }
}

/// Imitates the test runners of frameworks: each run creates its database, and drops it.
#[test]
fn a_test_runner_makes_its_database_and_drops_it_again_and_again() {
    for io in DRIVERS {
        let server_bed = ServerBed::set_up(io);
        for run in 0..3 {
            let mut admin = server_bed.client("postgres");
            runs(&mut admin, "CREATE DATABASE \"test_app\" ");
            drop(admin);
            let mut clients = use_at_once(server_bed.bed.address, "test_app", 4);
            let rows = format!("create table rows as select {run} as run");
            clients[0].run(&rows);
            for client in &mut clients {
                client.run("begin");
                assert_eq!(client.value("select run from rows"), run.to_string());
                client.run("rollback");
            }
            drop(clients);
            let mut admin = server_bed.client("postgres");
            runs(&mut admin, "DROP DATABASE \"test_app\"");
        }
    }
}

#[test]
fn what_the_server_refuses_it_refuses_as_without_a_pool() {
    for io in DRIVERS {
        let server_bed = ServerBed::set_up(io);
        let stay = server_bed.used("t", 4);
        let mut client = server_bed.client("postgres");
        for (text, expect) in [
            ("drop database no_such", "3D000"),
            ("alter database no_such rename to other", "3D000"),
            ("create database copy template no_such", "3D000"),
            ("drop database postgres", "55006"),
            ("alter database postgres rename to other", "0A000"),
            ("create database t", "42P04"),
            ("drop database template1", "42809"),
            ("drop database", "42601"),
            ("select 1; drop database t", "25001"),
        ] {
            let since = Instant::now();
            assert_eq!(client.refusal(text), expect, "{io}: {text}");
            assert!(since.elapsed() < SOON, "{io}: {text}");
        }
        drop(stay);
        // A client without the right closes no connections, if the server answers within 20 ms,
        // which a busy machine may exceed.
        let mut other = server_bed.bed.client();
        let keeps_them = (0..20).any(|round| {
            let name = format!("kept_{round}");
            let _stay = server_bed.used(&name, 4);
            for text in ["drop database NAME", "alter database NAME rename to other"] {
                let text = text.replace("NAME", &name);
                assert_eq!(other.refusal(&text), "42501", "{io}: {text}");
            }
            server_bed.connections(&name) == "4"
        });
        assert!(keeps_them, "{io}");
    }
}

#[test]
fn a_client_that_is_in_the_middle_of_something_keeps_its_database() {
    for io in DRIVERS {
        let server_bed = ServerBed::set_up(io);
        let mut clients = server_bed.used("t", 4);
        let mut admin = server_bed.client("postgres");
        clients[0].run("begin");
        clients[0].run("create table begun (a int)");
        let since = Instant::now();
        assert_eq!(admin.refusal("drop database t"), "55006", "{io}");
        let took = since.elapsed();
        let (least, most) = (Duration::from_millis(4_500), Duration::from_secs(8));
        assert!(least < took && took < most, "{io}: {took:?}");
        clients[0].run("commit");
        assert_eq!(clients[1].value("select count(*) from begun"), "0", "{io}");

        // Sessions that end in time are waited for, as the server does.
        clients[0].run("begin");
        admin.run_later("drop database t");
        // The server tries for five seconds.
        let tries = "select count(*) from pg_stat_activity where query = 'drop database t' \
                     and state = 'active' and query_start < clock_timestamp() - interval '200 ms'";
        wait_until(&server_bed.bed.balancer, "a drop that waits", || {
            server_bed.server.sql(tries).unwrap() == "1"
        });
        clients[0].run("insert into begun values (1)");
        clients[0].run("commit");
        assert_eq!(admin.reply(), ["C DROP DATABASE", DONE], "{io}");
    }
}

/// The server ends idle sessions; other clients do not notice, and the server stays up.
#[test]
fn a_drop_by_force_disturbs_nobody_else() {
    for io in DRIVERS {
        let server_bed = ServerBed::set_up(io);
        let mut clients = server_bed.used("t", 4);
        let mut others = use_at_once(server_bed.bed.address, "postgres", 3);
        let mut admin = server_bed.client("postgres");
        others[0].run("begin");
        runs(&mut admin, "drop database t with (force)");
        for client in &mut clients {
            assert_eq!(client.query("select 1"), ["E 3D000", DONE], "{io}");
        }
        others[0].run("commit");
        for client in &mut others {
            assert_eq!(client.value("select 1"), "1", "{io}");
        }
        // The first probes may not be over.
        wait_until(&server_bed.bed.balancer, "a server that is up", || {
            server_bed.bed.status()["servers"][0]["state"] == "up"
        });
    }
}

/// Returns a database whose functions are read repeatedly.
#[test]
fn the_catalog_of_a_dropped_database_is_nobody_s_trouble() {
    for io in DRIVERS {
        let server_bed = ServerBed::set_up(io);
        let mut clients = server_bed.used("t", 4);
        let mut admin = server_bed.client("postgres");
        for _ in 0..3 {
            // The catalog is read again soon after this.
            clients[0].run("create table if not exists t (a int)");
            std::thread::sleep(Duration::from_millis(900));
            runs(&mut admin, "drop database t");
            // Time in which it would be read.
            std::thread::sleep(Duration::from_millis(1_500));
            let status = server_bed.bed.status();
            let log = server_bed.bed.balancer.log();
            assert!(!log.contains("does not exist"), "{io}: {status:#} {log}");
            runs(&mut admin, "create database t");
        }
        // The catalog is known again after its next use.
        let plain = "create function plain() returns int language sql stable as 'select 7'";
        clients[1].run(plain);
        wait_until(&server_bed.bed.balancer, "a reading", || {
            let log = server_bed.bed.balancer.log();
            !log.contains("cannot read the catalog") && clients[2].value("select plain()") == "7"
        });
    }
}

const HARMLESS: &str = "create function enters() returns int language plpgsql stable as \
    $$ begin return 1; end $$";
const HARMFUL: &str = "create function enters() returns int language plpgsql stable as \
    $$ begin perform set_config('app.tenant', '7', false); return 1; end $$";

/// The functions that were read belong to the dropped database.
#[test]
fn what_is_known_of_a_database_is_not_taken_for_the_next_one_of_its_name() {
    for io in DRIVERS {
        let setup = Setup {
            pool: "size = 3\ndatabase_size = 1\nwait_ms = 4000",
            ..Setup::default()
        };
        for replace in [
            &["drop database t", "create database t template other"][..],
            &[
                "alter database t rename to u",
                "alter database other rename to t",
            ],
        ] {
            let server_bed = ServerBed::with(io, setup);
            let mut direct = log_in(server_bed.server.address, "postgres");
            for (name, function) in [("t", HARMLESS), ("other", HARMFUL)] {
                direct.run(&format!("create database {name}"));
                log_in(server_bed.server.address, name).run(function);
            }
            let mut client = server_bed.client("t");
            let mut other = server_bed.client("t");
            for _ in 0..20 {
                client.run("select enters()");
            }
            let mut admin = server_bed.client("postgres");
            replace.iter().for_each(|text| runs(&mut admin, text));
            client.run("select enters()");
            let tenant = "select coalesce(current_setting('app.tenant', true), '')";
            // A connection pinned to its client is not available.
            let received = other.query(tenant);
            assert!(
                received[1] == "D " || received[0] == "E 53300",
                "{io}: {received:?}"
            );
        }
    }
}

/// A RENAME ends no sessions on a replica: those in the database stay in it.
///
/// TO SEE THIS RED: keep the connections to replicas after a RENAME.
#[test]
fn reads_of_a_renamed_database_are_those_of_the_next_one_of_its_name() {
    let options = PostgresOptions {
        replicas: 1,
        ..PostgresOptions::default()
    };
    let (_lab, cluster) = start_cluster(options);
    let (primary, replica) = (&cluster.primary, &cluster.replicas[0]);
    let mut direct = log_in(primary.address, "postgres");
    for io in DRIVERS {
        for (name, word) in [("t", "old"), ("other", "new")] {
            direct.run(&format!("create database {name}"));
            let kept = format!("create table kept as select '{word}' as word");
            log_in(primary.address, name).run(&kept);
        }
        cluster.wait_caught_up().unwrap();
        let known = format!("address = \"{}\" }}]", primary.address);
        let both = known.replace("}]", "}, ")
            + &format!(
                "{{ name = \"replica\", address = \"{}\" }}]",
                replica.address
            );
        let setup = Setup {
            tables: "[service.split]\nreads = true",
            ..Setup::default()
        };
        let config = |address| {
            let one = pool::config(KIND, primary, address, io, setup);
            one.replace(&known, &both)
        };
        let bed = TestBed::start(config, |bed| {
            Client::log_in(bed.address, &superuser("postgres")).map(|_| ())
        });
        let mut client = log_in(bed.address, "t");
        let is_there = "select count(*) from pg_stat_activity where datname = 't'";
        wait_until(&bed.balancer, "a read at the replica", || {
            assert_eq!(client.value("select word from kept"), "old", "{io}");
            log_in(replica.address, "postgres").value(is_there) != "0"
        });
        let mut admin = log_in(bed.address, "postgres");
        runs(&mut admin, "alter database t rename to before");
        runs(&mut admin, "alter database other rename to t");
        cluster.wait_caught_up().unwrap();
        for _ in 0..5 {
            assert_eq!(client.value("select word from kept"), "new", "{io}");
        }
        drop(bed);
        direct.run("drop database t with (force)");
        direct.run("drop database before with (force)");
    }
}
