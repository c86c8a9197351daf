//! Reads over a new connection every few milliseconds and notes which server answered.

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

/// Readers to be started.
#[derive(Clone, Copy, Debug)]
pub struct ReadProbeOptions {
    /// Which database.
    pub driver: Driver,
    /// Where, usually a balancer's port; as `sbtest` in the database `sbtest`.
    pub address: SocketAddr,
    /// Time between two reads; none begins before the one before it has ended.
    pub every: Duration,
    /// How long one read may take, with its connection.
    pub limit: Duration,
}

impl ReadProbeOptions {
    /// Every 20 ms; the limit is long, as a client's is.
    pub fn new(driver: Driver, address: SocketAddr) -> ReadProbeOptions {
        ReadProbeOptions {
            driver,
            address,
            every: Duration::from_millis(20),
            limit: Duration::from_secs(10),
        }
    }
}

/// One read.
#[derive(Clone, Debug)]
pub struct Reading {
    /// When its connection was begun.
    pub begun: SystemTime,
    /// When it was answered or had failed.
    pub ended: SystemTime,
    /// The port of the server that answered, as that server has it, or why there is no answer.
    pub outcome: Result<u16, String>,
}

/// A reader that runs in the background until [`ReadProbe::finish`].
pub struct ReadProbe {
    ended: Arc<AtomicBool>,
    readings: Arc<Mutex<Vec<Reading>>>,
    reader: Option<JoinHandle<()>>,
}

impl ReadProbe {
    /// Begins to read.
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

    /// All reads so far, in their order.
    pub fn so_far(&self) -> Vec<Reading> {
        self.readings
            .lock()
            .expect("no holder of the lock panics")
            .clone()
    }

    /// The ports of the servers that answered reads begun at this time or later.
    pub fn answered_since(&self, instant: SystemTime) -> Vec<u16> {
        let readings = self.so_far();
        let later = readings.iter().filter(|one| one.begun >= instant);
        later.filter_map(|one| one.outcome.clone().ok()).collect()
    }

    /// Reads no more; gives all reads.
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
        let begun = SystemTime::now();
        let outcome = tokio::time::timeout(options.limit, read(options)).await;
        let outcome = match outcome {
            Ok(answer) => answer.map_err(|error| format!("{error:#}")),
            Err(_) => Err(format!("no answer in {} ms", options.limit.as_millis())),
        };
        let reading = Reading {
            begun,
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
    client.port().await
}
