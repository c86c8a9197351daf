//! Tests of `source = "login"`: the servers check the passwords, by logins with them.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Instant;

use evenkeel_lab::Server;

use super::client::{Client, Login};
use super::stage::{Setup, TestBed, start_own};
use crate::harness::certificates::Certificates;
use crate::harness::pool::config;
use crate::harness::{DRIVERS, printed};

/// Account of the monitor, which may not read `pg_authid`.
const POOR: (&str, &str) = ("postgres", "monitor");

/// Runs psql over TLS; returns what it prints.
fn psql(address: SocketAddr, user: &str, password: &str, sql: &str) -> String {
    psql_with(address, user, password, ("sbtest", "require"), sql)
}

fn psql_with(
    address: SocketAddr,
    user: &str,
    password: &str,
    (database, sslmode): (&str, &str),
    sql: &str,
) -> String {
    let url = format!(
        "host=127.0.0.1 port={} user={user} dbname={database} sslmode={sslmode}",
        address.port()
    );
    let output = Command::new("psql")
        .args(["-X", "-A", "-t", "-d", &url, "-c", sql])
        .env("PGPASSWORD", password)
        .output()
        .unwrap();
    printed(&output)
}

fn bed(server: &Server, io: &str, setup: Setup<'_>, certificates: &Certificates) -> TestBed {
    let tables = format!(
        "[service.auth]\nsource = \"login\"\n[service.tls]\ncertificate = {:?}\nkey = {:?}\n{}",
        certificates.at("server.crt"),
        certificates.at("server.key"),
        setup.tables,
    );
    let setup = Setup {
        tables: &tables,
        ..setup
    };
    TestBed::start(
        |listen| config(POOR, server, listen, io, setup),
        |bed| {
            let said = psql(bed.address, "sbtest", "sbtest", "select 'in'");
            if said == "in\n" { Ok(()) } else { Err(said) }
        },
    )
}

/// Makes each method of the server's the one for a role of that name.
fn roles_of_each_method(server: &Server) {
    for text in [
        "create role of_scram login password 'of_scram'",
        "set password_encryption to md5; create role of_md5 login password 'of_md5'",
        "create role of_password login password 'of_password'",
        "create role of_trust login",
        "create role barred nologin password 'barred'",
        "create role expired login password 'expired' valid until '2020-01-01'",
        "create role full login password 'full' connection limit 0",
        "copy (select unnest(array['host all of_trust all trust', 'host all of_md5 all md5', \
         'host all of_password all password', 'host all rejected all reject'])) \
         to program 'cat > own.conf; cat own.conf pg_hba.conf > new.conf; cat new.conf > pg_hba.conf'",
        "create role rejected login password 'rejected'",
        "select pg_reload_conf()",
    ] {
        server.sql(text).unwrap();
    }
}

/// TO SEE THIS RED: answer the client before the server has judged its password.
#[test]
fn the_server_judges_each_password_by_its_own_method() {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let (_lab, server) = start_own();
    roles_of_each_method(&server);
    for io in DRIVERS {
        let bed = bed(&server, io, Setup::default(), &certificates);
        let who =
            |user: &str, password: &str| psql(bed.address, user, password, "select current_user");
        for user in ["sbtest", "of_scram", "of_md5", "of_password", "of_trust"] {
            assert_eq!(
                who(user, user),
                format!("{user}\n"),
                "{io}: {}",
                bed.balancer.log()
            );
        }
        for user in ["sbtest", "of_scram", "of_md5", "of_password", "nobody_here"] {
            let said = who(user, "wrong");
            let expected = format!("password authentication failed for user \"{user}\"");
            assert!(said.contains(&expected), "{io}: {said}");
        }
        // The server requests no password of it, from whatever client.
        assert_eq!(who("of_trust", "whatever"), "of_trust\n", "{io}");
        assert!(bed.balancer.log().contains("without a password"), "{io}");
        for (user, expected) in [
            ("barred", "is not permitted to log in"),
            ("expired", "password authentication failed"),
            ("full", "too many connections for role"),
            ("rejected", "pg_hba.conf rejects connection"),
        ] {
            let said = who(user, user);
            assert!(said.contains(expected), "{io}: {said}");
            assert!(!said.contains("primary"), "{io}: a server's name: {said}");
        }
        let other = ("no_such_database", "require");
        let said = psql_with(bed.address, "sbtest", "sbtest", other, "select 1");
        assert!(said.contains("does not exist"), "{io}: {said}");
    }
}

#[test]
fn no_password_is_asked_for_without_tls() {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let (_lab, server) = start_own();
    for io in DRIVERS {
        let bed = bed(&server, io, Setup::default(), &certificates);
        let said = psql_with(
            bed.address,
            "sbtest",
            "sbtest",
            ("sbtest", "disable"),
            "select 1",
        );
        assert!(
            said.contains("over TLS or a Unix socket only"),
            "{io}: {said}"
        );
        let login = Login {
            user: "sbtest",
            password: "sbtest",
            database: "sbtest",
            ..Login::default()
        };
        let refused = Client::log_in(bed.address, &login).err().unwrap();
        assert!(refused.starts_with("28000"), "{io}: {refused}");
    }
}

/// TO SEE THIS RED: accept a password that an earlier login has proved.
#[test]
fn a_change_at_the_server_holds_from_the_next_login_on() {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let (_lab, server) = start_own();
    server
        .sql("create role changes login password 'first'")
        .unwrap();
    for io in DRIVERS {
        server.sql("alter role changes password 'first'").unwrap();
        let bed = bed(&server, io, Setup::default(), &certificates);
        let log_in = |password: &str| psql(bed.address, "changes", password, "select 'in'");
        assert_eq!(log_in("first"), "in\n", "{io}");
        // A connection of this login is still in the pool.
        server.sql("alter role changes password 'second'").unwrap();
        let said = log_in("first");
        assert!(
            said.contains("password authentication failed"),
            "{io}: {said}"
        );
        assert_eq!(log_in("second"), "in\n", "{io}");
        server.sql("alter role changes nologin").unwrap();
        assert!(log_in("second").contains("not permitted to log in"), "{io}");
        server.sql("alter role changes login").unwrap();
    }
}

/// Sessions of a user share server connections, and the pool opens further ones with the password.
#[test]
fn logins_of_one_user_share_a_pool_that_opens_further_connections() {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let (_lab, server) = start_own();
    for io in DRIVERS {
        let setup = Setup {
            pool: "size = 3",
            ..Setup::default()
        };
        let bed = bed(&server, io, setup, &certificates);
        let run = || {
            psql(
                bed.address,
                "sbtest",
                "sbtest",
                "select 'in' from pg_sleep(0.3)",
            )
        };
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..12).map(|_| scope.spawn(run)).collect();
            for one in all {
                assert_eq!(one.join().unwrap(), "in\n", "{io}");
            }
        });
        let count = "select count(*) from pg_stat_activity where usename = 'sbtest'";
        let count: u32 = server.sql(count).unwrap().trim().parse().unwrap();
        assert!((2..=3).contains(&count), "{io}: {count}");
    }
}

/// TO SEE THIS RED: do not wait for the rate limit.
#[test]
fn guesses_reach_the_server_at_a_limited_rate() {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let (_lab, server) = start_own();
    let bed = bed(&server, "auto", Setup::default(), &certificates);
    let began = Instant::now();
    let guess = || {
        for _ in 0..6 {
            let said = psql(bed.address, "sbtest", "guess", "select 1");
            assert!(said.contains("password authentication failed"), "{said}");
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..5 {
            scope.spawn(guess);
        }
    });
    // Of 30 guesses from one address, 20 are free, and the others come at 10 per second.
    assert!(began.elapsed().as_millis() > 800, "{:?}", began.elapsed());
    assert_eq!(psql(bed.address, "sbtest", "sbtest", "select 'in'"), "in\n");
}
