//! Checks invariants for any text in MySQL's dialect. The first byte selects the modes.

use evenkeel_sql::Dialect;
use evenkeel_sql::digest::{digest, normalised};
use evenkeel_sql::mysql::{
    LexerModes, StatementKind, Target, Value, assignments, facts, has_nbsp_outside_quotes,
};

/// Panics if reading `bytes` violates an invariant.
pub(crate) fn check(bytes: &[u8]) {
    let Some((choice, text)) = bytes.split_first() else {
        return;
    };
    let mariadb = choice & 4 != 0;
    let modes = LexerModes {
        ansi_quotes: choice & 1 != 0,
        no_backslash_escapes: choice & 2 != 0,
        nbsp_byte: if choice & 8 != 0 { 0xa0 } else { 0 },
        mariadb,
        version: if mariadb { 101_119 } else { 80_403 },
    };
    let _ = has_nbsp_outside_quotes(text, modes);
    let known = facts(text, modes);
    let mut end = 0;
    for statement in known.statements() {
        assert!(statement.span.start >= end && statement.span.end >= statement.span.start);
        end = statement.span.end;
        assert!(end as usize <= text.len());
        let names = statement.tables.as_slice().iter();
        for name in names.chain(statement.functions.as_slice()) {
            assert!(!name.name.of(text).is_empty());
        }
        if statement.kind == StatementKind::Set {
            read_assignments(text, assignments(text, statement, modes));
        }
    }
    check_digest(text, modes);
    // A comment before the text changes nothing.
    let mut commented = b"/* c */ ".to_vec();
    commented.extend_from_slice(text);
    let again = facts(&commented, modes);
    assert_eq!(known.count(), again.count());
    assert_eq!(known.only_reads(), again.only_reads());
}

/// Checks that the normalized text has the digest of the text, unless its bytes cannot be shown.
fn check_digest(text: &[u8], modes: LexerModes) {
    let dialect = Dialect::Mysql(modes);
    let number = digest(text, dialect);
    assert_eq!(digest(&[b" /* c */ ", text].concat(), dialect), number);
    let shown = normalised(text, dialect);
    if std::str::from_utf8(text).is_ok() {
        assert_eq!(digest(shown.as_bytes(), dialect), number, "{shown}");
    }
}

fn read_assignments(text: &[u8], found: Option<Vec<evenkeel_sql::mysql::Assignment>>) {
    for assignment in found.unwrap_or_default() {
        if let Target::User(span) | Target::System(_, span) = assignment.target {
            assert!(span.end as usize <= text.len());
        }
        if let Value::Literal(span) = assignment.value {
            assert!(!span.of(text).is_empty());
        }
    }
}
