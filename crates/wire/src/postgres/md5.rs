//! The md5 password method (§20.5, §54.2.2 "AuthenticationMD5Password"), which is old but still in
//! use.

use std::fmt;

use md5::{Digest, Md5};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::scram;

/// `md5` and 32 hexadecimal digits: the value in pg_authid, which is all that a client needs to log
/// in.
#[derive(Clone, PartialEq, Eq)]
pub struct Hash(Zeroizing<[u8; 32]>);

impl Hash {
    /// Parses the text in pg_authid.
    #[must_use]
    pub fn parse(text: &[u8]) -> Option<Self> {
        let digits: [u8; 32] = text.strip_prefix(b"md5")?.try_into().ok()?;
        let lower = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        digits
            .iter()
            .all(lower)
            .then(|| Hash(Zeroizing::new(digits)))
    }

    /// Returns the hash of a user's password: `md5(password || user)`.
    #[must_use]
    pub fn of_password(user: &[u8], password: &[u8]) -> Self {
        Hash(Zeroizing::new(hex_digest(&[password, user])))
    }

    /// Returns a hash for an unknown user: the same at each attempt, and matching no password.
    #[must_use]
    pub fn mock(user: &[u8], secret: &[u8; 32]) -> Self {
        Hash(Zeroizing::new(hex_digest(&[&scram::mock_bytes(
            b"md5", user, secret,
        )])))
    }

    /// Returns a client's response to a salt: `md5` and `md5(hash || salt)`.
    #[must_use]
    pub fn response(&self, salt: [u8; 4]) -> [u8; 35] {
        let mut response = *b"md5________________________________";
        for (place, digit) in response
            .iter_mut()
            .skip(3)
            .zip(hex_digest(&[self.0.as_slice(), &salt]))
        {
            *place = digit;
        }
        response
    }

    /// Returns whether a client's response to a salt is correct.
    #[must_use]
    pub fn accepts(&self, salt: [u8; 4], response: &[u8]) -> bool {
        self.response(salt).as_slice().ct_eq(response).into()
    }

    /// Returns whether this is the hash of that user's password.
    #[must_use]
    pub fn fits(&self, user: &[u8], password: &[u8]) -> bool {
        let other = Hash::of_password(user, password);
        self.0.ct_eq(&*other.0).into()
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hash(hidden)")
    }
}

fn hex_digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut digest = Md5::new();
    for part in parts {
        digest.update(part);
    }
    let mut digits = [0; 32];
    let nibbles = digest
        .finalize()
        .into_iter()
        .flat_map(|byte| [byte >> 4, byte & 15]);
    for (place, nibble) in digits.iter_mut().zip(nibbles) {
        *place = b"0123456789abcdef"
            .get(usize::from(nibble))
            .copied()
            .unwrap_or(b'0');
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_what_the_server_stores() {
        // PostgreSQL 15: create user md5u password 'secret', password_encryption = md5
        let stored = Hash::parse(b"md5ad16ab8cb9f9946be08171afa599199d").unwrap();
        assert!(stored == Hash::of_password(b"md5u", b"secret"));
        assert!(stored.fits(b"md5u", b"secret"));
        assert!(!stored.fits(b"md5u", b"Secret") && !stored.fits(b"other", b"secret"));
    }

    #[test]
    fn only_the_right_answer_to_the_right_salt_is_accepted() {
        let hash = Hash::of_password(b"u", b"p");
        let response = hash.response([1, 2, 3, 4]);
        assert!(hash.accepts([1, 2, 3, 4], &response));
        assert!(!hash.accepts([1, 2, 3, 5], &response));
        assert!(!hash.accepts([1, 2, 3, 4], &response[..34]));
        assert!(!hash.accepts([1, 2, 3, 4], b""));
    }

    #[test]
    fn what_is_not_a_hash_is_not_taken_for_one() {
        for text in [
            "",
            "md5",
            "md5c3430dc36af84ae0d7fcf6d6a3ca7ff",
            "MD5c3430dc36af84ae0d7fcf6d6a3ca7ff1",
        ] {
            assert_eq!(Hash::parse(text.as_bytes()), None, "{text}");
        }
    }
}
