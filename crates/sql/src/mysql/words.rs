//! Roles of keywords in MySQL's statements, and names with properties of their own.

use crate::facts::{Role, StatementTraits};
use crate::token::Word;
use crate::token::words::*;

/// Role of a word that PostgreSQL lacks or handles differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OwnRole {
    /// May begin the list of sources.
    From,
    /// Continues the list of sources.
    Join,
    /// INTO, before the table to write to, before variables, or before a file.
    Into,
    /// INSERT, REPLACE, DELETE, TRUNCATE.
    Write,
    /// UPDATE, also in FOR UPDATE.
    Update,
    /// FOR, which may lock.
    For,
    /// LOCK, which may be LOCK IN SHARE MODE.
    Lock,
    /// TABLE.
    Table,
    /// WITH.
    With,
    /// TEMPORARY.
    Temporary,
    /// NEXT, perhaps of a sequence.
    Next,
    /// PREVIOUS, perhaps of a sequence.
    Previous,
}

/// Returns the role of a word.
pub(super) fn role(word: Word) -> Role<OwnRole> {
    match word {
        SELECT | VALUES => Role::Select,
        FROM => Role::Own(OwnRole::From),
        JOIN | STRAIGHT_JOIN => Role::Own(OwnRole::Join),
        INTO => Role::Own(OwnRole::Into),
        INSERT | REPLACE | DELETE | TRUNCATE => Role::Own(OwnRole::Write),
        UPDATE => Role::Own(OwnRole::Update),
        FOR => Role::Own(OwnRole::For),
        LOCK => Role::Own(OwnRole::Lock),
        WHERE | GROUP | HAVING | ORDER | LIMIT | UNION | EXCEPT | INTERSECT | MINUS | WINDOW
        | SET => Role::EndsSources,
        TABLE => Role::Own(OwnRole::Table),
        ONLY | LATERAL | IGNORE | LOW_PRIORITY | HIGH_PRIORITY | DELAYED | QUICK | IF | NOT
        | EXISTS => Role::KeepsExpecting,
        WITH => Role::Own(OwnRole::With),
        TEMPORARY => Role::Own(OwnRole::Temporary),
        NEXT => Role::Own(OwnRole::Next),
        PREVIOUS => Role::Own(OwnRole::Previous),
        ON | USING | AND | OR | XOR | IN | LIKE | RLIKE | REGEXP | BETWEEN | CASE | WHEN | THEN
        | ELSE | IS | DIV | BY | DISTINCT | DISTINCTROW | ALL | NATURAL | INNER | OUTER | CROSS
        | USE | FORCE | KEY | INDEX | PARTITION | DUAL | NULL | TRUE | FALSE | COLLATE | OVER
        | RETURNING | UNLOCK => Role::Operand,
        _ => Role::Name,
    }
}

/// Returns whether a query begins with the word.
pub(super) fn begins_query(word: Word) -> bool {
    matches!(word, SELECT | VALUES | TABLE | WITH)
}

/// Returns whether the word is a function that is called without parentheses, and so is no literal
/// value.
pub(super) fn is_function_word(word: Word) -> bool {
    matches!(
        word,
        CURRENT_DATE
            | CURRENT_TIME
            | CURRENT_USER
            | CURRENT_ROLE
            | LOCALTIME
            | LOCALTIMESTAMP
            | UTC_DATE
            | UTC_TIME
            | UTC_TIMESTAMP
            | SYSDATE
    )
}

/// Returns whether SHOW with this word returns the same result on every server of a cluster.
pub(super) fn is_shown_everywhere(word: Word) -> bool {
    matches!(
        word,
        TABLES
            | COLUMNS
            | FIELDS
            | INDEX
            | INDEXES
            | KEYS
            | DATABASES
            | SCHEMAS
            | CREATE
            | CHARACTER
            | CHARSET
            | COLLATION
            | TRIGGERS
            | EVENTS
            | TABLE
            | PROCEDURE
            | FUNCTION
            | ENGINES
            | PLUGINS
    )
}

/// Returns the properties of a statement that names this table, if the schema is one of the
/// server's own.
pub(super) fn schema_traits(schema: &[u8], table: &[u8]) -> StatementTraits {
    let is = |name: &[u8]| unquoted(schema).eq_ignore_ascii_case(name);
    if is(b"mysql") || is(b"performance_schema") || is(b"sys") {
        return StatementTraits::SERVER_STATE;
    }
    if !is(b"information_schema") {
        return StatementTraits::NONE;
    }
    let is_catalog = |name: &&str| unquoted(table).eq_ignore_ascii_case(name.as_bytes());
    match CATALOG.iter().any(is_catalog) {
        true => StatementTraits::CATALOG,
        false => StatementTraits::CATALOG.and(StatementTraits::SERVER_STATE),
    }
}

/// Tables of `information_schema` that are identical on every server of a cluster. The other tables
/// describe one server or one session.
const CATALOG: &[&str] = &[
    "character_sets",
    "check_constraints",
    "collation_character_set_applicability",
    "collations",
    "column_privileges",
    "column_statistics",
    "columns",
    "columns_extensions",
    "engines",
    "events",
    "geometry_columns",
    "key_column_usage",
    "keywords",
    "parameters",
    "partitions",
    "plugins",
    "referential_constraints",
    "routines",
    "schema_privileges",
    "schemata",
    "schemata_extensions",
    "sequences",
    "spatial_ref_sys",
    "sql_functions",
    "st_geometry_columns",
    "st_spatial_reference_systems",
    "st_units_of_measure",
    "statistics",
    "table_constraints",
    "table_constraints_extensions",
    "table_privileges",
    "tables",
    "tables_extensions",
    "tablespaces_extensions",
    "triggers",
    "user_privileges",
    "view_routine_usage",
    "view_table_usage",
    "views",
];

/// Returns what reading this system variable reveals about the preceding statement or the
/// connection.
pub(super) fn system_variable_traits(written: &[u8]) -> StatementTraits {
    let name = written.rsplit(|byte| *byte == b'.' || *byte == b'@').next();
    let name = unquoted(name.unwrap_or_default());
    let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
    if is(b"last_insert_id") || is(b"identity") {
        return StatementTraits::READS_INSERT_ID;
    }
    if is(b"warning_count") || is(b"error_count") {
        return StatementTraits::DIAGNOSTICS;
    }
    match is(b"pseudo_thread_id") {
        true => StatementTraits::CONNECTION_ID,
        false => StatementTraits::NONE,
    }
}

fn unquoted(name: &[u8]) -> &[u8] {
    let quote = |name: &'_ [u8]| matches!(name.first(), Some(b'`' | b'"'));
    match quote(name) {
        true => name.get(1..name.len().saturating_sub(1)).unwrap_or(name),
        false => name,
    }
}
