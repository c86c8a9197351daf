//! Tests of TLS to clients and servers, and of certificates that identify users.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use evenkeel_lab::{Server, eventually};

use super::client::{Client, Login};
use super::script::Script;
use super::stage::{Setup, TestBed, own, shared};
use crate::harness::certificates::{Papers, write_private};
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
    crate::harness::said(&output)
}

#[test]
fn tls_to_clients_is_verified_by_psql_and_can_be_required() {
    let Some(papers) = Papers::make() else {
        return;
    };
    let at = |name| papers.at(name);
    for io in DRIVERS {
        let tables = format!(
            "[service.tls]\ncertificate = {:?}\nkey = {:?}\nrequired = true\n\
             client_ca = {:?}",
            at("server.crt"),
            at("server.key"),
            at("ca.crt")
        );
        let stage = TestBed::ready_when(
            io,
            Setup {
                tables: &tables,
                ..Setup::default()
            },
            |stage| {
                let said = psql(stage.address, "sslmode=require");
                match said.starts_with("in\n") {
                    true => Ok(()),
                    false => Err(said),
                }
            },
        );
        let full = format!("sslmode=verify-full sslrootcert={}", at("ca.crt"));
        let said = psql(stage.address, &full);
        assert!(
            said.starts_with("in\n") && said.contains("TLSv1.3"),
            "{io}: {said}"
        );
        let said = psql(stage.address, "sslmode=disable");
        assert!(said.contains("requires TLS"), "{io}: {said}");
        let bound = format!("{full} channel_binding=require");
        let said = psql(stage.address, &bound);
        assert!(said.starts_with("in\n"), "{io}: {said}");
        // Plaintext after the request.
        let mut eager = Client::reach(stage.address);
        let ssl = vec![0, 0, 0, 8, 4, 210, 22, 47];
        eager.tell(&Script(
            [ssl, Script::startup(&Login::default()).0].concat(),
        ));
        assert_eq!(eager.reply(), ["E 08P01", "end"], "{io}");
        let heard = direct_tls(&stage, "postgresql");
        assert_eq!(heard.first(), Some(&b'R'), "{heard:?}");
        assert_eq!(direct_tls(&stage, ""), b"");
        assert_eq!(direct_tls(&stage, "http/1.1"), b"");
    }
}

/// Returns the answer to a login over direct TLS, as libpq 17 does it with sslnegotiation=direct.
fn direct_tls(stage: &TestBed, alpn: &str) -> Vec<u8> {
    let mut client = Command::new("openssl");
    client.args(["s_client", "-quiet", "-connect", &stage.address.to_string()]);
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
    let Some(papers) = Papers::make() else {
        return;
    };
    let at = |name| papers.at(name);
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
        let stage = TestBed::set(
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
        let said = psql(stage.address, &format!("{own} password=wrong"));
        assert!(said.starts_with("in\n"), "{io}: {said}");
        let said = psql(stage.address, &format!("{own} user=other password=wrong"));
        assert!(said.contains("authentication failed"), "{io}: {said}");
        let said = psql(stage.address, "sslmode=require password=wrong");
        assert!(said.contains("authentication failed"), "{io}: {said}");
    }
}

#[test]
fn who_is_asked_for_the_password_as_it_is_gives_it_over_tls_only() {
    let Some(papers) = Papers::make() else {
        return;
    };
    let at = |name| papers.at(name);
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
        let stage = TestBed::ready_when(io, setup, |stage| {
            let said = psql(stage.address, "sslmode=require");
            match said.starts_with("in\n") {
                true => Ok(()),
                false => Err(said),
            }
        });
        // AuthenticationCleartextPassword
        let heard = direct_tls(&stage, "postgresql");
        assert!(heard.starts_with(b"R\0\0\0\x08\0\0\0\x03"), "{heard:?}");
        let filed = "sslmode=require user=filed password";
        let said = psql(stage.address, &format!("{filed}=filed"));
        assert!(said.starts_with("in\n"), "{io}: {said}");
        for wrong in [
            "sslmode=require password=wrong".to_owned(),
            "sslmode=require user=dear password=dear dbname=postgres".to_owned(),
            format!("{filed}=sbtest"),
        ] {
            let said = psql(stage.address, &wrong);
            assert!(said.contains("authentication failed"), "{io}: {said}");
        }
        let said = psql(stage.address, "sslmode=disable");
        assert!(said.contains("requires TLS"), "{io}: {said}");
    }
}

fn speak_tls(server: &Server, papers: &Papers) {
    let data = server.sql("show data_directory").unwrap();
    for name in ["server.crt", "server.key", "ca.crt"] {
        let to = Path::new(&data).join(name);
        std::fs::copy(papers.at(name), &to).unwrap();
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
    let Some(papers) = Papers::make() else {
        return;
    };
    let at = |name| papers.at(name);
    let (_lab, server) = own();
    let hba = server.sql("show hba_file").unwrap();
    let rules = std::fs::read_to_string(&hba).unwrap();
    let rules = rules
        .lines()
        .map(|rule| match rule.strip_prefix("host all all") {
            Some(rest) => format!("hostssl all all{rest} clientcert=verify-ca\n"),
            None => format!("{rule}\n"),
        });
    std::fs::write(&hba, rules.collect::<String>()).unwrap();
    speak_tls(&server, &papers);
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
            let stage = TestBed::before(&server, io, setup);
            let shown = "select client_dn from pg_stat_ssl where pid = pg_backend_pid()";
            assert_eq!(stage.client().value(shown), "/CN=sbtest", "{io} {mode}");
        }
    }
}

#[test]
fn tls_to_servers_is_used_and_verified_where_it_is_wanted() {
    let Some(papers) = Papers::make() else {
        return;
    };
    let (_lab, server) = own();
    speak_tls(&server, &papers);
    let ca = papers.at("ca.crt");
    for io in DRIVERS {
        let tables = format!("[service.server_tls]\nmode = \"verify\"\nca = {ca:?}");
        let stage = TestBed::before(
            &server,
            io,
            Setup {
                tables: &tables,
                ..Setup::default()
            },
        );
        let mut client = stage.client();
        let ssl = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
        assert_eq!(client.value(ssl), "t", "{io}");
        let long = client.query("select repeat('x', 3000000)");
        assert_eq!(long[1].len(), 3_000_002);
        let mut others: Vec<Client> = (0..8).map(|_| stage.client()).collect();
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
    let Some(papers) = Papers::make() else {
        return;
    };
    let (_lab, server) = own();
    speak_tls(&server, &papers);
    let ca = papers.at("ca.crt");
    let tables = format!("[service.server_tls]\nmode = \"verify\"\nca = {ca:?}");
    let setup = Setup {
        tables: &tables,
        ..Setup::default()
    };
    let stage = TestBed::before(&server, DRIVERS[0], setup);
    std::fs::remove_file(&ca).unwrap();
    // Each of these creates a new service snapshot.
    for command in ["drain", "undrain"] {
        let server = stage.balancer.command(&[command, "primary"]);
        server.unwrap();
    }
    let ssl = "select ssl from pg_stat_ssl where pid = pg_backend_pid()";
    let mut client = stage.client();
    client.run("begin");
    let mut other = stage.client();
    assert_eq!([client.value(ssl), other.value(ssl)], ["t", "t"]);
}
