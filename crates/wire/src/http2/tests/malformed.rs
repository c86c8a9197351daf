//! Requests that are malformed (RFC 9113 §8.1.1).

use super::*;

#[track_caller]
fn assert_malformed(list: &[(&str, &str)], why: &str) {
    assert_malformed_at(list, true, why);
    assert_malformed_at(list, false, why);
}

#[track_caller]
fn assert_malformed_at(list: &[(&str, &str)], end: bool, why: &str) {
    match text_of(list, end) {
        Err(HeadFault::Malformed(reason)) => assert_eq!(reason, why, "{list:?}"),
        other => panic!("{list:?}: {other:?}"),
    }
}

#[test]
fn pseudo_fields_come_once_and_first() {
    assert_malformed(
        &[GET[0], GET[1], GET[2], ("a", "b"), GET[3]],
        "a pseudo-field after a field",
    );
    for again in GET {
        assert_malformed(&with(&GET, &[again]), "a pseudo-field is there twice");
    }
    for unknown in [(":status", "200"), (":", "x"), (":Path", "/")] {
        assert_malformed(&with(&GET, &[unknown]), "an unknown pseudo-field");
    }
    for left_out in 0..3 {
        let mut list = GET.to_vec();
        list.remove(left_out);
        assert_malformed(&list, "a pseudo-field is missing");
        list.push(("a", "b"));
        assert_malformed(&list, "a pseudo-field is missing");
    }
    assert_malformed(&[], "a pseudo-field is missing");
}

#[test]
fn pseudo_fields_have_valid_values() {
    let replaced = |place: usize, value| {
        let mut list = GET.to_vec();
        list[place].1 = value;
        list
    };
    for method in ["", "GE T", "GET\r\n", "G\u{e9}T", "GET:", "CONNECT"] {
        assert_malformed(&replaced(0, method), ":method is no token, or is CONNECT");
    }
    for scheme in ["", "1http", "ht tp", "http:", "h\u{e9}", "http\r"] {
        assert_malformed(&replaced(1, scheme), ":scheme is no scheme");
    }
    for path in [
        "",
        "*",
        "a",
        "http://h/",
        "?a",
        "/ HTTP/1.1",
        "/a b",
        "/\r\n",
        "/\n",
        "/\0",
        "/\t",
        "/\u{e9}",
        "/\u{7f}",
        "/a#b",
        " /",
    ] {
        assert_malformed(&replaced(2, path), ":path is no path");
    }
    for authority in [
        "",
        "user@h",
        "h/",
        "h,i",
        "h:",
        "h:0",
        "h:99999",
        "a..b",
        "h\r\nx: y",
        " h",
        "h ",
        "[::1",
        "h?",
        "h#",
        "1.2.3",
        "h\\",
        "h%41",
    ] {
        assert_malformed(&replaced(3, authority), ":authority is no name or address");
    }
}

/// RFC 9113 §8.5 has CONNECT without :scheme and :path.
#[test]
fn an_ordinary_connect_is_refused() {
    let connect = [(":method", "CONNECT"), (":authority", "h:1")];
    assert_malformed(&connect, "a pseudo-field is missing");
    let with_path = [(":method", "CONNECT"), GET[1], GET[2], GET[3]];
    assert_malformed(&with_path, ":method is no token, or is CONNECT");
}

/// RFC 8441 §4.
#[test]
fn an_extended_connect_names_its_protocol_and_target() {
    let connect = (":method", "CONNECT");
    let protocol = (":protocol", "websocket");
    let list = [connect, protocol, GET[1], GET[2], GET[3]];
    for left_out in [0, 2, 3] {
        let mut list = list.to_vec();
        list.remove(left_out);
        assert_malformed(&list, "a pseudo-field is missing");
    }
    let again = with(&list, &[protocol]);
    assert_malformed(&again, "a pseudo-field is there twice");
    let late = [connect, GET[1], GET[2], GET[3], ("a", "b"), protocol];
    assert_malformed(&late, ":method is no token, or is CONNECT");
    for method in ["GET", "POST", "connect"] {
        let other = [(":method", method), protocol, GET[1], GET[2], GET[3]];
        assert_malformed(&other, ":protocol without CONNECT");
    }
    for protocol in ["", "web socket", "a/b", "web\r\nsocket", "w\u{e9}b"] {
        let other = [connect, (":protocol", protocol), GET[1], GET[2], GET[3]];
        assert_malformed(&other, ":protocol is no token");
    }
    let server = [connect, protocol, GET[1], (":path", "*"), GET[3]];
    assert_malformed(&server, ":path is no path");
    for length in ["0", "5"] {
        let body = with(&list, &[("content-length", length)]);
        assert_malformed(&body, "a Content-Length in a CONNECT");
    }
    for (name, value) in [("upgrade", "websocket"), ("connection", "upgrade")] {
        assert_malformed(&with(&list, &[(name, value)]), "a field of a connection");
    }
}

/// RFC 9113 §8.2.1.
#[test]
fn names_are_tokens_in_lower_case() {
    for name in [
        "",
        "A",
        "Accept",
        "accepT",
        "user-Agent",
        "content-lengtH",
        "a b",
        " a",
        "a ",
        "a\r\nb",
        "a\n",
        "a\0",
        "a:",
        "a:b",
        "\u{e9}",
        "a\u{7f}",
        "a\"",
        "(a)",
        "a,",
        "a/b",
        "a@b",
        "a[b",
        "a{b",
        "a\t",
        "abcdefgh:",
        "abcdefghI",
        "abcdefgHi",
        "abcdefgh\u{e9}",
    ] {
        assert_malformed(
            &with(&GET, &[(name, "x")]),
            "a name is no token in lower case",
        );
    }
    for name in [
        "a",
        "x_y",
        "x.y",
        "0",
        "!#$%&'*+-.^_`|~",
        "abcdefgh",
        "abcdefghi-9",
    ] {
        let expect = ["Host: h".to_owned(), format!("{name}: x")];
        assert_eq!(lines_of(&with(&GET, &[(name, "x")]), true), expect);
    }
}

/// RFC 9113 §8.2.1.
#[test]
fn values_have_no_controls_and_no_space_around_them() {
    for value in [
        "\0",
        "a\r\nb: c",
        "a\n",
        "a\rb",
        "\x01",
        "\x7f",
        "0123456789abcdef0123456789\r\n6",
    ] {
        for name in ["x", "cookie", "host", "content-length", "te"] {
            assert_malformed(
                &with(&GET, &[(name, value)]),
                "a control character in a value",
            );
        }
    }
    for value in [" ", " a", "a ", "\ta", "a\t"] {
        assert_malformed(&with(&GET, &[("x", value)]), "a space around a value");
        assert_malformed(&with(&GET, &[("cookie", value)]), "a space around a value");
    }
    for value in ["a b", "a\tb", "\u{e9}", "\"", ":"] {
        let expect = ["Host: h".to_owned(), format!("x: {value}")];
        assert_eq!(lines_of(&with(&GET, &[("x", value)]), true), expect);
    }
}

/// RFC 9113 §8.2.2.
#[test]
fn fields_of_a_connection_are_refused() {
    for (name, value) in [
        ("connection", "keep-alive"),
        ("connection", ""),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("transfer-encoding", "chunked"),
        ("transfer-encoding", "identity"),
        ("upgrade", "websocket"),
        ("http2-settings", "AAMAAABkAAQAAP__"),
    ] {
        assert_malformed(&with(&GET, &[(name, value)]), "a field of a connection");
    }
    for value in ["", "gzip", "trailers, gzip", "trailers;q=1"] {
        let list = with(&GET, &[("te", value)]);
        assert_malformed(&list, "TE has another value than trailers");
    }
}

#[test]
fn there_is_one_host() {
    for host in ["i", "h:80", "h:8443", "", "h,h", "h/"] {
        let list = with(&GET, &[("host", host)]);
        assert_malformed(&list, "Host differs from :authority");
    }
    let list = with(&GET, &[("host", "h"), ("host", "h")]);
    assert_malformed(&list, "there is more than one Host");
    let list = with(&GET[..3], &[("host", "h"), ("host", "h")]);
    assert_malformed(&list, "there is more than one Host");
    for host in ["", "a b", "u@h", "h:x"] {
        let list = with(&GET[..3], &[("host", host)]);
        assert_malformed(&list, "Host is no name or address");
    }
}

/// RFC 9113 §8.1.1, RFC 9110 §8.6.
#[test]
fn there_is_one_content_length() {
    for length in [
        "",
        "-1",
        "+1",
        "1a",
        "0x1",
        "1, 1",
        "1 1",
        "9223372036854775808",
        "1.0",
    ] {
        let list = with(&GET, &[("content-length", length)]);
        assert_malformed(&list, "Content-Length is not one number");
    }
    let list = with(&GET, &[("content-length", "1"), ("content-length", "1")]);
    assert_malformed(&list, "Content-Length is not one number");
    let list = with(&GET, &[("content-length", "1")]);
    assert_malformed_at(&list, true, "a Content-Length without a body");
}

#[test]
fn the_first_fault_remains() {
    let list = with(&GET, &[("A", ""), ("b", "\0"), ("connection", "")]);
    assert_malformed(&list, "a name is no token in lower case");
}
