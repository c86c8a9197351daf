//! Verifies the users of routes with `basic_auth`.
//!
//! A password takes milliseconds to verify, which another thread does; meanwhile the request is
//! kept, and read again afterwards. Each worker remembers what it has seen verified.

use std::cell::RefCell;
use std::collections::HashMap;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use evenkeel_engine::{clock, secret};
use evenkeel_policy::http::keyed_hash::HashKey;
use evenkeel_wire::http::basic::Credentials;
use evenkeel_wire::http::{KnownName, RequestHead};

use super::exchange::Exchange;
use super::{ExitReason, HeadProgress, Session, Stage};
use crate::service::http::basic_auth::{BasicAuth, PasswordHash};
use crate::session::blocking::run_blocking;

/// Time for which a verified password is remembered.
const KNOWN_MS: u64 = 300_000;

/// Maximum number of passwords that a worker remembers.
const KNOWN_MAX: usize = 4_096;

/// Maximum length of the name of a user, in bytes.
const USER_LENGTH_MAX: usize = 255;

/// Whether a client has shown that it is a user of a route.
pub(super) enum Login {
    /// The client has.
    Known,
    /// The client has sent no name and password, or none that any user can have.
    Missing,
    /// The client has tried too often.
    TooOften,
    /// The password must be verified first.
    Unverified(Attempt),
}

/// A password to verify.
pub(super) struct Attempt {
    credentials: Credentials,
    hash: Arc<PasswordHash>,
    key: u128,
}

/// Verification in progress. The request is kept in the session's input.
pub(super) struct Checking {
    result: Pin<Box<dyn Future<Output = Option<bool>>>>,
    key: u128,
    user: Box<str>,
    head_length: usize,
}

/// Passwords that a worker has seen verified, as keyed hashes, with the times when they are
/// forgotten.
pub(super) struct KnownPasswords {
    key: HashKey,
    until_ms: RefCell<HashMap<u128, u64>>,
}

impl Default for KnownPasswords {
    fn default() -> Self {
        Self {
            key: HashKey::new(secret()),
            until_ms: RefCell::default(),
        }
    }
}

impl KnownPasswords {
    /// Returns the key of a password of a user with this hash. A changed hash has another one.
    fn key(&self, credentials: &Credentials, hash: &PasswordHash) -> u128 {
        let mut words = Vec::with_capacity(32);
        for text in [credentials.user(), credentials.password(), hash.text()] {
            words.push(text.len() as u64);
            words.extend(text.chunks(8).map(|chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                u64::from_le_bytes(word)
            }));
        }
        self.key.hash(&words)
    }

    fn has(&self, key: u128, now_ms: u64) -> bool {
        let until_ms = self.until_ms.borrow();
        until_ms
            .get(&key)
            .is_some_and(|until_ms| now_ms < *until_ms)
    }

    fn add(&self, key: u128, now_ms: u64) {
        let mut known = self.until_ms.borrow_mut();
        if known.len() >= KNOWN_MAX {
            known.retain(|_, until_ms| now_ms < *until_ms);
        }
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(key, now_ms + KNOWN_MS);
    }
}

impl Session<'_> {
    /// Returns whether the client of a request is a user of its route.
    pub(super) fn log_in(
        &mut self,
        auth: &BasicAuth,
        (head, bytes): (&RequestHead, &[u8]),
        client: Option<IpAddr>,
    ) -> Login {
        let mut values = head.get_all(bytes, KnownName::Authorization);
        let (Some(value), None) = (values.next(), values.next()) else {
            return Login::Missing;
        };
        let credentials = Credentials::parse(value);
        let is_valid = |one: &Credentials| one.user().len() <= USER_LENGTH_MAX;
        let Some(credentials) = credentials.filter(is_valid) else {
            return Login::Missing;
        };
        let user = String::from_utf8_lossy(credentials.user());
        if self.exchange.noted.is_some() {
            self.exchange.user = Some(user.clone().into());
        }
        let hash = Arc::clone(auth.hash_of(credentials.user()));
        let key = self.passwords.key(&credentials, &hash);
        if self.passwords.has(key, clock::now_ms()) {
            return Login::Known;
        }
        let limit = &self.own.shared.password_rate_limit;
        if !limit.charge(client, &user, clock::now_ms()) {
            return Login::TooOften;
        }
        Login::Unverified(Attempt {
            credentials,
            hash,
            key,
        })
    }

    /// Begins to verify a password, and keeps the request.
    pub(super) fn begin_check(&mut self, attempt: Attempt, head_length: usize, request: &[u8]) {
        let Attempt {
            credentials,
            hash,
            key,
        } = attempt;
        self.hold(request);
        self.limit_step(|limits| limits.header);
        self.stage = Stage::Checking(Box::new(Checking {
            key,
            user: String::from_utf8_lossy(credentials.user()).into(),
            head_length,
            result: Box::pin(run_blocking(move || hash.verify(credentials.password()))),
        }));
    }

    /// Reads the request again when its password is verified, or answers it.
    pub(super) fn step_checking(&mut self, context: &mut Context<'_>) -> Result<bool, ExitReason> {
        let Stage::Checking(checking) = &mut self.stage else {
            return Ok(false);
        };
        let Poll::Ready(result) = checking.result.as_mut().poll(context) else {
            return self.watch_client(context);
        };
        let (key, head_length) = (checking.key, checking.head_length);
        match result {
            Some(true) => {
                let limit = &self.own.shared.password_rate_limit;
                limit.refund(self.exchange.client, &checking.user);
                self.passwords.add(key, clock::now_ms());
                self.exchange = Exchange::default();
                self.stage = Stage::Head(HeadProgress::Unread);
            }
            Some(false) => {
                self.input.drain(..head_length);
                self.answer_stranger("the user name or the password is wrong")?;
            }
            None => {
                self.input.drain(..head_length);
                self.answer(503, "too many passwords are being verified")?;
            }
        }
        Ok(true)
    }

    /// Asks the client for a name and a password.
    pub(super) fn answer_stranger(&mut self, why: &str) -> Result<(), ExitReason> {
        let auth = self.exchange.action().and_then(|of| of.basic_auth.as_ref());
        let challenge = auth.map(|auth| auth.challenge.clone()).unwrap_or_default();
        let why = format!("{why} ([[service.route]] basic_auth)");
        self.answer_also(401, &why, &[(b"WWW-Authenticate", challenge.as_bytes())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_remembered_for_its_time_and_its_hash() {
        let known = KnownPasswords::default();
        known.add(1, 1_000);
        assert!(known.has(1, 1_000));
        assert!(known.has(1, 1_000 + KNOWN_MS - 1));
        assert!(!known.has(1, 1_000 + KNOWN_MS));
        assert!(!known.has(2, 1_000));
    }

    #[test]
    fn no_more_are_remembered_than_the_limit() {
        let known = KnownPasswords::default();
        for key in 0..10_000 {
            known.add(key, 0);
            assert!(known.has(key, 0), "the last one is known");
            assert!(known.until_ms.borrow().len() <= KNOWN_MAX);
        }
        // Those that have expired make room first.
        let known = KnownPasswords::default();
        (0..KNOWN_MAX as u128 - 1).for_each(|key| known.add(key, 0));
        known.add(u128::MAX, 2);
        known.add(1 << 100, KNOWN_MS + 1);
        assert!(known.has(u128::MAX, KNOWN_MS + 1));
    }
}
