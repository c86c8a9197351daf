//! Measures the transfer of one gigabyte through one connection.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use evenkeel_lab::Lab;

use super::Options;
use super::blocks::{Comparison, Metric, Target, interleaved};
use super::front::{ALL, Front, Kind};
use crate::stop::Stop;

const METRICS: &[Metric] = &[
    Metric {
        name: "MB/s",
        decimals: 0,
    },
    Metric {
        name: "CPU ms/GB",
        decimals: 0,
    },
];
const FILE_BYTES: u64 = 1 << 30;
const STALL_LIMIT: Duration = Duration::from_secs(30);

pub(crate) fn measure(options: &Options, stop: &Stop) -> Result<()> {
    let lab = Lab::new("transfer")?;
    let fronts = Front::start_all(&ALL, &lab.web(1)?, options)?;
    // A warm-up: afterwards the file comes from the page cache for all fronts.
    if let Some(front) = fronts.first() {
        receive(front.address)?;
    }
    let comparison = Comparison {
        title: "1 GB through one connection",
        metrics: METRICS,
        rival: Kind::Haproxy.name(),
        blocks: options.blocks,
    };
    let mut targets: Vec<Target> = fronts.iter().map(target).collect();
    interleaved(&comparison, &mut targets, stop)
}

fn target(front: &Front) -> Target<'_> {
    let run = move || {
        let (before, began) = (front.cpu_us(), Instant::now());
        let bytes = receive(front.address)?;
        let seconds = began.elapsed().as_secs_f64();
        let used_ms = (front.cpu_us() - before) as f64 / 1e3;
        Ok(vec![bytes as f64 / 1e6 / seconds, used_ms])
    };
    Target {
        name: front.name.clone(),
        run: Box::new(run),
    }
}

/// Receives the file and returns its length in bytes, headers included.
fn receive(address: SocketAddr) -> Result<u64> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(STALL_LIMIT))?;
    stream.write_all(b"GET /1g HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n")?;
    let mut buffer = vec![0; 256 << 10];
    let mut received = 0;
    loop {
        match stream.read(&mut buffer)? {
            0 => break,
            bytes => received += bytes as u64,
        }
    }
    if received < FILE_BYTES {
        bail!("{} bytes are missing", FILE_BYTES - received);
    }
    Ok(received)
}
