//! Holds a certificate with its private key: Evenkeel's identity towards clients or servers.

use std::{fmt, ops::RangeInclusive, path::Path, sync::Arc};

use rustls::{
    Error,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
    sign::{CertifiedKey, SingleCertAndKey},
};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::{SetupError, certificate, trust};

/// Chain of certificates, the own one first, and the key of the own one.
#[derive(Clone)]
pub struct TlsIdentity {
    certified: Arc<CertifiedKey>,
    pem: Arc<Pem>,
}

/// PEM texts of the identity, for libraries that parse them themselves.
pub struct Pem {
    /// Certificate chain.
    pub certificate: Vec<u8>,
    /// Private key.
    pub key: Zeroizing<Vec<u8>>,
}

impl TlsIdentity {
    /// Reads two PEM files; `section` of the configuration names them with `certificate` and `key`.
    pub fn from_pem_files(
        section: &str,
        certificate: &Path,
        key: &Path,
    ) -> Result<Self, SetupError> {
        let certificate_pem = read(section, "certificate", certificate)?;
        let key_pem = read(section, "key", key)?;
        Self::from_pem(section, &certificate_pem, &key_pem)
    }

    /// Parses PEM texts and checks that the key belongs to the certificate.
    pub fn from_pem(section: &str, certificate: &[u8], key_pem: &[u8]) -> Result<Self, SetupError> {
        let bad = |name: &str, why: String| SetupError::bad(format!("{section} {name}"), why);
        let chain = parse_chain(certificate).map_err(|why| bad("certificate", why))?;
        let key = parse_key(key_pem).map_err(|why| bad("key", why))?;
        let certified = CertifiedKey::from_der(chain, key, &trust::provider());
        let certified = certified.map_err(|error| match error {
            Error::InconsistentKeys(_) => bad("key", "does not belong to the certificate".into()),
            Error::InvalidCertificate(e) => bad("certificate", format!("not usable: {e}")),
            other => bad("key", format!("not usable: {other}")),
        })?;
        Ok(Self {
            certified: Arc::new(certified),
            pem: Arc::new(Pem {
                certificate: certificate.to_vec(),
                key: Zeroizing::new(key_pem.to_vec()),
            }),
        })
    }

    /// Returns the certificate chain and the key as PEM.
    pub fn pem(&self) -> &Pem {
        &self.pem
    }

    /// Returns the first and the last second in which the own certificate is valid, in Unix time.
    pub fn validity(&self) -> Option<RangeInclusive<u64>> {
        certificate::validity(self.certificate())
    }

    /// Returns whether the own certificate has this DNS name, in lower case, and not as a wildcard.
    pub fn has_name(&self, name: &str) -> bool {
        let names = certificate::dns_names(self.certificate());
        names.iter().any(|one| one.eq_ignore_ascii_case(name))
    }

    /// Returns the SHA-256 hash of the own certificate.
    pub fn sha256(&self) -> [u8; 32] {
        Sha256::digest(self.certificate()).into()
    }

    /// Returns the own certificate.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        // The chain is not empty: an empty one is rejected above.
        &self.certified.cert[0]
    }

    pub(super) fn certified(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.certified)
    }

    /// Returns the identity in the form that the TLS library uses, for either side.
    pub(super) fn resolver(&self) -> Arc<SingleCertAndKey> {
        Arc::new(SingleCertAndKey::from(self.certified.clone()))
    }
}

impl fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity(hidden)")
    }
}

fn read(section: &str, name: &str, path: &Path) -> Result<Vec<u8>, SetupError> {
    std::fs::read(path).map_err(|e| {
        let key = format!("{section} {name}");
        SetupError::bad(key, format!("{}: {e}", path.display()))
    })
}

pub(super) fn parse_chain(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(text)
        .collect::<Result<_, _>>()
        .map_err(|e| format!("not a PEM certificate: {e}"))?;
    match chain.is_empty() {
        true => Err("holds no PEM certificate".to_owned()),
        false => Ok(chain),
    }
}

pub(super) fn parse_key(text: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(text).map_err(|error| match error {
        pem::Error::NoItemsFound if is_encrypted(text) => {
            "is encrypted: remove the passphrase, and make the file readable by Evenkeel only"
                .to_owned()
        }
        pem::Error::NoItemsFound => "holds no PEM private key".to_owned(),
        other => format!("not a PEM private key: {other}"),
    })
}

fn is_encrypted(text: &[u8]) -> bool {
    String::from_utf8_lossy(text).contains("ENCRYPTED")
}
