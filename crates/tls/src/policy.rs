//! Identifies the policy of client certificates under which a connection was accepted.

use sha2::{Digest, Sha256};

use super::Authorities;

/// Identity of a policy: the service, and the authorities whose certificates it demands. Equal
/// settings have the same one after a reload and in the next process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientPolicy {
    id: [u8; 32],
    demands_certificate: bool,
}

impl ClientPolicy {
    /// Returns the policy of a service's clients. `None`: certificates are not requested.
    pub(super) fn new(service: &str, client_ca: Option<&Authorities>) -> Self {
        let mut hash = Sha256::new();
        let mut add = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        };
        add(service.as_bytes());
        for certificate in client_ca.iter().flat_map(|ca| ca.certificates()) {
            add(certificate);
        }
        Self {
            id: hash.finalize().into(),
            demands_certificate: client_ca.is_some(),
        }
    }

    /// Returns whether clients must show a certificate.
    pub fn demands_certificate(&self) -> bool {
        self.demands_certificate
    }

    pub(super) fn id(&self) -> &[u8; 32] {
        &self.id
    }
}
