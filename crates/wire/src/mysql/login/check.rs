//! The comparison of a password with what is stored, which takes milliseconds.

use std::fmt;

use zeroize::Zeroizing;

use super::{AuthFailure, Authenticated, Credential};
use crate::mysql::password::rsa::PrivateKey;
use crate::mysql::password::{Nonce, crypt, ed25519, native, sha2};

/// What a password is compared with.
#[derive(Clone)]
pub enum Secret {
    /// A hash of `caching_sha2_password`, perhaps a mock.
    Sha2(crypt::Stored),
    /// A hash of `mysql_native_password`, perhaps a mock.
    Native(native::Verifier),
    /// A key of MariaDB's ed25519, perhaps a mock.
    Ed25519(ed25519::Verifier),
}

/// A password that is to be compared, away from where sessions run. The client waits for OK or ERR.
pub struct Check {
    pub(super) user: Vec<u8>,
    pub(super) secret: Secret,
    pub(super) given: Given,
    pub(super) sequence: u8,
}

/// How the password came.
pub(super) enum Given {
    Password(Zeroizing<Vec<u8>>),
    Encrypted { message: Vec<u8>, nonce: Nonce },
}

impl Check {
    /// Who says so.
    #[must_use]
    pub fn user(&self) -> &[u8] {
        &self.user
    }

    /// The number of the packet that answers.
    #[must_use]
    pub fn sequence(&self) -> u8 {
        self.sequence
    }

    /// Compares. `key` is ours, whose public half the client was given; `random` protects it.
    ///
    /// # Errors
    /// It is not the password.
    pub fn run(
        self,
        key: Option<&PrivateKey>,
        random: [u8; 32],
    ) -> Result<Authenticated, AuthFailure> {
        self.run_knowing(key, random, None)
    }

    /// The same, sparing the many rounds for a password that was proved meanwhile by another login.
    ///
    /// # Errors
    /// It is not the password.
    pub fn run_knowing(
        self,
        key: Option<&PrivateKey>,
        random: [u8; 32],
        proved: Option<&sha2::Verifier>,
    ) -> Result<Authenticated, AuthFailure> {
        let password = match self.given {
            Given::Password(password) => password,
            Given::Encrypted { message, nonce } => {
                let key = key.ok_or(AuthFailure::NoKey)?;
                let password = key.password(&message, &nonce, random);
                // A broken message takes as long as a wrong password, and tells as much.
                password.unwrap_or_default()
            }
        };
        let is_proved = |known: &sha2::Verifier| known.is_of(&password);
        let fits = proved.is_some_and(is_proved) || self.secret.fits(&password);
        if !fits || password.is_empty() {
            return Err(AuthFailure::WrongPassword);
        }
        Ok(Authenticated {
            user: self.user,
            credential: Credential::Password(password),
        })
    }
}

impl Secret {
    /// Whether it is this password's.
    #[must_use]
    pub fn fits(&self, password: &[u8]) -> bool {
        match self {
            Secret::Sha2(stored) => stored.fits(password),
            Secret::Native(verifier) => *verifier == native::Verifier::of_password(password),
            Secret::Ed25519(verifier) => *verifier == ed25519::Verifier::of_password(password),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Secret::Sha2(_) => "Sha2(hidden)",
            Secret::Native(_) => "Native(hidden)",
            Secret::Ed25519(_) => "Ed25519(hidden)",
        })
    }
}

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.escape_ascii();
        write!(f, "Check of {user}")
    }
}
