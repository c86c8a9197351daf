//! Finds function calls of the form `row.name`: a call if the row has no such column (§8.16.5).

use std::borrow::Cow;

use crate::name::identifier;
use crate::postgres::StatementFacts;
use crate::postgres::Tokens;
use crate::token::{Token, TokenKind};

use super::AnalysisContext;

/// Returns the functions that a statement may call this way, except those that only read.
pub(super) fn called<'a>(
    context: &AnalysisContext<'a>,
    statement: &StatementFacts,
) -> impl Iterator<Item = Cow<'a, [u8]>> {
    let catalog = context
        .catalog
        .filter(|catalog| catalog.has_row_functions());
    let sql = statement.span.of(context.text);
    let mut tokens = Tokens::new(sql, context.backslashes);
    let mut last = Token::default();
    std::iter::from_fn(move || {
        let catalog = catalog?;
        loop {
            let token = tokens.next_token();
            let before = std::mem::replace(&mut last, token);
            if token.kind == TokenKind::End {
                return None;
            }
            if before.kind == TokenKind::Dot && token.is_name() {
                let name = identifier(token.span.of(sql));
                if catalog.is_row_function(&name) {
                    return Some(name);
                }
            }
        }
    })
}
