//! Gives each request an id, by which the logs of several programs can be joined.

use evenkeel_engine::secret;
use evenkeel_wire::http::{KnownName, RequestHead};

use super::Session;
use crate::service::http::routes::ClientSettings;

/// Maximum length in bytes of an id that a proxy has sent.
const LENGTH_MAX: usize = 128;

impl Session<'_> {
    /// Returns the id of a request: that of a trusted proxy, or a new one of 32 hexadecimal digits.
    /// `None`: the service makes none, and what the client sends passes.
    pub(super) fn request_id(
        &self,
        (head, bytes): (&RequestHead, &[u8]),
        clients: &ClientSettings,
    ) -> Option<Box<str>> {
        if !clients.makes_request_ids {
            return None;
        }
        let peer = self.peer.map(|peer| peer.ip().to_canonical());
        let trusted = clients.forwarded_from.as_ref();
        let is_proxy = trusted
            .zip(peer)
            .is_some_and(|(of, peer)| of.contains(peer));
        let sent = head.get(bytes, KnownName::XRequestId);
        let sent = sent.filter(|id| is_proxy && is_valid(id));
        let sent = sent.and_then(|id| str::from_utf8(id).ok());
        Some(sent.map_or_else(new_id, Into::into))
    }
}

fn is_valid(id: &[u8]) -> bool {
    (1..=LENGTH_MAX).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic)
}

fn new_id() -> Box<str> {
    format!("{:032x}", u128::from_le_bytes(secret())).into()
}
