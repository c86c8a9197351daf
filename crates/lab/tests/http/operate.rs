//! Tests of servers that come and go, and of reloads and upgrades, under clients that stay.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use crate::client::{Client, Ended};
use crate::origin::{Origin, ok};
use crate::peer::{self, until, until_service};
use crate::websocket::{assert_echo, echoing, open};
use crate::{Bed, on_both_drivers, service};

on_both_drivers! {
    a_server_that_is_gone_costs_no_request
    a_drained_server_finishes_its_requests_and_gets_no_more
    a_reload_removes_and_adds_servers_under_load
    a_websocket_survives_a_reload
    an_upgrade_cuts_no_client_and_no_websocket
    a_stopping_process_finishes_requests
    without_a_server_requests_are_a_503
}

/// Clients that ask again and again over connections that they keep.
pub(crate) fn under_load(
    listen: &str,
    clients: usize,
    act: impl FnOnce(&dyn Fn(u64)),
) -> BTreeMap<String, u64> {
    let (over, count, seen) = (AtomicBool::new(false), AtomicU64::new(0), Mutex::default());
    std::thread::scope(|scope| {
        for _ in 0..clients {
            scope.spawn(|| load(listen, &over, &count, &seen));
        }
        let more = |more: u64| {
            let goal = count.load(SeqCst) + more;
            until("more requests", || count.load(SeqCst) >= goal);
        };
        let end = SetOnDrop(&over);
        act(&more);
        drop(end);
    });
    seen.into_inner().unwrap()
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn load(listen: &str, over: &AtomicBool, count: &AtomicU64, seen: &Mutex<BTreeMap<String, u64>>) {
    let mut client = Client::connect(listen);
    while !over.load(SeqCst) {
        client.send(crate::client::get("/"));
        let answer = match client.try_answer(false) {
            Ok(answer) => answer,
            // An idle connection may be closed at any time (RFC 9112 §9.5), but not in a response.
            Err((Ended::Clean, part)) if part.is_empty() => {
                *seen.lock().unwrap().entry("closed".to_owned()).or_default() += 1;
                client = Client::connect(listen);
                continue;
            }
            Err((ended, part)) => panic!("{ended:?} after {part:?}"),
        };
        let ends = answer.field("Connection").as_deref() == Some("close");
        let name = format!("{} {}", answer.status, answer.text());
        *seen.lock().unwrap().entry(name).or_default() += 1;
        count.fetch_add(1, SeqCst);
        if ends {
            assert_eq!(client.end(), Ended::Clean);
            client = Client::connect(listen);
        }
    }
}

/// Fails if a request was answered by other than these servers, or was refused.
#[track_caller]
fn assert_only(seen: &BTreeMap<String, u64>, names: &[&str]) {
    let allowed = |key: &String| names.iter().any(|name| *key == format!("200 {name}"));
    let other: Vec<_> = seen.iter().filter(|(key, _)| !allowed(key)).collect();
    assert!(other.is_empty(), "{seen:?}");
}

fn a_server_that_is_gone_costs_no_request(io: &str) {
    let (first, second) = (Origin::named("first"), Origin::named("second"));
    let bed = Bed::new(io, &[&first, &second], "");
    let seen = under_load(&bed.listen, 4, |more| {
        more(100);
        first.stop_listening();
        first.close_connections();
        more(300);
    });
    assert_only(&seen, &["first", "second"]);
    assert!(seen.len() == 2, "{seen:?}");
}

fn a_drained_server_finishes_its_requests_and_gets_no_more(io: &str) {
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let first = Origin::new(move |seen| {
        if seen.path() == "/slow" {
            let _ = gate.lock().unwrap().recv();
        }
        Some(ok("first"))
    });
    let second = Origin::named("second");
    let entries = [format!(
        "{{ address = {:?}, weight = 100 }}",
        first.address()
    )];
    let backup = format!("{{ address = {:?}, backup = true }}", second.address());
    let bed = Bed::of(io, &[&entries[0], &backup], "");
    let mut slow = bed.client();
    slow.send(crate::client::get("/slow"));
    until("the slow request", || first.seen().len() == 1);
    let mut keeper = bed.client();
    assert_eq!(keeper.get("/").text(), "first");
    let output = bed.balancer.command(&["drain", first.address()]).unwrap();
    assert!(output.status.success(), "{output:?}");
    until("the drain", || keeper.get("/").text() == "second");
    let before = first.seen().len();
    for _ in 0..20 {
        assert_eq!(keeper.get("/").text(), "second");
    }
    assert_eq!(first.seen().len(), before);
    go.send(()).unwrap();
    assert_eq!(slow.answer().text(), "first");
    until("the end of the connections to the drained server", || {
        first.server.current() == 0
    });
    let output = bed.balancer.command(&["undrain", first.address()]).unwrap();
    assert!(output.status.success(), "{output:?}");
    until("the first server", || keeper.get("/").text() == "first");
}

fn a_reload_removes_and_adds_servers_under_load(io: &str) {
    let names = ["aaa", "bbb", "ccc"];
    let origins = names.map(Origin::named);
    let addresses: Vec<&str> = origins.iter().map(Origin::address).collect();
    let bed = Bed::of(io, &addresses[..2], "");
    let config = |servers: &[&str]| {
        let engine = format!("[engine]\nio = {io:?}\nworkers = 2\n");
        format!("{engine}{}", service(&bed.listen, servers, ""))
    };
    let seen = under_load(&bed.listen, 4, |more| {
        for round in 0..9 {
            more(50);
            let servers = [addresses[round % 3], addresses[(round + 1) % 3]];
            bed.balancer.reload(&config(&servers)).unwrap();
        }
        more(50);
        // The last reload has taken bbb away.
        until("no connection to it", || origins[1].server.current() == 0);
    });
    assert_only(&seen, &names);
    assert_eq!(seen.len(), 3, "{seen:?}");
}

fn a_websocket_survives_a_reload(io: &str) {
    let (first, second) = (echoing(), Origin::named("second"));
    let bed = Bed::new(io, &[&first], "");
    let mut socket = open(&bed);
    assert_echo(&mut socket, b"before");
    let engine = format!("[engine]\nio = {io:?}\nworkers = 2\n");
    let config = format!("{engine}{}", service(&bed.listen, &[second.address()], ""));
    bed.balancer.reload(&config).unwrap();
    until("the other server", || {
        bed.client().get("/").text() == "second"
    });
    assert_echo(&mut socket, b"after");
}

fn an_upgrade_cuts_no_client_and_no_websocket(io: &str) {
    let (origin, sockets) = (Origin::named("web"), echoing());
    let listens = [(), ()].map(|()| peer::own_address(peer::Kind::V4));
    let named = |name, listen: &str, server: &Origin| {
        peer::named_service(name, listen, &[server.address()], "protocol = \"http\"\n")
    };
    let services = [
        named("web", &listens[0], &origin),
        named("sockets", &listens[1], &sockets),
    ];
    let engine = format!("[engine]\nio = {io:?}\nworkers = 2\nshutdown_limit_ms = 60000\n");
    let config = format!("{engine}{}", services.concat());
    let bed = Bed {
        listen: listens[1].clone(),
        balancer: evenkeel_lab::Balancer::start(&config).unwrap(),
    };
    let mut socket = open(&bed);
    let seen = under_load(&listens[0], 6, |more| {
        more(100);
        for _ in 0..3 {
            assert_echo(&mut socket, b"before");
            let old = bed.balancer.pid();
            bed.balancer.upgrade(&[]).unwrap();
            assert_ne!(old, bed.balancer.pid());
            more(200);
            assert_echo(&mut socket, b"after");
            drop(std::mem::replace(&mut socket, open(&bed)));
            until("the end of the old process", || {
                bed.balancer.pids().len() == 1
            });
        }
    });
    println!("{io}: {seen:?}");
    let failed: Vec<_> = seen
        .keys()
        .filter(|key| !key.starts_with("200 ") && *key != "closed")
        .collect();
    assert!(failed.is_empty(), "{seen:?}");
}

fn a_stopping_process_finishes_requests(io: &str) {
    let (go, gate) = std::sync::mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let origin = Origin::new(move |seen| {
        if seen.path() == "/slow" {
            let _ = gate.lock().unwrap().recv();
        }
        Some(ok("done"))
    });
    let bed = Bed::new(io, &[&origin], "");
    let mut idle = bed.client();
    assert_eq!(idle.get("/").status, 200);
    let mut slow = bed.client();
    slow.send(crate::client::get("/slow"));
    until("the slow request", || origin.seen().len() == 2);
    bed.balancer.signal(libc::SIGTERM);
    assert_eq!(idle.end(), Ended::Clean, "an idle client is closed");
    peer::stays("it waits", Duration::from_millis(200), || {
        bed.balancer.is_running()
    });
    go.send(()).unwrap();
    let answer = slow.answer();
    assert_eq!(answer.text(), "done");
    assert_eq!(answer.field("Connection").as_deref(), Some("close"));
    assert_eq!(slow.end(), Ended::Clean);
    until("the end of the process", || !bed.balancer.is_running());
}

fn without_a_server_requests_are_a_503(io: &str) {
    let origin = Origin::named("back");
    let address = origin.address().to_owned();
    let health = "[service.health]\nprobe = \"tcp\"\ninterval_ms = 50\nfall = 2\nrise = 2\n";
    let bed = Bed::of(io, &[&address], health);
    let mut client = bed.client();
    assert_eq!(client.get("/").text(), "back");
    origin.stop_listening();
    origin.close_connections();
    drop(origin);
    until("no server", || matches!(client.get("/").status, 503));
    let answer = client.post("/", "x");
    assert_eq!(answer.status, 503, "{}", answer.text());
    assert!(answer.field("Retry-After").is_some());
    let _back = Origin::on(peer::Listening::at(&address), |incoming, _| {
        while incoming.request().is_some() {
            crate::origin::reply(incoming.socket, ok("back"));
        }
    });
    until_service(&bed.balancer, "the server", |service| {
        service["servers"][0]["state"] == "up"
    });
    assert_eq!(client.get("/").text(), "back");
}
