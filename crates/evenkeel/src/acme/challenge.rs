//! Makes the answers to an authority's challenges, in the form that balancers share.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_proxy::http::ChallengeAnswers;
use evenkeel_tls::{ChallengeAcceptor, SetupError};
use instant_acme::{ChallengeHandle, ChallengeType};
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use serde::{Deserialize, Serialize};

/// Way by which the authority verifies a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Request without TLS (RFC 8555 §8.3).
    Http,
    /// TLS handshake (RFC 8737).
    TlsAlpn,
}

impl Way {
    /// Returns the type of challenge in the protocol.
    pub(super) fn challenge_type(self) -> ChallengeType {
        match self {
            Self::Http => ChallengeType::Http01,
            Self::TlsAlpn => ChallengeType::TlsAlpn01,
        }
    }

    /// Returns its name in the protocol.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Http => "http-01",
            Self::TlsAlpn => "tls-alpn-01",
        }
    }

    /// Returns the other way.
    pub(super) fn other(self) -> Self {
        match self {
            Self::Http => Self::TlsAlpn,
            Self::TlsAlpn => Self::Http,
        }
    }
}

/// Answer to a challenge, as stored on disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "challenge")]
pub(super) enum Answer {
    /// Content under a token.
    #[serde(rename = "http-01")]
    Http { token: String, content: String },
    /// Certificate and key in PEM, for a handshake.
    #[serde(rename = "tls-alpn-01")]
    TlsAlpn { pem: String },
}

impl Answer {
    /// Makes the answer to a challenge for a name.
    pub(super) fn new(
        way: Way,
        name: &str,
        challenge: &ChallengeHandle<'_>,
    ) -> Result<Self, rcgen::Error> {
        let authorization = challenge.key_authorization();
        Ok(match way {
            Way::Http => Self::Http {
                token: challenge.token.clone(),
                content: authorization.as_str().to_owned(),
            },
            Way::TlsAlpn => Self::TlsAlpn {
                pem: certificate(name, authorization.digest().as_ref())?,
            },
        })
    }
}

/// Returns the self-signed certificate of a challenge with its key, in PEM (RFC 8737 §3).
fn certificate(name: &str, digest: &[u8]) -> Result<String, rcgen::Error> {
    let mut parameters = CertificateParams::new(vec![name.to_owned()])?;
    parameters.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate()?;
    let certificate = parameters.self_signed(&key)?;
    Ok(certificate.pem() + &key.serialize_pem())
}

/// Returns the answers by name in the form that workers read.
pub(super) fn for_workers(
    answers: &BTreeMap<String, Answer>,
) -> Result<ChallengeAnswers, SetupError> {
    let mut all = ChallengeAnswers::default();
    for (name, answer) in answers {
        match answer {
            Answer::Http { token, content } => {
                all.http.insert(token.clone(), content.clone());
            }
            Answer::TlsAlpn { pem } => {
                let acceptor = ChallengeAcceptor::from_pem(pem.as_bytes())?;
                all.tls.insert(name.clone(), Arc::new(acceptor));
            }
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_get_the_answers_of_both_ways() {
        let http = Answer::Http {
            token: "abc".to_owned(),
            content: "abc.key".to_owned(),
        };
        let pem = certificate("tls.example", &[7; 32]).unwrap();
        let answers = [
            ("http.example".to_owned(), http),
            ("tls.example".to_owned(), Answer::TlsAlpn { pem }),
        ];
        let text = serde_json::to_string(&BTreeMap::from(answers)).unwrap();
        let stored = serde_json::from_str(&text).unwrap();
        let all = for_workers(&stored).unwrap();
        assert_eq!(all.http.get("abc").map(String::as_str), Some("abc.key"));
        assert!(all.tls["tls.example"].accept().is_ok());
        assert_eq!((all.http.len(), all.tls.len()), (1, 1));
    }
}
