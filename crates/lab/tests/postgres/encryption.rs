//! Tests of TLS to clients and servers, and of certificates that identify users.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use evenkeel_lab::{Server, eventually};

use super::client::{Client, Login};
use super::script::Script;
use super::stage::{Setup, TestBed, shared, start_own};
use crate::harness::certificates::{Certificates, write_private};
use crate::harness::{DRIVERS, LIMIT};

fn psql(address: std::net::SocketAddr, options: &str) -> String {
    let url = format!(
        "host=localhost hostaddr=127.0.0.1 port={} user=sbtest dbname=sbtest {options}",
        address.port()
    );
    let output = Command::new("psql")
        .args([
            "-X",
            "-A",
            "-t",
            "-d",
            &url,
            "-c",
            "select 'in'",
            "-c",
            "\\conninfo",
        ])
        .env("PGPASSWORD", "sbtest")
        .output()
        .unwrap();
    crate::harness::printed(&output)
}

#[test]
fn tls_to_clients_is_verified_by_psql_and_can_be_required() {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let at = |name| certificates.at(name);
    for io in DRIVERS {
        let tables = format!(
            "[service.tls]\ncertificate = {:?}\nkey = {:?}\nrequired = true\n\
             client_ca = {:?}",
            at("server.crt"),
            at("server.key"),
            at("ca.crt")
        );
        let bed = TestBed::ready_when(
            io,
            Setup {
                tables: &tables,
                ..Setup::default()
            },
            |bed| {
                let printed = psql(bed.address, "sslmode=require");
                match printed.starts_with("in\n") {
                    true => Ok(()),
                    false => Err(printed),
                }
            },
        );
        let full = format!("sslmode=verify-full sslrootcert={}", at("ca.crt"));
        let printed = psql(bed.address, &full);
        assert!(
            printed.starts_with("in\n") && printed.contains("TLSv1.3"),
            "{io}: {printed}"
        );
        let printed = psql(bed.address, "sslmode=disable");
        assert!(printed.contains("requires TLS"), "{io}: {printed}");
        let bound = format!("{full} channel_binding=require");
        let printed = psql(bed.address, &bound);
        assert!(printed.starts_with("in\n"), "{io}: {printed}");
        // Plaintext after the request.
        let mut eager = Client::reach(bed.address);
        let ssl = vec![0, 0, 0, 8, 4, 210, 22, 47];
        eager.send_script(&Script(
            [ssl, Script::startup(&Login::default()).0].concat(),
        ));
        assert_eq!(eager.reply(), ["E 08P01", "end"], "{io}");
        let received = direct_tls(&bed, "postgresql");
        assert_eq!(received.first(), Some(&b'R'), "{received:?}");
        assert_eq!(direct_tls(&bed, ""), b"");
        assert_eq!(direct_tls(&bed, "http/1.1"), b"");
    }
}

/// Returns the answer to a login over direct TLS, as libpq 17 does it with sslnegotiation=direct.
fn direct_tls(bed: &TestBed, alpn: &str) -> Vec<u8> {
    let mut client = Command::new("openssl");
    client.args(["s_client", "-quiet", "-connect", &bed.address.to_string()]);
    if !alpn.is_empty() {
        client.args(["-alpn", alpn]);
    }
    let mut client = client
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = client.stdin.take().unwrap();
    let script = Script::startup(&Login::default()).terminate();
    let _ = stdin.write_all(&script.0);
    drop(stdin);
    client.wait_with_output().unwrap().stdout
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
    for io in DRIVERS {
        let tables = format!(
            "[service.tls]\ncertificate = {:?}\nkey = {:?}\nclient_ca = {:?}\n\
             [service.auth]\nusers_file = {:?}",
            at("server.crt"),
            at("server.key"),
            at("ca.crt"),
            at("users.toml")
        );
        let bed = TestBed::set_up(
            io,
            Setup {
                tables: &tables,
                ..Setup::default()
            },
        );
        let own = format!(
            "sslmode=require sslcert={} sslkey={}",
            at("client.crt"),
            at("client.key")
        );
        let printed = psql(bed.address, &format!("{own} password=wrong"));
        assert!(printed.starts_with("in\n"), "{io}: {printed}");
        let printed = psql(bed.address, &format!("{own} user=other password=wrong"));
        assert!(printed.contains("authentication failed"), "{io}: {printed}");
        let printed = psql(bed.address, "sslmode=require password=wrong");
        assert!(printed.contains("authentication failed"), "{io}: {printed}");
    }
}

#[test]
fn who_is_asked_for_the_password_as_it_is_gives_it_over_tls_only() {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let at = |name| certificates.at(name);
    // A user may set a verifier that is too expensive to check: this one belongs to the user's own
    // name.
    let verifier = "SCRAM-SHA-256$200000:c2FsdHNhbHQ=$qTRzRmg1kfrsdrGzM4M+HXZHGuLT9O4X6nGhfJ1ZODA=:\
                    eNmX8UIdOI+a/DxXGFExqXj/3nTlUOfq/g+m4Nl3dRs=";
    let make = format!("create role dear login password '{verifier}'");
    shared().sql(&make).unwrap();
    let users = "[users.sbtest]\ncleartext = true\n[users.dear]\ncleartext = true\n\
                 [users.filed]\ncleartext = true\npassword = \"filed\"\n\
                 server_user = \"sbtest\"\nserver_password = \"sbtest\"\n";
    write_private(at("users.toml"), users);
    for io in DRIVERS {
        let tables = format!(
            "[service.tls]\ncertificate = {:?}\nkey = {:?}\n[service.auth]\nusers_file = {:?}",
            at("server.crt"),
            at("server.key"),
            at("users.toml")
        );
        let setup = Setup {
            tables: &tables,
            ..Setup::default()
        };
        let bed = TestBed::ready_when(io, setup, |bed| {
            let printed = psql(bed.address, "sslmode=require");
            match printed.starts_with("in\n") {
                true => Ok(()),
                false => Err(printed),
            }
        });
        // AuthenticationCleartextPassword
        let received = direct_tls(&bed, "postgresql");
        assert!(
            received.starts_with(b"R\0\0\0\x08\0\0\0\x03"),
            "{received:?}"
        );
        let filed = "sslmode=require user=filed password";
        let printed = psql(bed.address, &format!("{filed}=filed"));
        assert!(printed.starts_with("in\n"), "{io}: {printed}");
        for wrong in [
            "sslmode=require password=wrong".to_owned(),
            "sslmode=require user=dear password=dear dbname=postgres".to_owned(),
            format!("{filed}=sbtest"),
        ] {
            let printed = psql(bed.address, &wrong);
            assert!(printed.contains("authentication failed"), "{io}: {printed}");
        }
        let printed = psql(bed.address, "sslmode=disable");
        assert!(printed.contains("requires TLS"), "{io}: {printed}");
    }
}

fn speak_tls(server: &Server, certificates: &Certificates) {
    let data = server.sql("show data_directory").unwrap();
    for name in ["server.crt", "server.key", "ca.crt"] {
        let to = Path::new(&data).join(name);
        std::fs::copy(certificates.at(name), &to).unwrap();
        let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&data).unwrap());
        std::os::unix::fs::chown(&to, Some(owner), Some(owner)).unwrap();
    }
    server.sql("alter system set ssl to on").unwrap();
    server
        .sql("alter system set ssl_ca_file to 'ca.crt'")
        .unwrap();
    server.sql("select pg_reload_conf()").unwrap();
    let waited = eventually(LIMIT, "a server that speaks TLS", || {
        Ok((server.sql("show ssl")? == "on").then_some(()))
    });
    waited.unwrap();
}

#[test]
fn our_certificate_is_shown_to_servers_that_want_one() {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let at = |name| certificates.at(name);
    let (_lab, server) = start_own();
    let hba = server.sql("show hba_file").unwrap();
    let rules = std::fs::read_to_string(&hba).unwrap();
    let rules = rules
        .lines()
        .map(|rule| match rule.strip_prefix("host all all") {
            Some(rest) => format!("hostssl all all{rest} clientcert=verify-ca\n"),
            None => format!("{rule}\n"),
        });
    std::fs::write(&hba, rules.collect::<String>()).unwrap();
    speak_tls(&server, &certificates);
    for io in DRIVERS {
        for mode in [
            "mode = \"encrypt\"".to_owned(),
            format!("mode = \"verify\"\nca = {:?}", at("ca.crt")),
        ] {
            let tables = format!(
                "[service.server_tls]\n{mode}\ncertificate = {:?}\nkey = {:?}",
                at("client.crt"),
                at("client.key")
            );
            let setup = Setup {
                tables: &tables,
                ..Setup::default()
            };
            let bed = TestBed::before(&server, io, setup);
            let shown = "select client_dn from pg_stat_ssl where pid = pg_backend_pid()";
            assert_eq!(bed.client().value(shown), "/CN=sbtest", "{io} {mode}");
        }
    }
}

#[test]
fn tls_to_servers_is_used_and_verified_where_it_is_wanted() {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let (_lab, server) = start_own();
    speak_tls(&server, &certificates);
    let ca = format!("mode = \"verify\"\nca = {:?}", certificates.at("ca.crt"));
    let pinned = format!(
        "fingerprints = [{:?}]",
        certificates.fingerprint("server.crt")
    );
    for (io, trust) in DRIVERS.into_iter().zip([ca, pinned]) {
        let tables = format!("[service.server_tls]\n{trust}");
        let bed = TestBed::before(
            &server,
            io,
            Setup {
                tables: &tables,
                ..Setup::default()
            },
        );
        let mut client = bed.client();
        let ssl = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
        assert_eq!(client.value(ssl), "t", "{io}");
        let long = client.query("select repeat('x', 3000000)");
        assert_eq!(long[1].len(), 3_000_002);
        let mut others: Vec<Client> = (0..8).map(|_| bed.client()).collect();
        for round in 0..30 {
            let text = format!("select {round}, ssl from pg_stat_ssl where pid = pg_backend_pid()");
            for other in &mut others {
                other.run_later(&text);
            }
            for other in &mut others {
                assert_eq!(other.reply()[1], format!("D {round}|t"));
            }
        }
        client.run_later("select pg_sleep(60)");
        assert!(client.is_silent_for(std::time::Duration::from_millis(300)));
        client.cancel();
        assert!(client.reply().contains(&"E 57014".to_owned()));
    }
}

#[test]
fn servers_are_spoken_to_under_tls_though_the_file_of_authorities_is_gone() {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let (_lab, server) = start_own();
    speak_tls(&server, &certificates);
    let ca = certificates.at("ca.crt");
    let tables = format!("[service.server_tls]\nmode = \"verify\"\nca = {ca:?}");
    let setup = Setup {
        tables: &tables,
        ..Setup::default()
    };
    let bed = TestBed::before(&server, DRIVERS[0], setup);
    std::fs::remove_file(&ca).unwrap();
    // Each of these creates a new service snapshot.
    for command in ["drain", "undrain"] {
        let server = bed.balancer.command(&[command, "primary"]);
        server.unwrap();
    }
    let ssl = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
    let mut client = bed.client();
    client.run("begin");
    let mut other = bed.client();
    assert_eq!([client.value(ssl), other.value(ssl)], ["t", "t"]);
}
