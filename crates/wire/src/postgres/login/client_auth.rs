//! Authenticates a client: SCRAM, md5 or cleartext password (§54.2.1 "Start-up").

use std::fmt;

use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::{AuthFailure, Authenticated, Credential, Key};
use crate::UnprovedPassword;
use crate::postgres::cursor::Cursor;
use crate::postgres::frame::Frame;
use crate::postgres::scram::{Challenge, Nonce, Offer, Verifier};
use crate::postgres::{build, md5};

/// Authentication method for a client.
#[derive(Debug)]
pub enum Method {
    /// SCRAM-SHA-256, and PLUS if there is channel binding data.
    Scram {
        /// Verifier of the user, or a mock.
        verifier: Verifier,
        /// Hash of Evenkeel's certificate, over TLS.
        binding: Option<Vec<u8>>,
        /// Random nonce.
        nonce: Nonce,
    },
    /// md5.
    Md5 {
        /// Hash of the user, or a mock.
        hash: md5::Hash,
        /// Random salt.
        salt: [u8; 4],
    },
    /// Cleartext password: over TLS only.
    Cleartext(Secret),
    /// Cleartext password that the caller checks at a server.
    Collected,
}

/// Secret that a password is compared with.
pub enum Secret {
    /// A SCRAM verifier, perhaps a mock; the comparison costs as much as its iterations.
    Scram(Verifier),
    /// An md5 hash, perhaps a mock.
    Md5(md5::Hash),
    /// The password itself.
    Password(Zeroizing<Vec<u8>>),
}

/// A login that waits for the client's next message.
#[derive(Debug)]
pub struct ClientAuth {
    user: Vec<u8>,
    stage: AuthStage,
}

/// Result of one step of a login.
#[derive(Debug)]
pub enum ClientAuthStep {
    /// Another message must follow.
    More(ClientAuth),
    /// The client is authenticated; the caller sends AuthenticationOk when it may.
    Done(Authenticated),
    /// The client has sent this password, which proves nothing until a server accepts it.
    Collected(UnprovedPassword),
    /// Authentication failed; the caller sends the error and closes the connection.
    Refused(AuthFailure),
}

#[derive(Debug)]
enum AuthStage {
    ScramFirst(Offer),
    ScramLast(Challenge),
    Md5(md5::Hash, [u8; 4]),
    Cleartext(Secret),
    Collected,
}

impl ClientAuth {
    /// Begins the login, and writes the authentication request to the client.
    #[must_use]
    pub fn begin(user: Vec<u8>, method: Method, out: &mut Vec<u8>) -> Self {
        let stage = match method {
            Method::Scram {
                verifier,
                binding,
                nonce,
            } => {
                let offer = Offer::new(verifier, binding, nonce);
                build::authentication_sasl(out, offer.mechanisms());
                AuthStage::ScramFirst(offer)
            }
            Method::Md5 { hash, salt } => {
                build::authentication_md5(out, salt);
                AuthStage::Md5(hash, salt)
            }
            Method::Cleartext(secret) => {
                build::authentication_cleartext(out);
                AuthStage::Cleartext(secret)
            }
            Method::Collected => {
                build::authentication_cleartext(out);
                AuthStage::Collected
            }
        };
        ClientAuth { user, stage }
    }

    /// Returns whether the next message takes thousands of hash rounds, which must not delay other
    /// sessions.
    #[must_use]
    pub fn is_costly(&self) -> bool {
        matches!(self.stage, AuthStage::Cleartext(Secret::Scram(_)))
    }

    /// Processes the client's next message, collected whole within [`PRE_AUTH_LENGTH_MAX`]. The
    /// reply is written to `out`.
    ///
    /// [`PRE_AUTH_LENGTH_MAX`]: crate::postgres::frame::PRE_AUTH_LENGTH_MAX
    #[must_use]
    pub fn message(self, frame: Frame<'_>, out: &mut Vec<u8>) -> ClientAuthStep {
        if frame.tag != b'p' {
            return ClientAuthStep::Refused(AuthFailure::Protocol);
        }
        match self.step(frame.body, out) {
            Ok(accepted) => accepted,
            Err(refusal) => ClientAuthStep::Refused(refusal),
        }
    }

    fn step(self, body: &[u8], out: &mut Vec<u8>) -> Result<ClientAuthStep, AuthFailure> {
        let ClientAuth { user, stage } = self;
        let credential = match stage {
            AuthStage::ScramFirst(offer) => {
                let (mechanism, message) = sasl_initial(body).ok_or(AuthFailure::Protocol)?;
                let first = offer.first(mechanism, message);
                let (challenge, answer) = first.map_err(AuthFailure::Scram)?;
                build::authentication_sasl_continue(out, &answer);
                let stage = AuthStage::ScramLast(challenge);
                return Ok(ClientAuthStep::More(ClientAuth { user, stage }));
            }
            AuthStage::ScramLast(challenge) => {
                let (keys, last) = challenge.last(body).map_err(AuthFailure::Scram)?;
                build::authentication_sasl_final(out, &last);
                Credential::Key(Key::Scram(keys))
            }
            AuthStage::Md5(hash, salt) => {
                let response = password(body)?;
                if !hash.accepts(salt, response) {
                    return Err(AuthFailure::WrongPassword);
                }
                Credential::Key(Key::Md5(hash))
            }
            AuthStage::Cleartext(secret) => {
                let password = password(body)?;
                if !secret.fits(&user, password) {
                    return Err(AuthFailure::WrongPassword);
                }
                Credential::Password(Zeroizing::new(password.to_vec()))
            }
            AuthStage::Collected => {
                let password = UnprovedPassword::new(password(body)?);
                return Ok(ClientAuthStep::Collected(password));
            }
        };
        Ok(ClientAuthStep::Done(Authenticated::new(user, credential)))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

impl Secret {
    fn fits(&self, user: &[u8], password: &[u8]) -> bool {
        match self {
            Secret::Scram(verifier) => verifier.fits(password),
            Secret::Md5(hash) => hash.fits(user, password),
            Secret::Password(own) => own.ct_eq(password).into(),
        }
    }
}

/// Parses a PasswordMessage: one C string, with no byte after it (§54.7).
fn password(body: &[u8]) -> Result<&[u8], AuthFailure> {
    let mut body = Cursor(body);
    let text = body.text().ok_or(AuthFailure::Protocol)?;
    match body.end(text) {
        None => Err(AuthFailure::Protocol),
        Some([]) => Err(AuthFailure::EmptyPassword),
        Some(text) => Ok(text),
    }
}

/// Parses a SASLInitialResponse: the mechanism, and the message, which SCRAM requires.
fn sasl_initial(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut body = Cursor(body);
    let mechanism = body.text()?;
    let length = usize::try_from(body.be_i32()?).ok()?;
    let message = body.bytes(length)?;
    body.end((mechanism, message))
}
