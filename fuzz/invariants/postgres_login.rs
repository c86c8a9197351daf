//! Checks invariants for any messages during a login: none succeeds without the password.
//!
//! The first byte selects the method; the rest are messages of the peer.

use evenkeel_wire::postgres::Parsed;
use evenkeel_wire::postgres::backend::{self, Message};
use evenkeel_wire::postgres::frame::{PRE_AUTH_LENGTH_MAX, frame};
use evenkeel_wire::postgres::login::{
    ClientAuth, ClientAuthStep, Credential, Key, Method, Secret, ServerAuth, ServerAuthStep,
};
use evenkeel_wire::postgres::md5::Hash;
use evenkeel_wire::postgres::scram::{Keys, Verifier};

/// A password that no input of the fuzzer contains.
const PASSWORD: &[u8] = b"\xc3\x28 no fuzzer finds this: 7f3a91";

/// Panics if a login without the password succeeds.
pub(crate) fn check(bytes: &[u8]) {
    let Some((choice, messages)) = bytes.split_first() else {
        return;
    };
    accept(*choice, messages);
    join(*choice, messages);
    if let Some(verifier) = Verifier::parse(messages) {
        let _ = format!("{verifier:?}");
    }
    let _ = Hash::parse(messages);
}

fn accept(choice: u8, mut rest: &[u8]) {
    let verifier = || Verifier::of_password(PASSWORD, b"salt", 1);
    let method = match choice % 6 {
        0 => Method::Scram {
            verifier: verifier(),
            binding: None,
            nonce: [1; 18],
        },
        1 => Method::Scram {
            verifier: verifier(),
            binding: Some(b"certificate".to_vec()),
            nonce: [1; 18],
        },
        2 => Method::Scram {
            verifier: Verifier::mock(b"u", &[7; 32], 1),
            binding: None,
            nonce: [1; 18],
        },
        3 => Method::Md5 {
            hash: Hash::of_password(b"u", PASSWORD),
            salt: [1, 2, 3, 4],
        },
        4 => Method::Cleartext(Secret::Scram(verifier())),
        _ => Method::Cleartext(Secret::Md5(Hash::mock(b"u", &[7; 32]))),
    };
    let mut out = Vec::new();
    let mut login = ClientAuth::begin(b"u".to_vec(), method, &mut out);
    while let Parsed::Frame(message, length) = frame(rest, PRE_AUTH_LENGTH_MAX) {
        rest = &rest[length..];
        match login.message(message, &mut out) {
            ClientAuthStep::More(more) => login = more,
            ClientAuthStep::Refused(refusal) => {
                assert!(!refusal.to_string().is_empty());
                return;
            }
            ClientAuthStep::Done(_) => panic!("a stranger got in"),
            ClientAuthStep::Collected(_) => panic!("no method collects a password"),
        }
    }
}

fn join(choice: u8, mut rest: &[u8]) {
    let credential = match choice % 4 {
        0 => Credential::Nothing,
        1 => Credential::Key(Key::Md5(Hash::of_password(b"u", PASSWORD))),
        2 => Credential::Key(Key::Scram(Keys::of_password(PASSWORD, b"salt", 1))),
        _ => Credential::Key(Key::Scram(Keys::of_password(b"", b"", 1))),
    };
    let mut login = Box::new(ServerAuth::new(
        b"u".to_vec(),
        credential,
        None,
        false,
        [2; 18],
    ));
    let mut out = Vec::new();
    while let Parsed::Frame(message, length) = frame(rest, PRE_AUTH_LENGTH_MAX) {
        rest = &rest[length..];
        let Ok(Message::Authentication(request)) = backend::message(message) else {
            continue;
        };
        match login.message(request, &mut out) {
            ServerAuthStep::More(more) => login = more,
            ServerAuthStep::Done(joined) => {
                assert!(!joined.server_proved, "a stranger proved itself");
                return;
            }
            ServerAuthStep::Refused(_) => return,
        }
    }
    let shows = out.windows(PASSWORD.len()).any(|part| part == PASSWORD);
    assert!(!shows, "the password itself was sent");
}
