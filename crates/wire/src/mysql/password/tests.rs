//! Proofs, checked against values that MariaDB 10.11 and MySQL 9 store and accept.

use super::rsa::{PrivateKey, PublicKey};
use super::*;

/// Key generated for these tests.
const KEY: &str = include_str!("tests/key.pem");

const NONCE: Nonce = Nonce(*b"abcdefghijklmnopqrst");

/// A row of MySQL 9, its random salt as hexadecimal digits.
const STORED_PA_SS: &str = "24412430304124775D583F3D715C3E082A7C234B4F01301B28713E\
    77357476692E7072705673694D452E574B5858536C6443414C5A5A31734E6D437544577567354178743737";

fn bytes(digits: &str) -> Vec<u8> {
    let pairs = digits.as_bytes().chunks(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    pairs.map(byte).collect()
}

#[test]
fn a_native_proof_fits_its_row_and_holds_the_key() {
    let stored = b"*10DFEB995F10E2398FDB8ABB727B568FB4197B30";
    let verifier = native::Verifier::read(stored).unwrap();
    let password = "pässwort".as_bytes();
    assert!(verifier == native::Verifier::of_password(password));
    let proof = native::Key::of_password(password).prove(&NONCE);
    let key = verifier.check(&NONCE, &proof).unwrap();
    let other = Nonce(*b"ABCDEFGHIJKLMNOPQRST");
    assert!(verifier.check(&other, &key.prove(&other)).is_some());
    assert!(verifier.check(&other, &proof).is_none());
    assert!(verifier.check(&NONCE, &proof[1..]).is_none());
    assert!(native::Verifier::read(&stored[1..]).is_none());
}

#[test]
fn proofs_are_those_that_servers_took() {
    let nonce = Nonce(*b"J.EQFL,6g*5lA>UpU8X4");
    let proof = native::Key::of_password("pässwort".as_bytes()).prove(&nonce);
    let taken = bytes("c4064e834bb0b59d03c8de0b4212f4bb55146bae");
    assert_eq!(proof.as_slice(), taken);
    let nonce = Nonce(*b"\x15m lS4'-O\x13+}(B\x11J\r7\x01\"");
    let proof = sha2::Key::of_password(b"pa ss").prove(&nonce);
    let taken = bytes("089df049dfc0d412974c15142da0135308f0fbc15e70ed2dcd943a40f950ed3e");
    assert_eq!(proof.as_slice(), taken);
    let nonce = bytes("d8a29e02ae2af1b38cadcee5ce729fcdfdc605284a348fc2a9280519f2690a54");
    let proof = ed25519::prove(b"geheim", nonce.as_slice());
    let taken = "6a35f009aef0d2796e0a702599b97663b0f20329beb5aa131b60fd71b1b7815c\
        f5e219db11bf882bf42d5af5d86f3827f9e7bdf4140b213266abd68f187b4603";
    assert_eq!(proof.as_slice(), bytes(taken));
}

#[test]
fn a_sha2_proof_holds_the_key() {
    let verifier = sha2::Verifier::of_password(b"pa ss");
    let proof = sha2::Key::of_password(b"pa ss").prove(&NONCE);
    let key = verifier.check(&NONCE, &proof).unwrap();
    let other = Nonce(*b"ABCDEFGHIJKLMNOPQRST");
    assert!(verifier.check(&other, &key.prove(&other)).is_some());
    let wrong = sha2::Key::of_password(b"pass").prove(&NONCE);
    assert!(verifier.check(&NONCE, &wrong).is_none());
}

#[test]
fn a_stored_hash_of_mysql_fits_its_password_only() {
    let stored = crypt::Stored::read(&bytes(STORED_PA_SS)).unwrap();
    assert!(stored.fits(b"pa ss"));
    assert!(!stored.fits(b"pa s") && !stored.fits(b""));
    let mut of_two = crypt::Stored::mock([7; 20], stored.rounds());
    assert!(!of_two.fits(b"pa ss"));
    of_two.accept(Some(stored));
    assert!(of_two.fits(b"pa ss") && !of_two.fits(b"pa s"));
    for cut in 0..STORED_PA_SS.len() / 2 {
        let beginning = &bytes(STORED_PA_SS)[..cut];
        assert!(crypt::Stored::read(beginning).is_none(), "{cut}");
    }
}

#[test]
fn passwords_of_all_lengths_are_hashed_as_elsewhere() {
    // Computed with `openssl passwd -5`, whose salts have up to 16 bytes.
    let salt = b"saltsaltsaltsalt";
    for (password, expect) in ELSEWHERE {
        let hash = crypt::hashed(password.as_bytes(), salt, 5000);
        assert_eq!(std::str::from_utf8(&hash), Ok(*expect), "{password}");
    }
}

const ELSEWHERE: &[(&str, &str)] = &[
    ("a", "mkeIR17jZH2efuGHyAyi7uqPDT/jX1lPmlgvEvcZX1A"),
    ("pass", "8ZaDgO6lJyLj9q9ZTU9.mVbyxgexIt9wC/9rmQPBTU8"),
    (
        "0123456789012345678901234567890",
        "2SWWMil9I5PCWr/JxNHTGv3NMDCtTtk4pBnIZWCgk28",
    ),
    (
        "01234567890123456789012345678901",
        "g6CvHWqiQQH3iQldBXpiIwdJMh5Oh4jahMgq3Qzscy1",
    ),
    (
        "012345678901234567890123456789012",
        "59d3MhW.6RxhSrvXpKu.A8l6X1pcTybckz0zVb9xrl3",
    ),
    (
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        "gOld0qEoDgBuTQJcwTqzI7y1lf5rm0/KP6DXsEy09tB",
    ),
];

#[test]
fn an_ed25519_proof_fits_a_row_of_mariadb() {
    let stored = b"9fKFyshMP2JvmJ9Q/htsweKqX84NkQZvItm/V6gvu+g";
    let verifier = ed25519::Verifier::read(stored).unwrap();
    assert_eq!(verifier, ed25519::Verifier::of_password(b"geheim"));
    let nonce = [5; 32];
    let proof = ed25519::prove(b"geheim", &nonce);
    assert!(verifier.check(&nonce, &proof));
    assert!(!verifier.check(&[6; 32], &proof));
    assert!(!verifier.check(&nonce, &ed25519::prove(b"geheim2", &nonce)));
    assert!(!verifier.check(&nonce, &proof[..63]));
    assert!(!verifier.check(&nonce, &[0xff; 64]));
}

/// The row was computed with Python's `hashlib` and `cryptography`.
#[test]
fn a_parsec_proof_fits_a_row() {
    let stored = b"P0:MDEyMzQ1Njc4OUFCQ0RFRkdI:k2eF6DUziiVOSCtnV+vUwoa331UZ1a2jMb/09BeHdlk";
    let verifier = parsec::Verifier::read(stored).unwrap();
    let derivation = verifier.derivation();
    assert_eq!(derivation.bytes()[..], *b"P\x000123456789ABCDEFGH");
    assert_eq!(
        verifier,
        parsec::Verifier::of_password(b"geheim", derivation)
    );
    let proof = parsec::prove(b"geheim", &derivation, &[5; 32], &[6; 32]);
    assert!(verifier.check(&[5; 32], &proof));
    assert!(!verifier.check(&[6; 32], &proof));
    assert!(!verifier.check(&[5; 32], &proof[..95]));
    let wrong = parsec::prove(b"geheim2", &derivation, &[5; 32], &[6; 32]);
    assert!(!verifier.check(&[5; 32], &wrong));
}

#[test]
fn a_parsec_derivation_that_is_not_known_or_would_take_long_is_refused() {
    let reported = |head: &[u8]| parsec::Derivation::read(&[head, &[7; 18]].concat());
    assert!(reported(b"P\x03").is_some());
    assert!(
        reported(b"P\x04").is_none() && reported(b"Q\x00").is_none() && reported(b"P").is_none()
    );
    for stored in ["", "P0", "P0:", "P4:MDEyMzQ1Njc4OUFCQ0RFRkdI:AA", "P/:x:x"] {
        assert!(
            parsec::Verifier::read(stored.as_bytes()).is_none(),
            "{stored}"
        );
    }
}

/// The digits were computed with Python's `hashlib`.
#[test]
fn who_can_check_a_password_vouches_for_a_certificate() {
    let stored = native::Verifier::of_password(b"geheim");
    let certificate = std::array::from_fn(|index| u8::try_from(index).unwrap());
    let words = certificate_proof(stored.bytes(), &NONCE, &certificate);
    let digits = b"35EFA71B2F851A1D3C97BCEE9267066B15E25D99065C1696190DBBFE7F845291";
    assert_eq!(words, [&[1][..], digits].concat());
}

#[test]
fn a_password_is_encrypted_for_one_nonce() {
    let ours = PrivateKey::from_pem(KEY).unwrap();
    let theirs = PublicKey::from_pem(ours.public_pem()).unwrap();
    let message = theirs.encrypt_password(b"pa ss", &NONCE, [1; 32]).unwrap();
    let password = ours.decrypt_password(&message, &NONCE, [2; 32]).unwrap();
    assert_eq!(password.as_slice(), b"pa ss");
    let other = Nonce(*b"ABCDEFGHIJKLMNOPQRST");
    let password = ours.decrypt_password(&message, &other, [2; 32]);
    assert!(password.is_none_or(|password| password.as_slice() != b"pa ss"));
    assert!(
        ours.decrypt_password(&message[1..], &NONCE, [2; 32])
            .is_none()
    );
    assert!(
        theirs
            .encrypt_password(&[b'x'; 300], &NONCE, [1; 32])
            .is_none()
    );
    assert!(PublicKey::from_pem(b"no key").is_none());
}

#[test]
fn a_nonce_has_no_byte_that_ends_a_string_or_parts_a_hash() {
    let mut random = [0; 20];
    for (index, byte) in random.iter_mut().enumerate() {
        *byte = [0, b'$', 0x80, 0xa4, 0xff][index % 5];
    }
    let nonce = Nonce::of_random(random);
    let bad = |byte: &u8| matches!(byte, 0 | b'$' | 0x80..);
    assert!(!nonce.bytes().iter().any(bad));
}
