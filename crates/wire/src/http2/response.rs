//! Heads and trailers of responses: fields of HTTP/1.1 become field blocks (RFC 9113 §8).
//!
//! Functions of HTTP/1.1 decide which fields are kept, removed and generated. HTTP/2 has no fields
//! of a connection, and a flag of a frame ends a body.

use super::hpack::{Encoder, Indexing};
use crate::http::edit::{self, Decimal};
use crate::http::head::may_be_trailer;
use crate::http::{Answer, Framing, KnownName, ResponseEdit, ResponseHead};

/// Appends the head of a response as a field block. Returns the framing of the body after
/// the edit.
///
/// `client` and `persistence` of the edit have no effect. A response 101 must be written with
/// `upgrade` only: it becomes a 200, which accepts an extended CONNECT (RFC 8441 §5). HTTP/2 has no
/// 101 (RFC 9113 §8.6).
pub fn write_response(
    out: &mut Vec<u8>,
    encoder: &mut Encoder,
    head: &ResponseHead,
    bytes: &[u8],
    edit: &ResponseEdit<'_>,
) -> Framing {
    let status = match head.status() {
        101 if edit.upgrade => 200,
        status => status,
    };
    begin(out, encoder, status);
    let framing = edit.framing_of(head);
    let removal = edit::removal_of_response(edit);
    for field in edit::kept_of_response(head, bytes, &removal, framing) {
        write_field(out, encoder, field.known, field.name, field.value);
    }
    for (name, value) in edit.set.iter().chain(edit.add) {
        write_generated(out, encoder, name, value);
    }
    if let Framing::Length(length) = edit::written_framing(head, framing, edit.body) {
        write_length(out, encoder, length);
    }
    framing
}

/// Appends the head of an answer as a field block. The body is not written.
pub fn write_answer(out: &mut Vec<u8>, encoder: &mut Encoder, answer: &Answer<'_>) {
    begin(out, encoder, answer.status);
    for (name, value) in answer.fields {
        write_generated(out, encoder, name, value);
    }
    if answer.has_content() {
        write_length(out, encoder, answer.body.len() as u64);
    }
}

/// Appends those fields that may be trailers as a field block. Returns false, and appends nothing,
/// if there are none: the body must be ended without trailers then.
#[must_use]
pub fn write_trailers<'a>(
    out: &mut Vec<u8>,
    encoder: &mut Encoder,
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
) -> bool {
    let mut fields = fields
        .filter(|(name, value)| may_be_trailer(name) && edit::is_field(name, value))
        .peekable();
    if fields.peek().is_none() {
        return false;
    }
    encoder.begin(out);
    for (name, value) in fields {
        write_field(out, encoder, KnownName::of(name), name, value);
    }
    true
}

/// Begins a field block with the status.
fn begin(out: &mut Vec<u8>, encoder: &mut Encoder, status: u16) {
    encoder.begin(out);
    let status = Decimal::of(u64::from(status));
    encoder.field(out, b":status", status.digits(), Indexing::Repeated);
}

fn write_length(out: &mut Vec<u8>, encoder: &mut Encoder, length: u64) {
    let length = Decimal::of(length);
    encoder.field(out, b"content-length", length.digits(), Indexing::Repeated);
}

/// Appends a field of Evenkeel's own. One that breaks the grammar is left out, as in HTTP/1.1.
fn write_generated(out: &mut Vec<u8>, encoder: &mut Encoder, name: &[u8], value: &[u8]) {
    if edit::is_field(name, value) {
        write_field(out, encoder, KnownName::of(name), name, value);
    }
}

fn write_field(
    out: &mut Vec<u8>,
    encoder: &mut Encoder,
    known: KnownName,
    name: &[u8],
    value: &[u8],
) {
    let indexing = match known {
        // Secrets, and answers to them.
        KnownName::Authorization
        | KnownName::ProxyAuthenticate
        | KnownName::ProxyAuthorization
        | KnownName::SetCookie
        | KnownName::WwwAuthenticate => Indexing::Never,
        // A target may have a code or token in its query.
        KnownName::Location => Indexing::Without,
        _ => Indexing::Repeated,
    };
    encoder.field(out, name, value, indexing);
}
