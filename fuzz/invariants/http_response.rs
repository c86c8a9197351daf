//! Checks invariants of the parser of HTTP responses for any bytes; used by the fuzzer and the
//! tests.

use evenkeel_wire::http::{
    Framing, HeadLimits, KnownName, Method, Parsed, ResponseHead, Underscores, Version,
};

const FIELDS_MAX: usize = 128;

/// Limits that small inputs reach, and such that they do not.
const LIMITS: [HeadLimits; 2] = [
    HeadLimits {
        head_bytes_max: 32_768,
        target_bytes_max: 0,
        fields_max: FIELDS_MAX,
        underscores: Underscores::Drop,
    },
    HeadLimits {
        head_bytes_max: 150,
        target_bytes_max: 0,
        fields_max: 4,
        underscores: Underscores::Drop,
    },
];

/// Panics if parsing `bytes` violates an invariant.
pub(crate) fn check(bytes: &[u8]) {
    for limits in LIMITS {
        for method in [Method::Get, Method::Head] {
            let mut head = ResponseHead::new();
            let parsed = head.parse(bytes, &limits, method);
            check_beginnings(bytes, &limits, method, parsed);
            match parsed {
                Parsed::Complete => check_complete(&head, bytes, method),
                Parsed::Invalid(_) => {}
                Parsed::Incomplete => assert!(bytes.len() < limits.head_bytes_max),
            }
        }
    }
}

/// Checks that the result is the same wherever the bytes are cut on their way.
fn check_beginnings(bytes: &[u8], limits: &HeadLimits, method: Method, whole: Parsed) {
    let mut grown = ResponseHead::new();
    let mut result = Parsed::Incomplete;
    for cut in (0..=bytes.len()).step_by(1.max(bytes.len() >> 8)) {
        let mut fresh = ResponseHead::new();
        let beginning = fresh.parse(&bytes[..cut], limits, method);
        if result == Parsed::Incomplete {
            result = grown.parse(&bytes[..cut], limits, method);
            assert_eq!(result, beginning, "parsing on differs at {cut}");
        }
        match beginning {
            Parsed::Incomplete => {}
            Parsed::Complete => assert!(whole == beginning && fresh.length() <= cut),
            Parsed::Invalid(_) => assert_eq!(beginning, whole, "at {cut}"),
        }
    }
}

fn check_complete(head: &ResponseHead, bytes: &[u8], method: Method) {
    let text = &bytes[..head.length()];
    assert!(text.ends_with(b"\r\n\r\n"));
    assert!((100..1000).contains(&head.status()));
    let has = |known| head.has(known);
    let bodiless = method == Method::Head || matches!(head.status(), 100..200 | 204 | 304);
    match head.framing() {
        Framing::None => assert!(bodiless),
        Framing::Length(length) => assert_eq!(head.content_length(), Some(length)),
        Framing::Chunked => assert!(has(KnownName::TransferEncoding)),
        Framing::UntilClose => assert!(!head.keeps_connection() && !has(KnownName::ContentLength)),
    }
    if has(KnownName::ContentLength) && has(KnownName::TransferEncoding) {
        assert!(!head.keeps_connection());
    }
    let values = head.fields(bytes).map(|field| field.value);
    for value in values {
        assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
    }
    check_httparse(head, bytes);
}

/// Checks that another parser reads the same, but where lines are continued: it joins them
/// differently.
pub(crate) fn check_httparse(head: &ResponseHead, bytes: &[u8]) {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut other = httparse::Response::new(&mut fields);
    let mut config = httparse::ParserConfig::default();
    config.allow_spaces_after_header_name_in_responses(true);
    config.allow_obsolete_multiline_headers_in_responses(true);
    let status = config.parse_response(&mut other, bytes);
    let expect = Ok(httparse::Status::Complete(head.length()));
    assert_eq!(status, expect, "{}", bytes.escape_ascii());
    assert_eq!(other.code, Some(head.status()));
    let version = if head.version() == Version::Http11 {
        1
    } else {
        0
    };
    assert_eq!(other.version, Some(version));
    assert_eq!(other.headers.len(), head.field_count());
    for (theirs, ours) in other.headers.iter().zip(head.fields(bytes)) {
        assert_eq!(theirs.name.as_bytes(), ours.name);
        if !theirs.value.contains(&b'\n') {
            assert_eq!(theirs.value, ours.value);
        }
    }
}
