//! Checks invariants of the ClientHello parser for any bytes; used by the fuzzer and the tests.

use evenkeel_wire::tls_hello::{LENGTH_MAX, Parsed, parse};

/// Panics if parsing `bytes` violates an invariant.
pub(crate) fn check(bytes: &[u8]) {
    let parsed = parse(bytes);
    assert_eq!(parse(bytes), parsed, "parsing keeps no state");
    let longer = [bytes, &[22; 300]].concat();
    match &parsed {
        Parsed::Incomplete => assert!(bytes.len() < LENGTH_MAX, "{} bytes", bytes.len()),
        Parsed::Invalid(_) => {
            assert!(
                matches!(parse(&longer), Parsed::Invalid(_)),
                "made valid by more bytes"
            );
            return;
        }
        Parsed::Hello { server_name } => {
            assert_eq!(parse(&longer), parsed, "what follows must not matter");
            if let Some(name) = server_name {
                assert!(!name.is_empty() && name.len() <= 253);
                assert!(!name.bytes().any(|byte| byte.is_ascii_uppercase()));
            }
        }
    }
    // The beginning of a possible message is not invalid, and its result does not change later.
    for cut in 0..bytes.len() {
        match parse(&bytes[..cut]) {
            Parsed::Incomplete => {}
            beginning => {
                assert_eq!(beginning, parsed, "at {cut}");
                break;
            }
        }
    }
}
