//! Writes one row with a unique id every few milliseconds and records the outcome of each.

mod client;
mod log;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use tokio::runtime::{Builder, Runtime};
use tokio::time::{Instant, sleep_until};

use crate::Server;
use crate::sysbench::Driver;
pub(crate) use client::Client;
pub use log::{Attempt, Outage, Outcome, Verification, WriteLog};

/// Options of a probe.
#[derive(Clone, Copy, Debug)]
pub struct WriteProbeOptions {
    /// Database protocol.
    pub driver: Driver,
    /// Address, usually a balancer's port; the probe logs in as `sbtest` to the database `sbtest`.
    pub address: SocketAddr,
    /// Time between two writes; each begins after the end of its predecessor.
    pub every: Duration,
    /// Limit for a connection with its login.
    pub connect_limit: Duration,
    /// Limit for a write.
    pub write_limit: Duration,
}

impl WriteProbeOptions {
    /// Returns options for a write every 10 ms, with short limits, so that a gap has its real
    /// length.
    pub fn new(driver: Driver, address: SocketAddr) -> WriteProbeOptions {
        WriteProbeOptions {
            driver,
            address,
            every: Duration::from_millis(10),
            connect_limit: Duration::from_millis(250),
            write_limit: Duration::from_millis(500),
        }
    }
}

/// A background probe that runs until [`WriteProbe::finish`].
pub struct WriteProbe {
    options: WriteProbeOptions,
    run: u64,
    ended: Arc<AtomicBool>,
    attempts: Arc<Mutex<Vec<Attempt>>>,
    writer: Option<JoinHandle<()>>,
}

impl WriteProbe {
    /// Creates the table, unless it exists, and starts the writes.
    pub fn start(options: WriteProbeOptions) -> Result<WriteProbe> {
        let runtime = runtime()?;
        runtime.block_on(create_table(&options)).with_context(|| {
            format!(
                "the write probe cannot make its table on {}",
                options.address
            )
        })?;
        let run = SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros();
        let run = u64::try_from(run)?;
        let ended = Arc::new(AtomicBool::new(false));
        let attempts = Arc::new(Mutex::new(Vec::new()));
        let (stop, notes) = (ended.clone(), attempts.clone());
        let writer = thread::spawn(move || {
            let mut writer = Writer {
                options,
                run,
                client: None,
            };
            runtime.block_on(writer.write_until(&stop, &notes));
        });
        Ok(WriteProbe {
            options,
            run,
            ended,
            attempts,
            writer: Some(writer),
        })
    }

    /// Returns the log so far.
    pub fn so_far(&self) -> WriteLog {
        let attempts = self.attempts.lock().expect("no holder of the lock panics");
        WriteLog {
            driver: self.options.driver,
            run: self.run,
            attempts: attempts.clone(),
        }
    }

    /// Stops writing and returns the log.
    pub fn finish(mut self) -> WriteLog {
        self.end();
        self.so_far()
    }

    fn end(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

impl Drop for WriteProbe {
    fn drop(&mut self) {
        self.end();
    }
}

impl WriteLog {
    /// Compares the writes with this server's rows.
    pub fn verify(&self, server: &Server) -> Result<Verification> {
        Ok(Verification::new(&self.attempts, &self.rows(server)?))
    }

    /// Returns this server's rows: id, and port of the server that accepted the write.
    pub fn rows(&self, server: &Server) -> Result<Vec<(u64, u16)>> {
        let limit = Duration::from_secs(10);
        let rows = runtime()?.block_on(async {
            let mut client = Client::connect(self.driver, server.address, limit).await?;
            client.rows(self.run).await
        });
        rows.with_context(|| format!("the rows of the write probe on {}", server.name))
    }
}

struct Writer {
    options: WriteProbeOptions,
    run: u64,
    client: Option<Client>,
}

impl Writer {
    async fn write_until(&mut self, stop: &AtomicBool, notes: &Mutex<Vec<Attempt>>) {
        let mut next = Instant::now();
        for id in 1.. {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            sleep_until(next).await;
            next = Instant::now() + self.options.every;
            let started = SystemTime::now();
            let outcome = self.write(id).await;
            let attempt = Attempt {
                id,
                started,
                ended: SystemTime::now(),
                outcome,
            };
            let has_failed = attempt.outcome != Outcome::Acknowledged;
            notes
                .lock()
                .expect("no holder of the lock panics")
                .push(attempt);
            if has_failed {
                self.client = self.connect().await.ok();
            }
        }
    }

    async fn write(&mut self, id: u64) -> Outcome {
        if self.client.is_none() {
            match self.connect().await {
                Ok(client) => self.client = Some(client),
                Err(error) => return Outcome::NotSent(format!("{error:#}")),
            }
        }
        match &mut self.client {
            Some(client) => client.write(self.run, id, self.options.write_limit).await,
            None => Outcome::NotSent("no connection".to_owned()),
        }
    }

    async fn connect(&self) -> Result<Client> {
        let WriteProbeOptions {
            driver, address, ..
        } = self.options;
        Client::connect(driver, address, self.options.connect_limit).await
    }
}

async fn create_table(options: &WriteProbeOptions) -> Result<()> {
    let limit = Duration::from_secs(10);
    let mut client = Client::connect(options.driver, options.address, limit).await?;
    client.create_table().await
}

fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}
