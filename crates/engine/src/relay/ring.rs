//! Copies on io_uring: the kernel selects a pooled buffer when bytes arrive, and all sends of a
//! turn share one system call.

use std::io;

use super::{Direction, RelayError, RelaySession};
use crate::ring::{Buffer, MultishotReceive, Next, POOL_BUFFER_BYTES, Ring};

/// Number of small receives in a row after which pooled buffers are worth their setup and teardown.
const LITTLE_IN_A_ROW: u32 = 4;

/// Reason why pooled receives are left for a while.
enum Left {
    /// The sender has ended.
    Ended,
    /// The receiver is slow, or the sender sends in bulk: these bytes are still to be sent.
    Rest(Vec<u8>),
    /// Bytes still to be sent, after the sender has broken.
    Last(Vec<u8>, io::Error),
    /// All pooled buffers are in use, or the sender has hung up.
    Stopped,
}

pub(super) async fn copy<S: RelaySession>(
    direction: &Direction<'_, S>,
    ring: &Ring,
) -> Result<(), RelayError> {
    while !large(direction).await? {
        match pooled(direction, ring).await? {
            Left::Ended => return direction.end(),
            Left::Rest(rest) => direction.send_rest(&rest).await?,
            Left::Last(rest, error) => {
                direction.send_rest(&rest).await?;
                return Err(direction.receive_failed(error));
            }
            Left::Stopped => {}
        }
    }
    Ok(())
}

/// Copies with large buffers until receives are small, repeatedly. Returns true at the end.
async fn large<S: RelaySession>(direction: &Direction<'_, S>) -> Result<bool, RelayError> {
    let mut little_in_a_row = 0;
    while little_in_a_row < LITTLE_IN_A_ROW {
        let ready = direction.from.readable().await;
        ready.map_err(|error| direction.receive_failed(error))?;
        let before = direction.counted();
        if direction.copy_large().await? {
            return Ok(true);
        }
        let is_little = direction.counted() - before < POOL_BUFFER_BYTES as u64;
        little_in_a_row = if is_little { little_in_a_row + 1 } else { 0 };
    }
    Ok(false)
}

/// Copies as long as the receiver takes everything immediately and no receive fills a buffer.
async fn pooled<S: RelaySession>(
    direction: &Direction<'_, S>,
    ring: &Ring,
) -> Result<Left, RelayError> {
    let mut receiving = direction.from.receive_pooled(ring);
    loop {
        let buffer = match receiving.next().await {
            Next::Bytes(buffer) => buffer,
            Next::End => return Ok(Left::Ended),
            Next::Stopped => return Ok(Left::Stopped),
            Next::Failed(error) => return Err(direction.receive_failed(error)),
        };
        let is_full = buffer.len() == POOL_BUFFER_BYTES;
        let is_quiet = !is_full && receiving.must_wait();
        let rest = forward(direction, ring, buffer, is_quiet).await?;
        if is_full || !rest.is_empty() {
            return Ok(stop(direction, &mut receiving, rest).await);
        }
    }
}

/// Sends the bytes that the receiver takes immediately; the rest is returned in own memory.
async fn forward<S: RelaySession>(
    direction: &Direction<'_, S>,
    ring: &Ring,
    buffer: Buffer,
    is_quiet: bool,
) -> Result<Vec<u8>, RelayError> {
    direction.count(buffer.len());
    let (sent, buffer) = direction.to.send_pooled(ring, buffer, is_quiet).await;
    let sent = match sent {
        Ok(sent) => sent,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        Err(error) => return Err(direction.send_failed(error)),
    };
    Ok(buffer.map_or_else(Vec::new, |buffer| buffer[sent..].to_vec()))
}

/// Stops receiving, so that the sender has to wait, and takes the data that has arrived by then.
async fn stop<S: RelaySession>(
    direction: &Direction<'_, S>,
    receiving: &mut MultishotReceive<'_>,
    mut rest: Vec<u8>,
) -> Left {
    receiving.stop();
    loop {
        match receiving.next().await {
            Next::Bytes(buffer) => {
                direction.count(buffer.len());
                rest.extend_from_slice(&buffer);
            }
            // The next receive reports an end again.
            Next::End | Next::Stopped => return Left::Rest(rest),
            Next::Failed(error) => return Left::Last(rest, error),
        }
    }
}
