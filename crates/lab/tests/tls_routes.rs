//! Tests of the routes of tcp services by the server name of TLS, with nginx as the servers, and
//! curl and openssl as the clients.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

#[path = "harness/certificates.rs"]
#[allow(dead_code, reason = "other test programs use the rest")]
mod certificates;
#[path = "tls_routes/origin.rs"]
mod origin;
#[path = "peer/peer.rs"]
mod peer;

use std::time::Duration;

use certificates::Certificates;
use evenkeel_lab::Balancer;
use origin::{Openssl, Origin, curl, splitter};
use peer::{End, Kind, Listening, connect, end_of, own_address, receive, send, stays, until};

on_both_drivers! {
    a_client_reaches_the_server_of_the_name_it_asks_for
    a_client_without_a_route_reaches_the_own_servers
    without_servers_a_client_without_a_route_is_closed_and_counted
    a_hello_in_many_records_and_bytes_reaches_its_server
    a_long_hello_is_routed_and_a_too_long_one_is_not
    a_silent_client_is_closed_and_delays_no_other
    a_hello_reaches_its_server_byte_for_byte
    proxy_headers_come_before_the_hello
    a_reload_changes_the_way_of_new_clients_only
    a_removed_service_ends_its_routed_sessions_at_its_limit
    an_upgrade_cuts_no_routed_session
}

/// Three servers, and the names that lead to them.
struct Site {
    certificates: Certificates,
    own: Origin,
    pay: Origin,
    shop: Origin,
}

impl Site {
    fn new() -> Option<Site> {
        let certificates = Certificates::make()?;
        Some(Site {
            own: Origin::start(&certificates, "own.example", ""),
            pay: Origin::start(&certificates, "pay.example", ""),
            shop: Origin::start(&certificates, "www.shop.example", ""),
            certificates,
        })
    }

    /// Returns the services: `pay.example` and `*.shop.example` are routes of the first one.
    fn services(&self, listen: &str, servers: &[&str], more: &str) -> String {
        let routes = route("*.shop.example", "shop") + &route("pay.example", "pay");
        let front = peer::service(listen, servers, &format!("{more}\n{routes}"));
        let pay = target("pay", &self.pay.address, "");
        let shop = target("shop", &self.shop.address, "");
        format!("{front}{pay}{shop}")
    }

    fn curl(&self, name: &str, address: &str) -> String {
        curl(&self.certificates, (name, address), &[])
    }
}

fn route(host: &str, to: &str) -> String {
    format!("[[service.route]]\nhost = {host:?}\nto = {to:?}\n")
}

/// Returns a service that only routes reach.
fn target(name: &str, server: &str, more: &str) -> String {
    let service = peer::named_service(name, "", &[server], more);
    service.replace("listen = \"\"\n", "")
}

fn status_of(balancer: &Balancer, index: usize, pointer: &str) -> u64 {
    let status = balancer.status().unwrap();
    let value = status["services"][index].pointer(pointer).unwrap();
    value.as_u64().unwrap()
}

fn a_client_reaches_the_server_of_the_name_it_asks_for(io: &str) {
    let Some(site) = Site::new() else { return };
    let listen = own_address(Kind::V4);
    let own = site.own.address.as_str();
    let balancer = peer::balancer(io, &site.services(&listen, &[own], ""));
    for name in ["pay.example", "www.shop.example"] {
        for version in [["--tls-max", "1.2"], ["--tls-max", "1.3"]] {
            let said = curl(&site.certificates, (name, &listen), &version);
            assert_eq!(said, format!("{name} for {name}"), "{version:?}");
        }
    }
    // Names of the wildcard, of which the server has no certificate.
    let mut client = Openssl::connect(&listen, &["-servername", "a.b.SHOP.example"]);
    assert_eq!(client.ask(), "www.shop.example for a.b.SHOP.example");
    let sessions = |index: usize| status_of(&balancer, index, "/sessions/current");
    until("the sessions in both services", || {
        (sessions(0), sessions(1), sessions(2)) == (1, 0, 1)
    });
    drop(client);
    until("the end of both", || (sessions(0), sessions(2)) == (0, 0));
    assert_eq!(status_of(&balancer, 2, "/sessions/total"), 3);
    assert!(status_of(&balancer, 0, "/bytes/to_clients") > 1_000);
}

fn a_client_without_a_route_reaches_the_own_servers(io: &str) {
    let Some(site) = Site::new() else { return };
    let listen = own_address(Kind::V4);
    let own = site.own.address.as_str();
    let _balancer = peer::balancer(io, &site.services(&listen, &[own], ""));
    assert_eq!(
        site.curl("own.example", &listen),
        "own.example for own.example"
    );
    let mut nameless = Openssl::connect(&listen, &["-noservername"]);
    assert_eq!(nameless.ask(), "own.example for");
    // The wildcard is for names below it.
    let mut parent = Openssl::connect(&listen, &["-servername", "shop.example"]);
    assert_eq!(parent.ask(), "own.example for shop.example");
    let plain = connect(&listen);
    send(&plain, b"GET / HTTP/1.0\r\n\r\n");
    // nginx answers plaintext at a TLS port with this.
    let answer = String::from_utf8(receive(&plain, 12)).unwrap();
    assert_eq!(answer, "HTTP/1.1 400");
}

fn without_servers_a_client_without_a_route_is_closed_and_counted(io: &str) {
    let Some(site) = Site::new() else { return };
    let listen = own_address(Kind::V4);
    let services = site.services(&listen, &[], "") + "[log]\nconnections = true\n";
    let balancer = peer::balancer(io, &services);
    assert_eq!(
        site.curl("pay.example", &listen),
        "pay.example for pay.example"
    );
    assert!(site.curl("own.example", &listen).starts_with("curl ends"));
    Openssl::connect(&listen, &["-noservername"]).wait();
    let plain = connect(&listen);
    send(&plain, b"GET / HTTP/1.0\r\n\r\n");
    assert_eq!(end_of(&plain), End::Clean);
    for reason in [
        "no route for the server name own.example",
        "the client sends no server name",
        "the client does not begin with a TLS handshake",
        ": no route for the server name of TLS, no such name",
    ] {
        until(reason, || balancer.log().contains(reason));
    }
    assert_eq!(status_of(&balancer, 0, "/errors/unrouted"), 3);
    assert_eq!(status_of(&balancer, 0, "/sessions/refused"), 3);
}

fn a_hello_in_many_records_and_bytes_reaches_its_server(io: &str) {
    let Some(site) = Site::new() else { return };
    let listen = own_address(Kind::V4);
    let own = site.own.address.as_str();
    let _balancer = peer::balancer(io, &site.services(&listen, &[own], ""));
    for size in [16_384, 100, 7] {
        let splitter = splitter(&listen, size);
        let said = site.curl("pay.example", &splitter);
        assert_eq!(
            said, "pay.example for pay.example",
            "records of {size} bytes"
        );
    }
}

/// Returns options that make a ClientHello longer by about `bytes`.
fn longer_by(bytes: usize) -> String {
    let names = (0..bytes / 200).map(|number| format!("{number:0199}"));
    let names: Vec<String> = names.chain(["http/1.1".to_owned()]).collect();
    names.join(",")
}

fn a_long_hello_is_routed_and_a_too_long_one_is_not(io: &str) {
    let Some(site) = Site::new() else { return };
    let listen = own_address(Kind::V4);
    let own = site.own.address.as_str();
    let _balancer = peer::balancer(io, &site.services(&listen, &[own], ""));
    for (bytes, server) in [(2_000, "pay"), (14_000, "pay"), (20_000, "own")] {
        let protocols = longer_by(bytes);
        let options = ["-servername", "pay.example", "-alpn", &protocols];
        let mut client = Openssl::connect(&listen, &options);
        assert_eq!(
            client.ask(),
            format!("{server}.example for pay.example"),
            "{bytes}"
        );
    }
}

fn a_silent_client_is_closed_and_delays_no_other(io: &str) {
    let Some(site) = Site::new() else { return };
    let listen = own_address(Kind::V4);
    let own = site.own.address.as_str();
    let services = site.services(&listen, &[own], "hello_timeout_ms = 1500\n");
    let balancer = peer::balancer(io, &services);
    let silent: Vec<_> = (0..50).map(|_| connect(&listen)).collect();
    let slow = connect(&listen);
    send(&slow, &[22, 3, 1]);
    assert_eq!(
        site.curl("pay.example", &listen),
        "pay.example for pay.example"
    );
    assert_eq!(status_of(&balancer, 0, "/errors/unrouted"), 0, "too early");
    for client in silent.iter().chain([&slow]) {
        assert_eq!(end_of(client), End::Clean);
    }
    until("the count", || {
        status_of(&balancer, 0, "/errors/unrouted") == 51
    });
}

/// Returns a ClientHello of `openssl`.
fn captured_hello() -> Vec<u8> {
    let server = Listening::new(Kind::V4);
    let _client = Openssl::connect(&server.address, &["-servername", "pay.example"]);
    let connection = server.accept();
    let header = receive(&connection, 5);
    let length = usize::from(u16::from_be_bytes([header[3], header[4]]));
    [header, receive(&connection, length)].concat()
}

fn a_hello_reaches_its_server_byte_for_byte(io: &str) {
    let hello = captured_hello();
    let (last, first) = hello.split_last().unwrap();
    for kind in [Kind::V4, Kind::V6, Kind::Unix] {
        let (own, pay) = (Listening::new(kind), Listening::new(kind));
        let listen = own_address(kind);
        let front = peer::service(&listen, &[&own.address], &route("pay.example", "pay"));
        let services = front + &target("pay", &pay.address, "");
        let _balancer = peer::balancer(io, &services);
        let client = connect(&listen);
        let sent = [&hello[..], b"more in the same segment"].concat();
        send(&client, &sent);
        let server = pay.accept();
        assert_eq!(receive(&server, sent.len()), sent);
        send(&client, b"later");
        assert_eq!(receive(&server, 5), b"later");
        send(&server, b"reply");
        assert_eq!(receive(&client, 5), b"reply");

        // Nothing reaches a server before the hello is complete.
        let client = connect(&listen);
        send(&client, first);
        let is_unused = |server: &Listening| {
            server.socket.set_nonblocking(true).unwrap();
            let is_unused = server.socket.accept().is_err();
            server.socket.set_nonblocking(false).unwrap();
            is_unused
        };
        stays("no connection", Duration::from_millis(200), || {
            is_unused(&pay) && is_unused(&own)
        });
        send(&client, &[*last]);
        assert_eq!(receive(&pay.accept(), hello.len()), hello, "{kind:?}");
    }
}

fn proxy_headers_come_before_the_hello(io: &str) {
    let Some(certificates) = Certificates::make() else {
        return;
    };
    let pay = Origin::start(&certificates, "pay.example", "proxy_protocol");
    let listen = own_address(Kind::V4);
    let front = |more: &str| {
        let routes = route("pay.example", "pay");
        peer::service(&listen, &[], &format!("{more}\n{routes}"))
    };
    let pay = target("pay", &pay.address, "send_proxy = \"v2\"\n");
    let balancer = peer::balancer(io, &format!("{}{pay}", front("")));
    let said = curl(&certificates, ("pay.example", &listen), &[]);
    assert_eq!(said, "pay.example for pay.example 127.0.0.1");
    let config = balancer.config();
    let config = config.replace(&front(""), &front("accept_proxy_from = \"127.0.0.1\"\n"));
    balancer.reload(&config).unwrap();
    // curl sends a header with the address of its own socket.
    let options = ["--haproxy-protocol", "--interface", "127.0.0.1"];
    let said = curl(&certificates, ("pay.example", &listen), &options);
    assert_eq!(said, "pay.example for pay.example 127.0.0.1");
    let said = curl(&certificates, ("pay.example", &listen), &[]);
    assert!(said.starts_with("curl ends"), "no header: {said}");
}

fn a_reload_changes_the_way_of_new_clients_only(io: &str) {
    let Some(site) = Site::new() else { return };
    let listen = own_address(Kind::V4);
    let own = site.own.address.as_str();
    let balancer = peer::balancer(io, &site.services(&listen, &[own], ""));
    let ask = ["-servername", "pay.example"];
    let mut before = Openssl::connect(&listen, &ask);
    assert_eq!(before.ask(), "pay.example for pay.example");
    let config = balancer.config();
    let exact = route("pay.example", "shop") + &route("*.pay.example", "pay");
    let other = config.replace(&route("pay.example", "pay"), &exact);
    balancer.reload(&other).unwrap();
    let mut after = Openssl::connect(&listen, &ask);
    assert_eq!(after.ask(), "www.shop.example for pay.example");
    assert_eq!(before.ask(), "pay.example for pay.example");
    // Without its routes, the service reads nothing. Its targets are removed.
    let engine = config.split("[[service]]").next().unwrap();
    let no_routes = peer::service(&listen, &[own], "");
    balancer.reload(&format!("{engine}{no_routes}")).unwrap();
    let mut last = Openssl::connect(&listen, &ask);
    assert_eq!(last.ask(), "own.example for pay.example");
    assert_eq!(before.ask(), "pay.example for pay.example");
}

fn a_removed_service_ends_its_routed_sessions_at_its_limit(io: &str) {
    let Some(site) = Site::new() else { return };
    let listen = own_address(Kind::V4);
    let engine = format!("[engine]\nio = {io:?}\nworkers = 2\n");
    let file = |name: &str, server: &str| {
        let routes = route("pay.example", name);
        let front = peer::service(&listen, &[&site.own.address], &routes);
        let target = target(name, server, "drain_limit_ms = 3000\n");
        format!("{engine}{front}{target}")
    };
    let balancer = Balancer::start(&file("pay", &site.pay.address)).unwrap();
    let ask = ["-servername", "pay.example"];
    let mut routed = Openssl::connect(&listen, &ask);
    assert_eq!(routed.ask(), "pay.example for pay.example");
    let mut own = Openssl::connect(&listen, &["-noservername"]);
    assert_eq!(own.ask(), "own.example for");
    balancer.reload(&file("shop", &site.shop.address)).unwrap();
    assert_eq!(
        routed.ask(),
        "pay.example for pay.example",
        "before the limit"
    );
    routed.wait();
    assert_eq!(own.ask(), "own.example for");
    let mut new = Openssl::connect(&listen, &ask);
    assert_eq!(new.ask(), "www.shop.example for pay.example");
    // Another server of the same service: sessions on the former one have its limit, too.
    balancer.reload(&file("shop", &site.pay.address)).unwrap();
    new.wait();
    let mut last = Openssl::connect(&listen, &ask);
    assert_eq!(last.ask(), "pay.example for pay.example");
    assert_eq!(own.ask(), "own.example for");
}

fn an_upgrade_cuts_no_routed_session(io: &str) {
    let Some(site) = Site::new() else { return };
    let listen = own_address(Kind::V4);
    let own = site.own.address.as_str();
    let balancer = peer::balancer(io, &site.services(&listen, &[own], ""));
    let ask = ["-servername", "pay.example"];
    let mut before = Openssl::connect(&listen, &ask);
    assert_eq!(before.ask(), "pay.example for pay.example");
    balancer.upgrade(&[]).unwrap();
    assert_eq!(
        site.curl("pay.example", &listen),
        "pay.example for pay.example"
    );
    assert_eq!(before.ask(), "pay.example for pay.example");
    drop(before);
    until("the end of the old process", || balancer.pids().len() == 1);
}
