//! RSA encryption of passwords on connections without TLS, to servers and from clients.

use std::convert::Infallible;
use std::fmt;

use rsa::pkcs8::{DecodePrivateKey, DecodePublicKey, EncodePublicKey, LineEnding};
use rsa::rand_core::{TryCryptoRng, TryRng};
use rsa::{Oaep, RsaPrivateKey, RsaPublicKey};
use sha1::Sha1;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::Nonce;

/// Maximum size of a server's key in bits. Servers generate keys of 2048 bits; larger keys cost
/// CPU time without benefit here.
const BITS_MAX: usize = 8192;

/// Evenkeel's key pair; clients request the public key.
pub struct PrivateKey {
    key: RsaPrivateKey,
    pem: Vec<u8>,
}

/// Public key of a server.
#[derive(Debug, Clone)]
pub struct PublicKey(RsaPublicKey);

impl PrivateKey {
    /// Parses a PEM file (PKCS #8).
    #[must_use]
    pub fn from_pem(pem: &str) -> Option<Self> {
        Self::new(RsaPrivateKey::from_pkcs8_pem(pem).ok()?)
    }

    /// Generates a key of 2048 bits from 32 random bytes. Takes seconds.
    #[must_use]
    pub fn generate(random: [u8; 32]) -> Option<Self> {
        Self::new(RsaPrivateKey::new(&mut SeededRng::new(random), 2048).ok()?)
    }

    fn new(key: RsaPrivateKey) -> Option<Self> {
        let public = RsaPublicKey::from(&key);
        let pem = public.to_public_key_pem(LineEnding::LF).ok()?;
        let pem = pem.into_bytes();
        Some(PrivateKey { key, pem })
    }

    /// Returns the public key that clients request, in PEM.
    #[must_use]
    pub fn public_pem(&self) -> &[u8] {
        &self.pem
    }

    /// Decrypts the password in a client's message. Takes a millisecond and must not run on a
    /// session worker.
    #[must_use]
    pub fn decrypt_password(
        &self,
        message: &[u8],
        nonce: &Nonce,
        random: [u8; 32],
    ) -> Option<Zeroizing<Vec<u8>>> {
        let random = &mut SeededRng::new(random);
        let plain = self
            .key
            .decrypt_blinded(random, Oaep::<Sha1>::new(), message);
        let mut plain = Zeroizing::new(plain.ok()?);
        xor_with_nonce(&mut plain, nonce);
        plain.pop().filter(|byte| *byte == 0)?;
        Some(plain)
    }
}

impl PublicKey {
    /// Parses a PEM key that a server sent or that is in a file.
    #[must_use]
    pub fn from_pem(pem: &[u8]) -> Option<Self> {
        let pem = std::str::from_utf8(pem).ok()?;
        let key = RsaPublicKey::from_public_key_pem(pem.trim_end()).ok()?;
        let bits = rsa::traits::PublicKeyParts::size(&key).saturating_mul(8);
        (bits <= BITS_MAX).then_some(PublicKey(key))
    }

    /// Encrypts a password; `None` if it is too long for the key.
    #[must_use]
    pub fn encrypt_password(
        &self,
        password: &[u8],
        nonce: &Nonce,
        random: [u8; 32],
    ) -> Option<Vec<u8>> {
        let mut plain = Zeroizing::new(Vec::with_capacity(password.len().saturating_add(1)));
        plain.extend_from_slice(password);
        plain.push(0);
        xor_with_nonce(&mut plain, nonce);
        let random = &mut SeededRng::new(random);
        self.0.encrypt(random, Oaep::<Sha1>::new(), &plain).ok()
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKey(hidden)")
    }
}

/// XORs the text with the repeated nonce, so that a message cannot be replayed.
fn xor_with_nonce(plain: &mut [u8], nonce: &Nonce) {
    for (byte, other) in plain.iter_mut().zip(nonce.bytes().iter().cycle()) {
        *byte ^= other;
    }
}

/// Random bytes derived from a seed: SHA-256 of the seed and a counter.
struct SeededRng {
    seed: Zeroizing<[u8; 32]>,
    counter: u64,
}

impl SeededRng {
    fn new(seed: [u8; 32]) -> Self {
        let seed = Zeroizing::new(seed);
        SeededRng { seed, counter: 0 }
    }

    fn block(&mut self) -> [u8; 32] {
        self.counter = self.counter.wrapping_add(1);
        let hash = Sha256::new().chain_update(&self.seed[..]);
        hash.chain_update(self.counter.to_le_bytes())
            .finalize()
            .into()
    }
}

impl TryRng for SeededRng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let [a, b, c, d, ..] = self.block();
        Ok(u32::from_le_bytes([a, b, c, d]))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let [a, b, c, d, e, f, g, h, ..] = self.block();
        Ok(u64::from_le_bytes([a, b, c, d, e, f, g, h]))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for piece in bytes.chunks_mut(32) {
            let block = self.block();
            for (byte, random) in piece.iter_mut().zip(block) {
                *byte = random;
            }
        }
        Ok(())
    }
}

impl TryCryptoRng for SeededRng {}
