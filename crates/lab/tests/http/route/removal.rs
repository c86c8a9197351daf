//! Tests of services and servers that are removed while a route leads requests to them: what is in
//! progress may go on until `drain_limit_ms`.

use std::time::{Duration, Instant};

use crate::client::Client;
use crate::origin::{Origin, ok, reply};
use crate::peer::{self, Kind, named_service};
use crate::websocket::{assert_echo, echoing, open};
use crate::{Bed, on_both_drivers};

on_both_drivers! {
    a_websocket_at_a_removed_service_ends_at_the_limit
    a_websocket_at_a_removed_server_ends_at_the_limit
    a_slow_response_of_a_removed_service_arrives
}

const DRAIN_LIMIT: Duration = Duration::from_secs(3);

/// Returns a configuration whose service `web` has a route to the service `target`. `None`: there
/// is no such service.
fn config(io: &str, listen: &str, own: &Origin, target: Option<&[&str]>) -> String {
    let limit = format!("drain_limit_ms = {}\n", DRAIN_LIMIT.as_millis());
    let engine = format!("[engine]\nio = {io:?}\nworkers = 2\n");
    let mut more = format!("protocol = \"http\"\n{limit}");
    if target.is_some() {
        more.push_str("[[service.route]]\npath = \"/chat\"\nto = \"target\"\n");
    }
    let web = named_service("web", listen, &[own.address()], &more);
    let target = target.map_or(String::new(), |servers| {
        format!(
            "[[service]]\nname = \"target\"\nprotocol = \"http\"\nservers = {servers:?}\n{limit}\
             [service.health]\nprobe = \"off\"\n"
        )
    });
    format!("{engine}{web}{target}")
}

fn start(io: &str, own: &Origin, target: &[&str]) -> Bed {
    let listen = peer::own_address(Kind::V4);
    let config = config(io, &listen, own, Some(target));
    let balancer = evenkeel_lab::Balancer::start(&config).unwrap();
    Bed { listen, balancer }
}

/// Asserts that a WebSocket works until the limit after the removal, and then ends.
#[track_caller]
fn assert_ends_at_limit(socket: &mut Client, removed: Instant) {
    while removed.elapsed() < DRAIN_LIMIT / 2 {
        assert_echo(socket, b"still");
        std::thread::park_timeout(Duration::from_millis(50));
    }
    let Err((_, rest)) = socket.take(1) else {
        panic!("bytes without a request");
    };
    assert_eq!(rest, "");
    let after = removed.elapsed();
    println!("ended {after:?} after the removal");
    assert!(
        after > DRAIN_LIMIT - Duration::from_millis(200),
        "{after:?}"
    );
}

/// TO SEE THIS RED: let `Removal::is_empty` count only the clients of the service itself, or let
/// `SessionHandle::picking_service_id` ignore requests.
fn a_websocket_at_a_removed_service_ends_at_the_limit(io: &str) {
    let (own, target) = (Origin::named("own"), echoing());
    let bed = start(io, &own, &[target.address()]);
    let mut socket = open(&bed);
    assert_echo(&mut socket, b"before");
    let removed = Instant::now();
    bed.balancer
        .reload(&config(io, &bed.listen, &own, None))
        .unwrap();
    assert_ends_at_limit(&mut socket, removed);
    assert_eq!(bed.client().get("/chat").text(), "own");
}

fn a_websocket_at_a_removed_server_ends_at_the_limit(io: &str) {
    let (own, target, other) = (Origin::named("own"), echoing(), Origin::named("other"));
    let bed = start(io, &own, &[target.address()]);
    let mut socket = open(&bed);
    let mut idle = bed.client();
    assert_eq!(idle.get("/").text(), "own");
    let removed = Instant::now();
    let without = config(io, &bed.listen, &own, Some(&[other.address()]));
    bed.balancer.reload(&without).unwrap();
    assert_ends_at_limit(&mut socket, removed);
    // Another client of the route's service is unaffected.
    assert_eq!(idle.get("/chat").text(), "other");
}

fn a_slow_response_of_a_removed_service_arrives(io: &str) {
    let slow = Origin::scripted(|incoming, log| {
        while let Some(seen) = incoming.request() {
            log(&seen);
            std::thread::park_timeout(DRAIN_LIMIT / 2);
            if !reply(incoming.socket, ok("slow")) {
                return;
            }
        }
    });
    let own = Origin::named("own");
    let bed = start(io, &own, &[slow.address()]);
    let mut client = bed.client();
    client.send("GET /chat HTTP/1.1\r\nHost: web.example\r\n\r\n");
    peer::until("the request", || slow.server.current() == 1);
    bed.balancer
        .reload(&config(io, &bed.listen, &own, None))
        .unwrap();
    assert_eq!(client.answer().text(), "slow");
    assert_eq!(client.get("/chat").text(), "own");
}
