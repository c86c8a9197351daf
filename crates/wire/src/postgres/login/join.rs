//! Tells a server who we are, by whatever method it asks for that our credential answers.

use super::{Credential, Refusal};
use crate::postgres::backend::{Authentication, Mechanisms};
use crate::postgres::build;
use crate::postgres::md5;
use crate::postgres::scram::{ClientFinal, ClientStart, MECHANISM, MECHANISM_PLUS, Nonce, Proof};

/// A login at a server that waits for the server's next request.
#[derive(Debug)]
pub struct Join {
    user: Vec<u8>,
    credential: Credential,
    binding: Option<Vec<u8>>,
    cleartext_allowed: bool,
    nonce: Nonce,
    waiting: Waiting,
}

/// A server let us in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Joined {
    /// By SCRAM the server proves that it knows the user's verifier; by no other method.
    pub server_proved: bool,
}

/// What became of a login at a server.
#[derive(Debug)]
pub enum JoinStep {
    /// The server will say more.
    More(Box<Join>),
    /// We are in; ParameterStatus, BackendKeyData and ReadyForQuery follow.
    Done(Joined),
    /// It cannot go on; close.
    Refused(Refusal),
}

#[derive(Debug)]
enum Waiting {
    Request,
    ScramChallenge(ClientStart),
    ScramFinal(ClientFinal),
    /// `proved`: by SCRAM.
    Ok {
        proved: bool,
    },
}

impl Join {
    /// Begins; the caller has sent the StartupMessage. Over TLS, `binding` is the hash of the
    /// server's certificate (RFC 5929 §4.1), and cleartext may be allowed.
    #[must_use]
    pub fn new(
        user: Vec<u8>,
        credential: Credential,
        binding: Option<Vec<u8>>,
        cleartext_allowed: bool,
        nonce: Nonce,
    ) -> Self {
        Join {
            user,
            credential,
            binding,
            cleartext_allowed,
            nonce,
            waiting: Waiting::Request,
        }
    }

    /// The server's next Authentication message; what there is to say is written to `out`.
    #[must_use]
    pub fn message(self, request: Authentication<'_>, out: &mut Vec<u8>) -> JoinStep {
        match self.step(request, out) {
            Ok(step) => step,
            Err(refusal) => JoinStep::Refused(refusal),
        }
    }

    fn step(mut self, request: Authentication<'_>, out: &mut Vec<u8>) -> Result<JoinStep, Refusal> {
        self.waiting = match (self.waiting, request) {
            (Waiting::Request, Authentication::Ok) => {
                let server_proved = false;
                return Ok(JoinStep::Done(Joined { server_proved }));
            }
            (Waiting::Ok { proved }, Authentication::Ok) => {
                let server_proved = proved;
                return Ok(JoinStep::Done(Joined { server_proved }));
            }
            (_, Authentication::Ok) => return Err(Refusal::Unproved),
            (Waiting::Request, Authentication::CleartextPassword) => {
                let Credential::Password(password) = &self.credential else {
                    return Err(Refusal::Credential);
                };
                if !self.cleartext_allowed {
                    return Err(Refusal::CleartextNotAllowed);
                }
                build::password(out, password);
                Waiting::Ok { proved: false }
            }
            (Waiting::Request, Authentication::Md5Password { salt }) => {
                let response = md5_hash(&self.user, &self.credential)?.response(salt);
                build::password(out, &response);
                Waiting::Ok { proved: false }
            }
            (Waiting::Request, Authentication::Sasl(offered)) => {
                proof(&self.credential)?;
                let start = start_scram(self.binding.as_deref(), offered, self.nonce)?;
                build::sasl_initial(out, start.mechanism(), &start.message());
                Waiting::ScramChallenge(start)
            }
            (Waiting::ScramChallenge(start), Authentication::SaslContinue(challenge)) => {
                let answered = start.challenge(challenge, proof(&self.credential)?);
                let (last, message) = answered.map_err(Refusal::Scram)?;
                build::sasl_response(out, &message);
                Waiting::ScramFinal(last)
            }
            (Waiting::ScramFinal(last), Authentication::SaslFinal(message)) => {
                last.finish(message).map_err(Refusal::Scram)?;
                Waiting::Ok { proved: true }
            }
            (Waiting::Request, Authentication::Other(number)) => {
                return Err(Refusal::Method(number));
            }
            _ => return Err(Refusal::Protocol),
        };
        Ok(JoinStep::More(Box::new(self)))
    }
}

fn md5_hash(user: &[u8], credential: &Credential) -> Result<md5::Hash, Refusal> {
    match credential {
        Credential::Md5(hash) => Ok(hash.clone()),
        Credential::Password(password) => Ok(md5::Hash::of_password(user, password)),
        _ => Err(Refusal::Credential),
    }
}

fn proof(credential: &Credential) -> Result<Proof<'_>, Refusal> {
    match credential {
        Credential::Keys(keys) => Ok(Proof::Keys(keys)),
        Credential::Password(password) => Ok(Proof::Password(password)),
        _ => Err(Refusal::Credential),
    }
}

fn start_scram(
    binding: Option<&[u8]>,
    offered: Mechanisms<'_>,
    nonce: Nonce,
) -> Result<ClientStart, Refusal> {
    let plus = offered.names().any(|name| name == MECHANISM_PLUS);
    let plain = offered.names().any(|name| name == MECHANISM);
    if !(plain || plus && binding.is_some()) {
        return Err(Refusal::Method(10));
    }
    Ok(ClientStart::new(binding, plus, nonce))
}
