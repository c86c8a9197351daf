//! Tests of the codec: each rule of RFC 9112 that messages obey, as tables of inputs.

use super::chunked::{ChunkDecoder, ChunkEncoder, ChunkLimits, Step};
use super::*;

mod chunks;
mod edits;
mod fields;
mod forwarded_addresses;
mod framings;
mod limits;
mod ordinary;
mod requests;
mod responses;
mod upgrades;

/// Parses a request.
fn request(bytes: &[u8]) -> (RequestHead, Parsed) {
    let mut head = RequestHead::new();
    let parsed = head.parse(bytes, &HeadLimits::default());
    (head, parsed)
}

/// Parses a response to `GET`.
fn response(bytes: &[u8]) -> (ResponseHead, Parsed) {
    let mut head = ResponseHead::new();
    let parsed = head.parse(bytes, &HeadLimits::default(), Method::Get);
    (head, parsed)
}

/// Returns a request with a request line and lines of fields, which end with CR LF.
fn request_text(line: &str, fields: &str) -> Vec<u8> {
    format!("{line}\r\n{fields}\r\n").into_bytes()
}

#[track_caller]
fn assert_request_fault(bytes: &[u8], fault: Fault) {
    let (_, parsed) = request(bytes);
    assert_eq!(parsed, Parsed::Invalid(fault), "{}", bytes.escape_ascii());
}

#[track_caller]
fn complete_request(bytes: &[u8]) -> RequestHead {
    let (head, parsed) = request(bytes);
    assert_eq!(parsed, Parsed::Complete, "{}", bytes.escape_ascii());
    head
}

#[track_caller]
fn complete_response(bytes: &[u8]) -> ResponseHead {
    let (head, parsed) = response(bytes);
    assert_eq!(parsed, Parsed::Complete, "{}", bytes.escape_ascii());
    head
}

/// Returns the head that a request is sent on with.
fn sent_on(bytes: &[u8], edit: &RequestEdit<'_>) -> String {
    let head = complete_request(bytes);
    let mut out = Vec::new();
    write_request(&mut out, &head, bytes, edit);
    String::from_utf8_lossy(&out).into_owned()
}

/// Returns the head that a response is sent on with.
fn answered(bytes: &[u8], edit: &ResponseEdit<'_>) -> String {
    let head = complete_response(bytes);
    let mut out = Vec::new();
    write_response(&mut out, &head, bytes, edit);
    String::from_utf8_lossy(&out).into_owned()
}
