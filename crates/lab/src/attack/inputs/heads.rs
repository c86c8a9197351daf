//! Inputs whose start line or fields are hostile.

use super::{CONTROLS, Input, SMUGGLED, add, get, post};

pub(super) fn line_ends(inputs: &mut Vec<Input>) {
    let lines = [
        "POST /idmark/outer HTTP/1.1",
        "Host: a",
        "Content-Length: 5",
        "X: y",
        "",
    ];
    for end in [
        "\n",
        "\r",
        "\r\r\n",
        "\n\r",
        "\r\n\n",
        " \r\n",
        "\u{b}\r\n",
        "\0\r\n",
    ] {
        for wrong in 0..lines.len() {
            let ends = (0..lines.len()).map(|at| if at == wrong { end } else { "\r\n" });
            let head: String = lines
                .iter()
                .zip(ends)
                .flat_map(|(line, end)| [*line, end])
                .collect();
            let text = format!("{head}hello{SMUGGLED}");
            add(inputs, "line end", &format!("{end} at {wrong}"), text);
        }
    }
}

pub(super) fn controls(inputs: &mut Vec<Input>) {
    for byte in CONTROLS.into_iter().chain([0x80, 0xA0, 0xFF]) {
        let parts: [(&str, &[u8], &[u8]); 6] = [
            (
                "method",
                b"GE",
                b"T /idmark/outer HTTP/1.1\r\nHost: a\r\n\r\n",
            ),
            (
                "target",
                b"GET /idmark/ou",
                b"ter HTTP/1.1\r\nHost: a\r\n\r\n",
            ),
            (
                "version",
                b"GET /idmark/outer HTTP/1.1",
                b"\r\nHost: a\r\n\r\n",
            ),
            (
                "name",
                b"GET /idmark/outer HTTP/1.1\r\nHost: a\r\nX",
                b"Y: z\r\n\r\n",
            ),
            (
                "value",
                b"GET /idmark/outer HTTP/1.1\r\nHost: a\r\nX: y",
                b"z\r\n\r\n",
            ),
            (
                "host",
                b"GET /idmark/outer HTTP/1.1\r\nHost: a",
                b"b\r\n\r\n",
            ),
        ];
        for (place, before, after) in parts {
            let bytes = [before, &[byte], after, SMUGGLED.as_bytes()].concat();
            add(inputs, "byte in", &format!("{place} {byte:#04x}"), bytes);
        }
    }
}

pub(super) fn request_lines(inputs: &mut Vec<Input>) {
    for line in [
        "GET /idmark/outer HTTP/1.1",
        " GET /idmark/outer HTTP/1.1",
        "GET  /idmark/outer HTTP/1.1",
        "GET /idmark/outer  HTTP/1.1",
        "GET\t/idmark/outer\tHTTP/1.1",
        "GET /idmark/outer HTTP/1.1 ",
        "GET /idmark/outer",
        "GET /idmark/outer ",
        "GET /idmark/outer HTTP/0.9",
        "GET /idmark/outer HTTP/1.2",
        "GET /idmark/outer HTTP/1.9",
        "GET /idmark/outer HTTP/2.0",
        "GET /idmark/outer HTTP/1.10",
        "GET /idmark/outer HTTP/1",
        "GET /idmark/outer HTTP/11",
        "GET /idmark/outer http/1.1",
        "GET /idmark/outer HTTP /1.1",
        "GET /idmark/outer HTTP/1.1x",
        "GET /idmark/outer HTTP/01.1",
        "GET /idmark/outer HTTP/+1.1",
        "GET /idmark/outer HTTP/1,1",
        "GET /idmark/outer HTTP/1.1 HTTP/1.1",
        "GET /idmark/outer /idmark/other HTTP/1.1",
        "GET /idmark/outer HTTPS/1.1",
        "GET /idmark/outer HTTP/1.0",
        "\r\nGET /idmark/outer HTTP/1.1",
        "\r\n\r\nGET /idmark/outer HTTP/1.1",
        "\nGET /idmark/outer HTTP/1.1",
        "GET /idmark/outer\u{a0}HTTP/1.1",
        "GET /idmark/outer HTTP/\u{661}.1",
    ] {
        let text = format!("{line}\r\nHost: a\r\nConnection: keep-alive\r\n\r\n{SMUGGLED}");
        add(inputs, "request line", line, text);
    }
}

pub(super) fn hosts(inputs: &mut Vec<Input>) {
    for host in [
        "", " ", "a,b", "a, b", "a b", "a/b", "a@b", "u:p@a", "a?b", "a#b", "a\\b", "a:80", "a:",
        "a:99999", "a:-1", "a:8 0", "a:80:80", "a:x", "[::1]", "[::1]:80", "[::1", "::1", "%41",
        "a..b", ".a", "a.", "a_b", "\"a\"", "a;b", "a'b", "http://a", "a\tb", "\u{e9}", "a%00b",
        "127.1", "a:0x50", "*",
    ] {
        let text = format!("GET /idmark/outer HTTP/1.1\r\nHost: {host}\r\n\r\n{SMUGGLED}");
        add(inputs, "host", host, text);
    }
    for (name, fields) in [
        ("missing", ""),
        ("twice", "Host: a\r\nHost: a\r\n"),
        ("two", "Host: a\r\nHost: b\r\n"),
        ("alias", "Host: a\r\nX_Host: b\r\n"),
        ("space", "Host : a\r\n"),
        ("folded", "Host:\r\n a\r\n"),
        ("only alias", "Ho_st: a\r\n"),
        ("nul", "Host: a\0\r\n"),
        ("late", "X: y\r\nhOST: a\r\n"),
    ] {
        let text = format!("GET /idmark/outer HTTP/1.1\r\n{fields}\r\n{SMUGGLED}");
        add(inputs, "host", name, text);
    }
}

pub(super) fn targets(inputs: &mut Vec<Input>) {
    for target in [
        "http://a/idmark/outer",
        "http://b/idmark/outer",
        "HTTP://A/idmark/outer",
        "https://a/idmark/outer",
        "http://a:80/idmark/outer",
        "http://a@b/idmark/outer",
        "http:///idmark/outer",
        "http://a?idmark",
        "http://a#idmark",
        "http:/idmark/outer",
        "//a/idmark/outer",
        "ftp://a/idmark/outer",
        "a:80",
        "*",
        "/idmark/*",
        "/idmark/../x",
        "/idmark/%2e%2e/x",
        "/idmark/%2f",
        "/idmark/%00",
        "/idmark/a#b",
        "/idmark/a?b?c",
        "idmark/outer",
        "?idmark",
        "/idmark\\x",
        "\\idmark",
        "/idmark/%",
        "/idmark/%zz",
        "/idmark/\"x\"",
        "/idmark/<x>",
        "/idmark/{x}",
        "/idmark/a|b",
        "/idmark/a;b=c",
        "javascript:idmark",
        "http://a/idmark/ x",
        "http://a,b/idmark/",
        "http://[::1]/idmark/outer",
        "http://a:/idmark/outer",
        "/idmark/é",
        "/idmark/\u{1f600}",
        ".",
        "/./idmark",
        "http://a\\idmark",
    ] {
        let text = format!("GET {target} HTTP/1.1\r\nHost: a\r\nX-Id: idmark\r\n\r\n{SMUGGLED}");
        add(inputs, "target", target, text);
    }
    for target in ["*", "http://a", "http://a/", "/idmark/x"] {
        let text = format!("OPTIONS {target} HTTP/1.1\r\nHost: a\r\nX-Id: idmark\r\n\r\n");
        add(inputs, "target of OPTIONS", target, text);
    }
}

pub(super) fn methods(inputs: &mut Vec<Input>) {
    for method in [
        "get", "Get", "G@T", "GET/", "GET:", "\"GET\"", "PRI", "CONNECT", "TRACE", "M-SEARCH",
        "QUERY", "FOO!", "A'B", "GÉT", "", "GET\0", "PROPFIND",
    ] {
        let text = format!("{method} /idmark/outer HTTP/1.1\r\nHost: a\r\n\r\n{SMUGGLED}");
        add(inputs, "method", method, text);
    }
    let long = "M".repeat(300);
    add(
        inputs,
        "method",
        "300 bytes",
        format!("{long} /idmark/outer HTTP/1.1\r\nHost: a\r\n\r\n"),
    );
    add(
        inputs,
        "preface of",
        "HTTP/2",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nID",
    );
    let connect = format!("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\nX-Id: idmark\r\n\r\n{SMUGGLED}");
    add(inputs, "CONNECT with", "payload", connect);
}

pub(super) fn connections(inputs: &mut Vec<Input>) {
    for options in [
        "Content-Length",
        "Transfer-Encoding",
        "Host",
        "Authorization",
        "Cookie",
        "X-Forwarded-For",
        "X-Id",
        "close, Content-Length",
        "close",
        "keep-alive",
        "close, keep-alive",
        "Connection",
        "Upgrade",
        "TE",
        ",",
        "a b",
        "\"close\"",
        "close;",
        "clos\0e",
        "X-Forwarded-Host",
        "Via",
        "content-length,host,transfer-encoding",
    ] {
        let more =
            format!("Connection: {options}\r\nX-Id: idmark\r\nAuthorization: x\r\nCookie: a=b\r\n");
        let length = post(
            &format!("{more}Content-Length: 5\r\n"),
            &format!("hello{SMUGGLED}"),
        );
        add(inputs, "nominated", options, length);
        let chunks = format!("5\r\nhello\r\n0\r\n\r\n{SMUGGLED}");
        let chunked = post(&format!("{more}Transfer-Encoding: chunked\r\n"), &chunks);
        add(inputs, "nominated in chunks", options, chunked);
    }
}

pub(super) fn upgrades(inputs: &mut Vec<Input>) {
    let socket = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for upgrade in [
        "websocket",
        "h2c",
        "h2c, websocket",
        "TLS/1.0",
        "websocket, h2c",
        "foo",
        "",
    ] {
        let fields = format!("Connection: Upgrade\r\nUpgrade: {upgrade}\r\n{socket}");
        add(
            inputs,
            "upgrade",
            upgrade,
            format!("{}{SMUGGLED}", get(&fields)),
        );
        let body = format!("{fields}Content-Length: 5\r\n");
        add(
            inputs,
            "upgrade with body",
            upgrade,
            post(&body, &format!("hello{SMUGGLED}")),
        );
        let body = format!("{fields}Content-Length: {}\r\n", SMUGGLED.len());
        add(
            inputs,
            "upgrade of GET with body",
            upgrade,
            format!("{}{SMUGGLED}", get(&body)),
        );
        let body = format!("{fields}Transfer-Encoding: chunked\r\n");
        let chunks = format!("5\r\nhello\r\n0\r\n\r\n{SMUGGLED}");
        add(inputs, "upgrade with chunks", upgrade, post(&body, &chunks));
    }
    for expect in [
        "100-continue",
        "100-CONTINUE",
        "100-continue, foo",
        "foo",
        "",
        "100-continue;a",
    ] {
        let fields = format!("Expect: {expect}\r\nContent-Length: 5\r\n");
        add(
            inputs,
            "expect",
            expect,
            post(&fields, &format!("hello{SMUGGLED}")),
        );
        let fields = format!("Expect: {expect}\r\n");
        add(
            inputs,
            "expect without body",
            expect,
            format!("{}{SMUGGLED}", get(&fields)),
        );
    }
}

pub(super) fn aliases(inputs: &mut Vec<Input>) {
    for name in [
        "X_Forwarded_For",
        "X.Forwarded.For",
        "X-Forwarded_For",
        "X-Forwarded-For",
        "Forwarded",
        "X_Real_IP",
        "X-Real-IP",
        "X_Forwarded_Proto",
        "X-Forwarded-Host",
        "X-Forwarded-Port",
        "Client_Cert",
        "Keep_Alive",
        "Proxy-Connection",
        "Proxy",
        "X_Other",
        "Connection_",
        "Sec_WebSocket_Key",
    ] {
        let fields = format!("{name}: 9.9.9.9\r\n");
        add(inputs, "alias", name, format!("{}{SMUGGLED}", get(&fields)));
    }
}

pub(super) fn folds(inputs: &mut Vec<Input>) {
    for fields in [
        "X: y\r\n z\r\n",
        "X: y\r\n\tz\r\n",
        " X: y\r\n",
        "X:\r\n y\r\n",
        "X: y\r\n \r\n",
        ": y\r\n",
        "X\r\n",
        "X:\r\n",
        "X y: z\r\n",
        "(X): y\r\n",
        "X: y\r\n\r\n",
        "X:y:z\r\n",
        "X,Y: z\r\n",
        "X\"Y\": z\r\n",
        "\u{e9}: y\r\n",
        "X: \u{e9}\r\n",
        "X: y\r\n : z\r\n",
    ] {
        add(
            inputs,
            "field",
            fields,
            format!("{}{SMUGGLED}", get(fields)),
        );
    }
}

pub(super) fn truncated(inputs: &mut Vec<Input>) {
    let whole = post(
        "Transfer-Encoding: chunked\r\n",
        "5\r\nhello\r\n0\r\nA: b\r\n\r\n",
    );
    for length in (1..whole.len()).step_by(7) {
        add(
            inputs,
            "cut at",
            &length.to_string(),
            &whole.as_bytes()[..length],
        );
    }
    let whole = post("Content-Length: 5\r\n", "hello");
    for missing in 1..8 {
        let bytes = &whole.as_bytes()[..whole.len() - missing];
        add(inputs, "cut by", &missing.to_string(), bytes);
    }
}
