//! Users of routes with `basic_auth`, and the verification of their passwords.

use std::collections::HashMap;
use std::sync::Arc;

/// Salt and hash, after the cost, with which passwords of unknown users are compared.
const DECOY: &str = "........................................................";

/// Users of a route.
#[derive(Debug)]
pub struct BasicAuth {
    /// Value of `WWW-Authenticate`.
    pub challenge: String,
    /// Hashes by user.
    users: HashMap<Vec<u8>, Arc<PasswordHash>>,
    /// Hash for unknown users, which takes as long as the slowest of the others.
    decoy: Arc<PasswordHash>,
}

/// Hash of a password, as `htpasswd -B` writes it. Never printed.
#[derive(Clone)]
pub struct PasswordHash {
    text: String,
    is_decoy: bool,
}

impl BasicAuth {
    /// Creates the table of users. The realm is printable ASCII without `"` and `\\`. `cost_max` is
    /// the highest cost of the hashes.
    pub fn new(realm: &str, users: impl Iterator<Item = (String, String)>, cost_max: u32) -> Self {
        let hash = |text| {
            Arc::new(PasswordHash {
                text,
                is_decoy: false,
            })
        };
        Self {
            challenge: format!("Basic realm=\"{realm}\", charset=\"UTF-8\""),
            users: users
                .map(|(name, text)| (name.into_bytes(), hash(text)))
                .collect(),
            decoy: Arc::new(PasswordHash {
                text: format!("$2b${cost_max:02}${}", &DECOY[..53]),
                is_decoy: true,
            }),
        }
    }

    /// Returns the hash to compare with the password of a user, known or not.
    pub(crate) fn hash_of(&self, user: &[u8]) -> &Arc<PasswordHash> {
        self.users.get(user).unwrap_or(&self.decoy)
    }
}

impl PasswordHash {
    /// Returns whether a password is the right one; takes milliseconds. Bytes after the 72nd do not
    /// count, as everywhere with this hash.
    pub(crate) fn verify(&self, password: &[u8]) -> bool {
        bcrypt::verify(password, &self.text).unwrap_or(false) && !self.is_decoy
    }

    /// Returns the text of the hash.
    pub(crate) fn text(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

impl std::fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PasswordHash(***)")
    }
}

#[cfg(test)]
mod tests {
    use std::str::FromStr;

    use bcrypt::HashParts;

    use super::*;

    /// Hash of "U*U" with cost 5, of the test vectors of crypt_blowfish.
    const HASH: &str = "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";

    fn auth() -> BasicAuth {
        let users = [("ann".to_owned(), HASH.to_owned())];
        BasicAuth::new("r", users.into_iter(), 5)
    }

    #[test]
    fn only_the_password_of_the_user_is_right() {
        let auth = auth();
        assert!(auth.hash_of(b"ann").verify(b"U*U"));
        assert!(!auth.hash_of(b"ann").verify(b"U*V"));
        assert!(!auth.hash_of(b"ann").verify(b""));
        assert!(!auth.hash_of(b"bob").verify(b"U*U"));
    }

    /// The time of a refusal must not reveal whether the user exists.
    #[test]
    fn an_unknown_user_takes_the_work_of_a_known_one() {
        let auth = auth();
        let decoy = auth.hash_of(b"bob");
        let cost = |text: &str| HashParts::from_str(text).map(|parts| parts.get_cost()).ok();
        assert_eq!(cost(&decoy.text), cost(HASH));
        assert!(bcrypt::verify(b"x", &decoy.text).is_ok());
    }
}
