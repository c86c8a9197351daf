//! Generates random bytes that must be secret: salts, nonces, keys.

use rustls::crypto::ring;

/// Returns `LENGTH` secret random bytes.
///
/// # Panics Panics if the system provides none: without them nothing secret can be created.
#[expect(clippy::expect_used, reason = "without random bytes no login is safe")]
pub fn secret<const LENGTH: usize>() -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    let random = ring::default_provider().secure_random;
    random.fill(&mut bytes).expect("the system's random bytes");
    bytes
}
