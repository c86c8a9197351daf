//! Roles of keywords in PostgreSQL's statements, and functions with side effects.

use crate::facts::{Role, StatementTraits};
use crate::token::Word;
use crate::token::words::*;

/// Role of a word that MySQL lacks or handles differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnRole {
    /// May begin the list of sources.
    From,
    /// Continues the list of sources.
    Join,
    /// INTO, before the table to write to.
    Into,
    /// USING, after which DELETE and MERGE have a source.
    Using,
    /// DISTINCT, also in IS DISTINCT FROM.
    Distinct,
    /// INSERT, MERGE.
    Insert,
    /// DELETE.
    Delete,
    /// UPDATE, also in FOR UPDATE.
    Update,
    /// FOR, which may lock.
    For,
    /// TABLE.
    Table,
    /// WITH.
    With,
    /// TEMP, TEMPORARY.
    Temporary,
    /// BEGIN, possibly of a function's body.
    Begin,
    /// CASE.
    Case,
    /// END.
    End,
    /// Keyword before a parenthesis in certain positions; elsewhere it may be the name of a
    /// function.
    Over,
    /// Syntax or a type that looks like a call; it cannot be the name of a function.
    Syntax,
}

/// Returns the role of a word within a statement.
#[inline]
pub(super) fn role(word: Word) -> Role<OwnRole> {
    match word {
        SELECT => Role::Select,
        FROM => Role::Own(OwnRole::From),
        JOIN => Role::Own(OwnRole::Join),
        INTO => Role::Own(OwnRole::Into),
        INSERT | MERGE => Role::Own(OwnRole::Insert),
        DELETE => Role::Own(OwnRole::Delete),
        UPDATE => Role::Own(OwnRole::Update),
        FOR => Role::Own(OwnRole::For),
        WHERE | GROUP | ORDER | HAVING | LIMIT | OFFSET | FETCH | UNION | INTERSECT | EXCEPT
        | RETURNING | WINDOW | VALUES => Role::EndsSources,
        TABLE => Role::Own(OwnRole::Table),
        ONLY | LATERAL => Role::KeepsExpecting,
        WITH => Role::Own(OwnRole::With),
        TEMP | TEMPORARY => Role::Own(OwnRole::Temporary),
        BEGIN => Role::Own(OwnRole::Begin),
        CASE => Role::Own(OwnRole::Case),
        END => Role::Own(OwnRole::End),
        OVER | FILTER | BY | SETS | CONFLICT => Role::Own(OwnRole::Over),
        USING => Role::Own(OwnRole::Using),
        DISTINCT => Role::Own(OwnRole::Distinct),
        AND | OR | NOT | IN | ANY | ALL | SOME | ARRAY | ON | WHEN | THEN | ELSE | AS | EXISTS
        | BETWEEN => Role::Operand,
        CAST | COALESCE | GREATEST | LEAST | NULLIF | ROW | GROUPING | TREAT | TRIM | EXTRACT
        | BIT | CHAR | CHARACTER | DEC | DECIMAL | FLOAT | NCHAR | NATIONAL | NUMERIC | TIME
        | TIMESTAMP | VARCHAR | INTERVAL | XMLCONCAT | XMLELEMENT | XMLEXISTS | XMLFOREST
        | XMLPARSE | XMLPI | XMLROOT | XMLSERIALIZE => Role::Own(OwnRole::Syntax),
        _ => Role::Name,
    }
}

/// Returns the effects of the built-in function of that name. If a user's function has the same
/// name, the result overstates its effects.
pub(super) fn function_traits(written: &[u8]) -> StatementTraits {
    let name = written.strip_prefix(b"\"").unwrap_or(written);
    let name = name.strip_suffix(b"\"").unwrap_or(name);
    let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
    let begins = |prefix: &[u8]| {
        let start = name.get(..prefix.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    let Some(first) = name.first() else {
        return StatementTraits::NONE;
    };
    match first.to_ascii_lowercase() {
        b'p' if begins(b"pg_advisory_") || begins(b"pg_try_advisory_") => {
            StatementTraits::NAMED_LOCK
        }
        b'p' if is(b"pg_notify") => StatementTraits::NOTIFIES,
        b'p' if is(b"pg_current_xact_id") || is(b"pg_export_snapshot") => {
            StatementTraits::TRANSACTION_ID
        }
        b't' if is(b"txid_current") => StatementTraits::TRANSACTION_ID,
        b'n' if is(b"nextval") => StatementTraits::NEXT_VALUE,
        b'c' if is(b"currval") => StatementTraits::CURRENT_VALUE,
        b'l' if is(b"lastval") => StatementTraits::CURRENT_VALUE,
        b'l' if begins(b"lo_") || is(b"lowrite") || is(b"loread") => StatementTraits::LARGE_OBJECT,
        b's' if is(b"setval") => StatementTraits::NEXT_VALUE,
        b's' if is(b"setseed") => StatementTraits::SEED,
        b's' if is(b"set_config") => StatementTraits::SETS_UNKNOWN,
        b'd' if begins(b"dblink") || begins(b"database_to_xml") => StatementTraits::RUNS_TEXT,
        b'q' if begins(b"query_to_xml") => StatementTraits::RUNS_TEXT,
        b'c' if begins(b"cursor_to_xml") => StatementTraits::RUNS_TEXT,
        _ => StatementTraits::NONE,
    }
}
