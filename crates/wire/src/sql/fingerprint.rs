//! A number for texts that differ in their literals only: for digests and statistics.
//!
//! Two texts with the same fingerprint need not have the same facts (`SET a = 1` and `SET a = 2`,
//! `set_config`): whoever caches facts asks whether they hang on literals. Not proof against
//! somebody who looks for collisions, unless the seed is secret.

use super::postgres::Tokens;
use super::token::Kind;

/// The fingerprint of a text in PostgreSQL's dialect: blanks, comments, the case of words, literals
/// and the length of lists of literals do not count.
#[must_use]
pub fn postgres(text: &[u8], backslashes: bool, seed: u64) -> u64 {
    let mut tokens = Tokens::new(text, backslashes);
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
        state = match token.kind {
            _ if literal => mix(state, Kind::String as u64),
            Kind::Word | Kind::Operator if token.word.0 != 0 => {
                let (low, high) = (token.word.0 as u64, (token.word.0 >> 64) as u64);
                mix(mix(state, low), high)
            }
            Kind::Word => long_word(state, token.span.of(text)),
            Kind::QuotedName | Kind::EscapedName => quoted(state, token.span.of(text)),
            kind => mix(state, kind as u64),
        };
    }
}

/// Folded multiplication of both numbers.
#[inline]
pub(super) fn mix(state: u64, value: u64) -> u64 {
    let product = u128::from(state ^ value).wrapping_mul(0x2d35_8dcc_aa6c_78a5_8bb8_4b93_962e_acc9);
    (product as u64) ^ ((product >> 64) as u64) ^ state.rotate_left(23)
}

fn long_word(state: u64, word: &[u8]) -> u64 {
    let fold = |state, byte: &u8| mix(state, u64::from(byte.to_ascii_lowercase()));
    word.iter().fold(mix(state, 1), fold)
}

fn quoted(state: u64, name: &[u8]) -> u64 {
    let fold = |state, byte: &u8| mix(state, u64::from(*byte));
    name.iter().fold(mix(state, 2), fold)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> u64 {
        postgres(text.as_bytes(), false, 7)
    }

    #[test]
    fn literals_blanks_comments_and_case_do_not_count() {
        let one = of("SELECT a FROM t WHERE id = 1 AND n = 'x'");
        for same in [
            "select a from t where id = 22 and n = 'y''z'",
            "select  a\nfrom t /* c */ where id=$1 and n=E'\\'' -- end",
            "SELECT a FROM t WHERE id = 0x1F AND n = $q$ ; $q$",
        ] {
            assert_eq!(of(same), one, "{same}");
        }
    }

    #[test]
    fn lists_of_literals_count_as_one() {
        let one = of("select * from t where id in (1)");
        assert_eq!(of("select * from t where id in (1,2,3)"), one);
        assert_eq!(of("select * from t where id in ($1, 'a', 3)"), one);
        assert_ne!(of("select * from t where id in (1, a)"), one);
    }

    #[test]
    fn what_is_different_has_another_fingerprint() {
        let texts = [
            "select a from t",
            "select b from t",
            "select \"A\" from t",
            "select \"a\" from t",
            "select a from t;",
            "select a, b from t",
            "select 1, a from t",
            "select a from a_name_longer_than_sixteen_bytes",
            "select a from a_name_longer_than_sixteen_byteS2",
            "select a < b",
            "select a > b",
            "",
        ];
        for (index, text) in texts.iter().enumerate() {
            for other in &texts[..index] {
                assert_ne!(of(text), of(other), "{text} | {other}");
            }
        }
        assert_ne!(postgres(b"a", false, 1), postgres(b"a", false, 2));
    }
}
