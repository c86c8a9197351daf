//! Copying on io_uring: the kernel picks a pooled buffer when bytes are there, and all sends of a
//! turn go out in one system call.

use std::io;

use super::{Broken, Direction, LARGE_BYTES, LARGE_IN_A_ROW};
use crate::engine::POOL_BUFFER_BYTES;
use crate::engine::ring::{Buffer, Next, Receiving, Ring};

/// Why the pooled way is left for a while.
enum Left {
    /// The sender has ended.
    Ended,
    /// The receiver is slow, or the sender sends in bulk: these bytes are still to be sent.
    Rest(Vec<u8>),
    /// These, too, but the sender has broken meanwhile.
    Last(Vec<u8>, io::Error),
    /// All pooled buffers are in use, or the sender has hung up.
    Stopped,
}

pub(super) async fn copy(direction: &Direction<'_>, ring: &Ring) -> Result<(), Broken> {
    loop {
        match pooled(direction, ring).await? {
            Left::Ended => return direction.end(),
            Left::Rest(rest) => direction.send_rest(&rest).await?,
            Left::Last(rest, error) => {
                direction.send_rest(&rest).await?;
                return Err(direction.receive_failed(error));
            }
            Left::Stopped => {
                let ready = direction.from.readable().await;
                ready.map_err(|error| direction.receive_failed(error))?;
            }
        }
        if direction.copy_large().await? {
            return Ok(());
        }
    }
}

/// Copies as long as the receiver takes everything at once.
async fn pooled(direction: &Direction<'_>, ring: &Ring) -> Result<Left, Broken> {
    let mut receiving = direction.from.receive_pooled(ring);
    loop {
        let buffer = match receiving.next().await {
            Next::Bytes(buffer) => buffer,
            Next::End => return Ok(Left::Ended),
            Next::Stopped => return Ok(Left::Stopped),
            Next::Failed(error) => return Err(direction.receive_failed(error)),
        };
        let rest = if buffer.len() == POOL_BUFFER_BYTES {
            in_bulk(direction, ring, &mut receiving, buffer)?
        } else {
            forward(direction, ring, buffer).await?
        };
        if let Some(rest) = rest {
            return Ok(stop(direction, receiving, rest).await);
        }
    }
}

/// Copies what is there with large buffers, without a wait: meanwhile the ring receives nothing.
/// Says what is left to send when the receiver is slow or there is more and more.
fn in_bulk(
    direction: &Direction<'_>,
    ring: &Ring,
    receiving: &mut Receiving<'_>,
    mut buffer: Buffer,
) -> Result<Option<Vec<u8>>, Broken> {
    loop {
        direction.count(buffer.len());
        let rest = send_now(direction, &buffer)?;
        if rest.is_some() {
            return Ok(rest);
        }
        buffer = match receiving.arrived() {
            Some(Next::Bytes(buffer)) => buffer,
            Some(Next::Failed(error)) => return Err(direction.receive_failed(error)),
            // Said again by the next receive.
            Some(Next::End | Next::Stopped) => return Ok(Some(Vec::new())),
            None => break,
        };
    }
    // What the ring has received already comes first.
    if ring.has_answers() {
        return Ok(Some(Vec::new()));
    }
    large_now(direction)
}

/// The part of [`in_bulk`] that the ring has no hand in.
fn large_now(direction: &Direction<'_>) -> Result<Option<Vec<u8>>, Broken> {
    let mut large = direction.worker.large_buffer();
    for _ in 0..LARGE_IN_A_ROW {
        let count = match direction.from.receive_now(&mut large) {
            // The ring will say the end, too.
            Ok(0) => return Ok(None),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(direction.receive_failed(error)),
        };
        direction.count(count);
        let rest = send_now(direction, &large[..count])?;
        if rest.is_some() || count < LARGE_BYTES / 8 {
            return Ok(rest);
        }
    }
    Ok(Some(Vec::new()))
}

/// Sends what the receiver takes now; what it does not take comes back.
fn send_now(direction: &Direction<'_>, bytes: &[u8]) -> Result<Option<Vec<u8>>, Broken> {
    let sent = match direction.to.send_now(bytes) {
        Ok(sent) => sent,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        Err(error) => return Err(direction.send_failed(error)),
    };
    Ok((sent < bytes.len()).then(|| bytes[sent..].to_vec()))
}

/// Sends what the receiver takes at once; the rest comes back in memory of our own.
async fn forward(
    direction: &Direction<'_>,
    ring: &Ring,
    buffer: Buffer,
) -> Result<Option<Vec<u8>>, Broken> {
    direction.count(buffer.len());
    let (sent, buffer) = direction.to.send_pooled(ring, buffer).await;
    let sent = match sent {
        Ok(sent) => sent,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        Err(error) => return Err(direction.send_failed(error)),
    };
    let buffer = buffer.filter(|buffer| sent < buffer.len());
    Ok(buffer.map(|buffer| buffer[sent..].to_vec()))
}

/// Stops receiving, so that the sender has to wait, and takes what has arrived by then.
async fn stop(direction: &Direction<'_>, mut receiving: Receiving<'_>, mut rest: Vec<u8>) -> Left {
    receiving.stop();
    loop {
        match receiving.next().await {
            Next::Bytes(buffer) => {
                direction.count(buffer.len());
                rest.extend_from_slice(&buffer);
            }
            // The next receive says an end again.
            Next::End | Next::Stopped => return Left::Rest(rest),
            Next::Failed(error) => return Left::Last(rest, error),
        }
    }
}
