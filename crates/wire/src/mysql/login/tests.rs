//! Both sides of every login against each other, and against invalid packets.

use zeroize::Zeroizing;

use super::*;
use crate::mysql::build::{self, GreetingFields};
use crate::mysql::flags::{Capabilities, Status};
use crate::mysql::frame::{Frame, PRE_AUTH_LENGTH_MAX, frame};
use crate::mysql::password::rsa::{PrivateKey, PublicKey};
use crate::mysql::password::{self, Nonce, crypt, ed25519, parsec};
use crate::mysql::{Parsed, greeting, startup};

const NONCE: [u8; 20] = *b"abcdefghijklmnopqrst";
const KEY: &str = include_str!("../password/tests/key.pem");
/// `pa ss`, as MySQL 9 stores it.
const STORED: &[u8] =
    b"$A$00A$w]X?=q\\>\x08*|#KO\x010\x1b(q>w5tvi.prpVsiME.WKXXSldCALZZ1sNmCuDWug5Axt77";

fn stored() -> crypt::Stored {
    crypt::Stored::read(STORED).unwrap()
}

fn password(text: &[u8]) -> Credential {
    Credential::Password(Zeroizing::new(text.to_vec()))
}

/// Result of a login.
#[derive(Debug)]
struct Outcome {
    client: Result<Authenticated, AuthFailure>,
    server: Option<AuthFailure>,
    /// Length of each packet in bytes, alternating between server and client.
    lengths: Vec<usize>,
}

struct Case {
    /// The plugin that the greeting names.
    offered: &'static [u8],
    method: Method,
    channel: Channel,
    credential: Credential,
    key: ServerKey,
}

impl Case {
    fn new(method: Method, credential: Credential) -> Self {
        Case {
            offered: method.plugin(),
            method,
            channel: Channel::Secure,
            credential,
            key: ServerKey::Never,
        }
    }

    fn plain(mut self, key: ServerKey) -> Self {
        self.channel = Channel::Plain;
        self.key = key;
        self
    }

    fn run(self) -> Outcome {
        let mut wire = Vec::new();
        build::greeting(
            &mut wire,
            &GreetingFields {
                version: b"8.4.3",
                connection: 1,
                capabilities: Capabilities::SPOKEN,
                collation: 45,
                status: Status::AUTOCOMMIT,
                nonce: &NONCE,
                plugin: self.offered,
            },
        );
        let greeting = take(&mut wire);
        let Ok(greeting::First::Greeting(read)) = greeting::first(&greeting.1) else {
            panic!("{greeting:?}");
        };
        let hello = Hello {
            capabilities: Capabilities::SPOKEN,
            user: b"anna",
            ..Hello::default()
        };
        let how = (self.credential, self.channel, self.key);
        let mut out = Vec::new();
        let join = match ServerAuth::begin(&read, &hello, how, [3; 32], (1, &mut out)) {
            Ok(join) => join,
            Err(refusal) => {
                let client = Err(AuthFailure::Protocol);
                let (server, lengths) = (Some(refusal), Vec::new());
                return Outcome {
                    client,
                    server,
                    lengths,
                };
            }
        };
        talk(self.method, self.channel, join, out)
    }
}

fn take(wire: &mut Vec<u8>) -> (u8, Vec<u8>) {
    let Parsed::Frame(found, length) = frame(wire, PRE_AUTH_LENGTH_MAX) else {
        panic!("{wire:?}");
    };
    let taken = (found.sequence, found.payload.to_vec());
    wire.drain(..length);
    taken
}

fn talk(method: Method, channel: Channel, mut join: Box<ServerAuth>, mut sent: Vec<u8>) -> Outcome {
    let mut lengths = vec![sent.len()];
    let (sequence, payload) = take(&mut sent);
    let Ok(startup::First::Response(response)) = startup::first(&payload) else {
        panic!("{payload:?}");
    };
    let claim = ClaimedIdentity::of_response(&response);
    let nonce = Nonce::from_bytes(NONCE);
    let mut out = Vec::new();
    let mut step = ClientAuth::begin(claim, nonce, channel, method, (sequence + 1, &mut out));
    loop {
        let (client, sequence) = match step {
            ClientAuthStep::More(accept) => {
                lengths.push(out.len());
                if let Some(refusal) = hear(&mut join, &mut out, &mut sent) {
                    let (client, server) = (Err(AuthFailure::Protocol), Some(refusal));
                    return Outcome {
                        client,
                        server,
                        lengths,
                    };
                }
                lengths.push(sent.len());
                let (sequence, payload) = take(&mut sent);
                let payload = payload.as_slice();
                step = accept.message(Frame { sequence, payload }, &mut out);
                continue;
            }
            ClientAuthStep::Check(check) => {
                let sequence = check.sequence();
                let key = PrivateKey::from_pem(KEY).unwrap();
                (check.run(Some(&key), [9; 32]), sequence)
            }
            ClientAuthStep::Done(authenticated, sequence) => (Ok(authenticated), sequence),
            ClientAuthStep::Refused(refusal, sequence) => (Err(refusal), sequence),
            ClientAuthStep::Collected(..) => panic!("no method collects a password"),
        };
        if client.is_ok() {
            let agreed = Capabilities::SPOKEN;
            build::ok(&mut out, sequence, &Default::default(), agreed);
        } else {
            build::error(
                &mut out,
                sequence,
                &build::ErrorText {
                    code: 1045,
                    sqlstate: SqlState::ACCESS,
                    message: b"no",
                },
            );
        }
        lengths.push(out.len());
        let server = hear(&mut join, &mut out, &mut sent);
        return Outcome {
            client,
            server,
            lengths,
        };
    }
}

/// Passes all packets in `said` to the server login, and returns its failure, if any.
fn hear(join: &mut Box<ServerAuth>, said: &mut Vec<u8>, out: &mut Vec<u8>) -> Option<AuthFailure> {
    while !said.is_empty() {
        let (sequence, payload) = take(said);
        let payload = payload.as_slice();
        let step = std::mem::replace(join, spent()).message(Frame { sequence, payload }, out);
        match step {
            ServerAuthStep::More(next) => *join = next,
            ServerAuthStep::Done(joined) => {
                assert!(joined.agreed.has(Capabilities::PROTOCOL_41));
                assert!(said.is_empty());
                return None;
            }
            ServerAuthStep::Refused(refusal) => return Some(refusal),
        }
    }
    None
}

/// Returns a placeholder for a login that is being processed.
fn spent() -> Box<ServerAuth> {
    let how = (Credential::Nothing, Channel::Plain, ServerKey::Never);
    let agreed = (Capabilities::SPOKEN, Nonce::from_bytes(NONCE));
    ServerAuth::change_user(agreed, &Hello::default(), how, [0; 32], &mut Vec::new()).unwrap()
}

fn native(password: &[u8]) -> Method {
    Method::Native(password::native::Verifier::of_password(password))
}

fn sha2(fast: bool, key: bool) -> Method {
    let public = || PrivateKey::from_pem(KEY).unwrap().public_pem().to_vec();
    Method::Sha2 {
        fast: fast.then(|| password::sha2::Verifier::of_password(b"pa ss")),
        stored: stored(),
        public_key: key.then(public),
    }
}

#[track_caller]
fn succeeds(case: Case) -> Authenticated {
    let outcome = case.run();
    assert_eq!(outcome.server, None, "{outcome:?}");
    let authenticated = outcome.client.unwrap();
    assert_eq!(authenticated.user(), b"anna");
    authenticated
}

#[test]
fn a_native_login_leaves_what_logs_in_again() {
    let first = succeeds(Case::new(native(b"geheim"), password(b"geheim")));
    let credential = first.credential().clone();
    assert!(matches!(credential, Credential::Key(Key::Native(_))));
    succeeds(Case::new(native(b"geheim"), credential.clone()));
    let outcome = Case::new(native(b"other"), credential).run();
    assert_eq!(outcome.client.unwrap_err(), AuthFailure::WrongPassword);
    assert_eq!(outcome.server, Some(AuthFailure::Server(1045)));
}

#[test]
fn a_client_that_begins_with_another_plugin_is_asked_for_the_right_one() {
    for offered in [password::CACHING_SHA2, b"unheard_of"] {
        let mut case = Case::new(native(b"geheim"), password(b"geheim"));
        case.offered = offered;
        succeeds(case);
    }
    let mut case = Case::new(sha2(true, false), password(b"pa ss"));
    case.offered = password::NATIVE;
    succeeds(case);
}

#[test]
fn a_fast_sha2_login_leaves_the_key_and_a_full_one_the_password() {
    let fast = succeeds(Case::new(sha2(true, false), password(b"pa ss")));
    let credential = fast.credential().clone();
    assert!(matches!(credential, Credential::Key(Key::Sha2(_))));
    succeeds(Case::new(sha2(true, false), credential.clone()));
    let full = succeeds(Case::new(sha2(false, false), password(b"pa ss")));
    assert!(matches!(full.credential(), Credential::Password(text) if text.as_slice() == b"pa ss"));
    let cold = Case::new(sha2(false, false), credential).run();
    assert_eq!(cold.server, Some(AuthFailure::PasswordNeeded));
}

#[test]
fn without_tls_the_password_goes_encrypted_or_not_at_all() {
    let ask = Case::new(sha2(false, true), password(b"pa ss")).plain(ServerKey::Ask);
    let full = succeeds(ask);
    assert!(matches!(full.credential(), Credential::Password(text) if text.as_slice() == b"pa ss"));
    let key = PrivateKey::from_pem(KEY).unwrap();
    let known = ServerKey::Known(PublicKey::from_pem(key.public_pem()).unwrap());
    succeeds(Case::new(sha2(false, true), password(b"pa ss")).plain(known));
    let never = Case::new(sha2(false, true), password(b"pa ss")).plain(ServerKey::Never);
    assert_eq!(never.run().server, Some(AuthFailure::ServerKeyUnknown));
    let no_key = Case::new(sha2(false, false), password(b"pa ss")).plain(ServerKey::Ask);
    assert_eq!(no_key.run().client.unwrap_err(), AuthFailure::NoKey);
}

#[test]
fn ed25519_and_clear_passwords_prove_too() {
    let verifier = ed25519::Verifier::of_password(b"geheim");
    let method = || Method::Ed25519(verifier, [8; 32]);
    let done = succeeds(Case::new(method(), password(b"geheim")));
    assert!(matches!(done.credential(), Credential::Nothing));
    let wrong = Case::new(method(), password(b"geheim2")).run();
    assert_eq!(wrong.client.unwrap_err(), AuthFailure::WrongPassword);
    let clear = || Method::Clear(Secret::Sha2(stored()));
    let done = succeeds(Case::new(clear(), password(b"pa ss")));
    assert!(matches!(done.credential(), Credential::Password(_)));
    let plain = Case::new(clear(), password(b"pa ss")).plain(ServerKey::Ask);
    assert_eq!(
        plain.run().client.unwrap_err(),
        AuthFailure::CleartextNotAllowed
    );
}

#[test]
fn a_parsec_login_is_signed_and_leaves_nothing_that_logs_in_elsewhere() {
    let stored = b"P0:MDEyMzQ1Njc4OUFCQ0RFRkdI:k2eF6DUziiVOSCtnV+vUwoa331UZ1a2jMb/09BeHdlk";
    let verifier = parsec::Verifier::read(stored).unwrap();
    let method = || Method::Parsec(verifier, [8; 32]);
    for offered in [password::NATIVE, password::CACHING_SHA2, password::PARSEC] {
        let case = Case::new(method(), password(b"geheim"));
        let done = succeeds(Case { offered, ..case });
        assert!(matches!(done.credential(), Credential::Nothing));
    }
    let wrong = Case::new(method(), password(b"geheim2")).run();
    assert_eq!(wrong.client.unwrap_err(), AuthFailure::WrongPassword);
    for credential in [password(b""), Credential::Nothing] {
        assert!(Case::new(method(), credential).run().client.is_err());
    }
    let mock = || parsec::Verifier::mock(b"anna", &[1; 32]);
    assert_eq!(mock().derivation(), mock().derivation());
    let unknown = Case::new(Method::Parsec(mock(), [8; 32]), password(b"geheim")).run();
    assert_eq!(unknown.client.unwrap_err(), AuthFailure::WrongPassword);
}

#[test]
fn an_account_without_password_takes_no_other() {
    for plugin in [password::NATIVE, password::CACHING_SHA2] {
        succeeds(Case::new(Method::Empty(plugin), Credential::Nothing));
        let outcome = Case::new(Method::Empty(plugin), password(b"x")).run();
        assert_eq!(outcome.client.unwrap_err(), AuthFailure::WrongPassword);
    }
    let none = Case::new(native(b"geheim"), Credential::Nothing).run();
    assert_eq!(none.client.unwrap_err(), AuthFailure::WrongPassword);
    let none = Case::new(sha2(true, true), Credential::Nothing).run();
    assert_eq!(none.client.unwrap_err(), AuthFailure::WrongPassword);
}

#[test]
fn an_unknown_user_gets_the_conversation_of_a_wrong_password() {
    let mock = |fast| Method::Sha2 {
        fast,
        stored: crypt::Stored::mock([1; 20], 5000),
        public_key: None,
    };
    let wrong = Case::new(sha2(true, false), password(b"wrong")).run();
    let unknown = Case::new(mock(None), password(b"wrong")).run();
    assert_eq!(wrong.lengths, unknown.lengths);
    assert_eq!(wrong.client.unwrap_err(), unknown.client.unwrap_err());
    let wrong = Case::new(native(b"geheim"), password(b"wrong")).run();
    let mock = Method::Native(password::native::Verifier::mock([1; 20]));
    let unknown = Case::new(mock, password(b"wrong")).run();
    assert_eq!(wrong.lengths, unknown.lengths);
}

#[test]
fn packets_that_do_not_belong_end_the_login() {
    let claim = |plugin: &'static [u8]| {
        let mut out = Vec::new();
        build::response(
            &mut out,
            1,
            &build::ResponseFields {
                capabilities: Capabilities::SPOKEN,
                user: b"anna",
                plugin,
                ..Default::default()
            },
        );
        let (_, payload) = take(&mut out);
        match startup::first(&payload) {
            Ok(startup::First::Response(response)) => ClaimedIdentity::of_response(&response),
            other => panic!("{other:?}"),
        }
    };
    for payload in [&b""[..], b"x", &[0; 300], b"\0", b"no zero at the end"] {
        for method in [
            native(b"a"),
            sha2(true, true),
            Method::Clear(Secret::Sha2(stored())),
        ] {
            let nonce = Nonce::from_bytes(NONCE);
            let claim = claim(b"unheard_of");
            let mut out = Vec::new();
            let begun = ClientAuth::begin(claim, nonce, Channel::Secure, method, (2, &mut out));
            let ClientAuthStep::More(accept) = begun else {
                panic!("{begun:?}");
            };
            let frame = Frame {
                sequence: 3,
                payload,
            };
            match accept.message(frame, &mut out) {
                ClientAuthStep::Done(..) | ClientAuthStep::Collected(..) => panic!("{payload:?}"),
                ClientAuthStep::Check(check) => assert!(check.run(None, [0; 32]).is_err()),
                ClientAuthStep::More(_) | ClientAuthStep::Refused(..) => {}
            }
        }
    }
}

/// TO SEE THIS RED: take a password on a plain channel.
#[test]
fn a_password_for_a_server_to_check_comes_whole_and_over_a_secure_channel_only() {
    let begin = |plugin: &'static [u8], proof: &[u8], channel| {
        let claim = ClaimedIdentity::of_response(&startup::Response {
            capabilities: Capabilities::SPOKEN,
            packet_length_max: 1 << 24,
            collation: 45,
            user: b"app",
            proof,
            schema: None,
            plugin: Some(plugin),
            attributes: startup::Attributes::default(),
            zstd_level: None,
        });
        let (nonce, mut out) = (Nonce::from_bytes(NONCE), Vec::new());
        let method = Method::Collected(plugin);
        ClientAuth::begin(claim, nonce, channel, method, (2, &mut out))
    };
    let step = begin(password::CLEAR, b"pass\0", Channel::Secure);
    let ClientAuthStep::Collected(collected, 2) = step else {
        panic!("{step:?}");
    };
    assert!(!format!("{collected:?}").contains("pass"));
    assert_eq!(collected.into_bytes().as_slice(), b"pass");
    let step = begin(password::CACHING_SHA2, &[7; 32], Channel::Secure);
    let ClientAuthStep::More(accept) = step else {
        panic!("{step:?}");
    };
    let payload = b"pass\0";
    let frame = Frame {
        sequence: 3,
        payload,
    };
    let step = accept.message(frame, &mut Vec::new());
    assert!(matches!(step, ClientAuthStep::Collected(_, 4)), "{step:?}");
    for plugin in [password::CLEAR, password::CACHING_SHA2] {
        let step = begin(plugin, b"", Channel::Secure);
        assert!(matches!(step, ClientAuthStep::Collected(..)), "{step:?}");
        let step = begin(plugin, b"pass\0", Channel::Plain);
        assert!(matches!(step, ClientAuthStep::Refused(..)), "{step:?}");
    }
}

/// Returns the last step of a login that receives these packets from the server, and the replies.
fn reported(mut join: Box<ServerAuth>, packets: &[&[u8]]) -> (ServerAuthStep, Vec<Vec<u8>>) {
    let mut said = Vec::new();
    let (last, first) = packets.split_last().unwrap();
    for payload in first {
        let mut out = Vec::new();
        join = match join.message(heard(payload), &mut out) {
            ServerAuthStep::More(join) => join,
            other => panic!("{other:?}"),
        };
        said.push(take(&mut out).1);
    }
    (join.message(heard(last), &mut Vec::new()), said)
}

/// Returns a login with a password on an unencrypted connection.
fn joining() -> Box<ServerAuth> {
    let how = (password(b"geheim"), Channel::Plain, ServerKey::Ask);
    let agreed = (Capabilities::SPOKEN, Nonce::from_bytes(NONCE));
    ServerAuth::change_user(agreed, &Hello::default(), how, [0; 32], &mut Vec::new()).unwrap()
}

fn heard(payload: &[u8]) -> Frame<'_> {
    Frame {
        sequence: 1,
        payload,
    }
}

const DENIED: &[u8] = b"\xff\x15\x04#28000denied";

#[test]
fn a_server_cannot_make_us_show_a_password_in_the_clear() {
    let (step, said) = reported(joining(), &[b"\xfemysql_clear_password\0", DENIED]);
    assert!(matches!(
        step,
        ServerAuthStep::Refused(AuthFailure::CleartextNotAllowed)
    ));
    assert_eq!(said, [b""]);
}

#[test]
fn a_server_may_ask_for_another_plugin_as_often_as_an_account_has_ways() {
    let native = b"\xfemysql_native_password\0abcdefghijklmnopqrst\0".as_slice();
    let (step, said) = reported(joining(), &[native; 5]);
    assert!(matches!(
        step,
        ServerAuthStep::Refused(AuthFailure::Protocol)
    ));
    assert!(said.iter().all(|said| said.len() == 20));
    // An unsupported plugin receives an empty reply, and fails the login only if no other is
    // requested.
    let dialog = b"\xfedialog\0Password:";
    let (step, said) = reported(joining(), &[dialog, b"\x01more", native, DENIED]);
    assert!(matches!(
        step,
        ServerAuthStep::Refused(AuthFailure::Server(1045))
    ));
    assert_eq!(said.iter().map(Vec::len).collect::<Vec<_>>(), [0, 0, 20]);
    let (step, _) = reported(joining(), &[native, dialog, DENIED]);
    assert!(matches!(step, ServerAuthStep::Refused(AuthFailure::Plugin)));
}
