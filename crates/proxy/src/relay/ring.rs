//! Copying on io_uring: the kernel picks a pooled buffer when bytes are there, and all sends of a
//! turn go out in one system call.

use std::io;

use super::{Broken, Direction};
use crate::engine::POOL_BUFFER_BYTES;
use crate::engine::ring::{Buffer, Ring};

pub(super) async fn copy(direction: &Direction<'_>, ring: &Ring) -> Result<(), Broken> {
    loop {
        let received = match direction.from.receive_pooled(ring).await {
            Ok(None) => return direction.end(),
            Ok(Some(buffer)) => forward(direction, ring, buffer).await?,
            Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                without_pool(direction).await?
            }
            Err(error) => return Err(direction.receive_failed(error)),
        };
        if received == POOL_BUFFER_BYTES && direction.copy_large().await? {
            return Ok(());
        }
    }
}

async fn forward(direction: &Direction<'_>, ring: &Ring, buffer: Buffer) -> Result<usize, Broken> {
    let count = buffer.len();
    direction.count(count);
    let (sent, buffer) = direction.to.send_pooled(ring, buffer).await;
    let sent = match sent {
        Ok(sent) => sent,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        Err(error) => return Err(direction.send_failed(error)),
    };
    if let Some(buffer) = buffer.filter(|_| sent < count) {
        let rest = buffer[sent..].to_vec();
        drop(buffer);
        direction.send_rest(&rest).await?;
    }
    Ok(count)
}

/// All pooled buffers are in use: wait for bytes, then read them into memory of our own.
async fn without_pool(direction: &Direction<'_>) -> Result<usize, Broken> {
    direction
        .from
        .readable()
        .await
        .map_err(|error| direction.receive_failed(error))?;
    // As after a full receive: the large way reads what is there and does not wait for more.
    Ok(POOL_BUFFER_BYTES)
}
