//! Tests of the trust between clients, servers and Evenkeel.

use rcgen::{DnType, DnValue, PKCS_ECDSA_P256_SHA256};

use super::{
    Authority, Pair, Paper, believing, connector,
    papers::{common, expired, named, self_signed},
    verifying,
};
use crate::{Acceptor, Authorities, ChannelError, Connector, Fingerprint, Tls};

/// Returns the errors of a failed handshake at the verifying and at the verified side.
fn refusal(acceptor: &Acceptor, connector: &Connector) -> (String, String) {
    let mut pair = Pair::new(acceptor, connector);
    let fault = pair.shake_hands(usize::MAX).unwrap_err();
    let mut alert = Vec::new();
    let received = match fault {
        ChannelError::WithServer(_) => {
            pair.client.take_output(&mut alert);
            pair.server.receive(&alert, &mut Vec::new()).unwrap_err()
        }
        _ => {
            pair.server.take_output(&mut alert);
            pair.client.receive(&alert, &mut Vec::new()).unwrap_err()
        }
    };
    (fault.to_string(), received.to_string())
}

/// Returns an acceptor that sends that certificate and requests none.
fn showing(paper: &Paper) -> Acceptor {
    Acceptor::new(&paper.identity(), None, false).unwrap()
}

fn trusting(ca: Authorities, server_name: &str) -> Connector {
    let server_name = server_name.to_owned();
    connector(&Tls::Verify {
        ca: Some(ca),
        fingerprints: Vec::new(),
        server_name,
        identity: None,
    })
}

#[track_caller]
fn assert_contains(words: &str, expected: &[&str]) {
    for part in expected {
        assert!(words.contains(part), "{words:?} lacks {part:?}");
    }
}

#[test]
fn a_server_of_the_right_name_is_believed() {
    let authority = Authority::new();
    for name in ["db.test", "10.1.2.3", "fd00::7"] {
        let acceptor = showing(&authority.server(name));
        let mut pair = Pair::new(&acceptor, &verifying(&authority, name));
        assert_eq!(pair.shake_hands(usize::MAX), Ok(()), "{name}");
    }
}

#[test]
fn a_server_of_another_name_is_refused() {
    let authority = Authority::new();
    let acceptor = showing(&authority.server("db1.test"));
    for name in ["db2.test", "10.1.2.3", "test"] {
        let (words, received) = refusal(&acceptor, &verifying(&authority, name));
        assert_contains(
            &words,
            &[
                "not valid for this name",
                "db1.test",
                "[service.server_tls] fingerprints = [\"sha256:",
            ],
        );
        assert_contains(&received, &["[service.tls] certificate", "sslrootcert"]);
    }
    let by_common_name = showing(&authority.client("db.test"));
    let (words, _) = refusal(&by_common_name, &verifying(&authority, "db.test"));
    assert_contains(
        &words,
        &["subjectAltName", "[service.server_tls] fingerprints"],
    );
}

#[test]
fn a_certificate_of_nobody_we_know_is_refused() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let own = self_signed(named("db.test"), false, &PKCS_ECDSA_P256_SHA256);
    for paper in [&stranger.server("db.test"), &own] {
        let (words, received) = refusal(&showing(paper), &verifying(&authority, "db.test"));
        assert_contains(&words, &["not trusted", "[service.server_tls] ca"]);
        assert_contains(&received, &["sslrootcert"]);
        let public = Tls::Verify {
            ca: None,
            fingerprints: Vec::new(),
            server_name: "db.test".to_owned(),
            identity: None,
        };
        let (words, _) = refusal(&showing(paper), &connector(&public));
        assert_contains(&words, &["not trusted", "[service.server_tls] ca"]);
        let mut any = Pair::new(&showing(paper), &believing(None));
        assert_eq!(any.shake_hands(usize::MAX), Ok(()));
    }
}

#[test]
fn a_certificate_whose_time_is_over_is_refused() {
    let authority = Authority::new();
    let old = authority.sign(&expired(named("db.test")));
    let (words, received) = refusal(&showing(&old), &verifying(&authority, "db.test"));
    assert_contains(&words, &["has expired", "on the server"]);
    assert_contains(&received, &["[service.tls] certificate as expired"]);
}

#[test]
fn a_self_signed_certificate_that_is_listed_is_believed_as_long_as_it_holds() {
    for is_ca in [true, false] {
        let own = self_signed(named("db.test"), is_ca, &PKCS_ECDSA_P256_SHA256);
        let acceptor = showing(&own);
        let mut pair = Pair::new(&acceptor, &trusting(own.trusted(), "db.test"));
        assert_eq!(pair.shake_hands(usize::MAX), Ok(()), "authority: {is_ca}");
        let (words, _) = refusal(&acceptor, &trusting(own.trusted(), "other.test"));
        assert_contains(&words, &["not valid for this name"]);
        let old = self_signed(expired(named("db.test")), is_ca, &PKCS_ECDSA_P256_SHA256);
        let (words, _) = refusal(&showing(&old), &trusting(old.trusted(), "db.test"));
        assert_contains(&words, &["has expired"]);
    }
}

#[test]
fn a_fingerprint_accepts_exactly_its_certificate() {
    let own = self_signed(named("db.test"), false, &PKCS_ECDSA_P256_SHA256);
    let pinned = |fingerprint: Fingerprint, ca| {
        connector(&Tls::Verify {
            ca,
            fingerprints: vec![fingerprint],
            server_name: "other.test".to_owned(),
            identity: None,
        })
    };
    let mut pair = Pair::new(&showing(&own), &pinned(own.fingerprint(), None));
    assert_eq!(pair.shake_hands(usize::MAX), Ok(()));
    let old = self_signed(expired(named("db.test")), true, &PKCS_ECDSA_P256_SHA256);
    let mut pair = Pair::new(&showing(&old), &pinned(old.fingerprint(), None));
    assert_eq!(pair.shake_hands(usize::MAX), Ok(()));
    let (words, _) = refusal(&showing(&old), &pinned(own.fingerprint(), None));
    let missing = format!("add \"{}\"", old.fingerprint());
    assert_contains(
        &words,
        &["not one of [service.server_tls] fingerprints", &missing],
    );
    // With `ca`, certificates of that authority are accepted too.
    let authority = Authority::new();
    let signed = authority.server("other.test");
    let (words, _) = refusal(&showing(&signed), &pinned(own.fingerprint(), None));
    assert_contains(&words, &["not one of [service.server_tls] fingerprints"]);
    let both = pinned(own.fingerprint(), Some(authority.trusted()));
    for paper in [&signed, &own] {
        let mut pair = Pair::new(&showing(paper), &both);
        assert_eq!(pair.shake_hands(usize::MAX), Ok(()));
    }
}

#[test]
fn the_message_names_the_fingerprint_that_would_accept_the_certificate() {
    let authority = Authority::new();
    let own = self_signed(named("db.test"), false, &PKCS_ECDSA_P256_SHA256);
    let (words, _) = refusal(&showing(&own), &verifying(&authority, "db.test"));
    let line = format!("fingerprints = [\"{}\"]", own.fingerprint());
    assert_contains(&words, &["UnknownIssuer", &line]);
}

#[test]
fn a_client_may_show_who_it_is() {
    let authority = Authority::new();
    let acceptor = authority.acceptor(Some(&authority.trusted()));
    assert!(acceptor.asks_certificates() && acceptor.is_required());
    let name = |paper: Option<&Paper>| {
        let mut pair = Pair::new(&acceptor, &believing(paper));
        pair.shake_hands(usize::MAX).unwrap();
        let names = pair.server.client_certificate_names();
        assert_eq!(names.is_some(), paper.is_some());
        assert!(pair.client.client_certificate_names().is_none());
        assert!(pair.client.client_name().is_none());
        pair.server.client_name()
    };
    let check = |given: &str| assert_eq!(name(Some(&authority.client(given))).unwrap(), given);
    check("alice");
    check("Zoë O'Neil");
    assert_eq!(name(None), None);
    assert_eq!(
        name(Some(&authority.server("no.name"))).as_deref(),
        Some("rcgen self signed cert")
    );
}

/// The expected text is the output of `openssl` 3 for such names, as MySQL compares them.
#[test]
fn names_are_written_as_servers_compare_them() {
    let authority = Authority::new();
    let acceptor = authority.acceptor(Some(&authority.trusted()));
    let mut params = common("Zo\u{eb}/A+B");
    params
        .distinguished_name
        .push(DnType::OrganizationName, "Shop, Inc.");
    let own = DnType::CustomDnType(vec![1, 2, 3, 4]);
    params.distinguished_name.push(own, "x");
    let paper = authority.sign(&params);
    let mut pair = Pair::new(&acceptor, &believing(Some(&paper)));
    pair.shake_hands(usize::MAX).unwrap();
    let names = pair.server.client_certificate_names().unwrap();
    let subject = r"/CN=Zo\xC3\xAB\/A\+B/O=Shop, Inc./1.2.3.4=x";
    assert_eq!(String::from_utf8_lossy(&names.subject), subject);
    assert!(names.issuer.starts_with(b"/CN="));
}

#[test]
fn a_name_that_could_be_read_in_two_ways_is_none() {
    let authority = Authority::new();
    let acceptor = authority.acceptor(Some(&authority.trusted()));
    let name = |params: &rcgen::CertificateParams| {
        let paper = authority.sign(params);
        let mut pair = Pair::new(&acceptor, &believing(Some(&paper)));
        pair.shake_hands(usize::MAX).unwrap();
        pair.server.client_name()
    };
    assert_eq!(name(&common("postgres\0.example.org")), None);
    let mut wide = common("unused");
    wide.distinguished_name = rcgen::DistinguishedName::new();
    assert_eq!(name(&wide), None);
    let bmp = rcgen::string::BmpString::try_from("alice").unwrap();
    wide.distinguished_name
        .push(DnType::CommonName, DnValue::BmpString(bmp));
    assert_eq!(name(&wide), None);
}

#[test]
fn a_client_with_a_wrong_certificate_is_refused() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let acceptor = authority.acceptor(Some(&authority.trusted()));
    let of_stranger = believing(Some(&stranger.client("alice")));
    let (words, received) = refusal(&acceptor, &of_stranger);
    assert_contains(&words, &["[service.tls] client_ca"]);
    assert_contains(&received, &["requires a client certificate"]);
    let old = authority.sign(&expired(common("alice")));
    let (words, _) = refusal(&acceptor, &believing(Some(&old)));
    assert_contains(&words, &["client certificate has expired"]);
}

#[test]
fn who_is_not_asked_shows_nothing() {
    let authority = Authority::new();
    let alice = believing(Some(&authority.client("alice")));
    let mut pair = Pair::new(&authority.acceptor(None), &alice);
    pair.shake_hands(usize::MAX).unwrap();
    assert_eq!(pair.server.client_name(), None);
    assert_eq!(pair.server.client_certificate_names(), None);
}
