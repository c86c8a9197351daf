//! Reads over a new connection every few milliseconds and records which server answered.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use anyhow::Result;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep_until};

use crate::sysbench::Driver;
use crate::write_probe::Client;

/// Options of a reader.
#[derive(Clone, Copy, Debug)]
pub struct ReadProbeOptions {
    /// Database protocol.
    pub driver: Driver,
    /// Address, usually a balancer's port; the reader logs in as `sbtest` to the database `sbtest`.
    pub address: SocketAddr,
    /// Time between two reads; each begins after the end of its predecessor.
    pub every: Duration,
    /// Limit for one read, with its connection.
    pub limit: Duration,
    /// Expression for the port of the server that answers; `None` means the server's setting.
    pub port: Option<&'static str>,
}

impl ReadProbeOptions {
    /// Returns options for a read every 20 ms, with a long limit like a client's.
    pub fn new(driver: Driver, address: SocketAddr) -> ReadProbeOptions {
        ReadProbeOptions {
            driver,
            address,
            every: Duration::from_millis(20),
            limit: Duration::from_secs(10),
            port: None,
        }
    }
}

/// One read.
#[derive(Clone, Debug)]
pub struct Reading {
    /// Start of the connection.
    pub started: SystemTime,
    /// Time of the answer or failure.
    pub ended: SystemTime,
    /// Port of the server that answered, as the server reports it, or the reason why there is no
    /// answer.
    pub outcome: Result<u16, String>,
}

/// A background reader that runs until [`ReadProbe::finish`].
pub struct ReadProbe {
    ended: Arc<AtomicBool>,
    readings: Arc<Mutex<Vec<Reading>>>,
    reader: Option<JoinHandle<()>>,
}

impl ReadProbe {
    /// Starts the reads.
    pub fn start(options: ReadProbeOptions) -> Result<ReadProbe> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let ended = Arc::new(AtomicBool::new(false));
        let readings = Arc::new(Mutex::new(Vec::new()));
        let (stop, notes) = (ended.clone(), readings.clone());
        let reader = thread::spawn(move || {
            runtime.block_on(read_until(&stop, &notes, options));
        });
        Ok(ReadProbe {
            ended,
            readings,
            reader: Some(reader),
        })
    }

    /// Returns all reads so far, in order.
    pub fn so_far(&self) -> Vec<Reading> {
        self.readings
            .lock()
            .expect("no holder of the lock panics")
            .clone()
    }

    /// Returns the ports of the servers that answered reads begun at this time or later.
    pub fn answered_since(&self, instant: SystemTime) -> Vec<u16> {
        let readings = self.so_far();
        let later = readings.iter().filter(|one| one.started >= instant);
        later.filter_map(|one| one.outcome.clone().ok()).collect()
    }

    /// Stops reading and returns all reads.
    pub fn finish(mut self) -> Vec<Reading> {
        self.end();
        self.so_far()
    }

    fn end(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Drop for ReadProbe {
    fn drop(&mut self) {
        self.end();
    }
}

async fn read_until(stop: &AtomicBool, notes: &Mutex<Vec<Reading>>, options: ReadProbeOptions) {
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        sleep_until(next).await;
        next = Instant::now() + options.every;
        let started = SystemTime::now();
        let outcome = tokio::time::timeout(options.limit, read(options)).await;
        let outcome = match outcome {
            Ok(answer) => answer.map_err(|error| format!("{error:#}")),
            Err(_) => Err(format!("no answer in {} ms", options.limit.as_millis())),
        };
        let reading = Reading {
            started,
            ended: SystemTime::now(),
            outcome,
        };
        notes
            .lock()
            .expect("no holder of the lock panics")
            .push(reading);
    }
}

async fn read(options: ReadProbeOptions) -> Result<u16> {
    let mut client = Client::connect(options.driver, options.address, options.limit).await?;
    match options.port {
        Some(expression) => client.number(expression).await,
        None => client.port().await,
    }
}
