//! Compares a password with a stored hash, which takes milliseconds.

use std::fmt;

use zeroize::Zeroizing;

use super::{AuthFailure, Authenticated, Credential};
use crate::mysql::password::rsa::PrivateKey;
use crate::mysql::password::{Nonce, crypt, ed25519, native, sha2};

/// Secret that a password is compared with.
#[derive(Clone)]
pub enum Secret {
    /// A hash of `caching_sha2_password`, perhaps a mock.
    Sha2(crypt::Stored),
    /// A hash of `mysql_native_password`, perhaps a mock.
    Native(native::Verifier),
    /// A key of MariaDB's ed25519, perhaps a mock.
    Ed25519(ed25519::Verifier),
}

/// A pending password check, to be run outside the session's worker. The client waits for OK or
/// ERR.
pub struct Check {
    pub(super) user: Vec<u8>,
    pub(super) secret: Secret,
    pub(super) sent: SentPassword,
    pub(super) sequence: u8,
}

/// Form of the received password.
pub(super) enum SentPassword {
    Password(Zeroizing<Vec<u8>>),
    Encrypted { message: Vec<u8>, nonce: Nonce },
}

impl Check {
    /// Returns the user that logs in.
    #[must_use]
    pub fn user(&self) -> &[u8] {
        &self.user
    }

    /// Returns the sequence number of the reply.
    #[must_use]
    pub fn sequence(&self) -> u8 {
        self.sequence
    }

    /// Compares the password. `key` is Evenkeel's key, whose public half the client has received;
    /// `random` blinds the decryption.
    ///
    /// # Errors
    ///
    /// Fails if the password is wrong.
    pub fn run(
        self,
        key: Option<&PrivateKey>,
        random: [u8; 32],
    ) -> Result<Authenticated, AuthFailure> {
        self.run_knowing(key, random, None)
    }

    /// Like [`Check::run`], but skips the hash rounds for a password that another login has proved
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// Fails if the password is wrong.
    pub fn run_knowing(
        self,
        key: Option<&PrivateKey>,
        random: [u8; 32],
        proved: Option<&sha2::Verifier>,
    ) -> Result<Authenticated, AuthFailure> {
        let password = match self.sent {
            SentPassword::Password(password) => password,
            SentPassword::Encrypted { message, nonce } => {
                let key = key.ok_or(AuthFailure::NoKey)?;
                let password = key.decrypt_password(&message, &nonce, random);
                // A malformed message takes as long as a wrong password, and returns the same
                // error.
                password.unwrap_or_default()
            }
        };
        let is_proved = |known: &sha2::Verifier| known.is_of(&password);
        let fits = proved.is_some_and(is_proved) || self.secret.fits(&password);
        if !fits || password.is_empty() {
            return Err(AuthFailure::WrongPassword);
        }
        let credential = Credential::Password(password);
        Ok(Authenticated::new(self.user, credential))
    }
}

impl Secret {
    /// Returns whether the password matches.
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
