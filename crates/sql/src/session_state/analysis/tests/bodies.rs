//! Tests of the effects of function bodies in any language.

use crate::session_state::analysis::Body;

const ROLES: &str = "settings that the server cannot list, untracked settings, untracked role";

#[track_caller]
fn check_bodies(table: &[(&str, &str, &str)]) {
    for (language, code, expect) in table {
        let body = Body::read(language, code.as_bytes());
        assert_eq!(body.pins.to_string(), *expect, "{language}: {code}");
    }
}

#[test]
fn the_settings_that_a_body_names_and_no_catalog_lists_are_found() {
    let code = "BEGIN PERFORM set_config('a.b', x, false); SET App.Tenant = 1; SET work_mem = 1; \
                PERFORM set_config('c.d', x, true); END";
    // The last one ends with the transaction: too many are asked for rather than too few.
    let names = [&b"a.b"[..], b"app.tenant", b"c.d"].map(Box::from);
    let body = Body::read("plpgsql", code.as_bytes());
    assert_eq!(body.custom_settings, names.into());
}

#[test]
fn a_function_binds_by_what_its_body_says() {
    check_bodies(&[
        ("sql", "SELECT a FROM t", ""),
        ("sql", "SELECT set_config('a.b', $1, true)", ""),
        (
            "sql",
            "SELECT set_config('a.b', $1, false)",
            "untracked settings",
        ),
        (
            "sql",
            "SELECT set_config('work_mem', $1, false)",
            "untracked settings",
        ),
        (
            "plpgsql",
            "BEGIN EXECUTE 'SET work_mem' || x; END",
            "settings that the server cannot list, untracked settings",
        ),
        (
            "plpgsql",
            "BEGIN CREATE TABLE x (a int); END",
            "temporary tables",
        ),
        ("sql", "SELECT set_config($1, $2, false)", ROLES),
        (
            "plpgsql",
            "BEGIN PERFORM pg_advisory_lock(1); END",
            "advisory or named locks",
        ),
        (
            "plpgsql",
            "BEGIN CREATE TEMP TABLE x (a int); END",
            "temporary tables",
        ),
        (
            "plpgsql",
            "BEGIN CREATE TEMP TABLE x ON COMMIT DROP AS SELECT 1; temp := 1; END",
            "temporary tables of the transaction",
        ),
        (
            "plpgsql",
            "BEGIN SET LOCAL search_path = a; SET LOCAL work_mem = 1; END",
            "parser settings of this transaction",
        ),
        (
            "sql",
            "SELECT set_config('TimeZone', $1, true)",
            "parser settings of this transaction",
        ),
        ("plpgsql", "BEGIN SET LOCAL a.b = 1; END", ""),
        (
            "plpgsql",
            "BEGIN PERFORM nextval('s'); END",
            "sequence values",
        ),
        ("plpgsql", "it ends in a 'string", ""),
    ]);
}

/// The executed text is built from the strings, or comes from another source.
#[test]
fn a_function_binds_by_the_texts_that_it_executes() {
    const ALL: &str = "cursor WITH HOLD, temporary tables, LISTEN, advisory or named locks, SQL \
                       PREPARE, untracked settings, untracked role, code that was not read";
    check_bodies(&[
        (
            "plpgsql",
            "BEGIN EXECUTE format('INSERT INTO %I', x); END",
            "",
        ),
        (
            "plpgsql",
            "BEGIN EXECUTE 'SET ROLE ' || quote_ident(x); END",
            ROLES,
        ),
        (
            "plpgsql",
            "BEGIN EXECUTE format('SET %I = 1', x); END",
            ROLES,
        ),
        (
            "plpgsql",
            "BEGIN EXECUTE format('SET LOCAL %I = 1', x); END",
            "parser settings of this transaction",
        ),
        ("plpgsql", "BEGIN RAISE NOTICE 'Set it'; END", ""),
        ("plpgsql", "BEGIN EXECUTE $1; END", ALL),
    ]);
}

#[test]
fn a_function_binds_by_what_it_prepares_and_holds_open() {
    check_bodies(&[
        ("plpgsql", "BEGIN PREPARE p AS SELECT 1; END", "SQL PREPARE"),
        ("sql", "PREPARE p AS SELECT $1", "SQL PREPARE"),
        ("plpgsql", "BEGIN x := y.prepare; END", ""),
        (
            "plpgsql",
            "BEGIN EXECUTE format('DECLARE %I CURSOR WITH HOLD FOR TABLE t', x); END",
            "cursor WITH HOLD",
        ),
        (
            "plpgsql",
            "BEGIN EXECUTE 'DECLARE c CURSOR WITHOUT HOLD FOR TABLE t'; END",
            "",
        ),
    ]);
}

#[test]
fn a_function_in_another_language_binds_by_its_words_and_a_librarys_by_its_name() {
    check_bodies(&[
        ("c", "ST_Area", ""),
        ("c", "dblink_connect", "state that the server cannot list"),
        (
            "internal",
            "pg_advisory_lock_int8",
            "advisory or named locks",
        ),
        ("internal", "set_config_by_name", ROLES),
        ("plpython3u", "return set([1])", ""),
        ("plpython3u", "plpy.execute('UPDATE t SET a = 1')", ""),
        (
            "plpython3u",
            "plpy.execute(\"set search_path = %s\" % x)",
            "untracked settings",
        ),
        (
            "plperl",
            "spi_exec_query('SELECT set_config($1, $2, false)');",
            ROLES,
        ),
        (
            "plperl",
            "spi_exec_query(\"SELECT set_config('a', 'b', true)\");",
            "",
        ),
        (
            "plv8",
            "plv8.execute(`create temp table x (a int)`)",
            "temporary tables",
        ),
        (
            "plpython3u",
            "plpy.execute('declare c cursor with hold for select 1')",
            "cursor WITH HOLD",
        ),
        ("plpython3u", "plan = plpy.prepare('select 1')", ""),
        (
            "plperl",
            "spi_exec_query(\"PREPARE p AS SELECT 1\");",
            "SQL PREPARE",
        ),
        (
            "pltcl",
            "spi_exec \"select pg_try_advisory_lock(1)\"",
            "advisory or named locks",
        ),
    ]);
}

#[test]
fn a_function_binds_by_what_its_language_keeps_for_it() {
    const KEPT: &str = "procedural language state";
    check_bodies(&[
        ("plperl", "$_SHARED{x} = $_[0];", KEPT),
        ("plperl", "my $all = \\%_SHARED; return $all->{x};", KEPT),
        ("plperl", "our $n; return ++$n;", KEPT),
        ("plperl", "return ++$n;", KEPT),
        ("plperl", "my $n = $main::n; return $n;", KEPT),
        ("plperl", "push @seen, $_[0];", KEPT),
        ("plperl", "return scalar keys %seen;", KEPT),
        (
            "plperl",
            "my ($x) = @_; return sprintf('%s %05d %lu', $x, 7 %$x, 1);",
            "",
        ),
        (
            "plperl",
            "my $x = shift; sub twice { return $x * 2 } return twice();",
            KEPT,
        ),
        (
            "plperl",
            "my ($a1, @rest) = @_; my %h; $h{$a1} = $#rest; return $h{$a1} % 2;",
            "",
        ),
        (
            "plperl",
            "my $x = shift; foreach my $y (1 .. $x) { elog(INFO, \"$y\"); } return $_TD->{new};",
            "",
        ),
        (
            "plperlu",
            "return sprintf('%s', $_[0]) . 'a@b.example';",
            "",
        ),
        ("plpython3u", "SD['x'] = 1", KEPT),
        ("plpython3u", "GD.setdefault('x', 1)", KEPT),
        ("plpython3u", "global x; x = 1", KEPT),
        ("plpython3u", "sd = 1\nreturn sd + x", ""),
        ("pltcl", "global n; incr n", KEPT),
        ("pltcl", "set ::n 1", KEPT),
        ("pltcl", "set n $1; return $n", ""),
        ("plv8", "plv8.n = 1", KEPT),
        ("plv8", "globalThis.n = 1", KEPT),
        ("plv8", "var n = plv8.version; return plv8.n == 1", ""),
    ]);
}

#[test]
fn a_body_names_what_it_calls_and_changes() {
    let names = |names: &std::collections::BTreeSet<Box<[u8]>>| {
        let texts = names.iter().map(|name| String::from_utf8_lossy(name));
        texts.collect::<Vec<_>>().join(" ")
    };
    for (language, code, calls, relations) in [
        (
            "plpgsql",
            "BEGIN PERFORM app.\"F\"(1); INSERT INTO app.t (a) SELECT g(b) FROM ONLY u; END",
            "F g t",
            "only t u",
        ),
        (
            "sql",
            "SELECT 1 FROM t, app.u x, (v JOIN w ON true)",
            "",
            "t u v w",
        ),
        ("sql", "DELETE FROM t USING u, v WHERE true", "", "t u v"),
        ("sql", "TRUNCATE t, u; SELECT a, b", "", "t u"),
        (
            "plpython3u",
            "plpy.execute('select 1 from t, (u cross join v)')",
            "execute",
            "t u v",
        ),
        (
            "plpgsql",
            "BEGIN EXECUTE 'DELETE FROM t WHERE f()'; END",
            "f",
            "t",
        ),
        ("plpgsql", "BEGIN RAISE 'FROM t f()'; END", "", ""),
        (
            "plpython3u",
            "plpy.execute('insert into t select f()')",
            "execute f",
            "t",
        ),
        ("c", "anything", "", ""),
    ] {
        let body = Body::read(language, code.as_bytes());
        let found = (names(&body.calls), names(&body.relations));
        assert_eq!(found, (calls.to_owned(), relations.to_owned()), "{code}");
    }
}
