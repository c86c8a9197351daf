//! Defines from where and how certificates come by ACME.

use std::path::PathBuf;

use super::{PemFile, Secret};
use crate::setting::{settings, words};

settings! {
    /// `[acme]`: certificates that are ordered and renewed by ACME (RFC 8555), for the names in
    /// `acme` of `[service.tls]`. The operator has agreed to the terms of the authority.
    pub struct AcmePlan {
        /// URL of the authority's directory, with `https`. Certificates and account are stored for
        /// each directory apart.
        directory: String = String::from("https://acme-v02.api.letsencrypt.org/directory");
        /// Address that the authority may write to.
        email: Option<String> = None;
        /// Way by which the authority verifies a name: `http-01` asks port 80 without TLS,
        /// `tls-alpn-01` port 443 in a handshake; `auto` begins with `http-01`, and changes after
        /// each failure. It begins with `tls-alpn-01` if an HTTP service listens on port 443 and
        /// none on port 80.
        challenge: AcmeChallenge = AcmeChallenge::Auto;
    } also {
        /// Directory for the account, the certificates and the state of orders.
        storage: PathBuf = PathBuf::from(STORAGE_DEFAULT);
        /// Authorities that sign the certificate of the directory's server, in place of the public
        /// ones.
        ca: Option<PemFile> = None;
        /// Account at the authority to which the new ACME account is bound.
        external_account: Option<ExternalAccount> = None;
    }
}

/// Default of `storage`.
pub(crate) const STORAGE_DEFAULT: &str = "/var/lib/evenkeel/acme";

/// Account at the authority, made by other means (RFC 8555 §7.3.4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExternalAccount {
    /// Identifier of the key.
    pub key_id: String,
    /// Key, base64url.
    pub key: Secret,
}

words! {
    /// Way by which the authority verifies a name.
    pub enum AcmeChallenge {
        /// The two others in turn.
        Auto = "auto",
        /// A request without TLS (RFC 8555 §8.3).
        Http = "http-01",
        /// A TLS handshake (RFC 8737).
        TlsAlpn = "tls-alpn-01",
    }
}
