//! MariaDB's `parsec`: a signature over random bytes of both sides. The Ed25519 key is derived from
//! the password and a salt.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha512};
use zeroize::Zeroizing;

use super::ed25519;

/// Random bytes of one side.
pub type Nonce = [u8; 32];

/// Length in bytes of a client's answer: its own random bytes and the signature.
pub const ANSWER_LENGTH: usize = 96;

/// The only derivation algorithm: PBKDF2 with HMAC-SHA-512.
const PBKDF2: u8 = b'P';

/// Maximum number of doublings: clients reject more than 1,024 rounds doubled three times.
const DOUBLED_MAX: u8 = 3;

/// Parameters that derive a key from a password; sent to every client that logs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Derivation {
    /// Number of times that 1,024 rounds are doubled.
    doubled: u8,
    salt: [u8; 18],
}

/// Verifier stored in an account row. A proof does not permit logins at other servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verifier {
    derivation: Derivation,
    key: ed25519::Verifier,
}

impl Derivation {
    /// Parses the form that a server sends.
    #[must_use]
    pub fn read(encoded: &[u8]) -> Option<Self> {
        let (&[way, doubled], salt) = encoded.split_first_chunk()?;
        let salt = salt.try_into().ok()?;
        let is_known = way == PBKDF2 && doubled <= DOUBLED_MAX;
        is_known.then_some(Derivation { doubled, salt })
    }

    /// Returns the form that is sent to a client.
    #[must_use]
    pub fn bytes(&self) -> [u8; 20] {
        let mut bytes = [0; 20];
        let (head, salt) = bytes.split_at_mut(2);
        head.copy_from_slice(&[PBKDF2, self.doubled]);
        salt.copy_from_slice(&self.salt);
        bytes
    }

    /// Derives the seed by PBKDF2 (RFC 8018, 5.2), of which one block suffices. Takes milliseconds.
    fn seed(&self, password: &[u8]) -> Zeroizing<[u8; 32]> {
        let keyed = keyed(password);
        let mut last = {
            let mut first = keyed.clone();
            first.update(&self.salt);
            first.update(&[0, 0, 0, 1]);
            first.finalize().into_bytes()
        };
        let mut seed = Zeroizing::new([0; 32]);
        xor(&mut seed, &last);
        for _ in 1..1024_u32.wrapping_shl(u32::from(self.doubled)) {
            let mut next = keyed.clone();
            next.update(&last);
            last = next.finalize().into_bytes();
            xor(&mut seed, &last);
        }
        seed
    }
}

impl Verifier {
    /// Parses the form in an account row: `P0:`, the salt, `:`, the public key, both in base64.
    #[must_use]
    pub fn read(stored: &[u8]) -> Option<Self> {
        let mut parts = stored.split(|byte| *byte == b':');
        let &[way, digit] = parts.next()? else {
            return None;
        };
        let doubled = digit.checked_sub(b'0')?;
        let mut decoded = || STANDARD_NO_PAD.decode(parts.next()?).ok();
        let encoded = [&[way, doubled][..], &decoded()?].concat();
        let key = decoded()?.try_into().ok()?;
        Some(Verifier {
            derivation: Derivation::read(&encoded)?,
            key: ed25519::Verifier::of_key(key),
        })
    }

    /// Returns the verifier of a password.
    #[must_use]
    pub fn of_password(password: &[u8], derivation: Derivation) -> Self {
        let key = ed25519::Verifier::of_password(&*derivation.seed(password));
        Verifier { derivation, key }
    }

    /// Returns a verifier for an unknown user: its password is unknown to every client. The salt of
    /// a user stays the same as long as the secret does, because a changing salt would reveal that
    /// the user is unknown.
    #[must_use]
    pub fn mock(user: &[u8], secret: &[u8; 32]) -> Self {
        let made = Sha256::new().chain_update(secret).chain_update(user);
        let made: [u8; 32] = made.finalize().into();
        let mut salt = [0; 18];
        for (place, byte) in salt.iter_mut().zip(made) {
            *place = byte;
        }
        Verifier {
            derivation: Derivation { doubled: 0, salt },
            key: ed25519::Verifier::mock(made),
        }
    }

    /// Returns the parameters that a client needs.
    #[must_use]
    pub fn derivation(&self) -> Derivation {
        self.derivation
    }

    /// Returns the whole verifier in the form that servers and clients hash.
    #[must_use]
    pub fn bytes(&self) -> [u8; 52] {
        let mut bytes = [0; 52];
        let (head, key) = bytes.split_at_mut(20);
        head.copy_from_slice(&self.derivation.bytes());
        key.copy_from_slice(self.key.bytes());
        bytes
    }

    /// Returns whether the signature matches the password.
    #[must_use]
    pub fn check(&self, nonce: &Nonce, answer: &[u8]) -> bool {
        let Some((own, signature)) = answer.split_first_chunk::<32>() else {
            return false;
        };
        self.key.check(&[*nonce, *own].concat(), signature)
    }
}

/// Returns the answer to a server; `own` must be random.
#[must_use]
pub fn prove(
    password: &[u8],
    derivation: &Derivation,
    nonce: &Nonce,
    own: &Nonce,
) -> [u8; ANSWER_LENGTH] {
    let seed = derivation.seed(password);
    let signature = ed25519::prove(&*seed, &[*nonce, *own].concat());
    let mut answer = [0; ANSWER_LENGTH];
    let (first, second) = answer.split_at_mut(32);
    first.copy_from_slice(own);
    second.copy_from_slice(&signature);
    answer
}

fn keyed(key: &[u8]) -> Hmac<Sha512> {
    match Hmac::new_from_slice(key) {
        Ok(keyed) => keyed,
        // HMAC accepts keys of any length, so this is not reached.
        Err(_) => Hmac::new(&Default::default()),
    }
}

fn xor(left: &mut [u8; 32], right: &[u8]) {
    for (place, byte) in left.iter_mut().zip(right) {
        *place ^= byte;
    }
}
