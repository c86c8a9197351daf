//! Copies on epoll: receives into the worker's one scratch buffer, and sends from it immediately.

use std::io;

use super::{Direction, RelayError, RelaySession};

/// Outcome of one receive and send.
enum Step {
    /// All available bytes were sent.
    Sent { full: bool },
    /// The receiver is slow: these bytes are still to be sent.
    Rest(Vec<u8>),
    /// No bytes were available.
    Nothing,
    /// The sender has ended.
    End,
}

pub(super) async fn copy<S: RelaySession>(direction: &Direction<'_, S>) -> Result<(), RelayError> {
    loop {
        direction
            .from
            .readable()
            .await
            .map_err(|error| direction.receive_failed(error))?;
        match step(direction)? {
            Step::Sent { full: false } | Step::Nothing => {}
            Step::Sent { full: true } => {
                if direction.copy_large().await? {
                    return Ok(());
                }
            }
            Step::Rest(rest) => direction.send_rest(&rest).await?,
            Step::End => return direction.end(),
        }
    }
}

fn step<S: RelaySession>(direction: &Direction<'_, S>) -> Result<Step, RelayError> {
    let mut scratch = direction.worker.scratch.borrow_mut();
    let count = match direction.from.receive_now(&mut scratch) {
        Ok(0) => return Ok(Step::End),
        Ok(count) => count,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Step::Nothing),
        Err(error) => return Err(direction.receive_failed(error)),
    };
    direction.count(count);
    let sent = match direction.to.send_now(&scratch[..count]) {
        Ok(sent) => sent,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        Err(error) => return Err(direction.send_failed(error)),
    };
    if sent < count {
        return Ok(Step::Rest(scratch[sent..count].to_vec()));
    }
    Ok(Step::Sent {
        full: count == scratch.len(),
    })
}
