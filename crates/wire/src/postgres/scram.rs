//! SCRAM-SHA-256 and SCRAM-SHA-256-PLUS of both sides (§54.3.1, RFC 5802, RFC 7677).
//!
//! The server side verifies a client with the user's [`Verifier`]. The client's proof yields the
//! [`Keys`] that log in to every server with the identical verifier. RFC 5802 §9 calls that a risk:
//! so keys stay in memory, are wiped, and are never shown. Nonces are arguments.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

mod client;
mod server;

pub use client::{ClientFinal, ClientStart, Proof};
pub use server::{Challenge, Offer};

#[cfg(test)]
mod tests;

/// The mechanism without channel binding.
pub const MECHANISM: &[u8] = b"SCRAM-SHA-256";

/// The mechanism with channel binding of the type `tls-server-end-point`.
pub const MECHANISM_PLUS: &[u8] = b"SCRAM-SHA-256-PLUS";

/// Default of the server's `scram_iterations`.
pub const ITERATIONS: u32 = 4096;

/// The most iterations computed for a password: each costs some 300 ns, and the server chooses the
/// number. With [`Keys`] no iterations are computed, and there is no limit.
pub const ITERATIONS_MAX: u32 = 100_000;

/// Random bytes for a nonce; 18 is what servers use.
pub type Nonce = [u8; 18];

/// Verifier that a server stores for a password (pg_authid.rolpassword).
#[derive(Clone, PartialEq, Eq)]
pub struct Verifier {
    iterations: u32,
    salt: Vec<u8>,
    stored_key: [u8; 32],
    server_key: [u8; 32],
    /// True for an unknown user: accepts no proof.
    mock: bool,
}

/// Keys that prove knowledge of the password to a server, and verify the server's proof.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    client: Zeroizing<[u8; 32]>,
    server: Zeroizing<[u8; 32]>,
}

/// Reason for a failed exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ScramError {
    /// A message of the peer does not have the format of RFC 5802.
    Malformed,
    /// The proof is wrong: wrong password or unknown user.
    WrongPassword,
    /// The client reports that the server offers no channel binding, but it does: an attacker
    /// changed the list (RFC 5802 §6). Or the client's binding is to another certificate.
    ChannelBinding,
    /// The client requests features that servers do not support: an authorization identity, an
    /// extension.
    Unsupported,
    /// The nonce differs from the one with which the exchange began.
    Nonce,
    /// The server requests more than [`ITERATIONS_MAX`] iterations.
    TooManyIterations,
    /// The server cannot prove that it knows the password's verifier.
    WrongServer,
}

impl fmt::Display for ScramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ScramError::Malformed => "malformed SCRAM message",
            ScramError::WrongPassword => "wrong password",
            ScramError::ChannelBinding => "SCRAM channel binding check failed",
            ScramError::Unsupported => {
                "SCRAM authorization identities and extensions are not supported"
            }
            ScramError::Nonce => "SCRAM nonce does not match",
            ScramError::TooManyIterations => "the server requested too many SCRAM iterations",
            ScramError::WrongServer => "incorrect SCRAM server signature",
        })
    }
}

impl std::error::Error for ScramError {}

impl Verifier {
    /// Parses `SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>` (manual, pg_authid).
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let text = str::from_utf8(text).ok()?;
        let (cost, keys) = text.strip_prefix("SCRAM-SHA-256$")?.split_once('$')?;
        let (iterations, salt) = cost.split_once(':')?;
        let (stored_key, server_key) = keys.split_once(':')?;
        let iterations = iterations.parse().ok().filter(|count| *count > 0)?;
        let salt = STANDARD.decode(salt).ok().filter(|salt| !salt.is_empty())?;
        Some(Verifier {
            iterations,
            salt,
            stored_key: decode_key(stored_key.as_bytes())?,
            server_key: decode_key(server_key.as_bytes())?,
            mock: false,
        })
    }

    /// Returns the verifier that a server would derive from a password: for credentials in a file.
    #[must_use]
    pub fn of_password(password: &[u8], salt: &[u8], iterations: u32) -> Self {
        let keys = Keys::of_password(password, salt, iterations);
        Verifier {
            iterations,
            salt: salt.to_vec(),
            stored_key: sha256(&*keys.client),
            server_key: *keys.server,
            mock: false,
        }
    }

    /// Returns a verifier for an unknown user: the same salt at every attempt, as for a real one,
    /// and no matching proof. `secret` belongs to the installation and never changes, as the
    /// server's `mock_authentication_nonce`.
    #[must_use]
    pub fn mock(user: &[u8], secret: &[u8; 32], iterations: u32) -> Self {
        let salt = mock_bytes(b"salt", user, secret);
        Verifier {
            iterations,
            salt: salt.iter().take(16).copied().collect(),
            stored_key: mock_bytes(b"stored", user, secret),
            server_key: mock_bytes(b"server", user, secret),
            mock: true,
        }
    }

    /// Returns whether a password can be checked within [`ITERATIONS_MAX`] iterations: users set
    /// their verifiers themselves.
    #[must_use]
    pub fn is_payable(&self) -> bool {
        self.iterations <= ITERATIONS_MAX
    }

    /// Returns whether the password matches the verifier: for logins with cleartext passwords.
    #[must_use]
    pub fn fits(&self, password: &[u8]) -> bool {
        let keys = Keys::of_password(password, &self.salt, self.iterations);
        let fits: bool = sha256(&*keys.client).ct_eq(&self.stored_key).into();
        fits && !self.mock
    }
}

impl Keys {
    /// Derives the keys of a password under a salt: costly, about 1 ms for 4,096 iterations.
    #[must_use]
    pub fn of_password(password: &[u8], salt: &[u8], iterations: u32) -> Self {
        let prepared = prepare(password);
        let salted = Zeroizing::new(salted_password(&prepared, salt, iterations));
        Keys {
            client: Zeroizing::new(hmac(&*salted, &[b"Client Key"])),
            server: Zeroizing::new(hmac(&*salted, &[b"Server Key"])),
        }
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(hidden)")
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Verifier(hidden, mock: {})", self.mock)
    }
}

/// Returns 32 pseudorandom bytes for an unknown user.
pub(crate) fn mock_bytes(purpose: &[u8], user: &[u8], secret: &[u8; 32]) -> [u8; 32] {
    hmac(secret, &[b"mock ", purpose, b" ", user])
}

/// Applies SASLprep (RFC 4013); as on servers, a password that cannot be prepared is used
/// unchanged.
fn prepare(password: &[u8]) -> Zeroizing<Vec<u8>> {
    let prepared = str::from_utf8(password)
        .ok()
        .and_then(|text| stringprep::saslprep(text).ok())
        .map(|text| text.into_owned().into_bytes());
    Zeroizing::new(prepared.unwrap_or_else(|| password.to_vec()))
}

/// Computes `Hi` of RFC 5802 §2.2.
fn salted_password(password: &[u8], salt: &[u8], iterations: u32) -> [u8; 32] {
    let keyed = keyed(password);
    let mut last = {
        let mut first = keyed.clone();
        first.update(salt);
        first.update(&[0, 0, 0, 1]);
        first.finalize().into_bytes()
    };
    let mut salted: [u8; 32] = last.into();
    for _ in 1..iterations {
        let mut next = keyed.clone();
        next.update(&last);
        last = next.finalize().into_bytes();
        xor(&mut salted, &last);
    }
    salted
}

fn xor(left: &mut [u8; 32], right: &[u8]) {
    for (place, byte) in left.iter_mut().zip(right) {
        *place ^= byte;
    }
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    match Hmac::new_from_slice(key) {
        Ok(keyed) => keyed,
        // Unreachable: HMAC accepts keys of any length.
        Err(_) => Hmac::new(&Default::default()),
    }
}

fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut keyed = keyed(key);
    for part in parts {
        keyed.update(part);
    }
    keyed.finalize().into_bytes().into()
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

fn decode_key(text: &[u8]) -> Option<[u8; 32]> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

/// Parses the first attribute of a message, which must have this name. Returns its value, and the
/// rest after the comma (RFC 5802 §5.1: the order of attributes is fixed).
fn attribute(message: &[u8], name: u8) -> Option<(&[u8], &[u8])> {
    let value = message.strip_prefix(&[name])?.strip_prefix(b"=")?;
    match memchr::memchr(b',', value) {
        Some(comma) => {
            let (value, rest) = value.split_at_checked(comma)?;
            Some((value, rest.strip_prefix(b",")?))
        }
        None => Some((value, &[])),
    }
}

/// Returns whether `nonce` is printable ASCII, as required of `r=` (RFC 5802 §7).
fn is_nonce(nonce: &[u8]) -> bool {
    !nonce.is_empty() && nonce.iter().all(u8::is_ascii_graphic)
}
