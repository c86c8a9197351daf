//! Detects when servers accept writes, by writing to each of them every millisecond.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};
use mysql_async::prelude::Queryable;
use tokio::runtime::Builder;
use tokio::time::sleep;

use crate::Server;

const TABLE: &str =
    "CREATE TABLE IF NOT EXISTS sbtest.witness (id BIGINT AUTO_INCREMENT PRIMARY KEY)";
const WRITE: &str = "INSERT INTO witness VALUES ()";
/// Duration above which a write had to wait for the cluster.
const GAP: Duration = Duration::from_millis(200);
/// Duration without a gap after which the servers accept writes permanently.
const FOR_GOOD: Duration = Duration::from_millis(250);
const INTERVAL: Duration = Duration::from_millis(1);

/// Writers that connect directly to servers of the MySQL family, beside a balancer.
pub(super) struct Witness {
    started: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
    writes: Receiver<SystemTime>,
}

impl Witness {
    /// Connects to all servers without writing yet. The table is created on the server that accepts
    /// writes, and replicates from there.
    pub(super) fn watch(writable: &Server, servers: Vec<SocketAddr>) -> Result<Witness> {
        writable.sql(TABLE)?;
        let (started, ended) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicBool::new(false)),
        );
        let (ready, are_ready) = channel();
        let (written, writes) = channel();
        let count = servers.len();
        for address in servers {
            let writer = Writer {
                address,
                started: started.clone(),
                ended: ended.clone(),
                ready: ready.clone(),
                written: written.clone(),
            };
            let runtime = Builder::new_current_thread().enable_all().build()?;
            thread::spawn(move || runtime.block_on(writer.run()));
        }
        for _ in 0..count {
            are_ready.recv_timeout(Duration::from_secs(10))??;
        }
        Ok(Witness {
            started,
            ended,
            writes,
        })
    }

    pub(super) fn begin(&self) {
        self.started.store(true, Ordering::SeqCst);
    }

    /// Returns when any of them acknowledged the first of many writes. A write just before the
    /// others detected a node's death does not count.
    pub(super) fn first_write(self, limit: Duration) -> Result<SystemTime> {
        let first = self.writes.recv_timeout(limit);
        first.context("no other server took writes in time")
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::SeqCst);
    }
}

struct Writer {
    address: SocketAddr,
    started: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
    ready: Sender<Result<()>>,
    written: Sender<SystemTime>,
}

impl Writer {
    async fn run(self) {
        let mut connection = match self.connect().await {
            Ok(connection) => Some(connection),
            Err(error) => {
                let _ = self.ready.send(Err(error));
                return;
            }
        };
        let _ = self.ready.send(Ok(()));
        // First of the consecutive writes, by both clocks.
        let mut row: Option<(SystemTime, Instant)> = None;
        while !self.ended.load(Ordering::SeqCst) {
            sleep(INTERVAL).await;
            if !self.started.load(Ordering::SeqCst) {
                continue;
            }
            let started = Instant::now();
            if !self.writes(&mut connection).await {
                row = None;
                continue;
            }
            let going_on = row.filter(|_| started.elapsed() < GAP);
            let (first, since) = going_on.unwrap_or((SystemTime::now(), Instant::now()));
            row = Some((first, since));
            if since.elapsed() > FOR_GOOD {
                let _ = self.written.send(first);
                return;
            }
        }
    }

    async fn writes(&self, connection: &mut Option<mysql_async::Conn>) -> bool {
        if connection.is_none() {
            *connection = self.connect().await.ok();
        }
        let Some(open) = connection else {
            return false;
        };
        match open.query_drop(WRITE).await {
            Ok(()) => true,
            Err(mysql_async::Error::Server(_)) => false,
            Err(_) => {
                *connection = None;
                false
            }
        }
    }

    async fn connect(&self) -> Result<mysql_async::Conn> {
        let options = mysql_async::OptsBuilder::default()
            .ip_or_hostname(self.address.ip().to_string())
            .tcp_port(self.address.port())
            .user(Some("sbtest"))
            .pass(Some("sbtest"))
            .db_name(Some("sbtest"))
            .prefer_socket(false);
        Ok(mysql_async::Conn::new(options).await?)
    }
}
