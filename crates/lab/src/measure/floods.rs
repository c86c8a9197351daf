//! Measures the latency of ordinary clients while others send floods of HTTP/2 frames.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use evenkeel_lab::attack::frames::{END_STREAM, PREFACE, block, data, frame};
use evenkeel_lab::{Balancer, Lab, Server, Service, Wrk, free_port};
use socket2::{Domain, Socket, Type};

use super::Options;
use super::blocks::{Comparison, Metric, Target, interleaved};
use crate::stop::Stop;

/// Ordinary connections, one request after the other on each.
const CLIENTS: u32 = 2;

/// Addresses of the hostile clients. Each connects again when its connection has ended.
const ATTACKERS: [[u8; 4]; 2] = [[127, 0, 0, 2], [127, 0, 0, 3]];

/// Shortest time between two connections of an attacker: attackers that use the processors of the
/// balancer without a limit slow others whatever it does.
const ATTACK_INTERVAL: Duration = Duration::from_millis(1);

/// Frames of a flood on one connection.
const FRAMES: u32 = 1_000;

/// Time after which an attacker ends a connection that the balancer has not ended.
const PATIENCE: Duration = Duration::from_secs(2);

const QUIET: &str = "no flood";

const METRICS: &[Metric] = &[
    Metric {
        name: "p99 us",
        decimals: 0,
    },
    Metric {
        name: "requests/s",
        decimals: 0,
    },
    Metric {
        name: "errors",
        decimals: 0,
    },
    Metric {
        name: "flood connections/s",
        decimals: 0,
    },
    Metric {
        name: "memory kB",
        decimals: 0,
    },
];

/// Name of a flood, and the bytes that an attacker sends after the preface and its SETTINGS.
type Flood = (&'static str, fn() -> Vec<u8>);

const FLOODS: [Flood; 9] = [
    ("rapid reset", || {
        resets(|stream| frame(3, 0, stream, &[0, 0, 0, 8]))
    }),
    ("WINDOW_UPDATE of 0", || {
        resets(|stream| frame(8, 0, stream, &[0; 4]))
    }),
    ("DATA after the end", || {
        resets(|stream| data(stream, "a", 0))
    }),
    ("PING", || frame(6, 0, 0, &[0; 8]).repeat(FRAMES as usize)),
    ("SETTINGS", || frame(4, 0, 0, &[]).repeat(FRAMES as usize)),
    ("CONTINUATION", || {
        let start = frame(1, END_STREAM, 1, &request(b"/1k"));
        [start, frame(9, 0, 1, &[]).repeat(FRAMES as usize)].concat()
    }),
    ("empty DATA", || {
        let post = frame(1, 4, 1, &request(b"/1k"));
        [post, data(1, "", 0).repeat(FRAMES as usize)].concat()
    }),
    ("HPACK bomb", bombs),
    ("slow streams", || {
        let streams = (0..100).map(|number| frame(1, 4, 2 * number + 1, &request(b"/1k")));
        streams.flatten().collect()
    }),
];

/// Measures both drivers with two web servers and a file of 1 kB.
pub(super) fn measure(options: &Options, stop: &Stop) -> Result<()> {
    let lab = Lab::new("floods")?;
    let servers = lab.web(2)?;
    for io in ["io_uring", "epoll"] {
        compare(io, &servers, options, stop)?;
    }
    Ok(())
}

fn compare(io: &str, servers: &[Server], options: &Options, stop: &Stop) -> Result<()> {
    let listen = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let balancer = Balancer::start(&config(io, listen, servers))?;
    let title = format!(
        "{io}: {CLIENTS} ordinary clients, {} hostile ones over HTTP/2",
        ATTACKERS.len()
    );
    let comparison = Comparison {
        title: &title,
        metrics: METRICS,
        rival: QUIET,
        blocks: options.blocks,
    };
    let quiet = Target {
        name: QUIET.to_owned(),
        run: Box::new(|| run(&balancer, listen, &[], options.seconds)),
    };
    let balancer = &balancer;
    let floods = FLOODS.iter().map(|(name, bytes)| Target {
        name: (*name).to_owned(),
        run: Box::new(move || run(balancer, listen, &bytes(), options.seconds)),
    });
    let mut targets: Vec<Target<'_>> = std::iter::once(quiet).chain(floods).collect();
    interleaved(&comparison, &mut targets, stop)
}

/// Returns a service for both versions of HTTP in plaintext.
fn config(io: &str, listen: SocketAddr, servers: &[Server]) -> String {
    let mut service = Service::new("measured", listen, "tcp", servers);
    service.protocol = "http".to_owned();
    let service = service.toml();
    format!("[engine]\nio = \"{io}\"\nworkers = 2\n\n{service}\n[service.http]\nhttp2 = \"all\"\n")
}

/// Measures ordinary clients while the flood goes on; an empty flood has no attackers.
fn run(balancer: &Balancer, listen: SocketAddr, flood: &[u8], seconds: u32) -> Result<Vec<f64>> {
    let wrk = Wrk {
        address: listen,
        path: "/1k".to_owned(),
        connections: CLIENTS,
        seconds,
        keep_alive: true,
        fields: &[],
    };
    let start = [PREFACE, &frame(4, 0, 0, &[])].concat();
    let bytes = [&start[..], flood].concat();
    let (is_over, connections) = (AtomicBool::new(false), AtomicU64::new(0));
    let (is_over, connections, bytes) = (&is_over, &connections, &bytes);
    let attackers = ATTACKERS.iter().filter(|_| !flood.is_empty());
    let report = thread::scope(|scope| {
        for from in attackers {
            scope.spawn(move || {
                while !is_over.load(Relaxed) {
                    let next = Instant::now() + ATTACK_INTERVAL;
                    // A refused or reset connection is one that has ended.
                    let _ = attack(*from, listen, bytes);
                    connections.fetch_add(1, Relaxed);
                    thread::sleep(next.saturating_duration_since(Instant::now()));
                }
            });
        }
        let report = wrk.run();
        is_over.store(true, Relaxed);
        report
    })?;
    Ok(vec![
        report.latency_p99_us,
        report.requests_per_s,
        report.errors as f64,
        connections.load(Relaxed) as f64 / f64::from(seconds),
        balancer.memory_kb() as f64,
    ])
}

/// Sends the bytes, and reads until the balancer ends the connection.
fn attack(from: [u8; 4], listen: SocketAddr, bytes: &[u8]) -> std::io::Result<()> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((from, 0)).into())?;
    socket.connect(&listen.into())?;
    let mut socket = TcpStream::from(socket);
    socket.set_write_timeout(Some(PATIENCE))?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.write_all(bytes)?;
    let mut block = [0; 16_384];
    while socket.read(&mut block)? > 0 {}
    Ok(())
}

/// Returns the field block of a GET.
fn request(path: &[u8]) -> Vec<u8> {
    block(&[
        (b":method", b"GET"),
        (b":scheme", b"http"),
        (b":authority", b"web.example"),
        (b":path", path),
    ])
}

/// Returns requests, each with a frame that resets its stream or makes the balancer reset it.
fn resets(second: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    let streams = (0..FRAMES).map(|number| 2 * number + 1);
    let pairs = streams.map(|stream| {
        let head = frame(1, 4 | END_STREAM, stream, &request(b"/1k"));
        [head, second(stream)].concat()
    });
    pairs.flatten().collect()
}

/// Returns heads that refer many times to a large entry of the table (RFC 7541 §6.1), from a client
/// whose windows are shut.
fn bombs() -> Vec<u8> {
    let window = frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]);
    // A literal with incremental indexing, then the newest entry again and again.
    let entry = [&[0x40][..], &block(&[(b"x-a", &[b'b'; 4_000])])[1..]].concat();
    let head = [request(b"/bomb"), entry, vec![0xbe; 12_000]].concat();
    let heads = (0..50).map(|number| frame(1, 4 | END_STREAM, 2 * number + 1, &head));
    heads.fold(window, |bytes, head| [bytes, head].concat())
}
