//! TLS failures in plain words: what was seen, whose fault it is where that is known, what to set.

use rustls::{AlertDescription, CertificateError, Error};

/// What to do about a failure between us and a server.
pub(crate) fn with_server(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(certificate) => servers_certificate(error, certificate),
        Error::InvalidMessage(_) => format!(
            "the answer is not TLS ({error}): set [service.server_tls] mode = \"off\" if the \
             server speaks plaintext"
        ),
        Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::BadCertificate
            | AlertDescription::UnknownCA
            | AlertDescription::DecryptError
            | AlertDescription::AccessDenied,
        ) => format!("the server wants a certificate of ours, or another one ({error})"),
        Error::PeerIncompatible(_) | Error::AlertReceived(AlertDescription::ProtocolVersion) => {
            format!("no TLS version or cipher in common ({error}): the server needs TLS 1.2 or 1.3")
        }
        other => format!("TLS failed: {other}"),
    }
}

fn servers_certificate(error: &Error, certificate: &CertificateError) -> String {
    match certificate {
        CertificateError::NotValidForNameContext { presented, .. } if presented.is_empty() => {
            format!(
                "certificate without a name ({error}): give it a subjectAltName (its CN does not \
                 count), or set [service.server_tls] mode = \"encrypt\""
            )
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!(
                "certificate of another server ({error}): use a name it carries, or set \
                 [service.server_tls] mode = \"encrypt\""
            )
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("certificate has expired ({error}): renew it on the server")
        }
        _ => format!(
            "certificate not trusted ({error}): set [service.server_tls] ca = \"…\" or \
             mode = \"encrypt\""
        ),
    }
}

/// What to do about a failure between a client and us.
pub(crate) fn with_client(error: &Error) -> String {
    match error {
        Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => format!("the client's certificate has expired ({error})"),
        Error::InvalidCertificate(_) => {
            format!("no authority of [service.tls] client_ca vouches for the client ({error})")
        }
        Error::InvalidMessage(_) => format!("what the client sent is not TLS ({error})"),
        Error::NoApplicationProtocol => {
            "by ALPN the client asks for another protocol than \"postgresql\"".to_owned()
        }
        Error::AlertReceived(AlertDescription::CertificateExpired) => {
            format!("the client says that [service.tls] certificate has expired ({error})")
        }
        Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::DecryptError
            | AlertDescription::UnsupportedCertificate,
        ) => format!(
            "the client does not trust [service.tls] certificate ({error}): give it the \
             authority's certificate (sslrootcert), and use a name that the certificate carries"
        ),
        Error::PeerIncompatible(_) | Error::AlertReceived(AlertDescription::ProtocolVersion) => {
            format!("no TLS version or cipher in common ({error}): the client needs TLS 1.2 or 1.3")
        }
        other => format!("TLS with the client failed: {other}"),
    }
}
