//! Status lines and the use of connections (RFC 9112 §4, §9).

use super::*;

#[test]
fn status_lines_have_a_version_a_code_and_perhaps_a_reason() {
    for (line, status, reason) in [
        ("HTTP/1.1 200 OK", 200, "OK"),
        ("HTTP/1.0 404 Not\tFound x", 404, "Not\tFound x"),
        ("HTTP/1.1 200 ", 200, ""),
        ("HTTP/1.1 200", 200, ""),
        ("HTTP/1.1 999 \u{e4}", 999, "\u{e4}"),
        ("HTTP/1.1 600  x", 600, " x"),
    ] {
        let bytes = format!("{line}\r\n\r\n").into_bytes();
        let head = complete_response(&bytes);
        assert_eq!(
            (head.status(), head.reason(&bytes)),
            (status, reason.as_bytes())
        );
    }
    for (line, fault) in [
        ("HTTP/1.1  200 OK", Fault::StatusCode),
        ("HTTP/1.1 20 OK", Fault::StatusCode),
        ("HTTP/1.1 2000 OK", Fault::StatusCode),
        ("HTTP/1.1 099 OK", Fault::StatusCode),
        ("HTTP/1.1 +20 OK", Fault::StatusCode),
        ("HTTP/1.1 2 0 OK", Fault::StatusCode),
        ("HTTP/1.1\t200 OK", Fault::StatusCode),
        ("HTTP/1.1 200\tOK", Fault::StatusCode),
        ("HTTP/1.1", Fault::StatusCode),
        ("HTTP/1.2 200 OK", Fault::UnsupportedVersion),
        ("HTTP/2.0 200 OK", Fault::UnsupportedVersion),
        ("HTTP/2 200 OK", Fault::Version { at: 6 }),
        ("ICY 200 OK", Fault::Version { at: 0 }),
        (" HTTP/1.1 200 OK", Fault::Version { at: 0 }),
        ("", Fault::Version { at: 0 }),
        ("HTTP/1.1 200 O\0K", Fault::Byte { at: 14, byte: 0 }),
        ("HTTP/1.1 200 O\rK", Fault::BareCarriageReturn { at: 14 }),
        ("HTTP/1.1 200 OK\nA: b", Fault::BareLineFeed { at: 15 }),
    ] {
        let (_, parsed) = response(format!("{line}\r\n\r\n").as_bytes());
        assert_eq!(parsed, Parsed::Invalid(fault), "{line:?}");
    }
}

#[test]
fn interim_responses_are_heads_before_the_final_one() {
    let bytes = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 x\r\n\r\n\
        HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let (mut head, mut rest, mut seen) = (ResponseHead::new(), &bytes[..], Vec::new());
    while !rest.is_empty() {
        let parsed = head.parse(rest, &HeadLimits::default(), Method::Get);
        assert_eq!(parsed, Parsed::Complete);
        seen.push((head.status(), head.is_interim()));
        rest = &rest[head.length()..];
    }
    assert_eq!(seen, [(103, true), (102, true), (200, false)]);
    assert!(!complete_response(b"HTTP/1.1 101 x\r\n\r\n").is_interim());
}

#[test]
fn interim_heads_are_filtered_like_final_ones() {
    let bytes = b"HTTP/1.1 103 x\r\nLink: </a>\r\nConnection: X-A, close\r\nX-A: b\r\n\
        Content-Length: 5\r\nKeep-Alive: x\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\n\r\n";
    let expect = "HTTP/1.1 103 x\r\nLink: </a>\r\nSet-Cookie: a=b\r\nSet-Cookie: c=d\r\n\r\n";
    assert_eq!(answered(bytes, &ResponseEdit::default()), expect);
}

#[test]
fn server_connections_are_kept_only_after_certain_ends() {
    let length = "Content-Length: 0\r\n";
    for (line, fields, keeps) in [
        ("HTTP/1.1 200 x", length, true),
        (
            "HTTP/1.1 200 x",
            "Connection: keep-alive\r\nContent-Length: 0\r\n",
            true,
        ),
        (
            "HTTP/1.1 200 x",
            "Connection: close\r\nContent-Length: 0\r\n",
            false,
        ),
        ("HTTP/1.1 200 x", "Transfer-Encoding: chunked\r\n", true),
        ("HTTP/1.1 200 x", "", false),
        ("HTTP/1.1 204 x", "", true),
        ("HTTP/1.1 101 x", "", false),
        (
            "HTTP/1.0 200 x",
            "Connection: keep-alive\r\nContent-Length: 0\r\n",
            false,
        ),
    ] {
        let bytes = format!("{line}\r\n{fields}\r\n").into_bytes();
        assert_eq!(
            complete_response(&bytes).keeps_connection(),
            keeps,
            "{line} {fields}"
        );
    }
}

#[test]
fn the_connection_of_the_server_is_not_that_of_the_client() {
    let bytes = b"HTTP/1.1 200 OK\r\nConnection: close, X-A\r\nX-A: 1\r\nKeep-Alive: timeout=5\r\n\
        Proxy-Connection: close\r\nTE: x\r\nUpgrade: h2c\r\nServer: s\r\nContent-Length: 0\r\n\r\n";
    for (client, persistence, option) in [
        (Version::Http11, Persistence::Keep, ""),
        (Version::Http11, Persistence::Close, "Connection: close\r\n"),
        (
            Version::Http10,
            Persistence::Keep,
            "Connection: keep-alive\r\n",
        ),
        (Version::Http10, Persistence::Close, "Connection: close\r\n"),
    ] {
        let edit = ResponseEdit {
            client,
            persistence,
            ..ResponseEdit::default()
        };
        let expect = format!("HTTP/1.1 200 OK\r\nServer: s\r\nContent-Length: 0\r\n{option}\r\n");
        assert_eq!(answered(bytes, &edit), expect);
    }
}

#[test]
fn answers_of_our_own_have_a_length_and_no_body_where_none_may_be() {
    let write = |status, method, client, persistence| {
        let mut out = Vec::new();
        let answer = Answer {
            status,
            fields: &[(b"Retry-After", b"1")],
            body: b"no\n",
            method,
            client,
            persistence,
        };
        write_answer(&mut out, &answer);
        String::from_utf8(out).unwrap()
    };
    assert_eq!(
        write(503, Method::Get, Version::Http11, Persistence::Close),
        "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 3\r\n\
         Connection: close\r\n\r\nno\n"
    );
    assert_eq!(
        write(404, Method::Head, Version::Http10, Persistence::Keep),
        "HTTP/1.1 404 Not Found\r\nRetry-After: 1\r\nContent-Length: 3\r\n\
         Connection: keep-alive\r\n\r\n"
    );
    assert_eq!(
        write(204, Method::Get, Version::Http11, Persistence::Keep),
        "HTTP/1.1 204 No Content\r\nRetry-After: 1\r\n\r\n"
    );
    assert_eq!(
        write(599, Method::Get, Version::Http11, Persistence::Keep),
        "HTTP/1.1 599 \r\nRetry-After: 1\r\nContent-Length: 3\r\n\r\nno\n"
    );
}
