//! Encrypts session tickets (RFC 5077 §4, RFC 8446 §4.6.1) with keys that all workers share and a
//! process passes to the next one. The keys are in memory only.

use std::fmt;
use std::fmt::Write as _;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::SecureRandom;
use rustls::crypto::cipher::{AeadKey, Iv};
use rustls::crypto::ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256;
use rustls::pki_types::UnixTime;
use rustls::quic::PacketKey;
use rustls::server::ProducesTickets;
use zeroize::Zeroizing;

use super::{ClientPolicy, SetupError, trust};

/// Time in seconds for which a key encrypts tickets.
const ENCRYPTING_S: u64 = 6 * 60 * 60;

/// Age in seconds at which a key, and all tickets under it, are invalid.
const LIFETIME_S: u64 = 2 * ENCRYPTING_S;

const NAME_BYTES: usize = 16;
const SECRET_BYTES: usize = 32;
const NONCE_BYTES: usize = 12;

/// Keys of tickets: the current one, and the one before it.
pub struct TicketKeys(RwLock<KeyRing>);

struct KeyRing {
    current: TicketKey,
    previous: Option<TicketKey>,
}

/// One key of tickets.
#[derive(Clone)]
pub struct TicketKey {
    name: [u8; NAME_BYTES],
    secret: Zeroizing<[u8; SECRET_BYTES]>,
    /// Time of its creation, in seconds since the Unix epoch.
    made_s: u64,
}

impl TicketKeys {
    /// Creates a random key. Fails if the system has no randomness.
    pub fn new() -> Result<Self, SetupError> {
        let current = TicketKey::random(UnixTime::now().as_secs()).map_err(trust::refused)?;
        Ok(Self(RwLock::new(KeyRing {
            current,
            previous: None,
        })))
    }

    /// Returns the keys that are valid, the current one first, for the next process.
    pub fn export(&self) -> Vec<TicketKey> {
        let ring = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let keys = std::iter::once(&ring.current).chain(&ring.previous);
        let now_s = UnixTime::now().as_secs();
        keys.filter(|key| key.is_valid(now_s)).cloned().collect()
    }

    /// Continues with the keys of another process, the current one first. Without a valid key, the
    /// own ones stay.
    pub fn adopt(&self, keys: Vec<TicketKey>) {
        let now_s = UnixTime::now().as_secs();
        let mut valid = keys.into_iter().filter(|key| key.is_valid(now_s));
        if let Some(current) = valid.next() {
            let mut ring = self.0.write().unwrap_or_else(PoisonError::into_inner);
            let previous = valid.next();
            *ring = KeyRing { current, previous };
        }
    }

    /// Replaces the current key if it is too old. Returns it.
    fn current(&self, now_s: u64) -> Option<TicketKey> {
        let ring = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if ring.current.encrypts(now_s) {
            return Some(ring.current.clone());
        }
        drop(ring);
        let next = TicketKey::random(now_s).ok()?;
        let mut ring = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if !ring.current.encrypts(now_s) {
            let before = std::mem::replace(&mut ring.current, next);
            ring.previous = Some(before);
        }
        Some(ring.current.clone())
    }

    fn valid(&self, name: &[u8], now_s: u64) -> Option<TicketKey> {
        let ring = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut keys = std::iter::once(&ring.current).chain(&ring.previous);
        let key = keys.find(|key| key.name == name)?;
        key.is_valid(now_s).then(|| key.clone())
    }

    /// Encrypts a ticket: name of the key, nonce, ciphertext, tag.
    fn seal(&self, policy: &ClientPolicy, plain: &[u8], now_s: u64) -> Option<Vec<u8>> {
        let key = self.current(now_s)?;
        let mut nonce = [0; NONCE_BYTES];
        random().fill(&mut nonce).ok()?;
        let mut ticket = [&key.name, &nonce[..], plain].concat();
        let secret = &mut ticket[NAME_BYTES + NONCE_BYTES..];
        let cipher = key.cipher(nonce)?;
        let tag = cipher.encrypt_in_place(0, &bound(&key, policy), secret);
        ticket.extend_from_slice(tag.ok()?.as_ref());
        Some(ticket)
    }

    /// Decrypts a ticket. `None`: it is of another policy, or of a key that is unknown or too old.
    fn open(&self, policy: &ClientPolicy, ticket: &[u8], now_s: u64) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_at_checked(NAME_BYTES)?;
        let (nonce, secret) = rest.split_first_chunk()?;
        let key = self.valid(name, now_s)?;
        let mut secret = secret.to_vec();
        let cipher = key.cipher(*nonce)?;
        let plain = cipher.decrypt_in_place(0, &bound(&key, policy), &mut secret);
        let length = plain.ok()?.len();
        secret.truncate(length);
        Some(secret)
    }
}

impl TicketKey {
    fn random(made_s: u64) -> Result<Self, rustls::Error> {
        let (mut name, mut secret) = ([0; NAME_BYTES], Zeroizing::new([0; SECRET_BYTES]));
        random().fill(&mut name)?;
        random().fill(&mut *secret)?;
        Ok(Self {
            name,
            secret,
            made_s,
        })
    }

    /// Returns whether the key is young enough for new tickets. After a change of the clock, it is
    /// replaced.
    fn encrypts(&self, now_s: u64) -> bool {
        now_s.abs_diff(self.made_s) < ENCRYPTING_S
    }

    fn is_valid(&self, now_s: u64) -> bool {
        now_s.abs_diff(self.made_s) < LIFETIME_S
    }

    fn cipher(&self, nonce: [u8; NONCE_BYTES]) -> Option<Box<dyn PacketKey>> {
        // The library's only public AEAD with own additional data is that for QUIC packets. The
        // nonce of packet 0 is the given one.
        let suite = TLS13_CHACHA20_POLY1305_SHA256.tls13()?;
        Some(
            suite
                .quic?
                .packet_key(AeadKey::from(*self.secret), Iv::new(nonce)),
        )
    }

    /// Returns the key as text for the next process. It is secret.
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(128));
        for byte in self.name.iter().chain(self.secret.iter()) {
            // Writing to a string cannot fail.
            let _ = write!(text, "{byte:02x}");
        }
        let _ = write!(text, ":{}", self.made_s);
        text
    }

    /// Reads a key from the text of [`TicketKey::to_text`].
    pub fn from_text(text: &str) -> Option<Self> {
        let (digits, made_s) = text.split_once(':')?;
        let mut bytes = Zeroizing::new(Vec::with_capacity(NAME_BYTES + SECRET_BYTES));
        for pair in digits.as_bytes().chunks(2) {
            let pair = std::str::from_utf8(pair).ok()?;
            bytes.push(u8::from_str_radix(pair, 16).ok()?);
        }
        let (name, secret) = bytes.split_first_chunk()?;
        Some(Self {
            name: *name,
            secret: Zeroizing::new(secret.try_into().ok()?),
            made_s: made_s.parse().ok()?,
        })
    }
}

/// Returns what a ticket is valid for: a key, and a policy of client certificates.
fn bound(key: &TicketKey, policy: &ClientPolicy) -> Vec<u8> {
    [&key.name[..], policy.id()].concat()
}

fn random() -> &'static dyn SecureRandom {
    rustls::crypto::ring::default_provider().secure_random
}

/// Tickets of one policy.
pub(super) struct PolicyTickets {
    pub(super) keys: Arc<TicketKeys>,
    pub(super) policy: ClientPolicy,
}

impl ProducesTickets for PolicyTickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        LIFETIME_S as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let now_s = UnixTime::now().as_secs();
        self.keys.seal(&self.policy, plain, now_s)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let now_s = UnixTime::now().as_secs();
        self.keys.open(&self.policy, ticket, now_s)
    }
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketKeys(hidden)")
    }
}

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketKey(hidden)")
    }
}

impl fmt::Debug for PolicyTickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PolicyTickets(hidden)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(service: &str) -> ClientPolicy {
        ClientPolicy::new(service, None)
    }

    fn now_s() -> u64 {
        UnixTime::now().as_secs()
    }

    #[test]
    fn a_ticket_is_valid_for_its_policy_and_with_its_bytes_only() {
        let keys = TicketKeys::new().unwrap();
        let (one, other) = (policy("one"), policy("other"));
        let ticket = keys.seal(&one, b"secret", now_s()).unwrap();
        assert_eq!(
            keys.open(&one, &ticket, now_s()).as_deref(),
            Some(&b"secret"[..])
        );
        assert_eq!(keys.open(&other, &ticket, now_s()), None);
        assert!(!ticket.windows(6).any(|part| part == b"secret"));
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(keys.open(&one, &changed, now_s()), None, "byte {at}");
            assert_eq!(keys.open(&one, &ticket[..at], now_s()), None, "length {at}");
        }
    }

    #[test]
    fn keys_change_after_six_hours_and_end_after_twelve() {
        let keys = TicketKeys::new().unwrap();
        let (one, begin_s) = (policy("one"), now_s());
        let first = keys.seal(&one, b"a", begin_s).unwrap();
        let later_s = begin_s + ENCRYPTING_S + 1;
        let second = keys.seal(&one, b"b", later_s).unwrap();
        assert_ne!(first[..NAME_BYTES], second[..NAME_BYTES]);
        assert!(keys.open(&one, &first, later_s).is_some());
        assert!(
            keys.open(&one, &first, begin_s + LIFETIME_S + 1).is_none(),
            "also without a newer ticket"
        );
        assert!(
            keys.open(&one, &second, begin_s + LIFETIME_S + 1).is_some(),
            "it is younger"
        );
    }

    #[test]
    fn another_process_continues_with_the_keys() {
        let (before, after) = (TicketKeys::new().unwrap(), TicketKeys::new().unwrap());
        let (one, old_s) = (policy("one"), now_s() - ENCRYPTING_S - 1);
        before.adopt(vec![TicketKey::random(old_s).unwrap()]);
        let first = before.seal(&one, b"a", old_s).unwrap();
        let second = before.seal(&one, b"b", now_s()).unwrap();
        assert!(after.open(&one, &second, now_s()).is_none());
        let texts: Vec<_> = before.export().iter().map(TicketKey::to_text).collect();
        assert_eq!(texts.len(), 2);
        after.adopt(
            texts
                .iter()
                .map(|text| TicketKey::from_text(text).unwrap())
                .collect(),
        );
        for ticket in [&first, &second] {
            assert!(after.open(&one, ticket, now_s()).is_some());
        }
        let third = after.seal(&one, b"c", now_s()).unwrap();
        assert!(before.open(&one, &third, now_s()).is_some());
        after.adopt(Vec::new());
        assert!(after.open(&one, &second, now_s()).is_some());
    }

    #[test]
    fn a_text_that_is_no_key_is_refused_and_no_key_is_shown() {
        let key = TicketKey::random(1).unwrap();
        let text = key.to_text();
        for wrong in ["", ":", "00:1", &text[2..], &text[..text.len() - 1], "é:1"] {
            assert!(TicketKey::from_text(wrong).is_none(), "{wrong}");
        }
        assert_eq!(format!("{key:?}"), "TicketKey(hidden)");
    }
}
