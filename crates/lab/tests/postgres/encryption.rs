//! TLS to clients and to servers, and certificates that say who somebody is.

use std::io::Write;
use std::process::Command;

use evenkeel_lab::eventually;

use super::client::{Client, Login};
use super::script::Script;
use super::stage::{Setup, Stage, own};
use crate::rig::papers::{Papers, write_private};
use crate::rig::{DRIVERS, LIMIT};

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
    crate::rig::said(&output)
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
        let stage = Stage::ready_when(
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
        assert!(said.contains("wants TLS"), "{io}: {said}");
        let bound = format!("{full} channel_binding=require");
        let said = psql(stage.address, &bound);
        assert!(said.starts_with("in\n"), "{io}: {said}");
        // Plaintext behind the request.
        let mut eager = Client::reach(stage.address);
        let ssl = vec![0, 0, 0, 8, 4, 210, 22, 47];
        eager.tell(&Script(
            [ssl, Script::startup(&Login::default()).0].concat(),
        ));
        assert_eq!(eager.reply(), ["E 08P01", "end"], "{io}");
        direct_tls(&stage);
    }
}

/// TLS from the first byte, as libpq 17 does it with sslnegotiation=direct.
fn direct_tls(stage: &Stage) {
    let talk = |alpn: &str| {
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
    };
    let heard = talk("postgresql");
    assert_eq!(heard.first(), Some(&b'R'), "{heard:?}");
    assert_eq!(talk(""), b"");
    assert_eq!(talk("http/1.1"), b"");
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
        let stage = Stage::set(
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
fn tls_to_servers_is_used_and_verified_where_it_is_wanted() {
    let Some(papers) = Papers::make() else {
        return;
    };
    let (_lab, server) = own();
    let data = server.sql("show data_directory").unwrap();
    for (from, to) in [("server.crt", "server.crt"), ("server.key", "server.key")] {
        let to = std::path::Path::new(&data).join(to);
        std::fs::copy(papers.at(from), &to).unwrap();
        let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(&data).unwrap());
        std::os::unix::fs::chown(&to, Some(owner), Some(owner)).unwrap();
    }
    server.sql("alter system set ssl to on").unwrap();
    server.sql("select pg_reload_conf()").unwrap();
    let ca = papers.at("ca.crt");
    for io in DRIVERS {
        let tables = format!("[service.server_tls]\nmode = \"verify\"\nca = {ca:?}");
        let waited = eventually(LIMIT, "a server that speaks TLS", || {
            Ok((server.sql("show ssl")? == "on").then_some(()))
        });
        waited.unwrap();
        let stage = Stage::before(
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
