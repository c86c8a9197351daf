//! Tests of reloads, drains, upgrades and ends under load, and of what logs and status say.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use serde_json::Value;

use crate::clients::{command, run};
use crate::frames::{GoAway, Http2, NO_ERROR, data, headers, request};
use crate::origin::{Origin, ok};
use crate::peer::{self, until};
use crate::{Bed, on_both_drivers, service};

on_both_drivers! {
    h2load_fails_nothing_while_servers_are_drained_and_reloaded
    an_upgrade_fails_no_request
    an_idle_connection_ends_with_go_away
    a_stopping_process_finishes_streams
    a_stop_cuts_streams_at_its_limit
    a_service_that_moves_keeps_its_connections
    the_access_log_and_the_status_count_streams
}

fn config(io: &str, listen: &str, servers: &[&Origin], more: &str) -> String {
    let engine = format!("[engine]\nio = {io:?}\nworkers = 2\nshutdown_limit_ms = 60000\n");
    format!("{engine}{}", service(listen, servers, more))
}

fn h2load_fails_nothing_while_servers_are_drained_and_reloaded(io: &str) {
    let names = ["first", "second"];
    let [first, second] = names.map(Origin::named);
    let bed = Bed::new(io, &[&first, &second], "");
    let Some(mut h2load) = command("h2load") else {
        return;
    };
    h2load.args(["-n30000", "-c4", "-m20", &format!("http://{}/", bed.listen)]);
    let load = std::thread::spawn(move || run(h2load, b""));
    for round in 0.. {
        let goal = first.seen().len() + second.seen().len() + 500;
        until("more requests", || {
            load.is_finished() || first.seen().len() + second.seen().len() >= goal
        });
        if load.is_finished() {
            assert!(round >= 6, "{round} rounds");
            break;
        }
        let server = [&first, &second][round % 2];
        match round % 6 {
            0 | 1 => {
                let drain = bed.balancer.command(&["drain", server.address()]).unwrap();
                assert!(drain.status.success(), "{drain:?}");
                let undrain = bed.balancer.command(&["undrain", server.address()]);
                assert!(undrain.unwrap().status.success());
            }
            2 | 3 => {
                let config = config(io, &bed.listen, &[server], "");
                bed.balancer.reload(&config).unwrap();
            }
            _ => {
                let config = config(io, &bed.listen, &[&first, &second], "");
                bed.balancer.reload(&config).unwrap();
            }
        }
    }
    let printed = load.join().unwrap();
    let summary = "30000 succeeded, 0 failed, 0 errored, 0 timeout";
    assert!(printed.contains(summary), "{printed}");
    assert!(printed.contains("30000 2xx"), "{printed}");
}

/// Asks for ten pages concurrently, again and again. A stream after the last one that GOAWAY names
/// is not processed; all others must be answered.
fn load(listen: &str, over: &AtomicBool, count: &AtomicU64, connections: &AtomicU64) {
    while !over.load(SeqCst) {
        let mut client = Http2::connect(listen);
        connections.fetch_add(1, SeqCst);
        while client.go_away.is_empty() && !client.is_over && !over.load(SeqCst) {
            let streams: Vec<u32> = (0..10).map(|_| client.stream()).collect();
            let heads = streams.iter();
            let heads: Vec<u8> = heads
                .flat_map(|stream| headers(*stream, &request("GET", "/", &[]), true))
                .collect();
            client.send(heads);
            for stream in streams {
                let response = client.response(stream);
                if response.is_complete {
                    assert_eq!(response.status(), 200, "{response:?}");
                    count.fetch_add(1, SeqCst);
                    continue;
                }
                let last = client.go_away.last().unwrap_or_else(|| {
                    panic!("a stream of {} is cut: {response:?}", client.is_over)
                });
                assert!(
                    last.code == NO_ERROR && last.last < stream,
                    "{last:?} {stream}"
                );
            }
        }
    }
}

fn an_upgrade_fails_no_request(io: &str) {
    let origin = Origin::named("web");
    let listen = peer::own_address(peer::Kind::V4);
    let balancer = evenkeel_lab::Balancer::start(&config(io, &listen, &[&origin], "")).unwrap();
    let (over, count) = (AtomicBool::new(false), AtomicU64::new(0));
    let connections = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let end = SetOnDrop(&over);
        for _ in 0..4 {
            scope.spawn(|| load(&listen, &over, &count, &connections));
        }
        let more = |more: u64| {
            let goal = count.load(SeqCst) + more;
            until("more requests", || count.load(SeqCst) >= goal);
        };
        more(500);
        for _ in 0..3 {
            let old = balancer.pid();
            balancer.upgrade(&[]).unwrap();
            assert_ne!(old, balancer.pid());
            more(500);
            until("the end of the old process", || balancer.pids().len() == 1);
        }
        drop(end);
    });
    // Each upgrade has the clients open another connection.
    assert!(connections.load(SeqCst) >= 4 * 4);
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

fn an_idle_connection_ends_with_go_away(io: &str) {
    let origin = Origin::new(|seen| {
        std::thread::sleep(Duration::from_millis(
            u64::from(seen.path() == "/slow") * 1_500,
        ));
        Some(ok(seen.path()))
    });
    let bed = Bed::new(io, &[&origin], "[service.times]\nkeepalive_ms = 500\n");
    // A stream holds the connection; the limit counts from its end.
    let mut client = bed.client();
    assert_eq!(client.ask("GET", "/slow", &[]).text(), "/slow");
    assert_eq!(client.ask("GET", "/next", &[]).text(), "/next");
    let mut silent = bed.client();
    for (client, last) in [(&mut client, 3), (&mut silent, 0)] {
        let expected = [(0x7fff_ffff, NO_ERROR), (last, NO_ERROR)];
        client.end();
        let frames: Vec<_> = client
            .go_away
            .iter()
            .map(|own| (own.last, own.code))
            .collect();
        assert_eq!(frames, expected);
    }
}

/// Returns a server of which `/slow` waits for the sender.
fn gated() -> (mpsc::Sender<()>, Origin) {
    let (go, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let origin = Origin::new(move |seen| {
        if seen.path() == "/slow" {
            let _ = gate.lock().unwrap().recv();
        }
        Some(ok("done"))
    });
    (go, origin)
}

fn a_stopping_process_finishes_streams(io: &str) {
    let (go, origin) = gated();
    let bed = Bed::new(io, &[&origin], "");
    let mut idle = bed.client();
    assert_eq!(idle.ask("GET", "/", &[]).status(), 200);
    let mut busy = bed.client();
    let slow = busy.stream();
    busy.send(headers(slow, &request("GET", "/slow", &[]), true));
    let upload = busy.open("POST", "/upload", &[]);
    until("the slow request", || {
        origin.paths().contains(&"/slow".to_owned())
    });
    bed.balancer.signal(libc::SIGTERM);
    assert_eq!(idle.end().map(|end| end.code), Some(NO_ERROR));
    busy.until(|own| own.go_away.len() == 2);
    let late = busy.stream();
    busy.send(headers(late, &request("GET", "/late", &[]), true));
    peer::stays("it waits", Duration::from_millis(200), || {
        bed.balancer.is_running()
    });
    busy.send(data(upload, "abc", true));
    go.send(()).unwrap();
    for stream in [slow, upload] {
        assert_eq!(busy.response(stream).text(), "done");
    }
    let end = busy.end();
    assert!(
        matches!(
            end,
            Some(GoAway {
                last: 3,
                code: NO_ERROR,
                ..
            })
        ),
        "{end:?}"
    );
    assert!(!origin.paths().contains(&"/late".to_owned()));
    until("the end of the process", || !bed.balancer.is_running());
}

fn a_stop_cuts_streams_at_its_limit(io: &str) {
    let (_go, origin) = gated();
    let listen = peer::own_address(peer::Kind::V4);
    let config = config(io, &listen, &[&origin], "").replace("= 60000", "= 3000");
    let balancer = evenkeel_lab::Balancer::start(&config).unwrap();
    let mut client = Http2::connect(&listen);
    let slow = client.stream();
    client.send(headers(slow, &request("GET", "/slow", &[]), true));
    until("the slow request", || origin.seen().len() == 1);
    balancer.signal(libc::SIGTERM);
    assert_eq!(client.end().map(|end| end.code), Some(NO_ERROR));
    assert!(!client.so_far(slow).is_complete);
    until("the end of the process", || !balancer.is_running());
}

fn a_service_that_moves_keeps_its_connections(io: &str) {
    let origin = Origin::named("web");
    let bed = Bed::new(io, &[&origin], "");
    let mut client = bed.client();
    assert_eq!(client.ask("GET", "/", &[]).status(), 200);
    let other = peer::own_address(peer::Kind::V4);
    bed.balancer
        .reload(&config(io, &other, &[&origin], ""))
        .unwrap();
    let mut moved = Http2::connect(&other);
    assert_eq!(moved.ask("GET", "/", &[]).status(), 200);
    assert_eq!(client.ask("GET", "/", &[]).status(), 200);
}

fn the_access_log_and_the_status_count_streams(io: &str) {
    let origin = Origin::named("web");
    let bed = Bed::new(io, &[&origin], "access_log = \"json\"\n");
    let mut client = bed.client();
    for number in 0..5 {
        let response = client.ask("GET", &format!("/{number}"), &[]);
        assert_eq!(response.status(), 200);
    }
    let requests = || {
        let log = bed.balancer.log();
        let lines = log
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok());
        let requests = lines.filter(|line: &Value| line["event"] == "request");
        requests.collect::<Vec<Value>>()
    };
    until("the lines of the log", || requests().len() == 5);
    for (number, line) in requests().iter().enumerate() {
        assert_eq!(line["version"], "2", "{line}");
        assert_eq!(line["target"], format!("/{number}"), "{line}");
        assert_eq!(
            (&line["status"], &line["end"]),
            (&200.into(), &"complete".into())
        );
        assert_eq!(line["method"], "GET", "{line}");
        assert_eq!(line["host"], "web.example", "{line}");
    }
    let status = bed.status();
    assert_eq!(status["sessions"]["current"], 1, "{status}");
    assert_eq!(status["sessions"]["total"], 1, "{status}");
    drop(client);
    until("no session", || bed.status()["sessions"]["current"] == 0);
}
