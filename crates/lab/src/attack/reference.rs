//! Reads requests strictly, as RFC 9112, RFC 9113 and RFC 9110 define them: an independent second
//! reading of what a client sent.

pub(super) mod http2;

use std::ops::Range;

/// Request in the strict reading.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// Method.
    pub method: String,
    /// Target in origin form, or `*`.
    pub target: String,
    /// Host and port; empty if there is none.
    pub host: String,
    /// Body without its framing.
    pub body: Vec<u8>,
}

/// Returns the complete requests up to the first violation, or to the end of the bytes; those of
/// HTTP/2 are sorted.
pub fn read(bytes: &[u8]) -> Vec<Request> {
    if is_http2(bytes) {
        return http2::read(bytes);
    }
    let requests = read_with_bytes(bytes).into_iter();
    requests.map(|(request, _)| request).collect()
}

/// Returns whether a connection begins as one of HTTP/2.
pub(super) fn is_http2(bytes: &[u8]) -> bool {
    bytes.starts_with(http2::PREFACE)
}

/// Returns the requests of HTTP/1.1 as [`read`] does, each with its bytes.
pub(super) fn read_with_bytes(mut bytes: &[u8]) -> Vec<(Request, &[u8])> {
    let mut requests = Vec::new();
    while let Some((request, length, keeps)) = request(bytes) {
        let (own, rest) = bytes.split_at(length);
        requests.push((request, own));
        bytes = rest;
        if !keeps {
            break;
        }
    }
    requests
}

/// Reads one request; returns also its length, and whether another one may follow.
fn request(bytes: &[u8]) -> Option<(Request, usize, bool)> {
    let start = if bytes.starts_with(b"\r\n") { 2 } else { 0 };
    let end = start + find(&bytes[start..], b"\r\n\r\n")?;
    let head = &bytes[start..end];
    if head
        .iter()
        .any(|byte| matches!(byte, 0..=8 | 11 | 12 | 14..=31 | 127))
    {
        return None;
    }
    let text: String = head.iter().map(|byte| char::from(*byte)).collect();
    let lines: Vec<&str> = text.split("\r\n").collect();
    if lines.iter().any(|line| line.contains(['\r', '\n'])) {
        return None;
    }
    let (first, rest) = lines.split_first()?;
    let fields = rest
        .iter()
        .map(|line| field(line))
        .collect::<Option<Vec<_>>>()?;
    let values = |name: &str| -> Vec<&str> {
        let own = fields
            .iter()
            .filter(|(own, _)| own.eq_ignore_ascii_case(name));
        own.map(|(_, value)| *value).collect()
    };
    let mut parts = first.split(' ');
    let (method, target, version) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || !is_token(method) || !matches!(version, "HTTP/1.0" | "HTTP/1.1") {
        return None;
    }
    let (target, host) = place(method, target, &values("Host"), version == "HTTP/1.1")?;
    let body_at = end + 4;
    let lengths = values("Content-Length");
    let codings = values("Transfer-Encoding");
    let (body, length) = match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => (Vec::new(), 0),
        ([length], []) => {
            let is_digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
            let length: usize = length.parse().ok().filter(|_| is_digits)?;
            (
                bytes.get(body_at..body_at.checked_add(length)?)?.to_vec(),
                length,
            )
        }
        ([], [coding]) if coding.eq_ignore_ascii_case("chunked") && version == "HTTP/1.1" => {
            chunked(&bytes[body_at..])?
        }
        _ => return None,
    };
    let connection = values("Connection").join(",").to_ascii_lowercase();
    let has = |option: &str| connection.split(',').any(|own| own.trim() == option);
    let keeps = !has("close") && (version == "HTTP/1.1" || has("keep-alive"));
    let request = Request {
        method: method.to_owned(),
        target,
        host,
        body,
    };
    Some((request, body_at + length, keeps))
}

fn field(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once(':')?;
    is_token(name).then_some((name, value.trim_matches([' ', '\t'])))
}

fn is_token(text: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_token)
}

/// Returns the target in origin form, and the host (RFC 9112 §3.2).
fn place(method: &str, target: &str, hosts: &[&str], needs_host: bool) -> Option<(String, String)> {
    if !target.bytes().all(|byte| (0x21..=0x7E).contains(&byte)) || target.contains('#') {
        return None;
    }
    let host = match hosts {
        [host] if is_host(host) => (*host).to_owned(),
        [] if !needs_host => String::new(),
        _ => return None,
    };
    if method == "CONNECT" {
        return None;
    }
    if target.starts_with('/') {
        return Some((target.to_owned(), host));
    }
    if target == "*" && method == "OPTIONS" {
        return Some(("*".to_owned(), host));
    }
    let (scheme, rest) = target.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return None;
    }
    let split = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(split);
    if !is_host(authority) {
        return None;
    }
    let path = match path {
        "" if method == "OPTIONS" => "*".to_owned(),
        path if path.starts_with('/') => path.to_owned(),
        query => format!("/{query}"),
    };
    Some((path, authority.to_owned()))
}

/// Returns whether the text is a host with an optional port (RFC 9110 §7.2).
fn is_host(text: &str) -> bool {
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((ip, port)) => {
                if ip.parse::<std::net::Ipv6Addr>().is_err() {
                    return false;
                }
                ("ip", port)
            }
            None => return false,
        },
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=".contains(&byte);
    let is_port = port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    !name.is_empty() && name.bytes().all(is_name) && is_port
}

/// Reads a chunked body; returns its data, and its length with the framing.
pub(super) fn chunked(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let line = line(bytes, &mut at)?;
        let digits = line
            .iter()
            .take_while(|byte| byte.is_ascii_hexdigit())
            .count();
        let (size, extensions) = line.split_at(digits);
        let size = usize::from_str_radix(std::str::from_utf8(size).ok()?, 16).ok()?;
        if digits > 16 || !(extensions.is_empty() || is_extension(extensions)) {
            return None;
        }
        if size == 0 {
            break;
        }
        let data: Range<usize> = at..at.checked_add(size)?;
        body.extend_from_slice(bytes.get(data)?);
        at += size;
        if bytes.get(at..at + 2)? != b"\r\n" {
            return None;
        }
        at += 2;
    }
    loop {
        let line = line(bytes, &mut at)?;
        if line.is_empty() {
            return Some((body, at));
        }
        let text: String = line.iter().map(|byte| char::from(*byte)).collect();
        field(&text)?;
    }
}

/// Returns whether the bytes can be chunk extensions: `;` first, no control bytes.
fn is_extension(bytes: &[u8]) -> bool {
    let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
    text.trim_start_matches([' ', '\t']).starts_with(';')
}

/// Takes a line that ends with CRLF.
fn line<'a>(bytes: &'a [u8], at: &mut usize) -> Option<&'a [u8]> {
    let rest = &bytes[*at..];
    let length = find(rest, b"\r\n")?;
    let line = &rest[..length];
    let is_clean = line
        .iter()
        .all(|byte| !matches!(byte, 0..=8 | 10..=31 | 127));
    *at += length + 2;
    is_clean.then_some(line)
}

pub(super) fn find(bytes: &[u8], mark: &[u8]) -> Option<usize> {
    bytes.windows(mark.len()).position(|at| at == mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(text: &str) -> Vec<String> {
        read(text.as_bytes())
            .into_iter()
            .map(|request| request.target)
            .collect()
    }

    #[test]
    fn requests_end_where_their_framing_ends() {
        let text = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nok\
                    POST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1;a=b\r\nx\r\n0\r\nA: b\r\n\r\n\
                    GET http://b/c HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\nGET /d HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(targets(text), ["/a", "/b", "/c"]);
        let bodies: Vec<Vec<u8>> = read(text.as_bytes()).into_iter().map(|r| r.body).collect();
        assert_eq!(bodies, [b"ok".to_vec(), b"x".to_vec(), Vec::new()]);
    }

    #[test]
    fn a_violation_ends_the_reading() {
        for bad in [
            "GET /b HTTP/1.1\r\nHost: a\nX: y\r\n\r\n",
            "GET /b HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
            "GET /b HTTP/1.1\r\nHost : a\r\n\r\n",
            "POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\nx",
            "POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\
             Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "POST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\nx\r\n0\r\n\r\n",
        ] {
            let text = format!("GET /a HTTP/1.1\r\nHost: a\r\n\r\n{bad}");
            assert_eq!(targets(&text), ["/a"], "{bad:?}");
        }
    }
}
