//! Encodes messages of both sides; no function here can fail.
//!
//! Names and texts are C strings on the wire. Bytes after a zero byte in one are left out, so that
//! no value can begin a message of its own.

mod client;
mod server;

pub use client::{
    bind, cancel, close, copy_fail, describe, execute, flush, gssenc_request, parse, password,
    query, sasl_initial, sasl_response, ssl_request, startup, sync, terminate,
};
pub use server::{
    ErrorText, authentication_cleartext, authentication_md5, authentication_ok,
    authentication_sasl, authentication_sasl_continue, authentication_sasl_final, backend_key_data,
    command_complete, data_row, empty, error, negotiate_protocol_version, notice, parameter_status,
    ready_for_query, row_description,
};

/// Writes one message: the tag if there is one, a length that is filled in afterwards, and the
/// body.
fn message(out: &mut Vec<u8>, tag: Option<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    out.extend(tag);
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = u32::try_from(out.len().saturating_sub(start)).unwrap_or(u32::MAX);
    if let Some(place) = out.get_mut(start..).and_then(|rest| rest.first_chunk_mut()) {
        *place = length.to_be_bytes();
    }
}

fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    out.extend_from_slice(text);
    out.push(0);
}

fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_be_bytes());
}

fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// Writes the count of a list, which has at most 65,535 elements.
fn put_count(out: &mut Vec<u8>, count: usize) {
    put_u16(out, u16::try_from(count).unwrap_or(u16::MAX));
}

/// Writes a length and the bytes, or -1 for `None`.
fn put_value(out: &mut Vec<u8>, value: Option<&[u8]>) {
    match value {
        None => put_u32(out, u32::MAX),
        Some(bytes) => {
            put_u32(out, u32::try_from(bytes.len()).unwrap_or(0));
            out.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests;
