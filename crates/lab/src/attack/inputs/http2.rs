//! Hostile connections of HTTP/2.

use super::{CONTROLS, Input, SMUGGLED, add};
use crate::attack::frames::{
    END_HEADERS, END_STREAM, Field, PADDED, PREFACE, block, data, frame, headers,
};

/// Length of [`SMUGGLED`].
const SMUGGLED_LENGTH: &[u8] = b"56";

const METHOD: Field<'_> = (b":method", b"POST");
const SCHEME: Field<'_> = (b":scheme", b"http");
const AUTHORITY: Field<'_> = (b":authority", b"a");
const PATH: Field<'_> = (b":path", b"/idmark/outer");
const POST: [Field<'_>; 4] = [METHOD, SCHEME, AUTHORITY, PATH];

/// Returns all inputs of HTTP/2.
pub fn all_http2() -> Vec<Input> {
    let mut inputs = Vec::new();
    for family in [
        pseudo_fields,
        places,
        names,
        of_connections,
        lengths,
        hosts,
        targets,
        crumbs,
        identities,
        trailers,
        padding,
        continuations,
        sequences,
    ] {
        family(&mut inputs);
    }
    inputs
}

/// Adds a connection of these frames between two good requests.
fn connect(inputs: &mut Vec<Input>, family: &str, variant: &str, frames: &[Vec<u8>]) {
    let good = |stream, path| {
        let get: Field<'_> = (b":method", b"GET");
        headers(
            stream,
            &[get, SCHEME, AUTHORITY, (b":path", path)],
            END_STREAM,
        )
    };
    let own = frames.concat();
    let start = [PREFACE, &frame(4, 0, 0, &[])].concat();
    let first = good(1, b"/idmark/first");
    let last = good(101, b"/idmark/last");
    let bytes = [start, first, own, last].concat();
    add(inputs, &format!("HTTP/2 {family}"), variant, bytes);
}

/// Adds a request of these fields with a body that hides another one.
fn post(inputs: &mut Vec<Input>, family: &str, variant: &str, fields: &[Field<'_>]) {
    let frames = [headers(3, fields, 0), data(3, SMUGGLED, END_STREAM)];
    connect(inputs, family, variant, &frames);
    let name = format!("{family} without body");
    connect(inputs, &name, variant, &[headers(3, fields, END_STREAM)]);
}

/// Adds a POST with further fields.
fn with(inputs: &mut Vec<Input>, family: &str, fields: &[Field<'_>]) {
    let texts = fields.iter().map(|(name, value)| {
        let [name, value] = [name, value].map(|text| String::from_utf8_lossy(text));
        format!("{name}: {value};")
    });
    let variant: String = texts.collect();
    post(inputs, family, &variant, &[&POST[..], fields].concat());
}

fn pseudo_fields(inputs: &mut Vec<Input>) {
    for (at, missing) in POST.iter().enumerate() {
        let name = String::from_utf8_lossy(missing.0).into_owned();
        let mut fields = POST.to_vec();
        fields.remove(at);
        post(inputs, "pseudo-field missing", &name, &fields);
        fields.push((b"x", b"y"));
        fields.push(*missing);
        post(inputs, "pseudo-field late", &name, &fields);
        let repeated = [&POST[..], &[*missing]].concat();
        post(inputs, "pseudo-field repeated", &name, &repeated);
        let mut empty = POST.to_vec();
        empty[at].1 = b"";
        post(inputs, "pseudo-field empty", &name, &empty);
    }
    let others: [Field<'_>; 6] = [
        (b":status", b"200"),
        (b":protocol", b"websocket"),
        (b":Method", b"GET"),
        (b":host", b"b"),
        (b":", b"x"),
        (b":path ", b"/idmark/other"),
    ];
    for other in others {
        with(inputs, "pseudo-field unknown", &[other]);
    }
}

/// Control bytes, separators and bytes above ASCII in each place.
fn places(inputs: &mut Vec<Input>) {
    let texts: [&[u8]; 5] = [
        b"\r\n",
        b"\r\nX: y",
        b"\r\n\r\nGET /idmark/smuggled HTTP/1.1\r\nHost: a\r\n\r\n",
        b" ",
        b"\x80",
    ];
    let controls = CONTROLS.map(|byte| vec![byte]);
    for text in texts.map(<[u8]>::to_vec).into_iter().chain(controls) {
        for (at, place) in [
            "method",
            "scheme",
            "authority",
            "path",
            "name",
            "value",
            "cookie",
        ]
        .into_iter()
        .enumerate()
        {
            let mut fields = POST.to_vec();
            fields.extend([
                (&b"x-a"[..], &b"y"[..]),
                (b"x-b", b"y"),
                (b"cookie", b"a=b"),
            ]);
            let (name, value) = fields[at];
            let inside = |old: &[u8]| [old, &text, b"z"].concat();
            let (name, value) = match place {
                "name" => (inside(name), value.to_vec()),
                _ => (name.to_vec(), inside(value)),
            };
            fields[at] = (&name, &value);
            let variant = format!("{} in {place}", String::from_utf8_lossy(&text));
            post(inputs, "bytes", &variant, &fields);
        }
        for value in [[&text[..], b"y"].concat(), [b"y", &text[..]].concat()] {
            with(inputs, "bytes at an end", &[(b"x-a", &value)]);
        }
    }
}

fn names(inputs: &mut Vec<Input>) {
    for name in [
        "",
        "X-A",
        "content-Length",
        "x a",
        "x:a",
        "x\"a",
        "x@a",
        "x(a",
        "content_length",
        " host",
        "host ",
        "content-length ",
        "transfer-encoding\t",
        "x\u{e4}",
    ] {
        with(inputs, "name", &[(name.as_bytes(), b"5")]);
    }
}

fn of_connections(inputs: &mut Vec<Input>) {
    let fields: [Field<'_>; 14] = [
        (b"transfer-encoding", b"chunked"),
        (b"transfer-encoding", b"identity"),
        (b"connection", b"close"),
        (b"connection", b"keep-alive, content-length"),
        (b"connection", b"x-forwarded-for"),
        (b"keep-alive", b"timeout=5"),
        (b"proxy-connection", b"close"),
        (b"upgrade", b"h2c"),
        (b"upgrade", b"websocket"),
        (b"te", b"trailers"),
        (b"te", b"trailers, gzip"),
        (b"te", b"chunked"),
        (b"http2-settings", b"AAMAAABkAAQAAP__"),
        (b"expect", b"100-continue"),
    ];
    for field in fields {
        with(inputs, "connection field", &[field]);
        with(
            inputs,
            "connection field",
            &[(b"content-length", SMUGGLED_LENGTH), field],
        );
    }
}

fn lengths(inputs: &mut Vec<Input>) {
    let whole = SMUGGLED.len().to_string();
    let short = (SMUGGLED.len() - 1).to_string();
    let long = (SMUGGLED.len() + 1).to_string();
    let list = format!("{whole}, {whole}");
    let (plus, padded, zeros) = (
        format!("+{whole}"),
        format!("{whole} "),
        format!("00{whole}"),
    );
    let large = "18446744073709551616";
    for value in [
        &*whole, &*short, &*long, "0", "5", "-1", "", "0x3c", "6 0", "1e2", large, &*list, &*plus,
        &*padded, &*zeros,
    ] {
        with(inputs, "length", &[(b"content-length", value.as_bytes())]);
        let twice = [
            (&b"content-length"[..], value.as_bytes()),
            (b"content-length", SMUGGLED_LENGTH),
        ];
        with(inputs, "lengths", &twice);
        // END_STREAM on an empty frame, and on trailers.
        let fields = [&POST[..], &[(b"content-length", value.as_bytes())]].concat();
        let start = [headers(3, &fields, 0), data(3, SMUGGLED, 0)];
        let ends = [
            data(3, "", END_STREAM),
            headers(3, &[(b"x-t", b"y")], END_STREAM),
        ];
        for (number, end) in ends.into_iter().enumerate() {
            let variant = format!("{value} ended by {number}");
            connect(inputs, "length", &variant, &[&start[..], &[end]].concat());
        }
    }
}

fn hosts(inputs: &mut Vec<Input>) {
    let values: [&[u8]; 14] = [
        b"a", b"b", b"A", b"a:80", b"a:", b"a:b", b"", b"a, b", b"u@a", b"a/x", b"[::1]", b"[::1",
        b"a#b", b"a?b",
    ];
    for value in values {
        with(inputs, "host beside an authority", &[(b"host", value)]);
        let name = String::from_utf8_lossy(value).into_owned();
        let host = [METHOD, SCHEME, PATH, (b"host", value)];
        post(inputs, "host", &name, &host);
        let authority = [METHOD, SCHEME, (b":authority", value), PATH];
        post(inputs, "authority", &name, &authority);
        let two = [METHOD, SCHEME, PATH, (b"host", b"a"), (b"host", value)];
        post(inputs, "two hosts", &name, &two);
    }
}

fn targets(inputs: &mut Vec<Input>) {
    let targets = [
        "idmark",
        "*",
        "?idmark",
        "//idmark",
        "http://b/idmark",
        "/idmark#x",
        "/idmark%00",
        "/idmark%0d%0aX:%20y",
        "/idmark/../x",
        "/idmark/%2e%2e/x",
        "/idmark?x",
        "/idmark\\x",
        "/idmark HTTP/1.1",
        "/idmark/\u{e4}",
        "b:80",
    ];
    for method in [
        "GET", "POST", "OPTIONS", "CONNECT", "HEAD", "get", "G ET", "PRI",
    ] {
        for target in targets {
            let fields = [
                (&b":method"[..], method.as_bytes()),
                SCHEME,
                AUTHORITY,
                (b":path", target.as_bytes()),
                (b"x-id", b"idmark"),
            ];
            let variant = format!("{method} {target}");
            connect(
                inputs,
                "target",
                &variant,
                &[headers(3, &fields, END_STREAM)],
            );
        }
    }
    for scheme in ["https", "HTTP", "ftp", "http://b/idmark?", "http HTTP/1.1"] {
        let fields = [METHOD, (b":scheme", scheme.as_bytes()), AUTHORITY, PATH];
        post(inputs, "scheme", scheme, &fields);
    }
}

fn crumbs(inputs: &mut Vec<Input>) {
    let crumbs: [&[&[u8]]; 5] = [
        &[b"a=b", b"c=d"],
        &[b"a=b; ", b"c=d"],
        &[b"", b"a=b", b""],
        &[b"a=b\r\nX: y", b"c=d"],
        &[b"a=b\0", b"c=d"],
    ];
    for parts in crumbs {
        let fields: Vec<Field<'_>> = parts.iter().map(|part| (&b"cookie"[..], *part)).collect();
        with(inputs, "cookie", &fields);
    }
}

fn identities(inputs: &mut Vec<Input>) {
    for name in [
        "x-forwarded-for",
        "x-real-ip",
        "forwarded",
        "x-forwarded-proto",
        "x-forwarded-host",
        "x_forwarded_for",
        "x-forwarded_for",
        "x.forwarded.for",
    ] {
        let field = (name.as_bytes(), &b"6.6.6.6"[..]);
        with(inputs, "identity", &[field]);
        with(inputs, "identity", &[field, field]);
    }
}

fn trailers(inputs: &mut Vec<Input>) {
    let fields: [Field<'_>; 12] = [
        (b"x-t", b"y"),
        (b":path", b"/idmark/other"),
        (b":status", b"200"),
        (b"content-length", b"0"),
        (b"transfer-encoding", b"chunked"),
        (b"host", b"b"),
        (b"connection", b"close"),
        (b"X-T", b"y"),
        (b"x-t\r\n\r\nGET /idmark/smuggled HTTP/1.1\r\nHost", b"a"),
        (b"x-t", b"y\r\n\r\nGET /idmark/smuggled HTTP/1.1\r\nHost: a"),
        (b"x-t", b"y\nZ: w"),
        (b"", b"y"),
    ];
    for field in fields {
        let variant = String::from_utf8_lossy(&[field.0, b": ", field.1].concat()).into_owned();
        let start = [headers(3, &POST, 0), data(3, SMUGGLED, 0)];
        for flags in [END_STREAM, 0] {
            let end = headers(3, &[field], flags);
            let variant = format!("{variant}, flags {flags}");
            connect(inputs, "trailers", &variant, &[&start[..], &[end]].concat());
        }
    }
}

fn padding(inputs: &mut Vec<Input>) {
    for (length, pad) in [(0, 0), (5, 0), (5, 5), (5, 6), (5, 255), (0, 1)] {
        let payload = [
            &[pad][..],
            &b"hello"[..length],
            &vec![b'p'; usize::from(pad.min(5))],
        ];
        let payload = payload.concat();
        let variant = format!("{length} bytes, {pad}");
        let part = frame(0, PADDED | END_STREAM, 3, &payload);
        connect(inputs, "padding", &variant, &[headers(3, &POST, 0), part]);
        let payload = [&[pad][..], &block(&POST), &vec![0; usize::from(pad)]].concat();
        let head = frame(1, PADDED | END_HEADERS | END_STREAM, 3, &payload);
        connect(inputs, "padding of a head", &variant, &[head]);
    }
}

/// Field blocks in parts, with other frames between them.
fn continuations(inputs: &mut Vec<Input>) {
    let block = block(&POST);
    let (start, end) = block.split_at(20);
    let begun = || frame(1, 0, 3, start);
    let ended = |stream| frame(9, END_HEADERS, stream, end);
    let smuggled = || data(3, SMUGGLED, END_STREAM);
    let other = headers(5, &POST, END_STREAM);
    let pushed = [&[0, 0, 0, 2], &block[..]].concat();
    let sequences = [
        ("whole", vec![begun(), ended(3), smuggled()]),
        ("none", vec![begun(), smuggled()]),
        ("of another stream", vec![begun(), ended(5)]),
        ("head between", vec![begun(), other, ended(3)]),
        ("alone", vec![ended(3)]),
        ("push", vec![frame(5, END_HEADERS, 3, &pushed)]),
    ];
    for (name, frames) in sequences {
        connect(inputs, "continuation", name, &frames);
    }
}

/// Frames in an order that hides requests or mixes them.
fn sequences(inputs: &mut Vec<Input>) {
    let head = |stream| headers(stream, &POST, 0);
    let whole = |stream| headers(stream, &POST, END_STREAM);
    let smuggled = |stream| data(stream, SMUGGLED, END_STREAM);
    let part = |stream, text: &str| data(stream, text, 0);
    let two = [part(3, "idmark-3 GET"), part(5, "idmark-5 POST")];
    let two = [&[head(3), head(5)][..], &two, &[smuggled(3), smuggled(5)]].concat();
    let reset = frame(3, 0, 3, &[0, 0, 0, 8]);
    let sequences = [
        ("data of no stream", vec![smuggled(3)]),
        ("data after the end", vec![whole(3), smuggled(3)]),
        ("data twice", vec![head(3), smuggled(3), smuggled(3)]),
        ("head twice", vec![head(3), head(3), smuggled(3)]),
        ("head after the end", vec![whole(3), whole(3)]),
        ("even stream", vec![head(4), smuggled(4)]),
        ("stream 0", vec![whole(0)]),
        ("earlier stream", vec![whole(5), whole(3)]),
        ("reset", vec![head(3), reset, smuggled(3)]),
        ("two bodies", two),
        ("no end", vec![head(3), part(3, SMUGGLED)]),
    ];
    for (name, frames) in sequences {
        connect(inputs, "sequence", name, &frames);
    }
}
