//! Tests of TLS to clients and servers, and of certificates that identify users.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use evenkeel_lab::{Balancer, MysqlOptions, Server, rootfs};
use evenkeel_wire::mysql::build;
use evenkeel_wire::mysql::flags::Capabilities;

use super::client::{Client, Login};
use super::stage::{ONE, Setup, TestBed, config, own_lab, shared, start_own};
use crate::harness::certificates::{Certificates, write_private};
use crate::harness::{DRIVERS, LIMIT, loopback};

/// Returns the output of MariaDB's own client, as `sbtest` with a given password.
fn mariadb(address: SocketAddr, user: &str, password: &str, options: &[&str]) -> String {
    let output = Command::new("mariadb")
        .args(["--no-defaults", "--protocol=tcp", "-h127.0.0.1", "-N", "-B"])
        .arg(format!("-P{}", address.port()))
        .arg(format!("-u{user}"))
        .arg(format!("-p{password}"))
        .args(options)
        .args(["-e", "select 'in', current_user(); \\s"])
        .output()
        .unwrap();
    crate::harness::printed(&output)
}

/// Starts Evenkeel in front of the common server, and waits for the first successful login.
fn ready(io: &str, tables: &str, printed: impl Fn(SocketAddr) -> String) -> TestBed {
    let setup = Setup { tables, ..ONE };
    TestBed::start(
        |address| config(shared(), address, io, setup),
        |bed| {
            let printed = printed(bed.address);
            if is_in(&printed) {
                Ok(())
            } else {
                Err(printed)
            }
        },
    )
}

fn is_in(printed: &str) -> bool {
    printed.starts_with("in\tsbtest@127.0.0.1\n")
}

#[test]
fn tls_to_clients_is_verified_by_them_and_can_be_required() {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let at = |name| certificates.at(name);
    let tables = format!(
        "[service.tls]\ncertificate = {:?}\nkey = {:?}\nrequired = true",
        at("server.crt"),
        at("server.key"),
    );
    let ca = format!("--ssl-ca={}", at("ca.crt"));
    let verified = [ca.as_str(), "--ssl-verify-server-cert"];
    for io in DRIVERS {
        let full = |address| mariadb(address, "sbtest", "sbtest", &verified);
        let bed = ready(io, &tables, full);
        let printed = full(bed.address);
        assert!(
            printed.contains("Cipher in use is TLS_AES"),
            "{io}: {printed}"
        );
        let printed = mariadb(bed.address, "sbtest", "sbtest", &["--skip-ssl"]);
        assert!(printed.contains("3159"), "{io}: {printed}");
        let printed = mariadb(bed.address, "sbtest", "wrong", &verified);
        assert!(printed.contains("1045"), "{io}: {printed}");
        smuggle(bed.address);
    }
}

/// TO SEE THIS RED: check only new sessions.
#[test]
fn who_came_before_tls_was_required_does_not_become_another_user_without() {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    for io in DRIVERS {
        let bed = TestBed::set_up(io, ONE);
        let mut client = bed.client();
        client.change_user(&Login::default()).unwrap();
        let tables = format!(
            "[service.tls]\ncertificate = {:?}\nkey = {:?}\nrequired = true",
            certificates.at("server.crt"),
            certificates.at("server.key"),
        );
        let tables = tables.as_str();
        let required = config(shared(), bed.address, io, Setup { tables, ..ONE });
        bed.balancer.reload(&required).unwrap();
        assert_eq!(client.value("select 1"), "1", "{io}: its session goes on");
        let reply = client.change_user(&Login::default()).unwrap_err();
        assert!(reply.contains("3159"), "{io}: {reply}");
    }
}

/// Sends plaintext after the request for TLS, which an attacker could have injected.
fn smuggle(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut out = Vec::new();
    let able = Capabilities::PROTOCOL_41.with(Capabilities::SECURE_CONNECTION);
    build::ssl_request(&mut out, 1, able, 45);
    build::packet(&mut out, 2, |out| out.extend_from_slice(b"eager"));
    stream.write_all(&out).unwrap();
    let mut received = Vec::new();
    // A reset is an end too.
    let _ = stream.read_to_end(&mut received);
    let greeting = 4 + usize::from(received[0]);
    let answer = received.get(greeting..).unwrap();
    // At most an alert, since TLS cannot parse the plaintext.
    assert!(
        answer.len() <= 7 && answer.first().is_none_or(|kind| *kind == 21),
        "{received:?}"
    );
}

#[test]
fn a_client_certificate_of_the_right_name_comes_in_and_no_other() {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let at = |name| certificates.at(name);
    let users = "[users.sbtest]\ncertificate = true\nserver_password = \"sbtest\"\n\
                 [users.other]\ncertificate = true\nserver_password = \"sbtest\"\n";
    write_private(at("users.toml"), users);
    let tables = format!(
        "[service.tls]\ncertificate = {:?}\nkey = {:?}\nclient_ca = {:?}\n\
         [service.auth]\nusers_file = {:?}",
        at("server.crt"),
        at("server.key"),
        at("ca.crt"),
        at("users.toml")
    );
    let own = [
        format!("--ssl-cert={}", at("client.crt")),
        format!("--ssl-key={}", at("client.key")),
    ];
    let own = [own[0].as_str(), own[1].as_str()];
    for io in DRIVERS {
        let log_in = |user, options: &[&str], address| mariadb(address, user, "wrong", options);
        let bed = ready(io, &tables, |address| log_in("sbtest", &own, address));
        let printed = log_in("other", &own, bed.address);
        assert!(printed.contains("1045"), "{io}: {printed}");
        let printed = log_in("sbtest", &["--ssl"], bed.address);
        assert!(printed.contains("1045"), "{io}: {printed}");
        let printed = mariadb(bed.address, "sbtest", "sbtest", &["--ssl"]);
        assert!(
            is_in(&printed),
            "its password is the server's: {io}: {printed}"
        );
        for plugin in ["caching_sha2_password", "mysql_native_password"] {
            let auth = format!("--default-auth={plugin}");
            let options = [own[0], own[1], auth.as_str()];
            let printed = log_in("sbtest", &options, bed.address);
            assert!(is_in(&printed), "{io} {plugin}: {printed}");
        }
    }
}

#[test]
fn tls_to_servers_is_used_and_verified_where_it_is_wanted() {
    if let Some(why) = rootfs::missing_program("mysqld") {
        println!("skipped: {why}");
        return;
    }
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let at = |name| certificates.at(name);
    let lab = own_lab("mysql-tls");
    let cluster = lab.mysql(MysqlOptions::default()).unwrap();
    let server = &cluster.primary;
    let (ca, certificate, key) = (at("ca.crt"), at("server.crt"), at("server.key"));
    server
        .sql(&format!(
            "set global ssl_ca = '{ca}', global ssl_cert = '{certificate}', \
             global ssl_key = '{key}'; alter instance reload tls; \
             create user evenkeel@'127.0.0.1' identified by 'evenkeel' require ssl; \
             grant replication client on *.* to evenkeel@'127.0.0.1'; \
             grant select on mysql.* to evenkeel@'127.0.0.1'; \
             grant select on performance_schema.* to evenkeel@'127.0.0.1'"
        ))
        .unwrap();
    for io in DRIVERS {
        let tables = format!("[service.server_tls]\nmode = \"verify\"\nca = {ca:?}");
        let setup = Setup {
            tables: &tables,
            ..ONE
        };
        let bed = TestBed::before(server, io, setup);
        let mut client = bed.client();
        let cipher = client.value("show session status like 'Ssl_cipher'");
        assert!(cipher.contains("TLS_AES"), "{io}: {cipher}");
        let long = client.value("select repeat('x', 3000000)");
        assert_eq!(long.len(), 3_000_000);
    }
    shows_our_certificate(server, &certificates);
    asks_clients_for_their_own(server, &certificates);
}

/// Tests probes, monitor queries and sessions with accounts that require a certificate.
fn shows_our_certificate(server: &Server, certificates: &Certificates) {
    let wanted = "alter user evenkeel@'127.0.0.1' require x509; \
                  create user vouched@'127.0.0.1' identified by 'vouched' \
                  require subject '/CN=sbtest' and issuer '/CN=ca'; \
                  grant select on sbtest.* to vouched@'127.0.0.1'";
    server.sql(wanted).unwrap();
    let users = certificates.at("users.toml");
    let vouched = "[users.sbtest]\npassword = \"sbtest\"\nserver_user = \"vouched\"\n\
                   server_password = \"vouched\"\n";
    write_private(&users, vouched);
    for io in DRIVERS {
        let tables = format!(
            "[service.server_tls]\nmode = \"verify\"\nca = {:?}\ncertificate = {:?}\nkey = {:?}\n\
             [service.auth]\nusers_file = {users:?}",
            certificates.at("ca.crt"),
            certificates.at("client.crt"),
            certificates.at("client.key")
        );
        let setup = Setup {
            tables: &tables,
            ..ONE
        };
        let bed = TestBed::before(server, io, setup);
        let user = bed.client().value("select current_user()");
        assert_eq!(user, "vouched@127.0.0.1", "{io}");
    }
}

/// Tests that Evenkeel's certificate does not replace that of a client whose account requires one.
fn asks_clients_for_their_own(server: &Server, certificates: &Certificates) {
    let at = |name| certificates.at(name);
    let tables = format!(
        "[service.server_tls]\nmode = \"verify\"\nca = {:?}\ncertificate = {:?}\nkey = {:?}\n\
         [service.tls]\ncertificate = {:?}\nkey = {:?}\nclient_ca = {:?}",
        at("ca.crt"),
        at("client.crt"),
        at("client.key"),
        at("server.crt"),
        at("server.key"),
        at("ca.crt")
    );
    let setup = Setup {
        tables: &tables,
        ..ONE
    };
    let own = [
        format!("--ssl-cert={}", at("client.crt")),
        format!("--ssl-key={}", at("client.key")),
    ];
    let own = [own[0].as_str(), own[1].as_str()];
    let other = [
        format!("--ssl-cert={}", at("server.crt")),
        format!("--ssl-key={}", at("server.key")),
    ];
    for io in DRIVERS {
        let bed = TestBed::before(server, io, setup);
        let log_in = |options: &[&str]| mariadb(bed.address, "vouched", "vouched", options);
        let printed = log_in(&own);
        assert!(
            printed.starts_with("in\tvouched@127.0.0.1\n"),
            "{io}: {printed}"
        );
        let printed = log_in(&[&other[0], &other[1]]);
        assert!(printed.contains("1045"), "{io}: of another name: {printed}");
        let printed = log_in(&["--ssl"]);
        assert!(printed.contains("1045"), "{io}: {printed}");
    }
}

/// Tests that a client's login is refused with the reason, and never reaches the server.
fn hears_no_user(server: &Server, ca: &str, visits: &str) {
    let work_dir = tempfile::tempdir().unwrap();
    let users = work_dir.path().join("users.toml").display().to_string();
    write_private(&users, "[users.sbtest]\npassword = \"sbtest\"\n");
    let tables = format!(
        "[service.server_tls]\nmode = \"verify\"\nca = {ca:?}\n\
         [service.auth]\nsource = \"file\"\nusers_file = {users:?}"
    );
    let setup = Setup {
        tables: &tables,
        ..ONE
    };
    for io in DRIVERS {
        let address = loopback();
        let balancer = Balancer::start(&config(server, address, io, setup)).unwrap();
        let reply = Client::log_in(address, &Login::default()).map(|_| ());
        let reply = reply.unwrap_err();
        assert!(reply.starts_with("error "), "{io}: {reply}");
        let log = balancer.log();
        assert_eq!(server.sql(visits).unwrap(), "0", "{io}: {reply}: {log}");
    }
}

#[test]
fn a_server_without_tls_hears_of_no_user_where_it_is_wanted() {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let (_lab, server) = start_own();
    server.sql("set global userstat = 1").unwrap();
    let visits = "select coalesce(sum(total_connections), 0) \
                  from information_schema.user_statistics where user = 'sbtest'";
    hears_no_user(&server, &certificates.at("ca.crt"), visits);
}

#[test]
fn a_server_whose_certificate_nobody_vouches_for_hears_of_no_user() {
    if let Some(why) = rootfs::missing_program("mysqld") {
        println!("skipped: {why}");
        return;
    }
    let Some(certificates) = Certificates::make() else {
        return;
    };
    // Its certificate is self-signed.
    let lab = own_lab("mysql-unknown");
    let cluster = lab.mysql(MysqlOptions::default()).unwrap();
    let visits = "select coalesce(sum(total_connections), 0) \
                  from performance_schema.accounts where user = 'sbtest'";
    hears_no_user(&cluster.primary, &certificates.at("ca.crt"), visits);
}

/// Tests TLS clients that are silent, that stop reading in the middle of an answer, and that
/// vanish.
#[test]
fn clients_under_tls_that_do_nothing_cost_nothing() {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let tables = format!(
        "[service.tls]\ncertificate = {:?}\nkey = {:?}",
        certificates.at("server.crt"),
        certificates.at("server.key"),
    );
    for io in DRIVERS {
        let full = |address| mariadb(address, "sbtest", "sbtest", &["--ssl"]);
        let bed = ready(io, &tables, full);
        let begin = |says: &str| {
            let mut client = Command::new("mariadb")
                .args([
                    "--no-defaults",
                    "--ssl",
                    "--unbuffered",
                    "--quick",
                    "-h127.0.0.1",
                    "-N",
                    "-B",
                ])
                .arg(format!("-P{}", bed.address.port()))
                .args(["-usbtest", "-psbtest"])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let mut stdin = client.stdin.take().unwrap();
            writeln!(stdin, "{says}").unwrap();
            (client, stdin)
        };
        let silent: Vec<_> = (0..4).map(|_| begin("select 'in';")).collect();
        // Its pipe is full long before the end.
        let slow = begin("select repeat('x', 100000) from seq_1_to_500;");
        let (mut gone, _stdin) = begin("select 'in';");
        // The clients print nothing, and the pipe is full, after a time.
        thread::sleep(Duration::from_millis(700));
        gone.kill().unwrap();
        gone.wait().unwrap();
        thread::sleep(Duration::from_millis(300));
        // The test measures idle time.
        let before_us = bed.balancer.cpu_us();
        thread::sleep(Duration::from_secs(1));
        let used_us = bed.balancer.cpu_us() - before_us;
        assert!(used_us < 250_000, "{io}: {used_us} us in a second");
        for (mut client, stdin) in silent.into_iter().chain([slow]) {
            drop(stdin);
            client.kill().unwrap();
            client.wait().unwrap();
        }
    }
}
