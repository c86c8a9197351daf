//! Where clients come in and where servers are: all kinds of address, dead servers among live ones.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

#[path = "peer/peer.rs"]
mod peer;

use std::time::{Duration, Instant};

use peer::{
    End, Kind, Listening, Scripted, connect, end_of, name_of, named_service, own_address, receive,
    send, service, until,
};

on_both_drivers! {
    a_new_client_is_served_at_once
    every_kind_of_address_is_listened_on
    every_kind_of_server_is_reached_also_by_name
    dead_servers_among_live_ones_cost_a_delay_and_no_error
    with_all_servers_down_clients_end_at_once_and_cleanly
    with_all_servers_down_clients_may_wait
}

const QUICK: &str = "connect_timeout_ms = 200\nretries = 3\n";
const PROBED: &str = "[service.health]\nprobe = \"tcp\"\ninterval_ms = 50\nrise = 1\n\
                      dead_interval_ms_max = 50\n";

/// Not when a timer happens to wake the worker, twice a second.
fn a_new_client_is_served_at_once(io: &str) {
    let server = Scripted::named("aaa");
    let listen = own_address(Kind::V4);
    let _balancer = peer::balancer(io, &service(&listen, &[server.address()], ""));
    let started = Instant::now();
    for _ in 0..60 {
        assert_eq!(name_of(&connect(&listen)), "aaa");
    }
    let took = started.elapsed();
    assert!(took < Duration::from_secs(3), "{took:?} for 60 clients");
}

fn every_kind_of_address_is_listened_on(io: &str) {
    let server = Scripted::named("aaa");
    let any_port = evenkeel_lab::free_port();
    let mut listens: Vec<String> = [Kind::V4, Kind::V6, Kind::Unix].map(own_address).into();
    listens.push(format!("*:{any_port}"));
    let services = listens.iter().enumerate().map(|(number, listen)| {
        named_service(&format!("s{number}"), listen, &[server.address()], "")
    });
    let balancer = peer::balancer(io, &services.collect::<String>());
    let any = [format!("127.0.0.1:{any_port}"), format!("[::1]:{any_port}")];
    for address in listens[..3].iter().chain(&any) {
        let client = connect(address);
        assert_eq!(name_of(&client), "aaa", "{address}");
    }
    let file = listens[2].strip_prefix("unix:").unwrap();
    balancer.stop().unwrap();
    assert!(!std::path::Path::new(file).exists(), "{file} was left");
}

fn every_kind_of_server_is_reached_also_by_name(io: &str) {
    for kind in [Kind::V4, Kind::V6, Kind::Unix] {
        let server = Scripted::echo(kind);
        let listen = own_address(Kind::V4);
        let _balancer = peer::balancer(io, &service(&listen, &[server.address()], ""));
        assert_echo(&listen);
    }
    // The name may have an IPv6 address, too, where nobody listens.
    let server = Scripted::echo(Kind::V4);
    let by_name = server.address().replace("127.0.0.1", "localhost");
    let listen = own_address(Kind::V4);
    let balancer = peer::balancer(io, &service(&listen, &[&by_name], ""));
    peer::until_service(&balancer, "the name resolved", |service| {
        service["servers"][0]["resolved"]
            .as_array()
            .is_some_and(|resolved| !resolved.is_empty())
    });
    (0..4).for_each(|_| assert_echo(&listen));
}

fn assert_echo(listen: &str) {
    let client = connect(listen);
    send(&client, b"hello");
    assert_eq!(receive(&client, 5), b"hello");
}

/// A listener that answers no SYN: its backlog is full and nobody accepts.
struct BlackHole {
    listening: Listening,
    _waiting: Vec<socket2::Socket>,
}

impl BlackHole {
    fn new() -> BlackHole {
        let listening = Listening::with_backlog(Kind::V4, 0);
        let to: std::net::SocketAddr = listening.address.parse().unwrap();
        let knock = |_| {
            let socket =
                socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
            socket.set_nonblocking(true).unwrap();
            // It never ends, or not yet.
            let _ = socket.connect(&to.into());
            socket
        };
        let waiting = (0..4).map(knock).collect();
        BlackHole {
            listening,
            _waiting: waiting,
        }
    }
}

fn dead_servers_among_live_ones_cost_a_delay_and_no_error(io: &str) {
    let (live, hole, refusing) = (
        Scripted::named("aaa"),
        BlackHole::new(),
        own_address(Kind::V4),
    );
    let listen = own_address(Kind::V4);
    let servers = [&hole.listening.address, &refusing, live.address()];
    // `first`: everybody meets the dead ones, in this order, until they are known as dead.
    let more = format!("balance = \"first\"\n{QUICK}");
    let balancer = peer::balancer(io, &service(&listen, &servers, &more));
    for _ in 0..4 {
        let started = Instant::now();
        assert_eq!(name_of(&connect(&listen)), "aaa");
        let took = started.elapsed();
        assert!(took < Duration::from_millis(200 * 4 + 500), "{took:?}");
    }
    let status = balancer.status().unwrap();
    let service = &status["services"][0];
    assert!(service["retries_total"].as_u64().unwrap() >= 2, "{service}");
    assert_eq!(service["errors"]["no_server"], 0);
}

fn with_all_servers_down_clients_end_at_once_and_cleanly(io: &str) {
    let listen = own_address(Kind::V4);
    let dead = own_address(Kind::V4);
    let balancer = peer::balancer(io, &service(&listen, &[&dead], PROBED));
    peer::until_service(&balancer, "the verdict", |service| {
        service["state"] == "down"
    });
    for number in 1..=5 {
        let started = Instant::now();
        let client = connect(&listen);
        send(&client, b"a request");
        assert_eq!(end_of(&client), End::Clean);
        assert!(started.elapsed() < Duration::from_millis(500));
        peer::until_service(&balancer, "the count", |service| {
            service["errors"]["no_server"] == number
        });
    }
}

fn with_all_servers_down_clients_may_wait(io: &str) {
    let listen = own_address(Kind::V4);
    let dead = own_address(Kind::V4);
    let more = format!("all_down = \"wait\"\n{PROBED}[service.queue]\nwait_ms = 15000\n");
    let balancer = peer::balancer(io, &service(&listen, &[&dead], &more));
    peer::until_service(&balancer, "the verdict", |service| {
        service["state"] == "down"
    });
    let client = connect(&listen);
    until("the client in the queue", || {
        balancer.status().unwrap()["services"][0]["queue"]["current"] == 1
    });
    let _back = Scripted::named_at("bbb", &dead);
    assert_eq!(name_of(&client), "bbb");
}
