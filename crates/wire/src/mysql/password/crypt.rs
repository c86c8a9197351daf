//! The stored form of `caching_sha2_password`: salted SHA-256 of thousands of rounds.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Length of the salt in bytes; other users of this scheme have up to 16.
const SALT_LENGTH: usize = 20;
const HASH_LENGTH: usize = 43;

const ROUNDS_MIN: u32 = 1000;

/// Maximum length of a password for this plugin at MySQL; each round hashes the whole password.
const PASSWORD_LENGTH_MAX: usize = 256;

/// Maximum of `caching_sha2_password_digest_rounds`; more rounds would only block Evenkeel.
const ROUNDS_MAX: u32 = 4_095_000;

const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Stored form of a password: `$A$005$` (MySQL 9: `$A$00A$`), a salt and a hash. A check takes
/// milliseconds and must not run on a session worker.
#[derive(Clone, PartialEq, Eq)]
pub struct Stored {
    rounds: u32,
    salt: [u8; SALT_LENGTH],
    hash: [u8; HASH_LENGTH],
    /// Stored hash of a second valid password.
    other: Option<Box<Stored>>,
}

impl Stored {
    /// Parses the form in an account row.
    #[must_use]
    pub fn read(stored: &[u8]) -> Option<Self> {
        let rest = stored.strip_prefix(b"$A$")?;
        let (rounds, rest) = rest.split_first_chunk::<3>()?;
        let rounds = std::str::from_utf8(rounds).ok()?;
        // Thousands, in hexadecimal digits.
        let thousands = u32::from_str_radix(rounds, 16).ok()?;
        let (salt, hash) = rest.strip_prefix(b"$")?.split_first_chunk()?;
        let rounds = thousands.checked_mul(1000)?;
        (ROUNDS_MIN..=ROUNDS_MAX).contains(&rounds).then_some(())?;
        Some(Stored {
            rounds,
            salt: *salt,
            hash: hash.try_into().ok()?,
            other: None,
        })
    }

    /// Accepts a second password of the account too (RETAIN CURRENT PASSWORD).
    pub fn accept(&mut self, other: Option<Stored>) {
        self.other = other.map(Box::new);
    }

    /// Returns a stored form for an unknown user, which no password matches. With the rounds of the
    /// server's accounts the check takes as long as for them.
    #[must_use]
    pub fn mock(random: [u8; SALT_LENGTH], rounds: u32) -> Self {
        Stored {
            rounds: rounds.clamp(ROUNDS_MIN, ROUNDS_MAX),
            salt: random,
            hash: [b'!'; HASH_LENGTH],
            other: None,
        }
    }

    /// Returns the number of rounds.
    #[must_use]
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Returns whether the password matches.
    #[must_use]
    pub fn fits(&self, password: &[u8]) -> bool {
        let is_other = || {
            self.other
                .as_ref()
                .is_some_and(|other| other.fits(password))
        };
        self.is_of(password) || is_other()
    }

    fn is_of(&self, password: &[u8]) -> bool {
        let possible = password.get(..PASSWORD_LENGTH_MAX).unwrap_or(password);
        let hash = hashed(possible, &self.salt, self.rounds);
        let whole = possible.len() == password.len();
        whole && bool::from(hash.ct_eq(&self.hash))
    }
}

pub(super) fn hashed(password: &[u8], salt: &[u8], rounds: u32) -> [u8; HASH_LENGTH] {
    encode(&hash(password, salt, rounds))
}

/// Drepper's "Unix crypt using SHA-256", steps 1 to 21.
fn hash(password: &[u8], salt: &[u8], rounds: u32) -> [u8; 32] {
    let both = Sha256::new().chain_update(password).chain_update(salt);
    let other: [u8; 32] = both.clone().chain_update(password).finalize().into();
    let mut first = both;
    repeat(&other, password.len(), |piece| first.update(piece));
    let mut bits = password.len();
    while bits > 0 {
        match bits & 1 {
            1 => first.update(other),
            _ => first.update(password),
        }
        bits >>= 1;
    }
    let mut hash: [u8; 32] = first.finalize().into();

    let mut many = Sha256::new();
    for _ in 0..password.len() {
        many.update(password);
    }
    let passwords = stretch(&many.finalize().into(), password.len());
    let mut many = Sha256::new();
    let [start, ..] = hash;
    for _ in 0..usize::from(start).saturating_add(16) {
        many.update(salt);
    }
    let salts = stretch(&many.finalize().into(), salt.len());

    for round in 0..rounds {
        let mut next = Sha256::new();
        let odd = round & 1 == 1;
        let beginning: &[u8] = if odd { &passwords } else { &hash };
        next.update(beginning);
        if round.checked_rem(3) != Some(0) {
            next.update(&salts);
        }
        if round.checked_rem(7) != Some(0) {
            next.update(&passwords);
        }
        let end: &[u8] = if odd { &hash } else { &passwords };
        next.update(end);
        hash = next.finalize().into();
    }
    hash
}

/// Passes the repeated `block` to `each`, up to `length` bytes in all.
fn repeat(block: &[u8; 32], length: usize, mut each: impl FnMut(&[u8])) {
    let mut left = length;
    while left > 0 {
        let piece = block.get(..left).unwrap_or(block);
        each(piece);
        left = left.saturating_sub(piece.len());
    }
}

fn stretch(block: &[u8; 32], length: usize) -> zeroize::Zeroizing<Vec<u8>> {
    let mut long = Vec::with_capacity(length);
    repeat(block, length, |piece| long.extend_from_slice(piece));
    zeroize::Zeroizing::new(long)
}

/// Encodes the hash (step 22): three bytes in four letters, in the order of the scheme.
fn encode(hash: &[u8; 32]) -> [u8; HASH_LENGTH] {
    let byte = |index: usize| u32::from(hash.get(index).copied().unwrap_or_default());
    let mut out = [0; HASH_LENGTH];
    let mut places = out.iter_mut();
    let mut put = |mut bits: u32, letters: usize| {
        for place in places.by_ref().take(letters) {
            let letter = ALPHABET.get((bits & 63) as usize);
            *place = letter.copied().unwrap_or_default();
            bits >>= 6;
        }
    };
    let mut at = [0_usize, 10, 20];
    for _ in 0..10 {
        let [a, b, c] = at;
        put(byte(a) << 16 | byte(b) << 8 | byte(c), 4);
        // The three indices rotate, and each is incremented.
        at = [c, a, b].map(|index| index.saturating_add(1));
    }
    put(byte(31) << 8 | byte(30), 3);
    out
}
