//! Turns a client away with a clean end: closing at once would reset it if it has sent anything.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::Duration;

use crate::clock;
use crate::engine::worker::Worker;
use crate::socket::Socket;

/// How long a refused client may take to see our end and answer with its own.
const LINGER_MS: u64 = 1_000;

/// How often it is looked whether they have gone.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Refused clients that linger at once on one worker, so that a flood does not use up the
/// descriptors. One more, and the oldest is closed: its end has surely arrived.
const LINGERING_MAX: usize = 1_024;

/// Reads per look at a client; one that never stops talking is closed when its time is over.
const READS_MAX: usize = 32;

thread_local! {
    /// The refused clients of this worker, the oldest first.
    static LINGERING: RefCell<VecDeque<Lingering>> = const { RefCell::new(VecDeque::new()) };
}

/// A client that is told of its end; what it has sent by the time of the close does no harm.
struct Lingering {
    client: Socket,
    until_ms: u64,
}

/// Ends our sending, reads what the client still says, and closes.
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
        worker.spawn(close_expired());
    }
}

/// Closes those who have gone or whose time is over, until nobody is left.
async fn close_expired() {
    let mut left = true;
    while left {
        compio::time::sleep(LOOK_INTERVAL).await;
        let now_ms = clock::now_ms();
        left = LINGERING.with_borrow_mut(|all| {
            all.retain(|lingering| now_ms < lingering.until_ms && !lingering.has_gone());
            !all.is_empty()
        });
    }
}

impl Lingering {
    /// Reads what has come and says whether the client has ended, too.
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
