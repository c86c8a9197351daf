//! Exchanges of RFC 7677 and of a real server, and messages that must be rejected.

use super::*;

/// PostgreSQL 15: create user scramu password 'secret'
const STORED: &[u8] = b"SCRAM-SHA-256$4096:plIF0c3FC4DqOkhLRlTxGw==$izalEdCNpLAMy+afvUoyEAbmjW3D/\
sqIXHf8cw8U9kU=:rJVBDVZBuFzl7ST4t8biXblaiPJDC4JpawhbmkQmqsU=";

fn stored() -> Verifier {
    Verifier::parse(STORED).unwrap()
}

#[test]
fn a_stored_verifier_is_read_and_fits_its_password() {
    let verifier = stored();
    assert!(verifier.fits(b"secret"));
    assert!(!verifier.fits(b"Secret") && !verifier.fits(b""));
    assert!(verifier == Verifier::of_password(b"secret", &verifier.salt, 4096));
    for broken in [
        &STORED[1..],
        &STORED[..STORED.len() - 1],
        b"SCRAM-SHA-256$0:AAAA$AAAA:AAAA",
        b"SCRAM-SHA-256$4096:$:",
        b"md5ad16ab8cb9f9946be08171afa599199d",
        b"",
    ] {
        assert!(Verifier::parse(broken).is_none());
    }
}

#[test]
fn the_example_of_rfc_7677_is_computed() {
    let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
    let keys = Keys::of_password(b"pencil", &salt, 4096);
    let first = b"n=user,r=rOprNGfwEbeRWgbNEkqO";
    let challenge = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    let last = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    let signed: [&[u8]; 5] = [first, b",", challenge, b",", last];
    let mut proof = hmac(&sha256(keys.client.as_slice()), &signed);
    xor(&mut proof, keys.client.as_slice());
    let proof = STANDARD.encode(proof);
    assert_eq!(proof, "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=");
    let signature = STANDARD.encode(hmac(keys.server.as_slice(), &signed));
    assert_eq!(signature, "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
}

/// Runs a whole exchange between both sides.
fn exchange(
    verifier: Verifier,
    proof: Proof<'_>,
    bindings: (Option<&[u8]>, Option<&[u8]>),
) -> Result<Keys, ScramError> {
    let (ours, theirs) = bindings;
    let offer = Offer::new(verifier, ours.map(<[u8]>::to_vec), [1; 18]);
    let plus = offer.mechanisms().contains(&MECHANISM_PLUS);
    let start = ClientStart::new(theirs, plus, [2; 18]);
    let (challenge, message) = offer.first(start.mechanism(), &start.message())?;
    let (finish, message) = start.challenge(&message, proof)?;
    let (keys, message) = challenge.last(&message)?;
    finish.finish(&message)?;
    Ok(keys)
}

#[test]
fn keys_of_one_login_are_good_for_the_next() {
    let password = Proof::Password(b"secret");
    let keys = exchange(stored(), password, (None, None)).unwrap();
    let again = exchange(stored(), Proof::Keys(&keys), (None, None)).unwrap();
    assert!(keys == again);
    let other = Verifier::of_password(b"secret", b"another salt", 4096);
    let refused = exchange(other, Proof::Keys(&keys), (None, None));
    assert_eq!(refused.unwrap_err(), ScramError::WrongPassword);
}

#[test]
fn channels_are_bound_and_a_stripped_offer_is_noticed() {
    let password = Proof::Password(b"secret");
    let run = |ours, theirs| exchange(stored(), password, (ours, theirs)).err();
    assert_eq!(run(Some(b"cert"), Some(b"cert")), None);
    assert_eq!(
        run(Some(b"cert"), Some(b"other")),
        Some(ScramError::ChannelBinding)
    );
    assert_eq!(run(None, Some(b"cert")), None, "y,, and nothing offered");
    assert_eq!(
        run(Some(b"cert"), None),
        None,
        "n,,: the client cannot bind"
    );
    let offer = Offer::new(stored(), Some(b"cert".to_vec()), [1; 18]);
    let stripped = offer.first(MECHANISM, b"y,,n=,r=abc").err();
    assert_eq!(stripped, Some(ScramError::ChannelBinding));
}

#[test]
fn a_mock_has_the_same_salt_each_time_and_accepts_nothing() {
    let mock = |user: &[u8]| Verifier::mock(user, &[9; 32], ITERATIONS);
    assert!(mock(b"nobody").salt == mock(b"nobody").salt);
    assert!(mock(b"nobody").salt != mock(b"anybody").salt);
    assert_eq!(mock(b"nobody").salt.len(), 16);
    let refused = exchange(mock(b"nobody"), Proof::Password(b"secret"), (None, None));
    assert_eq!(refused.unwrap_err(), ScramError::WrongPassword);
    let mut known = Verifier::of_password(b"secret", b"salt", 10);
    known.mock = true;
    let refused = exchange(known, Proof::Password(b"secret"), (None, None));
    assert_eq!(
        refused.unwrap_err(),
        ScramError::WrongPassword,
        "even if it fitted"
    );
}

#[test]
fn wrong_messages_of_a_client_are_refused() {
    let offer = || Offer::new(stored(), None, [1; 18]);
    for (message, fault) in [
        ("", ScramError::Malformed),
        ("n,", ScramError::Malformed),
        ("n,,", ScramError::Malformed),
        ("n,,n=", ScramError::Malformed),
        ("n,,n=,r=", ScramError::Malformed),
        ("n,,r=a,n=", ScramError::Malformed),
        ("n,,n=,r=a b", ScramError::Malformed),
        ("n,a=admin,n=,r=abc", ScramError::Unsupported),
        ("n,,m=x,n=,r=abc", ScramError::Unsupported),
        (
            "p=tls-server-end-point,,n=,r=abc",
            ScramError::ChannelBinding,
        ),
        ("x,,n=,r=abc", ScramError::Unsupported),
    ] {
        let found = offer().first(MECHANISM, message.as_bytes()).err();
        assert_eq!(found, Some(fault), "{message}");
    }
    let plus = offer().first(MECHANISM_PLUS, b"n,,n=,r=abc").err();
    assert_eq!(plus, Some(ScramError::Unsupported), "was not offered");
    let proof = STANDARD.encode([0; 32]);
    let nonce = format!("abc{}", STANDARD.encode([1; 18]));
    for (last, fault) in [
        (String::new(), ScramError::Malformed),
        (format!("c=biws,r={nonce}"), ScramError::Malformed),
        (format!("c=biws,r={nonce},p=AAAA"), ScramError::Malformed),
        (
            format!("c=eSws,r={nonce},p={proof}"),
            ScramError::ChannelBinding,
        ),
        (format!("c=biws,r=abc,p={proof}"), ScramError::Nonce),
        (
            format!("c=biws,r={nonce},p={proof}"),
            ScramError::WrongPassword,
        ),
    ] {
        let (challenge, _) = offer().first(MECHANISM, b"n,,n=,r=abc").unwrap();
        assert_eq!(challenge.last(last.as_bytes()).err(), Some(fault), "{last}");
    }
}

#[test]
fn wrong_messages_of_a_server_are_refused() {
    let start = || ClientStart::new(None, false, [2; 18]);
    let own = STANDARD.encode([2; 18]);
    for (challenge, fault) in [
        (String::new(), ScramError::Malformed),
        ("r=other,s=AAAA,i=1".to_owned(), ScramError::Nonce),
        (format!("r={own},s=AAAA,i=1"), ScramError::Nonce),
        (format!("r={own}x,s=,i=1"), ScramError::Malformed),
        (format!("r={own}x,s=AAAA,i=0"), ScramError::Malformed),
        (
            format!("r={own}x,s=AAAA,i=4000000000"),
            ScramError::TooManyIterations,
        ),
    ] {
        let found = start().challenge(challenge.as_bytes(), Proof::Password(b"x"));
        assert_eq!(found.err(), Some(fault), "{challenge}");
    }
    for (last, fault) in [
        ("", ScramError::Malformed),
        ("v=AAAA", ScramError::Malformed),
        ("e=invalid-proof", ScramError::WrongPassword),
        (
            "v=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
            ScramError::WrongServer,
        ),
    ] {
        let challenge = format!("r={own}x,s=AAAA,i=1");
        let answered = start().challenge(challenge.as_bytes(), Proof::Password(b"x"));
        let (finish, _) = answered.unwrap();
        assert_eq!(finish.finish(last.as_bytes()).err(), Some(fault), "{last}");
    }
}

#[test]
fn passwords_are_prepared_as_the_server_does() {
    // RFC 4013 §3: a soft hyphen is mapped to nothing, ª to a, Ⅸ to IX.
    assert_eq!(prepare("I\u{ad}X".as_bytes()).as_slice(), b"IX");
    assert_eq!(prepare("\u{aa}".as_bytes()).as_slice(), b"a");
    assert_eq!(prepare("\u{2168}".as_bytes()).as_slice(), b"IX");
    // A password with prohibited characters is used unchanged.
    assert_eq!(prepare(b"\x07").as_slice(), b"\x07");
    assert_eq!(prepare(b"\xff\xfe").as_slice(), b"\xff\xfe");
}
