//! Tests of the effects of texts other than settings.

use super::{Catalog, check, read};
use crate::session_state::analysis::{
    CatalogChange, CatalogLookup, Pins, SequenceReads, Volatility, analyze_with_doubts,
};

const SETTINGS: &str = "PinOnSuccess(Settings)";
const ROLE: &str = "PinOnSuccess(Role)";
const UNLISTED: &str = "PinOnSuccess(UnlistedSettings)";
const TEMPORARY: &str = "PinOnSuccess(TemporaryTable)";
const LOCK: &str = "Pin(NamedLock)";
const UNKNOWN: &str = "PinOnSuccess(Unknown)";

const DYNAMIC: &[&str] = &[
    "Pin(Settings)",
    "Pin(Role)",
    "Pin(NamedLock)",
    "Pin(TemporaryTable)",
    "Pin(Listen)",
    "Pin(Prepared)",
    "Pin(HeldCursor)",
    "Pin(Code)",
];

#[test]
fn advisory_locks_of_the_session_bind_those_of_the_transaction_do_not() {
    check(&[
        ("SELECT pg_advisory_lock(1)", &[LOCK]),
        ("SELECT PG_ADVISORY_LOCK_SHARED(1, 2)", &[LOCK]),
        ("SELECT pg_catalog.pg_try_advisory_lock(id) FROM t", &[LOCK]),
        ("SELECT \"pg_try_advisory_lock_shared\"(1)", &[LOCK]),
        ("SELECT pg_advisory_xact_lock(1)", &[]),
        ("SELECT pg_try_advisory_xact_lock_shared(1)", &[]),
        ("SELECT pg_advisory_unlock(1)", &[]),
        ("SELECT pg_advisory_unlock_all()", &["Release(UnlockNamed)"]),
        (
            "/* all */ select Pg_Catalog.\"pg_advisory_unlock_all\"(); SELECT 1",
            &["0: Release(UnlockNamed)"],
        ),
        ("SELECT pg_advisory_unlock_all() WHERE false", &[]),
        ("SELECT 1 FROM t, pg_advisory_unlock_all()", &[]),
        (
            "PREPARE u AS SELECT pg_advisory_unlock_all()",
            &["prepare u"],
        ),
        ("EXPLAIN ANALYZE SELECT pg_advisory_unlock_all()", &[]),
        (
            "SELECT pg_advisory_unlock_all(), pg_advisory_lock(1)",
            &[LOCK],
        ),
        ("INSERT INTO t SELECT pg_advisory_lock(2)", &[LOCK]),
        ("EXPLAIN SELECT pg_advisory_lock(2)", &[]),
        ("EXPLAIN ANALYZE SELECT pg_advisory_lock(2)", &[LOCK]),
        ("EXPLAIN (\"analyze\") SELECT pg_advisory_lock(2)", &[LOCK]),
        ("CREATE TABLE x AS SELECT pg_advisory_lock(2)", &[LOCK]),
        (
            "CREATE VIEW x AS SELECT pg_advisory_lock(2)",
            &["PinOnSuccess(NamedLock)"],
        ),
    ]);
}

#[test]
fn temporary_tables_bind_unless_they_go_with_the_transaction() {
    check(&[
        ("CREATE TEMP TABLE x (a int)", &[TEMPORARY]),
        ("create local temporary table x (a int)", &[TEMPORARY]),
        ("CREATE TEMP SEQUENCE x", &[TEMPORARY]),
        ("CREATE OR REPLACE TEMP VIEW x AS SELECT 1", &[TEMPORARY]),
        ("CREATE TABLE pg_temp.x (a int)", &[TEMPORARY]),
        (
            "CREATE TEMP TABLE x (a int) ON COMMIT DELETE ROWS",
            &[TEMPORARY],
        ),
        ("CREATE TEMP TABLE x (a int) ON COMMIT DROP", &[]),
        ("CREATE TEMP TABLE x ON COMMIT DROP AS SELECT 1", &[]),
        (
            "CREATE TEMP TABLE x AS SELECT 1 -- ON COMMIT DROP",
            &[TEMPORARY],
        ),
        (
            "CREATE TEMP TABLE x AS SELECT a ON COMMIT DROP",
            &[TEMPORARY],
        ),
        (
            "CREATE TEMP TABLE x (a text DEFAULT 'ON COMMIT DROP')",
            &[TEMPORARY],
        ),
        ("SELECT 1 INTO TEMP x", &[TEMPORARY]),
        ("SELECT 1 INTO pg_temp.x", &[TEMPORARY]),
        ("SELECT 1 INTO LOCAL TEMP x", &[TEMPORARY]),
        ("SELECT 1 INTO GLOBAL TEMPORARY TABLE x", &[TEMPORARY]),
        ("SELECT a FROM local temp", &[]),
        ("CREATE TABLE U&\"pg_temp\".x (a int)", &[TEMPORARY]),
        ("SELECT 1 INTO x", &[]),
        (
            "CREATE FUNCTION pg_temp.f() RETURNS int RETURN 1",
            &[TEMPORARY],
        ),
        (
            "EXPLAIN ANALYZE CREATE TEMP TABLE x AS SELECT 1",
            &[TEMPORARY],
        ),
        ("DISCARD TEMP", &["Discard(Temp)", "Release(DiscardTemp)"]),
        (
            "SET search_path = pg_temp",
            &["search_path = pg_temp", TEMPORARY],
        ),
    ]);
}

#[test]
fn sequences_are_drawn_from_by_name_by_defaults_and_by_functions() {
    for (text, expect) in [
        ("SELECT nextval('s')", true),
        ("INSERT INTO t VALUES (nextval('s'))", true),
        ("SELECT setval('s', 1)", true),
        ("CREATE TABLE x AS SELECT nextval('s')", true),
        ("INSERT INTO audited VALUES (1)", true),
        ("COPY audited FROM STDIN", true),
        ("DO $$ BEGIN PERFORM nextval('s'); END $$", true),
        ("SELECT currval('s'), lastval()", false),
        ("CREATE TABLE x (a int DEFAULT nextval('s'))", false),
        ("INSERT INTO t VALUES (1)", false),
        ("SELECT * FROM audited", false),
    ] {
        assert_eq!(read(text).sequences.draws, expect, "{text}");
    }
    check(&[
        ("SELECT nextval('s')", &[]),
        (
            "DISCARD SEQUENCES",
            &["Discard(Sequences)", "Release(DiscardSequences)"],
        ),
    ]);
}

#[test]
fn listening_held_cursors_and_seeds_bind_libraries_do_not() {
    check(&[
        ("LISTEN c", &["PinOnSuccess(Listen)"]),
        ("UNLISTEN c", &[]),
        ("UNLISTEN *", &["Release(UnlistenAll)"]),
        (
            "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
            &["PinOnSuccess(HeldCursor)"],
        ),
        (
            "DECLARE c BINARY NO SCROLL CURSOR WITH HOLD FOR TABLE t",
            &["PinOnSuccess(HeldCursor)"],
        ),
        ("DECLARE c CURSOR WITHOUT HOLD FOR SELECT 1", &[]),
        ("CLOSE c", &[]),
        ("CLOSE ALL", &["Release(CloseAll)"]),
        ("SELECT setseed(0.5)", &["Pin(RandomSeed)"]),
        ("SET SEED TO 0.5", &["Pin(RandomSeed)"]),
        ("LOAD 'auto_explain'", &[]),
    ]);
}

#[test]
fn prepared_statements_are_named_and_what_they_do_binds_at_once() {
    check(&[
        ("PREPARE p AS SELECT 1", &["prepare p"]),
        (
            "PREPARE \"P\" (int) AS SELECT pg_advisory_lock($1)",
            &["prepare P", LOCK],
        ),
        ("EXECUTE P(1)", &["execute p"]),
        ("EXPLAIN EXECUTE p", &["execute p"]),
        (
            "SELECT 1; EXPLAIN (ANALYZE) EXECUTE \"P\"(1)",
            &["1: execute P"],
        ),
        ("CREATE TABLE x (a) AS EXECUTE p (1)", &["execute p"]),
        (
            "EXPLAIN ANALYZE CREATE TABLE x AS EXECUTE p",
            &["execute p"],
        ),
        ("EXPLAIN SELECT execute FROM t", &[]),
        ("DEALLOCATE p", &["deallocate p"]),
        ("DEALLOCATE PREPARE p", &["deallocate p"]),
        (
            "DEALLOCATE ALL",
            &["DeallocateAll", "Release(DeallocateAll)"],
        ),
        ("DISCARD PLANS", &["Discard(Plans)"]),
        ("DISCARD ALL", &["Discard(All)", "Release(DiscardAll)"]),
    ]);
}

#[test]
fn transactions_and_savepoints_are_named() {
    check(&[
        ("COMMIT", &["Commit"]),
        ("END AND CHAIN", &["Commit"]),
        ("PREPARE TRANSACTION 'x'", &["Commit"]),
        ("ABORT", &["Rollback"]),
        ("ROLLBACK AND CHAIN", &["Rollback"]),
        ("SAVEPOINT A", &["savepoint a"]),
        ("SAVEPOINT \"A\"", &["savepoint A"]),
        ("RELEASE SAVEPOINT a", &["release a"]),
        ("ROLLBACK WORK TO SAVEPOINT a", &["rollback to a"]),
        ("COMMIT PREPARED 'x'", &[]),
        (
            "BEGIN; LISTEN a; SAVEPOINT b; UNLISTEN *; ROLLBACK TO b; COMMIT",
            &[
                "1: PinOnSuccess(Listen)",
                "2: savepoint b",
                "3: Release(UnlistenAll)",
                "4: rollback to b",
                "5: Commit",
            ],
        ),
    ]);
}

#[test]
fn functions_that_bind_the_connection_itself_bind_for_ever() {
    check(&[
        ("SELECT dblink_connect('c', '')", &["Pin(Unlisted)"]),
        (
            "SELECT query_to_xml('SELECT pg_advisory_lock(42)', true, false, '')",
            DYNAMIC,
        ),
        ("SELECT * FROM ts_stat('SELECT v FROM t')", DYNAMIC),
        ("SELECT dblink('dbname=x', 'select 1')", &[]),
        ("SELECT pg_backup_start('x')", &["Pin(Unlisted)"]),
        (
            "SELECT pg_create_logical_replication_slot('a', 'b', true)",
            &["Pin(Unlisted)"],
        ),
        ("SELECT set_limit(0.5)", &[SETTINGS]),
        // The catalog contains the pins of the function body.
        ("SELECT audit()", &["Pin(Settings)"]),
        ("CALL audit()", &["Pin(Settings)"]),
        // The catalog lacks the function, or may contain an outdated version of it.
        ("SELECT nobody_knows(1) FROM t", DYNAMIC),
        ("INSERT INTO t (a) SELECT s.nobody_knows()", DYNAMIC),
        ("EXPLAIN SELECT nobody_knows()", &[]),
        ("EXPLAIN SELECT audit()", &["Pin(Settings)"]),
        ("EXPLAIN SELECT * FROM v_audit", &["Pin(Settings)"]),
        ("CREATE FUNCTION x() RETURNS int RETURN nobody_knows()", &[]),
        ("SELECT t (1), s(2) FROM t (a)", &[]),
        ("SELECT lower('A')", &[]),
        ("SELECT U&\"set\\005fconfig\"('a', 'b', false)", &[UNKNOWN]),
    ]);
}

#[test]
fn behind_a_change_of_functions_those_of_users_may_leave_anything_behind() {
    for (text, expect) in [
        ("CREATE OR REPLACE FUNCTION x() RETURNS int RETURN 1", true),
        ("ALTER EXTENSION x UPDATE", true),
        (
            "DO 'begin create function x() returns int return 1; end'",
            true,
        ),
        ("CREATE FUNCTION pg_temp.x() RETURNS int RETURN 1", false),
        ("CREATE TABLE x (function int)", false),
        ("DO 'begin null; end'", false),
        ("SELECT lower('function')", false),
    ] {
        let changes = read(text).catalog_change == CatalogChange::Functions;
        assert_eq!(changes, expect, "{text}");
    }
    let doubted = |text: &str| {
        let analysis = analyze_with_doubts(text.as_bytes(), false, Some(&Catalog), true);
        analysis.effects.len()
    };
    assert_eq!(doubted("SELECT audit()"), DYNAMIC.len());
    for text in [
        "COPY (SELECT audit()) TO STDOUT",
        "DO 'begin perform nobody_knows(); end'",
        "INSERT INTO s VALUES (1)",
        "DO 'begin insert into s values (1); end'",
        "SELECT * FROM v_audit",
        "TABLE nobody_knows",
    ] {
        assert_eq!(doubted(text), DYNAMIC.len(), "{text}");
    }
    for text in [
        "SELECT lower('A') FROM t",
        "SELECT * FROM s",
        "INSERT INTO t VALUES (1)",
        "WITH w AS (SELECT 1 AS a) SELECT a FROM w",
        "DO 'begin update t set a = 1; end'",
    ] {
        assert_eq!(doubted(text), 0, "{text}");
    }
    let behind = read("DROP FUNCTION x; SELECT audit()");
    assert_eq!(behind.effects.len(), DYNAMIC.len());
}

/// Catalog like [`Catalog`], in which `audit` accepts a row.
struct OfRows;

impl CatalogLookup for OfRows {
    fn function(&self, name: &[u8]) -> Volatility {
        Catalog.function(name)
    }

    fn relation(&self, name: &[u8]) -> Volatility {
        Catalog.relation(name)
    }

    fn call_pins(&self, name: &[u8]) -> Option<Pins> {
        Catalog.call_pins(name)
    }

    fn has_row_functions(&self) -> bool {
        true
    }

    fn is_row_function(&self, name: &[u8]) -> bool {
        name == b"audit"
    }
}

#[test]
fn the_field_of_a_row_may_be_a_function_of_it() {
    let read = |text: &str| super::super::read(text.as_bytes(), false, Some(&OfRows));
    for (text, binds) in [
        ("SELECT t.audit FROM t", true),
        ("SELECT (t . \"audit\") FROM t", true),
        ("INSERT INTO t SELECT s.Audit FROM s", true),
        ("SELECT audit FROM t", false),
        ("SELECT t.other FROM t", false),
        ("EXPLAIN SELECT t.audit FROM t", false),
        ("CREATE VIEW x AS SELECT t.audit FROM t", true),
    ] {
        assert_eq!(!read(text).effects.is_empty(), binds, "{text}");
    }
    let calls = |text: &str| read(text).statements[0].calls;
    assert_eq!(calls("SELECT t.audit FROM t"), Volatility::Volatile);
    assert_eq!(calls("SELECT t.other FROM t"), Volatility::Stable);
    assert_eq!(calls("EXPLAIN SELECT t.audit FROM t"), Volatility::Stable);
}

#[test]
fn who_makes_a_trigger_is_bound_by_what_that_will_leave_behind() {
    let begin = "CREATE TRIGGER x BEFORE INSERT ON t FOR EACH ROW EXECUTE";
    check(&[
        (&format!("{begin} FUNCTION audit()"), &[SETTINGS]),
        (
            &format!("{begin} PROCEDURE public.\"audit\" ('a')"),
            &[SETTINGS],
        ),
        (&format!("{begin} FUNCTION public.nobody_knows()"), DYNAMIC),
        (&format!("{begin} FUNCTION lower()"), &[]),
        (
            &begin.replace("EXECUTE", "WHEN (new.a > 1) EXECUTE FUNCTION lower()"),
            &[],
        ),
    ]);
}

#[test]
fn what_is_not_known_binds_if_the_server_takes_it() {
    check(&[
        ("REPACK t", &[UNKNOWN]),
        ("SELCT 1", &[UNKNOWN]),
        ("SELECT 1; gibberish", &["1: PinOnSuccess(Unknown)"]),
        ("SELECT 'a", &[]),
    ]);
}

#[test]
fn blocks_of_code_are_read_word_by_word() {
    check(&[
        ("DO $$ BEGIN NULL; END $$", &[]),
        (
            "DO $$ BEGIN UPDATE t SET a = 1; INSERT INTO t ON CONFLICT DO UPDATE SET a = 2; END $$",
            &[],
        ),
        (
            "DO $x$ BEGIN SET search_path = a; END $x$ LANGUAGE plpgsql",
            &[SETTINGS],
        ),
        (
            "DO LANGUAGE plpgsql 'BEGIN IF true THEN RESET ALL; END IF; END'",
            &[SETTINGS],
        ),
        (
            "DO $$ BEGIN SET SESSION AUTHORIZATION x; END $$",
            &[SETTINGS, ROLE, UNLISTED],
        ),
        (
            "DO $$ BEGIN PERFORM set_config('role', x, false); END $$",
            &[SETTINGS, ROLE],
        ),
        (
            "DO $$ BEGIN SET LOCAL a.b = 1; PERFORM set_config('a', 'b', true); END $$",
            &[],
        ),
        ("DO $$ BEGIN SET CONSTRAINTS ALL DEFERRED; END $$", &[]),
        (
            "DO $$ BEGIN PERFORM set_config('a', 'b', false); END $$",
            &[SETTINGS],
        ),
        ("DO $$ BEGIN PERFORM pg_advisory_lock(1); END $$", &[LOCK]),
        ("DO $$ BEGIN PERFORM pg_advisory_xact_lock(1); END $$", &[]),
        (
            "DO $$ BEGIN PERFORM nextval('s'); PERFORM audit(); END $$",
            &["Pin(Settings)"],
        ),
        (
            "DO $$ BEGIN CREATE TEMP TABLE x (a int); END $$",
            &[TEMPORARY],
        ),
        ("DO $$ BEGIN LISTEN c; END $$", &["PinOnSuccess(Listen)"]),
        ("DO $$ BEGIN GRANT EXECUTE ON FUNCTION f TO x; END $$", &[]),
        ("DO $$ BEGIN EXECUTE 'x'; END $$", DYNAMIC),
        (
            "DO $$ BEGIN FOR r IN EXECUTE x LOOP END LOOP; END $$",
            DYNAMIC,
        ),
        ("DO LANGUAGE plpython3u 'pass'", DYNAMIC),
        (
            "DO LANGUAGE 'plperl' '$_SHARED{x} = 1'",
            &[DYNAMIC, &["Pin(LanguageState)"]].concat(),
        ),
        ("DO $$ it ends in a 'string $$", DYNAMIC),
    ]);
}

#[test]
fn triggers_and_views_bind_who_writes_and_reads() {
    check(&[
        ("INSERT INTO audited VALUES (1)", &[LOCK]),
        ("UPDATE ONLY public.audited SET a = 1", &[LOCK]),
        ("DELETE FROM audited USING t", &[LOCK]),
        (
            "MERGE INTO \"audited\" USING t ON true WHEN MATCHED THEN DELETE",
            &[LOCK],
        ),
        (
            "WITH x AS (INSERT INTO audited TABLE t RETURNING 1) TABLE x",
            &[LOCK],
        ),
        ("COPY BINARY public.audited FROM STDIN", &[LOCK]),
        ("TRUNCATE ONLY audited", &[LOCK]),
        ("TRUNCATE TABLE audited", &[LOCK]),
        ("REFRESH MATERIALIZED VIEW audited", &[LOCK]),
        (
            "REFRESH MATERIALIZED VIEW CONCURRENTLY public.audited",
            &[LOCK],
        ),
        ("SELECT * FROM audited", &[]),
        ("COPY audited TO STDOUT", &[]),
        ("EXPLAIN INSERT INTO audited VALUES (1)", &[]),
        ("EXPLAIN ANALYZE INSERT INTO audited VALUES (1)", &[LOCK]),
        ("SELECT * FROM t, v_audit", &["Pin(Settings)"]),
        ("CREATE TABLE x AS TABLE v_audit", &["Pin(Settings)"]),
        ("CREATE VIEW x AS TABLE v_audit", &[SETTINGS]),
        ("INSERT INTO t VALUES (1)", &[]),
        (
            "DO $$ BEGIN INSERT INTO audited VALUES (1); END $$",
            &[LOCK],
        ),
        (
            "SELECT f(), f(), f(), f(), f(), f(), f(), f(), audit()",
            &["Pin(Settings)"],
        ),
        ("CALL lower('A')", &[]),
        ("CALL nobody_knows(lower('A'))", DYNAMIC),
    ]);
}

#[test]
fn who_asks_what_was_drawn_is_told_and_bound_by_nothing() {
    for (text, asks) in [
        ("SELECT lastval()", true),
        ("SELECT U&\"lastval\"()", true),
        ("INSERT INTO t SELECT currval('s')", true),
        ("SELECT * FROM v_recalls", true),
        ("INSERT INTO v_recalls VALUES (1)", true),
        ("DO $$ BEGIN PERFORM lastval(); END $$", true),
        ("DO $$ BEGIN EXECUTE 'SELECT lastval()'; END $$", true),
        ("EXPLAIN SELECT lastval()", false),
        ("CREATE VIEW x AS SELECT lastval()", false),
        ("SELECT nextval('s')", false),
        ("SELECT lower('lastval()')", false),
    ] {
        let reads = read(text).sequences.reads == SequenceReads::Some;
        assert_eq!(reads, asks, "{text}");
    }
    check(&[("SELECT * FROM v_recalls", &[])]);
}
