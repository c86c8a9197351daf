//! Tests of `mirror`: copies of requests without a body go to another service, and what becomes of
//! them changes nothing for the client.

use std::time::{Duration, Instant};

use evenkeel_lab::{Balancer, Lab};

use crate::client::Client;
use crate::operate::under_load;
use crate::origin::{Origin, ok, reply};
use crate::peer::{self, Kind, until};
use crate::{Bed, on_both_drivers};

on_both_drivers! {
    requests_without_a_body_are_copied_and_others_are_not
    a_copy_has_the_changes_of_its_route_and_of_its_mirror
    a_share_of_the_requests_is_copied
    a_mirror_that_is_down_fails_no_request
    responses_of_a_mirror_end_at_their_limits
    copies_in_progress_are_bounded
    a_frozen_mirror_delays_no_request
    a_copy_is_not_copied_and_its_mirror_sets_no_cookie
    copies_cost_no_request_in_drains_reloads_and_upgrades
    a_stopping_process_awaits_no_copy
}

/// Returns a service `web` with a server and a mirror, and the service `next`. `of_next` are keys
/// and tables of that.
fn config((io, listen): (&str, &str), mirror: &str, servers: [&str; 2], of_next: &str) -> String {
    let [own, next] = servers;
    format!(
        "[engine]\nio = {io:?}\nworkers = 2\nshutdown_limit_ms = 60000\n\
         [[service]]\nname = \"web\"\nprotocol = \"http\"\nlisten = {listen:?}\n\
         servers = [{own:?}]\n[service.health]\nprobe = \"off\"\n\
         [[service.route]]\nname = \"all\"\nmirror = {mirror}\n\
         [[service]]\nname = \"next\"\nprotocol = \"http\"\nservers = [{next:?}]\n\
         [service.health]\nprobe = \"off\"\n{of_next}"
    )
}

fn bed(io: &str, mirror: &str, servers: [&str; 2], of_next: &str) -> Bed {
    let listen = peer::own_address(Kind::V4);
    let config = config((io, &listen), mirror, servers, of_next);
    let balancer = Balancer::start(&config).unwrap();
    Bed { listen, balancer }
}

/// Returns the copies of the route: answered, failed and dropped.
fn copies(bed: &Bed) -> [u64; 3] {
    let status = bed.status();
    let copies = &status["http"]["routes"][0]["copies"];
    ["answered", "failed", "dropped"].map(|what| {
        let all = copies.as_array().unwrap();
        let found = all.iter().find(|one| one["what"] == what);
        found.unwrap()["count"].as_u64().unwrap()
    })
}

fn until_copies(bed: &Bed, expect: [u64; 3]) {
    let start = Instant::now();
    while copies(bed) != expect {
        let seen = copies(bed);
        assert!(start.elapsed() < peer::LIMIT, "{seen:?} for {expect:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn requests_without_a_body_are_copied_and_others_are_not(io: &str) {
    let (own, next) = (Origin::named("own"), Origin::named("next"));
    let bed = bed(io, "\"next\"", [own.address(), next.address()], "");
    let mut client = bed.client();
    for method in ["GET", "DELETE", "OPTIONS", "POST"] {
        let empty = if method == "POST" {
            "Content-Length: 0\r\n"
        } else {
            ""
        };
        client.send(format!(
            "{method} /{method}?x=1 HTTP/1.1\r\nHost: web.example\r\nCookie: a=b\r\n\
             Authorization: Bearer x\r\n{empty}\r\n"
        ));
        assert_eq!(client.answer().text(), "own");
    }
    client.send("HEAD /head HTTP/1.1\r\nHost: web.example\r\n\r\n");
    assert_eq!(client.answer_to_head().status, 200);
    until_copies(&bed, [5, 0, 0]);
    let heads = |origin: &Origin| -> Vec<String> {
        let mut heads: Vec<_> = origin.seen().into_iter().map(|seen| seen.head).collect();
        heads.sort();
        heads
    };
    assert_eq!(heads(&own), heads(&next));
    assert!(
        heads(&next)[0].contains("Cookie: a=b"),
        "{:?}",
        heads(&next)
    );
    assert_eq!(client.post("/body", "x").text(), "own");
    client.send("PUT /chunked HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    assert_eq!(client.answer().text(), "own");
    client.send(
        "GET /socket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    assert_eq!(client.answer().text(), "own");
    assert_eq!(client.get("/last").text(), "own");
    until_copies(&bed, [6, 0, 0]);
    let paths = next.paths();
    assert_eq!((paths.len(), &*paths[5]), (6, "/last"), "{paths:?}");
    let reused = next.seen().iter().all(|seen| seen.connection <= 2);
    assert!(reused, "connections are kept: {:?}", next.seen());
}

fn a_copy_has_the_changes_of_its_route_and_of_its_mirror(io: &str) {
    let (own, next) = (Origin::named("own"), Origin::named("next"));
    let mirror = "{ service = \"next\", set_request = { X-Copy = \"yes\" }, \
                  remove_request = [\"Authorization\", \"cookie\"] }\npath = \"/api/\"\n\
                  strip_prefix = \"/api\"\nset_request = { X-Route = \"r\" }";
    let bed = bed(io, mirror, [own.address(), next.address()], "");
    let mut client = bed.client();
    client.send(
        "GET /api/x HTTP/1.1\r\nHost: web.example\r\nAuthorization: Bearer x\r\nCookie: a=b\r\n\
         X-Own: o\r\n\r\n",
    );
    assert_eq!(client.answer().text(), "own");
    assert_eq!(client.get("/other").text(), "own");
    until_copies(&bed, [1, 0, 0]);
    let (sent, copy) = (own.seen().remove(0), next.only());
    assert_eq!(copy.path(), "/x");
    for name in [
        "Host",
        "X-Own",
        "X-Route",
        "X-Forwarded-For",
        "X-Forwarded-Proto",
    ] {
        assert!(copy.field(name).is_some(), "{name}: {}", copy.head);
        assert_eq!(copy.field(name), sent.field(name), "{name}");
    }
    assert_eq!(copy.field("X-Copy").as_deref(), Some("yes"));
    assert_eq!(copy.field("Authorization").or(copy.field("Cookie")), None);
    assert!(sent.field("Authorization").is_some() && sent.field("Cookie").is_some());
    assert_eq!(sent.field("X-Copy"), None);
    let output = bed.balancer.command(&["explain", "GET http://a/api/x"]);
    let text = String::from_utf8_lossy(&output.unwrap().stdout).into_owned();
    for part in ["with a copy to service next", "set X-Copy: yes in the copy"] {
        assert!(text.contains(part), "{text}");
    }
}

fn a_share_of_the_requests_is_copied(io: &str) {
    let (own, next) = (Origin::named("own"), Origin::named("next"));
    let servers = [own.address(), next.address()];
    let bed = bed(io, "{ service = \"next\", percent = 10 }", servers, "");
    let mut client = bed.client();
    for _ in 0..2_000 {
        assert_eq!(client.get("/").text(), "own");
    }
    until("the copies", || copies(&bed)[0] == next.seen().len() as u64);
    // Of 2,000 requests 200; the limits are more than 6 standard deviations away.
    let count = next.seen().len();
    println!("{io}: {count} copies of 2000 requests with 10 %");
    assert!((110..290).contains(&count), "{count}");
    let output = bed.balancer.command(&["explain", "GET http://a/"]).unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        text.contains("with a copy of 10 % of the requests to service next"),
        "{text}"
    );
    let all = config((io, &bed.listen), "\"next\"", servers, "");
    bed.balancer.reload(&all).unwrap();
    for _ in 0..300 {
        assert_eq!(client.get("/").text(), "own");
    }
    until_copies(&bed, [count as u64 + 300, 0, 0]);
    assert_eq!(next.seen().len(), count + 300);
}

fn a_mirror_that_is_down_fails_no_request(io: &str) {
    let own = Origin::named("own");
    let nothing = peer::own_address(Kind::V4);
    let bed = bed(io, "\"next\"", [own.address(), &nothing], "");
    let mut client = bed.client();
    for _ in 0..50 {
        assert_eq!(client.get("/").text(), "own");
    }
    until_copies(&bed, [0, 50, 0]);
    assert_eq!(own.seen().len(), 50);
    let status = bed.status();
    assert_eq!(status["http"]["own_responses_total"], 0, "{status}");
    assert_eq!(status["http"]["retried_total"], 0, "{status}");
}

/// Starts a server whose responses end never, too late, too early or not as HTTP.
fn wrong() -> Origin {
    Origin::scripted(|incoming, log| {
        while let Some(seen) = incoming.request() {
            log(&seen);
            let head = "HTTP/1.1 200 OK\r\n";
            let is_open = match seen.path() {
                "/endless" => {
                    reply(incoming.socket, format!("{head}\r\n"));
                    let part = vec![b'x'; 64 * 1024];
                    while reply(incoming.socket, &part) {}
                    false
                }
                "/chunks" => {
                    reply(
                        incoming.socket,
                        format!("{head}Transfer-Encoding: chunked\r\n\r\n"),
                    );
                    let part = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
                    while reply(incoming.socket, &part) {}
                    false
                }
                "/fields" => {
                    reply(incoming.socket, head);
                    while reply(incoming.socket, "X-Field: value\r\n") {}
                    false
                }
                "/garbage" => reply(incoming.socket, "garbage\r\n\r\n"),
                "/upgrade" => reply(
                    incoming.socket,
                    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
                ),
                "/half" => {
                    reply(
                        incoming.socket,
                        format!("{head}Content-Length: 10\r\n\r\nhalf"),
                    );
                    false
                }
                "/silent" => {
                    let _ = incoming.request();
                    false
                }
                "/close" => false,
                _ => reply(incoming.socket, ok("fine")),
            };
            if !is_open {
                return;
            }
        }
    })
}

fn responses_of_a_mirror_end_at_their_limits(io: &str) {
    const PATHS: [&str; 8] = [
        "/endless", "/chunks", "/fields", "/garbage", "/upgrade", "/half", "/silent", "/close",
    ];
    let (own, next) = (Origin::named("own"), wrong());
    let times = "[service.times]\nfirst_byte_ms = 300\n";
    let bed = bed(io, "\"next\"", [own.address(), next.address()], times);
    let mut client = bed.client();
    assert_eq!(client.get("/").text(), "own");
    until_copies(&bed, [1, 0, 0]);
    let before_kb = bed.balancer.memory_kb();
    let mut expect = 0;
    for path in PATHS {
        for _ in 0..4 {
            assert_eq!(client.get(path).text(), "own", "{path}");
            expect += 1;
        }
        until_copies(&bed, [1, expect, 0]);
        until("the ends of the connections", || next.server.current() <= 1);
    }
    let grown_kb = bed.balancer.memory_kb().saturating_sub(before_kb);
    println!("{io}: {grown_kb} kB more");
    assert!(grown_kb < 16 * 1024, "{grown_kb} kB");
    assert_eq!(client.get("/").text(), "own");
    until_copies(&bed, [2, expect, 0]);
}

fn copies_in_progress_are_bounded(io: &str) {
    let (own, next) = (Origin::named("own"), wrong());
    let mirror = "{ service = \"next\", in_flight = 3 }";
    let times = "[service.times]\nrequest_ms = 2000\n";
    let bed = bed(io, mirror, [own.address(), next.address()], times);
    let mut clients = [(); 4].map(|()| bed.client());
    for client in &mut clients {
        for _ in 0..5 {
            assert_eq!(client.get("/silent").text(), "own");
        }
    }
    // Each worker counts the copies of the others.
    until_copies(&bed, [0, 3, 17]);
    assert_eq!(next.seen().len(), 3);
    assert_eq!(clients[0].get("/").text(), "own");
    until_copies(&bed, [1, 3, 17]);
}

/// Returns the longest time of some requests.
fn longest(client: &mut Client, requests: usize) -> Duration {
    let times = (0..requests).map(|_| {
        let start = Instant::now();
        assert_eq!(client.get("/1k").status, 200);
        start.elapsed()
    });
    times.max().unwrap_or_default()
}

fn a_frozen_mirror_delays_no_request(io: &str) {
    let lab = Lab::new("mirror").unwrap();
    let servers = lab.web(2).unwrap();
    let addresses = [&servers[0], &servers[1]].map(|server| server.address.to_string());
    let mirror = "{ service = \"next\", in_flight = 50 }";
    let bed = bed(io, mirror, [&addresses[0], &addresses[1]], "");
    let mut client = bed.client();
    let before = longest(&mut client, 300);
    until_copies(&bed, [300, 0, 0]);
    servers[1].freeze().unwrap();
    let frozen = longest(&mut client, 300);
    println!("{io}: at most {before:?}, with a frozen mirror {frozen:?}");
    until_copies(&bed, [300, 0, 250]);
    assert!(
        frozen < before + Duration::from_millis(300),
        "{frozen:?} after {before:?}"
    );
    servers[1].thaw().unwrap();
    until_copies(&bed, [350, 0, 250]);
    longest(&mut client, 100);
    until_copies(&bed, [450, 0, 250]);
}

fn a_copy_is_not_copied_and_its_mirror_sets_no_cookie(io: &str) {
    let [own, next, third] = ["own", "next", "third"].map(Origin::named);
    let listen = peer::own_address(Kind::V4);
    let of_next = format!(
        "[service.sticky]\n[[service.route]]\nmirror = \"third\"\n\
         [[service]]\nname = \"third\"\nprotocol = \"http\"\nservers = [{:?}]\n",
        third.address()
    );
    let servers = [own.address(), next.address()];
    let config = config(
        (io, &peer::own_address(Kind::V4)),
        "\"next\"",
        servers,
        &of_next,
    );
    let with_listen = format!("name = \"next\"\nlisten = {listen:?}\n");
    let config = config.replace("name = \"next\"\n", &with_listen);
    let balancer = Balancer::start(&config).unwrap();
    let web = config
        .split("listen = \"")
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    let bed = Bed {
        listen: web.unwrap().to_owned(),
        balancer,
    };
    let mut client = bed.client();
    for _ in 0..20 {
        let answer = client.get("/");
        assert_eq!((&*answer.text(), answer.field("Set-Cookie")), ("own", None));
    }
    until_copies(&bed, [20, 0, 0]);
    assert_eq!((next.seen().len(), third.seen().len()), (20, 0));
    // The mirror's own clients have its mirror.
    assert_eq!(Client::connect(&listen).get("/").text(), "next");
    until("its copy", || third.seen().len() == 1);
}

fn copies_cost_no_request_in_drains_reloads_and_upgrades(io: &str) {
    let lab = Lab::new("mirror").unwrap();
    let servers = lab.web(3).unwrap();
    let addresses = [0, 1, 2].map(|index: usize| servers[index].address.to_string());
    let [own, next, other] = &addresses;
    let mirror = "{ service = \"next\", in_flight = 20 }";
    let bed = bed(io, mirror, [own, next], "");
    let config = |next: &str| config((io, &bed.listen), mirror, [own, next], "");
    let without = {
        let config = config(next);
        let (web, _) = config.split_once("[[service.route]]").unwrap();
        web.to_owned()
    };
    let seen = under_load(&bed.listen, 4, |more| {
        more(200);
        for _ in 0..2 {
            let drain = bed.balancer.command(&["drain", next]).unwrap();
            assert!(drain.status.success(), "{drain:?}");
            more(100);
            let undrain = bed.balancer.command(&["undrain", next]).unwrap();
            assert!(undrain.status.success(), "{undrain:?}");
            servers[1].freeze().unwrap();
            more(100);
            bed.balancer.reload(&config(other)).unwrap();
            more(100);
            bed.balancer.reload(&without).unwrap();
            more(100);
            servers[1].thaw().unwrap();
            bed.balancer.reload(&config(next)).unwrap();
            more(100);
            let before: u64 = copies(&bed).iter().sum();
            bed.balancer.upgrade(&[]).unwrap();
            more(100);
            until("the end of the old process", || {
                bed.balancer.pids().len() == 1
            });
            let after: u64 = copies(&bed).iter().sum();
            assert!(after > before, "the counters are kept: {before}, {after}");
        }
    });
    println!("{io}: {seen:?}, copies {:?}", copies(&bed));
    let failed = seen
        .keys()
        .filter(|key| !key.starts_with("200 ") && *key != "closed");
    assert_eq!(failed.count(), 0, "{seen:?}");
}

fn a_stopping_process_awaits_no_copy(io: &str) {
    let (own, next) = (Origin::named("own"), wrong());
    let bed = bed(io, "\"next\"", [own.address(), next.address()], "");
    assert_eq!(bed.client().get("/silent").text(), "own");
    until("the copy", || next.seen().len() == 1);
    let start = Instant::now();
    bed.balancer.signal(libc::SIGTERM);
    until("the end of the process", || !bed.balancer.is_running());
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}",
        start.elapsed()
    );
}
