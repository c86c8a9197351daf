//! Detailed analysis of statements.

use super::one;
use crate::postgres::details::Creation;
use crate::postgres::{
    creation, defines_query, encoding_is_safe, may_mean_now, may_set_role, set_values,
    sets_locally, string_value,
};

#[test]
fn a_creation_tells_whether_it_runs_a_query_and_whether_it_goes_with_the_transaction() {
    for (text, runs_query, drops_on_commit) in [
        ("CREATE TABLE x (a int)", false, false),
        ("CREATE TABLE x AS SELECT 1", true, false),
        ("CREATE MATERIALIZED VIEW x AS SELECT 1", true, false),
        ("CREATE VIEW x AS SELECT 1", false, false),
        (
            "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'select 1'",
            false,
            false,
        ),
        (
            "CREATE FUNCTION f() RETURNS TABLE (a int) LANGUAGE sql AS ''",
            true,
            false,
        ),
        ("CREATE TEMP TABLE x (a int) ON COMMIT DROP", false, true),
        (
            "CREATE TEMP TABLE x (a int) ON COMMIT DROP TABLESPACE y",
            false,
            true,
        ),
        ("CREATE TEMP TABLE x ON COMMIT DROP AS TABLE t", true, true),
        (
            "CREATE TEMP TABLE x (a int) ON COMMIT PRESERVE ROWS",
            false,
            false,
        ),
        (
            "CREATE TEMP TABLE x (a text DEFAULT 'on commit drop')",
            false,
            false,
        ),
        (
            "CREATE TEMP TABLE x AS SELECT a FROM b JOIN c ON commit DROP",
            true,
            false,
        ),
    ] {
        let expect = Creation {
            runs_query,
            drops_on_commit,
        };
        assert_eq!(
            creation(text.as_bytes(), &one(text), false),
            expect,
            "{text}"
        );
    }
}

#[test]
fn set_config_is_local_only_if_it_says_so_in_one_word() {
    for (text, expect) in [
        ("SELECT set_config($1, $2, true)", true),
        ("SELECT set_config('a', f(b, c), TRUE), 1", true),
        ("SELECT set_config(a, b[1, 2], true) FROM t", true),
        ("SELECT set_config($1, $2, false)", false),
        ("SELECT set_config($1, $2, $3)", false),
        ("SELECT set_config($1, $2)", false),
        ("SELECT set_config($1, $2, true and false)", false),
        ("SELECT set_config($1, $2, true, false)", false),
        (
            "SELECT set_config('a', 'b', true), set_config('a', 'b', x)",
            false,
        ),
        (
            "SELECT set_config('a', set_config('c', 'd', false), true)",
            false,
        ),
        ("SELECT \"set_config\"('a', $1, false)", false),
        (
            "SELECT set_config(is_local => true, setting_name => 'a', new_value => 'b')",
            false,
        ),
    ] {
        assert_eq!(
            sets_locally(text.as_bytes(), &one(text), false),
            expect,
            "{text}"
        );
    }
}

#[test]
fn set_config_may_set_the_role_unless_it_names_another_setting() {
    for (text, expect) in [
        ("SELECT set_config('app.tenant', $1, false)", false),
        (
            "SELECT set_config('a', $1, false), set_config('b', 'c', x)",
            false,
        ),
        ("SELECT set_config('role', $1, false)", true),
        (
            "SELECT \"set_config\"(E'Session_Authorization', $1, false)",
            true,
        ),
        (
            "SELECT set_config('a', 'b', true), set_config('ROLE', 'c', x)",
            true,
        ),
        ("SELECT set_config('ro' || 'le', $1, false)", true),
        ("SELECT set_config('ro'\n'le', $1, false)", true),
        ("SELECT set_config(setting_name => 'a', $1, false)", true),
        ("SELECT set_config($1, $2, $3)", true),
        ("SELECT set_config(name, value, false) FROM t", true),
    ] {
        let found = may_set_role(text.as_bytes(), &one(text), false);
        assert_eq!(found, expect, "{text}");
    }
}

#[test]
fn queries_of_with_are_told_from_columns_and_windows() {
    for (text, name, expect) in [
        ("WITH x AS (SELECT 1) SELECT * FROM x", "x", true),
        ("WITH X AS MATERIALIZED (VALUES (1)) TABLE x", "x", true),
        ("WITH \"X\" AS (SELECT 1) SELECT 1", "X", true),
        (
            "WITH RECURSIVE a AS (TABLE b), x (c) AS ((SELECT 1)) TABLE x",
            "x",
            true,
        ),
        (
            "SELECT (WITH x AS (DELETE FROM t RETURNING a) SELECT a FROM x)",
            "x",
            true,
        ),
        ("WITH y AS (SELECT 1) SELECT * FROM x", "x", false),
        ("SELECT a, x AS b FROM x", "x", false),
        (
            "SELECT 1 FROM x WINDOW y AS (), x AS (PARTITION BY a)",
            "x",
            false,
        ),
    ] {
        let found = defines_query(text.as_bytes(), &one(text), name.as_bytes(), false);
        assert_eq!(found, expect, "{text}");
    }
    let not_materialized = "WITH x AS NOT MATERIALIZED (SELECT 1) SELECT * FROM x";
    assert_eq!(super::functions(not_materialized), [""; 0]);
}

#[test]
fn strings_give_their_values_where_these_are_certain() {
    let value = |written: &str, backslashes| {
        let value = string_value(written.as_bytes(), backslashes)?;
        Some(String::from_utf8(value.into_owned()).unwrap())
    };
    for (written, backslashes, expect) in [
        ("'a''b'", false, Some("a'b")),
        (r"'a\b'", false, Some(r"a\b")),
        (r"'a\'b'", true, Some("a'b")),
        (r"E'a\tb\\'", false, Some("a\tb\\")),
        (r"e'\''", false, Some("'")),
        (r"E'\x41'", false, None),
        (r"E'\u0041'", false, None),
        (r"E'\101'", false, None),
        ("$$a'b$$", false, Some("a'b")),
        ("$x$$$\\$x$", true, Some("$$\\")),
        ("$$$$", false, Some("")),
        ("'a'\n'b'", false, None),
        ("'a\\'\n'b'", false, None),
        ("U&'a'", false, None),
        ("B'1'", false, None),
    ] {
        assert_eq!(value(written, backslashes).as_deref(), expect, "{written}");
    }
}

#[test]
fn the_values_of_a_set_are_those_that_the_server_hands_on() {
    let values = |written: &str| {
        let values = set_values(written.as_bytes(), false)?;
        let text = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
        Some(values.iter().map(|value| text(value)).collect::<Vec<_>>())
    };
    for (written, expect) in [
        ("On", Some(&["on"][..])),
        ("\"On\"", Some(&["On"])),
        (
            "'a', B /* , */ , -007, +2.50",
            Some(&["a", "b", "-7", "2.50"]),
        ),
        (
            "2147483648, 0, -0, 000",
            Some(&["2147483648", "0", "0", "0"]),
        ),
        (".5", Some(&[".5"])),
        ("1e3", None),
        ("0x10", None),
        ("1_000", None),
        ("00000000000001", None),
        ("- x", None),
        ("a b", None),
        ("Ä", None),
    ] {
        let expect = expect.map(|values| values.iter().map(|v| (*v).to_owned()).collect());
        assert_eq!(values(written), expect, "{written}");
    }
    let long = "x".repeat(64);
    assert_eq!(values(&long), None);
}

#[test]
fn encodings_are_known_by_any_of_their_names() {
    for name in [
        "SJIS",
        "shift_jis",
        "Windows-936",
        "GBK",
        "SHIFT_JIS_2004",
        "big5",
        "UHC",
    ] {
        assert!(!encoding_is_safe(name.as_bytes()), "{name}");
    }
    for name in ["UTF8", "utf-8", "LATIN1", "EUC_JP", "SQL_ASCII", "WIN1252"] {
        assert!(encoding_is_safe(name.as_bytes()), "{name}");
    }
}

#[test]
fn a_string_that_may_stand_for_the_moment_it_is_read_at_is_found() {
    for text in [
        "SELECT 'now'::timestamptz",
        "SELECT date 'ToDay'",
        "SELECT ' tomorrow 10:00 '::timestamp",
        "SELECT 1, $$yesterday$$::date",
        "SELECT $a$now$a$::date",
        "SELECT E'n\\x6fw'::timestamptz",
        "SELECT U&'n\\006fw'::timestamptz",
        "SELECT 'to'\n'day'::date",
    ] {
        assert!(may_mean_now(text.as_bytes(), false), "{text}");
    }
    assert!(may_mean_now(br"SELECT 'n\x6fw'::timestamptz", true));
    for text in [
        "SELECT now(), today FROM tomorrow WHERE a = $1",
        "SELECT 'known', 'nowhere', 'it''s \\n'",
        "SELECT E'a''b' -- 'now'",
        "SELECT '2024-06-01'",
        "SELECT 'epoch', \"now\"",
    ] {
        assert!(!may_mean_now(text.as_bytes(), false), "{text}");
    }
}
