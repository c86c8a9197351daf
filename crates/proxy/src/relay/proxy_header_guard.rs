//! Rejects PROXY headers of clients that may not send one, because the client could choose its own
//! address at the server.

use std::io;

use super::{Broken, Direction};

/// Beginnings of a PROXY header in both versions (PROXY protocol specification §2.1 and §2.2).
const BEGINNINGS: [&[u8]; 2] = [b"PROXY ", b"\r\n\r\n\0\r\nQUIT\n"];

/// Forwards the first bytes when they certainly do not begin a PROXY header.
pub(super) async fn first_bytes(direction: &Direction<'_>) -> Result<(), Broken> {
    let mut held = Vec::with_capacity(64);
    loop {
        direction
            .from
            .readable()
            .await
            .map_err(|error| direction.receive_failed(error))?;
        let mut bytes = [0; 64];
        match direction.from.receive_now(&mut bytes) {
            Ok(0) => return send(direction, &held).await,
            Ok(count) => {
                direction.count(count);
                held.extend_from_slice(&bytes[..count]);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(error) => return Err(direction.receive_failed(error)),
        }
        if BEGINNINGS
            .iter()
            .any(|beginning| held.starts_with(beginning))
        {
            return Err(Broken::Forbidden(
                "peer is not listed in accept_proxy_from".to_owned(),
            ));
        }
        if !BEGINNINGS
            .iter()
            .any(|beginning| beginning.starts_with(&held))
        {
            return send(direction, &held).await;
        }
    }
}

async fn send(direction: &Direction<'_>, held: &[u8]) -> Result<(), Broken> {
    direction.send_rest(held).await
}
