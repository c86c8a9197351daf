//! Turns a client away with a clean end: closing at once would reset it if it has sent anything.

use std::rc::Rc;
use std::time::Duration;

use crate::engine::worker::Worker;
use crate::socket::Socket;

/// How long a refused client may take to see our end and answer with its own.
const LINGER: Duration = Duration::from_secs(1);

/// Refused clients that linger at once on one worker; beyond that they are closed at once, so
/// that a flood does not use up the descriptors.
const LINGERING_MAX: usize = 1_024;

/// Ends our sending, reads what the client still says, and closes.
pub(super) fn politely(worker: &Rc<Worker>, client: Socket) {
    if client.end_sending().is_err() || worker.lingering.get() >= LINGERING_MAX {
        return;
    }
    worker.lingering.set(worker.lingering.get() + 1);
    let clerk = Rc::clone(worker);
    worker.spawn(async move {
        let _ = compio::time::timeout(LINGER, read_to_end(&client)).await;
        clerk.lingering.set(clerk.lingering.get() - 1);
    });
}

async fn read_to_end(client: &Socket) {
    let mut ignored = [0; 512];
    while client.readable().await.is_ok() {
        match client.receive_now(&mut ignored) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}
