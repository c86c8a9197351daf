//! Measures the cost of idle connections that have each carried some data.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use evenkeel_lab::{Lab, Server, raise_open_files_limit};

use super::Options;
use super::blocks::{Comparison, Metric, Target, interleaved};
use super::front::{Front, Kind};
use super::program::{Program, programs};
use crate::stop::Stop;

const METRICS: &[Metric] = &[
    Metric {
        name: "kB/connection",
        decimals: 2,
    },
    Metric {
        name: "CPU ms/s",
        decimals: 1,
    },
];
const KINDS: [Kind; 4] = [Kind::IoUring, Kind::Epoll, Kind::Nginx, Kind::Haproxy];
/// Time after the last byte for programs to release memory.
const SETTLE: Duration = Duration::from_secs(1);

pub(crate) fn measure(options: &Options, stop: &Stop) -> Result<()> {
    let lab = Lab::new("idle")?;
    let title = format!(
        "{} idle connections that have each sent a request",
        options.connections
    );
    compare(&title, (&KINDS, Kind::Haproxy), &lab.web(2)?, options, stop)
}

/// Measures memory of these kinds without and with the connections, against a rival. Every run is
/// a new process, so that it starts small.
pub(super) fn compare(
    title: &str,
    (kinds, rival): (&[Kind], Kind),
    servers: &[Server],
    options: &Options,
    stop: &Stop,
) -> Result<()> {
    raise_open_files_limit();
    let comparison = Comparison {
        title,
        metrics: METRICS,
        rival: rival.name(),
        // Memory does not vary from block to block.
        blocks: options.blocks.min(2),
    };
    let programs = programs(kinds, Kind::name, options);
    let mut targets: Vec<Target> = programs
        .iter()
        .map(|program| target(program, servers, options))
        .collect();
    interleaved(&comparison, &mut targets, stop)
}

fn target<'a>(
    program: &'a Program<Kind>,
    servers: &'a [Server],
    options: &'a Options,
) -> Target<'a> {
    let run = move || {
        let front = Front::start(program, servers)?;
        // The first connections trigger one-time allocations in each worker.
        let _warm = (0..20)
            .map(|_| speak(front.address))
            .collect::<Result<Vec<_>>>()?;
        let empty_kb = front.memory_kb();
        let count = options.connections;
        let connections = (0..count)
            .map(|number| {
                speak(front.address).with_context(|| format!("connection {number} of {count}"))
            })
            .collect::<Result<Vec<TcpStream>>>()?;
        sleep(SETTLE);
        let before_us = front.cpu_us();
        sleep(Duration::from_secs(u64::from(options.seconds)));
        let idle_us = front.cpu_us() - before_us;
        let used_kb = front.memory_kb().saturating_sub(empty_kb);
        let per_connection = used_kb as f64 / connections.len() as f64;
        Ok(vec![
            per_connection,
            idle_us as f64 / 1e3 / f64::from(options.seconds),
        ])
    };
    Target {
        name: program.name.clone(),
        run: Box::new(run),
    }
}

/// Sends a request, reads the whole answer, leaves the connection open.
fn speak(address: SocketAddr) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(b"GET /1k HTTP/1.1\r\nHost: lab\r\n\r\n")?;
    let mut answer = Vec::new();
    let mut buffer = [0; 4096];
    while !answer.windows(4).any(|bytes| bytes == b"\r\n\r\n") || answer.len() < 1024 {
        let count = stream.read(&mut buffer)?;
        if count == 0 {
            bail!("closed in the middle of an answer");
        }
        answer.extend_from_slice(&buffer[..count]);
    }
    Ok(stream)
}
