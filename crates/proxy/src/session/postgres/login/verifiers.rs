//! Verifiers of passwords that are only known as such. Each takes thousands of rounds of a hash,
//! which nobody who has proved nothing yet may have us do again and again.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

use evenkeel_wire::postgres::scram::{ITERATIONS, Verifier};

use crate::random::secret;

/// Those of the users of a service, by name, each with what tells its password from others.
#[derive(Debug, Default)]
pub(crate) struct Verifiers {
    known: Mutex<HashMap<Box<str>, (u64, Verifier)>>,
    hasher: RandomState,
}

impl Verifiers {
    /// That of a user of the file, made when it is first asked for, and when the password is
    /// another one.
    pub(super) fn of(&self, user: &str, password: &[u8]) -> Verifier {
        let which = self.hasher.hash_one(password);
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, verifier)) = lock().get(user).filter(|(of, _)| *of == which) {
            return verifier.clone();
        }
        // Others do not wait for it; who comes meanwhile makes one, too.
        let salt: [u8; 16] = secret();
        let verifier = Verifier::of_password(password, &salt, ITERATIONS);
        lock().insert(user.into(), (which, verifier.clone()));
        verifier
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_s_verifier_is_made_once() {
        let verifiers = Verifiers::default();
        let first = verifiers.of("app", b"secret");
        // With another salt it would be another one.
        assert_eq!(verifiers.of("app", b"secret"), first);
        assert_ne!(verifiers.of("other", b"secret"), first);
        let changed = verifiers.of("app", b"changed");
        assert!(changed.fits(b"changed") && !changed.fits(b"secret"));
    }
}
