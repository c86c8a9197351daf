//! Name and password of a user in `Authorization: Basic …` (RFC 7617 §2).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

/// Maximum length of a decoded name and password, in bytes.
const LENGTH_MAX: usize = 1024;

/// Name and password of a user, in bytes that are wiped when they are dropped.
pub struct Credentials {
    bytes: Zeroizing<Vec<u8>>,
    /// Position of the colon.
    colon: usize,
}

impl Credentials {
    /// Reads the value of the field. `None`: another scheme, invalid base64, no colon, or more than
    /// 1,024 bytes.
    pub fn parse(value: &[u8]) -> Option<Credentials> {
        let (scheme, encoded) = value.split_at_checked(6)?;
        if !scheme.eq_ignore_ascii_case(b"Basic ") {
            return None;
        }
        let bytes = Zeroizing::new(STANDARD.decode(encoded.trim_ascii()).ok()?);
        let colon = bytes.iter().position(|byte| *byte == b':')?;
        (bytes.len() <= LENGTH_MAX).then_some(Credentials { bytes, colon })
    }

    /// Returns the name, which has no colon.
    pub fn user(&self) -> &[u8] {
        self.bytes.get(..self.colon).unwrap_or_default()
    }

    /// Returns the password.
    pub fn password(&self) -> &[u8] {
        self.bytes
            .get(self.colon.saturating_add(1)..)
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7617 §2, and others.
    #[test]
    fn a_name_and_a_password_are_read() {
        for (value, expect) in [
            (
                "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==",
                Some(("Aladdin", "open sesame")),
            ),
            ("basic  YTpiOmM=", Some(("a", "b:c"))),
            ("BASIC Og==", Some(("", ""))),
            ("Basic YWI=", None),
            ("Basic YTpi*", None),
            ("Basic", None),
            ("Bearer YTpi", None),
            ("", None),
        ] {
            let read = Credentials::parse(value.as_bytes());
            let read = read.as_ref().map(|read| (read.user(), read.password()));
            let expect = expect.map(|(user, password)| (user.as_bytes(), password.as_bytes()));
            assert_eq!(read, expect, "{value}");
        }
    }

    #[test]
    fn long_credentials_are_none() {
        let value = |length| {
            format!(
                "Basic {}",
                STANDARD.encode("a:".to_owned() + &"b".repeat(length))
            )
        };
        assert!(Credentials::parse(value(1_022).as_bytes()).is_some());
        assert!(Credentials::parse(value(1_023).as_bytes()).is_none());
    }
}
