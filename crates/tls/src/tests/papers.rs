//! Creates certificates for tests: authorities, and certificates that they sign.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair,
    SignatureAlgorithm, date_time_ymd,
};
use rustls::pki_types::{CertificateDer, pem::PemObject};

use crate::{Acceptor, Authorities, Fingerprint, TlsIdentity};

/// Number of authorities so far: each has a name of its own.
static AUTHORITIES: AtomicU64 = AtomicU64::new(0);

/// Signs certificates.
pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, as PEM.
pub(super) struct Paper {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl Authority {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let name = format!("authority {}", AUTHORITIES.fetch_add(1, Relaxed));
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap());
        Self(issuer.unwrap())
    }

    pub(super) fn trusted(&self) -> Authorities {
        Authorities::from_pem(self.0.pem().as_bytes()).unwrap()
    }

    pub(super) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(super) fn sign(&self, params: &CertificateParams) -> Paper {
        let key = KeyPair::generate().unwrap();
        let signed = params.signed_by(&key, &self.0).unwrap();
        Paper {
            certificate: signed.pem(),
            key: key.serialize_pem(),
        }
    }

    /// Returns the certificate of a server of that name.
    pub(super) fn server(&self, name: &str) -> Paper {
        self.sign(&named(name))
    }

    /// Returns the certificate of a client with that common name.
    pub(super) fn client(&self, common_name: &str) -> Paper {
        self.sign(&common(common_name))
    }

    /// Accepts clients with a certificate of `db.test`.
    pub(super) fn acceptor(&self, client_ca: Option<&Authorities>) -> Acceptor {
        Acceptor::new(&self.server("db.test").identity(), client_ca, true).unwrap()
    }
}

impl Paper {
    /// Returns the fingerprint of the certificate.
    pub(super) fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&CertificateDer::from_pem_slice(self.certificate.as_bytes()).unwrap())
    }

    pub(super) fn identity(&self) -> TlsIdentity {
        let pem = (self.certificate.as_bytes(), self.key.as_bytes());
        TlsIdentity::from_pem("[service.tls]", pem.0, pem.1).unwrap()
    }

    /// Returns authorities that contain only this certificate.
    pub(super) fn trusted(&self) -> Authorities {
        Authorities::from_pem(self.certificate.as_bytes()).unwrap()
    }
}

/// Parameters of a certificate for a DNS name or IP address.
pub(super) fn named(name: &str) -> CertificateParams {
    CertificateParams::new(vec![name.to_owned()]).unwrap()
}

/// Returns parameters of a certificate with a common name and no other name.
pub(super) fn common(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// Returns the parameters with a validity that has ended.
pub(super) fn expired(mut params: CertificateParams) -> CertificateParams {
    params.not_before = date_time_ymd(2001, 1, 1);
    params.not_after = date_time_ymd(2002, 1, 1);
    params
}

/// Returns a self-signed certificate, like those of `openssl req -x509` if `is_ca`.
pub(super) fn self_signed(
    mut params: CertificateParams,
    is_ca: bool,
    algorithm: &'static SignatureAlgorithm,
) -> Paper {
    if is_ca {
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    }
    let key = KeyPair::generate_for(algorithm).unwrap();
    let signed = params.self_signed(&key).unwrap();
    Paper {
        certificate: signed.pem(),
        key: key.serialize_pem(),
    }
}
