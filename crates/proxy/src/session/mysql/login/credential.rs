//! Determines the credential that a client's login is checked against, and the one for logins at
//! the servers.

use std::sync::atomic::Ordering::Relaxed;

use evenkeel_engine::secret;
use evenkeel_policy::accounts::{
    AuthMethod, LookupError, MysqlAuthRecord, MysqlAuthRecords, TlsRequirement,
};
use evenkeel_wire::mysql::login::{Channel, Credential, Key, Method};
use evenkeel_wire::mysql::password::{self, crypt, ed25519, native, parsec, sha2};
use zeroize::Zeroizing;

use super::super::error_reply::ErrorReply;
use super::client_packets::ClientPackets;
use super::error_replies::AccountName;
use super::password_cache::CacheLevel;
use super::{LoginError, LoginHandler, LoginRequest};
use crate::error_catalog;
use crate::service::ServiceSnapshot;
use crate::service::database::{FileCredential, FileUser};
use crate::session::blocking;
use crate::session::login_source::{self, Applicant, LoginSource};
use crate::upstream::connect_error::ErrorCode;

/// Rounds of mock hashes; MySQL's default.
const MOCK_ROUNDS: u32 = 5_000;

/// Result of a successful login, prepared before authentication completes.
pub(super) type LoginGrant = login_source::LoginGrant<Key, ErrorCode, PasswordUse>;

/// Use of the client's password after the login.
#[derive(Default)]
pub(super) struct PasswordUse {
    /// Data to cache if the client sends the whole password.
    pub(super) keeps: CacheLevel,
    /// True if the servers have not seen the password yet.
    pub(super) warms: bool,
    /// Text of the OK packet that proves Evenkeel's certificate to the client.
    pub(super) of_certificate: Vec<u8>,
}

/// Way in which a client is authenticated.
pub(super) enum AuthDecision {
    /// The client's certificate has authenticated it; no challenge is sent.
    Certificate(LoginGrant),
    Challenge(Method, LoginGrant),
}

impl LoginHandler<'_> {
    /// Determines how a user is authenticated.
    pub(super) async fn look_up(
        &self,
        packets: &ClientPackets,
        view: &ServiceSnapshot,
        request: &LoginRequest,
    ) -> Result<AuthDecision, LoginError> {
        let database = view.database().ok_or(LoginError::Disconnected)?;
        let applicant = Applicant {
            user: &request.user,
            address: self.context.address(),
            is_private: self.channel(packets) == Channel::Secure,
        };
        let found = applicant.source(&database.auth, || packets.client_name());
        let Some((of_file, source)) = found else {
            let (user, peer) = (&request.user, self.context.peer);
            tracing::info!(
                user,
                ?peer,
                "login refused: address not in allow_from of [service.auth]"
            );
            return Ok(self.mock(packets, request, "").await);
        };
        Ok(match source {
            LoginSource::Certificate => AuthDecision::Certificate(file_grant(request, &of_file)),
            LoginSource::File(credential) => {
                self.of_file(packets, request, &of_file, &credential).await
            }
            LoginSource::Nowhere => self.mock(packets, request, "").await,
            LoginSource::Server => by_server(request, &of_file),
            LoginSource::ServerOverTls => {
                return Err(ErrorReply::new(&error_catalog::LOGIN_REQUIRES_TLS).into());
            }
            LoginSource::Verifier => match self
                .context
                .service
                .server_info
                .accounts(&request.user)
                .await
            {
                Ok(accounts) => self.of_server(packets, request, &of_file, &accounts).await,
                Err(LookupError::NoSuchUser) => self.mock(packets, request, "").await,
                Err(LookupError::Unavailable(why)) => {
                    return Err(applicant.unavailable(&why).into());
                }
            },
        })
    }

    /// Returns the decision for a user with a password or hash in the users file.
    async fn of_file(
        &self,
        packets: &ClientPackets,
        request: &LoginRequest,
        user: &FileUser,
        credential: &FileCredential,
    ) -> AuthDecision {
        let pending = match credential {
            FileCredential::Password(text) => {
                self.of_password(packets, request, (user, text.as_bytes()))
                    .await
            }
            FileCredential::Verifier(text) => {
                let stored = plain(text);
                let stored = stored.as_slice();
                let plugin = plugin_of(stored);
                let mut proof = proof(request, user, &[stored]);
                let method = self
                    .method(packets, request, (plugin, stored), &mut proof)
                    .await;
                method.map(|method| (method, proof))
            }
        };
        match pending {
            Some((method, proof)) => AuthDecision::Challenge(method, proof),
            None => self.mock(packets, request, "").await,
        }
    }

    /// Returns the method for a known password, which permits any plugin: the client's first
    /// choice.
    async fn of_password(
        &self,
        packets: &ClientPackets,
        request: &LoginRequest,
        (user, password): (&FileUser, &[u8]),
    ) -> Option<(Method, LoginGrant)> {
        let mut proof = proof(request, user, &[password]);
        let plugin = match request.plugin.as_deref() {
            Some(password::NATIVE) => password::NATIVE,
            Some(password::CACHING_SHA2) => password::CACHING_SHA2,
            None if !request.knows_plugins() => password::NATIVE,
            _ => request.usual,
        };
        let known = Zeroizing::new(password.to_vec());
        proof.credential.get_or_insert(Credential::Password(known));
        let method = match (password, plugin) {
            ([], plugin) => Method::Empty(plugin),
            (_, password::CACHING_SHA2) => Method::Sha2 {
                fast: Some(sha2::Verifier::of_password(password)),
                // A proof that does not match comes from a wrong password, and is rejected like any
                // other.
                stored: crypt::Stored::mock(secret(), MOCK_ROUNDS),
                public_key: self.public_key(packets).await,
            },
            _ => Method::Native(native::Verifier::of_password(password)),
        };
        Some((method, proof))
    }

    /// Returns the decision for a user of the servers.
    async fn of_server(
        &self,
        packets: &ClientPackets,
        request: &LoginRequest,
        user: &FileUser,
        accounts: &MysqlAuthRecords,
    ) -> AuthDecision {
        self.shared
            .logins
            .by_name
            .store(accounts.by_name(), Relaxed);
        let Some(row) = accounts.chosen() else {
            self.shared.logins.vault.forget(&request.user);
            return self.mock(packets, request, &accounts.default_plugin).await;
        };
        for auth_method in preferred(&row.methods, request, user) {
            let mut proof = proof(request, user, &identity(row, auth_method));
            let plugin = client_plugin(&auth_method.plugin);
            let pending = self.method(packets, request, (plugin, &auth_method.stored), &mut proof);
            let Some(mut method) = pending.await else {
                continue;
            };
            if let Method::Sha2 { stored, .. } = &mut method {
                stored.accept(crypt::Stored::read(&auth_method.retained));
            }
            let of_row = self.error_reply(packets, request, row, accounts.mariadb);
            proof.error_reply = of_row.or(proof.error_reply.take());
            return AuthDecision::Challenge(method, proof);
        }
        let plugins: Vec<_> = row
            .methods
            .iter()
            .map(|auth_method| &*auth_method.plugin)
            .collect();
        tracing::info!(
            user = request.user,
            host = row.host,
            ?plugins,
            "login refused: unsupported authentication plugin"
        );
        self.mock(packets, request, &accounts.default_plugin).await
    }

    /// Returns the error for a client that must be rejected despite a correct password.
    fn error_reply(
        &self,
        packets: &ClientPackets,
        request: &LoginRequest,
        row: &MysqlAuthRecord,
        mariadb: bool,
    ) -> Option<ErrorReply> {
        let client = self.client(request);
        if row.is_locked {
            return Some(client.locked(mariadb));
        }
        let is_as_required = match &row.requires {
            TlsRequirement::Nothing => true,
            TlsRequirement::Tls => self.channel(packets) == Channel::Secure,
            // The server would see Evenkeel's certificate instead of the client's.
            TlsRequirement::Certificate(required) => {
                let shown = packets.certificate_names();
                shown.is_some_and(|shown| required.are_met_by(&shown.subject, &shown.issuer))
            }
        };
        if !is_as_required {
            return Some(client.denied(request.has_proof));
        }
        row.is_expired
            .then(|| ErrorReply::new(&error_catalog::PASSWORD_EXPIRED))
    }

    /// Returns the method of a plugin; `None` if the plugin is unsupported or its stored hash is
    /// invalid.
    async fn method(
        &self,
        packets: &ClientPackets,
        request: &LoginRequest,
        (plugin, stored): (&[u8], &[u8]),
        proof: &mut LoginGrant,
    ) -> Option<Method> {
        match (plugin, stored) {
            (password::NATIVE, []) => Some(Method::Empty(password::NATIVE)),
            (password::CACHING_SHA2, []) => Some(Method::Empty(password::CACHING_SHA2)),
            (password::NATIVE, stored) => native::Verifier::read(stored).map(Method::Native),
            (password::CACHING_SHA2, stored) => {
                let vault = &self.shared.logins.vault;
                proof.own.keeps = match proof.credential {
                    None => CacheLevel::Password,
                    Some(_) => CacheLevel::Verifier,
                };
                Some(Method::Sha2 {
                    stored: crypt::Stored::read(stored)?,
                    fast: vault.verifier(&request.user, proof.generation),
                    public_key: self.public_key(packets).await,
                })
            }
            (plugin, stored) => {
                let (method, name) = signed(plugin, stored)?;
                if proof.credential.is_none() {
                    let entry = &error_catalog::NO_SERVER_CREDENTIAL;
                    proof.error_reply = Some(ErrorReply::with(entry, &[&name]));
                }
                Some(method)
            }
        }
    }

    /// Challenges a client that must be rejected in the usual way, so that its rejection takes as
    /// long as any other. Its user does not exist, or may not log in from that address.
    async fn mock(
        &self,
        packets: &ClientPackets,
        request: &LoginRequest,
        usual: &str,
    ) -> AuthDecision {
        let method = match client_plugin(usual) {
            _ if usual.is_empty() && request.usual == password::NATIVE => mock_native(),
            password::NATIVE if !usual.is_empty() => mock_native(),
            password::ED25519 => Method::Ed25519(ed25519::Verifier::mock(secret()), secret()),
            password::PARSEC => {
                let mock = &self.shared.logins.mock_secret.0;
                let mock = parsec::Verifier::mock(request.user.as_bytes(), mock);
                Method::Parsec(mock, secret())
            }
            _ => Method::Sha2 {
                fast: None,
                stored: crypt::Stored::mock(secret(), MOCK_ROUNDS),
                public_key: self.public_key(packets).await,
            },
        };
        let proof = LoginGrant {
            error_reply: Some(self.client(request).denied(request.has_proof)),
            ..proof(request, &FileUser::default(), &[])
        };
        AuthDecision::Challenge(method, proof)
    }

    /// Returns the public key for clients on a plain channel, which need it to encrypt a password.
    async fn public_key(&self, packets: &ClientPackets) -> Option<Vec<u8>> {
        match self.channel(packets) {
            Channel::Secure => None,
            Channel::Plain => Some(blocking::key().await?.public_pem().to_vec()),
        }
    }

    pub(super) fn client<'b>(&self, request: &'b LoginRequest) -> AccountName<'b> {
        AccountName {
            user: &request.user,
            address: self.context.address(),
            by_name: self.shared.logins.by_name.load(Relaxed),
        }
    }
}

/// Returns the decision for a client whose password a server checks: the client sends it with the
/// plugin that it has begun with, or with the most common one of the two.
fn by_server(request: &LoginRequest, user: &FileUser) -> AuthDecision {
    let plugin = match request.plugin.as_deref() {
        Some(password::CLEAR) => password::CLEAR,
        _ => password::CACHING_SHA2,
    };
    AuthDecision::Challenge(Method::Collected(plugin), proof(request, user, &[]))
}

/// Returns the method of a plugin based on signatures, which cannot be reused, and the plugin's
/// common name.
fn signed(plugin: &[u8], stored: &[u8]) -> Option<(Method, &'static str)> {
    match plugin {
        password::ED25519 => {
            let verifier = ed25519::Verifier::read(stored)?;
            Some((Method::Ed25519(verifier, secret()), "ed25519"))
        }
        password::PARSEC => {
            let verifier = parsec::Verifier::read(stored)?;
            Some((Method::Parsec(verifier, secret()), "parsec"))
        }
        _ => None,
    }
}

fn mock_native() -> Method {
    Method::Native(native::Verifier::mock(secret()))
}

/// Sorts the methods of an account. Methods that provide a credential for the servers come first,
/// then the client's first choice, since the client may support no other.
fn preferred<'a>(
    methods: &'a [AuthMethod],
    request: &LoginRequest,
    user: &FileUser,
) -> Vec<&'a AuthMethod> {
    let mut methods: Vec<&AuthMethod> = methods.iter().collect();
    methods.sort_by_key(|auth_method| {
        let plugin = client_plugin(&auth_method.plugin);
        let is_signature = matches!(plugin, password::ED25519 | password::PARSEC);
        let leaves_nothing = is_signature && user.server_password.is_none();
        (leaves_nothing, request.plugin.as_deref() != Some(plugin))
    });
    methods
}

/// Returns the data that distinguishes an account's credential and rights from others.
fn identity<'a>(row: &'a MysqlAuthRecord, auth_method: &'a AuthMethod) -> [&'a [u8]; 6] {
    [
        row.user.as_bytes(),
        row.host.as_bytes(),
        auth_method.plugin.as_bytes(),
        &auth_method.stored,
        &auth_method.retained,
        row.privileges_text.as_bytes(),
    ]
}

/// Returns the client-side name of an account's authentication plugin.
fn client_plugin(plugin: &str) -> &[u8] {
    match plugin {
        "" => password::NATIVE,
        "ed25519" => password::ED25519,
        other => other.as_bytes(),
    }
}

/// Decodes a hash from the users file: hexadecimal digits after `0x` if its salt is not valid text.
fn plain(text: &str) -> Zeroizing<Vec<u8>> {
    let digits = text.strip_prefix("0x").map(str::as_bytes);
    let pairs = digits.unwrap_or_default().chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok()?;
        u8::from_str_radix(pair, 16).ok()
    });
    let bytes = digits.and_then(|_| pairs.collect::<Option<Vec<u8>>>());
    Zeroizing::new(bytes.unwrap_or_else(|| text.as_bytes().to_vec()))
}

/// Returns the plugin for a stored hash, based on its form.
fn plugin_of(stored: &[u8]) -> &'static [u8] {
    match stored {
        [b'*', ..] => password::NATIVE,
        [b'$', ..] => password::CACHING_SHA2,
        _ => password::ED25519,
    }
}

fn proof(request: &LoginRequest, user: &FileUser, secrets: &[&[u8]]) -> LoginGrant {
    LoginGrant::new(&request.user, user, secrets)
}

fn file_grant(request: &LoginRequest, user: &FileUser) -> LoginGrant {
    let known = user.password().unwrap_or_default();
    LoginGrant::of_certificate(&request.user, user, &[known])
}
