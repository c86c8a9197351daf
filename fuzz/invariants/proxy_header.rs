//! Checks invariants of the PROXY header parser for any bytes; used by the fuzzer and the tests.

use evenkeel_wire::proxy_header::{
    Header, LENGTH_MAX, Parsed, encode_v1, encode_v2, encode_v2_local, parse,
};

/// Panics if parsing `bytes` violates an invariant.
pub(crate) fn check(bytes: &[u8]) {
    let parsed = parse(bytes);
    assert_eq!(parse(bytes), parsed, "parsing keeps no state");
    match parsed {
        Parsed::Frame(header, consumed) => {
            assert!(consumed > 0 && consumed <= bytes.len() && consumed <= LENGTH_MAX);
            check_beginnings(&bytes[..consumed], parsed);
            check_encoding(header);
        }
        Parsed::Incomplete => {
            assert!(
                bytes.len() < LENGTH_MAX,
                "{} bytes and still waiting",
                bytes.len()
            );
            check_beginnings(bytes, parsed);
        }
        Parsed::Invalid(_) => check_extension(bytes),
    }
}

/// Checks that the beginning of a possible header is neither a frame nor invalid.
fn check_beginnings(bytes: &[u8], whole: Parsed) {
    for cut in 0..bytes.len() {
        let beginning = parse(&bytes[..cut]);
        assert_eq!(
            beginning,
            Parsed::Incomplete,
            "at {cut}, the whole is {whole:?}"
        );
    }
    for cut in [
        bytes.len().saturating_add(1),
        bytes.len().saturating_add(300),
    ] {
        let mut longer = bytes.to_vec();
        longer.resize(cut, b'\n');
        if matches!(whole, Parsed::Frame(..)) {
            assert_eq!(
                parse(&longer),
                whole,
                "what follows a frame must not matter"
            );
        }
    }
}

/// Checks that invalid bytes remain invalid whatever follows them.
fn check_extension(bytes: &[u8]) {
    for ending in [
        b"\n".as_slice(),
        b"\r\n",
        b"0",
        b" 0.0.0.0 0 0\r\n",
        &[0; 300],
    ] {
        let longer = [bytes, ending].concat();
        assert!(
            matches!(parse(&longer), Parsed::Invalid(_)),
            "{ending:?} made it right"
        );
    }
}

/// Checks that both encodings of a header parse to that header, without a remainder.
fn check_encoding(header: Header) {
    let (Some(source), Some(destination)) = (header.source, header.destination) else {
        assert_eq!(header, Header::default(), "one address without the other");
        assert_eq!(
            parse(encode_v2_local()),
            Parsed::Frame(header, encode_v2_local().len())
        );
        return;
    };
    for encoded in [
        encode_v1(source, destination),
        encode_v2(source, destination),
    ] {
        assert_eq!(
            parse(&encoded),
            Parsed::Frame(header, encoded.len()),
            "{encoded:?}"
        );
    }
}
