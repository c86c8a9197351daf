//! Holds the answers to challenges by which a certificate authority verifies names (ACME, RFC 8555
//! §8), for the workers of all HTTP services.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use evenkeel_tls::ChallengeAcceptor;

/// Paths of challenges (RFC 8555 §8.3).
const PATH: &[u8] = b"/.well-known/acme-challenge/";

/// Answers that workers read and the control plane replaces.
#[derive(Debug, Default)]
pub struct Challenges(ArcSwap<ChallengeAnswers>);

/// Answers to the challenges that are in progress; there are rarely any.
#[derive(Debug, Default)]
pub struct ChallengeAnswers {
    /// Contents by token (http-01).
    pub http: HashMap<String, String>,
    /// Acceptors by server name, in lower case (tls-alpn-01).
    pub tls: HashMap<String, Arc<ChallengeAcceptor>>,
}

impl Challenges {
    /// Replaces all answers.
    pub fn set(&self, answers: ChallengeAnswers) {
        self.0.store(Arc::new(answers));
    }

    /// Returns the content of the answer to a request for this path. `None`: no challenge in
    /// progress has it, and the request is one like others.
    pub(crate) fn content(&self, path: &[u8]) -> Option<String> {
        let token = path.strip_prefix(PATH)?;
        let token = std::str::from_utf8(token).ok()?;
        self.0.load().http.get(token).cloned()
    }

    /// Returns whether a challenge by handshake is in progress, so that the names that clients ask
    /// for must be read.
    pub(crate) fn has_handshakes(&self) -> bool {
        !self.0.load().tls.is_empty()
    }

    /// Returns the acceptor of handshakes that verify this name.
    pub(crate) fn acceptor(&self, name: &str) -> Option<Arc<ChallengeAcceptor>> {
        self.0.load().tls.get(name).map(Arc::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_path_of_a_token_in_progress_is_answered() {
        let challenges = Challenges::default();
        let path = b"/.well-known/acme-challenge/abc";
        assert_eq!(challenges.content(path), None);
        challenges.set(ChallengeAnswers {
            http: [("abc".to_owned(), "abc.key".to_owned())].into(),
            ..ChallengeAnswers::default()
        });
        assert_eq!(challenges.content(path).as_deref(), Some("abc.key"));
        for other in [
            "/.well-known/acme-challenge/",
            "/.well-known/acme-challenge/abcd",
            "/.well-known/acme-challenge/abc/",
            "/.WELL-KNOWN/acme-challenge/abc",
            "/abc",
        ] {
            assert_eq!(challenges.content(other.as_bytes()), None, "{other}");
        }
        challenges.set(ChallengeAnswers::default());
        assert_eq!(challenges.content(path), None);
    }
}
