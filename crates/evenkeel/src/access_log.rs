//! Writes the access log of HTTP services to stdout.
//!
//! A thread of its own formats and writes the requests that the data plane hands over. If stdout
//! does not take the lines, requests are dropped in the data plane and counted there.

mod combined;
mod json;
#[cfg(test)]
mod sample;
mod time;

use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use evenkeel_engine::clock;
use evenkeel_proxy::access_log::{AccessLogFormat, Batch};

use time::Dates;

/// Length of output that is collected before it is written, in bytes.
const OUTPUT_LENGTH: usize = 256 * 1024;

/// Time after which an idle writer checks whether it must end.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Time for the last lines at the end of the process.
const FINISH_LIMIT: Duration = Duration::from_secs(1);

/// The running writer.
pub(crate) struct Writer {
    must_end: Arc<AtomicBool>,
    ended: flume::Receiver<()>,
}

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// The system creates no thread.
    pub(crate) fn start(batches: flume::Receiver<Batch>) -> io::Result<Self> {
        let must_end = Arc::new(AtomicBool::new(false));
        let (sender, ended) = flume::bounded(1);
        let ending = Arc::clone(&must_end);
        let thread = std::thread::Builder::new().name("access-log".to_owned());
        thread.spawn(move || {
            run(&batches, &ending);
            // The receiver waits only at the end of the process.
            let _ = sender.try_send(());
        })?;
        Ok(Self { must_end, ended })
    }

    /// Writes what the workers have handed over, and ends.
    pub(crate) fn finish(&self) {
        self.must_end.store(true, Relaxed);
        // A reader of stdout that takes nothing does not keep the process from ending.
        let _ = self.ended.recv_timeout(FINISH_LIMIT);
    }
}

fn run(batches: &flume::Receiver<Batch>, must_end: &AtomicBool) {
    let mut lines = Lines::default();
    loop {
        match batches.recv_timeout(CHECK_INTERVAL) {
            Ok(batch) => lines.add(&batch),
            Err(flume::RecvTimeoutError::Timeout) if !must_end.load(Relaxed) => continue,
            Err(_) => return,
        }
        while lines.text.len() < OUTPUT_LENGTH
            && let Ok(batch) = batches.try_recv()
        {
            lines.add(&batch);
        }
        // An error is ignored: without stdout there is no access log.
        let _ = io::stdout().lock().write_all(&lines.text);
        lines.text.clear();
    }
}

/// Lines that have not been written.
#[derive(Default)]
struct Lines {
    text: Vec<u8>,
    dates: Dates,
}

impl Lines {
    fn add(&mut self, batch: &Batch) {
        let offset_us = unix_us().saturating_sub(clock::now_us());
        for (facts, texts) in batch.requests() {
            let ended_ms = (facts.ended_us + offset_us) / 1_000;
            let (out, dates) = (&mut self.text, &mut self.dates);
            match facts.format {
                AccessLogFormat::Json => json::write(out, dates.iso(ended_ms), facts, &texts),
                AccessLogFormat::Combined => {
                    combined::write(out, dates.clf(ended_ms), facts, &texts)
                }
            }
        }
    }
}

fn unix_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_micros()).unwrap_or(u64::MAX)
}
