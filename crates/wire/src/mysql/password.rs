//! Password proofs, one module for each plugin. Randomness is an argument.

pub mod crypt;
pub mod ed25519;
pub mod native;
pub mod parsec;
pub mod rsa;
pub mod sha2;

use ::sha2::{Digest, Sha256};

#[cfg(test)]
mod tests;

/// The plugin of SHA-1 proofs: off by default in MySQL 8.4, removed in 9, the default of MariaDB.
pub const NATIVE: &[u8] = b"mysql_native_password";
/// The default plugin of MySQL since 8.0.
pub const CACHING_SHA2: &[u8] = b"caching_sha2_password";
/// MariaDB's ed25519.
pub const ED25519: &[u8] = b"client_ed25519";
/// MariaDB's plugin of 11.6 and later.
pub const PARSEC: &[u8] = b"parsec";
/// The plugin of cleartext passwords.
pub const CLEAR: &[u8] = b"mysql_clear_password";

/// Twenty random bytes for native and SHA-2 proofs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nonce([u8; 20]);

impl Nonce {
    /// Creates a nonce from random bytes. Clients read it as a C string, so zero bytes are
    /// replaced; so is `$`, as on servers, because it separates the parts of a stored hash.
    #[must_use]
    pub fn of_random(mut random: [u8; 20]) -> Self {
        for byte in &mut random {
            *byte = match *byte & 0x7f {
                0 => 1,
                b'$' => b'%',
                byte => byte,
            };
        }
        Nonce(random)
    }

    /// Returns the nonce that a server sent.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 20]) -> Self {
        Nonce(bytes)
    }

    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 20] {
        &self.0
    }
}

/// Returns the message of the OK that authenticates a certificate to a client of MariaDB 11.4 or
/// later ("Zero-Configuration SSL"). The message proves that the certificate belongs to a party
/// that knows the password. `stored` is the verifier that the plugin derives from the password,
/// `certificate` the SHA-256 of the certificate.
#[must_use]
pub fn certificate_proof(stored: &[u8], nonce: &Nonce, certificate: &[u8; 32]) -> Vec<u8> {
    let hash = Sha256::new()
        .chain_update(stored)
        .chain_update(nonce.bytes());
    let hash = hash.chain_update(certificate).finalize();
    let digits = hash.iter().map(|byte| format!("{byte:02X}"));
    [&[1][..], digits.collect::<String>().as_bytes()].concat()
}

/// Returns the bitwise XOR of both.
fn xor<const N: usize>(mut left: [u8; N], right: &[u8; N]) -> [u8; N] {
    for (byte, other) in left.iter_mut().zip(right) {
        *byte ^= other;
    }
    left
}
