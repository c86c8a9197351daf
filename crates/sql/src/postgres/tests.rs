//! Facts about texts that poolers and splitters misread, one table for each kind of mistake.

use super::*;
use crate::facts::Isolation;
use crate::hint::HintComment;
use crate::name::{identifier, literal};

mod kinds;
mod lexing;
mod looking;

fn of(text: &str) -> TextFacts<'_> {
    facts(text.as_bytes(), false)
}

#[track_caller]
fn one(text: &str) -> StatementFacts {
    let facts = of(text);
    let single = facts.single().copied();
    single.unwrap_or_else(|| panic!("{} statements: {text}", facts.count()))
}

/// Returns `schema.name` of every function, as the server interprets the names.
fn functions(text: &str) -> Vec<String> {
    names(text, &one(text).functions)
}

fn tables(text: &str) -> Vec<String> {
    names(text, &one(text).tables)
}

fn names(text: &str, names: &crate::name::Names) -> Vec<String> {
    let text = text.as_bytes();
    let show = |name: &crate::name::Name| {
        let last = String::from_utf8_lossy(&name.name_in(text)).into_owned();
        if name.schema.is_empty() {
            return last;
        }
        let schema = crate::name::identifier(name.schema.of(text));
        format!("{}.{last}", String::from_utf8_lossy(&schema))
    };
    names.as_slice().iter().map(show).collect()
}

#[test]
fn these_only_read() {
    for text in [
        "SELECT 1",
        "select * from t where id = $1",
        "  /* c */ -- d\n (((select 1) union select 2))",
        "VALUES (1), (2)",
        "TABLE t",
        "WITH x AS (SELECT 1), y (a, b) AS (SELECT 2, 3) SELECT * FROM x, y",
        "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM r) SELECT * FROM r",
        "WITH x AS (SELECT 1) ((SELECT * FROM x) UNION TABLE x)",
        "select substring(a from 2 for 3), extract(year from d), a is distinct from b from t",
        "select 'insert into x', \"update\", $$ delete $$ from t",
        "SHOW search_path",
        "SHOW TRANSACTION ISOLATION LEVEL",
        "EXPLAIN DELETE FROM t",
        "EXPLAIN (VERBOSE, FORMAT JSON) INSERT INTO t VALUES (1)",
        "EXPLAIN (ANALYZE off) UPDATE t SET a = 1",
        "EXPLAIN ANALYZE SELECT 1",
        "EXPLAIN (ANALYZE, BUFFERS) SELECT * FROM t",
        "COPY t TO STDOUT",
        "COPY (SELECT * FROM t) TO STDOUT WITH (FORMAT csv)",
        "SELECT count(*) FILTER (WHERE a) OVER (PARTITION BY b) FROM t",
        "",
        ";;",
        "-- nothing",
    ] {
        assert!(of(text).only_reads(), "{text}: {:?}", of(text));
    }
}

#[test]
fn these_do_not_only_read() {
    for text in [
        "INSERT INTO t SELECT 1",
        "WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x",
        "WITH x AS (SELECT 1) UPDATE t SET a = 1",
        "WITH x AS (DELETE FROM t RETURNING *) (SELECT * FROM x)",
        "WITH x AS (SELECT 1) (SELECT * FROM t FOR UPDATE)",
        "WITH x AS (SELECT 1) (SELECT nextval('s'))",
        "with a as (with b as (insert into t values (1) returning 1) table b) table a",
        "SELECT * FROM t FOR UPDATE",
        "SELECT * FROM t FOR NO KEY UPDATE SKIP LOCKED",
        "(SELECT * FROM t FOR SHARE) UNION ALL SELECT 1",
        "SELECT * FROM (SELECT * FROM t FOR KEY SHARE) x",
        "SELECT a INTO b FROM t",
        "SELECT 1 INTO TEMP x",
        "WITH x AS (SELECT 1) SELECT * INTO y FROM x",
        "EXPLAIN ANALYZE DELETE FROM t",
        "EXPLAIN (ANALYZE) INSERT INTO t VALUES (1)",
        "EXPLAIN (\"analyze\") DELETE FROM t",
        "EXPLAIN ANALYZE CREATE TABLE x AS SELECT 1",
        "EXPLAIN ANALYZE EXECUTE p",
        "EXPLAIN (ANALYZE false, ANALYZE) UPDATE t SET a = 1",
        "SELECT nextval('s')",
        "SELECT pg_catalog.setval('s', 1)",
        "SELECT pg_advisory_lock(1)",
        "SELECT pg_try_advisory_xact_lock_shared(1)",
        "SELECT \"nextval\"('s')",
        "SELECT U&\"nextval\"('s')",
        "SELECT txid_current()",
        "SELECT pg_notify('c', 'p')",
        "SELECT lo_create(0)",
        "SELECT * FROM dblink('…', 'delete from t') AS x(a int)",
        "SELECT query_to_xml('delete from t', true, true, '')",
        "SELECT set_config('a.b', 'c', false)",
        "SELECT setseed(0.5)",
        "SELECT currval('s')",
        "COPY t FROM STDIN",
        "COPY t TO '/tmp/file'",
        "COPY t TO PROGRAM 'sh'",
        "COPY (DELETE FROM t RETURNING *) TO STDOUT",
        "CREATE TABLE t (a int)",
        "CALL p()",
        "DO $$ begin end $$",
        "SELECT 1; DELETE FROM t",
        "SELECT 1;; COMMIT",
        "EXECUTE p",
        "PREPARE p AS SELECT 1",
        "DECLARE c CURSOR FOR SELECT 1",
        "LOCK t",
        "NOTIFY c",
        "MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN DELETE",
        "gibberish",
        "\\d",
        "SELECT 'unterminated",
        "42",
    ] {
        assert!(!of(text).only_reads(), "{text}: {:?}", of(text));
    }
}

#[test]
fn every_trait_is_seen() {
    use StatementTraits as Trait;
    for (text, expect) in [
        (
            "WITH x AS (DELETE FROM t RETURNING *) SELECT 1",
            Trait::WRITES,
        ),
        ("SELECT 1 FROM t FOR SHARE", Trait::LOCKS_ROWS),
        ("SELECT 1 INTO x", Trait::SELECT_INTO),
        ("CREATE TEMP TABLE x (a int)", Trait::TEMPORARY),
        (
            "CREATE LOCAL TEMPORARY VIEW x AS SELECT 1",
            Trait::TEMPORARY,
        ),
        ("CREATE TABLE pg_temp.x (a int)", Trait::TEMPORARY),
        ("SELECT 1 INTO TEMPORARY TABLE x", Trait::TEMPORARY),
        ("SET search_path = pg_temp, public", Trait::TEMPORARY),
        ("SELECT pg_advisory_unlock_all()", Trait::NAMED_LOCK),
        ("INSERT INTO t VALUES (nextval('s'))", Trait::NEXT_VALUE),
        ("SELECT lastval()", Trait::CURRENT_VALUE),
        (
            "SELECT set_config('a', b, false) FROM t",
            Trait::SETS_UNKNOWN,
        ),
        ("UPDATE pg_settings SET setting = 'x'", Trait::SETS_UNKNOWN),
        (
            "UPDATE pg_catalog.pg_settings SET setting = 'x'",
            Trait::SETS_UNKNOWN,
        ),
        ("SET a FROM CURRENT", Trait::SETS_UNKNOWN),
        ("SELECT set_config('a', 'b', true)", Trait::SETS_LITERALS),
        ("SELECT setseed(1)", Trait::SEED),
        ("SET seed TO 0.5", Trait::SEED),
        ("SELECT pg_notify('a', 'b')", Trait::NOTIFIES),
        ("SELECT lo_unlink(1)", Trait::LARGE_OBJECT),
        ("SELECT pg_current_xact_id()", Trait::TRANSACTION_ID),
        ("SELECT dblink_exec('', '')", Trait::RUNS_TEXT),
        ("SELECT U&\"\\0061\"()", Trait::OBSCURE),
        ("SELECT * FROM pg_class", Trait::CATALOG),
        ("SELECT * FROM pg_catalog.pg_class", Trait::CATALOG),
        ("SELECT * FROM information_schema.tables", Trait::CATALOG),
        ("SELECT \"", Trait::BROKEN),
    ] {
        assert!(one(text).traits.any(expect), "{text}: {:?}", one(text));
    }
    let deep = format!("SELECT {}1{}", "(".repeat(70), ")".repeat(70));
    assert!(one(&deep).traits.any(Trait::TOO_DEEP));
}

#[test]
fn harmless_statements_have_no_traits() {
    for text in [
        "SELECT temp, temporary FROM t WHERE key = 1 AND no = 2 AND share = 3",
        "SELECT a.update, b.insert FROM a, b",
        "SELECT count(*) FROM t GROUP BY a HAVING count(*) > 1 ORDER BY 1 LIMIT 5 OFFSET 2",
        "SELECT CASE WHEN a THEN b ELSE c END FROM t",
        "SELECT x::varchar(10), CAST(y AS numeric(10, 2)) FROM t",
        "SELECT f(a) FROM pgbench_accounts",
        "SELECT 1 FROM t FETCH FIRST 3 ROWS ONLY",
    ] {
        assert_eq!(one(text).traits, StatementTraits::NONE, "{text}");
    }
}

#[test]
fn functions_are_found_wherever_they_are_called() {
    for (text, expect) in [
        ("SELECT f()", "f"),
        ("SELECT s.F (1), \"G h\"(2)", "s.f G h"),
        (
            "SELECT a FROM t WHERE f(a) AND NOT g(b) OR h(c) IN (1)",
            "f g h",
        ),
        ("SELECT * FROM f(1) AS x(a int), g(2) y(b)", "f g"),
        ("SELECT * FROM t x(a), LATERAL f(x.a)", "f"),
        (
            "SELECT * FROM t JOIN f(1) ON (true) CROSS JOIN LATERAL g(2)",
            "f g",
        ),
        ("SELECT * FROM ROWS FROM (f(1), g(2)) AS x(a int)", "f g"),
        ("SELECT DISTINCT ON (a) f(b) FROM t", "f"),
        (
            "SELECT f(1) WITHIN GROUP (ORDER BY a) FILTER (WHERE g(b)) OVER w",
            "f g",
        ),
        (
            "WITH x(a) AS (SELECT f(1)), y(b) AS (SELECT g(2)) SELECT h(3) FROM x",
            "f g h",
        ),
        ("SELECT * FROM f(1) WITH ORDINALITY, g(2)", "f g"),
        ("SELECT f(a::timestamp with time zone, g(b))", "f g"),
        (
            "SELECT coalesce(f(1), g(2)), greatest(1), left('a', 1)",
            "f g left",
        ),
        ("SELECT a::numeric(10, 2), b::public.t(3), f(c)", "f"),
        (
            "INSERT INTO t (a, b) VALUES (f(1), g(2)) RETURNING h(3)",
            "f g h",
        ),
        (
            "INSERT INTO s.t(a) SELECT f(1) ON CONFLICT (a) DO UPDATE SET a = g(2)",
            "f g",
        ),
        ("UPDATE t SET a = f(1) WHERE g(2)", "f g"),
        ("CALL s.p(f(1))", "s.p f"),
        ("EXECUTE p(f(1))", "f"),
        ("PREPARE p(int) AS SELECT f($1)", "f"),
        (
            "SELECT filter(1), over(2), join(3), set(4), begin(5)",
            "filter over join set begin",
        ),
        ("SELECT a[f(1)], ARRAY[g(2)], (h(3)).x", "f g h"),
        ("SELECT f /* c */ -- d\n (1)", "f"),
        ("SELECT nested(f(g(h())))", "nested f g h"),
        (
            "SELECT current_timestamp(3), a.b.c(1)",
            "current_timestamp b.c",
        ),
        (
            "SELECT 1 WHERE a BETWEEN f(1) AND g(2) AND b LIKE h(3)",
            "f g h",
        ),
        (
            "SELECT exists(SELECT 1), x IN (1), y = ANY (SELECT f())",
            "f",
        ),
        ("VALUES (f(1)), (g(2))", "f g"),
        ("SELECT \"select\"(1)", "select"),
    ] {
        assert_eq!(functions(text).join(" "), expect, "{text}");
    }
}

#[test]
fn tables_are_found_in_lists_joins_and_subqueries() {
    for (text, expect) in [
        ("SELECT * FROM a, s.b AS x, \"C\" y WHERE d = e", "a s.b C"),
        (
            "SELECT * FROM a JOIN b ON (a.x = b.x), c LEFT JOIN d USING (x)",
            "a b c d",
        ),
        ("SELECT * FROM (a JOIN b ON true), c", "a b c"),
        ("SELECT (SELECT 1 FROM b), c FROM a", "b a"),
        ("SELECT * FROM (SELECT * FROM a) x, b", "a b"),
        ("SELECT * FROM ONLY a, f(1), b", "a b"),
        ("SELECT extract(year FROM d), trim(both from e) FROM a", "a"),
        ("SELECT a IS NOT DISTINCT FROM b FROM c", "c"),
        ("SELECT 1 AS distinct FROM a", "a"),
        ("SELECT * FROM a WHERE x IN (1, 2) ORDER BY y, z", "a"),
        ("SELECT * FROM a GROUP BY b, c", "a"),
        ("SELECT * FROM a UNION SELECT b, c FROM d", "a d"),
        ("INSERT INTO a (b, c) SELECT d FROM e", "a e"),
        (
            "UPDATE ONLY a SET b = 1, c = 2 FROM d, e WHERE true",
            "a d e",
        ),
        ("DELETE FROM a USING b, c WHERE true", "a b c"),
        ("DELETE FROM a USING (b CROSS JOIN c)", "a b c"),
        (
            "MERGE INTO a USING b ON true WHEN MATCHED THEN UPDATE SET c = 1",
            "a b",
        ),
        ("TABLE a", "a"),
        ("COPY a (b, c) FROM STDIN", ""),
        (
            "WITH x AS (DELETE FROM a RETURNING *) SELECT * FROM x",
            "a x",
        ),
        (
            "WITH x AS (SELECT 1 FROM a) (SELECT * FROM x JOIN b ON true)",
            "a x b",
        ),
    ] {
        assert_eq!(tables(text).join(" "), expect, "{text}");
    }
}

#[test]
fn lists_are_bounded_and_say_so() {
    let text = format!("SELECT {}", "f(1), ".repeat(9));
    let statement = one(&text);
    assert_eq!(statement.functions.as_slice().len(), 8);
    assert!(statement.functions.is_cut());
    assert!(!one("SELECT f(), g()").functions.is_cut());
}

#[test]
fn set_config_of_literals_is_told_and_anything_else_is_unknown() {
    let reported = |text: &str| -> Option<Vec<(String, String, bool)>> {
        let statement = one(text);
        let literals = statement.traits.any(StatementTraits::SETS_LITERALS);
        assert_ne!(
            literals,
            statement.traits.any(StatementTraits::SETS_UNKNOWN),
            "{text}"
        );
        let read = |span: crate::token::Span| {
            let value = literal(span.of(text.as_bytes())).unwrap();
            String::from_utf8_lossy(&value).into_owned()
        };
        let calls = set_configs(text.as_bytes(), &statement, false);
        let parts_of = |call: SetConfig| (read(call.name), read(call.value), call.local);
        literals.then(|| calls.into_iter().map(parts_of).collect())
    };
    let search_path = ("search_path".to_owned(), String::new(), false);
    // First statement of pg_dump (pgbouncer 396, 452).
    let text = "SELECT pg_catalog.set_config('search_path', '', false);";
    assert_eq!(reported(text), Some(vec![search_path.clone()]));
    let text =
        " ; SELECT set_config('search_path', '', false) AS x, set_config('a', 'it''s', true)";
    let other = ("a".to_owned(), "it's".to_owned(), true);
    assert_eq!(reported(text), Some(vec![search_path, other]));
    for text in [
        "SELECT set_config('a', 'b', false) FROM t",
        "SELECT set_config('a', 'b', false) WHERE false",
        "SELECT set_config('a', 'b', false) LIMIT 0",
        "SELECT set_config('a', $1, false)",
        "SELECT set_config('a', b, false)",
        "SELECT set_config('a', 'b' || 'c', false)",
        "SELECT 1, set_config('a', 'b', false)",
        "SELECT s.set_config('a', 'b', false)",
        "SELECT (set_config('a', 'b', false))",
        "VALUES (set_config('a', 'b', false))",
        "WITH x AS (SELECT set_config('a', 'b', false)) SELECT 1",
    ] {
        assert_eq!(reported(text), None, "{text}");
    }
}

#[test]
fn each_statement_of_a_text_is_read_from_its_first_word() {
    let text = "BEGIN; SELECT 1;DELETE FROM t ;; set a = 1;COMMIT";
    let facts = of(text);
    let kinds: Vec<_> = facts.statements().map(|one| one.kind).collect();
    assert!(matches!(
        kinds[..],
        [
            StatementKind::Begin(_),
            StatementKind::Select,
            StatementKind::Write,
            StatementKind::Set(_),
            StatementKind::Commit { chain: false }
        ]
    ));
    let texts = facts.statements().map(|one| one.span.of(text.as_bytes()));
    let expect: [&[u8]; 5] = [
        b"BEGIN",
        b"SELECT 1",
        b"DELETE FROM t",
        b"set a = 1",
        b"COMMIT",
    ];
    assert!(texts.eq(expect));
}

#[test]
fn hints_are_found_in_comments_and_only_there() {
    assert_eq!(
        of("/* evenkeel: primary */ SELECT 1").hint(),
        Some(HintComment::Primary)
    );
    assert_eq!(
        of("SELECT 1 -- evenkeel: replica").hint(),
        Some(HintComment::Replica)
    );
    let text = "SELECT 1 /* x */ + /* evenkeel: server=b */ 2 /* evenkeel: primary */";
    assert_eq!(of(text).hint(), Some(HintComment::Server(b"b")));
    assert_eq!(of("SELECT '/* evenkeel: primary */'").hint(), None);
    assert_eq!(of("/* /* evenkeel: primary */ */ SELECT 1").hint(), None);
}
