//! First packets as clients send them, truncated and damaged.

use super::*;
use crate::postgres::build;

#[track_caller]
fn check(bytes: &[u8], expect: Parsed<First<'_>>) {
    assert_eq!(first(bytes), expect);
    let Parsed::Frame(_, length) = expect else {
        return;
    };
    for cut in 0..length {
        match first(&bytes[..cut]) {
            Parsed::Incomplete { need } => assert!(need > cut && need <= length),
            other => panic!("{other:?} at {cut}"),
        }
    }
}

/// Returns a packet with this code and rest.
fn packet(code: u32, rest: &[u8]) -> Vec<u8> {
    let length = u32::try_from(rest.len() + 8).unwrap();
    [&length.to_be_bytes(), &code.to_be_bytes(), rest].concat()
}

#[track_caller]
fn read(bytes: &[u8]) -> Startup<'_> {
    match first(bytes) {
        Parsed::Frame(First::Startup(startup), length) if length == bytes.len() => startup,
        other => panic!("{other:?}"),
    }
}

#[test]
fn requests_for_encryption_and_direct_tls_are_told_apart() {
    check(
        b"\0\0\0\x08\x04\xd2\x16\x2f",
        Parsed::Frame(First::SslRequest, 8),
    );
    check(
        b"\0\0\0\x08\x04\xd2\x16\x30",
        Parsed::Frame(First::GssEncRequest, 8),
    );
    // A byte sent after SSLRequest is not part of it: the caller can detect it.
    let early = b"\0\0\0\x08\x04\xd2\x16\x2fX";
    assert_eq!(first(early), Parsed::Frame(First::SslRequest, 8));
    assert_eq!(
        first(b"\x16\x03\x01"),
        Parsed::Frame(First::DirectTls, 0),
        "a TLS record"
    );
}

#[test]
fn a_psql_startup_is_read() {
    let mut bytes = Vec::new();
    let parameters: [(&[u8], &[u8]); 4] = [
        (b"user", b"alice"),
        (b"database", b"shop"),
        (b"application_name", b"psql"),
        (b"client_encoding", b"UTF8"),
    ];
    build::startup(&mut bytes, 0, parameters);
    let startup = read(&bytes);
    check(&bytes, Parsed::Frame(First::Startup(startup), bytes.len()));
    assert_eq!(startup.user(), Some(&b"alice"[..]));
    assert_eq!(startup.database(), b"shop");
    assert_eq!(startup.minor, 0);
    assert!(!startup.must_negotiate(MINOR_MAX));
    assert_eq!(startup.replication(), Replication::No);
    let settings: Vec<_> = startup.settings().collect();
    assert_eq!(settings, parameters[2..]);
}

#[test]
fn the_database_is_called_as_the_user_unless_named() {
    for rest in [&b"user\0bob\0\0"[..], b"user\0bob\0database\0\0\0"] {
        let bytes = packet(VERSION_3, rest);
        assert_eq!(read(&bytes).database(), b"bob");
    }
}

#[test]
fn settings_inside_options_are_told() {
    let options = b"user\0u\0options\0-c a=1 --search_path=x\\ y  -cb.c=\\\\ -d 3\0\0";
    let bytes = packet(VERSION_3, options);
    let startup = read(&bytes);
    let reported: Vec<_> = startup
        .options()
        .map(|setting| {
            let show = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            setting.map(|one| (show(one.name()), show(one.value())))
        })
        .collect();
    let pair = |name: &str, value: &str| Some((name.to_owned(), value.to_owned()));
    assert_eq!(
        reported,
        [
            pair("a", "1"),
            pair("search_path", "x y"),
            pair("b.c", "\\"),
            None,
            None
        ]
    );
}

#[test]
fn versions_are_negotiated_once_and_downwards() {
    for (minor, options, expect) in [
        (0, false, None),
        (2, false, None),
        (3, false, Some("\0\x03\0\x02\0\0\0\0")),
        (9999, true, Some("\0\x03\0\x02\0\0\0\x01_pq_.x\0")),
        (0, true, Some("\0\x03\0\0\0\0\0\x01_pq_.x\0")),
    ] {
        let rest: &[u8] = if options {
            b"user\0u\0_pq_.x\x001\0\0"
        } else {
            b"user\0u\0\0"
        };
        let bytes = packet(VERSION_3 | minor, rest);
        let startup = read(&bytes);
        let mut out = Vec::new();
        let agreed = build::negotiate_protocol_version(&mut out, &startup, MINOR_MAX);
        assert_eq!(u32::from(agreed), minor.min(2));
        assert_eq!(startup.settings().count(), 0);
        let body = (!out.is_empty()).then(|| &out[5..]);
        assert_eq!(body, expect.map(str::as_bytes), "{minor} {options}");
    }
}

#[test]
fn cancel_requests_have_keys_of_4_to_256_bytes() {
    for length in [4, 32, 256] {
        let secret = vec![7; length];
        let key = CancelKey {
            process: 99,
            secret: &secret,
        };
        let mut bytes = Vec::new();
        build::cancel(&mut bytes, key);
        check(&bytes, Parsed::Frame(First::Cancel(key), bytes.len()));
    }
    for length in [0, 3, 257] {
        let bytes = packet(CANCEL, &vec![7; length + 4]);
        assert!(matches!(first(&bytes), Parsed::Invalid(_)), "{length}");
    }
}

#[test]
fn what_cannot_be_is_refused_as_early_as_it_shows() {
    let refused = |bytes: &[u8]| match first(bytes) {
        Parsed::Invalid(fault) => Some(fault),
        _ => None,
    };
    assert_eq!(
        refused(b"\0\0\0\x07"),
        Some(ProtocolError::LengthTooSmall(7))
    );
    let http = u32::from_be_bytes(*b"GET ");
    let too_long = ProtocolError::TooLong {
        tag: 0,
        length: http,
    };
    assert_eq!(refused(b"GET "), Some(too_long));
    assert_eq!(
        refused(b"\0\0\x40\x01"),
        Some(ProtocolError::TooLong {
            tag: 0,
            length: 0x4001
        })
    );
    assert_eq!(
        refused(b"\0\0\0\x09\0\x02\0\0"),
        Some(ProtocolError::Version(2 << 16))
    );
    for (rest, fault) in [
        (&b""[..], ProtocolError::Parameters),
        (b"user", ProtocolError::Parameters),
        (b"user\0u\0", ProtocolError::Parameters),
        (b"user\0u\0database\0\0", ProtocolError::Parameters),
        (b"user\0u\0\0rest\0", ProtocolError::Parameters),
        (b"\0", ProtocolError::NoUser),
        (b"user\0\0\0", ProtocolError::NoUser),
        (b"database\0d\0\0", ProtocolError::NoUser),
    ] {
        assert_eq!(refused(&packet(VERSION_3, rest)), Some(fault), "{rest:?}");
    }
}

#[test]
fn the_wish_to_replicate_is_seen() {
    for (value, expect) in [
        ("true", Replication::Physical),
        ("on", Replication::Physical),
        ("database", Replication::Logical),
        ("false", Replication::No),
        ("0", Replication::No),
        ("OFF", Replication::No),
        ("fa", Replication::No),
        ("1", Replication::Physical),
        ("o", Replication::Physical),
        ("offer", Replication::Physical),
        ("", Replication::Physical),
    ] {
        let rest = format!("user\0u\0replication\0{value}\0\0");
        let bytes = packet(VERSION_3, rest.as_bytes());
        assert_eq!(read(&bytes).replication(), expect, "{value}");
    }
}
