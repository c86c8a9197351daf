//! A number for texts that differ in their literals only: for digests, statistics, caches.
//!
//! Two texts with the same fingerprint need not have the same facts (`SET a = 1` and `SET a = 2`,
//! `LAST_INSERT_ID()` and `LAST_INSERT_ID(1)` differ): whoever caches facts asks whether they hang
//! on literals. Not a secret, and not proof against somebody who looks for collisions, unless the
//! seed is secret.

use super::Modes;
use super::lexer::{Kind, Tokens};
use crate::sql::fingerprint::mix;

/// The fingerprint of a text: blanks, comments, the case of words, literals and the length of lists
/// of literals do not count. Comments that are run do.
#[must_use]
pub fn fingerprint(text: &[u8], modes: Modes, seed: u64) -> u64 {
    let mut tokens = Tokens::new(text, modes);
    let mut state = mix(seed, 0x9e37_79b9_7f4a_7c15);
    let mut behind_literal = false;
    let mut comma_held = false;
    loop {
        let token = tokens.next_token();
        let literal = matches!(token.kind, Kind::String | Kind::Number | Kind::Parameter);
        match token.kind {
            Kind::End => return mix(state, u64::from(comma_held)),
            // `1, 2, 3` counts as `1`: a comma between two literals is passed over.
            Kind::Comma if behind_literal => {
                comma_held = true;
                behind_literal = false;
                continue;
            }
            _ if literal && comma_held => {
                comma_held = false;
                behind_literal = true;
                continue;
            }
            _ => {}
        }
        if std::mem::take(&mut comma_held) {
            state = mix(state, Kind::Comma as u64);
        }
        behind_literal = literal;
        let written = token.span.of(text);
        state = match token.kind {
            _ if literal => mix(state, Kind::String as u64),
            Kind::Word => bytes(mix(state, 1), written, u8::to_ascii_lowercase),
            Kind::Operator => bytes(mix(state, 2), written, u8::clone),
            Kind::QuotedName | Kind::UserVariable | Kind::SystemVariable => {
                bytes(mix(state, token.kind as u64), written, u8::clone)
            }
            kind => mix(state, kind as u64),
        };
    }
}

/// Eight bytes at a time.
fn bytes(state: u64, written: &[u8], fold: impl Fn(&u8) -> u8) -> u64 {
    written.chunks(8).fold(state, |state, piece| {
        let number = piece
            .iter()
            .fold(0_u64, |number, byte| number << 8 | u64::from(fold(byte)));
        mix(state, number)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> u64 {
        fingerprint(text.as_bytes(), Modes::default(), 7)
    }

    #[test]
    fn literals_blanks_comments_and_case_do_not_count() {
        let one = of("SELECT a FROM t WHERE id = 1 AND n IN ('x')");
        for same in [
            "select a from t where id = 22 and n in ('y''z')",
            "select  a\nfrom t /* c */ where id=? and n in (\"a\", 5, ?) -- end",
            "SELECT a FROM t WHERE id = 0x1F AND n IN (NULL1)"
                .replace("NULL1", "'a','b'")
                .as_str(),
        ] {
            assert_eq!(of(same), one, "{same}");
        }
    }

    #[test]
    fn what_is_different_has_another_fingerprint() {
        let texts = [
            "select a from t",
            "select b from t",
            "select `A` from t",
            "select `a` from t",
            "select a from t;",
            "select a, b from t",
            "select @a from t",
            "select @@a from t",
            "select a from a_name_longer_than_sixteen_bytes",
            "select a from a_name_longer_than_sixteen_byteS2",
            "select a < b",
            "select a > b",
            "select last_insert_id()",
            "select last_insert_id(1)",
            "",
        ];
        for (index, text) in texts.iter().enumerate() {
            for other in &texts[..index] {
                assert_ne!(of(text), of(other), "{text} | {other}");
            }
        }
    }
}
