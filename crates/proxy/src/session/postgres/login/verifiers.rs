//! Caches SCRAM verifiers of passwords. Computing one takes thousands of hash rounds, which
//! unauthenticated clients must not be able to trigger repeatedly.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;

use evenkeel_wire::postgres::scram::{ITERATIONS, Verifier};

use evenkeel_engine::panics::lock;
use evenkeel_engine::secret;

/// Verifiers by user name, each with a hash that identifies its password.
#[derive(Debug, Default)]
pub(crate) struct Verifiers {
    known: Mutex<HashMap<Box<str>, (u64, Verifier)>>,
    hasher: RandomState,
}

impl Verifiers {
    /// Returns the verifier of a configured user. It is computed at the first request and after a
    /// change of the password.
    pub(super) fn of(&self, user: &str, password: &[u8]) -> Verifier {
        let which = self.hasher.hash_one(password);
        if let Some((_, verifier)) = lock(&self.known).get(user).filter(|(of, _)| *of == which) {
            return verifier.clone();
        }
        // The lock is not held meanwhile, so concurrent requests may compute another one.
        let salt: [u8; 16] = secret();
        let verifier = Verifier::of_password(password, &salt, ITERATIONS);
        lock(&self.known).insert(user.into(), (which, verifier.clone()));
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
        // With another salt it would differ.
        assert_eq!(verifiers.of("app", b"secret"), first);
        assert_ne!(verifiers.of("other", b"secret"), first);
        let changed = verifiers.of("app", b"changed");
        assert!(changed.fits(b"changed") && !changed.fits(b"secret"));
    }
}
