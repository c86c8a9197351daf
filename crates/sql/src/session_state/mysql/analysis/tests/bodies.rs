//! Tests of the effects of routine bodies.

use super::*;

#[test]
fn bodies_of_routines_are_looked_through() {
    for (body, expect) in [
        ("BEGIN SELECT 1; INSERT INTO t VALUES (@user); END", ""),
        ("RETURN (SELECT MAX(a) FROM t WHERE b = @c)", ""),
        ("BEGIN SET @a = 1; END", "untracked user variables"),
        ("SET NEW.a = 1", ""),
        ("BEGIN SELECT 1 INTO @a; END", "untracked user variables"),
        (
            "BEGIN CREATE TEMPORARY TABLE x (a INT); END",
            "temporary tables",
        ),
        ("BEGIN DO GET_LOCK('a', 1); END", "advisory or named locks"),
        ("RETURN NEXTVAL(s)", "sequence values"),
        (
            "BEGIN PREPARE p FROM @a; EXECUTE p; END",
            "temporary tables, advisory or named locks, SQL PREPARE, sequence values, untracked \
             settings, untracked user variables, unknown session state",
        ),
        (
            "SET x = (SELECT 1 FROM t), @a = 1",
            "untracked settings, untracked user variables",
        ),
        ("GET DIAGNOSTICS @a = NUMBER", "untracked user variables"),
        ("SET ROLE r", "unknown session state"),
        (
            "SET session_track_schema = 0",
            "untracked settings, unknown session state",
        ),
        ("SET rand_seed1 = 5", "random() seed, untracked settings"),
        ("CALL p(1)", ""),
        ("RETURN FOUND_ROWS()", "FOUND_ROWS()"),
        ("RETURN `found_rows`()", "FOUND_ROWS()"),
        ("RETURN `Get_Lock` ('a', 0)", "advisory or named locks"),
        (
            "DO service_get_write_locks('a', 'b', 0)",
            "unknown session state",
        ),
        ("BEGIN FLUSH TABLES WITH READ LOCK; END", "global read lock"),
        ("FLUSH LOCAL TABLES a FOR EXPORT", "global read lock"),
        (
            "BEGIN FLUSH TABLES; SELECT a FROM t LOCK IN SHARE MODE; END",
            "",
        ),
        ("LOCK INSTANCE FOR BACKUP", "backup lock"),
        ("BEGIN BACKUP STAGE START; END", "backup lock"),
    ] {
        let pins = bound_by_body(body.as_bytes(), MARIADB);
        assert_eq!(pins.to_string(), expect, "{body}");
    }
}

#[test]
fn bodies_that_may_set_system_variables_are_told_from_those_that_set_their_own() {
    for body in [
        "BEGIN SET SESSION sql_mode = ''; END",
        "SET @@sql_mode = ''",
        "BEGIN DECLARE a INT; SET a = 1, time_zone = '+01:00'; END",
        "BEGIN IF (SELECT REPLACE(a, 'b', 'c') FROM t FOR UPDATE) THEN SET sql_mode = ''; END IF",
        "BEGIN UPDATE t SET a = 1; SET NAMES latin1; END",
        "BEGIN DECLARE EXIT HANDLER FOR NOT FOUND SET sql_mode = ''; END",
        "BEGIN SET TRANSACTION READ ONLY; END",
        "BEGIN a: LOOP SET CHARACTER SET latin1; END LOOP; END",
        "AS BEGIN sql_mode := 'ANSI'; END",
    ] {
        let pins = bound_by_body(body.as_bytes(), MARIADB);
        assert!(pins.has(Pin::Settings), "{body}");
    }
    for body in [
        "BEGIN DECLARE a, `b` INT DEFAULT 5; SET a = 1; SET B = a + (SELECT 2); RETURN a; END",
        "BEGIN SET NEW.a = 1, new.`b` = OLD.c; END",
        "BEGIN DECLARE done BOOL; DECLARE CONTINUE HANDLER FOR NOT FOUND SET done = TRUE; END",
        "BEGIN UPDATE t SET a = 1 WHERE b; INSERT INTO t SET a = 2; REPLACE t SET a = 3; END",
        "BEGIN INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE a = 1; END",
        "BEGIN DECLARE a VARCHAR(5) CHARACTER SET latin1; SET GLOBAL max_connections = 5; END",
        "RETURN (SELECT MAX(a) FROM t FOR UPDATE)",
    ] {
        let pins = bound_by_body(body.as_bytes(), MARIADB);
        assert!(!pins.has(Pin::Settings), "{body}");
    }
    assert_eq!(effects("SELECT sets(1), sets(2)"), ["SetByRoutine"]);
}
