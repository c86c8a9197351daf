//! Tests of the pins of texts, and of the events that end them.

use super::*;

#[test]
fn what_binds() {
    check(&[
        ("SELECT @a := 1", &["compute @a"]),
        ("SELECT 1 INTO @a", &["compute @a"]),
        ("SELECT @A := @`b c` + @a", &["compute @a @b c"]),
        (
            "LOAD DATA INFILE 'x' INTO TABLE t (@a)",
            &["InsertIdUnknown", "compute @a"],
        ),
        ("GET DIAGNOSTICS @a = NUMBER", &["compute @a"]),
        ("SELECT NEXT VALUE FOR s", &["Pin(Sequence)"]),
        ("XA START 'a'", &["Pin(Xa)"]),
        ("XA END 'a'", &["Pin(Xa)"]),
        ("XA RECOVER", &[]),
        ("XA COMMIT 'a'", &["Release(XaEnded)"]),
        ("LOCK TABLES t READ", &["PinOnSuccess(TableLock)"]),
        ("UNLOCK TABLES", &["Release(UnlockTables)"]),
        ("FLUSH TABLES WITH READ LOCK", &["Pin(GlobalReadLock)"]),
        ("FLUSH USER_VARIABLES", &["Pin(Variables)"]),
        ("BACKUP STAGE START", &["create BackupLock stage"]),
        ("BACKUP STAGE END", &["drop BackupLock stage"]),
        ("BACKUP LOCK t", &["create BackupLock lock"]),
        ("BACKUP UNLOCK", &["drop BackupLock lock"]),
        ("HANDLER t OPEN AS h", &["create Handler h"]),
        ("HANDLER app.t OPEN", &["create Handler t"]),
        ("HANDLER h CLOSE", &["drop Handler h"]),
        ("HANDLER h READ FIRST", &[]),
        ("gibberish", &["Pin(Unknown)"]),
        (
            "BEGIN NOT ATOMIC SELECT 1; END",
            &["Pin(Unknown)", "execute "],
        ),
    ]);
}

#[test]
fn locks_are_counted_where_they_can_be() {
    check(&[
        ("SELECT GET_LOCK('A b', 10)", &["take A b"]),
        ("SELECT get_lock('a', -1) AS l", &["take a"]),
        ("SELECT RELEASE_LOCK('a')", &["give a"]),
        ("SELECT GET_LOCK(concat('k', (@x)), 1)", &["take ?"]),
        ("SELECT RELEASE_LOCK(lower(?)) AS x", &["give ?"]),
        (
            "SELECT GET_LOCK('a', RELEASE_LOCK('a'))",
            &["Pin(NamedLock)"],
        ),
        ("DO GET_LOCK(?, 1)", &["Pin(NamedLock)"]),
        ("DO RELEASE_LOCK('a')", &["drop NamedLock a"]),
        ("SELECT RELEASE_ALL_LOCKS()", &["Release(UnlockNamed)"]),
        ("SELECT concat(GET_LOCK('a', 10))", &["create NamedLock a"]),
        (
            "SELECT COALESCE(RELEASE_LOCK('a'), 0) AS x",
            &["drop NamedLock a"],
        ),
        (
            "DO IFNULL(RELEASE_ALL_LOCKS(), 0)",
            &["Release(UnlockNamed)"],
        ),
        // The statement fails after the lock is acquired.
        (
            "SELECT CONCAT(GET_LOCK('a', 1) - 18446744073709551615)",
            &["Pin(NamedLock)"],
        ),
        ("SELECT GET_LOCK(?, 1)", &["take ?"]),
        ("SELECT GET_LOCK('a', 1) FROM t", &["Pin(NamedLock)"]),
        (
            "SELECT GET_LOCK('a', 1), RELEASE_ALL_LOCKS()",
            &["Pin(NamedLock)"],
        ),
        // The call may not run.
        ("SELECT RELEASE_LOCK('a' 'b')", &["give ?"]),
        ("SELECT RELEASE_LOCK('a') FROM t", &[]),
        ("SELECT CONCAT(NULL, RELEASE_LOCK('a'))", &[]),
        ("SELECT CONCAT(RELEASE_LOCK('a')) FROM t", &[]),
        ("SELECT CONCAT(RELEASE_LOCK('a'), SLEEP(1))", &[]),
        ("SELECT RELEASE_ALL_LOCKS() FROM t WHERE 0", &[]),
        ("SELECT IF(0, RELEASE_LOCK('a'), 1)", &[]),
        ("SELECT GET_LOCK('a', 1) LIMIT 0", &["Pin(NamedLock)"]),
        ("SELECT SERVICE_GET_READ_LOCKS('a', 'b', 0)", &ANY),
    ]);
}

#[test]
fn temporary_tables_have_names() {
    check(&[
        (
            "CREATE TEMPORARY TABLE x (a INT)",
            &["create TemporaryTable x"],
        ),
        (
            "CREATE OR REPLACE TEMPORARY TABLE IF NOT EXISTS `s`.`x` SELECT 1",
            &["create TemporaryTable s\0x"],
        ),
        (
            "DROP TEMPORARY TABLE IF EXISTS x, s.y",
            &["drop TemporaryTable x", "drop TemporaryTable s\0y"],
        ),
        ("DROP TABLE x", &["drop TemporaryTable x"]),
        ("DROP VIEW x", &[]),
        ("ALTER TABLE x RENAME y", &["RenameTables"]),
        (
            "USE a; CREATE TEMPORARY TABLE x (a INT)",
            &["1: CreateUnknown(TemporaryTable)"],
        ),
        ("DROP TABLE x; SELECT 1", &[]),
    ]);
    let made = read("CREATE TEMPORARY TABLE x (a INT)").of_prepared(b"", b"", b"");
    assert_eq!(
        made.effects[0].kind,
        EffectKind::CreateUnknown(SessionObject::TemporaryTable)
    );
    assert!(
        read("DROP TABLE x")
            .of_prepared(b"", b"", b"")
            .effects
            .is_empty()
    );
}

#[test]
fn what_nobody_has_read_may_leave_anything_behind() {
    check(&[
        ("CALL p()", &ANY),
        ("CALL app.pure(1)", &[]),
        ("CALL pure(@a)", &["compute @a"]),
        ("CALL pure(?)", &[]),
        (
            "EXECUTE IMMEDIATE 'CALL pure(?)' USING @a",
            &["Pin(Variables)"],
        ),
        (
            "PREPARE p FROM 'CALL pure(1, ?)'",
            &["prepare p (untracked user variables)"],
        ),
        ("SELECT locks(1)", &["Pin(NamedLock)"]),
        ("SELECT strange(1) FROM t", &ANY),
        (
            "SET time_zone = strange()",
            &[&["set time_zone"], &ANY[..]].concat(),
        ),
        ("INSERT INTO u VALUES (1)", &["Pin(Variables)"]),
        ("SELECT a FROM u", &[]),
        ("SELECT a FROM t JOIN `v_locks`", &["Pin(NamedLock)"]),
        ("PREPARE p FROM 'SELECT 1'", &["prepare p ()"]),
        (
            "PREPARE P FROM 'SET @a = 1'",
            &["prepare p (untracked user variables)"],
        ),
        ("EXECUTE p USING @a", &["execute p"]),
        ("DEALLOCATE PREPARE p", &["drop Prepared p"]),
        ("EXECUTE IMMEDIATE 'SET @a = 1'", &["@a = 1"]),
        ("EXECUTE IMMEDIATE @a", &["Pin(Unknown)", "execute "]),
        (
            "EXECUTE IMMEDIATE 'SELECT ?, ?, ?' USING 5, 'x', @a, NULL",
            &[],
        ),
        (
            "EXECUTE IMMEDIATE 'SELECT ?' USING @a := 5",
            &["Pin(Unknown)", "execute ", "compute @a"],
        ),
        (
            "EXECUTE IMMEDIATE 'SELECT ?' USING GET_LOCK('x', 10)",
            &["Pin(Unknown)", "execute ", "Pin(NamedLock)"],
        ),
        (
            "SET STATEMENT max_statement_time = 1 FOR SELECT @a := 1",
            &["compute @a", "RestoreVariables"],
        ),
        (
            "SET STATEMENT sql_mode = '' FOR SELECT 1",
            &["Pin(Unknown)"],
        ),
        (
            "SET STATEMENT sql_auto_is_null = 1 FOR SELECT * FROM t WHERE id IS NULL",
            &["Pin(Unknown)"],
        ),
    ]);
    let names = effects("PREPARE p FROM @text");
    assert!(names[0].contains("temporary tables"), "{names:?}");
}
