//! Tests of the parser of ClientHello.

use super::*;

fn sized(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap();
    [&length.to_be_bytes()[..], bytes].concat()
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &sized(content)].concat()
}

/// Returns the content of the extension with these names.
fn names(names: &[(u8, &str)]) -> Vec<u8> {
    let list = names.iter().flat_map(|(kind, name)| {
        let sized = sized(name.as_bytes());
        std::iter::once(*kind).chain(sized).collect::<Vec<_>>()
    });
    sized(&list.collect::<Vec<_>>())
}

fn message(extensions: Option<&[u8]>) -> Vec<u8> {
    let mut body = [&[3, 3][..], &[7; 32], &[0], &sized(&[0x13, 1]), &[1, 0]].concat();
    if let Some(extensions) = extensions {
        body.extend(sized(extensions));
    }
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[CLIENT_HELLO], &length[1..], &body].concat()
}

/// Returns the message in records of at most `size` bytes.
fn records(message: &[u8], size: usize) -> Vec<u8> {
    let records = message.chunks(size);
    records
        .flat_map(|part| [&[HANDSHAKE_RECORD, 3, 1][..], &sized(part)].concat())
        .collect()
}

fn hello(name: &str) -> Vec<u8> {
    let other = extension(16, &[0, 3, 2, b'h', b'2']);
    let extensions = [other, extension(SERVER_NAME, &names(&[(HOST_NAME, name)]))];
    records(&message(Some(&extensions.concat())), 16_384)
}

fn named(name: &str) -> Parsed {
    Parsed::Hello {
        server_name: Some(name.into()),
    }
}

const NAMELESS: Parsed = Parsed::Hello { server_name: None };

#[test]
fn the_name_is_read_in_lower_case() {
    assert_eq!(parse(&hello("shop.example")), named("shop.example"));
    assert_eq!(parse(&hello("SHOP.Example.")), named("shop.example"));
    assert_eq!(parse(&hello("_x.a-b.example")), named("_x.a-b.example"));
    let followed = [hello("shop.example"), vec![0; 20_000]].concat();
    assert_eq!(parse(&followed), named("shop.example"));
}

#[test]
fn a_hello_without_a_usable_name_is_one() {
    assert_eq!(parse(&records(&message(None), 16_384)), NAMELESS);
    assert_eq!(parse(&records(&message(Some(&[])), 16_384)), NAMELESS);
    let long = "a.".repeat(130);
    for name in [
        "192.0.2.1",
        "::1",
        "a..b",
        ".",
        "a b",
        "shop.example\0",
        &long,
    ] {
        assert_eq!(parse(&hello(name)), NAMELESS, "{name}");
    }
    let other_kind = extension(SERVER_NAME, &names(&[(1, "shop.example")]));
    assert_eq!(parse(&records(&message(Some(&other_kind)), 99)), NAMELESS);
}

#[test]
fn every_beginning_is_incomplete_and_records_may_be_cut_anywhere() {
    let whole = hello("shop.example");
    let message = &whole[RECORD_HEADER..];
    for size in [1, 2, 3, 4, 5, 17, 64, message.len()] {
        let bytes = records(message, size);
        for cut in 0..bytes.len() {
            assert_eq!(parse(&bytes[..cut]), Parsed::Incomplete, "{size}, {cut}");
        }
        assert_eq!(parse(&bytes), named("shop.example"), "{size}");
    }
}

#[test]
fn other_bytes_are_refused_as_soon_as_they_are_seen() {
    let check = |bytes: &[u8], error| assert_eq!(parse(bytes), Parsed::Invalid(error), "{bytes:?}");
    check(b"G", HelloError::NotTls);
    check(b"\x16\x02", HelloError::NotTls);
    check(b"\x80\x2e\x01", HelloError::NotTls);
    check(b"\x16\x03\x01\0\0", HelloError::Record);
    check(b"\x16\x03\x01\0\x01\x02", HelloError::Message);
    check(b"\x16\x03\x01\0\x01\x01\x17", HelloError::Record);
    check(b"\x16\x03\x01\x02\0\x01\0\x40\0", HelloError::TooLong);
}

#[test]
fn a_message_ends_at_the_limit() {
    let padding = extension(21, &vec![0; 17_000 - 16]);
    let long = message(Some(&padding));
    assert_eq!(
        parse(&records(&long, 16_000)),
        Parsed::Invalid(HelloError::TooLong)
    );
    let padding = extension(21, &vec![0; 8_000]);
    let short = message(Some(&padding));
    assert_eq!(parse(&records(&short, 16_000)), NAMELESS);
    // Each byte in a record of its own takes six.
    let spread = records(&short, 1);
    assert_eq!(parse(&spread[..LENGTH_MAX - 1]), Parsed::Incomplete);
    assert_eq!(parse(&spread), Parsed::Invalid(HelloError::TooLong));
}

#[test]
fn contradicting_lengths_and_second_names_are_refused() {
    let name = extension(SERVER_NAME, &names(&[(HOST_NAME, "shop.example")]));
    let twice = [name.clone(), name.clone()].concat();
    let two = extension(
        SERVER_NAME,
        &names(&[(HOST_NAME, "a.b"), (HOST_NAME, "c.d")]),
    );
    let empty = extension(SERVER_NAME, &names(&[]));
    let no_list = extension(SERVER_NAME, &[]);
    let more = extension(SERVER_NAME, &[&names(&[(0, "a.b")])[..], &[0]].concat());
    let cut = name[..name.len() - 1].to_vec();
    for extensions in [twice, two, empty, no_list, more, cut] {
        let bytes = records(&message(Some(&extensions)), 16_384);
        assert_eq!(parse(&bytes), Parsed::Invalid(HelloError::Malformed));
    }
    let mut trailing = message(Some(&name));
    trailing.push(0);
    trailing[3] += 1;
    let bytes = records(&trailing, 16_384);
    assert_eq!(parse(&bytes), Parsed::Invalid(HelloError::Malformed));
}

#[test]
fn a_client_that_offers_one_protocol_only_is_recognised() {
    let offering = |list: &[u8]| {
        let name = extension(SERVER_NAME, &names(&[(HOST_NAME, "shop.example")]));
        let extensions = [name, extension(ALPN, list)].concat();
        records(&message(Some(&extensions)), 16_384)
    };
    let only = offering(b"\0\x0b\x0aacme-tls/1");
    assert!(offers_only(&only, b"acme-tls/1"));
    assert!(!offers_only(&only[..only.len() - 1], b"acme-tls/1"));
    assert!(!offers_only(&only, b"h2"));
    assert!(!offers_only(
        &offering(b"\0\x0e\x0aacme-tls/1\x02h2"),
        b"acme-tls/1"
    ));
    assert!(!offers_only(
        &offering(b"\0\x0e\x02h2\x0aacme-tls/1"),
        b"acme-tls/1"
    ));
    assert!(!offers_only(
        &offering(b"\0\x0c\x0aacme-tls/1"),
        b"acme-tls/1"
    ));
    assert!(!offers_only(&offering(b""), b"acme-tls/1"));
    assert!(!offers_only(&hello("shop.example"), b"acme-tls/1"));
    assert!(!offers_only(b"GET / HTTP/1.1\r\n\r\n", b"acme-tls/1"));
}
