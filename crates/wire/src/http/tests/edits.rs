//! Heads as they are sent on.

use super::*;

fn plain() -> RequestEdit<'static> {
    RequestEdit::default()
}

#[test]
fn order_and_case_of_kept_fields_are_the_senders() {
    let bytes = request_text(
        "gEt /a?b HTTP/1.1",
        "zULU: 1\r\nhOST: H:80\r\nAlpha: 2\r\nuser-AGENT: x\r\nAlpha: 3\r\nB:4\r\nC: 5\r\n",
    );
    let expect = "gEt /a?b HTTP/1.1\r\nHost: H:80\r\nzULU: 1\r\nAlpha: 2\r\nuser-AGENT: x\r\n\
        Alpha: 3\r\nB: 4\r\nC: 5\r\n\r\n";
    assert_eq!(sent_on(&bytes, &plain()), expect);
}

#[test]
fn requests_go_to_servers_in_origin_form_as_1_1() {
    for (line, host, expect) in [
        (
            "GET http://H:1/a?b HTTP/1.1",
            "Host: h:1\r\n",
            "GET /a?b HTTP/1.1\r\nHost: H:1\r\n",
        ),
        (
            "GET http://h HTTP/1.1",
            "Host: h\r\n",
            "GET / HTTP/1.1\r\nHost: h\r\n",
        ),
        (
            "GET http://h?b HTTP/1.1",
            "Host: h\r\n",
            "GET /?b HTTP/1.1\r\nHost: h\r\n",
        ),
        (
            "OPTIONS http://h HTTP/1.1",
            "Host: h\r\n",
            "OPTIONS * HTTP/1.1\r\nHost: h\r\n",
        ),
        ("GET /a HTTP/1.0", "", "GET /a HTTP/1.1\r\n"),
        (
            "GET http://h/a HTTP/1.0",
            "",
            "GET /a HTTP/1.1\r\nHost: h\r\n",
        ),
    ] {
        let bytes = request_text(line, host);
        assert_eq!(sent_on(&bytes, &plain()), format!("{expect}\r\n"), "{line}");
    }
    let bytes = request_text("GET / HTTP/1.1", "Host: a\r\n");
    let edit = RequestEdit {
        host: Some(b"b:1"),
        ..plain()
    };
    assert_eq!(
        sent_on(&bytes, &edit),
        "GET / HTTP/1.1\r\nHost: b:1\r\n\r\n"
    );
}

#[test]
fn paths_are_edited_and_always_begin_with_a_slash() {
    let prefix = |strip, put| PathEdit::Prefix { strip, put };
    for (target, edit, expect) in [
        ("/api/x?y", prefix(4, b""), "/x?y"),
        ("/api", prefix(4, b""), "/"),
        ("/api?y", prefix(4, b""), "/?y"),
        ("/apix", prefix(4, b""), "/x"),
        ("/api/x", prefix(4, b"/v2"), "/v2/x"),
        ("/api/x", prefix(4, b"/v2/"), "/v2/x"),
        ("/api/x", prefix(5, b"/v2/"), "/v2/x"),
        ("/x", prefix(0, b"/v2"), "/v2/x"),
        ("/x", prefix(9, b""), "/"),
        ("/a//b", prefix(2, b""), "//b"),
        ("http://h/api/x?y", prefix(4, b""), "/x?y"),
        ("/a?b", PathEdit::Replace(b"/c"), "/c?b"),
        ("/a?b", PathEdit::Replace(b"c"), "/c?b"),
        ("/a?b", PathEdit::Replace(b""), "/?b"),
        ("/a?b", PathEdit::Replace(b"/c d?\r\n#e"), "/cde?b"),
    ] {
        let bytes = request_text(&format!("GET {target} HTTP/1.1"), "Host: h\r\n");
        let text = sent_on(
            &bytes,
            &RequestEdit {
                path: edit,
                ..plain()
            },
        );
        assert_eq!(
            text,
            format!("GET {expect} HTTP/1.1\r\nHost: h\r\n\r\n"),
            "{target} {edit:?}"
        );
    }
    let bytes = request_text("OPTIONS * HTTP/1.1", "Host: h\r\n");
    let edit = RequestEdit {
        path: prefix(1, b"/a"),
        ..plain()
    };
    assert!(sent_on(&bytes, &edit).starts_with("OPTIONS * HTTP/1.1\r\n"));
}

#[test]
fn fields_of_one_connection_are_never_sent_on() {
    let bytes = request_text(
        "GET / HTTP/1.1",
        "Host: h\r\nConnection: keep-alive, X-A, x-b\r\nKeep-Alive: 5\r\nX-A: 1\r\nx-B: 2\r\n\
         X-C: 3\r\nProxy-Connection: x\r\nTE: gzip\r\nUpgrade: x\r\nHTTP2-Settings: a\r\n\
         X-A: 4\r\nTrailer: X-C\r\nX-D: 5\r\n",
    );
    let expect = "GET / HTTP/1.1\r\nHost: h\r\nX-C: 3\r\nX-D: 5\r\n\r\n";
    assert_eq!(sent_on(&bytes, &plain()), expect);
    let edit = RequestEdit {
        persistence: Persistence::Close,
        ..plain()
    };
    assert!(sent_on(&bytes, &edit).ends_with("X-D: 5\r\nConnection: close\r\n\r\n"));
}

#[test]
fn connection_cannot_remove_what_is_for_all_recipients_or_ours() {
    let names = "Host, Content-Length, Transfer-Encoding, Authorization, Cookie, Forwarded, \
        X-Forwarded-For, x-forwarded-proto, X_Forwarded_Host, Content-Type, X-Request-ID, \
        Client-Cert, Cache-Control, X-Ours, X-Gone";
    let bytes = request_text(
        "POST / HTTP/1.1",
        &format!(
            "Host: h\r\nConnection: {names}\r\nContent-Length: 3\r\nAuthorization: a\r\n\
             Cookie: b=c\r\nForwarded: d\r\nX-Forwarded-For: e\r\nContent-Type: f\r\n\
             X-Request-ID: g\r\nClient-Cert: i\r\nCache-Control: j\r\nX-Ours: k\r\nX-Gone: l\r\n"
        ),
    );
    let edit = RequestEdit {
        set: &[(b"X-Ours", b"ours")],
        ..plain()
    };
    let expect = "POST / HTTP/1.1\r\nHost: h\r\nAuthorization: a\r\nCookie: b=c\r\nForwarded: d\r\n\
        X-Forwarded-For: e\r\nContent-Type: f\r\nX-Request-ID: g\r\nClient-Cert: i\r\n\
        Cache-Control: j\r\nX-Ours: ours\r\nContent-Length: 3\r\n\r\n";
    assert_eq!(sent_on(&bytes, &edit), expect);
    let response = b"HTTP/1.1 200 OK\r\nConnection: Set-Cookie, Content-Length, X-A\r\nX-A: 1\r\n\
        Set-Cookie: a=b\r\nContent-Length: 3\r\n\r\n";
    let expect = "HTTP/1.1 200 OK\r\nSet-Cookie: a=b\r\nContent-Length: 3\r\n\r\n";
    assert_eq!(answered(response, &ResponseEdit::default()), expect);
}

#[test]
fn a_connection_field_names_a_limited_number_of_options() {
    let names = |count: usize| {
        let names: Vec<String> = (0..count).map(|index| format!("x{index}")).collect();
        let fields = format!("Host: h\r\nConnection: close, {}\r\n", names.join(","));
        request_text("GET / HTTP/1.1", &fields)
    };
    complete_request(&names(32));
    assert_request_fault(&names(33), Fault::TooManyOptions);
}

#[test]
fn removed_fields_have_no_alias_left() {
    let bytes = request_text(
        "GET / HTTP/1.1",
        "Host: h\r\nX-Forwarded-For: 1\r\nx-forwarded-FOR: 2\r\nX.Forwarded.For: 3\r\n\
         X_Forwarded-For: 4\r\nX-Forwarded-Fo: 5\r\nX-Real.IP: 6\r\nA: 7\r\n",
    );
    let limits = HeadLimits {
        underscores: Underscores::Keep,
        ..HeadLimits::default()
    };
    let mut head = RequestHead::new();
    assert_eq!(head.parse(&bytes, &limits), Parsed::Complete);
    let edit = RequestEdit {
        remove: &[b"X-Real-IP"],
        forwarded: &[(b"X-Forwarded-For", b"192.0.2.1")],
        ..plain()
    };
    let mut out = Vec::new();
    write_request(&mut out, &head, &bytes, &edit);
    let expect = "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-Fo: 5\r\nA: 7\r\n\
        X-Forwarded-For: 192.0.2.1\r\n\r\n";
    assert_eq!(String::from_utf8_lossy(&out), expect);
}

#[test]
fn long_names_are_removed_too() {
    for length in [63, 64, 65, 128, 200] {
        let name = "n".repeat(length);
        let bytes = request_text("GET / HTTP/1.1", &format!("Host: h\r\n{name}: 1\r\n"));
        let edit = RequestEdit {
            remove: &[name.as_bytes()],
            ..plain()
        };
        assert_eq!(sent_on(&bytes, &edit), "GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    }
}

#[test]
fn expectations_are_sent_on_unless_the_body_goes_in_any_case() {
    let fields = "Host: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n";
    let bytes = request_text("PUT / HTTP/1.1", fields);
    assert!(sent_on(&bytes, &plain()).contains("Expect: 100-continue\r\n"));
    let edit = RequestEdit {
        without_expect: true,
        ..plain()
    };
    assert!(!sent_on(&bytes, &edit).contains("Expect"));
    let old = request_text("PUT / HTTP/1.0", fields);
    assert!(!sent_on(&old, &plain()).contains("Expect"));
}

#[test]
fn trailers_are_announced_only_where_they_can_follow() {
    let fields = "Host: h\r\nTE: trailers, gzip;q=0.5\r\nTrailer: X-A\r\n";
    let chunked = request_text(
        "PUT / HTTP/1.1",
        &format!("{fields}Transfer-Encoding: chunked\r\n"),
    );
    let expect = "PUT / HTTP/1.1\r\nHost: h\r\nTrailer: X-A\r\nTransfer-Encoding: chunked\r\n\
        Connection: TE\r\nTE: trailers\r\n\r\n";
    assert_eq!(sent_on(&chunked, &plain()), expect);
    let edit = RequestEdit {
        framing: Some(Framing::Length(3)),
        ..plain()
    };
    let expect = "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nConnection: TE\r\n\
        TE: trailers\r\n\r\n";
    assert_eq!(sent_on(&chunked, &edit), expect);
}

#[test]
fn fields_of_a_response_are_removed_set_and_added() {
    let bytes = b"HTTP/1.1 200 OK\r\nServer: a\r\nX-Powered-By: b\r\nSet-Cookie: c=d\r\n\
        strict-transport-security: x\r\nContent-Length: 0\r\n\r\n";
    let edit = ResponseEdit {
        remove: &[b"x-powered-by"],
        set: &[(b"Strict-Transport-Security", b"max-age=1")],
        add: &[(b"Set-Cookie", b"e=f")],
        ..ResponseEdit::default()
    };
    let expect = "HTTP/1.1 200 OK\r\nServer: a\r\nSet-Cookie: c=d\r\n\
        Strict-Transport-Security: max-age=1\r\nSet-Cookie: e=f\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(answered(bytes, &edit), expect);
}

#[test]
fn the_length_of_a_body_that_is_replaced_is_not_stated() {
    let edit = |client| ResponseEdit {
        body: BodyEdit::Replace,
        client,
        ..ResponseEdit::default()
    };
    let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n";
    let expect = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(answered(bytes, &edit(Version::Http11)), expect);
    let expect = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
    assert_eq!(answered(bytes, &edit(Version::Http10)), expect);
    let mut head = ResponseHead::new();
    head.parse(bytes, &HeadLimits::default(), Method::Head);
    let mut out = Vec::new();
    let written = write_response(&mut out, &head, bytes, &edit(Version::Http11));
    assert_eq!(out, b"HTTP/1.1 200 OK\r\n\r\n");
    assert_eq!(written.framing, Framing::None);
}

#[test]
fn numbers_are_written_in_decimal_digits() {
    for number in [0, 7, 10, 99, 100, 12_345, u64::MAX] {
        let mut out = Vec::new();
        edit::write_number(&mut out, number);
        assert_eq!(String::from_utf8(out).unwrap(), number.to_string());
    }
}
