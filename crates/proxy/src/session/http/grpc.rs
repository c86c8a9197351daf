//! Errors in the form of gRPC, whose clients read no status of HTTP.

use evenkeel_wire::http::{KnownName, RequestHead};

/// Media type of gRPC, which may have a suffix such as `+proto`.
const MEDIA_TYPE: &[u8] = b"application/grpc";

/// Returns whether a request is one of gRPC.
pub(super) fn is_request(head: &RequestHead, bytes: &[u8]) -> bool {
    let media_type = head.get(bytes, KnownName::ContentType);
    let suffix = media_type.and_then(|value| value.strip_prefix(MEDIA_TYPE));
    // `application/grpc-web` is another protocol.
    suffix.is_some_and(|suffix| matches!(suffix, [] | [b'+' | b';' | b' ', ..]))
}

/// Returns the code of gRPC for a status of HTTP (gRPC: "HTTP to gRPC Status Code Mapping").
pub(super) fn code_of(status: u16) -> &'static str {
    match status {
        400 => "13",
        401 => "16",
        403 => "7",
        404 => "12",
        429 | 502..=504 => "14",
        _ => "2",
    }
}

/// Returns a message for `grpc-message`: percent-encoded, except printable ASCII.
pub(super) fn encoded(message: &str) -> String {
    let mut encoded = String::with_capacity(message.len());
    for byte in message.bytes() {
        match byte {
            b'%' | ..b' ' | 0x7f.. => {
                encoded.push('%');
                encoded.push(digit(byte >> 4));
                encoded.push(digit(byte & 15));
            }
            byte => encoded.push(char::from(byte)),
        }
    }
    encoded
}

fn digit(value: u8) -> char {
    char::from_digit(u32::from(value), 16).map_or('0', |digit| digit.to_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use evenkeel_wire::http::HeadLimits;

    use super::*;

    #[test]
    fn requests_are_told_by_their_media_type() {
        for (media_type, expected) in [
            ("application/grpc", true),
            ("application/grpc+proto", true),
            ("application/grpc; charset=utf-8", true),
            ("application/grpc-web", false),
            ("application/json", false),
        ] {
            let text = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Type: {media_type}\r\n\r\n");
            let mut head = RequestHead::default();
            let _ = head.parse(text.as_bytes(), &HeadLimits::default());
            assert_eq!(is_request(&head, text.as_bytes()), expected, "{media_type}");
        }
    }

    #[test]
    fn messages_are_percent_encoded() {
        assert_eq!(encoded("no server: 100 %"), "no server: 100 %25");
        assert_eq!(encoded("\r\nä\u{7f}"), "%0D%0A%C3%A4%7F");
    }
}
