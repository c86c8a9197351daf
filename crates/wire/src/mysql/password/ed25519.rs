//! MariaDB's `ed25519`: Ed25519 with the password in place of the standard's random seed.

use curve25519_dalek::edwards::{CompressedEdwardsY, EdwardsPoint};
use curve25519_dalek::scalar::{Scalar, clamp_integer};
use sha2::{Digest, Sha512};
use zeroize::Zeroizing;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;

/// Random bytes that a proof signs.
pub type Nonce = [u8; 32];

/// Public key stored in an account row. A proof does not permit logins at other servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verifier([u8; 32]);

impl Verifier {
    /// Returns the verifier of this key.
    pub(super) fn of_key(key: [u8; 32]) -> Self {
        Verifier(key)
    }

    /// Parses the form in an account row: 43 letters of base64.
    #[must_use]
    pub fn read(stored: &[u8]) -> Option<Self> {
        let key = STANDARD_NO_PAD.decode(stored).ok()?;
        Some(Verifier(key.try_into().ok()?))
    }

    /// Returns the verifier of a password.
    #[must_use]
    pub fn of_password(password: &[u8]) -> Self {
        let (secret, _) = expand(password);
        Verifier(EdwardsPoint::mul_base(&secret).compress().0)
    }

    /// Returns a verifier for an unknown user: its password is unknown to every client.
    #[must_use]
    pub fn mock(random: [u8; 32]) -> Self {
        Verifier::of_password(&random)
    }

    /// Returns the public key.
    #[must_use]
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns whether the signature of the message, which is the nonce, matches the password.
    #[must_use]
    pub fn check(&self, message: &[u8], proof: &[u8]) -> bool {
        self.verify(message, proof).unwrap_or(false)
    }

    fn verify(&self, message: &[u8], proof: &[u8]) -> Option<bool> {
        let (point, scalar) = proof.split_first_chunk::<32>()?;
        let scalar: [u8; 32] = scalar.try_into().ok()?;
        let scalar = Option::<Scalar>::from(Scalar::from_canonical_bytes(scalar))?;
        let key = CompressedEdwardsY(self.0).decompress()?;
        let challenge = challenge(point, &self.0, message);
        let expected = expected_point(&challenge, &key, &scalar);
        Some(expected.compress().0 == *point)
    }
}

/// Returns the proof for a server, whose nonce is the message.
#[must_use]
pub fn prove(password: &[u8], message: &[u8]) -> [u8; 64] {
    let (secret, prefix) = expand(password);
    let key = EdwardsPoint::mul_base(&secret).compress().0;
    let hidden = wide(
        Sha512::new()
            .chain_update(&prefix[..])
            .chain_update(message),
    );
    let point = EdwardsPoint::mul_base(&hidden).compress().0;
    let scalar = sum(hidden, challenge(&point, &key, message), secret);
    let mut proof = [0; 64];
    let (first, second) = proof.split_at_mut(32);
    first.copy_from_slice(&point);
    second.copy_from_slice(scalar.as_bytes());
    proof
}

fn expand(password: &[u8]) -> (Scalar, Zeroizing<[u8; 32]>) {
    let hash: Zeroizing<[u8; 64]> = Zeroizing::new(Sha512::digest(password).into());
    let (mut secret, mut prefix) = ([0; 32], Zeroizing::new([0; 32]));
    let (first, second) = hash.split_at(32);
    secret.copy_from_slice(first);
    prefix.copy_from_slice(second);
    let secret = Scalar::from_bytes_mod_order(clamp_integer(secret));
    (secret, prefix)
}

fn challenge(point: &[u8; 32], key: &[u8; 32], message: &[u8]) -> Scalar {
    let hash = Sha512::new().chain_update(point).chain_update(key);
    wide(hash.chain_update(message))
}

fn wide(hash: Sha512) -> Scalar {
    Scalar::from_bytes_mod_order_wide(&hash.finalize().into())
}

/// Returns R = sB - kA.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "points of the curve neither overflow nor panic"
)]
fn expected_point(challenge: &Scalar, key: &EdwardsPoint, scalar: &Scalar) -> EdwardsPoint {
    EdwardsPoint::vartime_double_scalar_mul_basepoint(challenge, &-key, scalar)
}

#[expect(
    clippy::arithmetic_side_effects,
    reason = "numbers modulo the group's order neither overflow nor panic"
)]
fn sum(hidden: Scalar, challenge: Scalar, secret: Scalar) -> Scalar {
    hidden + challenge * secret
}
