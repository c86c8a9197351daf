//! Tests of features that MariaDB 11 has and 10.11 lacks, and of general ones on a server of
//! version 11.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::OnceLock;

use evenkeel_lab::{Lab, MariadbOptions, Scenario, Server, mariadb, rootfs};
use evenkeel_wire::mysql::flags::Capabilities;

use super::bulk::MARIADB;
use super::client::{Client, Login, Value};
use super::logins::comes_in_by_the_file;
use super::split::{self, write_and_read};
use super::stage::{ONE, Setup, TestBed, config, own_lab, same_as_at, start_mariadb};
use crate::harness::certificates::{Certificates, write_private};
use crate::harness::{DRIVERS, own, printed};
use Value::{Number, Text};

const VERSION: u32 = 11;

/// Users whose proofs cannot be used at a server.
const SIGNERS: &str = "\
    INSTALL SONAME 'auth_ed25519'; INSTALL SONAME 'auth_parsec';\
    CREATE USER edi@'127.0.0.1' IDENTIFIED VIA ed25519 USING PASSWORD('secret');\
    CREATE USER parsec@'127.0.0.1' IDENTIFIED VIA parsec USING PASSWORD('secret');\
    GRANT ALL ON sbtest.* TO edi@'127.0.0.1', parsec@'127.0.0.1';";

/// Returns whether the tests must be skipped, and prints the reason.
fn skipped() -> bool {
    let missing = rootfs::missing_mariadb(VERSION);
    if let Some(why) = &missing {
        println!("skipped: {why}");
    }
    missing.is_some()
}

/// Returns the server of these tests, which ends with them.
fn shared() -> Option<&'static Server> {
    own::is_the_labs();
    static SHARED: OnceLock<(Lab, Server)> = OnceLock::new();
    let start = || {
        let (lab, server) = start_mariadb(MariadbOptions {
            version: Some(VERSION),
            ..MariadbOptions::default()
        });
        server.sql(SIGNERS).unwrap();
        (lab, server)
    };
    (!skipped()).then(|| &SHARED.get_or_init(start).1)
}

#[test]
fn users_whose_proofs_nobody_else_can_use_come_in_by_the_file_of_users() {
    let Some(server) = shared() else { return };
    for user in ["edi", "parsec"] {
        comes_in_by_the_file(server, user);
    }
}

/// TO SEE THIS RED: use the first supported authentication method.
#[test]
fn of_several_ways_to_log_in_the_one_counts_that_servers_take_too() {
    let Some(server) = shared() else { return };
    server
        .sql(
            "CREATE USER moving@'127.0.0.1' IDENTIFIED VIA parsec USING PASSWORD('secret') \
             OR unix_socket OR mysql_native_password USING PASSWORD('secret'); \
             GRANT ALL ON sbtest.* TO moving@'127.0.0.1'",
        )
        .unwrap();
    for io in DRIVERS {
        let bed = TestBed::before(server, io, ONE);
        let log_in = |address, password| {
            let login = Login {
                user: "moving",
                password,
                ..Login::default()
            };
            Client::log_in(address, &login)
        };
        for address in [server.address, bed.address] {
            let mut client = log_in(address, "secret").unwrap();
            assert_eq!(client.value("select current_user()"), "moving@127.0.0.1");
        }
        let reply = log_in(bed.address, "wrong").map(|_| ()).unwrap_err();
        assert!(reply.starts_with("error 1045 "), "{io}: {reply}");
    }
}

/// Runs version 11's own client with an address that it does not consider local, without a
/// certificate authority.
fn newest_client(port: u16, user: &str, password: &str, text: &str) -> String {
    let mut command = mariadb::command(VERSION, "mariadb").unwrap();
    command
        .args(["--no-defaults", "--protocol=tcp", "-h127.0.0.2", "-N", "-B"])
        .arg(format!("-P{port}"))
        .arg(format!("-u{user}"))
        .arg(format!("-p{password}"))
        .args(["-e", text]);
    printed(&command.output().unwrap())
}

/// TO SEE THIS RED: leave the message out of the OK after a login.
#[test]
fn clients_know_our_certificate_by_their_password() {
    let Some(server) = shared() else { return };
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let users = "[users.edi]\nserver_password = \"secret\"\n\
                 [users.parsec]\nserver_password = \"secret\"\n";
    write_private(certificates.at("users.toml"), users);
    let tables = format!(
        "[service.tls]\ncertificate = {:?}\nkey = {:?}\n[service.auth]\nusers_file = {:?}",
        certificates.at("server.crt"),
        certificates.at("server.key"),
        certificates.at("users.toml"),
    );
    let setup = Setup {
        tables: &tables,
        ..ONE
    };
    for io in DRIVERS {
        let everywhere = |port| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
        let bed = TestBed::start(
            |address| config(server, everywhere(address.port()), io, setup),
            |bed| Client::log_in(bed.address, &Login::default()).map(|_| ()),
        );
        let port = bed.address.port();
        for (user, password) in [
            ("sbtest", "sbtest"),
            ("edi", "secret"),
            ("parsec", "secret"),
        ] {
            let reply = newest_client(port, user, password, "select current_user()");
            assert_eq!(reply.trim(), format!("{user}@127.0.0.1"), "{io}");
            let reply = newest_client(port, user, "wrong", "select current_user()");
            assert!(reply.contains("1045"), "{io}: {reply}");
        }
    }
}

#[test]
fn each_row_of_an_execution_has_its_result() {
    let Some(server) = shared() else { return };
    let setup = Setup {
        pool: "size = 2",
        ..ONE
    };
    same_as_at(server, setup, |address| {
        let login = Login {
            capabilities: MARIADB.with(Capabilities::BULK_UNIT_RESULTS),
            ..Login::default()
        };
        let (mut client, mut other) = (Client::with(address, &login), Client::connect(address));
        assert!(client.agreed.has(Capabilities::BULK_UNIT_RESULTS));
        client.run("create or replace table units (id int primary key auto_increment, v text)");
        let mut received = client.prepare("in", "insert into units (v) values (?)");
        let rows: [&[Value<'_>]; 3] = [&[Text("one")], &[Text("two")], &[Value::Null]];
        received.extend(client.execute_each("in", &[Text("")], &rows));
        received.extend(other.query("select * from units"));
        received.extend(client.execute_rows("in", &[Text("")], &rows));
        received.extend(client.query("select last_insert_id()"));
        received.extend(client.prepare("out", "delete from units where id < ?"));
        received.extend(client.execute_each("out", &[Number(0)], &[&[Number(3)], &[Number(9)]]));
        received.extend(other.query("select * from units"));
        received
    });
}

#[test]
fn settings_that_are_new_in_it_follow_their_client() {
    let Some(server) = shared() else { return };
    same_as_at(server, ONE, |address| {
        let settings = "select @@character_set_collations, @@collation_connection";
        let mut received = Vec::new();
        for collation in [8, 33, 45, 46, 83, 192, 255] {
            let login = Login {
                collation,
                ..Login::default()
            };
            received.extend(Client::with(address, &login).query(settings));
        }
        let (mut client, mut other) = (Client::connect(address), Client::connect(address));
        received.extend(client.all(&[
            "set character_set_collations = 'utf8mb4=utf8mb4_bin'",
            settings,
        ]));
        received.extend(other.query(settings));
        for one in [&mut client, &mut other] {
            received.extend(one.prepare("same", "select _utf8mb4'a' = _utf8mb4'A'"));
        }
        for one in [&mut client, &mut other] {
            received.extend(one.execute("same", &[]));
        }
        received.extend(client.all(&[
            "create or replace table trackers (id int, v vector(2) not null)",
            "set session_track_system_variables = 'last_gtid'",
            "insert into trackers values (1, vec_fromtext('[1,2]'))",
        ]));
        received.extend(other.all(&[
            "insert into trackers values (2, vec_fromtext('[1,2]'))",
            "select id, vec_totext(v), vec_distance_euclidean(v, v) from trackers",
            "select length(uuid_v7())",
        ]));
        received
    });
}

/// The server reports one variable of each memory location, for all aliases of it.
///
/// TO SEE THIS RED: enable our trackers with '*' alone.
#[test]
fn settings_follow_their_client_by_whatever_name_they_are_told() {
    let Some(server) = shared() else { return };
    let shown = "select @@collation_connection, @@character_set_client, @@collation_server, \
                 @@foreign_key_checks, @@unique_checks, @@sql_notes, @@autocommit, \
                 @@timestamp < 10, @@tx_isolation, last_insert_id()";
    let steps = [
        "set names latin1",
        "set names utf8mb4",
        "set names utf8mb4 collate utf8mb4_bin",
        "set character set latin1",
        "set collation_connection = latin1_german1_ci",
        "set character_set_connection = utf8mb4",
        "set character_set_collations = 'utf8mb4=utf8mb4_bin'",
        "set names utf8mb4",
        "set character_set_server = latin1",
        "set collation_server = utf8mb4_bin",
        "set foreign_key_checks = 0",
        "set unique_checks = off, sql_notes = 0",
        "set autocommit = 1, foreign_key_checks = on",
        "set timestamp = 5",
        "set last_insert_id = 7",
        "set timestamp = default",
        "set transaction_isolation = default",
        "insert into named values (100 + (select x from (select max(id) x from named) y))",
        "insert into named values (null)",
    ];
    same_as_at(server, ONE, |address| {
        let (mut client, mut other) = (Client::connect(address), Client::connect(address));
        let table = "create or replace table named (id int primary key auto_increment)";
        let mut received = client.all(&[table, "insert into named values (1)"]);
        received.push(client.value(shown));
        for step in steps {
            // Shown on failure.
            println!("{step}");
            received.extend(client.all(&[step]));
            other.run("set names utf8mb3, unique_checks = 1, foreign_key_checks = 0");
            other.run("set timestamp = 3, collation_server = latin1_bin, sql_notes = 1");
            received.push(client.value(shown));
        }
        received
    });
}

/// TO SEE THIS RED: trust the reported name.
#[test]
fn what_a_procedure_sets_under_another_name_stays_with_its_client() {
    let Some(server) = shared() else { return };
    Client::connect(server.address)
        .run("create or replace procedure unchecks() set session foreign_key_checks = 0");
    let setup = Setup {
        pool: "size = 2",
        ..ONE
    };
    same_as_at(server, setup, |address| {
        let mut clients: Vec<Client> = (0..3).map(|_| Client::connect(address)).collect();
        let mut received = Vec::new();
        for text in ["set unique_checks = 1", "call unchecks()"] {
            received.extend(clients[0].all(&[text]));
            for client in &mut clients {
                received.extend(client.all(&["select @@foreign_key_checks"]));
            }
        }
        received
    });
}

/// TO SEE THIS RED: take each `last_gtid` as that of a write.
#[test]
fn a_position_is_told_after_other_settings_and_is_that_of_the_client_s_own_write() {
    let Some(server) = shared() else { return };
    server
        .sql("create or replace table sbtest.positions (a int)")
        .unwrap();
    for io in DRIVERS {
        let bed = TestBed::before(server, io, ONE);
        let (mut client, mut other) = (bed.client(), bed.client());
        let last = "select @@last_gtid";
        client.run("set timestamp = 5");
        client.run("insert into positions values (1)");
        let own = client.value(last);
        assert!(own.contains('-'), "{io}: {own}");
        other.run("set timestamp = 6");
        assert_eq!(other.value(last), "", "{io}");
        other.run("insert into positions values (2)");
        assert_ne!(other.value(last), own, "{io}");
        client.run("set timestamp = default");
        assert_eq!(client.value(last), own, "{io}");
    }
}

#[test]
fn sessions_read_what_they_wrote_at_replicas_and_after_a_change_of_the_primary() {
    if skipped() {
        return;
    }
    let scenario = Scenario::of_mariadb(own_lab("mariadb-11"), Some(VERSION)).unwrap();
    let bed = split::TestBed::in_front_of(scenario, "auto", "");
    let (_, elsewhere) = write_and_read(&bed, 30, 4);
    assert!(elsewhere > 0, "every read was at the primary");
    let candidate = bed.replicas().remove(0);
    bed.scenario.lab.promote(&candidate).unwrap();
    bed.wait_primary(&candidate);
    write_and_read(&bed, 30, 4);
}

/// A position has one entry for each domain; a replica is far enough if it has all of them.
#[test]
fn sessions_read_what_they_wrote_in_several_domains() {
    if skipped() {
        return;
    }
    let scenario = Scenario::of_mariadb(own_lab("mariadb-11"), Some(VERSION)).unwrap();
    let right = "GRANT BINLOG REPLAY ON *.* TO sbtest@'127.0.0.1'";
    scenario.writer().unwrap().sql(right).unwrap();
    let bed = split::TestBed::in_front_of(scenario, "auto", "");
    let primary = bed.port_of_primary();
    let mut clients: Vec<Client> = (0..3).map(|_| bed.client()).collect();
    let mut elsewhere = 0;
    for round in 0..60 {
        for (id, client) in clients.iter_mut().enumerate() {
            let write = format!("update counters set v = {round} where id = {id}");
            let other = format!("update counters set v = {round} where id = 1{id}");
            client.run(&match round % 3 {
                0 => format!("set gtid_domain_id = {id}; {write}"),
                1 => format!("set statement gtid_domain_id = 9 for {write}"),
                _ => format!("{write}; set gtid_domain_id = 1{id}; {other}"),
            });
            let row = client.value(&format!("select v, here() from counters where id = {id}"));
            let (seen, port) = row.split_once('|').unwrap();
            assert_eq!(seen, round.to_string(), "at {port}");
            elsewhere += usize::from(port != primary);
        }
    }
    assert!(elsewhere > 0, "every read was at the primary");
}
