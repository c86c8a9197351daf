//! Gives each request an id, by which the logs of several programs can be joined.

use std::cell::Cell;

use evenkeel_engine::secret;
use evenkeel_policy::http::keyed_hash::HashKey;
use evenkeel_wire::http::{KnownName, RequestHead};

use super::Session;
use crate::service::http::routes::ClientSettings;

/// Maximum length in bytes of an id that a proxy has sent.
const LENGTH_MAX: usize = 128;

/// Generator of the ids that a worker gives.
///
/// Ids are hashes of a counter under a secret key of the worker, which the system's randomness
/// makes. So they do not repeat over workers, processes and machines, and who sees some cannot
/// compute others. They identify requests and protect nothing: SipHash is fast, and not as strong
/// as a generator of keys must be.
struct RequestIds {
    key: HashKey,
    count: Cell<u64>,
}

impl Default for RequestIds {
    fn default() -> Self {
        Self {
            key: HashKey::new(secret()),
            count: Cell::new(0),
        }
    }
}

impl RequestIds {
    fn next(&self) -> Box<str> {
        let count = self.count.get();
        self.count.set(count.wrapping_add(1));
        format!("{:032x}", self.key.hash(&[count])).into()
    }
}

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
        let peer = self.peer.address.map(|peer| peer.ip().to_canonical());
        let trusted = clients.forwarded_from.as_ref();
        let is_proxy = trusted
            .zip(peer)
            .is_some_and(|(of, peer)| of.contains(peer));
        let sent = head.get(bytes, KnownName::XRequestId);
        let sent = sent.filter(|id| is_proxy && is_valid(id));
        let sent = sent.and_then(|id| str::from_utf8(id).ok());
        Some(sent.map_or_else(|| self.worker.local::<RequestIds>().next(), Into::into))
    }
}

fn is_valid(id: &[u8]) -> bool {
    (1..=LENGTH_MAX).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn ids_of_several_workers_are_32_digits_and_all_different() {
        let workers: Vec<_> = (0..4)
            .map(|_| std::thread::spawn(|| RequestIds::default().take(10_000)))
            .collect();
        let ids = workers.into_iter().flat_map(|ids| ids.join().expect("ids"));
        let ids: HashSet<Box<str>> = ids.collect();
        assert_eq!(ids.len(), 40_000);
        for id in &ids {
            let is_digit = |c: char| c.is_ascii_hexdigit() && !c.is_uppercase();
            assert!(id.len() == 32 && id.chars().all(is_digit), "{id}");
        }
    }

    impl RequestIds {
        fn take(&self, count: usize) -> Vec<Box<str>> {
            (0..count).map(|_| self.next()).collect()
        }
    }
}
