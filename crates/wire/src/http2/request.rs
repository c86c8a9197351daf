//! Heads of requests to servers: fields of HTTP/1.1 become field blocks (RFC 9113 §8.3.1).
//!
//! Functions of HTTP/1.1 decide which fields are kept, removed and generated.

use std::borrow::Cow;

use super::hpack::{Encoder, Indexing};
use crate::http::edit::{self, Decimal};
use crate::http::{Framing, KnownName, PathEdit, RequestEdit, RequestHead, Scheme};

/// Appends the head of a request as a field block: pseudo-fields, then those fields that the
/// request of HTTP/1.1 would have. Returns the framing in which the body must be sent: without a
/// body, the head ends the stream.
///
/// A valid opening request of a WebSocket becomes an extended CONNECT, if the edit has `upgrade`;
/// its head does not end the stream (RFC 8441 §4). `persistence` of the edit has no effect.
/// `TE: trailers` is kept.
pub fn write_request(
    out: &mut Vec<u8>,
    encoder: &mut Encoder,
    head: &RequestHead,
    bytes: &[u8],
    edit: &RequestEdit<'_>,
) -> Framing {
    encoder.begin(out);
    write_pseudo_fields(out, encoder, head, bytes, edit);
    let framing = edit.framing.unwrap_or(head.framing());
    let removal = edit::removal_of_request(edit);
    let mut without = edit::left_out_of_request(head, edit, framing);
    if opens_websocket(head, edit) {
        without |= KnownName::SecWebSocketKey.bit();
    }
    for field in edit::kept_of_request(head, bytes, &removal, without) {
        let indexing = indexing_of(field.known);
        encoder.field(out, field.name, field.value, indexing);
    }
    for (name, value) in edit.set.iter().chain(edit.forwarded) {
        // One that breaks the grammar is left out, as in HTTP/1.1.
        if edit::is_field(name, value) {
            encoder.field(out, name, value, indexing_of(KnownName::of(name)));
        }
    }
    if let Framing::Length(length) = framing {
        let length = Decimal::of(length);
        encoder.field(out, b"content-length", length.digits(), Indexing::Repeated);
    }
    if head.accepts_trailers() {
        encoder.field(out, b"te", b"trailers", Indexing::Repeated);
    }
    framing
}

/// Returns whether the request is written as an extended CONNECT.
fn opens_websocket(head: &RequestHead, edit: &RequestEdit<'_>) -> bool {
    edit.upgrade && head.upgrade().is_some()
}

fn write_pseudo_fields(
    out: &mut Vec<u8>,
    encoder: &mut Encoder,
    head: &RequestHead,
    bytes: &[u8],
    edit: &RequestEdit<'_>,
) {
    let method = match opens_websocket(head, edit) {
        true => b"CONNECT",
        false => head.method_text(bytes),
    };
    encoder.field(out, b":method", method, Indexing::Repeated);
    if opens_websocket(head, edit) {
        encoder.field(out, b":protocol", b"websocket", Indexing::Repeated);
    }
    let scheme: &[u8] = match edit.scheme {
        Scheme::Http => b"http",
        Scheme::Https => b"https",
    };
    encoder.field(out, b":scheme", scheme, Indexing::Repeated);
    let host = edit.host.or(head.authority(bytes));
    if let Some(host) = host.filter(|host| edit::is_field(b"host", host)) {
        encoder.field(out, b":authority", host, Indexing::Repeated);
    }
    let target = head.path_and_query(bytes);
    let path = match (edit.path, target.query) {
        (PathEdit::Keep, b"") => Cow::Borrowed(target.path),
        _ => {
            let mut path = Vec::new();
            edit::write_target(&mut path, head, bytes, edit.path);
            Cow::Owned(path)
        }
    };
    // A query may have a code or token.
    let indexing = match target.query {
        b"" => Indexing::Repeated,
        _ => Indexing::Without,
    };
    encoder.field(out, b":path", &path, indexing);
}

/// Returns the treatment of a field. The connection carries the requests of many clients: a secret
/// of one must not be in the table when another's request is encoded (RFC 7541 §7.1.3).
fn indexing_of(known: KnownName) -> Indexing {
    match known {
        KnownName::Authorization
        | KnownName::ClientCert
        | KnownName::Cookie
        | KnownName::ProxyAuthorization => Indexing::Never,
        // A target may have a code or token in its query.
        KnownName::Referer => Indexing::Without,
        _ => Indexing::Repeated,
    }
}
