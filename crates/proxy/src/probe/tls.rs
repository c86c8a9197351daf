//! TLS towards a server, for the probes: off, encrypted to anybody, or to a verified certificate.

use std::{net::IpAddr, path::Path, sync::Arc};

use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};

use super::{AskerError, Target};

/// How to speak TLS with the server. On a Unix socket none is spoken, whatever is set here.
#[derive(Clone, Debug)]
pub enum Tls {
    /// Plaintext.
    Off,
    /// Encrypted, without a look at the certificate: keeps out who listens, not who stands in
    /// between.
    Encrypt,
    /// Encrypted, and the certificate is signed by an authority that is trusted and names the
    /// server.
    Verify {
        /// Who is trusted; the public authorities of the Mozilla list if not given.
        ca: Option<Authorities>,
        /// The host name or IP address that the certificate must carry.
        server_name: String,
    },
}

/// Certificates of the authorities that are trusted to vouch for servers.
#[derive(Clone, Debug)]
pub struct Authorities(Arc<[CertificateDer<'static>]>);

impl Authorities {
    /// Reads them from a PEM file.
    pub fn from_pem_file(path: &Path) -> Result<Self, AskerError> {
        let complain = |why: String| AskerError::BadAuthority(format!("{}: {why}", path.display()));
        let pem = std::fs::read(path).map_err(|e| complain(e.to_string()))?;
        Self::from_pem(&pem).map_err(|e| match e {
            AskerError::BadAuthority(why) => complain(why),
            other => other,
        })
    }

    /// Reads them from PEM text; text without any is an error.
    pub fn from_pem(pem: &[u8]) -> Result<Self, AskerError> {
        let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem)
            .collect::<Result<_, _>>()
            .map_err(|e| AskerError::BadAuthority(format!("not a PEM certificate: {e}")))?;
        if certificates.is_empty() {
            return Err(AskerError::BadAuthority(
                "holds no PEM certificate".to_owned(),
            ));
        }
        let mut roots = RootCertStore::empty();
        for certificate in &certificates {
            let added = roots.add(certificate.clone());
            added
                .map_err(|e| AskerError::BadAuthority(format!("not a usable certificate: {e}")))?;
        }
        Ok(Self(certificates.into()))
    }

    /// The certificates, each as DER.
    pub(super) fn certificates(&self) -> impl Iterator<Item = &CertificateDer<'static>> {
        self.0.iter()
    }
}

/// What a TLS client needs; `None` when TLS is off.
pub(super) fn client_config(tls: &Tls) -> Result<Option<Arc<ClientConfig>>, AskerError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|e| AskerError::BadAuthority(e.to_string()))?;
    let config = match tls {
        Tls::Off => return Ok(None),
        Tls::Encrypt => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth(),
        Tls::Verify { ca, server_name } => {
            check_name(server_name)?;
            builder
                .with_root_certificates(roots(ca.as_ref()))
                .with_no_client_auth()
        }
    };
    Ok(Some(Arc::new(config)))
}

/// Fails for a name that no certificate can carry.
pub(super) fn check_name(server_name: &str) -> Result<(), AskerError> {
    match ServerName::try_from(server_name) {
        Ok(_) => Ok(()),
        Err(_) => Err(AskerError::BadServerName(server_name.to_owned())),
    }
}

/// The name to ask for: the one to verify, or the address (which is sent to nobody).
pub(super) fn server_name(tls: &Tls, target: &Target) -> String {
    match (tls, target) {
        (Tls::Verify { server_name, .. }, _) => server_name.clone(),
        (_, Target::Tcp(address)) => address.ip().to_string(),
        (_, Target::Unix(_)) => IpAddr::from([127, 0, 0, 1]).to_string(),
    }
}

fn roots(ca: Option<&Authorities>) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    match ca {
        Some(ca) => {
            roots.add_parsable_certificates(ca.certificates().cloned());
        }
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
    }
    roots
}

/// Accepts every certificate, but still wants the peer to hold the key of the one it showed.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

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
