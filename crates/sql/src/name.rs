//! SQL names as written, and as the server interprets them.

use std::borrow::Cow;

use super::token::Span;

/// Maximum number of significant bytes of a name (`NAMEDATALEN` - 1).
const NAME_LENGTH_MAX: usize = 63;

/// Maximum number of names that a [`Names`] keeps.
pub const NAMES_MAX: usize = 8;

/// Name, with its schema if one is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Name {
    /// Schema as written; empty if there is none.
    pub schema: Span,
    /// Name as written.
    pub name: Span,
}

/// First names of one kind in a statement, up to [`NAMES_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Names {
    names: [Name; NAMES_MAX],
    count: u8,
    more: bool,
}

impl Names {
    /// Returns the names; a repeated name is repeated here.
    #[must_use]
    pub fn as_slice(&self) -> &[Name] {
        self.names
            .get(..usize::from(self.count))
            .unwrap_or_default()
    }

    /// Returns whether names were dropped because the list was full. The absence of a name then
    /// proves nothing.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.more
    }

    pub(crate) fn push(&mut self, name: Name) {
        match self.names.get_mut(usize::from(self.count)) {
            Some(place) => {
                *place = name;
                self.count = self.count.saturating_add(1);
            }
            None => self.more = true,
        }
    }
}

impl Name {
    /// Returns the name as the server interprets it.
    #[must_use]
    pub fn name_in(self, text: &[u8]) -> Cow<'_, [u8]> {
        identifier(self.name.of(text))
    }
}

/// Returns an identifier as the server interprets it (§4.1.1): without its quotes, or in lower
/// case; truncated to 63 bytes.
#[must_use]
pub fn identifier(written: &[u8]) -> Cow<'_, [u8]> {
    let inner = written
        .strip_prefix(b"\"")
        .map(|rest| rest.strip_suffix(b"\"").unwrap_or(rest));
    match inner {
        None if written.iter().any(u8::is_ascii_uppercase) => cut(written.to_ascii_lowercase()),
        None => Cow::Borrowed(cut_slice(written)),
        Some(inner) if memchr::memchr(b'"', inner).is_some() => {
            cut(undoubled(inner, b'"').into_owned())
        }
        Some(inner) => Cow::Borrowed(cut_slice(inner)),
    }
}

/// Returns the value of a literal if its text alone determines it: a string without backslash
/// escapes, a number, or a word (in lower case).
#[must_use]
pub fn literal(written: &[u8]) -> Option<Cow<'_, [u8]>> {
    let Some(quote) = memchr::memchr(b'\'', written) else {
        let plain = |byte: &u8| !matches!(byte, b'$' | b'&');
        return written.iter().all(plain).then(|| identifier(written));
    };
    let (prefix, rest) = written.split_at_checked(quote)?;
    let inner = rest.strip_prefix(b"'")?.strip_suffix(b"'")?;
    let readable = matches!(prefix, b"" | b"E" | b"e" | b"N" | b"n");
    let pieces = inner.split(|byte| *byte == b'\'');
    // Quotes must come in pairs: a single one separates parts of a string continued on another
    // line.
    let doubled = pieces.skip(1).step_by(2).all(<[u8]>::is_empty);
    (readable && doubled && !inner.contains(&b'\\')).then(|| undoubled(inner, b'\''))
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

fn cut<'a>(mut name: Vec<u8>) -> Cow<'a, [u8]> {
    name.truncate(NAME_LENGTH_MAX);
    Cow::Owned(name)
}

fn cut_slice(name: &[u8]) -> &[u8] {
    name.get(..NAME_LENGTH_MAX).unwrap_or(name)
}
