//! Authenticates Evenkeel to a server, by any requested plugin that the credential can answer.

use zeroize::Zeroizing;

use super::{AuthFailure, Channel, Credential, Key};
use crate::login_step::LoginStep;
use crate::mysql::backend::{self, Login};
use crate::mysql::build::{self, ChangeUserFields, ResponseFields};
use crate::mysql::flags::{Capabilities, Status};
use crate::mysql::frame::Frame;
use crate::mysql::greeting::Greeting;
use crate::mysql::password::rsa::PublicKey;
use crate::mysql::password::{self, Nonce, ed25519, native, parsec, sha2};
use crate::mysql::startup::Attributes;

/// How many plugin switches a server may request: MariaDB tries all plugins of an account.
const SWITCHES_MAX: u8 = 4;

/// Evenkeel's part of the handshake.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hello<'a> {
    /// Supported capabilities; those that the server does not offer are left out.
    pub capabilities: Capabilities,
    /// Number of a collation.
    pub collation: u8,
    /// User name.
    pub user: &'a [u8],
    /// Initial schema.
    pub schema: Option<&'a [u8]>,
    /// Connection attributes of Evenkeel.
    pub attributes: Attributes<'a>,
}

/// Source of a server's RSA key where there is no TLS.
#[derive(Debug, Clone)]
pub enum ServerKey {
    /// None: a password is never sent without TLS.
    Never,
    /// Requested from the server; a man in the middle may send its own key, and read the password.
    Ask,
    /// Known in advance.
    Known(PublicKey),
}

/// A login at a server that waits for the server's next packet.
#[derive(Debug)]
pub struct ServerAuth {
    agreed: Capabilities,
    credential: Credential,
    channel: Channel,
    key: ServerKey,
    random: [u8; 32],
    nonce: Nonce,
    stage: AuthStage,
    switches: u8,
    /// Reason for not answering the last requested plugin.
    declined: Option<AuthFailure>,
}

/// Result of a successful login at a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerAuthResult {
    /// Agreed capabilities.
    pub agreed: Capabilities,
    /// Initial status.
    pub status: Status,
}

/// Result of one step of a login at a server.
pub type ServerAuthStep = LoginStep<ServerAuth, ServerAuthResult, AuthFailure>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AuthStage {
    /// Only OK, or another plugin.
    Ok,
    /// True if `caching_sha2_password` has cached the user's password.
    Sha2,
    /// The server's key.
    Key,
    /// `parsec`: the parameters of the key derivation, then OK. The nonce is the server's.
    Parsec(parsec::Nonce),
    /// Data of a plugin that is not answered.
    Other,
}

impl ServerAuth {
    /// Answers a greeting; over TLS, after the SSLRequest. `random` may be used for one login only.
    ///
    /// # Errors
    ///
    /// Fails if the server lacks a requirement: a nonce of 20 bytes, the protocol of 4.1.
    pub fn begin(
        greeting: &Greeting<'_>,
        hello: &Hello<'_>,
        (credential, channel, key): (Credential, Channel, ServerKey),
        random: [u8; 32],
        (sequence, out): (u8, &mut Vec<u8>),
    ) -> Result<Box<Self>, AuthFailure> {
        let nonce = Nonce::from_bytes(greeting.nonce.whole().ok_or(AuthFailure::Protocol)?);
        let agreed = agree(greeting.capabilities, hello);
        let mut join = Box::new(ServerAuth {
            agreed,
            credential,
            channel,
            key,
            random,
            nonce,
            stage: AuthStage::Ok,
            switches: 0,
            declined: None,
        });
        let plugin = join.first_plugin(greeting.plugin);
        let proof = join.proof(plugin, nonce.bytes())?;
        build::response(
            out,
            sequence,
            &ResponseFields {
                capabilities: agreed,
                collation: hello.collation,
                user: hello.user,
                proof: &proof,
                schema: hello.schema.unwrap_or_default(),
                plugin,
                attributes: hello.attributes,
                zstd_level: 0,
            },
        );
        Ok(join)
    }

    /// Logs in as another user on a connection that is logged in, by COM_CHANGE_USER. `nonce` is
    /// the greeting's.
    ///
    /// # Errors
    ///
    /// Never fails at present.
    pub fn change_user(
        (agreed, nonce): (Capabilities, Nonce),
        hello: &Hello<'_>,
        (credential, channel, key): (Credential, Channel, ServerKey),
        random: [u8; 32],
        out: &mut Vec<u8>,
    ) -> Result<Box<Self>, AuthFailure> {
        let mut join = Box::new(ServerAuth {
            agreed,
            credential,
            channel,
            key,
            random,
            nonce,
            stage: AuthStage::Ok,
            switches: 0,
            declined: None,
        });
        let plugin = join.first_plugin(password::CACHING_SHA2);
        let proof = join.proof(plugin, nonce.bytes())?;
        build::change_user(
            out,
            &ChangeUserFields {
                capabilities: agreed,
                user: hello.user,
                proof: &proof,
                schema: hello.schema.unwrap_or_default(),
                collation: u16::from(hello.collation),
                plugin,
                attributes: hello.attributes,
            },
        );
        Ok(join)
    }

    /// Processes the server's next packet. The reply is written to `out`.
    #[must_use]
    pub fn message(self: Box<Self>, frame: Frame<'_>, out: &mut Vec<u8>) -> ServerAuthStep {
        self.step(frame, out).into()
    }

    fn step(
        mut self: Box<Self>,
        frame: Frame<'_>,
        out: &mut Vec<u8>,
    ) -> Result<ServerAuthStep, AuthFailure> {
        let reply =
            backend::login(frame.payload, self.agreed).map_err(|_| AuthFailure::Protocol)?;
        let answer = match reply {
            Login::Ok(ok) => {
                return Ok(ServerAuthStep::Done(ServerAuthResult {
                    agreed: self.agreed,
                    status: ok.status,
                }));
            }
            Login::Error(report) => {
                return Err(self.declined.unwrap_or(AuthFailure::Server(report.code)));
            }
            Login::Switch { plugin, data } => Some(self.switch(plugin, data)?),
            Login::More(data) => self.more(data)?,
        };
        if let Some(answer) = answer {
            let sequence = frame.sequence.wrapping_add(1);
            build::packet(out, sequence, |out| out.extend_from_slice(&answer));
        }
        Ok(ServerAuthStep::More(self))
    }

    /// Answers a plugin switch. A plugin that cannot be answered gets an empty reply: the account
    /// may have another one, which the server requests next.
    fn switch(&mut self, plugin: &[u8], data: &[u8]) -> Result<Zeroizing<Vec<u8>>, AuthFailure> {
        self.switches = self.switches.saturating_add(1);
        if self.switches > SWITCHES_MAX {
            return Err(AuthFailure::Protocol);
        }
        let nonce = data.strip_suffix(&[0]).filter(|rest| rest.len() == 20);
        let nonce = nonce.unwrap_or(data);
        if let Ok(nonce) = nonce.try_into() {
            self.nonce = Nonce::from_bytes(nonce);
        }
        self.stage = AuthStage::Ok;
        let proof = match known(plugin) {
            Some(known) => self.proof(known, nonce),
            None => Err(AuthFailure::Plugin),
        };
        self.declined = proof.as_ref().err().copied();
        match proof {
            Err(
                AuthFailure::Plugin | AuthFailure::Credential | AuthFailure::CleartextNotAllowed,
            ) => {
                self.stage = AuthStage::Other;
                Ok(Zeroizing::default())
            }
            proof => proof,
        }
    }

    /// Processes additional data of a plugin: only `caching_sha2_password` and `parsec` send any.
    fn more(&mut self, data: &[u8]) -> Result<Option<Zeroizing<Vec<u8>>>, AuthFailure> {
        match (self.stage, data) {
            (AuthStage::Sha2, [3]) => {
                self.stage = AuthStage::Ok;
                Ok(None)
            }
            (AuthStage::Sha2, [4]) => self.whole_password().map(Some),
            (AuthStage::Key, pem) => {
                let key = PublicKey::from_pem(pem).ok_or(AuthFailure::Protocol)?;
                self.encrypted(&key).map(Some)
            }
            (AuthStage::Parsec(nonce), encoded) => self.signed(&nonce, encoded).map(Some),
            (AuthStage::Other, _) => {
                self.stage = AuthStage::Ok;
                Ok(Some(Zeroizing::default()))
            }
            _ => Err(AuthFailure::Protocol),
        }
    }

    fn whole_password(&mut self) -> Result<Zeroizing<Vec<u8>>, AuthFailure> {
        let Credential::Password(password) = &self.credential else {
            return Err(AuthFailure::PasswordNeeded);
        };
        if self.channel == Channel::Secure {
            self.stage = AuthStage::Ok;
            return Ok(terminated(password));
        }
        match self.key.clone() {
            ServerKey::Never => Err(AuthFailure::ServerKeyUnknown),
            ServerKey::Ask => {
                self.stage = AuthStage::Key;
                Ok(Zeroizing::new(vec![2]))
            }
            ServerKey::Known(key) => self.encrypted(&key),
        }
    }

    fn encrypted(&mut self, key: &PublicKey) -> Result<Zeroizing<Vec<u8>>, AuthFailure> {
        self.stage = AuthStage::Ok;
        let Credential::Password(password) = &self.credential else {
            return Err(AuthFailure::PasswordNeeded);
        };
        let message = key.encrypt_password(password, &self.nonce, self.random);
        message.map(Zeroizing::new).ok_or(AuthFailure::Credential)
    }

    fn signed(
        &mut self,
        nonce: &parsec::Nonce,
        encoded: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, AuthFailure> {
        self.stage = AuthStage::Ok;
        let Credential::Password(password) = &self.credential else {
            return Err(AuthFailure::Credential);
        };
        let derivation = parsec::Derivation::read(encoded).ok_or(AuthFailure::Protocol)?;
        let answer = parsec::prove(password, &derivation, nonce, &self.random);
        Ok(Zeroizing::new(answer.to_vec()))
    }

    /// Returns the initial plugin: the server's if the credential can answer it, which avoids a
    /// switch.
    fn first_plugin(&self, offered: &[u8]) -> &'static [u8] {
        match (&self.credential, known(offered)) {
            (Credential::Key(Key::Native(_)), _) => password::NATIVE,
            (Credential::Key(Key::Sha2(_)), _) => password::CACHING_SHA2,
            (_, Some(plugin @ (password::NATIVE | password::CACHING_SHA2))) => plugin,
            _ => password::NATIVE,
        }
    }

    fn proof(&mut self, plugin: &[u8], nonce: &[u8]) -> Result<Zeroizing<Vec<u8>>, AuthFailure> {
        if matches!(self.credential, Credential::Nothing) {
            return Ok(Zeroizing::default());
        }
        if plugin == password::CACHING_SHA2 {
            self.stage = AuthStage::Sha2;
        }
        let proof = match (plugin, &self.credential) {
            (_, Credential::Password(password)) if password.is_empty() => Vec::new(),
            (password::NATIVE, credential) => {
                let key = native_key(credential).ok_or(AuthFailure::Credential)?;
                key.prove(&self.read_nonce(nonce)?).to_vec()
            }
            (password::CACHING_SHA2, credential) => {
                let key = sha2_key(credential).ok_or(AuthFailure::Credential)?;
                key.prove(&self.read_nonce(nonce)?).to_vec()
            }
            (password::ED25519, Credential::Password(password)) => {
                let nonce: &ed25519::Nonce = nonce.try_into().map_err(|_| AuthFailure::Protocol)?;
                ed25519::prove(password, nonce).to_vec()
            }
            (password::PARSEC, Credential::Password(_)) => {
                let nonce = nonce.try_into().map_err(|_| AuthFailure::Protocol)?;
                self.stage = AuthStage::Parsec(nonce);
                // Empty: requests the parameters of the key derivation.
                Vec::new()
            }
            (password::CLEAR, Credential::Password(password)) => {
                if self.channel == Channel::Plain {
                    return Err(AuthFailure::CleartextNotAllowed);
                }
                return Ok(terminated(password));
            }
            _ => return Err(AuthFailure::Credential),
        };
        Ok(Zeroizing::new(proof))
    }

    fn read_nonce(&self, nonce: &[u8]) -> Result<Nonce, AuthFailure> {
        let nonce = nonce.try_into().map_err(|_| AuthFailure::Protocol)?;
        Ok(Nonce::from_bytes(nonce))
    }
}

fn agree(offered: Capabilities, hello: &Hello<'_>) -> Capabilities {
    let needed = Capabilities::PROTOCOL_41
        .with(Capabilities::SECURE_CONNECTION)
        .with(Capabilities::PLUGIN_AUTH)
        .with(Capabilities::PLUGIN_AUTH_LENENC);
    let schema = match hello.schema {
        Some(_) => Capabilities::CONNECT_WITH_DB,
        None => Capabilities::default(),
    };
    let ours = hello.capabilities.without(Capabilities::CONNECT_WITH_DB);
    ours.with(needed).with(schema).both(offered)
}

fn known(plugin: &[u8]) -> Option<&'static [u8]> {
    [
        password::NATIVE,
        password::CACHING_SHA2,
        password::ED25519,
        password::PARSEC,
        password::CLEAR,
    ]
    .into_iter()
    .find(|known| *known == plugin)
}

fn native_key(credential: &Credential) -> Option<native::Key> {
    match credential {
        Credential::Key(Key::Native(key)) => Some(key.clone()),
        Credential::Password(password) => Some(native::Key::of_password(password)),
        _ => None,
    }
}

fn sha2_key(credential: &Credential) -> Option<sha2::Key> {
    match credential {
        Credential::Key(Key::Sha2(key)) => Some(key.clone()),
        Credential::Password(password) => Some(sha2::Key::of_password(password)),
        _ => None,
    }
}

fn terminated(password: &[u8]) -> Zeroizing<Vec<u8>> {
    let mut whole = Zeroizing::new(Vec::with_capacity(password.len().saturating_add(1)));
    whole.extend_from_slice(password);
    whole.push(0);
    whole
}
