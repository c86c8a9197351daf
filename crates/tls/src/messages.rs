//! Describes TLS failures in plain words: the observation, its cause if known, and the setting to
//! change.

use rustls::{AlertDescription, CertificateError, Error};

use super::{Fingerprint, trust::UntrustedCertificate};

/// Message and advice where TLS is set, and a server has none.
pub const NO_TLS: &str = "the server does not support TLS: turn it on there (PostgreSQL: ssl = on; \
    MySQL and MariaDB: ssl_cert and ssl_key), or set [service.server_tls] mode = \"off\"; then \
    everyone on the network between can read and change the data";

/// Place of the settings of TLS to servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SettingsPlace {
    /// `[service.server_tls]` of the file, which all messages of this module name.
    #[default]
    Service,
    /// `[cluster.server_tls]` of the file.
    Cluster,
    /// Flags of `evenkeel run`.
    Flags,
}

/// Settings as the messages name them, and the flags that stand for them.
const FLAGS: [(&str, &str); 6] = [
    ("[service.server_tls] mode = \"off\"", "--server-tls off"),
    ("[service.server_tls] mode", "--server-tls"),
    ("[service.server_tls] ca = \"…\"", "--server-ca FILE"),
    ("[service.server_tls] ca", "--server-ca"),
    ("[service.server_tls] fingerprints", "--server-fingerprint"),
    ("--server-fingerprint = [\"", "--server-fingerprint \""),
];

impl SettingsPlace {
    /// Returns a message about a server with the names that the settings have in this place.
    #[must_use]
    pub fn name_in(self, message: &str) -> String {
        match self {
            Self::Service => message.to_owned(),
            Self::Cluster => message.replace("[service.server_tls]", "[cluster.server_tls]"),
            Self::Flags => {
                let named = FLAGS.iter().fold(message.to_owned(), |text, (key, flag)| {
                    text.replace(key, flag)
                });
                named.replace("\"]", "\"")
            }
        }
    }
}

/// Returns the message and advice for a failure towards a server.
pub fn with_server(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(certificate) => servers_certificate(error, certificate),
        Error::InvalidMessage(_) => format!(
            "the server's response is not TLS ({error}): set [service.server_tls] mode = \"off\" \
             if the server does not use TLS"
        ),
        Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::DecryptError
            | AlertDescription::AccessDenied,
        ) => format!("the server requires a client certificate, or rejected ours ({error})"),
        Error::PeerIncompatible(_) | Error::AlertReceived(AlertDescription::ProtocolVersion) => {
            format!(
                "no common TLS version or cipher ({error}): the server must support TLS 1.2 or \
                 1.3"
            )
        }
        other => format!("TLS failed: {other}"),
    }
}

/// Returns the fingerprint of a server's certificate that was not accepted, if accepting it is a
/// choice.
pub fn untrusted_fingerprint(error: &Error) -> Option<Fingerprint> {
    untrusted(error).map(|untrusted| untrusted.fingerprint)
}

fn untrusted(error: &Error) -> Option<&UntrustedCertificate> {
    match error {
        Error::InvalidCertificate(CertificateError::Other(other)) => other.0.downcast_ref(),
        _ => None,
    }
}

fn servers_certificate(error: &Error, certificate: &CertificateError) -> String {
    let Some(UntrustedCertificate {
        cause,
        fingerprint,
        is_pinned,
    }) = untrusted(error)
    else {
        return match certificate {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                format!("server certificate has expired ({error}): renew it on the server")
            }
            _ => format!("server certificate is not usable ({error})"),
        };
    };
    if *is_pinned {
        return format!(
            "server certificate is not one of [service.server_tls] fingerprints: if the server has \
             a new certificate, add \"{fingerprint}\""
        );
    }
    let error = match cause {
        // The text of this variant names the types around it.
        CertificateError::Other(inner) => format!("invalid peer certificate: {inner}"),
        cause => Error::InvalidCertificate(cause.clone()).to_string(),
    };
    let exactly = format!(
        "accept exactly this certificate: [service.server_tls] fingerprints = [\"{fingerprint}\"]"
    );
    match cause {
        CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => {
            format!(
                "server certificate has no name ({error}): add a subjectAltName (its CN is not \
                 used), or {exactly}"
            )
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!(
                "server certificate is not valid for this name ({error}): use a name that it \
                 contains, or {exactly}"
            )
        }
        _ => format!(
            "server certificate is not trusted ({error}): set [service.server_tls] ca = \"…\", or \
             {exactly}"
        ),
    }
}

/// Returns the message and advice for a failure towards a client.
pub(crate) fn with_client(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => format!("client certificate has expired ({error})"),
        Error::InvalidCertificate(_) => {
            format!(
                "client certificate is not signed by an authority in [service.tls] client_ca \
                 ({error})"
            )
        }
        Error::InvalidMessage(_) => format!("the client's data is not TLS ({error})"),
        Error::NoApplicationProtocol => {
            "the client requested an ALPN protocol other than \"postgresql\"".to_owned()
        }
        Error::AlertReceived(AlertDescription::CertificateExpired) => {
            format!("the client rejected [service.tls] certificate as expired ({error})")
        }
        Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::DecryptError
            | AlertDescription::UnsupportedCertificate,
        ) => format!(
            "the client does not trust [service.tls] certificate ({error}): give the client the CA \
             certificate (sslrootcert), and connect to a name that the certificate contains"
        ),
        Error::PeerIncompatible(_) | Error::AlertReceived(AlertDescription::ProtocolVersion) => {
            format!(
                "no common TLS version or cipher ({error}): the client must support TLS 1.2 or \
                 1.3"
            )
        }
        other => format!("TLS error on client connection: {other}"),
    }
}
