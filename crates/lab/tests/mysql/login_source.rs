//! Tests of `source = "login"`: the servers check the passwords, by logins with them.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Instant;

use evenkeel_lab::{Server, rootfs};

use super::client::{Client, Login};
use super::stage::{Setup, TestBed, config, start_mysql, start_own};
use crate::harness::certificates::Certificates;
use crate::harness::{DRIVERS, printed};

const TWO: Setup<'_> = Setup {
    pool: "size = 2",
    service: "",
    tables: "",
    workers: 2,
};

/// Runs MariaDB's client over TLS with a user whose password equals its name; returns what it
/// prints.
fn mariadb(address: SocketAddr, user: &str, password: &str, options: &[&str]) -> String {
    let output = Command::new("mariadb")
        .args([
            "--no-defaults",
            "--protocol=tcp",
            "-h127.0.0.1",
            "-N",
            "-B",
            "--ssl",
        ])
        .arg(format!("-P{}", address.port()))
        .arg(format!("-u{user}"))
        .arg(match password {
            "" => "--skip-password".to_owned(),
            password => format!("-p{password}"),
        })
        .args(options)
        .args(["-e", "select 'in', current_user()"])
        .output()
        .unwrap();
    printed(&output)
}

fn bed(server: &Server, io: &str, certificates: &Certificates) -> TestBed {
    let tables = format!(
        "[service.auth]\nsource = \"login\"\n[service.tls]\ncertificate = {:?}\nkey = {:?}\n",
        certificates.at("server.crt"),
        certificates.at("server.key"),
    );
    let setup = Setup {
        tables: &tables,
        ..TWO
    };
    TestBed::start(
        |listen| config(server, listen, io, setup),
        |bed| {
            let said = mariadb(bed.address, "sbtest", "sbtest", &[]);
            if said == is_in("sbtest") {
                Ok(())
            } else {
                Err(said)
            }
        },
    )
}

fn is_in(user: &str) -> String {
    format!("in\t{user}@127.0.0.1\n")
}

/// TO SEE THIS RED: answer the client before the server has judged its password.
#[test]
fn mariadb_judges_each_password_by_the_plugin_of_its_account() {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let (_lab, server) = start_own();
    let _ = server.sql("install soname 'auth_ed25519'");
    server
        .sql(
            "create user native@'127.0.0.1' identified by 'native';\
             create user signed@'127.0.0.1' identified via ed25519 using password('signed');\
             create user empty@'127.0.0.1';\
             create user locked@'127.0.0.1' identified by 'locked' account lock",
        )
        .unwrap();
    for io in DRIVERS {
        let bed = bed(&server, io, &certificates);
        for user in ["sbtest", "native", "signed"] {
            let said = mariadb(bed.address, user, user, &[]);
            assert_eq!(said, is_in(user), "{io}: {}", bed.balancer.log());
            let clear = ["--default-auth=mysql_clear_password"];
            assert_eq!(
                mariadb(bed.address, user, user, &clear),
                is_in(user),
                "{io}"
            );
            let said = mariadb(bed.address, user, "wrong", &[]);
            let expected = format!("ERROR 1045 (28000): Access denied for user '{user}'@");
            assert!(said.starts_with(&expected), "{io}: {said}");
        }
        assert_eq!(
            mariadb(bed.address, "empty", "", &[]),
            is_in("empty"),
            "{io}"
        );
        for (user, password, expected) in [
            ("empty", "x", "1045"),
            ("nobody", "x", "1045"),
            ("locked", "locked", "4151"),
        ] {
            let said = mariadb(bed.address, user, password, &[]);
            assert!(said.contains(expected), "{io}: {said}");
            assert!(!said.contains("primary"), "{io}: a server's name: {said}");
        }
        // Without TLS, no password is requested.
        let said = mariadb(bed.address, "sbtest", "sbtest", &["--skip-ssl"]);
        assert!(
            said.contains("3159") && said.contains("TLS or a Unix socket"),
            "{io}: {said}"
        );
        let refused = Client::log_in(bed.address, &Login::default())
            .err()
            .unwrap();
        assert!(refused.contains("3159"), "{io}: {refused}");
    }
}

/// TO SEE THIS RED: accept a password that an earlier login has proved.
#[test]
fn a_change_at_the_server_holds_from_the_next_login_on() {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let (_lab, server) = start_own();
    for io in DRIVERS {
        server
            .sql("create or replace user changes@'127.0.0.1' identified by 'first'")
            .unwrap();
        let bed = bed(&server, io, &certificates);
        let log_in = |password: &str| mariadb(bed.address, "changes", password, &[]);
        assert_eq!(log_in("first"), is_in("changes"), "{io}");
        server
            .sql("alter user changes@'127.0.0.1' identified by 'second'")
            .unwrap();
        assert!(log_in("first").contains("1045"), "{io}");
        assert_eq!(log_in("second"), is_in("changes"), "{io}");
        server
            .sql("alter user changes@'127.0.0.1' account lock")
            .unwrap();
        assert!(log_in("second").contains("4151"), "{io}");
    }
}

#[test]
fn mysql_judges_each_password_also_after_it_has_forgotten_it() {
    if let Some(why) = rootfs::missing_program("mysqld") {
        println!("skipped: {why}");
        return;
    }
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let (_lab, server) = start_mysql("mysql-login");
    server
        .sql(
            "create user fresh@'127.0.0.1' identified by 'fresh';\
             create user locked@'127.0.0.1' identified by 'locked' account lock",
        )
        .unwrap();
    for io in DRIVERS {
        let bed = bed(&server, io, &certificates);
        for _ in 0..2 {
            server.sql("flush privileges").unwrap();
            let said = mariadb(bed.address, "fresh", "fresh", &[]);
            assert_eq!(said, is_in("fresh"), "{io}: {}", bed.balancer.log());
            assert!(
                mariadb(bed.address, "fresh", "wrong", &[]).contains("1045"),
                "{io}"
            );
        }
        let said = mariadb(bed.address, "locked", "locked", &[]);
        assert!(said.contains("3118"), "{io}: {said}");
    }
}

/// TO SEE THIS RED: do not wait for the rate limit.
#[test]
fn guesses_reach_the_server_at_a_limited_rate() {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let (_lab, server) = start_own();
    let bed = bed(&server, "auto", &certificates);
    let began = Instant::now();
    let guess = || {
        for _ in 0..6 {
            assert!(mariadb(bed.address, "sbtest", "guess", &[]).contains("1045"));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..5 {
            scope.spawn(guess);
        }
    });
    // Of 30 guesses from one address, 20 are free, and the others come at 10 per second.
    assert!(began.elapsed().as_millis() > 800, "{:?}", began.elapsed());
    assert_eq!(
        mariadb(bed.address, "sbtest", "sbtest", &[]),
        is_in("sbtest")
    );
}
