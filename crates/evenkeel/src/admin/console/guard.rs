//! Who may come in, and who may change things.

use std::net::IpAddr;

use evenkeel_proxy::secret;
use evenkeel_wire::mysql::password::{native, sha2};
use evenkeel_wire::postgres::scram;

use super::complaint::{Complaint, Why};

/// The user who is asked for the token even on loopback.
const CHANGER: &str = "admin";

/// As PostgreSQL has it.
const ITERATIONS: u32 = 4_096;

/// Knows the token.
pub(super) struct Guard {
    token: Option<Token>,
}

/// The token, as logins of either protocol are checked against it.
pub(super) struct Token {
    pub(super) scram: scram::Verifier,
    pub(super) sha2: sha2::Verifier,
    pub(super) native: native::Verifier,
}

/// How a client comes in.
pub(super) enum Entry<'a> {
    /// As it is; it may read.
    Open,
    /// By showing the token; it may change things.
    Token(&'a Token),
    /// Not at all.
    Closed(Complaint),
}

impl Guard {
    pub(super) fn new(token: Option<&str>) -> Self {
        let token = token.filter(|token| !token.is_empty());
        Self {
            token: token.map(|token| Token::of(token.as_bytes())),
        }
    }

    pub(super) fn entry(&self, user: &str, peer: IpAddr) -> Entry<'_> {
        let is_near = peer.to_canonical().is_loopback();
        match &self.token {
            Some(token) if !is_near || user == CHANGER => Entry::Token(token),
            None if !is_near => Entry::Closed(Complaint::new(
                Why::Stranger,
                "remote access requires a token and none is configured: set token_file in [admin]",
            )),
            _ => Entry::Open,
        }
    }
}

impl Token {
    fn of(token: &[u8]) -> Self {
        let salt: [u8; 16] = secret();
        Self {
            scram: scram::Verifier::of_password(token, &salt, ITERATIONS),
            sha2: sha2::Verifier::of_password(token),
            native: native::Verifier::of_password(token),
        }
    }
}
