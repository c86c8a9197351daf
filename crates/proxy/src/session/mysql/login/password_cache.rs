//! Caches the passwords from full logins with `caching_sha2_password`: one per user, while the
//! servers' account is unchanged.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use evenkeel_wire::mysql::password::sha2::Verifier;
use zeroize::Zeroizing;

use evenkeel_engine::locked_memory::LockedMemory;
use evenkeel_engine::panics::lock;

/// Cache shared by the workers of a service.
#[derive(Debug, Default)]
pub(crate) struct PasswordCache {
    content: Mutex<Content>,
}

#[derive(Debug, Default)]
struct Content {
    users: HashMap<Box<str>, CachedPassword>,
    locked: LockedMemory,
}

/// Cached password of a user. Its generation is that of the account row, and changes with the
/// password.
#[derive(Debug)]
struct CachedPassword {
    generation: u64,
    verifier: Fast,
    /// Number in locked memory; `None` if the password is not used to log in to servers.
    number: Option<usize>,
}

/// Data that a full login leaves in the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum CacheLevel {
    #[default]
    Nothing,
    /// The verifier, which makes the next login a fast one.
    Verifier,
    /// The verifier and the password, for servers that require it.
    Password,
}

struct Fast(Verifier);

impl std::fmt::Debug for Fast {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fast(hidden)")
    }
}

impl PasswordCache {
    /// Caches a password that a user has proved. Returns true if it was not known.
    pub(super) fn keep(
        &self,
        (user, generation): (&str, u64),
        password: &[u8],
        keeps: CacheLevel,
    ) -> bool {
        let mut content = self.lock();
        let known = content.users.get(user);
        let is_known = known.is_some_and(|kept| kept.generation == generation);
        if is_known || keeps == CacheLevel::Nothing {
            return false;
        }
        content.forget(user);
        let number = match keeps {
            CacheLevel::Password => content.locked.put(password),
            _ => None,
        };
        let kept = CachedPassword {
            generation,
            verifier: Fast(Verifier::of_password(password)),
            number,
        };
        content.users.insert(user.into(), kept);
        true
    }

    /// Returns the verifier of a user with a cached password.
    pub(super) fn verifier(&self, user: &str, generation: u64) -> Option<Verifier> {
        let content = self.lock();
        let kept = content.users.get(user)?;
        (kept.generation == generation).then_some(kept.verifier.0)
    }

    /// Returns the password, for a login at a server.
    pub(crate) fn password(&self, user: &str, generation: u64) -> Option<Zeroizing<Vec<u8>>> {
        let mut content = self.lock();
        let kept = content.users.get(user)?;
        let number = kept.number.filter(|_| kept.generation == generation)?;
        content.locked.get(number)
    }

    /// Removes a user that no longer exists on the servers.
    pub(super) fn forget(&self, user: &str) {
        self.lock().forget(user);
    }

    fn lock(&self) -> MutexGuard<'_, Content> {
        lock(&self.content)
    }
}

impl Content {
    fn forget(&mut self, user: &str) {
        let kept = self.users.remove(user);
        if let Some(number) = kept.and_then(|kept| kept.number) {
            self.locked.drop(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_there_until_the_account_changes() {
        let vault = PasswordCache::default();
        let keep =
            |generation, password| vault.keep(("app", generation), password, CacheLevel::Password);
        assert!(keep(1, b"one") && !keep(1, b"one"));
        assert_eq!(vault.password("app", 1).unwrap().as_slice(), b"one");
        assert!(vault.verifier("app", 1).is_some());
        assert!(vault.password("app", 2).is_none() && vault.verifier("app", 2).is_none());
        assert!(vault.password("other", 1).is_none());
        assert!(keep(2, b"two"));
        assert!(vault.password("app", 1).is_none());
        assert_eq!(vault.password("app", 2).unwrap().as_slice(), b"two");
        vault.forget("app");
        assert!(vault.password("app", 2).is_none());
    }

    #[test]
    fn a_password_that_no_server_wants_is_not_kept() {
        let vault = PasswordCache::default();
        assert!(vault.keep(("app", 1), b"one", CacheLevel::Verifier));
        assert!(vault.password("app", 1).is_none());
        assert!(vault.verifier("app", 1).unwrap().is_of(b"one"));
        assert!(!vault.keep(("other", 1), b"one", CacheLevel::Nothing));
        assert!(vault.verifier("other", 1).is_none());
    }

    #[test]
    fn nothing_of_it_is_shown() {
        let vault = PasswordCache::default();
        vault.keep(("app", 1), b"geheim", CacheLevel::Password);
        assert!(!format!("{vault:?}").contains("geheim"));
    }
}
