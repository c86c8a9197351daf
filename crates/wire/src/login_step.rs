//! Describes the steps and the end of a login, whichever the protocol.

use std::fmt;

use zeroize::Zeroizing;

/// Credential from a client's login that can log in to servers. `K`: keys that the protocol's
/// methods accept in place of a password.
#[derive(Clone)]
pub enum Credential<K> {
    /// None: servers require none, or a credential must come from elsewhere.
    Nothing,
    /// A key.
    Key(K),
    /// The password.
    Password(Zeroizing<Vec<u8>>),
}

impl<K> fmt::Debug for Credential<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Credential::Nothing => "Nothing",
            Credential::Key(_) => "Key(hidden)",
            Credential::Password(_) => "Password(hidden)",
        })
    }
}

/// Proof that a client has authenticated. `C`: credential for logins to servers.
#[derive(Debug)]
pub struct Authenticated<C> {
    user: Vec<u8>,
    credential: C,
}

impl<C> Authenticated<C> {
    /// Creates the proof. Only the last step of a login may, or a caller that trusts the client.
    pub(crate) fn new(user: Vec<u8>, credential: C) -> Self {
        Authenticated { user, credential }
    }

    /// Returns the user's name.
    #[must_use]
    pub fn user(&self) -> &[u8] {
        &self.user
    }

    /// Returns the credential for logins to servers as this user.
    #[must_use]
    pub fn credential(&self) -> &C {
        &self.credential
    }
}

/// Result of one step of a login at a server. `L`: the login; `R`: its result; `F`: its failure.
#[derive(Debug)]
pub enum LoginStep<L, R, F> {
    /// Another message of the server follows.
    More(Box<L>),
    /// The login succeeded.
    Done(R),
    /// The login failed; close the connection.
    Refused(F),
}

impl<L, R, F> From<Result<Self, F>> for LoginStep<L, R, F> {
    fn from(result: Result<Self, F>) -> Self {
        result.unwrap_or_else(LoginStep::Refused)
    }
}
