//! Reads `[service.tls]`: the files must hold a certificate and the key that belongs to it.

use rustls::RootCertStore;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::plan::{PemFile, TlsPlan};
use super::problem::Problems;
use super::reader::Table;
use super::sources::Sources;

/// The settings; `None` when they cannot be used.
pub(super) fn read(
    table: &Table<'_>,
    sources: &Sources,
    problems: &mut Problems,
) -> Option<TlsPlan> {
    let required = table.flag("required", problems).unwrap_or(false);
    let certificate = needed(table, "certificate", sources, problems);
    let key = needed(table, "key", sources, problems);
    let client_ca = pem_file(table, "client_ca", sources, problems);
    if let Some(file) = &client_ca {
        check_authorities(file, table, problems);
    }
    let (certificate, key) = certificate.zip(key)?;
    check_pair(&certificate, &key, table, problems);
    Some(TlsPlan {
        certificate,
        key,
        client_ca,
        required,
    })
}

fn needed(
    table: &Table<'_>,
    key: &str,
    sources: &Sources,
    problems: &mut Problems,
) -> Option<PemFile> {
    if table.value(key).is_none() {
        let message = format!("[service.tls] has no `{key}`");
        let help = format!("add `{key} = \"…\"`: the path of a PEM file");
        problems.error(&table.place, "E_MISSING_KEY", message, help);
    }
    pem_file(table, key, sources, problems)
}

fn pem_file(
    table: &Table<'_>,
    key: &str,
    sources: &Sources,
    problems: &mut Problems,
) -> Option<PemFile> {
    let path = sources.path(table.text(key, problems)?);
    let place = table.value_place(key);
    let text = match key {
        "key" => sources.secret_text(&path, &place, problems),
        _ => sources.text(&path, &place, problems),
    };
    Some(PemFile { path, text: text? })
}

fn check_authorities(file: &PemFile, table: &Table<'_>, problems: &mut Problems) {
    let Some(certificates) = certificates(file, "client_ca", table, problems) else {
        return;
    };
    let mut roots = RootCertStore::empty();
    let added = certificates.into_iter().try_for_each(|one| roots.add(one));
    if let Err(error) = added {
        let help = "it must hold the certificates of authorities that sign clients' certificates";
        wrong(
            file,
            "client_ca",
            (&error.to_string(), help),
            table,
            problems,
        );
    }
}

fn check_pair(certificate: &PemFile, key: &PemFile, table: &Table<'_>, problems: &mut Problems) {
    let chain = certificates(certificate, "certificate", table, problems);
    let private = private_key(key, table, problems);
    let Some((chain, private)) = chain.zip(private) else {
        return;
    };
    // Not usable in itself, or not the one of this certificate.
    if let Err(error) = CertifiedKey::from_der(chain, private, &ring::default_provider()) {
        let message = match error {
            rustls::Error::InconsistentKeys(_) => {
                format!("is not the key of {}", certificate.path.display())
            }
            error => format!("cannot be used: {error}"),
        };
        let help = "give the key with which the certificate was asked for; the service's own \
                    certificate comes first in its file";
        wrong(key, "key", (&message, help), table, problems);
    }
}

fn certificates(
    file: &PemFile,
    key: &str,
    table: &Table<'_>,
    problems: &mut Problems,
) -> Option<Vec<CertificateDer<'static>>> {
    let bytes = file.text.expose().as_bytes();
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    let message = match read {
        Ok(certificates) if !certificates.is_empty() => return Some(certificates),
        Ok(_) => "holds no certificate".to_owned(),
        Err(error) => format!("is not PEM: {error}"),
    };
    let help = "it must hold lines from `-----BEGIN CERTIFICATE-----` on";
    wrong(file, key, (&message, help), table, problems);
    None
}

fn private_key(
    file: &PemFile,
    table: &Table<'_>,
    problems: &mut Problems,
) -> Option<PrivateKeyDer<'static>> {
    let text = file.text.expose();
    if let Ok(key) = PrivateKeyDer::from_pem_slice(text.as_bytes()) {
        return Some(key);
    }
    let found = if text.contains("ENCRYPTED") {
        let help = "nobody could type its passphrase: write it without, with `openssl pkey`";
        ("holds a key that is encrypted", help)
    } else {
        let help = "it must hold lines from `-----BEGIN PRIVATE KEY-----` on";
        ("holds no private key", help)
    };
    wrong(file, "key", found, table, problems);
    None
}

fn wrong(
    file: &PemFile,
    key: &str,
    (what, help): (&str, &str),
    table: &Table<'_>,
    problems: &mut Problems,
) {
    let message = format!("{} {what}", file.path.display());
    problems.error(&table.value_place(key), "E_FILE", message, help);
}
