//! Status of certificates that come by ACME.

use serde::{Deserialize, Serialize};

/// Certificates that come by ACME.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AcmeStatus {
    /// True if this process orders certificates; false while another one does, or none can.
    pub is_owner: bool,
    /// One for each name.
    pub certificates: Vec<CertificateStatus>,
}

/// Certificate of a name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CertificateStatus {
    /// The name.
    pub name: String,
    /// Time until which the certificate is valid. `None`: there is none yet.
    pub expires_at_unix_ms: Option<u64>,
    /// Time from which on the next certificate is ordered.
    pub next_order_at_unix_ms: u64,
    /// Failed orders since the last certificate.
    pub failures: u32,
    /// Reason of the last failure, if there was one since.
    pub error: Option<String>,
}
