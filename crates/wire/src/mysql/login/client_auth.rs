//! Authenticates a client, with the plugin of its account ("Authentication Phase").

use std::fmt;

use zeroize::Zeroizing;

use super::check::SentPassword;
use super::{AuthFailure, Authenticated, Channel, Check, Credential, Key, Secret};
use crate::UnprovedPassword;
use crate::mysql::build;
use crate::mysql::frame::Frame;
use crate::mysql::frontend::ChangeUser;
use crate::mysql::password::{self, Nonce, crypt, ed25519, native, parsec, sha2};
use crate::mysql::startup::Response;

/// AuthMoreData of `caching_sha2_password`: the proof is right.
const FAST_SUCCESS: u8 = 3;
/// Request for the password itself.
const FULL: u8 = 4;
/// A client's request for Evenkeel's RSA key.
const KEY_REQUEST: &[u8] = &[2];

/// Identity that a client claims, with the proof in its first packet.
#[derive(Clone)]
pub struct ClaimedIdentity {
    user: Vec<u8>,
    plugin: Option<Vec<u8>>,
    proof: Zeroizing<Vec<u8>>,
}

/// Authentication method for a client.
#[derive(Clone)]
pub enum Method {
    /// `mysql_native_password`; the verifier may be a mock.
    Native(native::Verifier),
    /// `caching_sha2_password`
    Sha2 {
        /// Verifier from earlier logins. If it is missing or does not match, the password is
        /// requested.
        fast: Option<sha2::Verifier>,
        /// Hash of the account, or a mock.
        stored: crypt::Stored,
        /// Evenkeel's public key in PEM; without it the password is accepted over TLS only.
        public_key: Option<Vec<u8>>,
    },
    /// `caching_sha2_password` where the password itself is known: only the correct proof is
    /// accepted, and the password is never requested.
    Known(sha2::Verifier),
    /// MariaDB's ed25519; needs 32 random bytes.
    Ed25519(ed25519::Verifier, ed25519::Nonce),
    /// MariaDB's parsec; needs 32 random bytes.
    Parsec(parsec::Verifier, parsec::Nonce),
    /// `mysql_clear_password`: a cleartext password.
    Clear(Secret),
    /// The account has no password; the plugin is one of the first three.
    Empty(&'static [u8]),
    /// The password itself, which the caller checks at a server; the plugin is
    /// `caching_sha2_password` or `mysql_clear_password`.
    Collected(&'static [u8]),
}

/// A login that waits for the client's next packet.
#[derive(Debug)]
pub struct ClientAuth {
    user: Vec<u8>,
    nonce: Nonce,
    channel: Channel,
    method: Method,
    stage: AuthStage,
}

/// Result of one step of a login. The number is the sequence number of the next packet to send.
#[derive(Debug)]
pub enum ClientAuthStep {
    /// Another packet must follow.
    More(Box<ClientAuth>),
    /// A password must be checked, outside the session's worker; then OK or ERR follows.
    Check(Box<Check>),
    /// The client is authenticated; the caller sends OK when it may.
    Done(Authenticated, u8),
    /// The client has sent this password, which proves nothing until a server accepts it.
    Collected(UnprovedPassword, u8),
    /// Authentication failed; the caller sends the error and closes the connection.
    Refused(AuthFailure, u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AuthStage {
    /// The proof, made for the plugin of the account.
    Proof,
    /// The password, or the request for Evenkeel's key.
    Password,
    /// The encrypted password.
    Encrypted,
    /// `parsec`: the signature.
    Signature,
}

impl ClaimedIdentity {
    /// Returns the claim of the first packet.
    #[must_use]
    pub fn of_response(response: &Response<'_>) -> Self {
        ClaimedIdentity {
            user: response.user.to_vec(),
            plugin: response.plugin.map(<[u8]>::to_vec),
            proof: Zeroizing::new(response.proof.to_vec()),
        }
    }

    /// Returns the claim of COM_CHANGE_USER.
    #[must_use]
    pub fn of_change_user(request: &ChangeUser<'_>) -> Self {
        ClaimedIdentity {
            user: request.user.to_vec(),
            plugin: request.plugin.map(<[u8]>::to_vec),
            proof: Zeroizing::new(request.proof.to_vec()),
        }
    }

    /// Returns the claimed user.
    #[must_use]
    pub fn user(&self) -> &[u8] {
        &self.user
    }
}

impl Method {
    /// Returns the plugin that the client must use.
    #[must_use]
    pub fn plugin(&self) -> &'static [u8] {
        match self {
            Method::Native(_) => password::NATIVE,
            Method::Sha2 { .. } | Method::Known(_) => password::CACHING_SHA2,
            Method::Ed25519(..) => password::ED25519,
            Method::Parsec(..) => password::PARSEC,
            Method::Clear(_) => password::CLEAR,
            Method::Empty(plugin) | Method::Collected(plugin) => plugin,
        }
    }

    /// Returns the stored form of the password, for [`password::certificate_proof`]; `None` for
    /// plugins whose clients do not use it for that.
    #[must_use]
    pub fn stored(&self) -> Option<Vec<u8>> {
        match self {
            Method::Native(verifier) => Some(verifier.bytes().to_vec()),
            Method::Ed25519(verifier, _) => Some(verifier.bytes().to_vec()),
            Method::Parsec(verifier, _) => Some(verifier.bytes().to_vec()),
            Method::Sha2 { .. } | Method::Known(_) | Method::Clear(_) => None,
            Method::Empty(_) | Method::Collected(_) => None,
        }
    }
}

/// Writes the packet that a client which has sent a proof expects before OK, where proofs are not
/// verified. Returns the next sequence number.
#[must_use]
pub fn accept_unchecked(claim: &ClaimedIdentity, (sequence, out): (u8, &mut Vec<u8>)) -> u8 {
    let is_sha2 = claim.plugin.as_deref() == Some(password::CACHING_SHA2);
    if !is_sha2 || matches!(claim.proof.as_slice(), [] | [0]) {
        return sequence;
    }
    build::auth_more_data(out, sequence, &[FAST_SUCCESS]);
    sequence.wrapping_add(1)
}

impl ClientAuth {
    /// Begins the login with a claim whose proof was made with `nonce`, that of the greeting;
    /// `sequence` is the number of the next packet. An unknown user gets the most common method,
    /// with mocks.
    #[must_use]
    pub fn begin(
        claim: ClaimedIdentity,
        nonce: Nonce,
        channel: Channel,
        method: Method,
        (sequence, out): (u8, &mut Vec<u8>),
    ) -> ClientAuthStep {
        let accept = Box::new(ClientAuth {
            user: claim.user,
            nonce,
            channel,
            method,
            stage: AuthStage::Proof,
        });
        let plugin = accept.method.plugin();
        let is_open = plugin == password::CLEAR || matches!(accept.method, Method::Collected(_));
        if is_open && channel == Channel::Plain {
            return ClientAuthStep::Refused(AuthFailure::CleartextNotAllowed, sequence);
        }
        // These plugins use a nonce of their own, which is sent with the request for the proof.
        let ready = !matches!(plugin, password::ED25519 | password::PARSEC);
        match claim.plugin.as_deref() {
            Some(given) if given == plugin && ready => accept.step(&claim.proof, sequence, out),
            None if plugin == password::NATIVE => accept.step(&claim.proof, sequence, out),
            None => ClientAuthStep::Refused(AuthFailure::CannotSwitch, sequence),
            Some(_) => {
                accept.request_proof(sequence, out);
                ClientAuthStep::More(accept)
            }
        }
    }

    /// Processes the client's next packet, collected whole within [`PRE_AUTH_LENGTH_MAX`]. The
    /// reply is written to `out`.
    ///
    /// [`PRE_AUTH_LENGTH_MAX`]: crate::mysql::frame::PRE_AUTH_LENGTH_MAX
    #[must_use]
    pub fn message(self: Box<Self>, frame: Frame<'_>, out: &mut Vec<u8>) -> ClientAuthStep {
        let sequence = frame.sequence.wrapping_add(1);
        self.step(frame.payload, sequence, out)
    }

    fn request_proof(&self, sequence: u8, out: &mut Vec<u8>) {
        let plugin = self.method.plugin();
        match &self.method {
            Method::Ed25519(_, nonce) | Method::Parsec(_, nonce) => {
                build::auth_switch(out, sequence, plugin, nonce);
            }
            Method::Clear(_) | Method::Collected(password::CLEAR) => {
                build::auth_switch(out, sequence, plugin, &[]);
            }
            _ => {
                let mut data = [0; 21];
                if let Some(place) = data.first_chunk_mut() {
                    *place = *self.nonce.bytes();
                }
                build::auth_switch(out, sequence, plugin, &data);
            }
        }
    }

    fn step(self: Box<Self>, payload: &[u8], sequence: u8, out: &mut Vec<u8>) -> ClientAuthStep {
        match self.stage {
            AuthStage::Proof => self.proof(payload, sequence, out),
            AuthStage::Password => self.password(payload, sequence, out),
            AuthStage::Encrypted => (*self).check_encrypted(payload, sequence),
            AuthStage::Signature => (*self).signature(payload, sequence),
        }
    }

    fn proof(self: Box<Self>, proof: &[u8], sequence: u8, out: &mut Vec<u8>) -> ClientAuthStep {
        let wrong = ClientAuthStep::Refused(AuthFailure::WrongPassword, sequence);
        let empty = matches!(proof, [] | [0]);
        match &self.method {
            Method::Empty(_) if empty => (*self).done(Credential::Nothing, sequence),
            Method::Empty(_) => wrong,
            Method::Parsec(verifier, _) if proof.is_empty() => {
                let encoded = verifier.derivation().bytes();
                build::packet(out, sequence, |out| out.extend_from_slice(&encoded));
                self.advance(AuthStage::Signature)
            }
            Method::Parsec(..) => wrong,
            Method::Collected(_) if empty => {
                ClientAuthStep::Collected(UnprovedPassword::new(b""), sequence)
            }
            Method::Collected(password::CLEAR) => collected(proof, sequence),
            Method::Collected(_) => self.request_password(sequence, out),
            _ if empty => wrong,
            Method::Native(verifier) => match verifier.check(&self.nonce, proof) {
                Some(key) => (*self).done(Credential::Key(Key::Native(key)), sequence),
                None => wrong,
            },
            Method::Ed25519(verifier, nonce) => match verifier.check(nonce, proof) {
                true => (*self).done(Credential::Nothing, sequence),
                false => wrong,
            },
            Method::Clear(secret) => {
                let secret = secret.clone();
                (*self).check_password(secret, proof, sequence)
            }
            Method::Sha2 { fast, .. } => {
                let key = fast.and_then(|fast| fast.check(&self.nonce, proof));
                match key {
                    Some(key) => (*self).done_fast(key, sequence, out),
                    None => self.request_password(sequence, out),
                }
            }
            Method::Known(verifier) => match verifier.check(&self.nonce, proof) {
                Some(key) => (*self).done_fast(key, sequence, out),
                None => wrong,
            },
        }
    }

    fn signature(self, answer: &[u8], sequence: u8) -> ClientAuthStep {
        match &self.method {
            Method::Parsec(verifier, nonce) if verifier.check(nonce, answer) => {
                self.done(Credential::Nothing, sequence)
            }
            _ => ClientAuthStep::Refused(AuthFailure::WrongPassword, sequence),
        }
    }

    fn advance(mut self: Box<Self>, stage: AuthStage) -> ClientAuthStep {
        self.stage = stage;
        ClientAuthStep::More(self)
    }

    fn done_fast(self, key: sha2::Key, sequence: u8, out: &mut Vec<u8>) -> ClientAuthStep {
        build::auth_more_data(out, sequence, &[FAST_SUCCESS]);
        self.done(Credential::Key(Key::Sha2(key)), sequence.wrapping_add(1))
    }

    fn done(self, credential: Credential, sequence: u8) -> ClientAuthStep {
        let user = self.user;
        ClientAuthStep::Done(Authenticated::new(user, credential), sequence)
    }

    fn request_password(self: Box<Self>, sequence: u8, out: &mut Vec<u8>) -> ClientAuthStep {
        build::auth_more_data(out, sequence, &[FULL]);
        self.advance(AuthStage::Password)
    }

    fn password(
        self: Box<Self>,
        payload: &[u8],
        sequence: u8,
        out: &mut Vec<u8>,
    ) -> ClientAuthStep {
        if matches!(self.method, Method::Collected(_)) {
            return collected(payload, sequence);
        }
        let Method::Sha2 {
            public_key, stored, ..
        } = &self.method
        else {
            return ClientAuthStep::Refused(AuthFailure::Protocol, sequence);
        };
        match (self.channel, public_key) {
            (Channel::Secure, _) => {
                let secret = Secret::Sha2(stored.clone());
                (*self).check_password(secret, payload, sequence)
            }
            (Channel::Plain, None) => ClientAuthStep::Refused(AuthFailure::NoKey, sequence),
            (Channel::Plain, Some(pem)) if payload == KEY_REQUEST => {
                build::auth_more_data(out, sequence, pem);
                self.advance(AuthStage::Encrypted)
            }
            // A client that has Evenkeel's key in a file does not request it.
            (Channel::Plain, Some(_)) => (*self).check_encrypted(payload, sequence),
        }
    }

    fn check_password(self, secret: Secret, payload: &[u8], sequence: u8) -> ClientAuthStep {
        let Some((&0, password)) = payload.split_last() else {
            return ClientAuthStep::Refused(AuthFailure::Protocol, sequence);
        };
        ClientAuthStep::Check(Box::new(Check {
            user: self.user,
            secret,
            sent: SentPassword::Password(Zeroizing::new(password.to_vec())),
            sequence,
        }))
    }

    fn check_encrypted(self, payload: &[u8], sequence: u8) -> ClientAuthStep {
        let Method::Sha2 { stored, .. } = self.method else {
            return ClientAuthStep::Refused(AuthFailure::Protocol, sequence);
        };
        ClientAuthStep::Check(Box::new(Check {
            user: self.user,
            secret: Secret::Sha2(stored),
            sent: SentPassword::Encrypted {
                message: payload.to_vec(),
                nonce: self.nonce,
            },
            sequence,
        }))
    }
}

/// Returns a password that ends with a zero byte.
fn collected(payload: &[u8], sequence: u8) -> ClientAuthStep {
    match payload.split_last() {
        Some((&0, password)) => {
            ClientAuthStep::Collected(UnprovedPassword::new(password), sequence)
        }
        _ => ClientAuthStep::Refused(AuthFailure::Protocol, sequence),
    }
}

impl fmt::Debug for ClaimedIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Claim of {}", self.user.escape_ascii())
    }
}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Method({})", self.plugin().escape_ascii())
    }
}
