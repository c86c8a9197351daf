//! Determines how a login is verified, and with which credentials it connects to servers.

use evenkeel_engine::secret;
use evenkeel_engine::stream::Stream;
use evenkeel_policy::accounts::{LookupError, PostgresAuthRecord, Verifier};
use evenkeel_wire::postgres::backend::SqlState;
use evenkeel_wire::postgres::login::{AuthFailure, Credential, Key, Method, Secret};
use evenkeel_wire::postgres::{md5, scram};
use zeroize::Zeroizing;

use super::super::error_reply::ErrorReply;
use super::{LoginError, LoginHandler, LoginRequest};
use crate::error_catalog;
use crate::service::ServiceSnapshot;
use crate::service::database::{FileCredential, FileUser};
use crate::session::login_source::{self, Applicant, LoginSource};

/// Iterations of mock verifiers: PostgreSQL's default.
const MOCK_ITERATIONS: u32 = 4_096;

/// Result of an authentication that has succeeded or is about to.
pub(in super::super) type LoginGrant = login_source::LoginGrant<Key, SqlState, Unsent>;

/// Messages to the client.
#[derive(Default)]
pub(in super::super) struct Unsent {
    /// Rest of the authentication exchange to be sent.
    pub(in super::super) last_word: Vec<u8>,
}

/// Method of authentication.
pub(super) enum AuthDecision {
    /// Client certificate suffices: it names the user.
    Certificate(LoginGrant),
    Challenge(Method, LoginGrant),
    /// A server checks the password that the client sends.
    ByServer(LoginGrant),
}

impl LoginHandler<'_> {
    /// Determines how a user's login is verified.
    pub(super) async fn look_up(
        &self,
        stream: &Stream,
        view: &ServiceSnapshot,
        request: &LoginRequest,
    ) -> Result<AuthDecision, LoginError> {
        let database = view.database().ok_or(LoginError::Disconnected)?;
        let applicant = Applicant {
            user: &request.user,
            address: self.context.address(),
            is_private: self.is_private(stream),
        };
        let found = applicant.source(&database.auth, || stream.client_name());
        let Some((of_file, source)) = found else {
            let entry = &error_catalog::ADDRESS_NOT_ALLOWED;
            return Err(ErrorReply::with(entry, &[&request.user]).into());
        };
        if let LoginSource::Certificate = source {
            return Ok(AuthDecision::Certificate(file_grant(request, &of_file)));
        }
        if of_file.cleartext && !applicant.is_private {
            return Err(in_the_open(&request.user).into());
        }
        let binding = stream.end_point();
        match source {
            LoginSource::File(credential) => {
                return Ok(self.of_file(request, &of_file, &credential, binding));
            }
            LoginSource::Nowhere => return Ok(self.mock(request, binding)),
            LoginSource::Server => {
                return Ok(AuthDecision::ByServer(proof(request, &of_file, [b""; 2])));
            }
            LoginSource::ServerOverTls => {
                return Err(ErrorReply::new(&error_catalog::LOGIN_REQUIRES_TLS).into());
            }
            LoginSource::Certificate | LoginSource::Verifier => {}
        }
        let found = self.context.service.server_info.login(&request.user).await;
        let login = match found {
            Ok(login) => login,
            Err(LookupError::NoSuchUser) => return Ok(self.mock(request, binding)),
            Err(LookupError::Unavailable(why)) => return Err(applicant.unavailable(&why).into()),
        };
        let error_reply = objection(request, &login);
        let pending = match &login.verifier {
            Verifier::Scram(text) | Verifier::Md5(text) => method(text, &of_file, binding.clone()),
            Verifier::None => None,
        };
        Ok(match (pending, login.verifier) {
            (Some(method), Verifier::Scram(text) | Verifier::Md5(text)) => {
                let proof = LoginGrant {
                    error_reply,
                    ..proof(
                        request,
                        &of_file,
                        [text.as_bytes(), login.role_fingerprint.as_bytes()],
                    )
                };
                AuthDecision::Challenge(method, proof)
            }
            _ => self.mock(request, binding),
        })
    }

    fn of_file(
        &self,
        request: &LoginRequest,
        user: &FileUser,
        credential: &FileCredential,
        binding: Option<Vec<u8>>,
    ) -> AuthDecision {
        match credential {
            FileCredential::Password(password) if user.cleartext => {
                let secret = Zeroizing::new(password.as_bytes().to_vec());
                let method = Method::Cleartext(Secret::Password(secret));
                AuthDecision::Challenge(method, proof(request, user, [password.as_bytes(), b""]))
            }
            FileCredential::Password(password) => {
                let bytes = password.as_bytes();
                let verifier = self.protocol.verifiers.of(&request.user, bytes);
                let method = Method::Scram {
                    verifier,
                    binding,
                    nonce: secret(),
                };
                let mut proof = proof(request, user, [bytes, b""]);
                // The keys from that login use Evenkeel's salt, so servers require the password.
                let password = Zeroizing::new(bytes.to_vec());
                proof
                    .credential
                    .get_or_insert(Credential::Password(password));
                AuthDecision::Challenge(method, proof)
            }
            FileCredential::Verifier(text) => match method(text, user, binding.clone()) {
                Some(method) => {
                    AuthDecision::Challenge(method, proof(request, user, [text.as_bytes(), b""]))
                }
                None => self.mock(request, binding),
            },
        }
    }

    /// Challenges an unknown user like any other.
    fn mock(&self, request: &LoginRequest, binding: Option<Vec<u8>>) -> AuthDecision {
        let user = request.user.as_bytes();
        let verifier = scram::Verifier::mock(user, &self.protocol.mock_secret, MOCK_ITERATIONS);
        let method = Method::Scram {
            verifier,
            binding,
            nonce: secret(),
        };
        let proof = LoginGrant {
            error_reply: Some(failed(&request.user)),
            ..proof(request, &FileUser::default(), [b""; 2])
        };
        AuthDecision::Challenge(method, proof)
    }
}

fn method(text: &str, user: &FileUser, binding: Option<Vec<u8>>) -> Option<Method> {
    if let Some(verifier) = scram::Verifier::parse(text.as_bytes()) {
        if user.cleartext {
            if !verifier.is_payable() {
                let most = scram::ITERATIONS_MAX;
                tracing::warn!(
                    "login refused: SCRAM iteration count of the stored password \
                     exceeds {most}"
                );
                return None;
            }
            return Some(Method::Cleartext(Secret::Scram(verifier)));
        }
        let nonce = secret();
        return Some(Method::Scram {
            verifier,
            binding,
            nonce,
        });
    }
    let hash = md5::Hash::parse(text.as_bytes())?;
    if user.cleartext {
        return Some(Method::Cleartext(Secret::Md5(hash)));
    }
    let salt = secret();
    Some(Method::Md5 { hash, salt })
}

/// Returns the error with which a server would reject the authenticated user.
fn objection(request: &LoginRequest, login: &PostgresAuthRecord) -> Option<ErrorReply> {
    let (user, database) = (&request.user, &request.database);
    if !login.can_login {
        let entry = &error_catalog::ROLE_CANNOT_LOG_IN;
        return Some(ErrorReply::with(entry, &[user]));
    }
    if login.expired {
        return Some(failed(user));
    }
    if login.closed_databases.contains(database) {
        let entry = &error_catalog::DATABASE_CLOSED;
        return Some(ErrorReply::with(entry, &[database]));
    }
    let forbidden = || {
        let entry = &error_catalog::DATABASE_FORBIDDEN;
        ErrorReply::with(entry, &[database]).detail("User does not have CONNECT privilege.")
    };
    login.forbidden_databases.contains(database).then(forbidden)
}

/// Returns the error for a password that would be sent unencrypted.
fn in_the_open(user: &str) -> ErrorReply {
    ErrorReply::with(&error_catalog::CLEARTEXT_REQUIRES_TLS, &[&user])
}

/// Builds the grant. `secret`: what the login is checked against; `role`: fingerprint of the role.
/// Both affect the generation.
fn proof(request: &LoginRequest, user: &FileUser, [secret, role]: [&[u8]; 2]) -> LoginGrant {
    LoginGrant::new(&request.user, user, &[secret, role])
}

fn file_grant(request: &LoginRequest, user: &FileUser) -> LoginGrant {
    let known = user.password().unwrap_or_default();
    let mut grant = LoginGrant::of_certificate(&request.user, user, &[known, b""]);
    grant.own.last_word.clone_from(&request.negotiation);
    grant
}

fn failed(user: &str) -> ErrorReply {
    ErrorReply::with(&error_catalog::WRONG_PASSWORD, &[&user])
}

/// Returns the error for failed authentication: the same for a wrong password and an unknown user.
pub(super) fn refused(user: &str, refusal: AuthFailure) -> ErrorReply {
    if refusal.sqlstate() == SqlState::INVALID_PASSWORD {
        return failed(user);
    }
    ErrorReply::with(&error_catalog::AUTHENTICATION_FAILED, &[&refusal]).coded(refusal.sqlstate())
}

#[cfg(test)]
mod tests {
    use evenkeel_wire::postgres::startup::Replication;

    use super::*;

    #[test]
    fn whatever_logs_in_to_servers_makes_another_generation() {
        let request = LoginRequest {
            minor: 0,
            user: "app".to_owned(),
            database: "shop".to_owned(),
            replication: Replication::No,
            parameters: Vec::new(),
            negotiation: Vec::new(),
        };
        let secret = |text: &str| Zeroizing::new(text.to_owned());
        let user = |server_user: &str, server_password: &str, password: &str| FileUser {
            credential: Some(FileCredential::Password(secret(password))),
            server_user: Some(server_user.to_owned()),
            server_password: Some(secret(server_password)),
            ..FileUser::default()
        };
        let of = |user: &FileUser, settings| proof(&request, user, [b"p", settings]).generation;
        let generation = |user: &FileUser| of(user, b"");
        let before = generation(&user("one", "s", "p"));
        assert_eq!(generation(&user("one", "s", "p")), before);
        assert_ne!(generation(&user("two", "s", "p")), before);
        assert_ne!(generation(&user("one", "rotated", "p")), before);
        assert_ne!(generation(&user("ones", "", "p")), before);
        assert_ne!(
            of(&user("one", "s", "p"), b"0 16384 {work_mem=4MB}"),
            before
        );
        let file_grant = |user: &FileUser| file_grant(&request, user).generation;
        let of_file = |password: &str| FileUser {
            server_password: None,
            ..user("one", "", password)
        };
        assert_ne!(file_grant(&of_file("p")), file_grant(&of_file("rotated")));
    }
}
