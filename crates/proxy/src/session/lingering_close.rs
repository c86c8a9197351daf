//! Closes refused clients gracefully: an immediate close would reset a connection with unread
//! input.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::Duration;

use evenkeel_engine::clock;
use evenkeel_engine::socket::Socket;
use evenkeel_engine::timers;

use crate::worker::Worker;

/// Time, in milliseconds, in which a refused client may close its side.
const LINGER_MS: u64 = 1_000;

/// Interval at which lingering clients are checked.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Maximum number of lingering clients per worker, so that a flood does not exhaust file
/// descriptors. If it is exceeded, the oldest is closed: it has had the most time to receive the
/// end.
const LINGERING_MAX: usize = 1_024;

/// Reads per check of a client. A client that keeps sending is closed when its time is over.
const READS_MAX: usize = 32;

thread_local! {
    /// Refused clients of this worker, the oldest first.
    static LINGERING: RefCell<VecDeque<Lingering>> = const { RefCell::new(VecDeque::new()) };
}

/// Client whose connection is being closed. Its remaining input is read and discarded on drop, so
/// that the close does not reset the connection.
struct Lingering {
    client: Socket,
    until_ms: u64,
}

/// Shuts down sending, discards further input, and closes the connection.
pub(super) fn close_gracefully(worker: &Worker, client: Socket) {
    if client.end_sending().is_err() {
        return;
    }
    let until_ms = clock::now_ms() + LINGER_MS;
    let lingering = Lingering { client, until_ms };
    if lingering.has_gone() {
        return;
    }
    let count = LINGERING.with_borrow_mut(|all| {
        if all.len() >= LINGERING_MAX {
            all.pop_front();
        }
        all.push_back(lingering);
        all.len()
    });
    if count == 1 {
        worker.spawn_vital(close_expired());
    }
}

/// Closes lingering clients that have closed their side or whose time is over, until none is left.
async fn close_expired() {
    let mut left = true;
    while left {
        timers::sleep(LOOK_INTERVAL).await;
        let now_ms = clock::now_ms();
        left = LINGERING.with_borrow_mut(|all| {
            all.retain(|lingering| now_ms < lingering.until_ms && !lingering.has_gone());
            !all.is_empty()
        });
    }
}

impl Lingering {
    /// Discards received input and returns whether the client has closed its side.
    fn has_gone(&self) -> bool {
        let mut ignored = [0; 2_048];
        for _ in 0..READS_MAX {
            match self.client.receive_now(&mut ignored) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
            }
        }
        false
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        self.has_gone();
    }
}
