//! Logins of both sides: captured from PostgreSQL 15, and against each other.

use zeroize::Zeroizing;

use super::*;
use crate::postgres::backend::{self, Authentication, Message};
use crate::postgres::frame::{self, Frame};
use crate::postgres::scram::Verifier;
use crate::postgres::{Parsed, build};

const SALT: [u8; 4] = [1, 2, 3, 4];

/// Returns the first message in `bytes`, and removes it from them.
fn next<'a>(bytes: &mut &'a [u8]) -> Option<Frame<'a>> {
    match frame::frame(bytes, frame::PRE_AUTH_LENGTH_MAX) {
        Parsed::Frame(frame, length) => {
            *bytes = &bytes[length..];
            Some(frame)
        }
        _ => None,
    }
}

/// Runs both sides against each other.
fn run(
    method: Method,
    credential: Credential,
    theirs: Option<Vec<u8>>,
) -> Result<(Authenticated, ServerAuthResult), AuthFailure> {
    let mut to_client = Vec::new();
    let mut accept = ClientAuth::begin(b"u".to_vec(), method, &mut to_client);
    let mut join = Box::new(ServerAuth::new(
        b"u".to_vec(),
        credential,
        theirs,
        true,
        [2; 18],
    ));
    loop {
        let mut to_server = Vec::new();
        let request = std::mem::take(&mut to_client);
        join = match join.message(authentication(&request), &mut to_server) {
            ServerAuthStep::More(join) => join,
            ServerAuthStep::Refused(refusal) => return Err(refusal),
            ServerAuthStep::Done(_) => panic!("too early"),
        };
        let frame = next(&mut to_server.as_slice()).unwrap();
        match accept.message(frame, &mut to_client) {
            ClientAuthStep::More(more) => accept = more,
            ClientAuthStep::Refused(refusal) => return Err(refusal),
            ClientAuthStep::Collected(_) => panic!("no method here collects a password"),
            ClientAuthStep::Done(client) => {
                build::authentication_ok(&mut to_client);
                return last_step(join, &to_client).map(|joined| (client, joined));
            }
        }
    }
}

fn last_step(join: Box<ServerAuth>, mut bytes: &[u8]) -> Result<ServerAuthResult, AuthFailure> {
    let mut join = join;
    while let Some(frame) = next(&mut bytes) {
        let Ok(Message::Authentication(request)) = backend::message(frame) else {
            panic!("{frame:?}")
        };
        join = match join.message(request, &mut Vec::new()) {
            ServerAuthStep::More(join) => join,
            ServerAuthStep::Done(joined) => return Ok(joined),
            ServerAuthStep::Refused(refusal) => return Err(refusal),
        };
    }
    panic!("no end")
}

fn authentication(bytes: &[u8]) -> Authentication<'_> {
    let frame = next(&mut &*bytes).unwrap();
    match backend::message(frame) {
        Ok(Message::Authentication(request)) => request,
        other => panic!("{other:?}"),
    }
}

fn password(text: &[u8]) -> Credential {
    Credential::Password(Zeroizing::new(text.to_vec()))
}

fn scram(binding: Option<&[u8]>) -> Method {
    Method::Scram {
        verifier: Verifier::of_password(b"p", b"salt", 10),
        binding: binding.map(<[u8]>::to_vec),
        nonce: [1; 18],
    }
}

#[test]
fn every_method_lets_the_right_password_in() {
    let hash = || md5::Hash::of_password(b"u", b"p");
    let verifier = Verifier::of_password(b"p", b"salt", 10);
    let own = || Secret::Password(Zeroizing::new(b"p".to_vec()));
    for (method, proved) in [
        (scram(None), true),
        (
            Method::Md5 {
                hash: hash(),
                salt: SALT,
            },
            false,
        ),
        (Method::Cleartext(Secret::Md5(hash())), false),
        (Method::Cleartext(Secret::Scram(verifier)), false),
        (Method::Cleartext(own()), false),
    ] {
        let (client, joined) = run(method, password(b"p"), None).unwrap();
        assert_eq!(client.user(), b"u");
        assert_eq!(joined.server_proved, proved);
    }
}

#[test]
fn what_a_login_left_logs_in_again_without_the_password() {
    let (client, _) = run(scram(None), password(b"p"), None).unwrap();
    assert!(matches!(
        client.credential(),
        Credential::Key(Key::Scram(_))
    ));
    let (_, joined) = run(scram(None), client.credential().clone(), None).unwrap();
    assert!(joined.server_proved);
    // Also with channel binding on both legs, each by its own certificate.
    let (bound, _) = run(
        scram(Some(b"ours")),
        client.credential().clone(),
        Some(b"ours".to_vec()),
    )
    .unwrap();
    run(
        scram(Some(b"db")),
        bound.credential().clone(),
        Some(b"db".to_vec()),
    )
    .unwrap();
    let md5 = || Method::Md5 {
        hash: md5::Hash::of_password(b"u", b"p"),
        salt: SALT,
    };
    let (client, _) = run(md5(), password(b"p"), None).unwrap();
    run(md5(), client.credential().clone(), None).unwrap();
    let refused = run(scram(None), client.credential().clone(), None);
    assert_eq!(refused.unwrap_err(), AuthFailure::Credential);
}

#[test]
fn a_wrong_password_and_an_unknown_user_are_told_the_same() {
    let hash = md5::Hash::of_password(b"u", b"p");
    let mock = || Verifier::mock(b"u", &[7; 32], 10);
    for method in [
        scram(None),
        Method::Scram {
            verifier: mock(),
            binding: None,
            nonce: [1; 18],
        },
        Method::Md5 {
            hash: hash.clone(),
            salt: SALT,
        },
        Method::Md5 {
            hash: md5::Hash::mock(b"u", &[7; 32]),
            salt: SALT,
        },
        Method::Cleartext(Secret::Md5(hash)),
        Method::Cleartext(Secret::Scram(mock())),
        Method::Cleartext(Secret::Password(Zeroizing::new(b"p".to_vec()))),
    ] {
        let refusal = run(method, password(b"q"), None).unwrap_err();
        assert_eq!(refusal.sqlstate(), SqlState::INVALID_PASSWORD, "{refusal}");
    }
}

#[test]
fn messages_out_of_place_end_the_login() {
    let refused = |method, frame: Frame<'_>| {
        let accept = ClientAuth::begin(b"u".to_vec(), method, &mut Vec::new());
        match accept.message(frame, &mut Vec::new()) {
            ClientAuthStep::Refused(refusal) => refusal,
            other => panic!("{other:?}"),
        }
    };
    let md5 = || Method::Md5 {
        hash: md5::Hash::of_password(b"u", b"p"),
        salt: SALT,
    };
    let frame = |tag, body| Frame { tag, body };
    assert_eq!(
        refused(md5(), frame(b'Q', b"SELECT 1\0")),
        AuthFailure::Protocol
    );
    assert_eq!(
        refused(md5(), frame(b'p', b"no end")),
        AuthFailure::Protocol
    );
    assert_eq!(
        refused(md5(), frame(b'p', b"\0")),
        AuthFailure::EmptyPassword
    );
    assert_eq!(
        refused(scram(None), frame(b'p', b"SCRAM-SHA-256\0")),
        AuthFailure::Protocol
    );
    let none = b"SCRAM-SHA-256\0\xff\xff\xff\xff";
    assert_eq!(
        refused(scram(None), frame(b'p', none)),
        AuthFailure::Protocol
    );
}

#[test]
fn a_server_must_prove_itself_and_may_not_ask_for_too_much() {
    let join = |credential| ServerAuth::new(b"u".to_vec(), credential, None, false, [2; 18]);
    let refused = |join: ServerAuth, request| match join.message(request, &mut Vec::new()) {
        ServerAuthStep::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    };
    let clear = Authentication::CleartextPassword;
    assert_eq!(
        refused(join(password(b"p")), clear),
        AuthFailure::CleartextNotAllowed
    );
    assert_eq!(
        refused(join(Credential::Nothing), clear),
        AuthFailure::Credential
    );
    let gss = Authentication::Other(7);
    assert_eq!(refused(join(password(b"p")), gss), AuthFailure::Method(7));
    let mut offer = Vec::new();
    build::authentication_sasl(&mut offer, &[scram::MECHANISM]);
    let step = join(password(b"p")).message(authentication(&offer), &mut Vec::new());
    let ServerAuthStep::More(begun) = step else {
        panic!()
    };
    assert_eq!(refused(*begun, Authentication::Ok), AuthFailure::Unproved);
    let step = join(Credential::Nothing).message(Authentication::Ok, &mut Vec::new());
    assert!(matches!(
        step,
        ServerAuthStep::Done(ServerAuthResult {
            server_proved: false,
            was_asked: false,
        })
    ));
}

#[test]
fn postgresql_15_accepts_what_we_would_have_sent() {
    // Captured: the salt of the server, and the reply with which it accepted the user.
    let server = include_bytes!("../../../../../fuzz/corpus/postgres_server/login_md5");
    let client = include_bytes!("../../../../../fuzz/corpus/postgres_startup/login_md5");
    let join = ServerAuth::new(b"md5u".to_vec(), password(b"secret"), None, false, [2; 18]);
    let mut out = Vec::new();
    let step = join.message(authentication(server), &mut out);
    assert!(matches!(step, ServerAuthStep::More(_)));
    assert!(client.ends_with(&out));
}

#[test]
fn nothing_secret_is_shown() {
    let (client, _) = run(scram(None), password(b"p"), None).unwrap();
    let shown = format!("{client:?} {:?}", password(b"hunter2"));
    assert!(shown.contains("hidden") && !shown.contains("hunter2"));
}
