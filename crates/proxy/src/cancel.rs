//! Creates and verifies keys of cancel requests, which identify one session of one process of one
//! Evenkeel instance and cannot be forged.
//!
//! A cancel request uses its own connection, to any of several instances or to a successor process.
//! The key that a client receives at its login therefore contains the location of the session,
//! beside a secret that only its client knows.
//!
//! Protocol 3.0 has space for 63 bits: 19 for the number of the session, 2 for the process, 10 for
//! the instance, 32 for the secret. In 3.2 the full data follows the same first word, under a MAC.
//! Drivers show the first word as the process id: it is positive, above the ids of the operating
//! system's processes, and different for each session.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use evenkeel_engine::panics::lock;
use evenkeel_wire::postgres::startup::CancelKey;
use hmac::{Hmac, KeyInit, Mac};
use rustc_hash::FxHashMap;
use rustls::crypto::ring;
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::numbers::{Number, Numbers};

pub use crate::numbers::Place;

#[cfg(test)]
mod tests;

const INSTANCE_BITS: u32 = 10;
const GENERATION_BITS: u32 = 2;
const NUMBER_BITS: u32 = 19;
/// Bits below the session's number in the first word.
const LOWER_BITS: u32 = INSTANCE_BITS + GENERATION_BITS;
/// Highest process id on Linux.
const PID_MAX: u32 = 1 << 22;
/// Lowest number of a session: no server process has such an id.
const NUMBER_MIN: u32 = (PID_MAX >> LOWER_BITS) + 1;

/// Length of a secret of protocol 3.0.
const SHORT_BYTES: usize = 4;
/// Number of bytes under the MAC in 3.2.
const BODY_BYTES: usize = 16;
const MAC_BYTES: usize = 16;
const LONG_BYTES: usize = BODY_BYTES + MAC_BYTES;
/// Appended to the secret of a forwarded request: two instances with contradictory configurations
/// would otherwise forward it in a loop.
const PASSED_ON: u8 = 1;

/// Creates a process's keys and parses those of all processes.
pub struct Keyring {
    instance: u16,
    generation: u32,
    hmac: Hmac<Sha256>,
    logins: AtomicU64,
    numbers: Arc<Numbers>,
    owners: Arc<Mutex<Owners>>,
}

/// Owners of the sessions, by number.
type Owners = FxHashMap<u32, (SessionOwner, Secret)>;

/// User whose sessions may signal a session.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionOwner {
    /// Id of the service.
    pub service: u64,
    /// Name of the user.
    pub user: Arc<str>,
}

/// Key of one session: its number is not reused before this is dropped.
pub struct Key {
    number: Number,
    place: Place,
    secret: Secret,
    owners: Arc<Mutex<Owners>>,
}

/// Distinguishes a session from earlier ones at the same location.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Secret(u32);

/// Payload of BackendKeyData.
#[derive(Clone, Copy)]
pub struct IssuedKey {
    process: u32,
    bytes: [u8; LONG_BYTES],
    length: usize,
}

/// Target of a cancel request.
#[derive(Clone, Copy, Debug)]
pub enum CancelRoute {
    /// A session of this process, if its secret matches.
    Here(CancelClaim),
    /// A session of another process of this instance: a predecessor.
    OtherProcess,
    /// A session of the Evenkeel instance with this number.
    Peer(u16),
    /// No session: an invented key, or one of a kind that is never issued.
    Nobody,
}

/// Identifies a session; not yet verified.
#[derive(Clone, Copy)]
pub struct CancelClaim {
    place: Place,
    secret: Secret,
}

impl Keyring {
    /// Creates a keyring. Instances are 1 to 1023. A successor process has the next generation.
    /// Fails if the system provides no random bytes.
    pub fn new(instance: u16, generation: u32) -> Result<Self, rustls::Error> {
        let mut key = [0; 64];
        let random = ring::default_provider().secure_random;
        random.fill(&mut key).map_err(rustls::Error::from)?;
        Ok(Self {
            instance: instance & low(INSTANCE_BITS) as u16,
            generation,
            hmac: Hmac::new(&key.into()),
            logins: AtomicU64::new(0),
            numbers: Numbers::below((1 << NUMBER_BITS) - NUMBER_MIN),
            owners: Arc::default(),
        })
    }

    /// Returns the generation of this process among predecessors and successors.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Creates the key of a session that logs in; `None`: all numbers are in use.
    pub fn key(&self, place: Place, owner: SessionOwner) -> Option<Key> {
        let (number, secret) = (self.numbers.assign(place)?, self.secret());
        lock(&self.owners).insert(number.value(), (owner, secret));
        Some(Key {
            number,
            place,
            secret,
            owners: Arc::clone(&self.owners),
        })
    }

    /// Returns the process id of a session, as its client knows it.
    pub fn process_of(&self, key: &Key) -> u32 {
        self.process(key.number.value())
    }

    /// Returns the session with this process id in this process, if it is the owner's.
    pub fn session_of(&self, process: u32, owner: &SessionOwner) -> Option<CancelClaim> {
        let number = number_of(process).filter(|number| self.process(*number) == process)?;
        let place = self.numbers.place(number)?;
        let owners = lock(&self.owners);
        let (known, secret) = owners.get(&number)?;
        let secret = *secret;
        (known == owner).then_some(CancelClaim { place, secret })
    }

    fn secret(&self) -> Secret {
        let number = self.logins.fetch_add(1, Relaxed);
        let [a, b, c, d, ..] = self.digest(b"secret", &number.to_be_bytes());
        Secret(u32::from_be_bytes([a, b, c, d]))
    }

    /// Returns the key for a client with this minor version of protocol 3.
    pub fn show(&self, key: &Key, minor: u16) -> IssuedKey {
        let Key { place, secret, .. } = key;
        let process = self.process(key.number.value());
        let mut bytes = [0; LONG_BYTES];
        if minor < 2 {
            bytes[..SHORT_BYTES].copy_from_slice(&secret.0.to_be_bytes());
            return IssuedKey {
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
        IssuedKey {
            process,
            bytes,
            length: LONG_BYTES,
        }
    }

    /// Determines the target of a request.
    pub fn read(&self, key: CancelKey<'_>) -> CancelRoute {
        let (secret, was_passed_on) = match key.secret {
            [secret @ .., PASSED_ON] if is_length(secret.len()) => (secret, true),
            secret => (secret, false),
        };
        let instance = instance_of(key.process);
        if !is_length(secret.len()) || instance == 0 || number_of(key.process).is_none() {
            return CancelRoute::Nobody;
        }
        if instance != self.instance {
            return match was_passed_on {
                true => CancelRoute::Nobody,
                false => CancelRoute::Peer(instance),
            };
        }
        match secret.len() {
            SHORT_BYTES => self.read_short(key.process, secret),
            _ => self.read_long(key.process, secret),
        }
    }

    fn read_short(&self, process: u32, secret: &[u8]) -> CancelRoute {
        let generation = process >> INSTANCE_BITS & low(GENERATION_BITS);
        if generation != self.generation & low(GENERATION_BITS) {
            return CancelRoute::OtherProcess;
        }
        let place = number_of(process).and_then(|number| self.numbers.place(number));
        let Some(place) = place else {
            return CancelRoute::Nobody;
        };
        CancelRoute::Here(CancelClaim {
            place,
            secret: Secret(word(secret)),
        })
    }

    fn read_long(&self, process: u32, secret: &[u8]) -> CancelRoute {
        let (body, mac) = secret.split_at(BODY_BYTES);
        if word(&body[2..]) != self.generation {
            return CancelRoute::OtherProcess;
        }
        if !bool::from(self.mac(process, body).ct_eq(mac)) {
            return CancelRoute::Nobody;
        }
        CancelRoute::Here(CancelClaim {
            place: Place {
                worker: u16::from_be_bytes([body[6], body[7]]),
                slot: word(&body[8..]),
            },
            secret: Secret(word(&body[12..])),
        })
    }

    /// Returns the first word of a key, positive for clients that treat it as a process id.
    fn process(&self, number: u32) -> u32 {
        let process = (number + NUMBER_MIN) << GENERATION_BITS;
        let process = process | self.generation & low(GENERATION_BITS);
        process << INSTANCE_BITS | u32::from(self.instance)
    }

    fn mac(&self, process: u32, body: &[u8]) -> [u8; MAC_BYTES] {
        let mut message = process.to_be_bytes().to_vec();
        message.extend_from_slice(body);
        let whole = self.digest(b"cancel", &message);
        let mut mac = [0; MAC_BYTES];
        mac.copy_from_slice(&whole[..MAC_BYTES]);
        mac
    }

    /// Computes a digest that only this process can compute, separate for each purpose.
    fn digest(&self, purpose: &[u8], message: &[u8]) -> [u8; 32] {
        let mut hmac = self.hmac.clone();
        hmac.update(purpose);
        hmac.update(message);
        hmac.finalize().into_bytes().into()
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // The number is still reserved here.
        lock(&self.owners).remove(&self.number.value());
    }
}

impl IssuedKey {
    /// Returns the key as the message contains it.
    pub fn key(&self) -> CancelKey<'_> {
        CancelKey {
            process: self.process,
            secret: &self.bytes[..self.length],
        }
    }
}

impl CancelClaim {
    /// Returns the location of the session.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Returns whether the key is that of the session, in constant time.
    pub fn fits(&self, key: &Key) -> bool {
        self.secret.0.ct_eq(&key.secret.0).into()
    }
}

impl std::fmt::Debug for CancelClaim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Claim").field(&self.place).finish()
    }
}

/// Returns the secret of a request that is forwarded to a peer, which will not forward it again.
pub fn forwarded(secret: &[u8]) -> Vec<u8> {
    let mut marked = secret.to_vec();
    marked.push(PASSED_ON);
    marked
}

fn instance_of(process: u32) -> u16 {
    (process & low(INSTANCE_BITS)) as u16
}

/// Returns the number of a session, or `None` for a process id or an invalid number.
fn number_of(process: u32) -> Option<u32> {
    let number = (process >> LOWER_BITS).checked_sub(NUMBER_MIN)?;
    (process >> (LOWER_BITS + NUMBER_BITS) == 0).then_some(number)
}

fn is_length(bytes: usize) -> bool {
    matches!(bytes, SHORT_BYTES | LONG_BYTES)
}

fn low(bits: u32) -> u32 {
    (1 << bits) - 1
}

/// Returns the first four bytes, which must exist.
fn word(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .take(4)
        .fold(0, |word, &byte| word << 8 | u32::from(byte))
}
