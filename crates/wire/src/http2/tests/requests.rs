//! Requests that are accepted, and their texts.

use super::*;

#[test]
fn a_request_becomes_a_head_of_http_1_1() {
    let list = [
        (":method", "GET"),
        (":scheme", "https"),
        (":path", "/a?b=c"),
        (":authority", "shop.example:8443"),
        ("user-agent", "x/1"),
        ("accept", "*/*"),
        ("x-empty", ""),
    ];
    assert_eq!(
        text_of(&list, true).as_deref(),
        Ok(
            "GET /a?b=c HTTP/1.1\r\nHost: shop.example:8443\r\nuser-agent: x/1\r\naccept: */*\r\n\
            x-empty: \r\n\r\n"
        )
    );
}

#[test]
fn pseudo_fields_may_be_in_any_order() {
    for rotation in 0..4 {
        let mut list = GET;
        list.rotate_left(rotation);
        let text = text_of(&list, true);
        assert_eq!(text.as_deref(), Ok("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
    }
}

#[test]
fn methods_and_paths_are_those_of_the_client() {
    for (method, path) in [
        ("GET", "/%2f..//?#".trim_end_matches('#')),
        ("PROPFIND", "/"),
        ("get", "/~"),
        ("OPTIONS", "*"),
        ("OPTIONS", "/"),
        ("M-SEARCH", "/?a?b"),
    ] {
        let list = [
            (":method", method),
            (":scheme", "http"),
            (":path", path),
            GET[3],
        ];
        let text = text_of(&list, true).expect("a request");
        assert_eq!(text, format!("{method} {path} HTTP/1.1\r\nHost: h\r\n\r\n"));
    }
}

#[test]
fn the_framing_is_that_of_http_1_1() {
    let lines = |method, length: Option<&'static str>, end| {
        let mut list = with(&[(":method", method)], &GET[1..]);
        list.extend(length.map(|length| ("content-length", length)));
        lines_of(&list, end)
    };
    for method in ["POST", "PUT", "PATCH"] {
        assert_eq!(lines(method, None, true), ["Host: h", "content-length: 0"]);
    }
    for method in ["GET", "HEAD", "DELETE", "OPTIONS", "BREW"] {
        assert_eq!(lines(method, None, true), ["Host: h"]);
    }
    for method in ["GET", "POST", "DELETE"] {
        let chunked = ["Host: h", "transfer-encoding: chunked"];
        assert_eq!(lines(method, None, false), chunked);
        assert_eq!(
            lines(method, Some("0"), true),
            ["Host: h", "content-length: 0"]
        );
        assert_eq!(
            lines(method, Some("5"), false),
            ["Host: h", "content-length: 5"]
        );
    }
    // The end of an empty body comes later, and the text does not say that the request is complete.
    assert_eq!(
        lines("POST", Some("0"), false),
        ["Host: h", "transfer-encoding: chunked"]
    );
}

#[test]
fn the_content_length_is_returned() {
    for (length, expect) in [
        (None, None),
        (Some("0"), Some(0)),
        (Some("00123"), Some(123)),
    ] {
        let mut request = RequestText::new();
        request.begin(&HeadListLimits::default());
        let mut list = GET.to_vec();
        list.extend(length.map(|length| ("content-length", length)));
        write_to(&mut request, &list);
        let facts = request.finish(false).expect("a request");
        assert_eq!(facts.content_length, expect);
    }
}

/// RFC 9113 §8.2.3.
#[test]
fn parts_of_a_cookie_become_one_field() {
    let cookies = |values: &[&'static str]| {
        let mut list = GET.to_vec();
        for value in values {
            list.push(("cookie", value));
            list.push(("x", "y"));
        }
        let mut lines = lines_of(&list, true);
        lines.retain(|line| line.starts_with("cookie"));
        lines
    };
    assert_eq!(cookies(&["a=1"]), ["cookie: a=1"]);
    assert_eq!(
        cookies(&["a=1", "b=2; c=3", "d=4"]),
        ["cookie: a=1; b=2; c=3; d=4"]
    );
    assert_eq!(cookies(&["", "a=1", "", "b=2", ""]), ["cookie: a=1; b=2"]);
    assert_eq!(cookies(&["", ""]), ["cookie: "]);
    assert!(cookies(&[]).is_empty());
}

/// RFC 9113 §8.3.1.
#[test]
fn the_host_is_authority_or_an_equal_field() {
    for (authority, host) in [
        ("h", "h"),
        ("h", "H"),
        ("h", "h:443"),
        ("h:443", "h."),
        ("[::1]:80", "[::1]:80"),
    ] {
        let list = [
            GET[0],
            GET[1],
            GET[2],
            (":authority", authority),
            ("host", host),
        ];
        assert_eq!(
            lines_of(&list, true),
            [format!("Host: {authority}")],
            "{host}"
        );
    }
    let list = with(&GET[..3], &[("a", "1"), ("host", "h:1"), ("b", "2")]);
    assert_eq!(lines_of(&list, true), ["a: 1", "host: h:1", "b: 2"]);
    // Port 80 is that of http.
    let list = [
        GET[0],
        (":scheme", "HTTP"),
        GET[2],
        GET[3],
        ("host", "h:80"),
    ];
    assert_eq!(lines_of(&list, true), ["Host: h"]);
    // Without a host, HTTP/1.1 refuses the request.
    let text = text_of(&GET[..3], true).expect("a list");
    assert_eq!(text, "GET / HTTP/1.1\r\n\r\n");
    let parsed = RequestHead::new().parse(text.as_bytes(), &HeadLimits::default());
    assert_eq!(parsed, Parsed::Invalid(crate::http::Fault::HostMissing));
}

#[test]
fn a_client_that_accepts_trailers_is_known() {
    for value in ["trailers", "Trailers"] {
        let list = with(&GET, &[("te", value)]);
        let text = text_of(&list, true).expect("a request");
        let mut head = RequestHead::new();
        let parsed = head.parse(text.as_bytes(), &HeadLimits::default());
        assert_eq!((parsed, head.accepts_trailers()), (Parsed::Complete, true));
    }
}

#[test]
fn lists_within_the_limits_are_accepted_and_no_larger_ones() {
    let limits = |bytes_max, fields_max| HeadListLimits {
        bytes_max,
        fields_max,
    };
    let finish = |limits: HeadListLimits, list: &[(&str, &str)], end| {
        let mut request = RequestText::new();
        request.begin(&limits);
        write_to(&mut request, list);
        request.finish(end).map(|_| request.text().len())
    };
    let bytes = |list: &[(&str, &str)]| {
        let sizes = list
            .iter()
            .map(|(name, value)| name.len() + value.len() + 32);
        sizes.sum::<usize>() as u32
    };
    let list = with(&GET, &[("a", "b"), ("cookie", "c"), ("cookie", "d")]);
    let size = bytes(&list);
    assert!(finish(limits(size, 100), &list, true).is_ok_and(|length| length < size as usize));
    let too_large = HeadFault::TooLarge(Limit::HeadBytes(size as usize - 1));
    assert_eq!(finish(limits(size - 1, 100), &list, true), Err(too_large));
    // Host, a and two parts of the cookie; and the framing.
    assert!(finish(limits(size, 4), &list, true).is_ok());
    let too_many = |fields| Err(HeadFault::TooLarge(Limit::Fields(fields)));
    assert_eq!(finish(limits(size, 3), &list, true), too_many(3));
    assert_eq!(finish(limits(size, 4), &list, false), too_many(4));
    assert!(finish(limits(size, 5), &list, false).is_ok());
    // A refused list takes no memory.
    let mut request = RequestText::new();
    request.begin(&limits(1_000, 100));
    let bomb: Vec<(&str, &str)> = std::iter::repeat_n(("x", "0123456789"), 1_000).collect();
    write_to(&mut request, &with(&GET, &bomb));
    assert!(request.text().len() < 1_000);
}

#[test]
fn the_memory_is_used_again_and_nothing_of_the_last_request_remains() {
    let mut request = RequestText::new();
    let first = with(
        &GET,
        &[("cookie", "secret"), ("content-length", "7"), ("host", "h")],
    );
    for end in [false, true] {
        request.begin(&HeadListLimits::default());
        write_to(&mut request, if end { &GET } else { &first });
        assert!(request.finish(end).is_ok());
    }
    assert_eq!(request.text(), b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(request.finish(true).is_err());
    request.release();
    assert_eq!(request.text(), b"");
}
