//! MySQL's keywords that matter for the classification of a text.

use super::facts::StatementTraits;
use crate::token::Word;

/// Role of a word in the middle of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// No role of its own: a name, a function, or a keyword that does not matter.
    Name,
    /// Begins a query.
    Select,
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
    /// Ends the list of sources.
    EndsSources,
    /// TABLE.
    Table,
    /// Precedes a source or target.
    KeepsExpecting,
    /// WITH.
    With,
    /// TEMPORARY.
    Temporary,
    /// NEXT, perhaps of a sequence.
    Next,
    /// PREVIOUS, perhaps of a sequence.
    Previous,
    /// A reserved word: a parenthesis after it begins no call.
    Operand,
}

pub(super) const ASSIGN: Word = Word::of(":=");
pub(super) const AGGREGATE: Word = Word::of("aggregate");
pub(super) const ALL: Word = Word::of("all");
pub(super) const ALTER: Word = Word::of("alter");
pub(super) const ANALYZE: Word = Word::of("analyze");
pub(super) const AND: Word = Word::of("and");
pub(super) const AS: Word = Word::of("as");
pub(super) const BACKUP: Word = Word::of("backup");
pub(super) const BEGIN: Word = Word::of("begin");
pub(super) const BETWEEN: Word = Word::of("between");
pub(super) const BULK: Word = Word::of("bulk");
pub(super) const BY: Word = Word::of("by");
pub(super) const CALL: Word = Word::of("call");
pub(super) const CASE: Word = Word::of("case");
pub(super) const CHAIN: Word = Word::of("chain");
pub(super) const CHARACTER: Word = Word::of("character");
pub(super) const CHARSET: Word = Word::of("charset");
pub(super) const CHECK: Word = Word::of("check");
pub(super) const CHECKSUM: Word = Word::of("checksum");
pub(super) const COLLATE: Word = Word::of("collate");
pub(super) const COLLATION: Word = Word::of("collation");
pub(super) const COLUMNS: Word = Word::of("columns");
pub(super) const COMMIT: Word = Word::of("commit");
pub(super) const COMMITTED: Word = Word::of("committed");
pub(super) const CONCURRENT: Word = Word::of("concurrent");
pub(super) const CONNECTION: Word = Word::of("connection");
pub(super) const CONSISTENT: Word = Word::of("consistent");
pub(super) const COUNT: Word = Word::of("count");
pub(super) const CREATE: Word = Word::of("create");
pub(super) const CROSS: Word = Word::of("cross");
pub(super) const CURRENT_DATE: Word = Word::of("current_date");
pub(super) const CURRENT_ROLE: Word = Word::of("current_role");
pub(super) const CURRENT_TIME: Word = Word::of("current_time");
pub(super) const CURRENT_USER: Word = Word::of("current_user");
pub(super) const DATA: Word = Word::of("data");
pub(super) const DATABASES: Word = Word::of("databases");
pub(super) const DEALLOCATE: Word = Word::of("deallocate");
pub(super) const DEFAULT: Word = Word::of("default");
pub(super) const DEFINER: Word = Word::of("definer");
pub(super) const DELAYED: Word = Word::of("delayed");
pub(super) const DELETE: Word = Word::of("delete");
pub(super) const DESC: Word = Word::of("desc");
pub(super) const DESCRIBE: Word = Word::of("describe");
pub(super) const DISTINCT: Word = Word::of("distinct");
pub(super) const DISTINCTROW: Word = Word::of("distinctrow");
pub(super) const DIV: Word = Word::of("div");
pub(super) const DO: Word = Word::of("do");
pub(super) const DROP: Word = Word::of("drop");
pub(super) const DUAL: Word = Word::of("dual");
pub(super) const DUMPFILE: Word = Word::of("dumpfile");
pub(super) const ELSE: Word = Word::of("else");
pub(super) const END: Word = Word::of("end");
pub(super) const ENGINES: Word = Word::of("engines");
pub(super) const ERRORS: Word = Word::of("errors");
pub(super) const EVENT: Word = Word::of("event");
pub(super) const EVENTS: Word = Word::of("events");
pub(super) const EXCEPT: Word = Word::of("except");
pub(super) const EXECUTE: Word = Word::of("execute");
pub(super) const EXISTS: Word = Word::of("exists");
pub(super) const EXPLAIN: Word = Word::of("explain");
pub(super) const EXPORT: Word = Word::of("export");
pub(super) const EXTENDED: Word = Word::of("extended");
pub(super) const FALSE: Word = Word::of("false");
pub(super) const FIELDS: Word = Word::of("fields");
pub(super) const FLUSH: Word = Word::of("flush");
pub(super) const FOR: Word = Word::of("for");
pub(super) const FORCE: Word = Word::of("force");
pub(super) const FORMAT: Word = Word::of("format");
pub(super) const FROM: Word = Word::of("from");
pub(super) const FULL: Word = Word::of("full");
pub(super) const FUNCTION: Word = Word::of("function");
pub(super) const GET: Word = Word::of("get");
pub(super) const GLOBAL: Word = Word::of("global");
pub(super) const GRANT: Word = Word::of("grant");
pub(super) const GROUP: Word = Word::of("group");
pub(super) const HANDLER: Word = Word::of("handler");
pub(super) const HARD: Word = Word::of("hard");
pub(super) const HAVING: Word = Word::of("having");
pub(super) const HELP: Word = Word::of("help");
pub(super) const HIGH_PRIORITY: Word = Word::of("high_priority");
pub(super) const ID: Word = Word::of("id");
pub(super) const IF: Word = Word::of("if");
pub(super) const IGNORE: Word = Word::of("ignore");
pub(super) const IMMEDIATE: Word = Word::of("immediate");
pub(super) const IN: Word = Word::of("in");
pub(super) const INDEX: Word = Word::of("index");
pub(super) const INDEXES: Word = Word::of("indexes");
pub(super) const INNER: Word = Word::of("inner");
pub(super) const INSERT: Word = Word::of("insert");
pub(super) const INSTANCE: Word = Word::of("instance");
pub(super) const INTERSECT: Word = Word::of("intersect");
pub(super) const INTO: Word = Word::of("into");
pub(super) const IS: Word = Word::of("is");
pub(super) const ISOLATION: Word = Word::of("isolation");
pub(super) const JOIN: Word = Word::of("join");
pub(super) const KEY: Word = Word::of("key");
pub(super) const KEYS: Word = Word::of("keys");
pub(super) const KILL: Word = Word::of("kill");
pub(super) const LATERAL: Word = Word::of("lateral");
pub(super) const LEVEL: Word = Word::of("level");
pub(super) const LIKE: Word = Word::of("like");
pub(super) const LIMIT: Word = Word::of("limit");
pub(super) const LOAD: Word = Word::of("load");
pub(super) const LOCAL: Word = Word::of("local");
pub(super) const LOCALTIME: Word = Word::of("localtime");
pub(super) const LOCALTIMESTAMP: Word = Word::of("localtimestamp");
pub(super) const LOCK: Word = Word::of("lock");
pub(super) const LOW_PRIORITY: Word = Word::of("low_priority");
pub(super) const MINUS: Word = Word::of("minus");
pub(super) const NAMES: Word = Word::of("names");
pub(super) const NATURAL: Word = Word::of("natural");
pub(super) const NEXT: Word = Word::of("next");
pub(super) const NO: Word = Word::of("no");
pub(super) const NOT: Word = Word::of("not");
pub(super) const NULL: Word = Word::of("null");
pub(super) const ON: Word = Word::of("on");
pub(super) const ONLY: Word = Word::of("only");
pub(super) const OPTIMIZE: Word = Word::of("optimize");
pub(super) const OR: Word = Word::of("or");
pub(super) const ORDER: Word = Word::of("order");
pub(super) const OUTER: Word = Word::of("outer");
pub(super) const OUTFILE: Word = Word::of("outfile");
pub(super) const OVER: Word = Word::of("over");
pub(super) const PACKAGE: Word = Word::of("package");
pub(super) const PARTITION: Word = Word::of("partition");
pub(super) const PARTITIONS: Word = Word::of("partitions");
pub(super) const PASSWORD: Word = Word::of("password");
pub(super) const PERSIST: Word = Word::of("persist");
pub(super) const PERSIST_ONLY: Word = Word::of("persist_only");
pub(super) const PLUGINS: Word = Word::of("plugins");
pub(super) const PREPARE: Word = Word::of("prepare");
pub(super) const PREVIOUS: Word = Word::of("previous");
pub(super) const PROCEDURE: Word = Word::of("procedure");
pub(super) const QUERY: Word = Word::of("query");
pub(super) const QUICK: Word = Word::of("quick");
pub(super) const READ: Word = Word::of("read");
pub(super) const RECURSIVE: Word = Word::of("recursive");
pub(super) const REGEXP: Word = Word::of("regexp");
pub(super) const RELEASE: Word = Word::of("release");
pub(super) const RENAME: Word = Word::of("rename");
pub(super) const REPAIR: Word = Word::of("repair");
pub(super) const REPEATABLE: Word = Word::of("repeatable");
pub(super) const REPLACE: Word = Word::of("replace");
pub(super) const RESOURCE: Word = Word::of("resource");
pub(super) const RETURNING: Word = Word::of("returning");
pub(super) const REVOKE: Word = Word::of("revoke");
pub(super) const RLIKE: Word = Word::of("rlike");
pub(super) const ROLE: Word = Word::of("role");
pub(super) const ROLLBACK: Word = Word::of("rollback");
pub(super) const SAVEPOINT: Word = Word::of("savepoint");
pub(super) const SCHEMAS: Word = Word::of("schemas");
pub(super) const SELECT: Word = Word::of("select");
pub(super) const SERIALIZABLE: Word = Word::of("serializable");
pub(super) const SESSION: Word = Word::of("session");
pub(super) const SET: Word = Word::of("set");
pub(super) const SHARE: Word = Word::of("share");
pub(super) const SHOW: Word = Word::of("show");
pub(super) const SNAPSHOT: Word = Word::of("snapshot");
pub(super) const SOFT: Word = Word::of("soft");
pub(super) const STAGE: Word = Word::of("stage");
pub(super) const START: Word = Word::of("start");
pub(super) const STATEMENT: Word = Word::of("statement");
pub(super) const STRAIGHT_JOIN: Word = Word::of("straight_join");
pub(super) const SYSDATE: Word = Word::of("sysdate");
pub(super) const TABLE: Word = Word::of("table");
pub(super) const TABLES: Word = Word::of("tables");
pub(super) const TEMPORARY: Word = Word::of("temporary");
pub(super) const THEN: Word = Word::of("then");
pub(super) const TO: Word = Word::of("to");
pub(super) const TRANSACTION: Word = Word::of("transaction");
pub(super) const TRIGGER: Word = Word::of("trigger");
pub(super) const TRIGGERS: Word = Word::of("triggers");
pub(super) const TRUE: Word = Word::of("true");
pub(super) const TRUNCATE: Word = Word::of("truncate");
pub(super) const UNCOMMITTED: Word = Word::of("uncommitted");
pub(super) const UNION: Word = Word::of("union");
pub(super) const UNLOCK: Word = Word::of("unlock");
pub(super) const UPDATE: Word = Word::of("update");
pub(super) const USE: Word = Word::of("use");
pub(super) const USER: Word = Word::of("user");
pub(super) const USING: Word = Word::of("using");
pub(super) const UTC_DATE: Word = Word::of("utc_date");
pub(super) const UTC_TIME: Word = Word::of("utc_time");
pub(super) const UTC_TIMESTAMP: Word = Word::of("utc_timestamp");
pub(super) const VALUE: Word = Word::of("value");
pub(super) const VALUES: Word = Word::of("values");
pub(super) const WARNINGS: Word = Word::of("warnings");
pub(super) const WHEN: Word = Word::of("when");
pub(super) const WHERE: Word = Word::of("where");
pub(super) const WINDOW: Word = Word::of("window");
pub(super) const WITH: Word = Word::of("with");
pub(super) const WORK: Word = Word::of("work");
pub(super) const WRITE: Word = Word::of("write");
pub(super) const XA: Word = Word::of("xa");
pub(super) const XML: Word = Word::of("xml");
pub(super) const XOR: Word = Word::of("xor");

/// Returns the role of a word.
pub(super) fn role(word: Word) -> Role {
    match word {
        SELECT | VALUES => Role::Select,
        FROM => Role::From,
        JOIN | STRAIGHT_JOIN => Role::Join,
        INTO => Role::Into,
        INSERT | REPLACE | DELETE | TRUNCATE => Role::Write,
        UPDATE => Role::Update,
        FOR => Role::For,
        LOCK => Role::Lock,
        WHERE | GROUP | HAVING | ORDER | LIMIT | UNION | EXCEPT | INTERSECT | MINUS | WINDOW
        | SET => Role::EndsSources,
        TABLE => Role::Table,
        ONLY | LATERAL | IGNORE | LOW_PRIORITY | HIGH_PRIORITY | DELAYED | QUICK | IF | NOT
        | EXISTS => Role::KeepsExpecting,
        WITH => Role::With,
        TEMPORARY => Role::Temporary,
        NEXT => Role::Next,
        PREVIOUS => Role::Previous,
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
