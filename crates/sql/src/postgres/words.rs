//! PostgreSQL's keywords that matter for the classification of a text, and functions with side
//! effects.

use crate::facts::StatementTraits;
use crate::token::Word;

/// Role of a word in the middle of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// No role of its own: a name, or a keyword that does not matter.
    Name,
    /// Begins a query.
    Select,
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
    /// Ends the list of sources.
    EndsSources,
    /// TABLE.
    Table,
    /// Precedes a source.
    KeepsExpecting,
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
    /// A reserved word before an operand: a parenthesis after it begins no call.
    Operand,
    /// Syntax or a type that looks like a call; it cannot be the name of a function.
    Syntax,
}

pub(super) const ABORT: Word = Word::of("abort");
pub(super) const ALL: Word = Word::of("all");
pub(super) const ALTER: Word = Word::of("alter");
pub(super) const ANALYSE: Word = Word::of("analyse");
pub(super) const ANALYZE: Word = Word::of("analyze");
pub(super) const AND: Word = Word::of("and");
pub(super) const ANY: Word = Word::of("any");
pub(super) const ARRAY: Word = Word::of("array");
pub(super) const AS: Word = Word::of("as");
pub(super) const ATOMIC: Word = Word::of("atomic");
pub(super) const AUTHORIZATION: Word = Word::of("authorization");
pub(super) const BEGIN: Word = Word::of("begin");
pub(super) const BETWEEN: Word = Word::of("between");
pub(super) const BIT: Word = Word::of("bit");
pub(super) const BY: Word = Word::of("by");
pub(super) const CALL: Word = Word::of("call");
pub(super) const CASE: Word = Word::of("case");
pub(super) const CAST: Word = Word::of("cast");
pub(super) const CHAIN: Word = Word::of("chain");
pub(super) const CHAR: Word = Word::of("char");
pub(super) const CHARACTER: Word = Word::of("character");
pub(super) const CHARACTERISTICS: Word = Word::of("characteristics");
pub(super) const CHECKPOINT: Word = Word::of("checkpoint");
pub(super) const CLOSE: Word = Word::of("close");
pub(super) const CLUSTER: Word = Word::of("cluster");
pub(super) const COALESCE: Word = Word::of("coalesce");
pub(super) const COMMENT: Word = Word::of("comment");
pub(super) const COMMIT: Word = Word::of("commit");
pub(super) const COMMITTED: Word = Word::of("committed");
pub(super) const CONFLICT: Word = Word::of("conflict");
pub(super) const CONSTRAINTS: Word = Word::of("constraints");
pub(super) const COPY: Word = Word::of("copy");
pub(super) const CREATE: Word = Word::of("create");
pub(super) const DEALLOCATE: Word = Word::of("deallocate");
pub(super) const DEC: Word = Word::of("dec");
pub(super) const DECIMAL: Word = Word::of("decimal");
pub(super) const DECLARE: Word = Word::of("declare");
pub(super) const DEFAULT: Word = Word::of("default");
pub(super) const DEFERRABLE: Word = Word::of("deferrable");
pub(super) const DELETE: Word = Word::of("delete");
pub(super) const DISCARD: Word = Word::of("discard");
pub(super) const DISTINCT: Word = Word::of("distinct");
pub(super) const DO: Word = Word::of("do");
pub(super) const DROP: Word = Word::of("drop");
pub(super) const ELSE: Word = Word::of("else");
pub(super) const END: Word = Word::of("end");
pub(super) const EXCEPT: Word = Word::of("except");
pub(super) const EXECUTE: Word = Word::of("execute");
pub(super) const EXISTS: Word = Word::of("exists");
pub(super) const EXPLAIN: Word = Word::of("explain");
pub(super) const EXTRACT: Word = Word::of("extract");
pub(super) const FALSE: Word = Word::of("false");
pub(super) const FETCH: Word = Word::of("fetch");
pub(super) const FILTER: Word = Word::of("filter");
pub(super) const FLOAT: Word = Word::of("float");
pub(super) const FOR: Word = Word::of("for");
pub(super) const FROM: Word = Word::of("from");
pub(super) const GLOBAL: Word = Word::of("global");
pub(super) const GRANT: Word = Word::of("grant");
pub(super) const GREATEST: Word = Word::of("greatest");
pub(super) const GROUP: Word = Word::of("group");
pub(super) const GROUPING: Word = Word::of("grouping");
pub(super) const HAVING: Word = Word::of("having");
pub(super) const HOLD: Word = Word::of("hold");
pub(super) const IMPORT: Word = Word::of("import");
pub(super) const IN: Word = Word::of("in");
pub(super) const INSERT: Word = Word::of("insert");
pub(super) const INTERSECT: Word = Word::of("intersect");
pub(super) const INTERVAL: Word = Word::of("interval");
pub(super) const INTO: Word = Word::of("into");
pub(super) const IS: Word = Word::of("is");
pub(super) const ISOLATION: Word = Word::of("isolation");
pub(super) const JOIN: Word = Word::of("join");
pub(super) const KEY: Word = Word::of("key");
pub(super) const LATERAL: Word = Word::of("lateral");
pub(super) const LEAST: Word = Word::of("least");
pub(super) const LEVEL: Word = Word::of("level");
pub(super) const LIMIT: Word = Word::of("limit");
pub(super) const LISTEN: Word = Word::of("listen");
pub(super) const LOAD: Word = Word::of("load");
pub(super) const LOCAL: Word = Word::of("local");
pub(super) const LOCK: Word = Word::of("lock");
pub(super) const MATERIALIZED: Word = Word::of("materialized");
pub(super) const MERGE: Word = Word::of("merge");
pub(super) const MOVE: Word = Word::of("move");
pub(super) const NAMES: Word = Word::of("names");
pub(super) const NATIONAL: Word = Word::of("national");
pub(super) const NCHAR: Word = Word::of("nchar");
pub(super) const NO: Word = Word::of("no");
pub(super) const NOT: Word = Word::of("not");
pub(super) const NOTIFY: Word = Word::of("notify");
pub(super) const NULL: Word = Word::of("null");
pub(super) const NULLIF: Word = Word::of("nullif");
pub(super) const NUMERIC: Word = Word::of("numeric");
pub(super) const OFF: Word = Word::of("off");
pub(super) const OFFSET: Word = Word::of("offset");
pub(super) const ON: Word = Word::of("on");
pub(super) const ONLY: Word = Word::of("only");
pub(super) const OPTION: Word = Word::of("option");
pub(super) const OR: Word = Word::of("or");
pub(super) const ORDER: Word = Word::of("order");
pub(super) const OVER: Word = Word::of("over");
pub(super) const PARTITION: Word = Word::of("partition");
pub(super) const PLANS: Word = Word::of("plans");
pub(super) const PREPARE: Word = Word::of("prepare");
pub(super) const PREPARED: Word = Word::of("prepared");
pub(super) const READ: Word = Word::of("read");
pub(super) const REASSIGN: Word = Word::of("reassign");
pub(super) const RECURSIVE: Word = Word::of("recursive");
pub(super) const REFRESH: Word = Word::of("refresh");
pub(super) const REINDEX: Word = Word::of("reindex");
pub(super) const RELEASE: Word = Word::of("release");
pub(super) const REPEATABLE: Word = Word::of("repeatable");
pub(super) const RESET: Word = Word::of("reset");
pub(super) const RETURNING: Word = Word::of("returning");
pub(super) const REVOKE: Word = Word::of("revoke");
pub(super) const ROLE: Word = Word::of("role");
pub(super) const ROLLBACK: Word = Word::of("rollback");
pub(super) const ROW: Word = Word::of("row");
pub(super) const SAVEPOINT: Word = Word::of("savepoint");
pub(super) const SCHEMA: Word = Word::of("schema");
pub(super) const SECURITY: Word = Word::of("security");
pub(super) const SELECT: Word = Word::of("select");
pub(super) const SEQUENCES: Word = Word::of("sequences");
pub(super) const SERIALIZABLE: Word = Word::of("serializable");
pub(super) const SESSION: Word = Word::of("session");
pub(super) const SET: Word = Word::of("set");
pub(super) const SETS: Word = Word::of("sets");
pub(super) const SHARE: Word = Word::of("share");
pub(super) const SHOW: Word = Word::of("show");
pub(super) const SNAPSHOT: Word = Word::of("snapshot");
pub(super) const SOME: Word = Word::of("some");
pub(super) const START: Word = Word::of("start");
pub(super) const STDIN: Word = Word::of("stdin");
pub(super) const STDOUT: Word = Word::of("stdout");
pub(super) const TABLE: Word = Word::of("table");
pub(super) const TEMP: Word = Word::of("temp");
pub(super) const TEMPORARY: Word = Word::of("temporary");
pub(super) const THEN: Word = Word::of("then");
pub(super) const TIME: Word = Word::of("time");
pub(super) const TIMESTAMP: Word = Word::of("timestamp");
pub(super) const TO: Word = Word::of("to");
pub(super) const TRANSACTION: Word = Word::of("transaction");
pub(super) const TREAT: Word = Word::of("treat");
pub(super) const TRIM: Word = Word::of("trim");
pub(super) const TRUE: Word = Word::of("true");
pub(super) const TRUNCATE: Word = Word::of("truncate");
pub(super) const UNCOMMITTED: Word = Word::of("uncommitted");
pub(super) const UNION: Word = Word::of("union");
pub(super) const UNLISTEN: Word = Word::of("unlisten");
pub(super) const UPDATE: Word = Word::of("update");
pub(super) const USING: Word = Word::of("using");
pub(super) const VACUUM: Word = Word::of("vacuum");
pub(super) const VALUES: Word = Word::of("values");
pub(super) const VARCHAR: Word = Word::of("varchar");
pub(super) const VERBOSE: Word = Word::of("verbose");
pub(super) const WHEN: Word = Word::of("when");
pub(super) const WHERE: Word = Word::of("where");
pub(super) const WINDOW: Word = Word::of("window");
pub(super) const WITH: Word = Word::of("with");
pub(super) const WITHIN: Word = Word::of("within");
pub(super) const WITHOUT: Word = Word::of("without");
pub(super) const WORK: Word = Word::of("work");
pub(super) const WRITE: Word = Word::of("write");
pub(super) const XML: Word = Word::of("xml");
pub(super) const XMLCONCAT: Word = Word::of("xmlconcat");
pub(super) const XMLELEMENT: Word = Word::of("xmlelement");
pub(super) const XMLEXISTS: Word = Word::of("xmlexists");
pub(super) const XMLFOREST: Word = Word::of("xmlforest");
pub(super) const XMLPARSE: Word = Word::of("xmlparse");
pub(super) const XMLPI: Word = Word::of("xmlpi");
pub(super) const XMLROOT: Word = Word::of("xmlroot");
pub(super) const XMLSERIALIZE: Word = Word::of("xmlserialize");
pub(super) const ZONE: Word = Word::of("zone");

/// The role of a word within a statement.
#[inline]
pub(super) fn role(word: Word) -> Role {
    match word {
        SELECT => Role::Select,
        FROM => Role::From,
        JOIN => Role::Join,
        INTO => Role::Into,
        INSERT | MERGE => Role::Insert,
        DELETE => Role::Delete,
        UPDATE => Role::Update,
        FOR => Role::For,
        WHERE | GROUP | ORDER | HAVING | LIMIT | OFFSET | FETCH | UNION | INTERSECT | EXCEPT
        | RETURNING | WINDOW | VALUES => Role::EndsSources,
        TABLE => Role::Table,
        ONLY | LATERAL => Role::KeepsExpecting,
        WITH => Role::With,
        TEMP | TEMPORARY => Role::Temporary,
        BEGIN => Role::Begin,
        CASE => Role::Case,
        END => Role::End,
        OVER | FILTER | BY | SETS | CONFLICT => Role::Over,
        USING => Role::Using,
        DISTINCT => Role::Distinct,
        AND | OR | NOT | IN | ANY | ALL | SOME | ARRAY | ON | WHEN | THEN | ELSE | AS | EXISTS
        | BETWEEN => Role::Operand,
        CAST | COALESCE | GREATEST | LEAST | NULLIF | ROW | GROUPING | TREAT | TRIM | EXTRACT
        | BIT | CHAR | CHARACTER | DEC | DECIMAL | FLOAT | NCHAR | NATIONAL | NUMERIC | TIME
        | TIMESTAMP | VARCHAR | INTERVAL | XMLCONCAT | XMLELEMENT | XMLEXISTS | XMLFOREST
        | XMLPARSE | XMLPI | XMLROOT | XMLSERIALIZE => Role::Syntax,
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
            StatementTraits::ADVISORY_LOCK
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
