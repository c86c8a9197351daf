//! Inputs whose framing of the body is hostile.

use super::{Input, SMUGGLED, add, post};

const LENGTHS: &[&str] = &[
    "5",
    "+5",
    "-5",
    "05",
    "005",
    "5,5",
    "5, 5",
    "5,6",
    "5;",
    "5;a=b",
    "0x5",
    "0X5",
    "5e0",
    "5.0",
    "",
    " ",
    "5\t",
    "\t5",
    "5 ",
    "5 5",
    "'5'",
    "\"5\"",
    "5_0",
    "0",
    "00",
    "-0",
    "+0",
    "18446744073709551621",
    "9223372036854775808",
    "9223372036854775807",
    "99999999999999999999999",
    "4294967301",
    "٥",
    "five",
    "5\u{b}",
    "\u{c}5",
    "5\0",
    "5\r",
    "5,",
    ",5",
    "NaN",
];

const LENGTH_NAMES: &[&str] = &[
    "Content-Length ",
    " Content-Length",
    "Content-Length\t",
    "Content_Length",
    "Content.Length",
    "Content-Length\0",
    "Content\r-Length",
    "Content\n-Length",
    "CONTENT-LENGTH",
    "content-length",
    "Content-Length:",
    "Content Length",
    "Content-Lengt\u{68}",
    "X:\r\nContent-Length",
    "X: \r\n Content-Length",
    "\u{feff}Content-Length",
    "\u{b}Content-Length",
];

pub(super) fn lengths(inputs: &mut Vec<Input>) {
    for value in LENGTHS {
        let fields = format!("Content-Length: {value}\r\n");
        add(
            inputs,
            "length",
            value,
            post(&fields, &format!("hello{SMUGGLED}")),
        );
    }
    for name in LENGTH_NAMES {
        let fields = format!("{name}: 5\r\n");
        add(
            inputs,
            "length name",
            name,
            post(&fields, &format!("hello{SMUGGLED}")),
        );
    }
    for method in ["GET", "HEAD", "DELETE", "OPTIONS", "TRACE", "PUT"] {
        let length = SMUGGLED.len();
        let text = format!(
            "{method} /idmark/outer HTTP/1.1\r\nHost: a\r\n\
             Content-Length: {length}\r\n\r\n{SMUGGLED}"
        );
        add(inputs, "length of", method, text);
    }
}

const CODINGS: &[&str] = &[
    "chunked",
    "Chunked",
    "CHUNKED",
    "chunked,",
    ", chunked",
    "chunked, chunked",
    "identity",
    "identity, chunked",
    "gzip, chunked",
    "chunked, gzip",
    "chunked, identity",
    "xchunked",
    "chunkedx",
    "chunked;a=b",
    "\"chunked\"",
    "'chunked'",
    "chunked\t",
    "\tchunked",
    " chunked",
    "chunked ",
    "\u{b}chunked",
    "chunked\u{b}",
    "chunked\u{c}",
    "chunked\0",
    "cow",
    "",
    " ",
    "trailers",
    "ch\u{fc}nked",
    "chunk",
    "chunked chunked",
    "chunked\r",
    "\rchunked",
    "\nchunked",
    "deflate",
    "chunked,cow",
    "cow,chunked",
];

const CODING_NAMES: &[&str] = &[
    "Transfer-Encoding ",
    " Transfer-Encoding",
    "\tTransfer-Encoding",
    "Transfer-Encoding\t",
    "Transfer_Encoding",
    "Transfer.Encoding",
    "transfer-encoding",
    "Transfer-Encoding\0",
    "Transfer\r-Encoding",
    "Transfer\n-Encoding",
    "X: y\r\n Transfer-Encoding",
    "X: y\n\nTransfer-Encoding",
    "X: y\nTransfer-Encoding",
    "X: y\rTransfer-Encoding",
    "Transfer-Encoding\u{b}",
    "Transfer Encoding",
    "TE",
];

pub(super) fn codings(inputs: &mut Vec<Input>) {
    let body = format!("5\r\nhello\r\n0\r\n\r\n{SMUGGLED}");
    for value in CODINGS {
        let coding = format!("Transfer-Encoding: {value}\r\n");
        add(inputs, "coding", value, post(&coding, &body));
        let both = format!("Content-Length: 4\r\n{coding}");
        add(inputs, "length and coding", value, post(&both, &body));
    }
    for name in CODING_NAMES {
        let coding = format!("{name}: chunked\r\n");
        add(inputs, "coding name", name, post(&coding, &body));
        let both = format!("{coding}Content-Length: 4\r\n");
        add(inputs, "length and coding name", name, post(&both, &body));
    }
    let old = post("Transfer-Encoding: chunked\r\n", &body).replace("HTTP/1.1", "HTTP/1.0");
    add(inputs, "coding in", "HTTP/1.0", old);
}

pub(super) fn repeated(inputs: &mut Vec<Input>) {
    let body = format!("5\r\nhello\r\n0\r\n\r\n{SMUGGLED}");
    for (first, second) in [
        ("Content-Length: 5", "Content-Length: 5"),
        ("Content-Length: 5", "Content-Length: 6"),
        ("Content-Length: 0", "Content-Length: 5"),
        ("Content-Length: 5", "content-length: 0"),
        ("Content-Length: 5", "Content-Length:"),
        ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Transfer-Encoding: identity"),
        ("Transfer-Encoding: identity", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "Transfer-Encoding:"),
        ("Transfer-Encoding:", "Transfer-Encoding: chunked"),
        ("Host: b", "X: y"),
        ("host: a", "X: y"),
        ("Expect: 100-continue", "Expect: 100-continue"),
        ("Content-Length: 5", "Transfer-Encoding : chunked"),
    ] {
        let fields = format!("{first}\r\n{second}\r\n");
        add(inputs, "repeated", &fields, post(&fields, &body));
    }
}

const CHUNKS: &[(&str, &str)] = &[
    ("size LF", "5\nhello\r\n0\r\n\r\n"),
    ("size CR", "5\rhello\r\n0\r\n\r\n"),
    ("data LF", "5\r\nhello\n0\r\n\r\n"),
    ("data without end", "5\r\nhello0\r\n\r\n"),
    ("data with more", "5\r\nhelloX\r\n0\r\n\r\n"),
    ("data CRCRLF", "5\r\nhello\r\r\n0\r\n\r\n"),
    ("data space", "5\r\nhello \r\n0\r\n\r\n"),
    ("data any two bytes", "5\r\nhelloXX0\r\n\r\n"),
    ("last LF", "5\r\nhello\r\n0\n\n"),
    ("last LF end", "5\r\nhello\r\n0\r\n\n"),
    ("last CR", "5\r\nhello\r\n0\r\r"),
    ("last 00", "5\r\nhello\r\n00\r\n\r\n"),
    ("last extension", "5\r\nhello\r\n0;a\r\n\r\n"),
    ("last minus", "5\r\nhello\r\n-0\r\n\r\n"),
    ("last space", "5\r\nhello\r\n0 \r\n\r\n"),
    ("last twice", "5\r\nhello\r\n0\r\n\r\n0\r\n\r\n"),
    ("nothing", "\r\n\r\n"),
    (
        "long extension",
        "5;aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa=b\r\nhello\r\n0\r\n\r\n",
    ),
    ("no data", "0\r\n\r\n"),
];

pub(super) fn chunks(inputs: &mut Vec<Input>) {
    let sizes = [
        "5",
        "05",
        "0000000000000005",
        "00000000000000005",
        "5;",
        "5;a",
        "5;a=b",
        "5;a=\"b\"",
        "5;a=\"b",
        "5;a=\"\r\n\"",
        "5 ;a",
        "5; a",
        "5;a =b",
        "5;a;b;c=d",
        "5;a\nb",
        "5;a\rb",
        "5;\n",
        "5 ",
        "5\t",
        " 5",
        "+5",
        "-5",
        "0x5",
        "0X5",
        "5_0",
        "5\0",
        "5h",
        "5,5",
        "5.0",
        "",
        "FFFFFFFFFFFFFFFF5",
        "ffffffffffffffff",
        "fffffffffffffffb",
        "8000000000000000",
        "100000005",
        "5\r",
        "5\u{b}",
        "5;a=\u{1}",
        "5 5",
        "٥",
    ];
    for size in sizes {
        let body = format!("{size}\r\nhello\r\n0\r\n\r\n{SMUGGLED}");
        add(
            inputs,
            "chunk size",
            size,
            post("Transfer-Encoding: chunked\r\n", &body),
        );
    }
    for (name, body) in CHUNKS {
        let body = format!("{body}{SMUGGLED}");
        add(
            inputs,
            "chunk",
            name,
            post("Transfer-Encoding: chunked\r\n", &body),
        );
    }
}

pub(super) fn trailers(inputs: &mut Vec<Input>) {
    for trailer in [
        "A: b\r\n",
        "A: b\n",
        "A: b\r",
        "A : b\r\n",
        " A: b\r\n",
        "A: b\r\n c\r\n",
        ": b\r\n",
        "A\r\n",
        "Content-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Host: b\r\n",
        "Authorization: x\r\n",
        "A\0: b\r\n",
        "A: \0\r\n",
        "Connection: close\r\n",
        "GET /idmark/trailer HTTP/1.1\r\n",
        "X-Forwarded-For: 9.9.9.9\r\n",
        "A: b\r\n\r\nHost: c\r\n",
    ] {
        let body = format!("5\r\nhello\r\n0\r\n{trailer}\r\n{SMUGGLED}");
        add(
            inputs,
            "trailer",
            trailer,
            post("Transfer-Encoding: chunked\r\n", &body),
        );
    }
}
