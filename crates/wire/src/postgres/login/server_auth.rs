//! Authenticates Evenkeel to a server, by any requested method that the credential can answer.

use super::{AuthFailure, Credential, Key};
use crate::login_step::LoginStep;
use crate::postgres::backend::{Authentication, Mechanisms};
use crate::postgres::build;
use crate::postgres::md5;
use crate::postgres::scram::{ClientFinal, ClientStart, MECHANISM, MECHANISM_PLUS, Nonce, Proof};

/// A login at a server that waits for the server's next request.
#[derive(Debug)]
pub struct ServerAuth {
    user: Vec<u8>,
    credential: Credential,
    binding: Option<Vec<u8>>,
    cleartext_allowed: bool,
    nonce: Nonce,
    stage: AuthStage,
}

/// Result of a successful login at a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerAuthResult {
    /// True if the server has proved that it knows the user's verifier, which only SCRAM does.
    pub server_proved: bool,
    /// True if the server has requested a proof of the credential; false: it trusts the address.
    pub was_asked: bool,
}

/// Result of one step of a login at a server.
pub type ServerAuthStep = LoginStep<ServerAuth, ServerAuthResult, AuthFailure>;

#[derive(Debug)]
enum AuthStage {
    Request,
    ScramChallenge(ClientStart),
    ScramFinal(ClientFinal),
    /// `proved`: true if the server was proved by SCRAM.
    Ok {
        proved: bool,
    },
}

impl ServerAuth {
    /// Begins the login after the caller has sent the StartupMessage. Over TLS, `binding` is the
    /// hash of the server's certificate (RFC 5929 §4.1), and cleartext may be allowed.
    #[must_use]
    pub fn new(
        user: Vec<u8>,
        credential: Credential,
        binding: Option<Vec<u8>>,
        cleartext_allowed: bool,
        nonce: Nonce,
    ) -> Self {
        ServerAuth {
            user,
            credential,
            binding,
            cleartext_allowed,
            nonce,
            stage: AuthStage::Request,
        }
    }

    /// Processes the server's next Authentication message. The reply is written to `out`.
    #[must_use]
    pub fn message(self, request: Authentication<'_>, out: &mut Vec<u8>) -> ServerAuthStep {
        self.step(request, out).into()
    }

    fn step(
        mut self,
        request: Authentication<'_>,
        out: &mut Vec<u8>,
    ) -> Result<ServerAuthStep, AuthFailure> {
        self.stage = match (self.stage, request) {
            (AuthStage::Request, Authentication::Ok) => {
                return Ok(ServerAuthStep::Done(ServerAuthResult {
                    server_proved: false,
                    was_asked: false,
                }));
            }
            (AuthStage::Ok { proved }, Authentication::Ok) => {
                return Ok(ServerAuthStep::Done(ServerAuthResult {
                    server_proved: proved,
                    was_asked: true,
                }));
            }
            (_, Authentication::Ok) => return Err(AuthFailure::Unproved),
            (AuthStage::Request, Authentication::CleartextPassword) => {
                let Credential::Password(password) = &self.credential else {
                    return Err(AuthFailure::Credential);
                };
                if !self.cleartext_allowed {
                    return Err(AuthFailure::CleartextNotAllowed);
                }
                build::password(out, password);
                AuthStage::Ok { proved: false }
            }
            (AuthStage::Request, Authentication::Md5Password { salt }) => {
                let response = md5_hash(&self.user, &self.credential)?.response(salt);
                build::password(out, &response);
                AuthStage::Ok { proved: false }
            }
            (AuthStage::Request, Authentication::Sasl(offered)) => {
                proof(&self.credential)?;
                let start = start_scram(self.binding.as_deref(), offered, self.nonce)?;
                build::sasl_initial(out, start.mechanism(), &start.message());
                AuthStage::ScramChallenge(start)
            }
            (AuthStage::ScramChallenge(start), Authentication::SaslContinue(challenge)) => {
                let answered = start.challenge(challenge, proof(&self.credential)?);
                let (last, message) = answered.map_err(AuthFailure::Scram)?;
                build::sasl_response(out, &message);
                AuthStage::ScramFinal(last)
            }
            (AuthStage::ScramFinal(last), Authentication::SaslFinal(message)) => {
                last.finish(message).map_err(AuthFailure::Scram)?;
                AuthStage::Ok { proved: true }
            }
            (AuthStage::Request, Authentication::Other(number)) => {
                return Err(AuthFailure::Method(number));
            }
            _ => return Err(AuthFailure::Protocol),
        };
        Ok(ServerAuthStep::More(Box::new(self)))
    }
}

fn md5_hash(user: &[u8], credential: &Credential) -> Result<md5::Hash, AuthFailure> {
    match credential {
        Credential::Key(Key::Md5(hash)) => Ok(hash.clone()),
        Credential::Password(password) => Ok(md5::Hash::of_password(user, password)),
        _ => Err(AuthFailure::Credential),
    }
}

fn proof(credential: &Credential) -> Result<Proof<'_>, AuthFailure> {
    match credential {
        Credential::Key(Key::Scram(keys)) => Ok(Proof::Keys(keys)),
        Credential::Password(password) => Ok(Proof::Password(password)),
        _ => Err(AuthFailure::Credential),
    }
}

fn start_scram(
    binding: Option<&[u8]>,
    offered: Mechanisms<'_>,
    nonce: Nonce,
) -> Result<ClientStart, AuthFailure> {
    let plus = offered.names().any(|name| name == MECHANISM_PLUS);
    let plain = offered.names().any(|name| name == MECHANISM);
    if !(plain || plus && binding.is_some()) {
        return Err(AuthFailure::Method(10));
    }
    Ok(ClientStart::new(binding, plus, nonce))
}
