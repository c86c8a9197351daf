//! Tests of statements that require a database without other sessions: DROP DATABASE, ALTER
//! DATABASE … RENAME and SET TABLESPACE, CREATE DATABASE … TEMPLATE. A pool's idle connections must
//! not block them.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use evenkeel_lab::{Lab, PostgresOptions, Server, postgres};

use super::client::{Client, Login};
use super::script::Script;
use super::stage::{KIND, Setup, TestBed, own};
use crate::harness::{DRIVERS, loopback, pool, said, wait_until};

/// Limit below the 5 s that the server itself waits for other sessions.
const SOON: Duration = Duration::from_secs(4);

const DONE: &str = "Z Idle";

/// A server with its superuser, and Evenkeel in front of it.
struct Place {
    stage: TestBed,
    server: Server,
    _lab: Lab,
}

fn superuser(database: &str) -> Login<'_> {
    Login {
        user: "postgres",
        password: "postgres",
        database,
        ..Login::default()
    }
}

fn enter(address: SocketAddr, database: &str) -> Client {
    let entered = Client::enter(address, &superuser(database));
    entered.unwrap_or_else(|told| panic!("{database}: {told}"))
}

impl Place {
    fn set(io: &str) -> Place {
        Place::with(io, Setup::default())
    }

    fn with(io: &str, setup: Setup<'_>) -> Place {
        let (lab, server) = own();
        let stage = TestBed::before(&server, io, setup);
        Place {
            stage,
            server,
            _lab: lab,
        }
    }

    /// Connects a client to a database.
    fn client(&self, database: &str) -> Client {
        enter(self.stage.address, database)
    }

    /// Creates a database directly, and lets clients use connections to it concurrently.
    fn used(&self, database: &str, clients: usize) -> Vec<Client> {
        enter(self.server.address, "postgres").run(&format!("create database \"{database}\""));
        use_at_once(self.stage.address, database, clients)
    }

    /// Returns the number of connections to a database.
    fn connections(&self, database: &str) -> String {
        enter(self.server.address, "postgres").value(&format!(
            "select count(*) from pg_stat_activity where datname = '{database}'"
        ))
    }
}

fn use_at_once(address: SocketAddr, database: &str, clients: usize) -> Vec<Client> {
    let mut all: Vec<Client> = (0..clients).map(|_| enter(address, database)).collect();
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
    let heard = client.ask(script, replies);
    let took = since.elapsed();
    let is_fine = heard.iter().any(|line| line.starts_with("C "));
    assert!(is_fine && took < SOON, "{what}: {took:?}: {heard:?}");
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
    let mut direct = enter(server.address, "postgres");
    direct.run("set allow_in_place_tablespaces = on");
    direct.run("create tablespace apart location ''");
}

/// TO SEE THIS RED: let `Session::vacates` do nothing.
#[test]
fn a_database_that_only_idle_connections_of_the_pool_are_in_can_be_dropped_renamed_and_copied() {
    for io in DRIVERS {
        let place = Place::set(io);
        make_tablespace(&place.server);
        for text in MEMBERS {
            drop(place.used("t 1", 4));
            assert_eq!(place.connections("t 1"), "4", "{io}");
            runs(&mut place.client("postgres"), text);
            let mut direct = enter(place.server.address, "postgres");
            CLEANING.iter().for_each(|text| direct.run(text));
        }
    }
}

#[test]
fn the_same_by_prepared_statements_while_clients_stay() {
    for io in DRIVERS {
        let place = Place::set(io);
        make_tablespace(&place.server);
        for text in MEMBERS {
            for name in ["", "named"] {
                let stay = place.used("t 1", 4);
                let mut client = place.client("postgres");
                let run = match name {
                    "" => Script::new().parse("", text),
                    name => {
                        let heard = client.ask(&Script::new().parse(name, text).sync(), 1);
                        assert_eq!(heard, ["1", DONE], "{io}: {text}");
                        Script::new()
                    }
                };
                let run = run.bind(name, &[]).execute().sync();
                does(&mut client, &format!("{io}: {text}"), &run, 1);
                drop(stay);
                let mut direct = enter(place.server.address, "postgres");
                CLEANING.iter().for_each(|text| direct.run(text));
            }
        }
    }
}

#[test]
fn a_database_is_made_after_clients_have_used_template1() {
    for io in DRIVERS {
        let place = Place::set(io);
        let mut client = place.client("postgres");
        for text in [
            "create database made",
            "create database made_2 owner sbtest template default",
            "create database made_3 with encoding 'utf8'",
        ] {
            let stay = use_at_once(place.stage.address, "template1", 4);
            assert_eq!(place.connections("template1"), "4", "{io}");
            runs(&mut client, text);
            drop(stay);
        }
    }
}

#[test]
fn clients_of_a_dropped_database_are_told_so_and_go_on_in_the_next_one_of_that_name() {
    for io in DRIVERS {
        let place = Place::set(io);
        let mut clients = place.used("t", 4);
        let mut admin = place.client("postgres");
        clients[0].run("create table kept as select 'old' as word");
        clients[0].run("select word from kept");
        runs(&mut admin, "drop database t");
        for client in &mut clients[..2] {
            let heard = client.query("select word from kept");
            assert_eq!(heard, ["E 3D000", DONE], "{io}");
        }
        runs(&mut admin, "create database t");
        let mut maker = enter(place.server.address, "t");
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
        let (_lab, server) = own();
        let second = loopback();
        let setup = Setup {
            pool: "size = 8\nmin_idle = 2",
            tables: &second_service(second, server.address),
            workers: 3,
            ..Setup::default()
        };
        let stage = TestBed::before(&server, io, setup);
        let mut direct = enter(server.address, "postgres");
        for text in ["drop database t", "alter database t rename to t_2"] {
            direct.run("create database t");
            let one = use_at_once(stage.address, "t", 24);
            let other = use_at_once(second, "t", 24);
            let count = "select count(*) from pg_stat_activity where datname = 't'";
            assert_eq!(direct.value(count), "16", "{io}");
            runs(&mut enter(stage.address, "postgres"), text);
            drop((one, other));
            direct.run("drop database if exists t_2 with (force)");
        }
    }
}

fn program(place: &Place, name: &str, arguments: &[&str]) {
    let mut command = postgres::command(name).unwrap();
    command.env("PGPASSWORD", "postgres");
    command.args(["--host=127.0.0.1", "--username=postgres"]);
    command.arg(format!("--port={}", place.stage.address.port()));
    let output = command.args(arguments).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", said(&output));
}

#[test]
fn createdb_and_dropdb_run_through_it() {
    for io in DRIVERS {
        let place = Place::set(io);
        drop(use_at_once(place.stage.address, "template1", 2));
        let since = Instant::now();
        program(&place, "createdb", &["made"]);
        drop(use_at_once(place.stage.address, "made", 4));
        program(&place, "createdb", &["--template=made", "copied"]);
        drop(use_at_once(place.stage.address, "copied", 4));
        program(&place, "dropdb", &["made"]);
        program(&place, "dropdb", &["--if-exists", "made"]);
        program(&place, "dropdb", &["--force", "copied"]);
        assert!(since.elapsed() < 3 * SOON, "{io}: {:?}", since.elapsed());
    }
}

/// Imitates the test runners of frameworks: each run creates its database, and drops it.
#[test]
fn a_test_runner_makes_its_database_and_drops_it_again_and_again() {
    for io in DRIVERS {
        let place = Place::set(io);
        for run in 0..3 {
            let mut admin = place.client("postgres");
            runs(&mut admin, "CREATE DATABASE \"test_app\" ");
            drop(admin);
            let mut clients = use_at_once(place.stage.address, "test_app", 4);
            let rows = format!("create table rows as select {run} as run");
            clients[0].run(&rows);
            for client in &mut clients {
                client.run("begin");
                assert_eq!(client.value("select run from rows"), run.to_string());
                client.run("rollback");
            }
            drop(clients);
            let mut admin = place.client("postgres");
            runs(&mut admin, "DROP DATABASE \"test_app\"");
        }
    }
}

#[test]
fn what_the_server_refuses_it_refuses_as_without_a_pool() {
    for io in DRIVERS {
        let place = Place::set(io);
        let stay = place.used("t", 4);
        let mut client = place.client("postgres");
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
        let mut other = place.stage.client();
        let keeps_them = (0..20).any(|round| {
            let name = format!("kept_{round}");
            let _stay = place.used(&name, 4);
            for text in ["drop database NAME", "alter database NAME rename to other"] {
                let text = text.replace("NAME", &name);
                assert_eq!(other.refusal(&text), "42501", "{io}: {text}");
            }
            place.connections(&name) == "4"
        });
        assert!(keeps_them, "{io}");
    }
}

#[test]
fn a_client_that_is_in_the_middle_of_something_keeps_its_database() {
    for io in DRIVERS {
        let place = Place::set(io);
        let mut clients = place.used("t", 4);
        let mut admin = place.client("postgres");
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
        std::thread::sleep(Duration::from_secs(1));
        clients[0].run("insert into begun values (1)");
        clients[0].run("commit");
        assert_eq!(admin.reply(), ["C DROP DATABASE", DONE], "{io}");
    }
}

/// The server ends idle sessions; other clients do not notice, and the server stays up.
#[test]
fn a_drop_by_force_disturbs_nobody_else() {
    for io in DRIVERS {
        let place = Place::set(io);
        let mut clients = place.used("t", 4);
        let mut others = use_at_once(place.stage.address, "postgres", 3);
        let mut admin = place.client("postgres");
        others[0].run("begin");
        runs(&mut admin, "drop database t with (force)");
        for client in &mut clients {
            assert_eq!(client.query("select 1"), ["E 3D000", DONE], "{io}");
        }
        others[0].run("commit");
        for client in &mut others {
            assert_eq!(client.value("select 1"), "1", "{io}");
        }
        let status = place.stage.status();
        assert_eq!(status["servers"][0]["state"], "up", "{io}: {status:#}");
    }
}

/// Returns a database whose functions are read repeatedly.
#[test]
fn the_catalog_of_a_dropped_database_is_nobody_s_trouble() {
    for io in DRIVERS {
        let place = Place::set(io);
        let mut clients = place.used("t", 4);
        let mut admin = place.client("postgres");
        for _ in 0..3 {
            // The catalog is read again soon after this.
            clients[0].run("create table if not exists t (a int)");
            std::thread::sleep(Duration::from_millis(900));
            runs(&mut admin, "drop database t");
            std::thread::sleep(Duration::from_millis(1_500));
            let status = place.stage.status();
            let log = place.stage.balancer.log();
            assert!(!log.contains("does not exist"), "{io}: {status:#} {log}");
            runs(&mut admin, "create database t");
        }
        // The catalog is known again after its next use.
        let plain = "create function plain() returns int language sql stable as 'select 7'";
        clients[1].run(plain);
        wait_until(&place.stage.balancer, "a reading", || {
            let log = place.stage.balancer.log();
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
            let place = Place::with(io, setup);
            let mut direct = enter(place.server.address, "postgres");
            for (name, function) in [("t", HARMLESS), ("other", HARMFUL)] {
                direct.run(&format!("create database {name}"));
                enter(place.server.address, name).run(function);
            }
            let mut client = place.client("t");
            let mut other = place.client("t");
            for _ in 0..20 {
                client.run("select enters()");
            }
            let mut admin = place.client("postgres");
            replace.iter().for_each(|text| runs(&mut admin, text));
            client.run("select enters()");
            let tenant = "select coalesce(current_setting('app.tenant', true), '')";
            // A connection pinned to its client is not available.
            let heard = other.query(tenant);
            assert!(heard[1] == "D " || heard[0] == "E 53300", "{io}: {heard:?}");
        }
    }
}

/// A RENAME ends no sessions on a replica: those in the database stay in it.
///
/// TO SEE THIS RED: keep the connections to replicas after a RENAME.
#[test]
fn reads_of_a_renamed_database_are_those_of_the_next_one_of_its_name() {
    let lab = Lab::new("databases").unwrap();
    let options = PostgresOptions {
        replicas: 1,
        ..PostgresOptions::default()
    };
    let cluster = lab.postgres(options).unwrap();
    let (primary, replica) = (&cluster.primary, &cluster.replicas[0]);
    let mut direct = enter(primary.address, "postgres");
    for io in DRIVERS {
        for (name, word) in [("t", "old"), ("other", "new")] {
            direct.run(&format!("create database {name}"));
            let kept = format!("create table kept as select '{word}' as word");
            enter(primary.address, name).run(&kept);
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
        let stage = TestBed::start(config, |stage| {
            Client::enter(stage.address, &superuser("postgres")).map(|_| ())
        });
        let mut client = enter(stage.address, "t");
        let is_there = "select count(*) from pg_stat_activity where datname = 't'";
        wait_until(&stage.balancer, "a read at the replica", || {
            assert_eq!(client.value("select word from kept"), "old", "{io}");
            enter(replica.address, "postgres").value(is_there) != "0"
        });
        let mut admin = enter(stage.address, "postgres");
        runs(&mut admin, "alter database t rename to before");
        runs(&mut admin, "alter database other rename to t");
        cluster.wait_caught_up().unwrap();
        for _ in 0..5 {
            assert_eq!(client.value("select word from kept"), "new", "{io}");
        }
        drop(stage);
        direct.run("drop database t with (force)");
        direct.run("drop database before with (force)");
    }
}
