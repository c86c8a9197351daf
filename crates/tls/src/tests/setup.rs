//! Tests of files, keys, names, and the hashes for channel binding.

use rcgen::{PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, SignatureAlgorithm};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use sha2::{Digest, Sha256, Sha384, Sha512};

use super::{
    Authority, Pair, believing,
    papers::{named, self_signed},
};
use crate::{
    Acceptor, AlpnProtocol, Authorities, Connector, SetupError, Tls, TlsIdentity, certificate,
};

fn refused(certificate: &str, key: &str) -> String {
    TlsIdentity::from_pem("[service.tls]", certificate.as_bytes(), key.as_bytes())
        .unwrap_err()
        .to_string()
}

#[test]
fn a_certificate_or_key_that_cannot_be_used_is_named() {
    let authority = Authority::new();
    let (one, other) = (authority.server("a.test"), authority.server("b.test"));
    assert_eq!(
        refused(&one.certificate, &other.key),
        "[service.tls] key: does not belong to the certificate"
    );
    assert_eq!(
        refused(&one.key, &one.key),
        "[service.tls] certificate: holds no PEM certificate"
    );
    assert_eq!(
        refused(&one.certificate, &one.certificate),
        "[service.tls] key: holds no PEM private key"
    );
    let encrypted = one.key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    assert!(refused(&one.certificate, &encrypted).contains("remove the passphrase"));
    let broken = one.certificate.replacen("-----\nM", "-----\nA", 1);
    assert!(refused(&broken, &one.key).starts_with("[service.tls] certificate: not usable"));
}

#[test]
fn files_are_read_and_those_that_are_not_there_are_named() {
    let authority = Authority::new();
    let paper = authority.server("db.test");
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let certificate = file("server.crt", &paper.certificate);
    let key = file("server.key", &paper.key);
    let ca = file("ca.crt", &authority.pem());
    let nowhere = directory.path().join("none.pem");
    let accept = |certificate, key, ca| Acceptor::from_pem_files(certificate, key, ca, false);
    assert!(
        !accept(&certificate, &key, None)
            .unwrap()
            .asks_certificates()
    );
    assert!(
        accept(&certificate, &key, Some(&ca))
            .unwrap()
            .asks_certificates()
    );
    let check = |result: Result<Acceptor, SetupError>, name: &str| {
        let words = result.err().unwrap().to_string();
        assert!(
            words.starts_with(&format!("[service.tls] {name}: /")),
            "{words}"
        );
        assert!(words.contains("none.pem: No such file"), "{words}");
    };
    check(accept(&nowhere, &key, None), "certificate");
    check(accept(&certificate, &nowhere, None), "key");
    check(accept(&certificate, &key, Some(&nowhere)), "client_ca");
    assert!(Authorities::from_pem(&std::fs::read(&ca).unwrap()).is_ok());
}

#[test]
fn a_name_that_no_certificate_can_carry_is_refused() {
    let verify = Tls::Verify {
        ca: None,
        fingerprints: Vec::new(),
        server_name: "no name".to_owned(),
        identity: None,
    };
    let refused = Connector::new(&verify, AlpnProtocol::Postgres).unwrap_err();
    assert!(refused.to_string().contains("\"no name\""));
}

#[test]
fn both_ends_know_the_hash_that_a_login_is_bound_to() {
    let check = |algorithm: &'static SignatureAlgorithm, hash: &dyn Fn(&[u8]) -> Vec<u8>| {
        let paper = self_signed(named("db.test"), false, algorithm);
        let der = CertificateDer::from_pem_slice(paper.certificate.as_bytes()).unwrap();
        let acceptor = Acceptor::new(&paper.identity(), None, false).unwrap();
        let mut pair = Pair::new(&acceptor, &believing(None));
        pair.shake_hands(usize::MAX).unwrap();
        let expected = Some(hash(&der)).filter(|hash| !hash.is_empty());
        assert_eq!(pair.server.end_point(), expected);
        assert_eq!(pair.client.end_point(), expected);
    };
    check(&PKCS_ECDSA_P256_SHA256, &|der| Sha256::digest(der).to_vec());
    check(&PKCS_ECDSA_P384_SHA384, &|der| Sha384::digest(der).to_vec());
    // Without a separate hash, PostgreSQL does not offer channel binding either.
    check(&PKCS_ED25519, &|_| Vec::new());
}

#[test]
fn the_hash_of_an_rsa_pss_signature_is_among_its_parameters() {
    let check = |pem: &[u8], hash: fn(&[u8]) -> Vec<u8>| {
        let der = CertificateDer::from_pem_slice(pem).unwrap();
        assert_eq!(certificate::end_point(&der), Some(hash(&der)));
    };
    check(include_bytes!("pss_sha512.pem"), |der| {
        Sha512::digest(der).to_vec()
    });
    check(include_bytes!("pss_sha1.pem"), |der| {
        Sha256::digest(der).to_vec()
    });
}
