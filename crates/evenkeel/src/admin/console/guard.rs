//! Decides which clients may connect and which may change things.

use std::net::IpAddr;

use evenkeel_engine::secret;
use evenkeel_wire::mysql::password::{native, sha2};
use evenkeel_wire::postgres::scram;

use super::error::{ConsoleError, ConsoleErrorKind};

/// User who needs the token even on loopback.
const CHANGER: &str = "admin";

/// Iterations of SCRAM, as in PostgreSQL.
const ITERATIONS: u32 = 4_096;

/// Access rules of the console.
pub(super) struct Guard {
    token: Option<AdminToken>,
}

/// The token in the forms against which logins of either protocol are checked.
pub(super) struct AdminToken {
    pub(super) scram: scram::Verifier,
    pub(super) sha2: sha2::Verifier,
    pub(super) native: native::Verifier,
}

/// Access of a client.
pub(super) enum ConsoleAccess<'a> {
    /// Open without authentication; the client may read.
    Open,
    /// Authentication with the token; the client may change things.
    Token(&'a AdminToken),
    /// No access, for this reason.
    Closed(ConsoleError),
}

impl Guard {
    pub(super) fn new(token: Option<&str>) -> Self {
        let token = token.filter(|token| !token.is_empty());
        Self {
            token: token.map(|token| AdminToken::of(token.as_bytes())),
        }
    }

    pub(super) fn entry(&self, user: &str, peer: IpAddr) -> ConsoleAccess<'_> {
        let is_near = peer.to_canonical().is_loopback();
        match &self.token {
            Some(token) if !is_near || user == CHANGER => ConsoleAccess::Token(token),
            None if !is_near => ConsoleAccess::Closed(ConsoleError::new(
                ConsoleErrorKind::AuthFailed,
                "remote access requires a token and none is configured: set token_file in [admin]",
            )),
            _ => ConsoleAccess::Open,
        }
    }
}

impl AdminToken {
    fn of(token: &[u8]) -> Self {
        let salt: [u8; 16] = secret();
        Self {
            scram: scram::Verifier::of_password(token, &salt, ITERATIONS),
            sha2: sha2::Verifier::of_password(token),
            native: native::Verifier::of_password(token),
        }
    }
}
