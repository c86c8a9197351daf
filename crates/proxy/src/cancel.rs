//! Keys of cancel requests: they lead back to one session of one process of one Evenkeel, and
//! nobody can make them up.
//!
//! A cancel request comes over a connection of its own, to any of several Evenkeels or to the
//! process that has taken over meanwhile. So the key that a client is given at its login says where
//! the session is, beside a secret that only its client knows.
//!
//! Protocol 3.0 has room for 63 bits: 10 for the instance, 2 for the process, 6 and 13 for the
//! lowest bits of worker and slot (whoever may be meant is compared with the secret), 32 for the
//! secret. In 3.2 all stands in full behind the same first word, under a MAC.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use evenkeel_wire::postgres::startup::CancelKey;
use hmac::{Hmac, KeyInit, Mac};
use rustls::crypto::ring;
use sha2::Sha256;
use subtle::ConstantTimeEq;

#[cfg(test)]
mod tests;

const INSTANCE_BITS: u32 = 10;
const GENERATION_BITS: u32 = 2;
const WORKER_BITS: u32 = 6;
const SLOT_BITS: u32 = 13;

/// A secret of protocol 3.0.
const SHORT_BYTES: usize = 4;
/// What stands under the MAC in 3.2, and the MAC.
const BODY_BYTES: usize = 16;
const MAC_BYTES: usize = 16;
const LONG_BYTES: usize = BODY_BYTES + MAC_BYTES;
/// Put behind the secret by an Evenkeel that passes a request on: two whose configurations disagree
/// would send it back and forth for ever.
const PASSED_ON: u8 = 1;

/// Makes a process's keys and reads everybody's.
pub struct Keyring {
    instance: u16,
    generation: u32,
    keyed: Hmac<Sha256>,
    logins: AtomicU64,
}

/// Where a session is in its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the worker.
    pub worker: u16,
    /// The session's number there; another session may have it later.
    pub slot: u32,
}

/// Tells a session from all that have had its place before.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(u32);

/// What goes into BackendKeyData.
#[derive(Clone, Copy)]
pub struct Shown {
    process: u32,
    bytes: [u8; LONG_BYTES],
    length: usize,
}

/// Whom a cancel request is for.
#[derive(Clone, Copy, Debug)]
pub enum Addressee {
    /// A session of this process, if its secret fits.
    Here(Claim),
    /// A session of another process of this instance: one that this one has taken over from.
    OtherProcess,
    /// A session of another Evenkeel, of this number.
    Peer(u16),
    /// Nobody: made up, or of a kind that we give to nobody.
    Nobody,
}

/// Says which session is meant; not yet believed.
#[derive(Clone, Copy)]
pub struct Claim {
    place: Place,
    secret: Secret,
    /// Whether the place stands there in full.
    is_exact: bool,
}

impl Keyring {
    /// Instances are 1 to 1023. A process that takes over has the next generation. Fails if the
    /// system gives no random bytes.
    pub fn new(instance: u16, generation: u32) -> Result<Self, rustls::Error> {
        let mut key = [0; 64];
        let random = ring::default_provider().secure_random;
        random.fill(&mut key).map_err(rustls::Error::from)?;
        Ok(Self {
            instance: instance & low(INSTANCE_BITS) as u16,
            generation,
            keyed: Hmac::new(&key.into()),
            logins: AtomicU64::new(0),
        })
    }

    /// Which process this is, of those that have taken over from one another.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// A secret for a session that logs in.
    pub fn secret(&self) -> Secret {
        let number = self.logins.fetch_add(1, Relaxed);
        let [a, b, c, d, ..] = self.digest(b"secret", &number.to_be_bytes());
        Secret(u32::from_be_bytes([a, b, c, d]))
    }

    /// What to give a client that speaks this minor version of protocol 3.
    pub fn show(&self, place: Place, secret: Secret, minor: u16) -> Shown {
        let process = self.process(place);
        let mut bytes = [0; LONG_BYTES];
        if minor < 2 {
            bytes[..SHORT_BYTES].copy_from_slice(&secret.0.to_be_bytes());
            return Shown {
                process,
                bytes,
                length: SHORT_BYTES,
            };
        }
        let (body, mac) = bytes.split_at_mut(BODY_BYTES);
        body[..2].copy_from_slice(&self.instance.to_be_bytes());
        body[2..6].copy_from_slice(&self.generation.to_be_bytes());
        body[6..8].copy_from_slice(&place.worker.to_be_bytes());
        body[8..12].copy_from_slice(&place.slot.to_be_bytes());
        body[12..].copy_from_slice(&secret.0.to_be_bytes());
        mac.copy_from_slice(&self.mac(process, body));
        Shown {
            process,
            bytes,
            length: LONG_BYTES,
        }
    }

    /// Whom a request is for.
    pub fn read(&self, key: CancelKey<'_>) -> Addressee {
        let (secret, was_passed_on) = match key.secret {
            [secret @ .., PASSED_ON] if is_length(secret.len()) => (secret, true),
            secret => (secret, false),
        };
        let instance = instance_of(key.process);
        if !is_length(secret.len()) || instance == 0 {
            return Addressee::Nobody;
        }
        if instance != self.instance {
            return match was_passed_on {
                true => Addressee::Nobody,
                false => Addressee::Peer(instance),
            };
        }
        match secret.len() {
            SHORT_BYTES => self.read_short(key.process, secret),
            _ => self.read_long(key.process, secret),
        }
    }

    fn read_short(&self, process: u32, secret: &[u8]) -> Addressee {
        let generation = process >> (WORKER_BITS + SLOT_BITS) & low(GENERATION_BITS);
        if generation != self.generation & low(GENERATION_BITS) {
            return Addressee::OtherProcess;
        }
        Addressee::Here(Claim {
            place: Place {
                worker: (process >> SLOT_BITS & low(WORKER_BITS)) as u16,
                slot: process & low(SLOT_BITS),
            },
            secret: Secret(word(secret)),
            is_exact: false,
        })
    }

    fn read_long(&self, process: u32, secret: &[u8]) -> Addressee {
        let (body, mac) = secret.split_at(BODY_BYTES);
        if word(&body[2..]) != self.generation {
            return Addressee::OtherProcess;
        }
        if !bool::from(self.mac(process, body).ct_eq(mac)) {
            return Addressee::Nobody;
        }
        Addressee::Here(Claim {
            place: Place {
                worker: u16::from_be_bytes([body[6], body[7]]),
                slot: word(&body[8..]),
            },
            secret: Secret(word(&body[12..])),
            is_exact: true,
        })
    }

    /// The first word of a key, positive for those who take it for a process's number.
    fn process(&self, place: Place) -> u32 {
        let mut process = u32::from(self.instance);
        process = process << GENERATION_BITS | self.generation & low(GENERATION_BITS);
        process = process << WORKER_BITS | u32::from(place.worker) & low(WORKER_BITS);
        process << SLOT_BITS | place.slot & low(SLOT_BITS)
    }

    fn mac(&self, process: u32, body: &[u8]) -> [u8; MAC_BYTES] {
        let mut message = process.to_be_bytes().to_vec();
        message.extend_from_slice(body);
        let whole = self.digest(b"cancel", &message);
        let mut mac = [0; MAC_BYTES];
        mac.copy_from_slice(&whole[..MAC_BYTES]);
        mac
    }

    /// What only this process can compute, apart for each purpose.
    fn digest(&self, purpose: &[u8], message: &[u8]) -> [u8; 32] {
        let mut hmac = self.keyed.clone();
        hmac.update(purpose);
        hmac.update(message);
        hmac.finalize().into_bytes().into()
    }
}

impl Shown {
    /// As the message has it.
    pub fn key(&self) -> CancelKey<'_> {
        CancelKey {
            process: self.process,
            secret: &self.bytes[..self.length],
        }
    }
}

impl Claim {
    /// The workers that may be meant, of so many.
    pub fn workers(&self, count: usize) -> impl Iterator<Item = usize> + use<> {
        candidates(self.place.worker.into(), WORKER_BITS, self.is_exact, count)
    }

    /// The slots that may be meant, of so many.
    pub fn slots(&self, count: usize) -> impl Iterator<Item = usize> + use<> {
        candidates(self.place.slot as usize, SLOT_BITS, self.is_exact, count)
    }

    /// Whether a session with that secret is meant. Takes the same time whatever the answer.
    pub fn fits(&self, secret: Secret) -> bool {
        self.secret.0.ct_eq(&secret.0).into()
    }
}

impl std::fmt::Debug for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Claim").field(&self.place).finish()
    }
}

/// The secret of a request that is passed on to a peer, which will not pass it on again.
pub fn passed_on(secret: &[u8]) -> Vec<u8> {
    let mut marked = secret.to_vec();
    marked.push(PASSED_ON);
    marked
}

fn candidates(
    first: usize,
    bits: u32,
    is_exact: bool,
    count: usize,
) -> impl Iterator<Item = usize> {
    let step = if is_exact { usize::MAX } else { 1 << bits };
    (first..count).step_by(step)
}

fn instance_of(process: u32) -> u16 {
    (process >> (GENERATION_BITS + WORKER_BITS + SLOT_BITS)) as u16
}

fn is_length(bytes: usize) -> bool {
    matches!(bytes, SHORT_BYTES | LONG_BYTES)
}

fn low(bits: u32) -> u32 {
    (1 << bits) - 1
}

/// The first four bytes, which are there.
fn word(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .take(4)
        .fold(0, |word, &byte| word << 8 | u32::from(byte))
}
