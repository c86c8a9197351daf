//! What texts leave behind that is no setting.

use super::check;

const SETTINGS: &str = "PinOnSuccess(Settings)";
const TEMPORARY: &str = "PinOnSuccess(TemporaryTable)";
const LOCK: &str = "Pin(NamedLock)";
const UNKNOWN: &str = "PinOnSuccess(Unknown)";
const SEQUENCE: &str = "Pin(Sequence)";

const DYNAMIC: &[&str] = &[
    "Pin(Settings)",
    "Pin(NamedLock)",
    "Pin(TemporaryTable)",
    "Pin(Listen)",
    "Pin(Prepared)",
    "Pin(HeldCursor)",
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
            "SELECT pg_advisory_unlock_all(), pg_advisory_lock(1)",
            &[LOCK],
        ),
        ("INSERT INTO t SELECT pg_advisory_lock(2)", &[LOCK]),
        ("EXPLAIN SELECT pg_advisory_lock(2)", &[]),
        ("EXPLAIN ANALYZE SELECT pg_advisory_lock(2)", &[LOCK]),
        ("CREATE TABLE x AS SELECT pg_advisory_lock(2)", &[LOCK]),
        ("CREATE VIEW x AS SELECT pg_advisory_lock(2)", &[]),
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
fn sequences_bind_where_they_are_drawn_from_not_where_they_are_a_default() {
    check(&[
        ("SELECT nextval('s')", &[SEQUENCE]),
        ("INSERT INTO t VALUES (nextval('s'))", &[SEQUENCE]),
        ("SELECT setval('s', 1)", &[SEQUENCE]),
        ("SELECT currval('s'), lastval()", &[]),
        ("CREATE TABLE x (a int DEFAULT nextval('s'))", &[]),
        ("CREATE TABLE x AS SELECT nextval('s')", &[SEQUENCE]),
        (
            "DISCARD SEQUENCES",
            &["Discard(Sequences)", "Release(DiscardSequences)"],
        ),
    ]);
}

#[test]
fn listening_held_cursors_seeds_and_libraries_bind() {
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
        ("SELECT setseed(0.5)", &["Pin(Seed)"]),
        ("SET SEED TO 0.5", &["Pin(Seed)"]),
        ("LOAD 'auto_explain'", &["Pin(Library)"]),
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
        ("SELECT dblink_connect('c', '')", &["Pin(Unknown)"]),
        ("SELECT dblink('dbname=x', 'select 1')", &[]),
        ("SELECT pg_backup_start('x')", &["Pin(Unknown)"]),
        (
            "SELECT pg_create_logical_replication_slot('a', 'b', true)",
            &["Pin(Unknown)"],
        ),
        ("SELECT set_limit(0.5)", &[SETTINGS]),
        // What the catalog knows of a function's body.
        ("SELECT audit()", &["Pin(Settings)"]),
        ("CALL audit()", &["Pin(Settings)"]),
        ("SELECT U&\"set\\005fconfig\"('a', 'b', false)", &[UNKNOWN]),
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
            "DO $$ BEGIN SET LOCAL a.b = 1; PERFORM set_config('a', 'b', true); END $$",
            &[],
        ),
        (
            "DO $$ BEGIN PERFORM set_config('a', 'b', false); END $$",
            &[SETTINGS],
        ),
        ("DO $$ BEGIN PERFORM pg_advisory_lock(1); END $$", &[LOCK]),
        ("DO $$ BEGIN PERFORM pg_advisory_xact_lock(1); END $$", &[]),
        (
            "DO $$ BEGIN PERFORM nextval('s'); PERFORM audit(); END $$",
            &[SEQUENCE, "Pin(Settings)"],
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
        ("DO $$ it ends in a 'string $$", DYNAMIC),
    ]);
}

#[test]
fn a_function_binds_by_what_its_body_says() {
    for (body, expect) in [
        ("SELECT a FROM t", ""),
        ("SELECT set_config('a.b', $1, true)", ""),
        (
            "SELECT set_config('a.b', $1, false)",
            "settings that cannot be followed",
        ),
        (
            "BEGIN PERFORM pg_advisory_lock(1); END",
            "advisory or named locks",
        ),
        ("BEGIN CREATE TEMP TABLE x (a int); END", "temporary tables"),
        ("BEGIN EXECUTE format('x'); PERFORM nextval('s'); END", ""),
        ("it ends in a 'string", ""),
    ] {
        let pins = crate::state::meaning::bound_by_body(body.as_bytes());
        assert_eq!(pins.to_string(), expect, "{body}");
    }
}
