//! Formats a request in the Combined Log Format of Apache's httpd:
//! `host - user [time] "request" status bytes "referer" "user agent"`.

use std::io::Write as _;

use evenkeel_proxy::access_log::{ClientVersion, RequestFacts, RequestTexts};

/// Appends the line of a request that ended at `time`.
pub(super) fn write(out: &mut Vec<u8>, time: &str, facts: &RequestFacts, texts: &RequestTexts<'_>) {
    match texts.client {
        b"" => out.push(b'-'),
        client => out.extend_from_slice(client),
    }
    out.extend_from_slice(b" - ");
    write_user(out, texts.user);
    out.extend_from_slice(b" [");
    out.extend_from_slice(time.as_bytes());
    out.extend_from_slice(b"] \"");
    write_request(out, facts, texts);
    // Writing into memory does not fail.
    let _ = match facts.status {
        0 => write!(out, "\" - "),
        status => write!(out, "\" {status} "),
    };
    let _ = write!(out, "{} \"", facts.body_to_client);
    write_field(out, texts.referer);
    out.extend_from_slice(b"\" \"");
    write_field(out, texts.user_agent);
    out.extend_from_slice(b"\"\n");
}

fn write_request(out: &mut Vec<u8>, facts: &RequestFacts, texts: &RequestTexts<'_>) {
    if texts.method.is_empty() {
        out.push(b'-');
        return;
    }
    write_escaped(out, texts.method);
    out.push(b' ');
    write_escaped(out, texts.target);
    out.extend_from_slice(match facts.version {
        ClientVersion::Http10 => b" HTTP/1.0",
        ClientVersion::Http11 => b" HTTP/1.1",
        ClientVersion::Http2 => b" HTTP/2.0",
    });
}

/// Appends the name of a user, which separates the fields that follow: spaces are escaped, too.
fn write_user(out: &mut Vec<u8>, user: &[u8]) {
    match user {
        b"" => out.push(b'-'),
        user => user.split_inclusive(|byte| *byte == b' ').for_each(|part| {
            let (text, space) = match part.strip_suffix(b" ") {
                Some(text) => (text, &b"\\x20"[..]),
                None => (part, &b""[..]),
            };
            write_escaped(out, text);
            out.extend_from_slice(space);
        }),
    }
}

fn write_field(out: &mut Vec<u8>, value: &[u8]) {
    match value {
        b"" => out.push(b'-'),
        value => write_escaped(out, value),
    }
}

/// Appends a text. A byte that is not printable ASCII, a quote or a backslash becomes `\xHH`.
fn write_escaped(out: &mut Vec<u8>, text: &[u8]) {
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    if text.iter().all(is_plain) {
        out.extend_from_slice(text);
        return;
    }
    for byte in text {
        // Writing into memory does not fail.
        let _ = match is_plain(byte) {
            true => out.write_all(&[*byte]),
            false => write!(out, "\\x{byte:02X}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{facts, texts};
    use super::*;

    fn line(facts: &RequestFacts, texts: &RequestTexts<'_>) -> String {
        let mut out = Vec::new();
        write(&mut out, "28/Nov/2026:01:02:03 +0000", facts, texts);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_request_is_one_line_of_the_combined_format() {
        let expect = "192.0.2.1 - ann [28/Nov/2026:01:02:03 +0000] \"GET /a?b=1 HTTP/1.1\" \
             200 1024 \
             \"https://x/\" \"curl/8\"\n";
        assert_eq!(line(&facts(), &texts()), expect);
    }

    #[test]
    fn what_is_unknown_is_a_dash() {
        let facts = RequestFacts {
            status: 0,
            ..facts()
        };
        let expect = "- - - [28/Nov/2026:01:02:03 +0000] \"-\" - 1024 \"-\" \"-\"\n";
        assert_eq!(line(&facts, &RequestTexts::default()), expect);
    }

    #[test]
    fn a_field_of_the_client_cannot_forge_a_line() {
        let forged = RequestTexts {
            user: b"a b]",
            user_agent: b"a\"\n\\\xe4",
            ..texts()
        };
        assert!(line(&facts(), &forged).contains(" - a\\x20b] ["));
        assert!(
            line(&facts(), &forged).ends_with("\"a\\x22\\x0A\\x5C\\xE4\"\n"),
            "{}",
            line(&facts(), &forged)
        );
    }
}
