//! Checks invariants of the parser of HTTP requests for any bytes; used by the fuzzer and the
//! tests.

use evenkeel_wire::http::{
    Framing, HeadLimits, KnownName, Method, Parsed, RequestHead, Underscores, Version,
};

const FIELDS_MAX: usize = 128;

/// Limits that small inputs reach, and such that they do not.
const LIMITS: [HeadLimits; 2] = [
    HeadLimits {
        head_bytes_max: 32_768,
        target_bytes_max: 16_384,
        fields_max: FIELDS_MAX,
        underscores: Underscores::Keep,
    },
    HeadLimits {
        head_bytes_max: 200,
        target_bytes_max: 20,
        fields_max: 5,
        underscores: Underscores::Drop,
    },
];

/// Panics if parsing `bytes` violates an invariant.
pub(crate) fn check(bytes: &[u8]) {
    for limits in LIMITS {
        let mut head = RequestHead::new();
        let parsed = head.parse(bytes, &limits);
        check_beginnings(bytes, &limits, parsed);
        check_longer(bytes, &limits, parsed, head.length());
        match parsed {
            Parsed::Complete => check_complete(&head, bytes, &limits),
            Parsed::Invalid(fault) => {
                assert!((400..=505).contains(&fault.status()), "{fault}");
                let limit = fault.limit().map(|limit| limit.value());
                assert!(limit.is_none_or(|limit| limit <= bytes.len()), "{fault}");
            }
            Parsed::Incomplete => assert!(bytes.len() < limits.head_bytes_max),
        }
    }
}

/// Checks that the result is the same wherever the bytes are cut on their way.
fn check_beginnings(bytes: &[u8], limits: &HeadLimits, whole: Parsed) {
    let mut grown = RequestHead::new();
    let mut result = Parsed::Incomplete;
    for cut in (0..=bytes.len()).step_by(1.max(bytes.len() >> 8)) {
        let mut fresh = RequestHead::new();
        let beginning = fresh.parse(&bytes[..cut], limits);
        if result == Parsed::Incomplete {
            result = grown.parse(&bytes[..cut], limits);
            assert_eq!(result, beginning, "parsing on differs at {cut}");
        }
        match beginning {
            Parsed::Incomplete => {}
            Parsed::Complete => assert_eq!(
                (whole, fresh.length()),
                (beginning, cut.min(fresh.length()))
            ),
            Parsed::Invalid(_) => assert_eq!(beginning, whole, "at {cut}"),
        }
    }
    if result == Parsed::Incomplete {
        assert_eq!(grown.parse(bytes, limits), whole);
    }
}

/// Checks that bytes after a head, or after invalid ones, change nothing.
fn check_longer(bytes: &[u8], limits: &HeadLimits, whole: Parsed, length: usize) {
    if whole == Parsed::Incomplete {
        return;
    }
    for more in [&b"\n"[..], b"\r\n\r\n", b"x", b" ", b"\0"] {
        let longer = [bytes, more].concat();
        let mut head = RequestHead::new();
        assert_eq!(head.parse(&longer, limits), whole, "{more:?}");
        assert!(whole != Parsed::Complete || head.length() == length);
    }
}

fn check_complete(head: &RequestHead, bytes: &[u8], limits: &HeadLimits) {
    let length = head.length();
    assert!(length <= bytes.len() && length <= limits.head_bytes_max);
    let text = &bytes[..length];
    assert!(text.ends_with(b"\r\n\r\n"));
    assert!(head.method() != Method::Connect);
    assert!(head.host(bytes).is_some() || head.version() == Version::Http10);
    assert!(head.path(bytes).starts_with(b"/") || head.path(bytes) == b"*");
    assert!(head.framing() != Framing::UntilClose);
    let has = |known| head.has(known);
    match head.framing() {
        Framing::None => {
            assert!(!has(KnownName::ContentLength) && !has(KnownName::TransferEncoding));
        }
        Framing::Length(_) => assert!(!has(KnownName::TransferEncoding)),
        _ => assert!(!has(KnownName::ContentLength) && head.version() == Version::Http11),
    }
    check_lines(head, bytes);
    check_httparse(head, bytes);
}

/// Checks the fields against a reading of the lines that knows nothing of the parser.
fn check_lines(head: &RequestHead, bytes: &[u8]) {
    let text = &bytes[..head.length()];
    let text = text.strip_prefix(b"\r\n").unwrap_or(text);
    let lines: Vec<&[u8]> = split_lines(text);
    assert!(!text.contains(&0), "a zero byte");
    let (request_line, fields) = lines.split_first().expect("a request line");
    let words: Vec<&[u8]> = request_line.split(|byte| *byte == b' ').collect();
    assert_eq!(words.len(), 3, "{request_line:?}");
    assert_eq!(words[0], head.method_text(bytes));
    let dropped = head.fields_dropped() as usize;
    assert_eq!(fields.len(), head.field_count() + dropped);
    let named = |name: &str| {
        let of = |line: &&&[u8]| {
            let colon = line.iter().position(|byte| *byte == b':').expect("a colon");
            line[..colon].eq_ignore_ascii_case(name.as_bytes())
        };
        fields.iter().filter(of).count()
    };
    assert!(named("content-length") + named("transfer-encoding") <= 1);
    assert!(named("host") <= 1);
    assert_eq!(named("host"), usize::from(head.has(KnownName::Host)));
}

fn split_lines(text: &[u8]) -> Vec<&[u8]> {
    let text = text.strip_suffix(b"\r\n\r\n").expect("an empty line");
    let mut lines: Vec<&[u8]> = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.windows(2).position(|pair| pair == b"\r\n") {
        lines.push(&rest[..at]);
        rest = &rest[at + 2..];
    }
    lines.push(rest);
    for line in &lines {
        assert!(
            !line.iter().any(|byte| matches!(byte, b'\r' | b'\n')),
            "{line:?}"
        );
        assert!(!line.starts_with(b" ") && !line.starts_with(b"\t") && !line.is_empty());
    }
    lines
}

/// Checks that another parser reads the same.
pub(crate) fn check_httparse(head: &RequestHead, bytes: &[u8]) {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut other = httparse::Request::new(&mut fields);
    let status = other.parse(bytes);
    let expect = Ok(httparse::Status::Complete(head.length()));
    assert_eq!(status, expect, "{}", bytes.escape_ascii());
    assert_eq!(
        other.method.map(str::as_bytes),
        Some(head.method_text(bytes))
    );
    let version = if head.version() == Version::Http11 {
        1
    } else {
        0
    };
    assert_eq!(other.version, Some(version));
    let target = other.path.expect("a target").as_bytes();
    let path = head.path_and_query(bytes);
    let ours = [path.path, path.query].concat();
    let same = target == ours
        || (target.ends_with(path.query) && path.path == b"/")
        || (head.method() == Method::Options && path.path == b"*")
        || target.ends_with(&ours);
    assert!(
        same,
        "{:?} {:?}",
        target.escape_ascii(),
        ours.escape_ascii()
    );
    let mut kept = other.headers.iter().filter(|field| !is_alias(field.name));
    let mut ours = head
        .fields(bytes)
        .filter(|field| !is_alias_bytes(field.name));
    loop {
        match (kept.next(), ours.next()) {
            (None, None) => break,
            (Some(theirs), Some(ours)) => {
                assert_eq!(theirs.name.as_bytes(), ours.name);
                assert_eq!(theirs.value, ours.value);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Returns whether the field may have been dropped for its name.
fn is_alias(name: &str) -> bool {
    is_alias_bytes(name.as_bytes())
}

fn is_alias_bytes(name: &[u8]) -> bool {
    name.iter().any(|byte| matches!(byte, b'_' | b'.'))
}
