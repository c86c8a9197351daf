//! Reads the names, hashes and validity of certificates. The trust in them is verified elsewhere.

use std::ops::RangeInclusive;

use rustls::pki_types::{CertificateDer, UnixTime};
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};
use x509_cert::{
    Certificate,
    der::{
        Decode, SliceReader, Tag, TagNumber, Tagged,
        asn1::{Any, ContextSpecific, ObjectIdentifier},
    },
    ext::pkix::{SubjectAltName, name::GeneralName},
    name::Name,
    spki::AlgorithmIdentifierOwned,
};

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const RSA_PSS: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.10");

/// Hash function of certificates and their signatures.
#[derive(Clone, Copy)]
enum Hash {
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

/// Hash functions by the object identifiers of signature algorithms and of their parameters. RFC
/// 5929 requires SHA-256 instead of MD5 and SHA-1.
const HASHES: [(&str, Hash); 17] = [
    ("1.2.840.113549.1.1.4", Hash::Sha256),
    ("1.2.840.113549.1.1.5", Hash::Sha256),
    ("1.2.840.113549.1.1.11", Hash::Sha256),
    ("1.2.840.113549.1.1.12", Hash::Sha384),
    ("1.2.840.113549.1.1.13", Hash::Sha512),
    ("1.2.840.113549.1.1.14", Hash::Sha224),
    ("1.2.840.10045.4.1", Hash::Sha256),
    ("1.2.840.10045.4.3.1", Hash::Sha224),
    ("1.2.840.10045.4.3.2", Hash::Sha256),
    ("1.2.840.10045.4.3.3", Hash::Sha384),
    ("1.2.840.10045.4.3.4", Hash::Sha512),
    ("1.2.840.10040.4.3", Hash::Sha256),
    ("1.3.14.3.2.26", Hash::Sha256),
    ("2.16.840.1.101.3.4.2.1", Hash::Sha256),
    ("2.16.840.1.101.3.4.2.2", Hash::Sha384),
    ("2.16.840.1.101.3.4.2.3", Hash::Sha512),
    ("2.16.840.1.101.3.4.2.4", Hash::Sha224),
];

/// Subject and issuer of a certificate, in the format of servers (`X509_NAME_oneline`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Names {
    /// The subject.
    pub subject: Vec<u8>,
    /// The issuer.
    pub issuer: Vec<u8>,
}

/// Returns the first common name of the subject, which PostgreSQL compares with the user name.
/// Returns `None` if there is none, or if it cannot be read unambiguously.
pub(super) fn common_name(der: &CertificateDer<'_>) -> Option<String> {
    let subject = parse(der)?.tbs_certificate.subject;
    let mut parts = subject.0.iter().flat_map(|part| part.0.iter());
    let name = parts.find(|part| part.oid == COMMON_NAME)?;
    text(&name.value)
}

/// Returns the subject and the issuer, as servers compare them with REQUIRE of an account.
pub(super) fn names(der: &CertificateDer<'_>) -> Option<Names> {
    let certificate = parse(der)?.tbs_certificate;
    Some(Names {
        subject: one_line(&certificate.subject),
        issuer: one_line(&certificate.issuer),
    })
}

/// Returns the DNS names of the subject, with `*.` for wildcards (RFC 5280 §4.2.1.6).
pub(super) fn dns_names(der: &CertificateDer<'_>) -> Vec<String> {
    let certificate = parse(der);
    let names = certificate.and_then(|certificate| {
        let found = certificate.tbs_certificate.get::<SubjectAltName>();
        found.ok().flatten().map(|(_, names)| names)
    });
    let all = names.iter().flat_map(|names| &names.0);
    all.filter_map(|name| match name {
        GeneralName::DnsName(name) => Some(name.to_string()),
        _ => None,
    })
    .collect()
}

/// Formats a name like OpenSSL's `X509_NAME_oneline` since 3.0: `/C=DE/O=Shop/CN=app`, with bytes
/// outside printable ASCII as hexadecimal digits.
fn one_line(name: &Name) -> Vec<u8> {
    let mut line = Vec::new();
    for parts in &name.0 {
        for (index, part) in parts.0.iter().enumerate() {
            line.push(if index == 0 { b'/' } else { b'+' });
            line.extend_from_slice(kind_of(part.oid).as_bytes());
            line.push(b'=');
            for byte in part.value.value() {
                match byte {
                    b'/' | b'+' => line.extend([b'\\', *byte]),
                    b' '..=b'~' => line.push(*byte),
                    _ => line.extend_from_slice(format!("\\x{byte:02X}").as_bytes()),
                }
            }
        }
    }
    line
}

/// Returns the short name of an attribute type, or its object identifier if the list does not
/// contain it.
fn kind_of(oid: ObjectIdentifier) -> String {
    let known = KINDS
        .iter()
        .find(|(known, _)| ObjectIdentifier::new(known) == Ok(oid));
    known.map_or_else(|| oid.to_string(), |(_, name)| (*name).to_owned())
}

/// OpenSSL's short names.
const KINDS: [(&str, &str); 21] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.4", "SN"),
    ("2.5.4.5", "serialNumber"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "street"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("2.5.4.12", "title"),
    ("2.5.4.13", "description"),
    ("2.5.4.15", "businessCategory"),
    ("2.5.4.17", "postalCode"),
    ("2.5.4.41", "name"),
    ("2.5.4.42", "GN"),
    ("2.5.4.43", "initials"),
    ("2.5.4.46", "dnQualifier"),
    ("2.5.4.65", "pseudonym"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("1.2.840.113549.1.9.1", "emailAddress"),
];

/// Hashes of the own certificate, by which clients detect a man in the middle.
#[derive(Debug)]
pub(super) struct Hashes {
    pub(super) end_point: Option<Vec<u8>>,
    pub(super) sha256: [u8; 32],
}

impl Hashes {
    pub(super) fn of(der: &CertificateDer<'_>) -> Self {
        Self {
            end_point: end_point(der),
            sha256: Sha256::digest(der).into(),
        }
    }
}

/// Returns the hash of a server's certificate for SCRAM channel binding (tls-server-end-point).
/// Returns `None` if RFC 5929 does not define it: for signatures without a separate hash (Ed25519).
///
/// "if the certificate's signatureAlgorithm uses a single hash function […] then use the hash
/// function associated with the certificate's signatureAlgorithm" (RFC 5929, 4.1).
pub(super) fn end_point(der: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let algorithm = parse(der)?.signature_algorithm;
    let hash = match algorithm.oid {
        RSA_PSS => pss_hash(algorithm.parameters.as_ref()?)?,
        oid => named(oid)?,
    };
    Some(match hash {
        Hash::Sha224 => Sha224::digest(der).to_vec(),
        Hash::Sha256 => Sha256::digest(der).to_vec(),
        Hash::Sha384 => Sha384::digest(der).to_vec(),
        Hash::Sha512 => Sha512::digest(der).to_vec(),
    })
}

/// Returns whether `now` is within the certificate's validity.
pub(super) fn is_valid_at(der: &CertificateDer<'_>, now: UnixTime) -> bool {
    validity(der).is_some_and(|validity| validity.contains(&now.as_secs()))
}

/// Returns the first and the last second of the certificate's validity, in Unix time.
pub(super) fn validity(der: &CertificateDer<'_>) -> Option<RangeInclusive<u64>> {
    let validity = parse(der)?.tbs_certificate.validity;
    let begins = validity.not_before.to_unix_duration().as_secs();
    let ends = validity.not_after.to_unix_duration().as_secs();
    Some(begins..=ends)
}

fn parse(der: &CertificateDer<'_>) -> Option<Certificate> {
    Certificate::from_der(der).ok()
}

/// Returns the string, if its type has an unambiguous encoding.
fn text(value: &Any) -> Option<String> {
    match value.tag() {
        Tag::Utf8String | Tag::PrintableString | Tag::Ia5String => {}
        Tag::TeletexString if value.value().is_ascii() => {}
        _ => return None,
    }
    let text = std::str::from_utf8(value.value()).ok()?;
    // A zero byte would make the name ambiguous: software in C reads only the part before it.
    (!text.contains('\0') && !text.is_empty()).then(|| text.to_owned())
}

fn named(oid: ObjectIdentifier) -> Option<Hash> {
    let mut hashes = HASHES.iter();
    hashes
        .find(|(name, _)| ObjectIdentifier::new(name) == Ok(oid))
        .map(|(_, hash)| *hash)
}

/// Returns the hash function of RSASSA-PSS parameters: `hashAlgorithm [0] HashAlgorithm DEFAULT
/// sha1` (RFC 4055, RSASSA-PSS-params).
fn pss_hash(parameters: &Any) -> Option<Hash> {
    let mut reader = SliceReader::new(parameters.value()).ok()?;
    let given =
        ContextSpecific::<AlgorithmIdentifierOwned>::decode_explicit(&mut reader, TagNumber::N0);
    match given.ok()? {
        Some(hash) => named(hash.value.oid),
        None => Some(Hash::Sha256),
    }
}
