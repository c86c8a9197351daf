//! Encodes packets of both sides; no function here can fail.
//!
//! Some names and texts are C strings in the protocol. Bytes after a zero byte in one are left out,
//! so that no value can begin a field of its own.

use super::frame::{HEADER_LENGTH, PAYLOAD_LENGTH_MAX, Splitter};

mod client;
mod server;

pub use client::{
    ChangeUserFields, ResponseFields, change_user, close, command, execute, fetch, init_db,
    long_data, prepare, query, query_with_attributes, response, set_option, ssl_request,
};
pub use server::{
    ErrorText, GreetingFields, auth_more_data, auth_switch, column, column_count, eof, error,
    greeting, local_infile, ok, ok_as_eof, prepare_ok, result_end, text_row,
};

/// Writes one payload as a packet, or as several if it is long; returns the next sequence number.
pub fn packet(out: &mut Vec<u8>, sequence: u8, body: impl FnOnce(&mut Vec<u8>)) -> u8 {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_LENGTH]);
    body(out);
    let length = out
        .len()
        .saturating_sub(start)
        .saturating_sub(HEADER_LENGTH);
    if length >= PAYLOAD_LENGTH_MAX as usize {
        return long_packet(out, start, sequence);
    }
    let [a, b, c, _] = u32::try_from(length).unwrap_or(0).to_le_bytes();
    if let Some(place) = out.get_mut(start..).and_then(|rest| rest.first_chunk_mut()) {
        *place = [a, b, c, sequence];
    }
    sequence.wrapping_add(1)
}

fn long_packet(out: &mut Vec<u8>, start: usize, sequence: u8) -> u8 {
    let payload = out.split_off(start);
    let mut rest = payload.get(HEADER_LENGTH..).unwrap_or_default();
    let mut next = sequence;
    for header in Splitter::new(rest.len() as u64, sequence) {
        out.extend_from_slice(&header.bytes());
        let length = header.payload_length as usize;
        out.extend_from_slice(rest.get(..length).unwrap_or(rest));
        rest = rest.get(length..).unwrap_or_default();
        next = header.sequence.wrapping_add(1);
    }
    next
}

pub(super) fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    out.extend_from_slice(text);
    out.push(0);
}

pub(super) fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn put_lenenc(out: &mut Vec<u8>, value: u64) {
    let bytes = value.to_le_bytes();
    let (mark, length) = match value {
        0..=0xfa => (None, 1),
        0xfb..=0xffff => (Some(0xfc), 2),
        0x1_0000..=0xff_ffff => (Some(0xfd), 3),
        _ => (Some(0xfe), 8),
    };
    out.extend(mark);
    out.extend_from_slice(bytes.get(..length).unwrap_or(&bytes));
}

pub(super) fn put_lenenc_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_lenenc(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Writes a length byte and the bytes; bytes after the first 255 are left out.
pub(super) fn put_short_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let bytes = bytes.get(..usize::from(u8::MAX)).unwrap_or(bytes);
    out.push(u8::try_from(bytes.len()).unwrap_or(u8::MAX));
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests;
