//! Tests of who the client is: TLS on both sides, PROXY headers, and forwarded fields.

use std::process::Command;

use crate::certificates::Certificates;
use crate::client::Client;
use crate::origin::Origin;
use crate::peer::{self, Kind, named_service, until};
use crate::websocket::{assert_echo, echoing, opening};
use crate::{Bed, on_both_drivers};

on_both_drivers! {
    a_client_cannot_say_who_it_is
    a_proxy_header_says_who_the_client_is
    tls_towards_clients_keeps_connections
    tls_towards_servers_carries_everything
    the_host_of_a_client_of_http_1_0_is_not_empty
}

fn a_client_cannot_say_who_it_is(io: &str) {
    let origin = Origin::echo();
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    client.send(
        "GET / HTTP/1.1\r\nHost: shop.example:81\r\nX-Forwarded-For: 6.6.6.6\r\n\
         X-Forwarded-For: 7.7.7.7\r\nX_Forwarded_For: 8.8.8.8\r\nX.Forwarded.For: 9.9.9.9\r\n\
         Forwarded: for=6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\nX-Forwarded-Proto: https\r\n\
         X-Forwarded-Host: evil.example\r\nX-Forwarded-Port: 1\r\nX-Forwarded-Prefix: /p\r\n\
         Connection: X-Forwarded-For, X-Forwarded-Proto\r\nX-Other: stays\r\n\r\n",
    );
    assert_eq!(client.answer().status, 200);
    let seen = origin.only();
    for (name, value) in [
        ("X-Forwarded-For", Some("127.0.0.1")),
        ("X-Forwarded-Proto", Some("http")),
        ("X-Forwarded-Host", Some("shop.example:81")),
        ("X-Other", Some("stays")),
        ("Host", Some("shop.example:81")),
        ("Forwarded", None),
        ("X-Real-IP", None),
        ("X-Forwarded-Port", None),
        ("X-Forwarded-Prefix", None),
        ("X_Forwarded_For", None),
        ("X.Forwarded.For", None),
        ("Connection", None),
    ] {
        assert_eq!(seen.field(name).as_deref(), value, "{name}: {}", seen.head);
    }
}

fn a_proxy_header_says_who_the_client_is(io: &str) {
    let origin = Origin::echo();
    let bed = Bed::new(io, &[&origin], "accept_proxy_from = [\"127.0.0.1\"]\n");
    let mut client = bed.client();
    client.send("PROXY TCP4 198.51.100.7 192.0.2.1 1234 80\r\n");
    for _ in 0..3 {
        assert_eq!(client.get("/").status, 200);
    }
    let seen = origin.seen();
    assert_eq!(seen.len(), 3);
    for seen in seen {
        assert_eq!(
            seen.field("X-Forwarded-For").as_deref(),
            Some("198.51.100.7")
        );
    }
}

fn tls_towards_clients_keeps_connections(io: &str) {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let origin = Origin::echo();
    let tls = format!(
        "[service.tls]\ncertificate = {:?}\nkey = {:?}\n",
        certificates.at("server.crt"),
        certificates.at("server.key")
    );
    let bed = Bed::new(io, &[&origin], &tls);
    let port = bed.listen.rsplit(':').next().unwrap();
    let at = |path: &str| format!("https://localhost:{port}{path}");
    let output = Command::new("curl")
        .args([
            "-sS",
            "-w",
            "%{num_connects}\n",
            "--cacert",
            &certificates.at("ca.crt"),
        ])
        .args([&at("/a"), &at("/b"), &at("/c")])
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(printed, "/a1\n/b0\n/c0\n", "{errors}");
    for seen in origin.seen() {
        assert_eq!(seen.field("X-Forwarded-Proto").as_deref(), Some("https"));
    }
}

/// Two services in a row: the outer one speaks TLS to the inner one.
fn tls_towards_servers_carries_everything(io: &str) {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let origin = echoing();
    let (inner, outer) = (peer::own_address(Kind::V4), peer::own_address(Kind::V4));
    let tls = format!(
        "protocol = \"http\"\n[service.tls]\ncertificate = {:?}\nkey = {:?}\n",
        certificates.at("server.crt"),
        certificates.at("server.key")
    );
    let server_tls = format!(
        "protocol = \"http\"\n[service.server_tls]\nmode = \"verify\"\nca = {:?}\n",
        certificates.at("ca.crt")
    );
    let config = [
        named_service("inner", &inner, &[origin.address()], &tls),
        named_service("outer", &outer, &[&inner], &server_tls),
    ];
    let balancer = peer::balancer(io, &config.concat());
    let mut client = Client::connect(&outer);
    for _ in 0..5 {
        assert_eq!(client.get("/").text(), "plain");
        assert_eq!(client.post("/", &"x".repeat(300_000)).text(), "plain");
    }
    assert!(origin.seen().iter().any(|seen| seen.body.len() == 300_000));
    client.send(opening("/chat"));
    assert_eq!(client.answer().status, 101);
    for length in [1, 1_000, 200_000] {
        assert_echo(&mut client, &vec![b'y'; length]);
    }
    drop(client);
    until("no session", || {
        let status = balancer.status().unwrap();
        let services = status["services"].as_array().unwrap().clone();
        services
            .iter()
            .all(|service| service["sessions"]["current"] == 0)
    });
}

/// A request of HTTP/1.1 without Host is refused by most servers (RFC 9112 §3.2).
fn the_host_of_a_client_of_http_1_0_is_not_empty(io: &str) {
    let origin = Origin::echo();
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    client.send("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(client.answer().status, 200);
    let host = origin.only().field("Host");
    assert_eq!(host.as_deref(), Some("s"), "the name of the service");
}
