//! Frames of HTTP/2 as bytes (RFC 9113 §4.1), with field blocks that leave the encoding tables as
//! they are.

pub use super::reference::http2::PREFACE;

/// Flag of HEADERS and DATA that ends the stream's request.
pub const END_STREAM: u8 = 1;
/// Flag of HEADERS and CONTINUATION that ends the field block.
pub const END_HEADERS: u8 = 4;
/// Flag of HEADERS and DATA with padding.
pub const PADDED: u8 = 8;

/// Name and value.
pub type Field<'a> = (&'a [u8], &'a [u8]);

/// Returns a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, length @ ..] = u32::try_from(payload.len()).unwrap_or(0).to_be_bytes();
    let header = [&length[..], &[kind, flags], &stream.to_be_bytes()];
    [&header.concat(), payload].concat()
}

/// Returns a field block of literals without indexing and Huffman code (RFC 7541 §6.2.2), for texts
/// below 16 kB.
pub fn block(fields: &[Field<'_>]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            let length = text.len();
            match u8::try_from(length) {
                Ok(short) if short < 127 => block.push(short),
                _ => {
                    let [rest, low] = ((length - 127) as u16).to_be_bytes();
                    let high = (rest << 1) | (low >> 7);
                    block.extend([127, low | 128, high]);
                }
            }
            block.extend_from_slice(text);
        }
    }
    block
}

/// Returns HEADERS with a whole field block.
pub fn headers(stream: u32, fields: &[Field<'_>], flags: u8) -> Vec<u8> {
    frame(1, END_HEADERS | flags, stream, &block(fields))
}

/// Returns DATA.
pub fn data(stream: u32, bytes: impl AsRef<[u8]>, flags: u8) -> Vec<u8> {
    frame(0, flags, stream, bytes.as_ref())
}
