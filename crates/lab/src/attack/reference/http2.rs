//! Reads the frames of a client strictly, as RFC 9113 defines them. Field blocks are literals
//! without Huffman code, as the inputs have them.

use std::collections::BTreeMap;

use super::{Request, is_host, is_token};

/// Start of a connection of HTTP/2 (RFC 9113 §3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Fields of HTTP/1.1's connections (RFC 9113 §8.2.2).
const OF_CONNECTION: [&str; 5] = [
    "connection",
    "proxy-connection",
    "keep-alive",
    "transfer-encoding",
    "upgrade",
];

/// Largest payload of a frame before the server allows more.
const FRAME_MAX: usize = 16_384;

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// State of a stream.
enum Stream {
    /// HEADERS has been read: its request, and the length that it states.
    Open(Request, Option<usize>),
    /// The request is complete.
    Complete(Request),
    /// Malformed, or reset by the client.
    Refused,
}

/// Frame as it stands.
struct Frame<'a> {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: &'a [u8],
}

/// Returns the complete requests up to the first error of the connection, sorted: streams have no
/// order.
pub(super) fn read(bytes: &[u8]) -> Vec<Request> {
    let mut streams = BTreeMap::new();
    read_frames(bytes, &mut streams);
    let requests = streams.into_values().filter_map(|stream| match stream {
        Stream::Complete(request) => Some(request),
        Stream::Open(..) | Stream::Refused => None,
    });
    let mut requests: Vec<Request> = requests.collect();
    requests.sort();
    requests
}

/// Reads frames up to the first error of the connection; `None` ends the reading.
fn read_frames(mut bytes: &[u8], streams: &mut BTreeMap<u32, Stream>) -> Option<()> {
    bytes = bytes.strip_prefix(PREFACE)?;
    let first = frame(&mut bytes)?;
    if first.kind != 4 || first.flags & 1 != 0 {
        return None;
    }
    loop {
        let next = frame(&mut bytes)?;
        match next.kind {
            0 => data(&next, streams)?,
            1 => {
                let mut block = unpadded(&next, 0x20)?.to_vec();
                let mut is_last = next.flags & 4 != 0;
                while !is_last {
                    let more = frame(&mut bytes)?;
                    if more.kind != 9 || more.stream != next.stream {
                        return None;
                    }
                    block.extend_from_slice(more.payload);
                    is_last = more.flags & 4 != 0;
                }
                headers(&next, &block, streams)?;
            }
            3 => match streams.get_mut(&next.stream)? {
                Stream::Complete(_) => {}
                stream => *stream = Stream::Refused,
            },
            5 | 9 => return None,
            _ => {}
        }
    }
}

/// Takes a frame (RFC 9113 §4.1); `None` also for one that is too large.
fn frame<'a>(bytes: &mut &'a [u8]) -> Option<Frame<'a>> {
    let (header, rest) = bytes.split_first_chunk::<9>()?;
    let [a, b, c, kind, flags, stream @ ..] = *header;
    let length = u32::from_be_bytes([0, a, b, c]) as usize;
    if length > FRAME_MAX || rest.len() < length {
        return None;
    }
    let (payload, rest) = rest.split_at(length);
    *bytes = rest;
    Some(Frame {
        kind,
        flags,
        stream: u32::from_be_bytes(stream) & 0x7fff_ffff,
        payload,
    })
}

/// Returns the payload without padding, and without the priority that this flag announces.
fn unpadded<'a>(frame: &Frame<'a>, priority: u8) -> Option<&'a [u8]> {
    let mut rest = frame.payload;
    let mut padding = 0;
    if frame.flags & 8 != 0 {
        let (length, after) = rest.split_first()?;
        (padding, rest) = (usize::from(*length), after);
    }
    if frame.flags & priority != 0 {
        rest = rest.get(5..)?;
    }
    rest.get(..rest.len().checked_sub(padding)?)
}

fn data(frame: &Frame<'_>, streams: &mut BTreeMap<u32, Stream>) -> Option<()> {
    let part = unpadded(frame, 0)?;
    let stream = streams.get_mut(&frame.stream)?;
    if let Stream::Open(request, _) = stream {
        request.body.extend_from_slice(part);
        if frame.flags & 1 != 0 {
            end(stream);
        }
    }
    Some(())
}

/// Reads a field block: that of a request, or trailers.
fn headers(frame: &Frame<'_>, block: &[u8], streams: &mut BTreeMap<u32, Stream>) -> Option<()> {
    let fields = literals(block)?;
    let ends = frame.flags & 1 != 0;
    if let Some(stream) = streams.get_mut(&frame.stream) {
        if let Stream::Open(..) = stream {
            match ends && fields.iter().all(|(name, value)| is_field(name, value)) {
                true => end(stream),
                false => *stream = Stream::Refused,
            }
        }
        return Some(());
    }
    let highest = streams.last_key_value().map_or(0, |(number, _)| *number);
    if frame.stream.is_multiple_of(2) || frame.stream <= highest {
        return None;
    }
    let stream = match request(&fields) {
        Some((request, length)) => Stream::Open(request, length),
        None => Stream::Refused,
    };
    let stream = streams.entry(frame.stream).or_insert(stream);
    if ends {
        end(stream);
    }
    Some(())
}

/// Ends the request of a stream: its body must have the length that its head states.
fn end(stream: &mut Stream) {
    if let Stream::Open(request, length) = stream {
        let is_whole = length.is_none_or(|length| length == request.body.len());
        *stream = match is_whole {
            true => Stream::Complete(request.clone()),
            false => Stream::Refused,
        };
    }
}

/// Reads literals without indexing and without Huffman code (RFC 7541 §6.2.2).
fn literals(mut block: &[u8]) -> Option<Fields> {
    let mut fields = Vec::new();
    while let Some((0, rest)) = block.split_first() {
        block = rest;
        let name = text(&mut block)?;
        fields.push((name, text(&mut block)?));
    }
    block.is_empty().then_some(fields)
}

fn text(block: &mut &[u8]) -> Option<Vec<u8>> {
    let (first, mut rest) = block.split_first()?;
    let mut length = usize::from(*first);
    if length == 127 {
        let mut shift = 0;
        loop {
            let (byte, after) = rest.split_first()?;
            rest = after;
            length += usize::from(byte & 127) << shift;
            shift += 7;
            if byte & 128 == 0 || shift > 21 {
                break;
            }
        }
    }
    let text = rest.get(..length)?.to_vec();
    *block = &rest[length..];
    Some(text)
}

/// Returns the request of a field block, and its Content-Length (RFC 9113 §8.3.1).
fn request(fields: &Fields) -> Option<(Request, Option<usize>)> {
    let pseudo = fields.iter().take_while(|(name, _)| name.starts_with(b":"));
    let count = pseudo.clone().count();
    let mut known = BTreeMap::new();
    for (name, value) in pseudo {
        let name = std::str::from_utf8(name).ok()?;
        let is_known = [":method", ":scheme", ":authority", ":path"].contains(&name);
        if !is_known || known.insert(name, ascii(value)?).is_some() {
            return None;
        }
    }
    let regular = &fields[count..];
    if !regular.iter().all(|(name, value)| is_field(name, value)) {
        return None;
    }
    let method = known.get(":method").filter(|method| is_token(method))?;
    known.get(":scheme").filter(|scheme| is_scheme(scheme))?;
    let target = known.get(":path")?;
    let is_path = target.starts_with('/') || (target == "*" && method == "OPTIONS");
    if method == "CONNECT" || !is_path || target.contains('#') {
        return None;
    }
    let request = Request {
        method: method.clone(),
        target: target.clone(),
        host: host(known.get(":authority"), regular)?,
        body: Vec::new(),
    };
    Some((request, length(regular)?))
}

/// Returns whether the text is the scheme of a URI (RFC 3986 §3.1).
fn is_scheme(text: &str) -> bool {
    let is_rest = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.bytes().all(is_rest)
}

/// Returns the host: the authority and Host must name the same one.
fn host(authority: Option<&String>, fields: &[(Vec<u8>, Vec<u8>)]) -> Option<String> {
    let hosts: Vec<&[u8]> = values(fields, "host").collect();
    let host = match (authority, &*hosts) {
        (Some(authority), []) => authority.clone(),
        (Some(authority), [host]) if is_same(authority, &ascii(host)?) => authority.clone(),
        (None, [host]) => ascii(host)?,
        _ => return None,
    };
    is_host(&host).then_some(host)
}

fn is_same(authority: &str, host: &str) -> bool {
    let plain = |text: &str| text.trim_end_matches(":80").to_ascii_lowercase();
    plain(authority) == plain(host)
}

/// Returns the stated length; `None` if it is not valid.
fn length(fields: &[(Vec<u8>, Vec<u8>)]) -> Option<Option<usize>> {
    let lengths: Vec<&[u8]> = values(fields, "content-length").collect();
    match &*lengths {
        [] => Some(None),
        [digits] if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) => {
            Some(Some(ascii(digits)?.parse().ok()?))
        }
        _ => None,
    }
}

fn values<'a>(fields: &'a [(Vec<u8>, Vec<u8>)], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    let own = fields.iter().filter(move |(own, _)| own == name.as_bytes());
    own.map(|(_, value)| &**value)
}

/// Returns the text if all of its bytes are visible and ASCII.
fn ascii(value: &[u8]) -> Option<String> {
    let is_visible = !value.is_empty() && value.iter().all(u8::is_ascii_graphic);
    is_visible.then(|| String::from_utf8_lossy(value).into_owned())
}

/// Returns whether a field may stand in a request or in trailers (RFC 9113 §8.2).
fn is_field(name: &[u8], value: &[u8]) -> bool {
    let Ok(name) = std::str::from_utf8(name) else {
        return false;
    };
    let is_name = is_token(name) && !name.bytes().any(|byte| byte.is_ascii_uppercase());
    let is_control = |byte: &u8| matches!(byte, 0..=8 | 10..=31 | 127);
    let is_blank = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    is_name
        && !OF_CONNECTION.contains(&name)
        && (name != "te" || value == b"trailers")
        && !value.iter().any(is_control)
        && !is_blank(value.first())
        && !is_blank(value.last())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attack::all_http2;

    fn targets(name: &str) -> Vec<String> {
        let all = all_http2().into_iter();
        let mut named = all.filter(|input| input.name == name);
        let input = named.next().unwrap_or_else(|| panic!("no input {name}"));
        let requests = read(&input.bytes).into_iter();
        requests.map(|request| request.target).collect()
    }

    #[test]
    fn good_requests_are_complete_and_malformed_ones_are_not() {
        let whole = ["/idmark/first", "/idmark/last", "/idmark/outer"];
        for name in [
            "continuation whole",
            "length content-length: 56;",
            "padding 5 bytes, 5",
        ] {
            assert_eq!(targets(&format!("HTTP/2 {name}")), whole, "{name}");
        }
        for name in [
            "sequence no end",
            "sequence reset",
            "pseudo-field missing :path",
            "connection field transfer-encoding: chunked;",
            "length content-length: 55;",
            "name X-A: 5;",
            "trailers :path: /idmark/other, flags 1",
        ] {
            assert_eq!(targets(&format!("HTTP/2 {name}")), &whole[..2], "{name}");
        }
        for name in [
            "continuation alone",
            "sequence even stream",
            "padding 5 bytes, 255",
        ] {
            assert_eq!(targets(&format!("HTTP/2 {name}")), &whole[..1], "{name}");
        }
    }
}
