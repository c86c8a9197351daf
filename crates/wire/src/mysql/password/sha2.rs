//! Fast authentication of `caching_sha2_password`: SHA-256, applied once to prove, twice to check.

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroize;

use super::{Nonce, xor};

/// Verifier that a server caches after it has received the password: SHA256(SHA256(password)).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Verifier([u8; 32]);

/// SHA256(password): sufficient to log in to every server that has cached the verifier.
#[derive(Clone)]
pub struct Key([u8; 32]);

impl Verifier {
    /// Returns the verifier of a password.
    #[must_use]
    pub fn of_password(password: &[u8]) -> Self {
        Key::of_password(password).verifier()
    }

    /// Returns whether the password matches.
    #[must_use]
    pub fn is_of(&self, password: &[u8]) -> bool {
        bool::from(Verifier::of_password(password).0.ct_eq(&self.0))
    }

    /// Checks a proof, and returns the key that it contains.
    #[must_use]
    pub fn check(&self, nonce: &Nonce, proof: &[u8]) -> Option<Key> {
        let proof: &[u8; 32] = proof.try_into().ok()?;
        let key = Key(xor(mask(nonce, self), proof));
        let same = key.verifier().0.ct_eq(&self.0);
        bool::from(same).then_some(key)
    }
}

impl Key {
    /// Returns the key of a password.
    #[must_use]
    pub fn of_password(password: &[u8]) -> Self {
        Key(Sha256::digest(password).into())
    }

    /// Returns the verifier of this key.
    #[must_use]
    pub fn verifier(&self) -> Verifier {
        Verifier(Sha256::digest(self.0).into())
    }

    /// Returns the proof for a server.
    #[must_use]
    pub fn prove(&self, nonce: &Nonce) -> [u8; 32] {
        xor(mask(nonce, &self.verifier()), &self.0)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

fn mask(nonce: &Nonce, verifier: &Verifier) -> [u8; 32] {
    let hash = Sha256::new().chain_update(verifier.0);
    hash.chain_update(nonce.bytes()).finalize().into()
}
