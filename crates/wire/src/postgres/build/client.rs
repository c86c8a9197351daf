//! Encodes client messages (§54.7, those marked (F)) for Evenkeel's own connections to servers.

use super::{message, put_count, put_text, put_u16, put_u32, put_value};
use crate::postgres::frontend::Target;
use crate::postgres::startup::CancelKey;

/// Writes a StartupMessage of protocol 3 with this minor version.
pub fn startup<'a>(
    out: &mut Vec<u8>,
    minor: u16,
    parameters: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
) {
    message(out, None, |out| {
        put_u16(out, 3);
        put_u16(out, minor);
        for (name, value) in parameters {
            put_text(out, name);
            put_text(out, value);
        }
        out.push(0);
    });
}

/// Writes SSLRequest.
pub fn ssl_request(out: &mut Vec<u8>) {
    message(out, None, |out| put_u32(out, 80_877_103));
}

/// Writes GSSENCRequest.
pub fn gssenc_request(out: &mut Vec<u8>) {
    message(out, None, |out| put_u32(out, 80_877_104));
}

/// Writes CancelRequest, for a connection of its own.
pub fn cancel(out: &mut Vec<u8>, key: CancelKey<'_>) {
    message(out, None, |out| {
        put_u32(out, 80_877_102);
        put_u32(out, key.process);
        out.extend_from_slice(key.secret);
    });
}

/// Writes PasswordMessage: a password, or its md5 response.
pub fn password(out: &mut Vec<u8>, password: &[u8]) {
    message(out, Some(b'p'), |out| put_text(out, password));
}

/// Writes SASLInitialResponse.
pub fn sasl_initial(out: &mut Vec<u8>, mechanism: &[u8], response: &[u8]) {
    message(out, Some(b'p'), |out| {
        put_text(out, mechanism);
        put_value(out, Some(response));
    });
}

/// Writes SASLResponse.
pub fn sasl_response(out: &mut Vec<u8>, response: &[u8]) {
    message(out, Some(b'p'), |out| out.extend_from_slice(response));
}

/// Writes Query.
pub fn query(out: &mut Vec<u8>, text: &[u8]) {
    message(out, Some(b'Q'), |out| put_text(out, text));
}

/// Writes Parse; `types` are as in a client's Parse, four bytes each.
pub fn parse(out: &mut Vec<u8>, statement: &[u8], text: &[u8], types: &[u8]) {
    message(out, Some(b'P'), |out| {
        put_text(out, statement);
        put_text(out, text);
        let (types, _) = types.as_chunks::<4>();
        put_count(out, types.len());
        out.extend_from_slice(types.as_flattened());
    });
}

/// Writes Bind with text parameters and text results.
pub fn bind(out: &mut Vec<u8>, portal: &[u8], statement: &[u8], values: &[Option<&[u8]>]) {
    message(out, Some(b'B'), |out| {
        put_text(out, portal);
        put_text(out, statement);
        put_count(out, 0);
        put_count(out, values.len());
        for value in values {
            put_value(out, *value);
        }
        put_count(out, 0);
    });
}

/// Writes Describe.
pub fn describe(out: &mut Vec<u8>, target: Target<'_>) {
    message(out, Some(b'D'), |out| put_target(out, target));
}

/// Writes Execute; `rows_max` 0 means all.
pub fn execute(out: &mut Vec<u8>, portal: &[u8], rows_max: u32) {
    message(out, Some(b'E'), |out| {
        put_text(out, portal);
        put_u32(out, rows_max);
    });
}

/// Writes Close.
pub fn close(out: &mut Vec<u8>, target: Target<'_>) {
    message(out, Some(b'C'), |out| put_target(out, target));
}

/// Writes Flush.
pub fn flush(out: &mut Vec<u8>) {
    message(out, Some(b'H'), |_| {});
}

/// Writes Sync.
pub fn sync(out: &mut Vec<u8>) {
    message(out, Some(b'S'), |_| {});
}

/// Writes CopyFail: ends a COPY whose client has disconnected.
pub fn copy_fail(out: &mut Vec<u8>, reason: &[u8]) {
    message(out, Some(b'f'), |out| put_text(out, reason));
}

/// Writes Terminate.
pub fn terminate(out: &mut Vec<u8>) {
    message(out, Some(b'X'), |_| {});
}

fn put_target(out: &mut Vec<u8>, target: Target<'_>) {
    let (kind, name) = match target {
        Target::Statement(name) => (b'S', name),
        Target::Portal(name) => (b'P', name),
    };
    out.push(kind);
    put_text(out, name);
}
