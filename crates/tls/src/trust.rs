//! Configures the trust in servers' certificates: none, any, those that an authority has signed or
//! a list contains, or those of given fingerprints.

use std::{path::Path, sync::Arc};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, OtherError, RootCertStore,
    SignatureScheme,
    client::{
        Resumption, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
};

use super::{Fingerprint, SERVER_CA, SetupError, TlsIdentity, certificate};

/// TLS towards a server. On a Unix socket none is used, whatever is set here.
#[derive(Clone, Debug)]
pub enum Tls {
    /// Plaintext.
    Off,
    /// Encrypted without verification of the certificate: protects from eavesdropping, not from a
    /// man in the middle. The identity is the own certificate, for servers that request one.
    Encrypt(Option<TlsIdentity>),
    /// Encrypted; the certificate must be signed by a trusted authority and contain the server's
    /// name, or have one of the fingerprints.
    Verify {
        /// Trusted authorities. `None`: the public authorities of the Mozilla list if there are no
        /// fingerprints either, else no authority.
        ca: Option<Authorities>,
        /// Certificates that are accepted whatever their issuer, name and validity.
        fingerprints: Vec<Fingerprint>,
        /// The host name or IP address that the certificate must contain.
        server_name: String,
        /// The own certificate, for servers that request one.
        identity: Option<TlsIdentity>,
    },
}

impl Tls {
    /// Returns the own identity towards the server.
    pub fn identity(&self) -> Option<&TlsIdentity> {
        match self {
            Tls::Off => None,
            Tls::Encrypt(identity) | Tls::Verify { identity, .. } => identity.as_ref(),
        }
    }
}

/// Certificates of authorities that are trusted to sign certificates of servers or clients. A
/// listed certificate of a server is trusted directly.
#[derive(Clone, Debug)]
pub struct Authorities(Arc<[CertificateDer<'static>]>);

impl Authorities {
    /// Reads authorities for servers from PEM text. Fails if the text contains none.
    pub fn from_pem(pem: &[u8]) -> Result<Self, SetupError> {
        Self::parse(pem).map_err(|why| SetupError::bad(SERVER_CA, why))
    }

    /// Reads the file that the configuration key `key` names.
    pub(super) fn read(key: &str, path: &Path) -> Result<Self, SetupError> {
        let pem = std::fs::read(path).map_err(|e| e.to_string());
        pem.and_then(|pem| Self::parse(&pem))
            .map_err(|why| SetupError::bad(key, format!("{}: {why}", path.display())))
    }

    fn parse(pem: &[u8]) -> Result<Self, String> {
        let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem)
            .collect::<Result<_, _>>()
            .map_err(|e| format!("not a PEM certificate: {e}"))?;
        if certificates.is_empty() {
            return Err("holds no PEM certificate".to_owned());
        }
        let mut roots = RootCertStore::empty();
        for certificate in &certificates {
            let added = roots.add(certificate.clone());
            added
                .map_err(|e| format!("contains a certificate that cannot be used as a CA: {e}"))?;
        }
        Ok(Self(certificates.into()))
    }

    /// Returns the certificates in DER.
    pub fn certificates(&self) -> impl Iterator<Item = &CertificateDer<'static>> {
        self.0.iter()
    }

    /// Converts them to the root store of the TLS library.
    pub(super) fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(self.certificates().cloned());
        Arc::new(roots)
    }
}

/// Returns the configuration of a TLS client, or `None` when TLS is off.
///
/// Sessions are never resumed: PostgreSQL does not offer it, and the certificate is verified at
/// each connection.
pub fn client_config(tls: &Tls) -> Result<Option<ClientConfig>, SetupError> {
    let Some(verifier) = verifier(tls)? else {
        return Ok(None);
    };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(refused)?
        .dangerous()
        .with_custom_certificate_verifier(verifier);
    let mut config = match tls.identity() {
        Some(identity) => builder.with_client_cert_resolver(identity.resolver()),
        None => builder.with_no_client_auth(),
    };
    config.resumption = Resumption::disabled();
    Ok(Some(config))
}

/// Parses a server name. Fails for a name that no certificate can contain.
pub fn check_name(server_name: &str) -> Result<ServerName<'static>, SetupError> {
    ServerName::try_from(server_name.to_owned())
        .map_err(|_| SetupError::BadServerName(server_name.to_owned()))
}

/// Returns the provider of all cryptography.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

pub(super) fn refused(error: impl ToString) -> SetupError {
    SetupError::Refused(error.to_string())
}

fn verifier(tls: &Tls) -> Result<Option<Arc<dyn ServerCertVerifier>>, SetupError> {
    Ok(match tls {
        Tls::Off => None,
        Tls::Encrypt(_) => Some(Arc::new(ServerVerifier::new(Trust::Any))),
        Tls::Verify {
            ca,
            fingerprints,
            server_name,
            ..
        } => {
            check_name(server_name)?;
            let authorities = match (ca, fingerprints.is_empty()) {
                (None, false) => None,
                _ => Some(AuthorityVerifier::new(ca.clone())?),
            };
            Some(Arc::new(ServerVerifier::new(Trust::Verified {
                authorities,
                fingerprints: fingerprints.clone(),
            })))
        }
    })
}

/// Accepts the certificates that its trust covers. In any case the peer must own the private key of
/// its certificate.
#[derive(Debug)]
pub(super) struct ServerVerifier {
    trust: Trust,
    provider: Arc<CryptoProvider>,
}

/// Certificates of servers that are accepted.
#[derive(Debug)]
pub(super) enum Trust {
    /// Every certificate.
    Any,
    /// Certificates of the fingerprints, and those that an authority has signed or that are listed
    /// as one.
    Verified {
        /// `None`: certificates are accepted by their fingerprint only.
        authorities: Option<AuthorityVerifier>,
        fingerprints: Vec<Fingerprint>,
    },
}

impl ServerVerifier {
    pub(super) fn new(trust: Trust) -> Self {
        let provider = provider();
        Self { trust, provider }
    }
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let (authorities, fingerprints) = match &self.trust {
            Trust::Any => return Ok(ServerCertVerified::assertion()),
            Trust::Verified {
                authorities,
                fingerprints,
            } => (authorities, fingerprints),
        };
        let fingerprint = Fingerprint::of(end_entity);
        if fingerprints.contains(&fingerprint) {
            return Ok(ServerCertVerified::assertion());
        }
        let cause = match authorities {
            Some(authorities) => authorities.verify(end_entity, intermediates, server_name, now),
            None => Err(CertificateError::UnknownIssuer.into()),
        };
        cause.map_err(|cause| UntrustedCertificate::error(cause, fingerprint, fingerprints))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let algorithms = &self.provider.signature_verification_algorithms;
        algorithms.supported_schemes()
    }
}

/// Verifies certificates that an authority has signed, or that are listed themselves.
#[derive(Debug)]
pub(super) struct AuthorityVerifier {
    listed: Option<Authorities>,
    signed: Arc<WebPkiServerVerifier>,
}

impl AuthorityVerifier {
    fn new(listed: Option<Authorities>) -> Result<Self, SetupError> {
        let roots = match &listed {
            Some(authorities) => authorities.roots(),
            None => Arc::new(RootCertStore::from_iter(
                webpki_roots::TLS_SERVER_ROOTS.iter().cloned(),
            )),
        };
        let signed = WebPkiServerVerifier::builder_with_provider(roots, provider())
            .build()
            .map_err(refused)?;
        Ok(Self { listed, signed })
    }

    /// Returns whether the certificate itself is listed. `openssl req -x509` creates an authority's
    /// certificate, which servers then use as their own. No chain leads to it, so listing it is an
    /// explicit decision to trust it.
    fn is_listed(&self, certificate: &CertificateDer<'_>) -> bool {
        let mut listed = self.listed.iter().flat_map(Authorities::certificates);
        listed.any(|one| one == certificate)
    }

    fn verify(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !self.is_listed(end_entity) {
            let signed = &self.signed;
            return signed.verify_server_cert(end_entity, intermediates, server_name, &[], now);
        }
        if !certificate::is_valid_at(end_entity, now) {
            return Err(CertificateError::Expired.into());
        }
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
        Ok(ServerCertVerified::assertion())
    }
}

/// Rejection of a server's certificate, with the fingerprint that would accept it.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
pub(crate) struct UntrustedCertificate {
    pub(crate) cause: CertificateError,
    pub(crate) fingerprint: Fingerprint,
    /// True if other fingerprints are configured.
    pub(crate) is_pinned: bool,
}

impl UntrustedCertificate {
    /// Wraps the error of a verifier. An expired certificate should be renewed, not accepted, and
    /// its server receives the alert that says so.
    fn error(error: Error, fingerprint: Fingerprint, configured: &[Fingerprint]) -> Error {
        let cause = match error {
            Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. },
            ) => return error,
            Error::InvalidCertificate(cause) => cause,
            error => return error,
        };
        let untrusted = Self {
            cause,
            fingerprint,
            is_pinned: !configured.is_empty(),
        };
        CertificateError::Other(OtherError(Arc::new(untrusted))).into()
    }
}
