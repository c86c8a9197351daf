//! Reads and formats the hashes by which a configuration names single certificates.

use std::{fmt, str::FromStr};

use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};

/// Word before the digits, which names the hash function.
const PREFIX: &str = "sha256:";

/// SHA-256 of a certificate in DER.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 32]);

/// Text that is not a fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a fingerprint is `sha256:` and 64 digits 0-9 a-f, with or without colons between them")]
pub struct NoFingerprint;

impl Fingerprint {
    /// Returns the fingerprint of a certificate.
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        Self(Sha256::digest(certificate).into())
    }
}

impl FromStr for Fingerprint {
    type Err = NoFingerprint;

    /// Reads hexadecimal digits, in pairs that a colon may separate, after an optional `sha256:`.
    fn from_str(text: &str) -> Result<Self, NoFingerprint> {
        let text = text.trim().to_ascii_lowercase();
        let digits = text.strip_prefix(PREFIX).unwrap_or(&text).as_bytes();
        let step = match digits.len() {
            64 => 2,
            95 => 3,
            _ => return Err(NoFingerprint),
        };
        let mut hash = [0; 32];
        for (byte, part) in hash.iter_mut().zip(digits.chunks(step)) {
            let (pair, separator) = part.split_at_checked(2).ok_or(NoFingerprint)?;
            if !matches!(separator, b"" | b":") {
                return Err(NoFingerprint);
            }
            *byte = 16 * digit(pair[0])? + digit(pair[1])?;
        }
        Ok(Self(hash))
    }
}

fn digit(character: u8) -> Result<u8, NoFingerprint> {
    let value = char::from(character).to_digit(16).ok_or(NoFingerprint)?;
    u8::try_from(value).map_err(|_| NoFingerprint)
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_read_with_and_without_colons_and_prefix() {
        let one = Fingerprint::of(&CertificateDer::from(vec![1, 2, 3]));
        let written = one.to_string();
        let digits = written.strip_prefix("sha256:").unwrap();
        assert!(digits.starts_with("039058c6f2c0cb49"), "{digits}");
        let pairs: Vec<_> = digits
            .as_bytes()
            .chunks(2)
            .map(|pair| std::str::from_utf8(pair).unwrap())
            .collect();
        let with_colons = pairs.join(":").to_uppercase();
        for text in [written.as_str(), digits, &with_colons] {
            assert_eq!(text.parse(), Ok(one), "{text}");
        }
        assert_eq!(format!(" SHA256:{with_colons}\n").parse(), Ok(one));
        let spaced = with_colons.replace(':', " ");
        for wrong in [
            "",
            "sha256:",
            &digits[2..],
            &digits.replace('0', "g"),
            &spaced,
        ] {
            assert_eq!(wrong.parse::<Fingerprint>(), Err(NoFingerprint), "{wrong}");
        }
    }
}
