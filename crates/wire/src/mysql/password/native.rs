//! `mysql_native_password`: SHA-1, applied once to prove, twice to check.

use sha1::{Digest, Sha1};
use subtle::ConstantTimeEq;
use zeroize::Zeroize;

use super::{Nonce, xor};

/// Verifier that a server stores: SHA1(SHA1(password)).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Verifier([u8; 20]);

/// SHA1(password): sufficient to log in to every server that stores its hash.
#[derive(Clone)]
pub struct Key([u8; 20]);

impl Verifier {
    /// Parses the form in an account row: `*` and 40 hexadecimal digits.
    #[must_use]
    pub fn read(stored: &[u8]) -> Option<Self> {
        let digits = stored.strip_prefix(b"*")?;
        let mut hash = [0; 20];
        if digits.len() != 40 {
            return None;
        }
        for (byte, pair) in hash.iter_mut().zip(digits.chunks_exact(2)) {
            let text = std::str::from_utf8(pair).ok()?;
            let signed = text.starts_with('+');
            *byte = u8::from_str_radix(text, 16).ok().filter(|_| !signed)?;
        }
        Some(Verifier(hash))
    }

    /// Returns the verifier of a password.
    #[must_use]
    pub fn of_password(password: &[u8]) -> Self {
        Key::of_password(password).verifier()
    }

    /// Returns a verifier for an unknown user, which accepts no proof.
    #[must_use]
    pub fn mock(random: [u8; 20]) -> Self {
        Verifier(random)
    }

    /// Returns SHA1(SHA1(password)).
    #[must_use]
    pub fn bytes(&self) -> &[u8; 20] {
        &self.0
    }

    /// Checks a proof, and returns the key that it contains.
    #[must_use]
    pub fn check(&self, nonce: &Nonce, proof: &[u8]) -> Option<Key> {
        let proof: &[u8; 20] = proof.try_into().ok()?;
        let key = Key(xor(mask(nonce, self), proof));
        let same = key.verifier().0.ct_eq(&self.0);
        bool::from(same).then_some(key)
    }
}

impl Key {
    /// Returns the key of a password.
    #[must_use]
    pub fn of_password(password: &[u8]) -> Self {
        Key(Sha1::digest(password).into())
    }

    /// Returns the verifier of this key.
    #[must_use]
    pub fn verifier(&self) -> Verifier {
        Verifier(Sha1::digest(self.0).into())
    }

    /// Returns the proof for a server.
    #[must_use]
    pub fn prove(&self, nonce: &Nonce) -> [u8; 20] {
        xor(mask(nonce, &self.verifier()), &self.0)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

fn mask(nonce: &Nonce, verifier: &Verifier) -> [u8; 20] {
    let hash = Sha1::new().chain_update(nonce.bytes());
    hash.chain_update(verifier.0).finalize().into()
}
