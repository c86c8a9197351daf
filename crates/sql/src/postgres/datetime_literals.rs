//! Literals that represent the moment at which they are evaluated.

use super::lexer::Tokens;
use crate::token::TokenKind;

/// Words of §8.5.1.4 "Special Values": evaluated once, when a text is prepared.
const WORDS: [&[u8]; 4] = [b"now", b"today", b"tomorrow", b"yesterday"];

/// Returns whether a string of the text may hold such a word. That includes strings with escapes,
/// which are not decoded, and strings in several parts.
#[must_use]
pub fn may_mean_now(text: &[u8], backslashes: bool) -> bool {
    if !may_have_strings(text) {
        return false;
    }
    let mut tokens = Tokens::new(text, backslashes);
    loop {
        let token = tokens.next_token();
        match token.kind {
            TokenKind::End => return false,
            TokenKind::String if may_hold_word(token.span.of(text), backslashes) => return true,
            _ => {}
        }
    }
}

/// Returns whether the text may have a string; a dollar before a digit begins a parameter.
fn may_have_strings(text: &[u8]) -> bool {
    let mut places = memchr::memchr2_iter(b'\'', b'$', text);
    places.any(|at| {
        let is_parameter = |byte: &u8| byte.is_ascii_digit();
        text.get(at) == Some(&b'\'') || !text.get(at.saturating_add(1)).is_some_and(is_parameter)
    })
}

fn may_hold_word(written: &[u8], backslashes: bool) -> bool {
    let has_escapes = match written.first() {
        Some(b'E' | b'e') => written.contains(&b'\\'),
        Some(b'U' | b'u') => true,
        Some(b'\'' | b'N' | b'n') => backslashes && written.contains(&b'\\'),
        _ => false,
    };
    let is_quoted = written.last() == Some(&b'\'');
    has_escapes || is_quoted && is_in_pieces(written) || has_word(written)
}

/// Returns whether the string has several parts (§4.1.2.1: strings with a newline between them are
/// one).
fn is_in_pieces(written: &[u8]) -> bool {
    let quotes = written.iter().filter(|byte| **byte == b'\'').count();
    quotes > 2 && memchr::memchr2(b'\n', b'\r', written).is_some()
}

fn has_word(written: &[u8]) -> bool {
    let mut words = written.split(|byte| !byte.is_ascii_alphabetic());
    words.any(|word| WORDS.iter().any(|one| word.eq_ignore_ascii_case(one)))
}
