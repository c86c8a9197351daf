//! Tests of the analysis of MySQL texts: one table per property.

use evenkeel_policy::route::StatementClass;

use super::*;

mod binding;
mod bodies;

const MARIADB: LexerModes = LexerModes {
    ansi_quotes: false,
    no_backslash_escapes: false,
    nbsp_byte: 0,
    mariadb: true,
    version: 101_119,
};

struct Known;

impl CatalogLookup for Known {
    fn function(&self, name: &[u8]) -> Volatility {
        match name {
            b"pure" => Volatility::Stable,
            b"audit" => Volatility::Volatile,
            _ => Volatility::Unknown,
        }
    }

    fn relation(&self, name: &[u8]) -> Volatility {
        match name {
            b"t" | b"u" => Volatility::Stable,
            _ => Volatility::Unknown,
        }
    }

    fn call_pins(&self, name: &[u8]) -> Option<Pins> {
        let mut pins = Pins::NONE;
        match name {
            b"pure" | b"audit" => Some(pins),
            b"locks" => {
                pins.add(Pin::NamedLock);
                Some(pins)
            }
            b"sets" => {
                pins.add(Pin::Settings);
                Some(pins)
            }
            _ => None,
        }
    }

    fn views(&self, name: &[u8]) -> Pins {
        let mut pins = Pins::NONE;
        if name == b"v_locks" {
            pins.add(Pin::NamedLock);
        }
        pins
    }

    fn triggers(&self, name: &[u8]) -> Pins {
        let mut pins = Pins::NONE;
        if name == b"u" {
            pins.add(Pin::Variables);
        }
        pins
    }
}

fn read(text: &str) -> TextAnalysis {
    super::read(text.as_bytes(), MARIADB, Some(&Known))
}

/// Returns the effects as text, with names and values readable.
fn effects(text: &str) -> Vec<String> {
    let analysis = read(text);
    let show = |effect: &Effect| match analysis.statements.len() {
        1 => shown(&effect.kind),
        _ => format!("{}: {}", effect.statement, shown(&effect.kind)),
    };
    analysis.effects.iter().map(show).collect()
}

fn shown(kind: &EffectKind) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match kind {
        EffectKind::SetUser { name, value } => match value {
            Value::Same(value) => format!("@{} = {}", text(name), text(value)),
            Value::String(value) => format!("@{} = string {}", text(name), text(value)),
        },
        EffectKind::SetTimestamp(Some(value)) => format!("timestamp = {}", text(value)),
        EffectKind::ComputeUser(names) => {
            let names = names.iter().map(|name| format!(" @{}", text(name)));
            format!("compute{}", names.collect::<String>())
        }
        EffectKind::TakeLock(name) => format!("take {}", text(name.as_deref().unwrap_or(b"?"))),
        EffectKind::GiveLock(name) => format!("give {}", text(name.as_deref().unwrap_or(b"?"))),
        EffectKind::SetTracker => "track".to_owned(),
        EffectKind::SetVariable(name) => format!("set {}", text(name)),
        EffectKind::SetPinning(name, pin) => format!("pinning {}: {pin:?}", text(name)),
        EffectKind::SetDefault(name) => format!("default {}", text(name)),
        EffectKind::Create(object, name) => format!("create {object:?} {}", text(name)),
        EffectKind::Drop(object, name) => format!("drop {object:?} {}", text(name)),
        EffectKind::Prepare(name, pins) => format!("prepare {} ({pins})", text(name)),
        EffectKind::Execute(name) => format!("execute {}", text(name)),
        other => format!("{other:?}"),
    }
}

#[track_caller]
fn check(table: &[(&str, &[&str])]) {
    for (text, expect) in table {
        assert_eq!(effects(text), *expect, "{text}");
    }
}

/// Effects of code that cannot be read.
const ANY: [&str; 6] = [
    "Pin(Unknown)",
    "Pin(Variables)",
    "Pin(TemporaryTable)",
    "Pin(NamedLock)",
    "Pin(Prepared)",
    "Pin(Sequence)",
];

/// If the server rejects such a text, no effects remain ([`super::super::SessionState`]).
#[test]
fn what_the_server_may_read_otherwise_binds() {
    let unknown = ["Pin(Unknown)"];
    for text in [
        "SELECT 'unterminated",
        "SELECT 1 /*! , /*! GET_LOCK('x', 1) */",
        "SELECT 1; SELECT /*! /*! 2 */",
    ] {
        let analysis = read(text);
        let all: Vec<_> = analysis
            .effects
            .iter()
            .map(|one| shown(&one.kind))
            .collect();
        assert_eq!(all, unknown, "{text}");
    }
    let latin1 = LexerModes {
        nbsp_byte: 0xa0,
        ..MARIADB
    };
    let within = |text: &[u8], modes| super::read(text, modes, None);
    let hidden = within(b"SELECT 5 INTO\xa0@a", latin1);
    assert_eq!(hidden, TextAnalysis::unreadable());
    for (text, modes) in [
        (b"SELECT 'a\xa0b', `a\xa0`".as_slice(), latin1),
        (b"SELECT 5 INTO\xa0@a", MARIADB),
    ] {
        assert_ne!(within(text, modes), TextAnalysis::unreadable());
    }
}

#[test]
fn a_plain_read_or_write_leaves_nothing_and_allocates_no_list() {
    for text in [
        "SELECT 1",
        "SELECT c FROM t WHERE id = ?",
        "SELECT pure(c), COUNT(*) FROM t",
        "INSERT INTO t VALUES (1, @a, NOW())",
        "UPDATE t SET a = 1 WHERE b = 2",
        "SHOW TABLES",
        "SHOW WARNINGS",
        "USE app",
        "SET GLOBAL max_connections = 5",
        "SET PASSWORD = 'x'",
        "SET DEFAULT ROLE a",
        "GRANT SELECT ON a TO b",
        "CREATE TABLE x (a INT)",
        "CREATE VIEW v AS SELECT unknown_function(1)",
        "CREATE PROCEDURE p() BEGIN SET @a = 1; SELECT GET_LOCK('a', 1); END",
        "KILL 5",
        "SELECT IS_FREE_LOCK('a')",
        "",
    ] {
        let analysis = read(text);
        assert!(
            analysis.effects.is_empty(),
            "{text}: {:?}",
            analysis.effects
        );
        assert!(!analysis.statements.spilled() && !analysis.effects.spilled());
    }
}

#[test]
fn sets_follow_by_text_or_by_the_servers_word() {
    check(&[
        ("SET @a = 1", &["@a = 1"]),
        (
            "SET @`A b` := 'it''s \\n', @c = x'41'",
            &["@a b = string it's \n", "@c = x'41'", "SetSeveral"],
        ),
        (
            "SET @a = NULL, time_zone = '+01:00'",
            &["@a = NULL", "set time_zone", "SetSeveral"],
        ),
        (
            "SET @a = b + 1, @B = @c",
            &["SetSeveral", "compute @a @b @c"],
        ),
        ("SET @a = n'x'", &["compute @a"]),
        ("SET @é = 1", &["Pin(Variables)"]),
        (
            "SET NAMES latin1, @a = 'x'; SET @a = 'y', @b = 2",
            &[
                "0: SetCharset",
                "0: set character_set_client",
                "0: @a = string x",
                "0: SetSeveral",
                "1: compute @a",
                "1: @b = 2",
                "1: SetSeveral",
            ],
        ),
    ]);
}

#[test]
fn system_variables_follow_by_text_or_by_the_servers_word() {
    check(&[
        ("SET sql_mode = @old", &["set sql_mode"]),
        (
            "SET sql_mode = @old := 'x'",
            &["set sql_mode", "compute @old"],
        ),
        ("SET @@SESSION.`sql_mode` = ''", &["set sql_mode"]),
        (
            "SET NAMES utf8mb4",
            &["SetCharset", "set character_set_client"],
        ),
        (
            "SET character_set_connection = latin1",
            &["SetCharset", "set character_set_connection"],
        ),
        ("SET autocommit = 0", &["set autocommit"]),
        ("SET timestamp = 5.5", &["timestamp = 5.5"]),
        ("SET timestamp = DEFAULT", &["SetTimestamp(None)"]),
        ("SET binlog_format = DEFAULT", &["default binlog_format"]),
        ("SET binlog_format = 'ROW'", &["set binlog_format"]),
        ("SET timestamp = 0", &["SetTimestamp(None)"]),
        (
            "SET timestamp = UNIX_TIMESTAMP()",
            &["PinOnSuccess(Settings)"],
        ),
        ("SET last_insert_id = 5", &["InsertIdUnknown"]),
        ("SET insert_id = 5", &["PinOnSuccess(Settings)"]),
        ("SET sql_log_bin = 0", &["pinning sql_log_bin: Binlog"]),
        ("SET sql_log_bin = ON", &[]),
        ("SET profiling = 1", &["PinOnSuccess(Settings)"]),
        (
            "SET optimizer_trace = 'enabled=on'",
            &["PinOnSuccess(Settings)"],
        ),
        ("SET rand_seed1 = 5", &["PinOnSuccess(RandomSeed)"]),
        (
            "SET collation_database = latin1_bin",
            &["PinOnSuccess(Settings)"],
        ),
        (
            "SET ROLE a",
            &["PinOnSuccess(Role)", "PinOnSuccess(Unknown)"],
        ),
    ]);
}

#[test]
fn what_is_said_of_the_next_transaction_only_is_not_the_sessions() {
    let next = |text: &str| effects(text)[0].starts_with("NextTransaction");
    assert!(next("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"));
    assert!(next("SET @@transaction_isolation = 'SERIALIZABLE'"));
    assert!(next("SET @@tx_read_only = 1"));
    check(&[
        (
            "SET transaction_isolation = 'SERIALIZABLE'",
            &["set transaction_isolation"],
        ),
        (
            "SET @@session.tx_isolation = 'SERIALIZABLE'",
            &["set tx_isolation"],
        ),
        (
            "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY",
            &["set transaction_isolation", "set transaction_read_only"],
        ),
        ("SET GLOBAL TRANSACTION READ ONLY", &[]),
    ]);
}

#[test]
fn a_set_of_trackers_binds_only_where_other_statements_do_more_than_set_and_read() {
    check(&[
        ("SET SESSION session_track_schema = ON", &["track"]),
        ("SET @@session_track_schema = @a", &["track"]),
        (
            "SET session_track_schema = CONCAT('O', 'N'), sql_mode = ''",
            &["track", "set sql_mode", "SetSeveral"],
        ),
        // MariaDB does not have this tracker.
        (
            "SET session_track_gtids = OWN_GTID",
            &["set session_track_gtids"],
        ),
        ("SET session_track_schema = 1; SELECT 1", &["0: track"]),
        (
            "SET session_track_schema = 1; USE other",
            &["0: Pin(Unknown)"],
        ),
        (
            "SET session_track_schema = 1; INSERT INTO a VALUES (1)",
            &["0: Pin(Unknown)"],
        ),
    ]);
}

/// TO SEE THIS RED: search only for the names of trackers.
#[test]
fn what_may_show_trackers_runs_with_the_client_s() {
    for (text, is_named) in [
        (
            "SELECT CONCAT(@@SESSION_TRACK_SYSTEM_VARIABLES, ',x')",
            true,
        ),
        ("SELECT @@session.`session_track_schema`", true),
        ("SHOW VARIABLES", true),
        ("SHOW SESSION VARIABLES LIKE 'SESS%'", true),
        ("SHOW LOCAL VARIABLES WHERE Variable_name = 'a'", true),
        ("SHOW VARIABLES LIKE '\\session%'", true),
        ("SELECT * FROM information_schema.SESSION_VARIABLES", true),
        ("SELECT * FROM information_schema.system_variables", true),
        (
            "SET STATEMENT sql_mode = '' FOR SELECT @@session_track_schema",
            false,
        ),
        ("EXECUTE IMMEDIATE 'SELECT @@session_track_schema'", true),
        ("INSERT INTO a SELECT @@session_track_schema", false),
        ("SHOW VARIABLES LIKE 'sql_mode'", false),
        ("SHOW GLOBAL VARIABLES", false),
        ("SHOW TABLES", false),
        ("SELECT 1", false),
    ] {
        let names = read(text).form == TextForm::Trackers;
        assert_eq!(names, is_named, "{text}");
    }
}

#[test]
fn the_router_is_told_the_kind() {
    let read_only = TransactionModes {
        read_only: Some(true),
        isolation: None,
    };
    for (text, kind) in [
        ("SELECT 1", StatementClass::Read),
        ("SELECT c FROM t", StatementClass::Read),
        ("SHOW CREATE TABLE t", StatementClass::Read),
        ("SHOW STATUS", StatementClass::Asks),
        ("SELECT @@hostname", StatementClass::Asks),
        ("SELECT * FROM mysql.user", StatementClass::Asks),
        ("EXPLAIN SELECT 1", StatementClass::Read),
        (
            "EXPLAIN FORMAT = JSON FOR CONNECTION 5",
            StatementClass::Server,
        ),
        (
            "SELECT * FROM information_schema.SESSION_STATUS",
            StatementClass::Asks,
        ),
        (
            "SELECT * FROM information_schema.`global_variables`",
            StatementClass::Asks,
        ),
        (
            "SELECT * FROM information_schema.TABLES",
            StatementClass::Read,
        ),
        ("INSERT INTO t VALUES (1)", StatementClass::Write),
        (
            "LOAD DATA LOCAL INFILE 'x' INTO TABLE t",
            StatementClass::Write,
        ),
        ("CREATE TABLE x (a INT)", StatementClass::Ddl),
        (
            "START TRANSACTION READ ONLY",
            StatementClass::Begin(read_only),
        ),
        ("COMMIT", StatementClass::EndTransaction),
        ("SET @a = 1, time_zone = 'x'", StatementClass::Setting),
        ("SET NAMES utf8", StatementClass::Setting),
        ("SET @a = @b", StatementClass::Session),
        ("SET sql_log_bin = 0", StatementClass::Session),
        ("SET time_zone = (SELECT z FROM t)", StatementClass::Session),
        ("SET GLOBAL a = 1", StatementClass::Server),
        ("SET TRANSACTION READ ONLY", StatementClass::Session),
        (
            "SET @@tx_isolation = 'SERIALIZABLE'",
            StatementClass::Session,
        ),
        ("SET SESSION TRANSACTION READ ONLY", StatementClass::Setting),
        ("USE app", StatementClass::Setting),
        ("LOCK TABLES t READ", StatementClass::Lock),
        ("CALL pure()", StatementClass::Routine),
        ("XA START 'a'", StatementClass::Unknown),
        ("EXECUTE p", StatementClass::Unknown),
        (
            "SET STATEMENT max_statement_time = 1 FOR SELECT 1",
            StatementClass::Read,
        ),
        ("SELCT 1", StatementClass::Unknown),
    ] {
        assert_eq!(read(text).statements[0].kind, kind, "{text}");
    }
}

#[test]
fn what_is_asked_of_the_statement_before_is_told() {
    for (text, expect) in [
        ("SELECT 1", ResultReads::NONE),
        ("SELECT LAST_INSERT_ID()", ResultReads::INSERT_ID),
        (
            "INSERT INTO t VALUES (LAST_INSERT_ID())",
            ResultReads::INSERT_ID,
        ),
        ("SELECT @@identity", ResultReads::INSERT_ID),
        ("SET @a = LAST_INSERT_ID()", ResultReads::INSERT_ID),
        ("SELECT @@session.identity", ResultReads::INSERT_ID),
        (
            "SELECT @@session .last_insert_id",
            ResultReads::INSERT_ID.and(ResultReads::DIAGNOSTICS),
        ),
        (
            "SELECT @@session. identity",
            ResultReads::INSERT_ID.and(ResultReads::DIAGNOSTICS),
        ),
        ("SELECT FOUND_ROWS()", ResultReads::FOUND_ROWS),
        ("SELECT row_count ( )", ResultReads::ROW_COUNT),
        ("SHOW WARNINGS LIMIT 5", ResultReads::DIAGNOSTICS),
        ("SHOW COUNT(*) ERRORS", ResultReads::DIAGNOSTICS),
        ("SELECT @@warning_count", ResultReads::DIAGNOSTICS),
        ("GET DIAGNOSTICS @a = NUMBER", ResultReads::DIAGNOSTICS),
        ("CALL p()", ResultReads::ALL.as_possible()),
        ("SELECT pure(1)", ResultReads::INSERT_ID.as_possible()),
        (
            "SELECT LAST_INSERT_ID(5)",
            ResultReads::INSERT_ID.as_possible(),
        ),
        (
            "INSERT INTO t VALUES (1); SELECT LAST_INSERT_ID()",
            ResultReads::INSERT_ID,
        ),
        ("UPDATE t SET a = 1; SELECT ROW_COUNT()", ResultReads::NONE),
        ("SELECT 1; SELECT FOUND_ROWS()", ResultReads::NONE),
        ("SET @a = 1; SELECT FOUND_ROWS()", ResultReads::FOUND_ROWS),
    ] {
        assert_eq!(read(text).needs, expect, "{text}");
    }
}

#[test]
fn what_may_write_and_what_is_a_read_hang_on_what_is_called() {
    for (text, writes, calls) in [
        ("SELECT c FROM t", false, Volatility::Stable),
        ("SELECT 1", false, Volatility::None),
        (
            "SELECT COUNT(*) FROM information_schema.tables",
            false,
            Volatility::Stable,
        ),
        ("SELECT audit()", true, Volatility::Volatile),
        ("SET @a = audit()", true, Volatility::Volatile),
        (
            "SELECT a FROM t GROUP BY a WITH ROLLUP ORDER BY a, audit(a)",
            true,
            Volatility::Volatile,
        ),
        (
            "WITH a (b) AS (SELECT 1), c (d) AS (SELECT 2) SELECT 1 FROM t",
            false,
            Volatility::Stable,
        ),
        ("SELECT c FROM stranger", true, Volatility::Unknown),
        ("EXPLAIN SELECT audit()", false, Volatility::None),
        ("SELECT c FROM t FOR UPDATE", false, Volatility::Stable),
        ("SELECT NEXTVAL(s)", true, Volatility::None),
    ] {
        let analysis = read(text);
        assert_eq!(analysis.writes(), writes, "{text}");
        assert_eq!(analysis.statements[0].calls, calls, "{text}");
    }
    assert_eq!(read("BEGIN").unit, TransactionPart::Begin);
    assert_eq!(read("COMMIT").unit, TransactionPart::Several);
    assert_eq!(
        read("INSERT INTO t VALUES (1)").unit,
        TransactionPart::Atomic
    );
    assert_eq!(read("CALL pure()").unit, TransactionPart::Several);
    assert_eq!(read("CREATE TABLE x (a INT)").change, DataChange::Catalog);
    assert_eq!(
        read("CREATE TEMPORARY TABLE x (a INT)").change,
        DataChange::Data
    );
}

#[test]
fn kills_are_told_with_their_number() {
    let kill = |query, connection| Kill::Of { query, connection };
    assert_eq!(read("KILL 5").kill, kill(false, 5));
    assert_eq!(read("KILL QUERY 7").kill, kill(true, 7));
    assert!(!matches!(read("KILL USER a").kill, Kill::Of { .. }));
    assert_eq!(read("KILL 5; SELECT 1").kill, Kill::Unknown);
    for text in [
        "KILL 5; SELECT 1",
        "SELECT 1; KILL QUERY 5",
        "KILL ?",
        "KILL 0x05",
        "KILL CONNECTION_ID()",
        "PREPARE p FROM 'KILL 5'",
        "EXECUTE IMMEDIATE 'KILL 5'",
        "EXECUTE IMMEDIATE 'KILL ?' USING 5",
    ] {
        assert_eq!(read(text).kill, Kill::Unknown, "{text}");
    }
    for text in ["KILL 5", "KILL USER a", "KILL QUERY ID 5", "SELECT kill"] {
        assert_ne!(read(text).kill, Kill::Unknown, "{text}");
    }
}

#[test]
fn a_text_that_changes_how_the_rest_of_it_is_read_cannot_be_read() {
    let is_obscure = |text: &str| {
        read(text)
            .effects
            .iter()
            .any(|effect| effect.kind == EffectKind::Pin(Pin::Unknown))
    };
    assert!(is_obscure("SET sql_mode = 'ANSI_QUOTES'; SELECT \"a\""));
    assert!(is_obscure("SET sql_mode = @a; SELECT 1"));
    assert!(is_obscure("SET NAMES gbk; SELECT 1"));
    assert!(!is_obscure(
        "SET sql_mode = 'STRICT_ALL_TABLES'; SET NAMES utf8; SELECT 1"
    ));
    assert!(!is_obscure("SELECT 1; SET sql_mode = 'ANSI_QUOTES'"));
}

/// Limit, not a measurement: an accident would exceed it even in a debug build.
#[test]
fn a_point_select_is_read_in_little_time() {
    let text = b"SELECT c FROM sbtest1 WHERE id = ?";
    let begin = std::time::Instant::now();
    let rounds = 20_000_u32;
    for _ in 0..rounds {
        std::hint::black_box(super::read(
            std::hint::black_box(text),
            MARIADB,
            Some(&Known),
        ));
    }
    let each = begin.elapsed() / rounds;
    println!("{} ns each", each.as_nanos());
    assert!(each.as_micros() < 200, "{each:?}");
}

/// Any bytes can be analyzed: each prefix and each suffix of these texts, with one byte changed.
#[test]
fn every_part_of_a_text_is_read_without_harm() {
    for text in [
        "SET @a = 'x\\'y', NAMES utf8 COLLATE b, @@session.c = -1.5, @`d` := x'41' -- end",
        "SELECT GET_LOCK('a', 1), f(2) INTO @b FROM `t`.`u` /*!50000 FOR UPDATE */; XA COMMIT 'a'",
        "CREATE OR REPLACE TEMPORARY TABLE IF NOT EXISTS a.b (c INT) AS SELECT @d := 1",
        "DROP TEMPORARY TABLE IF EXISTS a, b.c; HANDLER a.b OPEN AS c; PREPARE p FROM 'SELECT 1'",
        "SET STATEMENT a = 1 FOR EXECUTE IMMEDIATE 'EXECUTE IMMEDIATE ''SELECT 1'''",
        "CALL a.b(@c, \"d\"); SET session_track_schema = 1, timestamp = 5; FLUSH USER_VARIABLES",
    ] {
        for cut in 0..=text.len() {
            for part in [&text.as_bytes()[..cut], &text.as_bytes()[cut..]] {
                for byte in [b'\'', b'"', b'(', b')', b'\\', b'@', b',', b'.', 0, 0xff] {
                    let mut changed = part.to_vec();
                    if let Some(last) = changed.last_mut() {
                        *last = byte;
                    }
                    let _ = super::read(&changed, MARIADB, Some(&Known));
                }
                let _ = super::read(part, MARIADB, None);
                let _ = bound_by_body(part, MARIADB);
            }
        }
    }
}
