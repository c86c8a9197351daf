//! Checks invariants for any text in PostgreSQL's dialect.

use evenkeel_sql::Dialect;
use evenkeel_sql::digest::{digest, normalised};
use evenkeel_sql::name::{identifier, literal};
use evenkeel_sql::postgres::{StatementFacts, Tokens, facts, set_configs};
use evenkeel_sql::token::TokenKind;

/// Panics if reading `text` violates an invariant.
pub(crate) fn check(text: &[u8]) {
    for backslashes in [false, true] {
        check_tokens(text, backslashes);
        let found = facts(text, backslashes);
        let mut end = 0;
        for statement in found.statements() {
            let span = statement.span;
            assert!(end <= span.start && span.start < span.end && span.end as usize <= text.len());
            end = span.end;
            check_names(text, statement);
            let calls = set_configs(text, statement, backslashes);
            for call in calls {
                let _ = (literal(call.name.of(text)), literal(call.value.of(text)));
            }
        }
        assert_eq!(found.single().is_some(), found.count() == 1);
        let padded = [b" /* c */ ", text].concat();
        assert_eq!(facts(&padded, backslashes).only_reads(), found.only_reads());
        let dialect = Dialect::Postgres { backslashes };
        assert_eq!(digest(&padded, dialect), digest(text, dialect));
        let _ = normalised(text, dialect);
    }
}

fn check_tokens(text: &[u8], backslashes: bool) {
    let mut tokens = Tokens::new(text, backslashes);
    let mut end = 0;
    loop {
        let token = tokens.next_token();
        assert!(end <= token.span.start, "tokens overlap");
        if token.kind == TokenKind::End {
            assert_eq!(tokens.next_token().kind, TokenKind::End);
            return;
        }
        assert!(token.span.start < token.span.end, "no progress");
        assert!(token.span.end as usize <= text.len());
        end = token.span.end;
    }
}

fn check_names(text: &[u8], statement: &StatementFacts) {
    for names in [&statement.functions, &statement.tables] {
        for name in names.as_slice() {
            assert!(!name.name.is_empty());
            let _ = (name.name_in(text), name.schema.of(text));
            assert!(identifier(name.name.of(text)).len() <= 63);
        }
    }
}
