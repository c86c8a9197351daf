//! Defines a password that a client has sent for a login, before a server has accepted it.

use std::fmt;

use zeroize::Zeroizing;

/// Password from a client. It proves nothing until a server has accepted it.
pub struct UnprovedPassword(Zeroizing<Vec<u8>>);

impl UnprovedPassword {
    pub(crate) fn new(password: &[u8]) -> Self {
        Self(Zeroizing::new(password.to_vec()))
    }

    /// Returns the password, for a login at a server.
    #[must_use]
    pub fn into_bytes(self) -> Zeroizing<Vec<u8>> {
        self.0
    }
}

impl fmt::Debug for UnprovedPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UnprovedPassword(hidden)")
    }
}
