//! Lists hostile responses. Sections are of RFC 9112 where no other is named.

/// Response that no request asked for.
pub(super) const POISON: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";

/// Result at the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// 502: nothing of the response was passed on.
    BadGateway,
    /// 504: the server was silent.
    Timeout,
    /// The connection is reset within the response.
    Cut,
    /// Status and body of a complete response.
    Whole(u16, String),
}

/// Response of a server.
pub(super) struct Case {
    pub(super) name: String,
    pub(super) method: &'static str,
    pub(super) bytes: Vec<u8>,
    pub(super) outcome: Outcome,
    /// True if the server ends the connection after it.
    pub(super) ends: bool,
    /// True if a response follows that no request asked for.
    pub(super) is_followed: bool,
}

impl Case {
    fn new(name: &str, bytes: impl Into<Vec<u8>>, outcome: Outcome) -> Case {
        Case {
            name: name.to_owned(),
            method: "GET",
            bytes: bytes.into(),
            outcome,
            ends: false,
            is_followed: true,
        }
    }

    fn ending(self) -> Case {
        Case { ends: true, ..self }
    }

    fn silent(self) -> Case {
        Case {
            is_followed: false,
            ..self
        }
    }

    fn of(self, method: &'static str) -> Case {
        Case { method, ..self }
    }
}

use Outcome::{BadGateway, Cut, Timeout};

fn whole(status: u16, body: &str) -> Outcome {
    Outcome::Whole(status, body.to_owned())
}

/// Returns a response of status 200 with these fields and body.
fn response(fields: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\n{fields}\r\n{body}")
}

/// Returns all cases.
pub(super) fn all() -> Vec<Case> {
    [
        status_lines(),
        interim(),
        fields(),
        sizes(),
        lengths(),
        codings(),
        chunks(),
        chunk_ends(),
        without_body(),
        ends(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns start lines that are none (§4).
fn status_lines() -> Vec<Case> {
    let lines = [
        "HTTP/2 200 OK",
        "HTTP/2.0 200 OK",
        "HTTP/0.9 200 OK",
        "HTTP/1.10 200 OK",
        "HTTP/1. 200 OK",
        "http/1.1 200 OK",
        "ICY 200 OK",
        "SSH-2.0-OpenSSH",
        "220 mail.example ESMTP",
        "GET / HTTP/1.1",
        "<html>",
        " HTTP/1.1 200 OK",
        "HTTP/1.1  200 OK",
        "HTTP/1.1\t200 OK",
        "HTTP/1.1 200OK",
        "HTTP/1.1 20 OK",
        "HTTP/1.1 99 OK",
        "HTTP/1.1 099 OK",
        "HTTP/1.1 000 OK",
        "HTTP/1.1 1000 OK",
        "HTTP/1.1 2000",
        "HTTP/1.1 -20 OK",
        "HTTP/1.1 +20 OK",
        "HTTP/1.1 2OO OK",
        "HTTP/1.1 0x1 OK",
        "HTTP/1.1 200 O\0K",
        "HTTP/1.1 200 O\rK",
        "HTTP/1.1 200 O\x7fK",
        "HTTP/1.1",
        "HTTP/1.1 ",
        "",
    ];
    let lines = lines.into_iter().map(|line| {
        let bytes = format!("{line}\r\nContent-Length: 2\r\n\r\nok");
        Case::new(&format!("start line {line:?}"), bytes, BadGateway)
    });
    lines.collect()
}

/// Returns interim responses that are not, and floods of them (RFC 9110 §15.2).
fn interim() -> Vec<Case> {
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n";
    let last = response("Content-Length: 2\r\n", "ok");
    let upgrade =
        "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n";
    vec![
        Case::new(
            "101 without a request for it",
            format!("{upgrade}\r\n"),
            BadGateway,
        ),
        Case::new(
            "101 with a length",
            format!("{upgrade}Content-Length: 2\r\n\r\nok"),
            BadGateway,
        ),
        // No interim response has a body, whatever its fields say (§6.3).
        Case::new(
            "103 with a length",
            hints.replace("Link: </a>", "Content-Length: 2") + &last,
            whole(200, "ok"),
        ),
        Case::new(
            "103 with a length and a body",
            hints.replace("Link: </a>", "Content-Length: 2") + "ok" + &last,
            BadGateway,
        ),
        Case::new(
            "103 with a coding",
            hints.replace("Link: </a>", "Transfer-Encoding: chunked") + &last,
            whole(200, "ok"),
        ),
        // Each is read and dropped.
        Case::new(
            "10,000 of 103",
            hints.repeat(10_000) + &last,
            whole(200, "ok"),
        ),
        Case::new(
            "100 and an end",
            "HTTP/1.1 100 Continue\r\n\r\n",
            BadGateway,
        )
        .ending(),
        Case::new("103 and silence", hints, Timeout).silent(),
    ]
}

/// Returns malformed fields (§5).
fn fields() -> Vec<Case> {
    let lines: [(&str, &[u8]); 17] = [
        ("no colon", b"Abc"),
        ("no name", b": b"),
        (
            "a space before the colon of a length",
            b"Content-Length : 5",
        ),
        ("a space in the name", b"A B: c"),
        ("NUL in the name", b"A\0: b"),
        ("a byte above 127 in the name", b"A\x80: b"),
        ("a quotation mark in the name", b"A\": b"),
        ("NUL in the value", b"A: b\0c"),
        ("bare CR in the value", b"A: b\rc"),
        ("bare CR at the end of the value", b"A: b\r"),
        ("bare LF in the value", b"A: b\nc: d"),
        ("LF before a second length", b"A: b\nContent-Length: 0"),
        ("an escape in the value", b"A: \x1b[31m"),
        ("DEL in the value", b"A: \x7f"),
        ("a vertical tab before the value", b"A:\x0bb"),
        ("a folded length", b"Content-Length:\r\n 5"),
        (
            "a length that is folded into another field",
            b"A: b\r\n\tContent-Length: 9\r\nContent-Length: 2",
        ),
    ];
    let lines = lines.into_iter().map(|(name, line)| {
        let mut bytes = b"HTTP/1.1 200 OK\r\n".to_vec();
        bytes.extend_from_slice(line);
        bytes.extend_from_slice(b"\r\nContent-Length: 2\r\n\r\nok");
        Case::new(&format!("field with {name}"), bytes, BadGateway)
    });
    let ends = ["\n", "\r", "\r\r\n", "\n\r\n", "\r\n\n"];
    let ends = ends.into_iter().flat_map(|end| {
        let each = response("Content-Length: 2\r\n", "ok").replace("\r\n", end);
        let first = format!("HTTP/1.1 200 OK{end}Content-Length: 2\r\n\r\nok");
        [
            Case::new(&format!("lines that end with {end:?}"), each, BadGateway).ending(),
            Case::new(
                &format!("a start line that ends with {end:?}"),
                first,
                BadGateway,
            )
            .ending(),
        ]
    });
    let first = "HTTP/1.1 200 OK\r\n Content-Length: 0\r\nContent-Length: 2\r\n\r\nok";
    lines
        .chain(ends)
        .chain([Case::new(
            "a first field with a space before it",
            first,
            BadGateway,
        )])
        .collect()
}

fn sizes() -> Vec<Case> {
    let long = format!("A: {}\r\nContent-Length: 2\r\n", "b".repeat(100_000));
    let many = "A: b\r\n".repeat(2_000) + "Content-Length: 2\r\n";
    let name = format!("{}: b\r\nContent-Length: 2\r\n", "a".repeat(100_000));
    vec![
        Case::new("a field of 100 kB", response(&long, "ok"), BadGateway),
        Case::new("2,000 fields", response(&many, "ok"), BadGateway),
        Case::new("a name of 100 kB", response(&name, "ok"), BadGateway),
        Case::new(
            "a reason of 100 kB",
            response("Content-Length: 2\r\n", "ok").replace("OK", &"x".repeat(100_000)),
            BadGateway,
        ),
        Case::new("spaces without end", " ".repeat(200_000), BadGateway),
    ]
}

/// Returns lengths that are ambiguous or none (§6.2, §6.3).
fn lengths() -> Vec<Case> {
    let values = [
        "+2",
        "-2",
        "-0",
        "0x2",
        "2 2",
        "2,2",
        "2, 3",
        "2;",
        "",
        "2.0",
        "2e0",
        "two",
        "\"2\"",
        "2\u{a0}",
        "18446744073709551618",
        "9223372036854775808",
        "99999999999999999999999999999",
    ];
    let values = values.into_iter().map(|value| {
        let bytes = response(&format!("Content-Length: {value}\r\n"), "ok");
        Case::new(&format!("length {value:?}"), bytes, BadGateway)
    });
    let several = [
        ("two lengths", "Content-Length: 2\r\nContent-Length: 3\r\n"),
        (
            "two equal lengths",
            "Content-Length: 2\r\nContent-Length: 2\r\n",
        ),
        (
            "length and identity",
            "Content-Length: 2\r\nTransfer-Encoding: identity\r\n",
        ),
    ];
    let several = several.into_iter().map(|(name, fields)| {
        Case::new(name, response(fields, "2\r\nok\r\n0\r\n\r\n"), BadGateway)
    });
    // The coding decides, and the length is not passed on; the connection has one response (§6.1).
    let both = [
        "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\ncontent-length: 2\r\n",
        "Transfer-Encoding:\r\n chunked\r\nContent-Length: 2\r\n",
    ];
    let both = both.into_iter().flat_map(|fields| {
        let bytes = response(fields, "2\r\nok\r\n0\r\n\r\n");
        let case = || {
            Case::new(
                &format!("both of {fields:?}"),
                bytes.clone(),
                whole(200, "ok"),
            )
        };
        [case(), case().silent()]
    });
    values.chain(several).chain(both).collect()
}

/// Returns codings that are not `chunked` alone (§6.1).
fn codings() -> Vec<Case> {
    let values = [
        "gzip",
        "gzip, chunked",
        "chunked, gzip",
        "chunked, chunked",
        "chunked, identity",
        "identity",
        "xchunked",
        "chunked;q=1",
        "\"chunked\"",
        "chunked,",
        "\u{b}chunked",
        "chunk\u{212a}ed",
        "",
    ];
    let values = values.into_iter().map(|value| {
        let fields = format!("Transfer-Encoding: {value}\r\n");
        let bytes = response(&fields, "2\r\nok\r\n0\r\n\r\n");
        Case::new(&format!("coding {value:?}"), bytes, BadGateway)
    });
    let twice = "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n";
    let old = response("Transfer-Encoding: chunked\r\n", "2\r\nok\r\n0\r\n\r\n");
    values
        .chain([
            Case::new(
                "two codings",
                response(twice, "2\r\nok\r\n0\r\n\r\n"),
                BadGateway,
            ),
            Case::new(
                "a coding of HTTP/1.0",
                old.replace("HTTP/1.1", "HTTP/1.0"),
                BadGateway,
            ),
        ])
        .collect()
}

fn chunked(body: impl AsRef<str>) -> String {
    response("Transfer-Encoding: chunked\r\n", body.as_ref())
}

/// Returns malformed chunks (§7.1); the first one is correct, so that the head is passed on.
fn chunks() -> Vec<Case> {
    let second = [
        "-2\r\nok\r\n0\r\n\r\n",
        "+2\r\nok\r\n0\r\n\r\n",
        "0x2\r\nok\r\n0\r\n\r\n",
        " 2\r\nok\r\n0\r\n\r\n",
        "2_\r\nok\r\n0\r\n\r\n",
        "g\r\nok\r\n0\r\n\r\n",
        "\r\nok\r\n0\r\n\r\n",
        "00000000000000002\r\nok\r\n0\r\n\r\n",
        "ffffffffffffffff\r\nok\r\n0\r\n\r\n",
        "10000000000000002\r\nok\r\n0\r\n\r\n",
        "2\nok\r\n0\r\n\r\n",
        "2\rok\r\n0\r\n\r\n",
        "2\r\nok0\r\n\r\n",
        "2\r\nok\n0\r\n\r\n",
        "2\r\nokk\r\n0\r\n\r\n",
        "2;a\nb\r\nok\r\n0\r\n\r\n",
        "2;a\0b\r\nok\r\n0\r\n\r\n",
        "2;a=\"b\r\nok\r\n0\r\n\r\n",
        "2 x\r\nok\r\n0\r\n\r\n",
    ];
    let cases = second.into_iter().map(|second| {
        let bytes = chunked(format!("5\r\nfirst\r\n{second}"));
        Case::new(&format!("chunk {second:?}"), bytes, Cut)
    });
    let long = format!("5\r\nfirst\r\n2;{}\r\nok\r\n0\r\n\r\n", "a".repeat(100_000));
    cases
        .chain([Case::new("a chunk extension of 100 kB", chunked(long), Cut)])
        .collect()
}

/// Returns ends of chunked bodies that are malformed, and bytes after correct ones (§7.1.2).
fn chunk_ends() -> Vec<Case> {
    let bad = [
        ("a trailer without a colon", "0\r\nabc\r\n\r\n"),
        ("a trailer that is folded", "0\r\nA: b\r\n c\r\n\r\n"),
        ("a trailer with bare LF", "0\r\nA: b\n\r\n\r\n"),
        ("a last chunk of -0", "-0\r\n\r\n"),
        ("a last chunk and a byte", "0\r\nx\r\n\r\n"),
    ];
    let bad = bad
        .into_iter()
        .map(|(name, end)| Case::new(name, chunked(format!("5\r\nfirst\r\n{end}")), Cut));
    let large = format!("5\r\nfirst\r\n0\r\nA: {}\r\n\r\n", "b".repeat(100_000));
    let twice = "5\r\nfirst\r\n0\r\n\r\n0\r\n\r\n";
    bad.chain([
        Case::new("trailers of 100 kB", chunked(large), Cut),
        Case::new("two last chunks", chunked(twice), whole(200, "first")),
        Case::new("no last chunk", chunked("5\r\nfirst\r\n"), Cut).ending(),
        Case::new("an end within a chunk", chunked("5\r\nfir"), Cut).ending(),
        Case::new(
            "an end after the last chunk's size",
            chunked("5\r\nfirst\r\n0\r\n"),
            Cut,
        )
        .ending(),
        Case::new("silence within a chunk", chunked("5\r\nfir"), Cut).silent(),
    ])
    .collect()
}

/// Returns bodies where none can be (§6.3).
fn without_body() -> Vec<Case> {
    let with = |status: &str, fields: &str| format!("HTTP/1.1 {status}\r\n{fields}\r\n");
    let length = "Content-Length: 2\r\n";
    vec![
        Case::new(
            "204 and bytes",
            with("204 No Content", "") + "ok",
            whole(204, ""),
        ),
        Case::new(
            "204 with a length",
            with("204 No Content", length) + "ok",
            whole(204, ""),
        ),
        Case::new(
            "204 in chunks",
            with("204 No Content", "Transfer-Encoding: chunked\r\n") + "0\r\n\r\n",
            whole(204, ""),
        ),
        Case::new(
            "304 and a body",
            with("304 Not Modified", length) + "ok",
            whole(304, ""),
        ),
        Case::new(
            "a body for HEAD",
            with("200 OK", length) + "ok",
            whole(200, ""),
        )
        .of("HEAD"),
        Case::new(
            "a body in chunks for HEAD",
            chunked("2\r\nok\r\n0\r\n\r\n"),
            whole(200, ""),
        )
        .of("HEAD"),
    ]
}

/// Returns correct responses that are not the end of what the server sends, and early ends.
fn ends() -> Vec<Case> {
    let good = response("Content-Length: 2\r\n", "ok");
    let close = response("Content-Length: 2\r\nConnection: close\r\n", "ok");
    let empty = response("Content-Length: 0\r\n", "");
    let silent = response("Content-Length: 9\r\n", "short");
    vec![
        Case::new("a second response", good.clone(), whole(200, "ok")),
        Case::new(
            "a body that is longer than its length",
            good.clone() + "more",
            whole(200, "ok"),
        ),
        Case::new(
            "an empty line after the body",
            good.clone() + "\r\n",
            whole(200, "ok"),
        ),
        Case::new("bytes after close", close, whole(200, "ok")),
        Case::new(
            "a second response after an empty one",
            empty,
            whole(200, ""),
        ),
        Case::new("nothing", "", BadGateway).ending(),
        Case::new("nothing and silence", "", Timeout).silent(),
        Case::new("a part of a start line", "HTTP/1.", BadGateway).ending(),
        Case::new(
            "a part of a head",
            "HTTP/1.1 200 OK\r\nContent-Le",
            BadGateway,
        )
        .ending(),
        Case::new(
            "a part of a head and silence",
            "HTTP/1.1 200 OK\r\nA: ",
            Timeout,
        )
        .silent(),
        Case::new("a part of a body", silent.clone(), Cut).ending(),
        Case::new("a part of a body and silence", silent, Cut).silent(),
        Case::new("no body", response("Content-Length: 9\r\n", ""), Cut).ending(),
    ]
}
