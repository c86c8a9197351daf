//! Runs the open-loop companion of HTTP loads: requests begin on schedule, independent of earlier
//! ones, and latency counts from the scheduled time.

use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{Latency, Report, Run, Task};
use crate::stop::Stop;
use crate::web::fetch;

/// Time after its scheduled start at which an unanswered request has failed.
const LIMIT: Duration = Duration::from_secs(5);

/// Maximum of concurrent requests, below the file descriptors that every machine allows. Further
/// requests wait, and the wait counts as latency.
const AT_ONCE_MAX: usize = 900;

/// Runs the load in this process, so that its processor time counts as the load's.
pub(super) fn run(task: &Task, rate: f64, stop: &Stop) -> Result<Run> {
    let address = *task.addresses.first().context("no address to load")?;
    let started = std::time::Instant::now();
    let times = Arc::new(Mutex::new(Vec::new()));
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let due = Schedule {
        address,
        request: format!(
            "GET {} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n",
            task.load.path()
        )
        .into(),
        rate,
        count: (rate * f64::from(task.seconds)).ceil() as u32,
    };
    runtime.block_on(due.run(stop, &times))?;
    let took = started.elapsed();
    let mut times_ms = times.lock().expect("no holder of the lock panics").clone();
    times_ms.sort_by(f64::total_cmp);
    let report = report(&times_ms, due.count, took);
    let raw = format!(
        "$ built in: GET http://{address}{} {rate:.0} times a second for {} s, a new connection \
         for each\n{}",
        task.load.path(),
        task.seconds,
        written(&report)
    );
    Ok(Run {
        report: Ok(report),
        raw,
        took,
    })
}

struct Schedule {
    address: SocketAddr,
    request: Arc<str>,
    rate: f64,
    count: u32,
}

impl Schedule {
    /// Begins each request on schedule and waits for all.
    async fn run(&self, stop: &Stop, times: &Arc<Mutex<Vec<f64>>>) -> Result<()> {
        let permits = Arc::new(Semaphore::new(AT_ONCE_MAX));
        let start = Instant::now();
        let mut running = Vec::new();
        for number in 0..self.count {
            if stop.is_asked_for() {
                bail!("interrupted");
            }
            let due = start + Duration::from_secs_f64(f64::from(number) / self.rate);
            sleep_until(due).await;
            let (address, request) = (self.address, self.request.clone());
            let (permits, times) = (permits.clone(), times.clone());
            running.push(tokio::spawn(async move {
                let answer = async {
                    let _place = permits.acquire().await.ok()?;
                    fetch(address, &request).await.ok()
                };
                let answered = timeout_at(due + LIMIT, answer).await;
                if let Ok(Some(())) = answered {
                    let ms = due.elapsed().as_secs_f64() * 1000.0;
                    times.lock().expect("no holder of the lock panics").push(ms);
                }
            }));
        }
        for one in running {
            one.await?;
        }
        Ok(())
    }
}

fn report(times_ms: &[f64], asked: u32, took: Duration) -> Report {
    let at = |part: f64| {
        let index = ((times_ms.len() as f64 * part).ceil() as usize).max(1) - 1;
        times_ms.get(index).copied()
    };
    let count = times_ms.len();
    let sum: f64 = times_ms.iter().sum();
    Report {
        requests: count as u64,
        requests_per_s: count as f64 / took.as_secs_f64().max(0.001),
        errors: u64::from(asked).saturating_sub(count as u64),
        latency: Latency {
            mean: (count > 0).then(|| sum / count as f64),
            p50: at(0.50),
            p95: at(0.95),
            p99: at(0.99),
            max: at(1.0),
        },
        ..Report::default()
    }
}

fn written(report: &Report) -> String {
    let Latency {
        mean,
        p50,
        p95,
        p99,
        max,
    } = report.latency;
    let mut text = format!(
        "answered: {}\nfailed: {}\nanswered per second: {:.1}\n",
        report.requests, report.errors, report.requests_per_s
    );
    for (name, ms) in [
        ("mean", mean),
        ("50%", p50),
        ("95%", p95),
        ("99%", p99),
        ("max", max),
    ] {
        let _ = writeln!(text, "{name}: {:.3} ms since due", ms.unwrap_or(f64::NAN));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write as _};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Starts a server that answers one client at a time, the first one only after `pause`.
    fn server(pause: Duration) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("it can listen");
        let address = listener.local_addr().expect("it listens");
        thread::spawn(move || {
            let mut pause = pause;
            for mut client in listener.incoming().flatten() {
                thread::sleep(std::mem::take(&mut pause));
                let _ = client.read(&mut [0; 1000]);
                let _ = client.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            }
        });
        address
    }

    #[test]
    fn a_stall_shows_in_the_latency_of_all_requests_that_were_due_meanwhile() {
        let due = Schedule {
            address: server(Duration::from_millis(300)),
            request: "GET / HTTP/1.1\r\n\r\n".into(),
            rate: 100.0,
            count: 20,
        };
        let times = Arc::new(Mutex::new(Vec::new()));
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        runtime
            .block_on(due.run(&Stop::default(), &times))
            .expect("it runs");
        let mut times_ms = times.lock().expect("it is not held").clone();
        times_ms.sort_by(f64::total_cmp);
        let seen = report(&times_ms, 20, Duration::from_secs(1));
        assert_eq!((seen.requests, seen.errors), (20, 0));
        // Twenty requests are due within 190 ms; a closed loop would measure only one slow answer.
        assert!(seen.latency.p50.is_some_and(|ms| ms > 150.0), "{seen:?}");
    }
}
