//! Request lines, targets and hosts (RFC 9112 §2.2, §3).

use super::*;

const HOST: &str = "Host: h\r\n";

#[test]
fn lines_end_with_both_bytes_and_nothing_else() {
    for (bytes, fault) in [
        (
            &b"GET / HTTP/1.1\nHost: h\r\n\r\n"[..],
            Fault::BareLineFeed { at: 14 },
        ),
        (
            b"GET / HTTP/1.1\r\nHost: h\n\r\n",
            Fault::BareLineFeed { at: 23 },
        ),
        (
            b"GET / HTTP/1.1\r\nHost: h\r\n\n",
            Fault::BareLineFeed { at: 25 },
        ),
        (
            b"GET / HTTP/1.1\r\nHost: h\r\rA: b\r\n\r\n",
            Fault::BareCarriageReturn { at: 23 },
        ),
        (
            b"GET / HTTP/1.1\rHost: h\r\n\r\n",
            Fault::BareCarriageReturn { at: 14 },
        ),
        (
            b"GET / HTTP/1.1\r\nHost: h\r\n\rA: b\r\n\r\n",
            Fault::BareCarriageReturn { at: 25 },
        ),
        (
            b"GET / HTTP/1.1\r\nHost: h\r\nA: b\rc\r\n\r\n",
            Fault::BareCarriageReturn { at: 29 },
        ),
    ] {
        assert_request_fault(bytes, fault);
    }
}

#[test]
fn one_empty_line_may_come_before_the_request() {
    let bytes = b"\r\nGET /a HTTP/1.1\r\nHost: h\r\n\r\n";
    let head = complete_request(bytes);
    assert_eq!((head.length(), head.path(bytes)), (bytes.len(), &b"/a"[..]));
    assert_request_fault(b"\r\n\r\nGET / HTTP/1.1\r\n", Fault::Method { at: 2 });
    assert_request_fault(b"\nGET / HTTP/1.1\r\n", Fault::Method { at: 0 });
    assert_request_fault(b" GET / HTTP/1.1\r\n", Fault::Method { at: 0 });
}

#[test]
fn the_request_line_has_exactly_two_spaces() {
    for (line, fault) in [
        ("GET  / HTTP/1.1", Fault::Byte { at: 4, byte: b' ' }),
        ("GET /  HTTP/1.1", Fault::Version { at: 6 }),
        ("GET / HTTP/1.1 ", Fault::Version { at: 14 }),
        ("GET\t/ HTTP/1.1", Fault::Method { at: 3 }),
        ("GET /\tHTTP/1.1", Fault::Byte { at: 5, byte: b'\t' }),
        ("GET /a b HTTP/1.1", Fault::Version { at: 7 }),
        ("GET /", Fault::Byte { at: 5, byte: b'\r' }),
        ("GET", Fault::Method { at: 3 }),
        ("G@T / HTTP/1.1", Fault::Method { at: 1 }),
        ("G\u{e4}T / HTTP/1.1", Fault::Method { at: 1 }),
        ("\u{16}\u{3}\u{1}\u{2}", Fault::Method { at: 0 }),
    ] {
        assert_request_fault(&request_text(line, HOST), fault);
    }
}

#[test]
fn versions_are_1_0_and_1_1_in_this_case() {
    for (version, fault) in [
        ("HTTP/2.0", Fault::UnsupportedVersion),
        ("HTTP/1.2", Fault::UnsupportedVersion),
        ("HTTP/0.9", Fault::UnsupportedVersion),
        ("http/1.1", Fault::Version { at: 6 }),
        ("HTTP/1.", Fault::Version { at: 13 }),
        ("HTTP/11", Fault::Version { at: 12 }),
        ("HTTP/1.10", Fault::Version { at: 14 }),
        ("HTTP/01.1", Fault::Version { at: 12 }),
        ("HTTPS/1.1", Fault::Version { at: 10 }),
    ] {
        assert_request_fault(&request_text(&format!("GET / {version}"), HOST), fault);
    }
    assert_eq!(Fault::UnsupportedVersion.status(), 505);
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    assert_request_fault(preface, Fault::Target);
}

#[test]
fn methods_that_are_not_known_pass_in_their_case() {
    for method in ["PROPFIND", "get", "M-SEARCH", "X!#$%&'*+.^_`|~9"] {
        let bytes = request_text(&format!("{method} / HTTP/1.1"), HOST);
        let head = complete_request(&bytes);
        assert_eq!(head.method(), Method::Other);
        assert_eq!(head.method_text(&bytes), method.as_bytes());
    }
    let long = request_text(&format!("{} / HTTP/1.1", "A".repeat(33)), HOST);
    assert_request_fault(&long, Fault::MethodTooLong);
    assert_eq!(Fault::MethodTooLong.status(), 501);
}

#[test]
fn connect_is_refused_in_every_form() {
    for target in ["h:443", "/", "http://h/", "*"] {
        let bytes = request_text(&format!("CONNECT {target} HTTP/1.1"), HOST);
        assert_request_fault(&bytes, Fault::Connect);
    }
    assert_eq!(Fault::Connect.status(), 501);
}

#[test]
fn targets_are_read_in_the_forms_of_their_methods() {
    use TargetForm::{Absolute, Asterisk, Origin};
    for (line, form, path, query) in [
        ("GET /", Origin, "/", None),
        ("GET /a%2Fb/../c", Origin, "/a%2Fb/../c", None),
        ("GET //a", Origin, "//a", None),
        ("GET /?", Origin, "/", Some("")),
        ("GET /a?b?c=/d", Origin, "/a", Some("b?c=/d")),
        ("GET /\"<>\\^`{|}", Origin, "/\"<>\\^`{|}", None),
        ("OPTIONS *", Asterisk, "*", None),
        ("OPTIONS /", Origin, "/", None),
        ("GET http://h/a?b", Absolute, "/a", Some("b")),
        ("GET HTTP://H/a", Absolute, "/a", None),
        ("GET https://h:80/a", Absolute, "/a", None),
        ("GET http://h", Absolute, "/", None),
        ("GET http://h?b/c", Absolute, "/", Some("b/c")),
        ("GET http://h:80/", Absolute, "/", None),
        // RFC 9112 §3.2.4: the last proxy sends `*`.
        ("OPTIONS http://h", Absolute, "*", None),
        ("OPTIONS http://h?b", Absolute, "/", Some("b")),
        ("OPTIONS http://h/", Absolute, "/", None),
    ] {
        let https = line.contains("https");
        let host = if https { "Host: h:80\r\n" } else { HOST };
        let bytes = request_text(&format!("{line} HTTP/1.1"), host);
        let head = complete_request(&bytes);
        assert_eq!(head.target_form(), form, "{line}");
        assert_eq!(head.path(&bytes), path.as_bytes(), "{line}");
        assert_eq!(head.query(&bytes), query.map(str::as_bytes), "{line}");
        let is_https = (form == Absolute).then_some(https);
        assert_eq!(head.target_is_https(), is_https, "{line}");
    }
    for target in [
        "a", "h:80", "*", "*/", "ftp://h/", "http:/h", "http:", "http://", "?a", "%2f",
    ] {
        let bytes = request_text(&format!("GET {target} HTTP/1.1"), HOST);
        let (_, parsed) = request(&bytes);
        let refused = matches!(parsed, Parsed::Invalid(Fault::Target | Fault::Host));
        assert!(refused, "{target}: {parsed:?}");
    }
    for (target, at, byte) in [("/#a", 5, b'#'), ("/\u{7f}", 5, 0x7f), ("/\u{e4}", 5, 0xc3)] {
        let bytes = request_text(&format!("GET {target} HTTP/1.1"), HOST);
        assert_request_fault(&bytes, Fault::Byte { at, byte });
    }
}

/// Texts that are no host with an optional port.
const NO_HOSTS: &[&str] = &[
    "",
    ".",
    "..",
    ".a",
    "a..b",
    "a..",
    "a,b",
    "a b",
    "u@h",
    "u:p@h",
    "h/",
    "h/a",
    "h?a",
    "h#a",
    "h:",
    "h:0",
    "h:080",
    "h:65536",
    "h:a",
    "h:+1",
    "h:1:2",
    ":80",
    "%61",
    "a\u{e4}",
    "a\\b",
    "[::1",
    "::1",
    "[::1]a",
    "[::1%25eth0]",
    "[v1.a]",
    "[]",
    "[127.0.0.1]",
    "[::1].",
    "a[",
    "1.2.3",
    "256.1.1.1",
    "0x7f.1",
    "127.0.0.01",
    "1.2.3.4.5",
    "2130706433",
    "0x7f000001",
    "a.1",
];

#[test]
fn hosts_are_names_or_addresses_with_an_optional_port() {
    for (text, host, port) in [
        ("h", "h", None),
        ("Shop.Example:8080", "Shop.Example", Some(8080)),
        ("shop.example.", "shop.example", None),
        ("shop.example.:1", "shop.example", Some(1)),
        ("a_b-c~d.e", "a_b-c~d.e", None),
        ("127.0.0.1:65535", "127.0.0.1", Some(65535)),
        ("[::1]", "[::1]", None),
        ("[2001:DB8::1]:80", "[2001:DB8::1]", Some(80)),
        ("[::ffff:192.0.2.1]", "[::ffff:192.0.2.1]", None),
        ("1a", "1a", None),
        ("1.a", "1.a", None),
    ] {
        let bytes = request_text("GET / HTTP/1.1", &format!("Host: \t{text} \r\n"));
        let head = complete_request(&bytes);
        assert_eq!(head.host(&bytes), Some(host.as_bytes()), "{text}");
        assert_eq!(head.port(), port, "{text}");
        assert_eq!(head.authority(&bytes), Some(text.as_bytes()), "{text}");
    }
    let long = format!("{}.a", "x".repeat(253));
    let long = [long.as_str()];
    for text in NO_HOSTS.iter().chain(&long) {
        let bytes = request_text("GET / HTTP/1.1", &format!("Host: {text}\r\n"));
        assert_request_fault(&bytes, Fault::Host);
        let bytes = request_text(&format!("GET http://{text}/ HTTP/1.1"), HOST);
        let (_, parsed) = request(&bytes);
        // Slash and question mark end the authority of a target.
        let refused = !text.contains(['/', '?']);
        assert_eq!(
            matches!(parsed, Parsed::Invalid(_)),
            refused,
            "{text}: {parsed:?}"
        );
    }
}

#[test]
fn a_host_is_there_exactly_once() {
    let missing = request_text("GET / HTTP/1.1", "A: b\r\n");
    assert_request_fault(&missing, Fault::HostMissing);
    let absolute = request_text("GET http://h/ HTTP/1.1", "");
    assert_request_fault(&absolute, Fault::HostMissing);
    for version in ["1.0", "1.1"] {
        let line = format!("GET / HTTP/{version}");
        let twice = request_text(&line, "Host: h\r\nhost: h\r\n");
        assert_request_fault(&twice, Fault::HostRepeated);
    }
    let old = request_text("GET / HTTP/1.0", "");
    assert_eq!(complete_request(&old).host(&old), None);
    let old = request_text("GET http://h:1/ HTTP/1.0", "");
    assert_eq!(complete_request(&old).host(&old), Some(&b"h"[..]));
}

#[test]
fn the_host_is_that_of_an_absolute_target_or_the_request_is_refused() {
    for (target, host, same) in [
        ("http://h/", "h", true),
        ("http://h/", "H:80", true),
        ("http://h:80/", "h", true),
        ("http://h./", "h", true),
        ("https://h/", "h:443", true),
        ("http://h:8080/", "h:8080", true),
        ("http://[::1]/", "[::1]:80", true),
        ("http://h/", "other", false),
        ("http://h/", "h:8080", false),
        ("https://h/", "h:80", false),
        ("http://h:8080/", "h", false),
        ("http://h/", "hh", false),
    ] {
        let bytes = request_text(
            &format!("GET {target} HTTP/1.1"),
            &format!("Host: {host}\r\n"),
        );
        let (_, parsed) = request(&bytes);
        let expect = match same {
            true => Parsed::Complete,
            false => Parsed::Invalid(Fault::HostDiffers),
        };
        assert_eq!(parsed, expect, "{target} {host}");
    }
}

#[test]
fn user_information_in_a_target_is_refused() {
    for target in ["http://u@h/", "http://u:p@h/", "http://h@/", "http://h?@x"] {
        let bytes = request_text(&format!("GET {target} HTTP/1.1"), HOST);
        let (_, parsed) = request(&bytes);
        // A question mark ends the authority.
        let expect = match target.contains('?') {
            true => Parsed::Complete,
            false => Parsed::Invalid(Fault::Host),
        };
        assert_eq!(parsed, expect, "{target}");
    }
}

#[test]
fn connections_persist_by_version_and_option() {
    for (version, fields, keeps) in [
        ("1.1", "", true),
        ("1.1", "Connection: close\r\n", false),
        ("1.1", "Connection: Close, keep-alive\r\n", false),
        (
            "1.1",
            "Connection: keep-alive\r\nConnection: x, CLOSE\r\n",
            false,
        ),
        ("1.1", "Connection: closed\r\n", true),
        ("1.1", "Connection: ,, ,\r\n", true),
        ("1.0", "", false),
        ("1.0", "Connection: Keep-Alive\r\n", true),
        ("1.0", "Connection: keep-alive, close\r\n", false),
        ("1.0", "Proxy-Connection: keep-alive\r\n", false),
    ] {
        let bytes = request_text(&format!("GET / HTTP/{version}"), &format!("{HOST}{fields}"));
        assert_eq!(
            complete_request(&bytes).keeps_connection(),
            keeps,
            "{version} {fields}"
        );
    }
    for value in ["a b", "close;x", "\"close\"", "a,b c", "clos\u{e9}"] {
        let bytes = request_text("GET / HTTP/1.1", &format!("{HOST}Connection: {value}\r\n"));
        assert_request_fault(&bytes, Fault::Connection);
    }
}

#[test]
fn expectations_are_known_or_refused() {
    let body = "Content-Length: 3\r\n";
    for (version, fields, expects) in [
        ("1.1", "Expect: 100-continue\r\n", Ok(true)),
        ("1.1", "expect: 100-CONTINUE\r\n", Ok(true)),
        ("1.1", "Expect: x\r\n", Err(Fault::Expectation)),
        ("1.1", "Expect:\r\n", Err(Fault::Expectation)),
        (
            "1.1",
            "Expect: 100-continue, x\r\n",
            Err(Fault::Expectation),
        ),
        (
            "1.1",
            "Expect: 100-continue\r\nExpect: 100-continue\r\n",
            Err(Fault::Expectation),
        ),
        ("1.0", "Expect: 100-continue\r\n", Ok(false)),
        ("1.0", "Expect: x\r\n", Ok(false)),
    ] {
        let line = format!("PUT / HTTP/{version}");
        let bytes = request_text(&line, &format!("{HOST}{body}{fields}"));
        match expects {
            Ok(expects) => assert_eq!(complete_request(&bytes).expects_continue(), expects),
            Err(fault) => assert_request_fault(&bytes, fault),
        }
    }
    assert_eq!(Fault::Expectation.status(), 417);
    for fields in ["", "Content-Length: 0\r\n"] {
        let fields = format!("{HOST}Expect: 100-continue\r\n{fields}");
        let bytes = request_text("PUT / HTTP/1.1", &fields);
        assert!(
            !complete_request(&bytes).expects_continue(),
            "no body follows"
        );
    }
}
