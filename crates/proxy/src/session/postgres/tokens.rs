//! Divides the numbers of request tokens: statements with a name, unnamed ones, those for a query,
//! and others.

use evenkeel_wire::postgres::conversation::RequestToken;

/// Marks tokens of Parses that name a statement; the outcome of others is not tracked.
pub(super) const PARSE: u64 = 1 << 62;

/// Marks tokens of Parses of unnamed statements.
pub(super) const UNNAMED: u64 = 1 << 63;

/// Marks tokens of Parses by Evenkeel for a query within a batch.
pub(super) const NAMED_FOR_QUERY: u64 = 1 << 61;

/// Returns the id of the unnamed statement that the token stands for.
pub(super) fn unnamed_of(token: RequestToken) -> Option<u64> {
    (token.0 & UNNAMED != 0).then_some(token.0 & !UNNAMED)
}

/// Returns the id of the statement that the token stands for.
pub(super) fn statement_of(token: RequestToken) -> Option<u64> {
    (token.0 & PARSE != 0 && token.0 & UNNAMED == 0).then_some(token.0 & !PARSE)
}
