//! The opening handshake of WebSockets (RFC 6455 §4).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest, Sha1};

use super::head::{Fields, KnownName};

/// RFC 6455 §1.3.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Value of `Sec-WebSocket-Key`: base64 of 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WebSocketKey([u8; 24]);

impl WebSocketKey {
    /// Returns the key that a field's value writes: 24 characters of base64 that decode to 16
    /// bytes.
    #[must_use]
    pub fn read(value: &[u8]) -> Option<Self> {
        let text: [u8; 24] = value.try_into().ok()?;
        let mut decoded = [0; 18];
        let length = STANDARD.decode_slice(text, &mut decoded).ok()?;
        (length == 16).then_some(WebSocketKey(text))
    }

    /// Returns the key of 16 random bytes.
    #[must_use]
    pub fn of_random(random: [u8; 16]) -> Self {
        let mut text = [0; 24];
        // 16 bytes fill 24 characters.
        let _length = STANDARD.encode_slice(random, &mut text);
        WebSocketKey(text)
    }

    /// Returns the field's value.
    #[must_use]
    pub fn text(&self) -> &[u8; 24] {
        &self.0
    }

    /// Returns the value of `Sec-WebSocket-Accept` in the answer of a server that accepts (RFC 6455
    /// §4.2.2).
    #[must_use]
    pub fn accept(&self) -> [u8; 28] {
        let hash = Sha1::new()
            .chain_update(self.0)
            .chain_update(GUID)
            .finalize();
        let mut text = [0; 28];
        // 20 bytes fill 28 characters.
        let _length = STANDARD.encode_slice(hash, &mut text);
        text
    }
}

/// Returns the key of an opening request, if its fields are exactly those of version 13.
#[cold]
pub(super) fn opening_key(fields: &Fields, bytes: &[u8]) -> Option<WebSocketKey> {
    let single = |known| {
        let mut values = fields.all(bytes, known);
        values.next().filter(|_| values.next().is_none())
    };
    if single(KnownName::SecWebSocketVersion)? != b"13" {
        return None;
    }
    WebSocketKey::read(single(KnownName::SecWebSocketKey)?)
}
