//! Checks that heads keep their meaning when they are written and read again; used by the fuzzer
//! and the tests.

use evenkeel_wire::http::{
    Framing, HeadLimits, KnownName, Method, Parsed, PathEdit, Persistence, RequestEdit,
    RequestHead, ResponseEdit, ResponseHead, Underscores, Version, write_request, write_response,
};

const LIMITS: HeadLimits = HeadLimits {
    head_bytes_max: 65_536,
    target_bytes_max: 32_768,
    fields_max: 128,
    underscores: Underscores::Drop,
};

const SET: &[(&[u8], &[u8])] = &[(b"X-Forwarded-For", b"192.0.2.1"), (b"X-Set", b"a b")];
const REMOVE: &[&[u8]] = &[b"x-removed", b"Client-Cert"];

/// Panics if writing the head that `bytes` are violates an invariant.
pub(crate) fn check(bytes: &[u8]) {
    let mut head = RequestHead::new();
    if head.parse(bytes, &LIMITS) == Parsed::Complete {
        for persistence in [Persistence::Keep, Persistence::Close] {
            for upgrade in [false, true] {
                check_request(&head, bytes, persistence, upgrade);
            }
        }
    }
    for method in [Method::Get, Method::Head] {
        let mut head = ResponseHead::new();
        if head.parse(bytes, &LIMITS, method) == Parsed::Complete {
            for client in [Version::Http10, Version::Http11] {
                check_response(&head, bytes, method, client);
            }
        }
    }
}

fn check_request(head: &RequestHead, bytes: &[u8], persistence: Persistence, upgrade: bool) {
    let edit = RequestEdit {
        remove: REMOVE,
        set: SET,
        persistence,
        upgrade,
        ..RequestEdit::default()
    };
    let mut out = Vec::new();
    let framing = write_request(&mut out, head, bytes, &edit);
    assert_eq!(framing, head.framing());
    if head.host(bytes).is_none() {
        // A request of HTTP/1.0 without a host: the session adds one.
        let mut other = Vec::new();
        let edit = RequestEdit {
            host: Some(b"added"),
            ..edit
        };
        write_request(&mut other, head, bytes, &edit);
        out = other;
    }
    let mut again = RequestHead::new();
    let parsed = again.parse(&out, &LIMITS);
    assert_eq!(parsed, Parsed::Complete, "{}", out.escape_ascii());
    assert_eq!(again.length(), out.len());
    assert_eq!(again.method_text(&out), head.method_text(bytes));
    assert_eq!(again.path_and_query(&out), head.path_and_query(bytes));
    assert_eq!(
        (again.version(), again.framing()),
        (Version::Http11, head.framing())
    );
    assert_eq!(again.keeps_connection(), persistence == Persistence::Keep);
    assert_eq!(again.accepts_trailers(), head.accepts_trailers());
    assert_eq!(again.expects_continue(), head.expects_continue());
    assert_eq!(again.upgrade(), head.upgrade().filter(|_| upgrade));
    if head.host(bytes).is_some() {
        assert_eq!(again.authority(&out), head.authority(bytes));
    }
    check_request_fields(head, bytes, &again, &out);
    let mut twice = Vec::new();
    write_request(&mut twice, &again, &out, &edit);
    assert_eq!(
        twice.escape_ascii().to_string(),
        out.escape_ascii().to_string()
    );
    check_path_edit(head, bytes);
}

/// Checks that the fields are those of the client, in its order, without some of them, and that
/// those of Evenkeel are there once.
fn check_request_fields(head: &RequestHead, bytes: &[u8], again: &RequestHead, out: &[u8]) {
    let folded = |name: &[u8]| {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        name.replace(['_', '.'], "-")
    };
    for (name, value) in SET {
        let same = again
            .fields(out)
            .filter(|field| folded(field.name) == folded(name));
        let values: Vec<&[u8]> = same.map(|field| field.value).collect();
        assert_eq!(values, [*value]);
    }
    let mut before = head.fields(bytes);
    for field in again.fields(out) {
        let of_ours = SET
            .iter()
            .any(|(name, _)| folded(name) == folded(field.name));
        let generated = matches!(
            field.known,
            KnownName::Host
                | KnownName::ContentLength
                | KnownName::TransferEncoding
                | KnownName::Connection
                | KnownName::Upgrade
                | KnownName::Te
        );
        assert!(!REMOVE.iter().any(|name| folded(name) == folded(field.name)));
        assert!(!matches!(
            field.known,
            KnownName::KeepAlive | KnownName::ProxyConnection
        ));
        if !of_ours && !generated {
            assert!(before.any(|old| (old.name, old.value) == (field.name, field.value)));
        }
    }
    for known in [
        KnownName::Cookie,
        KnownName::Authorization,
        KnownName::ContentType,
    ] {
        let old: Vec<&[u8]> = head.get_all(bytes, known).collect();
        assert!(again.get_all(out, known).eq(old));
    }
}

fn check_path_edit(head: &RequestHead, bytes: &[u8]) {
    for path in [
        PathEdit::Replace(b"other"),
        PathEdit::Prefix { strip: 3, put: b"" },
        PathEdit::Prefix {
            strip: 1,
            put: b"/new/",
        },
    ] {
        let mut out = Vec::new();
        let edit = RequestEdit {
            path,
            host: Some(b"h"),
            ..RequestEdit::default()
        };
        write_request(&mut out, head, bytes, &edit);
        let mut again = RequestHead::new();
        assert_eq!(
            again.parse(&out, &LIMITS),
            Parsed::Complete,
            "{}",
            out.escape_ascii()
        );
        assert_eq!(again.query(&out), head.query(bytes));
        assert_eq!(again.host(&out), Some(&b"h"[..]));
    }
}

fn check_response(head: &ResponseHead, bytes: &[u8], method: Method, client: Version) {
    let edit = ResponseEdit {
        remove: REMOVE,
        set: &[(b"X-Set", b"a b")],
        add: &[(b"Set-Cookie", b"a=b")],
        client,
        upgrade: true,
        ..ResponseEdit::default()
    };
    let mut out = Vec::new();
    let written = write_response(&mut out, head, bytes, &edit);
    let mut again = ResponseHead::new();
    let parsed = again.parse(&out, &LIMITS, method);
    assert_eq!(parsed, Parsed::Complete, "{}", out.escape_ascii());
    assert_eq!(again.length(), out.len());
    assert_eq!(
        (again.status(), again.reason(&out)),
        (head.status(), head.reason(bytes))
    );
    assert_eq!(again.framing(), written.framing);
    let expect = match (head.framing(), client) {
        (Framing::UntilClose | Framing::Chunked, Version::Http10) => Framing::UntilClose,
        (Framing::UntilClose, Version::Http11) => Framing::Chunked,
        (framing, _) => framing,
    };
    assert_eq!(written.framing, expect);
    if written.framing == Framing::UntilClose {
        assert_eq!(written.persistence, Persistence::Close);
    }
    assert!(!(again.has(KnownName::ContentLength) && again.has(KnownName::TransferEncoding)));
    if matches!(head.status(), 100..200 | 204) {
        assert!(!again.has(KnownName::ContentLength) && !again.has(KnownName::TransferEncoding));
    }
    if matches!(head.status(), 304) && !head.has(KnownName::TransferEncoding) {
        assert_eq!(again.content_length(), head.content_length());
    }
    let cookies =
        |head: &ResponseHead, bytes: &[u8]| head.get_all(bytes, KnownName::SetCookie).count();
    assert_eq!(cookies(&again, &out), cookies(head, bytes) + 1);
}
