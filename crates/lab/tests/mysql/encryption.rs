//! TLS to clients and to servers, and certificates that say who somebody is.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use evenkeel_lab::{Balancer, Lab, MysqlOptions, eventually, rootfs};
use evenkeel_wire::mysql::build;
use evenkeel_wire::mysql::flags::Capabilities;

use super::stage::{ONE, Setup, Stage, config, shared};
use crate::rig::{DRIVERS, LIMIT, loopback};

/// A certificate authority, and a certificate for `localhost`; by the program `openssl`.
fn certificates(room: &Path) -> bool {
    let script = "set -e; openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt \
                  -days 2 -subj /CN=ca -addext basicConstraints=critical,CA:TRUE
        for name in server client; do
            subject=$name; [ $name = client ] && subject=sbtest
            openssl req -newkey rsa:2048 -nodes -keyout $name.key -out $name.csr -subj /CN=$subject
            printf 'subjectAltName=DNS:localhost,IP:127.0.0.1\\n' > ext
            openssl x509 -req -in $name.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 \
                -extfile ext -out $name.crt
        done
        chmod 600 *.key";
    let made = Command::new("/bin/sh")
        .args(["-c", script])
        .current_dir(room)
        .output()
        .unwrap();
    if !made.status.success() {
        println!(
            "skipped: openssl: {}",
            String::from_utf8_lossy(&made.stderr)
        );
    }
    made.status.success()
}

/// What MariaDB's own client says, as `sbtest` with a password of one's own choice.
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
    crate::rig::said(&output)
}

/// In front of the common server, as soon as somebody comes in.
fn ready(io: &str, tables: &str, is_ready: impl Fn(SocketAddr) -> bool) -> Stage {
    let address = loopback();
    let setup = Setup { tables, ..ONE };
    let balancer = Balancer::start(&config(shared(), address, io, setup)).unwrap();
    let stage = Stage { balancer, address };
    let first = || Ok(is_ready(address).then_some(()));
    let waited = eventually(LIMIT, "a first session", first);
    waited.unwrap_or_else(|error| panic!("{error}: {}", stage.balancer.log()));
    stage
}

fn is_in(said: &str) -> bool {
    said.starts_with("in\tsbtest@127.0.0.1\n")
}

#[test]
fn tls_to_clients_is_verified_by_them_and_can_be_required() {
    let room = tempfile::tempdir().unwrap();
    if !certificates(room.path()) {
        return;
    }
    let at = |name: &str| room.path().join(name).display().to_string();
    let tables = format!(
        "[service.tls]\ncertificate = {:?}\nkey = {:?}\nrequired = true",
        at("server.crt"),
        at("server.key"),
    );
    let ca = format!("--ssl-ca={}", at("ca.crt"));
    let verified = [ca.as_str(), "--ssl-verify-server-cert"];
    for io in DRIVERS {
        let full = |address| mariadb(address, "sbtest", "sbtest", &verified);
        let stage = ready(io, &tables, |address| is_in(&full(address)));
        let said = full(stage.address);
        assert!(said.contains("Cipher in use is TLS_AES"), "{io}: {said}");
        let said = mariadb(stage.address, "sbtest", "sbtest", &["--skip-ssl"]);
        assert!(said.contains("3159"), "{io}: {said}");
        let said = mariadb(stage.address, "sbtest", "wrong", &verified);
        assert!(said.contains("1045"), "{io}: {said}");
        smuggle(stage.address);
    }
}

/// Plaintext behind the wish for TLS: somebody in between could have put it there.
fn smuggle(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let mut out = Vec::new();
    let able = Capabilities::PROTOCOL_41.with(Capabilities::SECURE_CONNECTION);
    build::ssl_request(&mut out, 1, able, 45);
    build::packet(&mut out, 2, |out| out.extend_from_slice(b"eager"));
    stream.write_all(&out).unwrap();
    let mut heard = Vec::new();
    // A reset is an end too.
    let _ = stream.read_to_end(&mut heard);
    let greeting = 4 + usize::from(heard[0]);
    let answer = heard.get(greeting..).unwrap();
    // At most an alert: TLS cannot read it.
    assert!(
        answer.len() <= 7 && answer.first().is_none_or(|kind| *kind == 21),
        "{heard:?}"
    );
}

#[test]
fn a_client_certificate_of_the_right_name_comes_in_and_no_other() {
    let room = tempfile::tempdir().unwrap();
    if !certificates(room.path()) {
        return;
    }
    let at = |name: &str| room.path().join(name).display().to_string();
    let users = "[users.sbtest]\ncertificate = true\nserver_password = \"sbtest\"\n\
                 [users.other]\ncertificate = true\nserver_password = \"sbtest\"\n";
    std::fs::write(at("users.toml"), users).unwrap();
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(at("users.toml"), mode).unwrap();
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
        let enter = |user, options: &[&str], address| mariadb(address, user, "wrong", options);
        let stage = ready(io, &tables, |address| {
            is_in(&enter("sbtest", &own, address))
        });
        let said = enter("other", &own, stage.address);
        assert!(said.contains("1045"), "{io}: {said}");
        let said = enter("sbtest", &["--ssl"], stage.address);
        assert!(said.contains("1045"), "{io}: {said}");
        let said = mariadb(stage.address, "sbtest", "sbtest", &["--ssl"]);
        assert!(is_in(&said), "its password is the server's: {io}: {said}");
        for plugin in ["caching_sha2_password", "mysql_native_password"] {
            let auth = format!("--default-auth={plugin}");
            let options = [own[0], own[1], auth.as_str()];
            let said = enter("sbtest", &options, stage.address);
            assert!(is_in(&said), "{io} {plugin}: {said}");
        }
    }
}

#[test]
fn tls_to_servers_is_used_and_verified_where_it_is_wanted() {
    if let Some(why) = rootfs::missing_program("mysqld") {
        println!("skipped: {why}");
        return;
    }
    let room = tempfile::tempdir().unwrap();
    if !certificates(room.path()) {
        return;
    }
    let at = |name: &str| room.path().join(name).display().to_string();
    let lab = Lab::new("mysql-tls").unwrap();
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
        let stage = Stage::before(server, io, setup);
        let mut client = stage.client();
        let cipher = client.value("show session status like 'Ssl_cipher'");
        assert!(cipher.contains("TLS_AES"), "{io}: {cipher}");
        let long = client.value("select repeat('x', 3000000)");
        assert_eq!(long.len(), 3_000_000);
    }
}
