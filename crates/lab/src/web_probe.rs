//! Requests a page over a new connection every few milliseconds, independent of earlier requests,
//! and records the results.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime};

use anyhow::Result;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep_until, timeout};

use crate::web::fetch;

/// Options of a probe.
#[derive(Clone, Debug)]
pub struct WebProbeOptions {
    /// Address, usually a balancer's port.
    pub address: SocketAddr,
    /// Path of the page.
    pub page: String,
    /// Time between the starts of two tries.
    pub every: Duration,
    /// Limit for a try.
    pub limit: Duration,
}

impl WebProbeOptions {
    /// Returns options for a request every 10 ms, with a short limit, so that a gap has its real
    /// length.
    pub fn new(address: SocketAddr, page: &str) -> WebProbeOptions {
        WebProbeOptions {
            address,
            page: page.to_owned(),
            every: Duration::from_millis(10),
            limit: Duration::from_millis(250),
        }
    }
}

/// One request.
#[derive(Clone, Debug)]
pub struct Try {
    /// Start of its connection.
    pub started: SystemTime,
    /// Time of the answer or failure.
    pub ended: SystemTime,
    /// Reason of a failure.
    pub failure: Option<String>,
}

/// Consecutive failed requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Start of the first failed request.
    pub first_error: SystemTime,
    /// Time at which a later request was answered; `None` while the gap continues.
    pub first_success: Option<SystemTime>,
}

/// A background probe that runs until [`WebProbe::finish`].
pub struct WebProbe {
    is_over: Arc<AtomicBool>,
    tries: Arc<Mutex<Vec<Try>>>,
    requester: Option<JoinHandle<()>>,
}

impl WebProbe {
    /// Starts the requests.
    pub fn start(options: WebProbeOptions) -> Result<WebProbe> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let is_over = Arc::new(AtomicBool::new(false));
        let tries = Arc::new(Mutex::new(Vec::new()));
        let (over, notes) = (is_over.clone(), tries.clone());
        let requester = thread::spawn(move || {
            runtime.block_on(send_until(&over, &notes, &options));
        });
        Ok(WebProbe {
            is_over,
            tries,
            requester: Some(requester),
        })
    }

    /// Returns all completed tries so far, in the order in which they were begun.
    pub fn so_far(&self) -> Vec<Try> {
        let mut tries = self
            .tries
            .lock()
            .expect("no holder of the lock panics")
            .clone();
        tries.sort_by_key(|one| one.started);
        tries
    }

    /// Stops the requests and returns all tries.
    pub fn finish(mut self) -> Vec<Try> {
        self.end();
        self.so_far()
    }

    fn end(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(requester) = self.requester.take() {
            let _ = requester.join();
        }
    }
}

impl Drop for WebProbe {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns each gap of failed requests.
pub fn gaps(tries: &[Try]) -> Vec<Gap> {
    let mut gaps: Vec<Gap> = Vec::new();
    let mut goes_on = false;
    for one in tries {
        match (&one.failure, gaps.last_mut()) {
            (Some(_), _) if !goes_on => gaps.push(Gap {
                first_error: one.started,
                first_success: None,
            }),
            // The fastest request begun after the gap ends it.
            (None, Some(gap)) => {
                let end = gap.first_success.unwrap_or(one.ended);
                gap.first_success = Some(end.min(one.ended));
            }
            _ => {}
        }
        goes_on = one.failure.is_some();
    }
    gaps
}

/// Returns the longest time between two answers that arrived in this interval.
pub fn longest_silence(tries: &[Try], from: SystemTime, until: SystemTime) -> Option<Duration> {
    let answered = tries.iter().filter(|one| one.failure.is_none());
    let mut ends: Vec<SystemTime> = answered.map(|one| one.ended).collect();
    ends.sort();
    let pairs = ends.windows(2);
    let pairs = pairs.filter(|pair| pair[1] >= from && pair[0] <= until);
    pairs
        .filter_map(|pair| pair[1].duration_since(pair[0]).ok())
        .max()
}

async fn send_until(over: &AtomicBool, notes: &Arc<Mutex<Vec<Try>>>, options: &WebProbeOptions) {
    let request: Arc<str> = format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
        options.page, options.address
    )
    .into();
    let start = Instant::now();
    let mut running = Vec::new();
    for number in 0.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        sleep_until(start + options.every * number).await;
        let (address, request, notes) = (options.address, request.clone(), notes.clone());
        let limit = options.limit;
        running.push(tokio::spawn(async move {
            let started = SystemTime::now();
            let failure = match timeout(limit, fetch(address, &request)).await {
                Ok(answer) => answer.err().map(|error| format!("{error:#}")),
                Err(_) => Some(format!("no answer in {} ms", limit.as_millis())),
            };
            let one = Try {
                started,
                ended: SystemTime::now(),
                failure,
            };
            notes
                .lock()
                .expect("no holder of the lock panics")
                .push(one);
        }));
        running.retain(|one| !one.is_finished());
    }
    for one in running {
        let _ = one.await;
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::UNIX_EPOCH;

    use super::*;

    fn at(ms: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(ms)
    }

    /// One try each 10 ms that takes 1 ms, or 250 if it fails.
    fn tries(words: &[&str]) -> Vec<Try> {
        let one = |(number, word): (u64, &&str)| Try {
            started: at(number * 10),
            ended: at(number * 10 + if word.is_empty() { 1 } else { 250 }),
            failure: (!word.is_empty()).then(|| (*word).to_owned()),
        };
        (0..).zip(words).map(one).collect()
    }

    #[test]
    fn a_gap_is_from_the_start_of_the_first_failed_try_to_the_next_answer() {
        let gap = |from, until: Option<u64>| Gap {
            first_error: at(from),
            first_success: until.map(at),
        };
        let seen = tries(&["", "lost", "lost", "", "", "refused", "", "lost"]);
        let expected = [gap(10, Some(31)), gap(50, Some(61)), gap(70, None)];
        assert_eq!(gaps(&seen), expected);
        assert_eq!(gaps(&tries(&["", ""])), []);
    }

    #[test]
    fn a_try_that_hangs_delays_no_other() {
        let silent = TcpListener::bind("127.0.0.1:0").expect("it can listen");
        let address = silent.local_addr().expect("it listens");
        let probe = WebProbe::start(WebProbeOptions::new(address, "/")).expect("it starts");
        thread::sleep(Duration::from_millis(300));
        let tries = probe.finish();
        // Sequential tries would be only two.
        assert!(tries.len() >= 10, "{} tries", tries.len());
        assert!(tries.iter().all(|one| one.failure.is_some()));
    }

    #[test]
    fn an_answer_that_took_long_does_not_lengthen_the_gap_before_it() {
        let mut seen = tries(&["", "lost", "", "", ""]);
        seen[2].ended = at(240);
        assert_eq!(gaps(&seen)[0].first_success, Some(at(31)));
    }

    #[test]
    fn silence_is_between_two_answers() {
        let seen = tries(&["", "lost", "lost", "", ""]);
        let silence = longest_silence(&seen, at(0), at(100));
        assert_eq!(silence, Some(Duration::from_millis(30)));
    }
}
