//! Opens a new connection every few milliseconds and records each failure.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Check that a server answers on a new connection, in one round trip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Greeting {
    /// MariaDB and MySQL send first: the protocol version is 10.
    Mysql,
    /// PostgreSQL answers an SSLRequest with one letter.
    Postgres,
    /// A web server answers `GET /` with status 200.
    Http,
}

/// A connection that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Start of the connection attempt.
    pub started: Instant,
    /// Time waited before the failure.
    pub waited: Duration,
    /// Description of the failure.
    pub why: String,
}

/// Result of the new connections.
#[derive(Clone, Debug, Default)]
pub struct NewcomersReport {
    /// Number of connections opened.
    pub attempts: u64,
    /// Failures, in the order of their end.
    pub failures: Vec<Failure>,
    /// Longest time until a greeting or a failure.
    pub longest_wait: Duration,
}

/// A background probe that runs until [`NewConnections::finish`].
pub struct NewConnections {
    ended: Arc<AtomicBool>,
    report: Arc<Mutex<NewcomersReport>>,
    opener: Option<JoinHandle<()>>,
}

impl NewConnections {
    /// Opens a connection in intervals of `every`, even while earlier ones wait; each may take
    /// `limit`.
    pub fn start(
        address: SocketAddr,
        greeting: Greeting,
        every: Duration,
        limit: Duration,
    ) -> NewConnections {
        let ended = Arc::new(AtomicBool::new(false));
        let report = Arc::new(Mutex::new(NewcomersReport::default()));
        let (stop, results) = (ended.clone(), report.clone());
        let opener = thread::spawn(move || {
            open_until(&stop, &results, every, || visit(address, greeting, limit));
        });
        NewConnections {
            ended,
            report,
            opener: Some(opener),
        }
    }

    /// Returns the results so far.
    pub fn so_far(&self) -> NewcomersReport {
        self.report
            .lock()
            .expect("no holder of the lock panics")
            .clone()
    }

    /// Stops opening connections, waits for those in progress, and returns the result.
    pub fn finish(mut self) -> NewcomersReport {
        self.end();
        self.so_far()
    }

    fn end(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(opener) = self.opener.take() {
            let _ = opener.join();
        }
    }
}

impl Drop for NewConnections {
    fn drop(&mut self) {
        self.end();
    }
}

struct Visit {
    waited: Duration,
    failure: Option<Failure>,
}

fn open_until(
    ended: &AtomicBool,
    report: &Mutex<NewcomersReport>,
    every: Duration,
    visit: impl Fn() -> Visit + Sync,
) {
    thread::scope(|scope| {
        while !ended.load(Ordering::Relaxed) {
            let visit = &visit;
            scope.spawn(move || {
                let visit = visit();
                let mut report = report.lock().expect("no holder of the lock panics");
                report.attempts += 1;
                report.longest_wait = report.longest_wait.max(visit.waited);
                report.failures.extend(visit.failure);
            });
            thread::sleep(every);
        }
    });
}

fn visit(address: SocketAddr, greeting: Greeting, limit: Duration) -> Visit {
    let started = Instant::now();
    let outcome = greet(address, greeting, limit);
    let waited = started.elapsed();
    let failure = outcome.err().map(|error| Failure {
        started,
        waited,
        why: format!("{error:#}"),
    });
    Visit { waited, failure }
}

/// Opens one connection and waits for the server's greeting.
pub fn greet(address: SocketAddr, greeting: Greeting, limit: Duration) -> Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, limit).context("connect")?;
    stream.set_read_timeout(Some(limit))?;
    match greeting {
        Greeting::Mysql => {
            let first: [u8; 5] = read(&mut stream)?;
            if first[4] != 10 {
                bail!("not a MySQL greeting: {first:02x?}");
            }
        }
        Greeting::Postgres => {
            stream
                .write_all(&[0, 0, 0, 8, 4, 210, 22, 47])
                .context("send")?;
            let [answer] = read(&mut stream)?;
            if !matches!(answer, b'S' | b'N') {
                bail!("not an answer to SSLRequest: {answer:#04x}");
            }
        }
        Greeting::Http => {
            stream
                .write_all(b"GET / HTTP/1.0\r\nHost: lab\r\n\r\n")
                .context("send")?;
            let status: [u8; 12] = read(&mut stream)?;
            if !status.ends_with(b" 200") {
                bail!("not status 200: {:?}", String::from_utf8_lossy(&status));
            }
        }
    }
    Ok(())
}

fn read<const N: usize>(stream: &mut TcpStream) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).context("no greeting")?;
    Ok(bytes)
}
