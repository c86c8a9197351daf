//! Keeps passwords that servers have accepted, in locked memory, while anything logs in to servers
//! with them.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

use evenkeel_engine::locked_memory::LockedMemory;
use evenkeel_engine::panics::lock;
use evenkeel_engine::secret;
use zeroize::Zeroizing;

use super::pool_registry::generation_of;

/// Passwords of a service's users.
pub(crate) struct KeptPasswords {
    content: Arc<Mutex<Content>>,
    /// Distinguishes the generations of passwords from plain hashes of them.
    secret: [u8; 32],
    /// True after the warning about a server that requests no password.
    is_trust_reported: AtomicBool,
}

#[derive(Default)]
struct Content {
    locked: LockedMemory,
    known: HashMap<u64, Weak<KeptPassword>>,
}

/// A password in locked memory, wiped on drop.
pub(crate) struct KeptPassword {
    content: Arc<Mutex<Content>>,
    generation: u64,
    number: usize,
}

impl Default for KeptPasswords {
    fn default() -> Self {
        Self {
            content: Arc::default(),
            secret: secret(),
            is_trust_reported: AtomicBool::new(false),
        }
    }
}

impl fmt::Debug for KeptPasswords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeptPasswords(hidden)")
    }
}

impl KeptPasswords {
    /// Returns the number that distinguishes a user with this password from the same user with
    /// another one.
    pub(crate) fn generation(&self, user: &str, password: &[u8]) -> u64 {
        generation_of(&[&self.secret, user.as_bytes(), password])
    }

    /// Keeps a password. Logins of the same user with the same password share one copy. `None`:
    /// the password is too long, or memory is exhausted.
    pub(crate) fn keep(&self, generation: u64, password: &[u8]) -> Option<Arc<KeptPassword>> {
        let mut content = lock(&self.content);
        if let Some(known) = content.known.get(&generation).and_then(Weak::upgrade) {
            return Some(known);
        }
        let kept = Arc::new(KeptPassword {
            content: Arc::clone(&self.content),
            generation,
            number: content.locked.put(password)?,
        });
        content.known.insert(generation, Arc::downgrade(&kept));
        Some(kept)
    }

    /// Warns, once, that a server has accepted a user without a password.
    pub(crate) fn warn_of_trust(&self, server: &str, user: &str) {
        if !self.is_trust_reported.swap(true, Relaxed) {
            tracing::warn!(
                server,
                user,
                "the server accepts this user from the address of Evenkeel without a password, so \
                 that clients log in with any password: see trust in pg_hba.conf"
            );
        }
    }

    #[cfg(test)]
    fn count(&self) -> usize {
        lock(&self.content).known.len()
    }
}

impl KeptPassword {
    /// Returns a copy, which should be dropped as early as possible.
    pub(crate) fn copy(&self) -> Zeroizing<Vec<u8>> {
        let mut content = lock(&self.content);
        content.locked.get(self.number).unwrap_or_default()
    }
}

impl Drop for KeptPassword {
    fn drop(&mut self) {
        let mut content = lock(&self.content);
        content.locked.drop(self.number);
        let known = content.known.get(&self.generation);
        // Another login may have kept the same password again.
        if known.is_some_and(|known| known.strong_count() == 0) {
            content.known.remove(&self.generation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_kept_once_and_as_long_as_it_is_used() {
        let passwords = KeptPasswords::default();
        let generation = passwords.generation("app", b"one");
        let first = passwords.keep(generation, b"one").unwrap();
        let second = passwords.keep(generation, b"one").unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        drop(first);
        assert_eq!(second.copy().as_slice(), b"one");
        drop(second);
        assert_eq!(passwords.count(), 0);
        let again = passwords.keep(generation, b"one").unwrap();
        assert_eq!(again.copy().as_slice(), b"one");
    }

    #[test]
    fn users_and_passwords_have_generations_of_their_own() {
        let passwords = KeptPasswords::default();
        let of = |user, password| passwords.generation(user, password);
        assert_eq!(of("app", b"one"), of("app", b"one"));
        assert_ne!(of("app", b"one"), of("app", b"two"));
        assert_ne!(of("app", b"one"), of("ap", b"pone"));
        let other = KeptPasswords::default();
        assert_ne!(of("app", b"one"), other.generation("app", b"one"));
    }
}
