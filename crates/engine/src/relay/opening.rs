//! Checks the first bytes of a client before the server gets any of them.

use std::io;

use super::{Direction, RelayError, RelaySession};

/// Result of a check of the bytes so far.
pub enum Opening {
    /// More bytes are needed.
    Undecided,
    /// The bytes are forwarded, and all after them.
    Allowed,
    /// The session ends, with this reason.
    Forbidden(String),
}

/// Checks a client's first bytes; called again with more of them as long as it is undecided.
pub type OpeningCheck<'a> = dyn Fn(&[u8]) -> Opening + 'a;

/// Forwards the first bytes as soon as they are allowed, or when the client has ended.
pub(super) async fn forward<S: RelaySession>(
    direction: &Direction<'_, S>,
    check: &OpeningCheck<'_>,
) -> Result<(), RelayError> {
    let mut held = Vec::with_capacity(64);
    loop {
        let ready = direction.from.readable().await;
        ready.map_err(|error| direction.receive_failed(error))?;
        let mut bytes = [0; 64];
        match direction.from.receive_now(&mut bytes) {
            Ok(0) => return direction.send_rest(&held).await,
            Ok(count) => {
                direction.count(count);
                held.extend_from_slice(&bytes[..count]);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(direction.receive_failed(error)),
        }
        match check(&held) {
            Opening::Undecided => {}
            Opening::Allowed => return direction.send_rest(&held).await,
            Opening::Forbidden(why) => return Err(RelayError::Forbidden(why)),
        }
    }
}
