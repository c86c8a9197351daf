//! Which servers' certificates are believed: none is asked for, any, or those that an authority or
//! a list vouches for.

use std::{path::Path, sync::Arc};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        Resumption, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
};

use super::{SERVER_CA, SetupError, TlsIdentity, certificate};

/// How to speak TLS with a server. On a Unix socket none is spoken, whatever is set here.
#[derive(Clone, Debug)]
pub enum Tls {
    /// Plaintext.
    Off,
    /// Encrypted, without a look at the certificate: keeps out who listens, not who stands in
    /// between. The identity is our certificate, for servers that ask for one.
    Encrypt(Option<TlsIdentity>),
    /// Encrypted, and the certificate is signed by an authority that is trusted and names the
    /// server.
    Verify {
        /// Who is trusted; the public authorities of the Mozilla list if not given.
        ca: Option<Authorities>,
        /// The host name or IP address that the certificate must carry.
        server_name: String,
        /// Our certificate, for servers that ask for one.
        identity: Option<TlsIdentity>,
    },
}

impl Tls {
    /// Who we are to the server.
    pub(crate) fn identity(&self) -> Option<&TlsIdentity> {
        match self {
            Tls::Off => None,
            Tls::Encrypt(identity) | Tls::Verify { identity, .. } => identity.as_ref(),
        }
    }
}

/// Certificates of the authorities that are trusted to vouch for servers or clients. A server's own
/// certificate that is listed is trusted as it is.
#[derive(Clone, Debug)]
pub struct Authorities(Arc<[CertificateDer<'static>]>);

impl Authorities {
    /// Reads those for servers from PEM text; text without any is an error.
    pub fn from_pem(pem: &[u8]) -> Result<Self, SetupError> {
        Self::parse(pem).map_err(|why| SetupError::bad(SERVER_CA, why))
    }

    /// Reads the file that `key` of the configuration names.
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
            added.map_err(|e| format!("not a usable certificate: {e}"))?;
        }
        Ok(Self(certificates.into()))
    }

    /// The certificates, each as DER.
    pub(crate) fn certificates(&self) -> impl Iterator<Item = &CertificateDer<'static>> {
        self.0.iter()
    }

    /// As the library wants them.
    pub(super) fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(self.certificates().cloned());
        Arc::new(roots)
    }
}

/// What a TLS client needs; `None` when TLS is off.
///
/// Sessions are never resumed: PostgreSQL offers it to nobody, and a certificate is looked at each
/// time.
pub(crate) fn client_config(tls: &Tls) -> Result<Option<ClientConfig>, SetupError> {
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

/// Fails for a name that no certificate can carry.
pub(crate) fn check_name(server_name: &str) -> Result<ServerName<'static>, SetupError> {
    ServerName::try_from(server_name.to_owned())
        .map_err(|_| SetupError::BadServerName(server_name.to_owned()))
}

/// Where all cryptography comes from.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

pub(super) fn refused(error: impl ToString) -> SetupError {
    SetupError::Refused(error.to_string())
}

fn verifier(tls: &Tls) -> Result<Option<Arc<dyn ServerCertVerifier>>, SetupError> {
    Ok(match tls {
        Tls::Off => None,
        Tls::Encrypt(_) => Some(Arc::new(AnyCertificate(provider()))),
        Tls::Verify {
            ca, server_name, ..
        } => {
            check_name(server_name)?;
            Some(Arc::new(AuthorityVerifier::new(ca.clone())?))
        }
    })
}

/// Accepts certificates that an authority has signed, or that are listed themselves.
#[derive(Debug)]
struct AuthorityVerifier {
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

    /// `openssl req -x509` makes an authority's certificate, which servers then show as their own:
    /// no chain leads to it, but who lists it means it.
    fn is_listed(&self, certificate: &CertificateDer<'_>) -> bool {
        let mut listed = self.listed.iter().flat_map(Authorities::certificates);
        listed.any(|one| one == certificate)
    }
}

impl ServerCertVerifier for AuthorityVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if !self.is_listed(end_entity) {
            return self.signed.verify_server_cert(
                end_entity,
                intermediates,
                server_name,
                ocsp_response,
                now,
            );
        }
        if !certificate::is_valid_at(end_entity, now) {
            return Err(CertificateError::Expired.into());
        }
        verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed
            .verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signed
            .verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.signed.supported_verify_schemes()
    }
}

/// Accepts every certificate, but still wants the peer to hold the key of the one it showed.
#[derive(Debug)]
pub(super) struct AnyCertificate(pub(super) Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
