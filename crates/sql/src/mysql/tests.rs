//! Facts about texts, written by hand.

use super::*;
use crate::hint::HintComment;
use crate::token::Span;

mod kinds;
mod lexing;

const MYSQL: LexerModes = LexerModes {
    ansi_quotes: false,
    no_backslash_escapes: false,
    nbsp_byte: 0,
    mariadb: false,
    version: 90_704,
};

const MARIADB: LexerModes = LexerModes {
    mariadb: true,
    version: 101_119,
    ..MYSQL
};

fn one(text: &str) -> StatementFacts {
    let facts = facts(text.as_bytes(), MYSQL);
    *facts
        .single()
        .unwrap_or_else(|| panic!("{text}: {facts:?}"))
}

fn written(text: &str, spans: &[crate::name::Name]) -> Vec<String> {
    let of = |span: Span| String::from_utf8_lossy(span.of(text.as_bytes())).into_owned();
    let name = |name: &crate::name::Name| match name.schema.is_empty() {
        true => of(name.name),
        false => format!("{}.{}", of(name.schema), of(name.name)),
    };
    spans.iter().map(name).collect()
}

fn tables(text: &str) -> Vec<String> {
    written(text, one(text).tables.as_slice())
}

fn functions(text: &str) -> Vec<String> {
    written(text, one(text).functions.as_slice())
}

#[test]
fn plain_reads_are_reads() {
    for text in [
        "SELECT 1",
        "select c from sbtest1 where id=?",
        "(SELECT 1) UNION (SELECT 2)",
        "WITH q AS (SELECT 1) SELECT * FROM q",
        "WITH RECURSIVE q(a) AS (SELECT 1 UNION SELECT a+1 FROM q) SELECT * FROM q",
        "TABLE t",
        "VALUES ROW(1), ROW(2)",
        "SELECT COUNT(*), NOW(), JSON_EXTRACT(a, '$.b') FROM t FORCE INDEX (a) LIMIT 3",
        "SELECT /*+ MAX_EXECUTION_TIME(1000) */ a FROM t",
        "SELECT @a, @`b`, @'c'",
        "SELECT REPLACE(a, 'b', 'c'), INSERT('a', 1, 1, 'b') FROM t",
        "SELECT EXTRACT(YEAR FROM d), TRIM(LEADING 'x' FROM a) FROM t",
        "SHOW TABLES",
        "SHOW FULL COLUMNS FROM t",
        "SHOW CREATE TABLE t",
        "EXPLAIN SELECT 1",
        "EXPLAIN FORMAT=TREE SELECT 1",
        "DESCRIBE t",
        "SELECT 'insert into t; for update -- '",
        "SELECT `update` FROM t",
        "SELECT * FROM information_schema.tables",
        "SELECT a FROM t WHERE b = 'it''s \\' fine'",
        "SELECT 1;",
        "",
        "# only a comment",
    ] {
        let facts = facts(text.as_bytes(), MYSQL);
        assert!(facts.only_reads(), "{text}: {facts:?}");
    }
}

#[test]
fn what_looks_like_a_read_and_is_none_is_told_by_its_trait() {
    use StatementTraits as Trait;
    for (text, of) in [
        ("SELECT a FROM t FOR UPDATE", Trait::LOCKS_ROWS),
        ("SELECT a FROM t FOR SHARE NOWAIT", Trait::LOCKS_ROWS),
        ("SELECT a FROM t LOCK IN SHARE MODE", Trait::LOCKS_ROWS),
        (
            "SELECT * FROM (SELECT 1 FROM t FOR UPDATE) x",
            Trait::LOCKS_ROWS,
        ),
        ("SELECT 1 INTO @x", Trait::SETS_VARIABLES),
        ("SELECT a INTO @x FROM t", Trait::SETS_VARIABLES),
        ("SELECT @x := 1", Trait::SETS_VARIABLES),
        ("SELECT @x:=@x+1 FROM t", Trait::SETS_VARIABLES),
        ("SELECT a FROM t INTO OUTFILE '/tmp/x'", Trait::INTO_FILE),
        ("SELECT a FROM t INTO DUMPFILE '/tmp/x'", Trait::INTO_FILE),
        ("SELECT GET_LOCK('a', 1)", Trait::NAMED_LOCK),
        ("SELECT get_lock ('a', 1)", Trait::NAMED_LOCK),
        (
            "SELECT SQL_CALC_FOUND_ROWS a FROM t",
            Trait::CALCULATES_FOUND_ROWS,
        ),
        ("SELECT FOUND_ROWS()", Trait::READS_FOUND_ROWS),
        ("SELECT ROW_COUNT()", Trait::READS_FOUND_ROWS),
        ("SELECT LAST_INSERT_ID()", Trait::READS_INSERT_ID),
        ("SELECT @@identity", Trait::READS_INSERT_ID),
        ("SELECT @@SESSION.last_insert_id", Trait::READS_INSERT_ID),
        ("SELECT LAST_INSERT_ID(5)", Trait::SETS_INSERT_ID),
        ("SELECT NEXTVAL(s)", Trait::NEXT_VALUE),
        ("SELECT NEXT VALUE FOR s", Trait::NEXT_VALUE),
        ("SELECT SETVAL(s, 5)", Trait::NEXT_VALUE),
        ("SELECT s.nextval", Trait::NEXT_VALUE),
        ("SELECT PREVIOUS VALUE FOR s", Trait::CURRENT_VALUE),
        ("SELECT LASTVAL(s)", Trait::CURRENT_VALUE),
        ("SELECT CONNECTION_ID()", Trait::CONNECTION_ID),
        ("SHOW WARNINGS", Trait::DIAGNOSTICS),
        ("SHOW COUNT(*) ERRORS", Trait::DIAGNOSTICS),
        ("SELECT @@warning_count", Trait::DIAGNOSTICS),
        ("SELECT @@version_comment LIMIT 1", Trait::READS_SYSTEM),
        ("SHOW FULL PROCESSLIST", Trait::SERVER_STATE),
        ("SHOW VARIABLES LIKE 'a'", Trait::SERVER_STATE),
        ("SELECT * FROM mysql.user", Trait::SERVER_STATE),
        (
            "SELECT * FROM `performance_schema`.threads",
            Trait::SERVER_STATE,
        ),
        ("SELECT LOAD_FILE('/etc/passwd')", Trait::SPECIAL_FUNCTION),
        (
            "SELECT WAIT_FOR_EXECUTED_GTID_SET('x')",
            Trait::SPECIAL_FUNCTION,
        ),
        (
            "SELECT service_get_read_locks('a','b',0)",
            Trait::SPECIAL_FUNCTION,
        ),
        (
            "EXPLAIN ANALYZE SELECT a FROM t FOR UPDATE",
            Trait::LOCKS_ROWS,
        ),
        ("SELECT 'open", Trait::BROKEN),
        ("SELECT 1 /* open", Trait::BROKEN),
    ] {
        let facts = facts(text.as_bytes(), MYSQL);
        let statement = facts.single().expect(text);
        assert!(statement.traits.any(of), "{text}: {statement:?}");
        assert!(!facts.only_reads(), "{text}: {statement:?}");
    }
}

#[test]
fn tables_and_functions_are_named() {
    assert_eq!(
        tables("SELECT a.b FROM a JOIN s.c ON a.x = c.x, `d e` f"),
        ["a", "s.c", "`d e`"]
    );
    assert_eq!(
        tables("SELECT * FROM (a, b) LEFT JOIN (c JOIN d USING (x)) USING (y)"),
        ["a", "b", "c", "d"]
    );
    assert_eq!(tables("INSERT INTO t (a) SELECT b FROM u"), ["t", "u"]);
    assert_eq!(tables("INSERT t VALUES (1)"), ["t"]);
    assert_eq!(tables("REPLACE LOW_PRIORITY INTO s.t SET a = 1"), ["s.t"]);
    assert_eq!(tables("UPDATE t, u SET t.a = u.a"), ["t", "u"]);
    assert_eq!(
        tables("DELETE FROM t WHERE a IN (SELECT b FROM u)"),
        ["t", "u"]
    );
    assert_eq!(tables("CREATE TABLE IF NOT EXISTS t (a INT)"), ["t"]);
    assert_eq!(tables("TRUNCATE TABLE t"), ["t"]);
    assert_eq!(
        functions("SELECT mine(1), s.other(2), COUNT(*) FROM t x"),
        ["mine", "s.other"]
    );
    assert_eq!(
        functions("SELECT my_function (1) FROM t WHERE a IN (1)"),
        ["my_function"]
    );
    assert_eq!(
        functions("WITH q (a) AS (SELECT 1) SELECT * FROM q"),
        [""; 0]
    );
    assert_eq!(
        functions("SELECT a FROM t GROUP BY a HAVING (a) ORDER BY (b)"),
        [""; 0]
    );
}

#[test]
fn hints_in_comments_are_heard() {
    let hint = |text: &'static str| facts(text.as_bytes(), MYSQL).hint();
    assert_eq!(
        hint("/* evenkeel: primary */ SELECT 1"),
        Some(HintComment::Primary)
    );
    assert_eq!(
        hint("SELECT /*+ evenkeel: replica */ 1"),
        Some(HintComment::Replica)
    );
    assert_eq!(
        hint("SELECT 1 -- evenkeel: server=db2"),
        Some(HintComment::Server(b"db2"))
    );
}

#[test]
fn a_text_of_many_statements_is_taken_apart() {
    let text = b"SET @a = 1; SELECT 2 ; ; INSERT INTO t VALUES (';')";
    let facts = facts(text, MYSQL);
    let spans: Vec<_> = facts.statements().map(|one| one.span.of(text)).collect();
    let expected: [&[u8]; 3] = [b"SET @a = 1", b"SELECT 2", b"INSERT INTO t VALUES (';')"];
    assert_eq!(spans, expected);
    assert_eq!(facts.count(), 3);
    assert!(!facts.only_reads());
}

#[test]
fn a_stored_program_goes_to_the_end_of_the_text() {
    let text = "CREATE DEFINER=a@b PROCEDURE p() BEGIN SELECT 1; DELETE FROM t; END";
    let statement = one(text);
    assert_eq!(statement.kind, StatementKind::Ddl);
    assert!(statement.traits.any(StatementTraits::STORED_PROGRAM));
    assert_eq!(
        one("IF 1 THEN SELECT 1; END IF; SELECT 2").kind,
        StatementKind::Unknown
    );
    assert_eq!(facts(b"DROP PROCEDURE p; SELECT 1", MYSQL).count(), 2);
}

#[test]
fn a_program_is_known_by_where_its_word_stands() {
    for text in [
        "create or replace aggregate function f() returns int begin select 1; end",
        "CREATE DEFINER = CURRENT_USER() TRIGGER t BEFORE INSERT ON a FOR EACH ROW SET @a = 1; b",
        "CREATE DEFINER='a'@'%' EVENT e ON SCHEDULE EVERY 1 DAY DO BEGIN SELECT 1; END",
        "/*!50003 CREATE*/ /*!50020 DEFINER=`a`@`b`*/ /*!50003 TRIGGER t BEGIN SELECT 1; END */",
        "ALTER DEFINER=a@b EVENT e DO SELECT 1; SELECT 2",
        "CREATE PACKAGE BODY p AS a INT; b INT; END",
    ] {
        assert!(
            one(text).traits.any(StatementTraits::STORED_PROGRAM),
            "{text}"
        );
    }
    for text in [
        "ALTER TABLE event ADD c INT; LOCK TABLES event WRITE",
        "CREATE TEMPORARY TABLE package (a INT); SELECT 1",
        "ALTER TABLE t ADD function INT; SELECT 1",
        "CREATE INDEX event ON t (a); SELECT 1",
        "CREATE DEFINER=event@localhost SQL SECURITY INVOKER VIEW v AS SELECT 1; SELECT 2",
        "CREATE OR REPLACE VIEW event AS SELECT 1; SELECT 2",
    ] {
        let facts = facts(text.as_bytes(), MYSQL);
        assert_eq!(facts.count(), 2, "{text}");
        let is_program = |one: &StatementFacts| one.traits.any(StatementTraits::STORED_PROGRAM);
        assert!(!facts.statements().any(is_program), "{text}");
    }
    assert_eq!(
        tables("SELECT * FROM event, function"),
        ["event", "function"]
    );
}

#[test]
fn functions_of_the_other_kind_of_server_may_be_stored_ones() {
    let named = |text: &'static str, modes: LexerModes| {
        let facts = facts(text.as_bytes(), modes);
        let statement = *facts.single().expect(text);
        written(text, statement.functions.as_slice())
    };
    let text = "SELECT nvl(a, 1), BIN_TO_UUID(b), list(c), upper(d)";
    assert_eq!(named(text, MYSQL), ["nvl", "list"]);
    assert_eq!(named(text, MARIADB), ["BIN_TO_UUID", "list"]);
    let text = "CREATE TABLE t (a INT) PARTITION BY LIST (a) (PARTITION p VALUES IN (1))";
    assert_eq!(named(text, MYSQL), [""; 0]);
    let later = LexerModes {
        version: 110_809,
        ..MARIADB
    };
    let text = "SELECT vec_distance(a, b), UUID_v7(), BIN_TO_UUID(c)";
    assert_eq!(named(text, later), ["BIN_TO_UUID"]);
    let all = ["vec_distance", "UUID_v7", "BIN_TO_UUID"];
    let dates = "SELECT to_date(a), TO_TIMESTAMP(b), to_days(c)";
    for modes in [MYSQL, MARIADB, later] {
        assert_eq!(named(dates, modes), ["to_date", "TO_TIMESTAMP"]);
    }
    let latest = LexerModes {
        version: 120_300,
        ..MARIADB
    };
    assert_eq!(named(dates, latest), ["TO_TIMESTAMP"]);
    assert_eq!(named(text, MARIADB), all);
    assert_eq!(named(text, MYSQL), all[..2]);
}
