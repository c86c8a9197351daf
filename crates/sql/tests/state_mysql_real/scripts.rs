//! Statements that clients send.

pub(crate) const PREPARATION: [&str; 11] = [
    "CREATE DATABASE app CHARACTER SET latin1",
    "CREATE DATABASE other CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    "CREATE TABLE app.t (id INT AUTO_INCREMENT PRIMARY KEY, n INT UNIQUE, v VARCHAR(3))",
    "CREATE TABLE other.t (id INT AUTO_INCREMENT PRIMARY KEY, n INT UNIQUE, v VARCHAR(3))",
    "CREATE TABLE app.triggered (id INT)",
    "CREATE TRIGGER app.sets BEFORE INSERT ON app.triggered FOR EACH ROW SET @hidden = 5",
    "CREATE FUNCTION app.zone() RETURNS INT NO SQL BEGIN SET time_zone = '+09:00'; RETURN 1; END",
    "CREATE PROCEDURE app.hides() BEGIN SET @hidden = 6; SELECT 1; SELECT 2; END",
    "CREATE PROCEDURE app.breaks() BEGIN START TRANSACTION; SET sql_mode = ''; \
     SIGNAL SQLSTATE '45000'; END",
    "SET GLOBAL max_connections = 500",
    "INSERT INTO app.t (n) VALUES (1000), (1001)",
];

/// All visible state of a session. The state of the previous statement is queried separately.
pub(crate) const SHOWN: &str = "
    SELECT variable_name, CONVERT(variable_value USING utf8mb4) COLLATE utf8mb4_bin
      FROM VIEWS.session_variables
      WHERE variable_name NOT LIKE 'session_track%' AND variable_name NOT IN ('timestamp',
        'pseudo_thread_id', 'last_insert_id', 'identity', 'insert_id', 'in_transaction',
        'warning_count', 'error_count', 'last_gtid', 'rand_seed1', 'rand_seed2',
        'gtid_binlog_pos', 'gtid_current_pos', 'port', 'socket', 'pid_file', 'datadir', 'tmpdir')
        AND variable_name NOT LIKE '%log%' AND variable_name NOT LIKE '%dir' 
        AND variable_name NOT LIKE '%uid'
        AND variable_name NOT LIKE '%port'
        AND variable_name NOT LIKE 'gtid%' AND variable_name NOT LIKE 'server%id'
        AND variable_name NOT LIKE 'statement_id' AND variable_name NOT LIKE 'relay%'
        AND variable_name NOT LIKE 'ssl%' AND variable_name NOT LIKE 'general%'
    UNION ALL SELECT name, CONVERT(value USING utf8mb4) COLLATE utf8mb4_bin FROM (
      SELECT '@@timestamp is set' name, @@timestamp < 1000000000 value
      UNION ALL SELECT 'schema', CONVERT(database() USING binary)
      UNION ALL SELECT '@a', CONVERT(concat_ws(' ', @a, collation(@a)) USING binary)
      UNION ALL SELECT '@b', CONVERT(concat_ws(' ', @b, collation(@b)) USING binary)
      UNION ALL SELECT '@c d', CONVERT(concat_ws(' ', @`c d`, collation(@`c d`)) USING binary)
      UNION ALL SELECT '@hidden', CONVERT(@hidden USING binary)) own
    ORDER BY 1";

/// Returns the statement for MariaDB, or its equivalent for MySQL.
pub(crate) fn of(text: &str, mariadb: bool) -> String {
    match mariadb {
        true => text.replace("VIEWS", "information_schema"),
        false => text
            .replace("VIEWS", "performance_schema")
            .replace("tx_isolation", "transaction_isolation")
            .replace("SET STATEMENT max_statement_time = 5 FOR ", ""),
    }
}

const TEXTS: [&str; 84] = [
    "BEGIN",
    "BEGIN",
    "START TRANSACTION READ ONLY",
    "COMMIT",
    "COMMIT",
    "COMMIT",
    "ROLLBACK",
    "ROLLBACK",
    "SAVEPOINT s",
    "ROLLBACK TO s",
    "SET autocommit = 0",
    "SET autocommit = 1",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY",
    "SET SESSION TRANSACTION READ WRITE",
    "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED",
    "SET @@tx_isolation = 'SERIALIZABLE'",
    "SET tx_isolation = 'REPEATABLE-READ'",
    "INSERT INTO t (v) VALUES ('a#')",
    "INSERT INTO t (v) VALUES ('a#')",
    "INSERT INTO t (id, v) VALUES (#00 + (SELECT x FROM (SELECT MAX(id) x FROM t) y), 'b')",
    "INSERT INTO t (n) VALUES (1000)",
    "INSERT IGNORE INTO t (n, v) VALUES (1000, 'long'), (NULL, 'long')",
    "UPDATE t SET v = 'x' WHERE id = LAST_INSERT_ID(id) AND n = 1001",
    "SELECT LAST_INSERT_ID()",
    "SELECT LAST_INSERT_ID()",
    "SELECT LAST_INSERT_ID(#7)",
    "SELECT @@identity",
    "SET last_insert_id = 4#",
    "SELECT SQL_CALC_FOUND_ROWS v FROM (SELECT 1 v UNION SELECT 2 UNION SELECT 3) x LIMIT 1",
    "SELECT SQL_CALC_FOUND_ROWS 1 UNION SELECT # LIMIT 1 >> SELECT FOUND_ROWS()",
    "SELECT 1 UNION SELECT # >> SELECT FOUND_ROWS()",
    "UPDATE t SET v = NOW() WHERE n < 1002 >> SELECT ROW_COUNT()",
    "SELECT 1 UNION SELECT #",
    "SELECT CAST('x' AS SIGNED) >> SHOW WARNINGS",
    "SELECT nothing >> SHOW COUNT(*) WARNINGS",
    "SELECT v FROM t LIMIT # >> SHOW WARNINGS",
    "UPDATE t SET v = 'long' WHERE n = 1001 >> SELECT @@warning_count, @@error_count",
    "SELECT CAST('x' AS SIGNED) FROM t LIMIT 1",
    "SELECT nothing",
    "SELCT 1",
    "SET @a = #",
    "SET @A := 'it''s #'",
    "SET @a = 'eur \u{20ac}'",
    "SET @b = \"back\\\\slash\\n\"",
    "SET @`c d` = NULL",
    "SET @b = -1.5e3, @`c d` = x'41', @a = TRUE",
    "SET @a = @@sql_mode",
    "SELECT @a := #",
    "SELECT # INTO @b",
    "SET NAMES latin1",
    "SET NAMES utf8mb4",
    "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
    "SET CHARACTER SET utf8mb4",
    "SET character_set_results = NULL",
    "SET collation_connection = utf8mb4_unicode_ci",
    "SET character_set_connection = latin1",
    "SET collation_server = utf8mb4_bin",
    "SET character_set_server = latin1",
    "SET sql_mode = ''",
    "SET sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'",
    "SET sql_mode = CONCAT(@@sql_mode, ',PIPES_AS_CONCAT')",
    "SET SESSION sql_mode = DEFAULT",
    "SET time_zone = '+0#:00'",
    "SET time_zone = 'nonsense'",
    "SET time_zone = 'SYSTEM', max_join_size = #000000",
    "SET max_join_size = DEFAULT",
    "SET long_query_time = #.5, lc_time_names = 'de_DE'",
    "SET optimizer_switch = 'index_merge=off'",
    "SET group_concat_max_len = #000, foreign_key_checks = 0",
    "SET wait_timeout = #000, lock_wait_timeout = #0",
    "SET timestamp = #00",
    "SET timestamp = DEFAULT",
    "SET sql_select_limit = DEFAULT, sql_big_selects = 1",
    "SET NAMES latin1; SET @a = '#'; SET time_zone = '+0#:00'",
    "SELECT app.zone()",
    "CALL app.hides()",
    "CALL app.breaks()",
    "INSERT INTO app.triggered VALUES (1)",
    "USE app",
    "USE other",
    "CREATE TEMPORARY TABLE x# (a INT)",
    "DROP TEMPORARY TABLE x#",
    "SET STATEMENT max_statement_time = 5 FOR SELECT #",
];

/// Returns a text with a digit; the part after `>>` is the next query.
pub(crate) fn text(mut below: impl FnMut(usize) -> usize) -> String {
    let digit = char::from_digit(1 + below(3) as u32, 10).unwrap();
    TEXTS[below(TEXTS.len())].replace('#', &digit.to_string())
}
