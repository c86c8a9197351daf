//! Tests of `caching_sha2_password` towards clients: first the whole password, encrypted with
//! Evenkeel's key or by TLS, then a proof.

use std::time::Instant;

use evenkeel_lab::{Balancer, MysqlOptions, Server, eventually, rootfs};
use tempfile::TempDir;

use evenkeel_wire::mysql::build;
use evenkeel_wire::mysql::flags::Capabilities;

use super::client::{Client, Login, USUAL};
use super::stage::{ONE, Setup, TestBed, config, own_lab, shared, start_mysql};
use crate::harness::certificates::write_private;
use crate::harness::{DRIVERS, LIMIT, loopback};

/// Hash of `pa ss` as MySQL 9 stores it, in hex.
const STORED: &str = "0x24412430304124775D583F3D715C3E082A7C234B4F01301B28713E\
    77357476692E7072705673694D452E574B5858536C6443414C5A5A31734E6D437544577567354178743737";

fn users() -> (TempDir, String) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("users.toml");
    let own = "server_user = \"sbtest\"\nserver_password = \"sbtest\"\n";
    let users = format!(
        "[users.app]\nverifier = \"{STORED}\"\n{own}\n[users.known]\npassword = \"k\"\n{own}"
    );
    write_private(&path, &users);
    let path = path.display().to_string();
    let tables = format!("[service.auth]\nusers_file = {path:?}");
    (directory, tables)
}

#[test]
fn a_password_comes_whole_once_and_is_proved_from_then_on() {
    let (_directory, tables) = users();
    for io in DRIVERS {
        let bed = TestBed::set_up(
            io,
            Setup {
                tables: &tables,
                ..ONE
            },
        );
        let log_in = |user, password| {
            let login = Login {
                user,
                password,
                ..Login::default()
            };
            Client::log_in(bed.address, &login)
        };
        let refused = |user, password| {
            let reply = log_in(user, password).map(|_| ()).unwrap_err();
            assert!(reply.starts_with("error 1045 28000 "), "{io}: {reply}");
        };
        refused("app", "wrong");
        for _ in 0..2 {
            let mut client = log_in("app", "pa ss").unwrap();
            assert_eq!(client.value("select current_user()"), "sbtest@127.0.0.1");
            refused("app", "wrong");
            refused("app", "");
        }
        assert!(log_in("known", "k").is_ok(), "{io}");
        refused("known", "x");
        refused("nobody", "x");
    }
}

/// Creates a user.
const APP: &str = "\
    CREATE USER app@'127.0.0.1' IDENTIFIED BY 'first';\
    GRANT ALL ON sbtest.* TO app@'127.0.0.1';";

/// Creates the account that queries roles and accounts, and a user.
const ACCOUNTS: &str = "\
    CREATE USER evenkeel@'127.0.0.1' IDENTIFIED BY 'evenkeel';\
    GRANT REPLICATION CLIENT ON *.* TO evenkeel@'127.0.0.1';\
    GRANT SELECT ON mysql.* TO evenkeel@'127.0.0.1';\
    GRANT SELECT ON performance_schema.* TO evenkeel@'127.0.0.1';\
    CREATE USER app@'127.0.0.1' IDENTIFIED BY 'first';\
    GRANT ALL ON sbtest.* TO app@'127.0.0.1';";

#[test]
fn users_of_mysql_log_in_by_their_own_accounts_even_when_the_server_has_forgotten_them() {
    if let Some(why) = rootfs::missing_program("mysqld") {
        println!("skipped: {why}");
        return;
    }
    let lab = own_lab("mysql-logins");
    let cluster = lab.mysql(MysqlOptions::default()).unwrap();
    let server = &cluster.primary;
    server.sql(ACCOUNTS).unwrap();
    let bed = TestBed::before(server, "auto", ONE);
    let log_in = |password: &str| {
        let login = Login {
            user: "app",
            password,
            ..Login::default()
        };
        Client::log_in(bed.address, &login)
    };
    let refused = |password: &str, number: &str| {
        let reply = log_in(password).map(|_| ()).unwrap_err();
        assert!(reply.starts_with(&format!("error {number} ")), "{reply}");
    };
    refused("wrong", "1045");
    let mut client = log_in("first").unwrap();
    assert_eq!(client.value("select current_user()"), "app@127.0.0.1");
    refused("wrong", "1045");
    // The server's password cache is lost; the client proves its password as before.
    server.stop().unwrap();
    server.start().unwrap();
    let again = || Ok(log_in("first").ok());
    let mut client = eventually(LIMIT, "a session of a forgotten user", again).unwrap();
    assert_eq!(client.value("select current_user()"), "app@127.0.0.1");
    server
        .sql("alter user app@'127.0.0.1' identified by 'second'")
        .unwrap();
    refused("first", "1045");
    assert!(log_in("second").is_ok(), "{}", bed.balancer.log());
    server
        .sql("alter user app@'127.0.0.1' account lock")
        .unwrap();
    refused("second", "3118");
    refused("first", "1045");
    server
        .sql("alter user app@'127.0.0.1' account unlock password expire")
        .unwrap();
    refused("second", "1862");
    server.sql("drop user app@'127.0.0.1'").unwrap();
    refused("second", "1045");
}

/// TO SEE THIS RED: compare with the account's first password alone.
#[test]
fn of_an_account_with_two_passwords_either_lets_in_until_the_old_one_is_discarded() {
    if let Some(why) = rootfs::missing_program("mysqld") {
        println!("skipped: {why}");
        return;
    }
    let (_lab, server) = start_mysql("mysql-two-passwords");
    server.sql(APP).unwrap();
    for io in DRIVERS {
        let bed = TestBed::before(&server, io, ONE);
        let log_in = |password: &str| {
            let login = Login {
                user: "app",
                password,
                ..Login::default()
            };
            Client::log_in(bed.address, &login)
        };
        let alter = |what: &str| {
            let text = format!("alter user app@'127.0.0.1' {what}");
            server.sql(&text).unwrap();
        };
        alter("identified by 'first'");
        assert!(log_in("first").is_ok(), "{io}");
        alter("identified by 'second' retain current password");
        for password in ["second", "first", "second", "first"] {
            let mut client = log_in(password).unwrap_or_else(|reply| panic!("{io}: {reply}"));
            assert_eq!(client.value("select current_user()"), "app@127.0.0.1");
        }
        let reply = |password| log_in(password).map(|_| ()).unwrap_err();
        assert!(reply("wrong").starts_with("error 1045 "), "{io}");
        alter("discard old password");
        assert!(reply("first").starts_with("error 1045 "), "{io}");
        assert!(log_in("second").is_ok(), "{io}");
    }
}

#[test]
fn every_server_sees_a_password_at_its_first_login_so_that_a_promotion_finds_it_willing() {
    if let Some(why) = rootfs::missing_program("mysqld") {
        println!("skipped: {why}");
        return;
    }
    let lab = own_lab("mysql-warm");
    let options = MysqlOptions {
        replicas: 1,
        ..MysqlOptions::default()
    };
    let cluster = lab.mysql(options).unwrap();
    cluster.primary.sql(ACCOUNTS).unwrap();
    cluster.wait_caught_up().unwrap();
    let address = loopback();
    let (primary, replica) = (&cluster.primary, &cluster.replicas[0]);
    let known = format!("{}\" }}]", primary.address);
    let both = format!(
        "{}\" }}, {{ name = \"replica\", address = \"{}\" }}]",
        primary.address, replica.address
    );
    let config = config(primary, address, "auto", ONE).replace(&known, &both);
    let balancer = Balancer::start(&config).unwrap();
    let login = Login {
        user: "app",
        password: "first",
        ..Login::default()
    };
    let visits = |server: &Server| {
        let query = "select coalesce(sum(total_connections), 0) from \
                     performance_schema.accounts where user = 'app'";
        server.sql(query).unwrap()
    };
    let first = || Ok(Client::log_in(address, &login).ok());
    let client = eventually(LIMIT, "a first session", first);
    let _client = client.unwrap_or_else(|error| panic!("{error}: {}", balancer.log()));
    let seen = || Ok((visits(replica) != "0").then_some(()));
    eventually(LIMIT, "the replica to see the password", seen).unwrap();
    let before = visits(replica);
    // Later proofs are not counted as new logins.
    for _ in 0..5 {
        drop(Client::with(address, &login));
    }
    assert_eq!(visits(replica), before);
}

#[test]
fn whole_passwords_cannot_be_tried_as_fast_as_one_likes() {
    let (_directory, tables) = users();
    let bed = TestBed::set_up(
        "auto",
        Setup {
            tables: &tables,
            service: "login_timeout_ms = 1000",
            ..ONE
        },
    );
    let login = |password| Login {
        user: "app",
        password,
        ..bed.login()
    };
    let address = bed.address;
    // Generating the key takes a moment.
    let first = || Ok(Client::log_in(address, &login("pa ss")).ok());
    eventually(LIMIT, "a first session", first).unwrap();
    let started = Instant::now();
    let tries = |count: usize| {
        std::thread::scope(|scope| {
            let guess = || {
                Client::log_in(address, &login("wrong"))
                    .map(|_| ())
                    .unwrap_err()
            };
            let all: Vec<_> = (0..count).map(|_| scope.spawn(guess)).collect();
            all.into_iter()
                .map(|one| one.join().unwrap())
                .collect::<Vec<_>>()
        })
    };
    let reply = tries(60);
    let denied = reply.iter().filter(|one| one.starts_with("error 1045 "));
    let late = reply.iter().filter(|one| one.starts_with("error 1159 "));
    let (denied, late) = (denied.count(), late.count());
    assert_eq!(denied + late, 60, "{reply:?}");
    // Twenty immediately, and ten a second.
    let most = 21 + started.elapsed().as_millis() as usize / 100;
    assert!((1..=most).contains(&denied), "{denied} of at most {most}");
}

/// MySQL servers support them since 8.0.23, MariaDB's do not.
///
/// TO SEE THIS RED: forward them.
#[test]
fn who_was_promised_query_attributes_runs_nothing_on_a_server_that_does_not_know_them() {
    if let Some(why) = rootfs::missing_program("mysqld") {
        println!("skipped: {why}");
        return;
    }
    let (_lab, server) = start_mysql("mysql-attributes");
    let (_directory, tables) = users();
    let tables = tables + "\n[service.failover]\nwait_ms = 500";
    let setup = Setup {
        tables: &tables,
        ..ONE
    };
    let login = Login {
        user: "known",
        password: "k",
        capabilities: USUAL.with(Capabilities::QUERY_ATTRIBUTES),
        ..Login::default()
    };
    let bed = TestBed::before_as(&server, "auto", setup, &login);
    let mut client = Client::with(bed.address, &login);
    assert!(client.agreed.has(Capabilities::QUERY_ATTRIBUTES));
    let mut ask = || {
        let mut text = Vec::new();
        build::query_with_attributes(&mut text, &[], b"select 'here'");
        client.send_packets(&text);
        client.reply()
    };
    assert_eq!(ask()[1], "row here");
    let older = config(shared(), bed.address, "auto", setup);
    bed.balancer.reload(&older).unwrap();
    let reply = ask();
    assert!(reply[0].starts_with("error 1290 "), "{reply:?}");
    let mut newcomer = Client::with(bed.address, &login);
    assert_eq!(newcomer.value("select 'here'"), "here");
}
