//! Authenticates a client with any of the supported plugins.

use evenkeel_engine::secret;
use evenkeel_wire::UnprovedPassword;
use evenkeel_wire::mysql::build;
use evenkeel_wire::mysql::flags::Capabilities;
use evenkeel_wire::mysql::frame::Frame;
use evenkeel_wire::mysql::login::{
    AuthFailure, Authenticated, Channel, Check, ClientAuth, ClientAuthStep, Credential, Key, Method,
};
use evenkeel_wire::mysql::password;

use super::client_packets::ClientPackets;
use super::credential::{AuthDecision, LoginGrant};
use super::password_cache::CacheLevel;
use super::{LoginError, LoginHandler, LoginRequest, error_replies};
use crate::service::ServiceSnapshot;
use crate::session::blocking;

/// Result code of `caching_sha2_password` for a correct proof.
const FAST_SUCCESS: u8 = 3;

/// Result of the packets of an authentication.
enum Exchanged {
    Proof(Authenticated),
    /// The password, for a server to check.
    Password(UnprovedPassword),
}

impl LoginHandler<'_> {
    /// Authenticates the client; a success has not been reported to the client yet.
    pub(super) async fn prove(
        &self,
        packets: &mut ClientPackets,
        view: &ServiceSnapshot,
        request: &LoginRequest,
    ) -> Result<LoginGrant, LoginError> {
        let (method, proof) = match self.look_up(packets, view, request).await? {
            AuthDecision::Certificate(proof) => {
                self.accept_certificate(packets, request).await?;
                return Ok(proof);
            }
            AuthDecision::Challenge(method, mut proof) => {
                proof.own.of_certificate =
                    certificate_proof(packets, request, &method).unwrap_or_default();
                (method, proof)
            }
        };
        match self.exchange(packets, request, method, &proof).await? {
            Ok(Exchanged::Proof(authenticated)) => self.proved(request, proof, &authenticated),
            Ok(Exchanged::Password(password)) => {
                self.prove_at_server(request, proof, password).await
            }
            Err(refusal) => {
                let (user, peer) = (&request.user, self.context.peer);
                tracing::info!(user, ?peer, %refusal, "login refused");
                let error_reply =
                    error_replies::refused(&self.client(request), refusal, request.has_proof);
                Err(error_reply.into())
            }
        }
    }

    async fn exchange(
        &self,
        packets: &mut ClientPackets,
        request: &LoginRequest,
        method: Method,
        proof: &LoginGrant,
    ) -> Result<Result<Exchanged, AuthFailure>, LoginError> {
        let channel = self.channel(packets);
        let mut out = Vec::new();
        let to = (packets.next(), &mut out);
        let mut step = ClientAuth::begin(request.claim.clone(), request.nonce, channel, method, to);
        loop {
            packets.send(self.context.worker, &out).await?;
            out.clear();
            match step {
                ClientAuthStep::More(accept) => {
                    let sequence = packets.next();
                    let payload = packets.packet(self.context.worker).await?;
                    let payload = payload.as_slice();
                    step = accept.message(Frame { sequence, payload }, &mut out);
                }
                ClientAuthStep::Check(check) => {
                    let checked = self.check(channel, request, *check, proof).await;
                    return Ok(checked.map(Exchanged::Proof));
                }
                ClientAuthStep::Done(authenticated, _) => {
                    return Ok(Ok(Exchanged::Proof(authenticated)));
                }
                ClientAuthStep::Collected(password, _) => {
                    return Ok(Ok(Exchanged::Password(password)));
                }
                ClientAuthStep::Refused(refusal, _) => return Ok(Err(refusal)),
            }
        }
    }

    /// Compares a password with a hash on another thread, after waiting for the rate limit.
    async fn check(
        &self,
        channel: Channel,
        request: &LoginRequest,
        check: Check,
        proof: &LoginGrant,
    ) -> Result<Authenticated, AuthFailure> {
        let (rate_limit, user) = (&self.shared.logins.rate_limit, &*request.user);
        rate_limit.wait(self.context.address(), user).await;
        let key = match channel {
            Channel::Plain => blocking::key().await,
            Channel::Secure => None,
        };
        // A concurrent login of the same user may have verified the password meanwhile.
        let known = self.shared.logins.vault.verifier(user, proof.generation);
        let work = move || check.run_knowing(key.as_deref(), secret(), known.as_ref());
        let checked = blocking::run_blocking(work).await;
        let checked = checked.unwrap_or(Err(AuthFailure::WrongPassword));
        if checked.is_ok() {
            rate_limit.refund(self.context.address(), user);
        }
        checked
    }

    fn proved(
        &self,
        request: &LoginRequest,
        mut proof: LoginGrant,
        client: &Authenticated,
    ) -> Result<LoginGrant, LoginError> {
        if let Some(error_reply) = proof.error_reply.take() {
            return Err(error_reply.into());
        }
        let of_login = match client.credential() {
            Credential::Password(password) if proof.own.keeps != CacheLevel::Nothing => {
                let vault = &self.shared.logins.vault;
                let of = (&*request.user, proof.generation);
                let is_new = vault.keep(of, password, proof.own.keeps);
                proof.own.warms = is_new && proof.own.keeps == CacheLevel::Password;
                // From here on, the password itself exists only in locked memory.
                Credential::Key(Key::Sha2(password::sha2::Key::of_password(password)))
            }
            other => other.clone(),
        };
        proof.credential.get_or_insert(of_login);
        Ok(proof)
    }

    /// Completes the login of a client that its certificate has authenticated, in a way that suits
    /// its plugin.
    async fn accept_certificate(
        &self,
        packets: &mut ClientPackets,
        request: &LoginRequest,
    ) -> Result<(), LoginError> {
        let mut out = Vec::new();
        match request.plugin.as_deref() {
            Some(password::CACHING_SHA2) if request.has_proof => {
                build::auth_more_data(&mut out, packets.next(), &[FAST_SUCCESS]);
                packets.send(self.context.worker, &out).await
            }
            Some(password::CACHING_SHA2 | password::NATIVE) => Ok(()),
            None if !request.knows_plugins() => Ok(()),
            _ => {
                let mut data = request.nonce.bytes().to_vec();
                data.push(0);
                build::auth_switch(&mut out, packets.next(), password::NATIVE, &data);
                packets.send(self.context.worker, &out).await?;
                packets.packet(self.context.worker).await.map(|_| ())
            }
        }
    }
}

/// Returns the proof of Evenkeel's certificate, based on the stored password hash. The client can
/// verify that Evenkeel knows that hash.
fn certificate_proof(
    packets: &ClientPackets,
    request: &LoginRequest,
    method: &Method,
) -> Option<Vec<u8>> {
    let stored = method
        .stored()
        .filter(|_| request.wants_certificate_proof)?;
    let certificate = packets.fingerprint()?;
    Some(password::certificate_proof(
        &stored,
        &request.nonce,
        &certificate,
    ))
}

impl LoginRequest {
    pub(super) fn knows_plugins(&self) -> bool {
        self.handshake.agreed.has(Capabilities::PLUGIN_AUTH)
    }
}
