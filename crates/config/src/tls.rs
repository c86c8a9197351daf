//! Reads `[service.tls]`: the files must contain a certificate and its private key.

use std::fs;
use std::path::PathBuf;

use evenkeel_tls::{Authorities, SetupError, TlsIdentity};

use crate::plan::{HttpTlsPlan, NamedCertificate, OwnCertificate, PemFile, TlsPlan};
use crate::problem::Problems;
use crate::reader::{Table, wrong_type};
use crate::sources::Sources;
use crate::{acme, keys};

/// Reads the settings. Returns `None` if they are not usable.
pub(crate) fn read(
    table: &Table<'_>,
    sources: &Sources,
    problems: &mut Problems,
) -> Option<TlsPlan> {
    let required = table.flag("required", problems).unwrap_or(false);
    let own = own_certificate(table, sources, problems);
    let client_ca = authorities(table, "client_ca", sources, problems);
    let OwnCertificate { certificate, key } = own?;
    Some(TlsPlan {
        certificate,
        key,
        client_ca,
        required,
    })
}

/// Reads the settings of an HTTP service, which may have several certificates. Returns `None` if
/// they are not usable.
pub(crate) fn read_http(
    table: &Table<'_>,
    sources: &Sources,
    problems: &mut Problems,
) -> Option<HttpTlsPlan> {
    let names = acme::names(table, problems);
    let has_file = table.value("certificate").is_some() || table.value("key").is_some();
    let is_acme_only = !table.elements("acme").is_empty() && !has_file;
    let own = match is_acme_only {
        true => None,
        false => Some(own_certificate(table, sources, problems)?),
    };
    let client_ca = authorities(table, "client_ca", sources, problems);
    let own = own.map(|own| NamedCertificate {
        own,
        client_ca: None,
    });
    let mut certificates = Vec::from_iter(own);
    for value in table.elements("certificates") {
        let help = "write `{ certificate = \"…\", key = \"…\" }` or `{ directory = \"…\" }`";
        let Some(values) = value.get_ref().as_table() else {
            wrong_type("certificates", "tables", value, help, problems);
            continue;
        };
        let entry = Table::open(&keys::CERTIFICATE, values, value.span(), problems);
        let own = match entry.text("directory", problems) {
            Some(name) => in_directory(name, &entry, sources, problems),
            None => Vec::from_iter(own_certificate(&entry, sources, problems)),
        };
        let client_ca = authorities(&entry, "client_ca", sources, problems);
        certificates.extend(own.into_iter().map(|own| NamedCertificate {
            own,
            client_ca: client_ca.clone(),
        }));
    }
    Some(HttpTlsPlan {
        certificates,
        acme: names,
        client_ca,
    })
}

/// Reads all pairs `NAME.crt` and `NAME.key` of a directory, in the order of their names.
fn in_directory(
    name: &str,
    table: &Table<'_>,
    sources: &Sources,
    problems: &mut Problems,
) -> Vec<OwnCertificate> {
    let directory = sources.path(name);
    let span = table.value_span("directory");
    let entries = match fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) => {
            let message = format!("cannot read {}: {error}", directory.display());
            let help = "name a directory with files `NAME.crt` and `NAME.key`";
            problems.error(&span, "E_FILE", message, help);
            return Vec::new();
        }
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut paths: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "crt"))
        .collect();
    paths.sort();
    let mut pairs = Vec::new();
    for path in paths {
        let key_path = path.with_extension("key");
        let certificate = sources.text(&path, &span, problems);
        let key = sources.secret_text(&key_path, &span, problems);
        let Some((certificate, key)) = certificate.zip(key) else {
            continue;
        };
        let texts = [&certificate, &key].map(|text| text.expose().as_bytes());
        if let Err(error) = TlsIdentity::from_pem(table.title(), texts[0], texts[1]) {
            let message = format!("{}: {}", path.display(), why(&error));
            let help = "each `NAME.crt` must hold a certificate, and `NAME.key` its private key";
            problems.error(&span, "E_FILE", message, help);
        }
        pairs.push(OwnCertificate {
            certificate: PemFile {
                path,
                text: certificate,
            },
            key: PemFile {
                path: key_path,
                text: key,
            },
        });
    }
    pairs
}

/// Reads `certificate` and `key` of a table, which must match.
pub(crate) fn own_certificate(
    table: &Table<'_>,
    sources: &Sources,
    problems: &mut Problems,
) -> Option<OwnCertificate> {
    let certificate = needed(table, "certificate", sources, problems);
    let key = needed(table, "key", sources, problems);
    let (certificate, key) = certificate.zip(key)?;
    check_pair(&certificate, &key, table, problems);
    Some(OwnCertificate { certificate, key })
}

fn needed(
    table: &Table<'_>,
    key: &str,
    sources: &Sources,
    problems: &mut Problems,
) -> Option<PemFile> {
    if table.value(key).is_none() {
        let message = format!("{} has no `{key}`", table.title());
        let help = format!("add `{key} = \"…\"`: the path of a PEM file");
        problems.error(&table.span, "E_MISSING_KEY", message, help);
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
    let span = table.value_span(key);
    let text = match key {
        "key" => sources.secret_text(&path, &span, problems),
        _ => sources.text(&path, &span, problems),
    };
    Some(PemFile { path, text: text? })
}

/// Reads the certificates of authorities from the file that `key` names.
pub(crate) fn authorities(
    table: &Table<'_>,
    key: &str,
    sources: &Sources,
    problems: &mut Problems,
) -> Option<PemFile> {
    let file = pem_file(table, key, sources, problems)?;
    if let Err(error) = Authorities::from_pem(file.text.expose().as_bytes()) {
        let message = format!("{}: {}", file.path.display(), why(&error));
        let help = "it must contain certificates: `-----BEGIN CERTIFICATE-----` …";
        problems.error(&table.value_span(key), "E_FILE", message, help);
    }
    Some(file)
}

fn check_pair(certificate: &PemFile, key: &PemFile, table: &Table<'_>, problems: &mut Problems) {
    let texts = [certificate, key].map(|file| file.text.expose().as_bytes());
    let Err(error) = TlsIdentity::from_pem(table.title(), texts[0], texts[1]) else {
        return;
    };
    let of_key = matches!(&error, SetupError::BadFile { key, .. } if key.ends_with(" key"));
    let (name, file, help) = if of_key {
        let help = "it must contain the private key of the certificate, without a passphrase: \
                    `-----BEGIN PRIVATE KEY-----` …";
        ("key", key, help)
    } else {
        let help = "the first certificate in it must be our own: `-----BEGIN CERTIFICATE-----` …";
        ("certificate", certificate, help)
    };
    let message = format!("{}: {}", file.path.display(), why(&error));
    problems.error(&table.value_span(name), "E_FILE", message, help);
}

/// Returns the reason without the key, because the report is at the key's place.
fn why(error: &SetupError) -> String {
    match error {
        SetupError::BadFile { why, .. } => why.clone(),
        other => other.to_string(),
    }
}
