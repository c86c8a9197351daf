//! Names and literals as written, and as the server interprets them.

use std::borrow::Cow;

use super::LexerModes;

/// Returns a name without its quotes. Whether case is significant depends on the kind of object and
/// on the server.
#[must_use]
pub fn identifier(written: &[u8]) -> Cow<'_, [u8]> {
    for quote in [b'`', b'"'] {
        let inner = written
            .strip_prefix(&[quote])
            .map(|rest| rest.strip_suffix(&[quote]).unwrap_or(rest));
        if let Some(inner) = inner {
            return undoubled(inner, quote);
        }
    }
    Cow::Borrowed(written)
}

/// Returns the value of a literal if its text alone determines it: a plain string without escapes,
/// a number, or a word.
#[must_use]
pub fn literal(written: &[u8], modes: LexerModes) -> Option<Cow<'_, [u8]>> {
    let quote = match written.first()? {
        b'\'' => b'\'',
        b'"' => b'"',
        b'`' => return Some(identifier(written)),
        _ if written.contains(&b'\'') => return None,
        _ => return Some(Cow::Borrowed(written)),
    };
    let inner = written.strip_prefix(&[quote])?.strip_suffix(&[quote])?;
    let readable = modes.no_backslash_escapes || !inner.contains(&b'\\');
    readable.then(|| undoubled(inner, quote))
}

fn undoubled(inner: &[u8], quote: u8) -> Cow<'_, [u8]> {
    if memchr::memchr(quote, inner).is_none() {
        return Cow::Borrowed(inner);
    }
    let mut plain = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter();
    while let Some(byte) = bytes.next() {
        plain.push(*byte);
        if *byte == quote {
            bytes.next();
        }
    }
    Cow::Owned(plain)
}
