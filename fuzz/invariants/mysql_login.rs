//! Checks invariants for any packets of a client before its login, and of a server during a login.
//!
//! The first byte selects the authentication method; packets follow.

use evenkeel_wire::mysql::frame::{Frame, PRE_AUTH_LENGTH_MAX, frame};
use evenkeel_wire::mysql::login::{
    Channel, ClaimedIdentity, ClientAuth, ClientAuthStep, Credential, Hello, Method, Secret,
    ServerAuth, ServerAuthStep, ServerKey,
};
use evenkeel_wire::mysql::password::{CACHING_SHA2, Nonce, crypt, ed25519, native, parsec, sha2};
use evenkeel_wire::mysql::{Parsed, greeting, startup};

const NONCE: [u8; 20] = *b"abcdefghijklmnopqrst";

/// Panics if packets without the password complete a login, or violate an invariant.
pub(crate) fn check(bytes: &[u8]) {
    let Some((choice, rest)) = bytes.split_first() else {
        return;
    };
    accept(*choice, rest);
    join(*choice, rest);
}

/// Returns a method with a random password, which no corpus contains.
fn method(choice: u8) -> Method {
    let stored = crypt::Stored::mock([1; 20], 1000);
    match choice & 7 {
        0 => Method::Native(native::Verifier::mock([2; 20])),
        1 => Method::Ed25519(ed25519::Verifier::mock([3; 32]), [4; 32]),
        2 => Method::Clear(Secret::Sha2(stored)),
        3 => Method::Clear(Secret::Native(native::Verifier::mock([5; 20]))),
        4 => Method::Empty(CACHING_SHA2),
        5 => Method::Sha2 {
            fast: Some(sha2::Verifier::of_password(
                b"a password that no corpus knows",
            )),
            stored,
            public_key: Some(b"a key".to_vec()),
        },
        6 => Method::Parsec(parsec::Verifier::mock(b"anna", &[6; 32]), [7; 32]),
        _ => Method::Sha2 {
            fast: None,
            stored,
            public_key: None,
        },
    }
}

fn channel(choice: u8) -> Channel {
    match choice & 8 {
        0 => Channel::Plain,
        _ => Channel::Secure,
    }
}

fn accept(choice: u8, mut rest: &[u8]) {
    let mut next = || match frame(rest, PRE_AUTH_LENGTH_MAX) {
        Parsed::Frame(packet, length) => {
            rest = &rest[length..];
            Some(packet)
        }
        _ => None,
    };
    let Some(Ok(startup::First::Response(response))) =
        next().map(|packet| startup::first(packet.payload))
    else {
        return;
    };
    let claim = ClaimedIdentity::of_response(&response);
    let (nonce, mut out) = (Nonce::from_bytes(NONCE), Vec::new());
    let method = method(choice);
    let empty = matches!(method, Method::Empty(_));
    let mut step = ClientAuth::begin(claim, nonce, channel(choice), method, (2, &mut out));
    loop {
        match step {
            ClientAuthStep::More(accept) => match next() {
                Some(packet) => step = accept.message(packet, &mut out),
                None => return,
            },
            ClientAuthStep::Done(..) => {
                assert!(empty, "a login was accepted");
                return;
            }
            ClientAuthStep::Check(check) => {
                assert!(check.run(None, [0; 32]).is_err(), "a login was accepted");
                return;
            }
            ClientAuthStep::Collected(..) => panic!("no method collects a password"),
            ClientAuthStep::Refused(..) => return,
        }
    }
}

fn join(choice: u8, mut rest: &[u8]) {
    let Parsed::Frame(packet, length) = frame(rest, PRE_AUTH_LENGTH_MAX) else {
        return;
    };
    rest = &rest[length..];
    let Ok(greeting::First::Greeting(greeting)) = greeting::first(packet.payload) else {
        return;
    };
    let secret = b"the password that must not be seen";
    let credential = Credential::Password(zeroizing(secret));
    let how = (credential, channel(choice), ServerKey::Ask);
    let mut out = Vec::new();
    let begun = ServerAuth::begin(&greeting, &Hello::default(), how, [7; 32], (1, &mut out));
    let Ok(mut join) = begun else { return };
    while let Parsed::Frame(Frame { sequence, payload }, length) = frame(rest, PRE_AUTH_LENGTH_MAX)
    {
        rest = &rest[length..];
        match join.message(Frame { sequence, payload }, &mut out) {
            ServerAuthStep::More(next) => join = next,
            ServerAuthStep::Done(_) | ServerAuthStep::Refused(_) => break,
        }
    }
    let seen = out.windows(secret.len()).any(|window| window == secret);
    assert!(!seen || channel(choice) == Channel::Secure);
}

fn zeroizing(secret: &[u8]) -> zeroize::Zeroizing<Vec<u8>> {
    zeroize::Zeroizing::new(secret.to_vec())
}
