//! Tests of the analysis of PostgreSQL texts: one table per property.

use super::*;

mod bodies;
mod leaving;
mod linear_time;
mod settings;
mod unnamed;

struct Catalog;

impl CatalogLookup for Catalog {
    fn function(&self, name: &[u8]) -> Volatility {
        match name {
            b"lower" => Volatility::Immutable,
            b"now" | b"count" | b"random" => Volatility::Stable,
            b"audit" => Volatility::Volatile,
            _ => Volatility::Unknown,
        }
    }

    fn relation(&self, name: &[u8]) -> Volatility {
        match name {
            b"t" | b"s" => Volatility::Stable,
            b"v_audit" | b"unlogged" => Volatility::Volatile,
            _ => Volatility::Unknown,
        }
    }

    fn call_pins(&self, name: &[u8]) -> Option<Pins> {
        match name {
            b"audit" => Some(Pins::of(&[Pin::Settings])),
            b"lower" | b"now" | b"count" | b"random" => Some(Pins::NONE),
            b"currval" | b"lastval" | b"nextval" | b"setval" => Some(Pins::NONE),
            b"set_config" | b"set_limit" | b"setseed" | b"explain" | b"f" => Some(Pins::NONE),
            name if name.starts_with(b"pg_") || name.starts_with(b"dblink") => Some(Pins::NONE),
            _ => None,
        }
    }

    fn is_user_function(&self, name: &[u8]) -> bool {
        name == b"audit"
    }

    fn runs_code(&self, name: &[u8], is_written: bool) -> bool {
        name == b"v_audit" || name == b"s" && is_written
    }

    fn triggers(&self, name: &[u8]) -> Pins {
        match name {
            b"audited" => Pins::of(&[Pin::NamedLock, Pin::Sequence]),
            name => self.views(name),
        }
    }

    fn views(&self, name: &[u8]) -> Pins {
        match name {
            b"v_audit" => Pins::of(&[Pin::Settings]),
            b"v_recalls" => Pins::of(&[Pin::SequenceRead]),
            _ => Pins::NONE,
        }
    }
}

fn read(text: &str) -> TextAnalysis {
    super::read(text.as_bytes(), false, Some(&Catalog))
}

/// Returns the effects as text, such as `0: Pin(Listen)`, with names and values readable; without
/// the names of settings whose values are unknown.
fn effects(text: &str) -> Vec<String> {
    let analysis = read(text);
    let show = |effect: &Effect| match analysis.statements.len() {
        1 => shown(&effect.kind),
        _ => format!("{}: {}", effect.statement, shown(&effect.kind)),
    };
    let is_shown = |effect: &&Effect| !matches!(effect.kind, EffectKind::SetUnknown(_));
    analysis.effects.iter().filter(is_shown).map(show).collect()
}

fn shown(kind: &EffectKind) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match kind {
        EffectKind::Set { name, value } => format!("{} = {}", text(name), text(value)),
        EffectKind::Reset(name) => format!("reset {}", text(name)),
        EffectKind::Savepoint(name) => format!("savepoint {}", text(name)),
        EffectKind::ReleaseSavepoint(name) => format!("release {}", text(name)),
        EffectKind::RollbackTo(name) => format!("rollback to {}", text(name)),
        EffectKind::Prepare(name) => format!("prepare {}", text(name)),
        EffectKind::Execute(name) => format!("execute {}", text(name)),
        EffectKind::Deallocate(name) => format!("deallocate {}", text(name)),
        other => format!("{other:?}"),
    }
}

#[track_caller]
fn check(table: &[(&str, &[&str])]) {
    for (text, expect) in table {
        assert_eq!(effects(text), *expect, "{text}");
    }
}

#[test]
fn a_plain_read_or_write_leaves_nothing_and_allocates_no_list() {
    for text in [
        "SELECT 1",
        "SELECT c FROM t WHERE id = $1",
        "INSERT INTO t VALUES (1)",
        "UPDATE t SET a = 1 WHERE b = 2 RETURNING c",
        "BEGIN",
        "BEGIN READ ONLY",
        "SHOW search_path",
        "SET LOCAL search_path = a",
        "SET CONSTRAINTS ALL DEFERRED",
        "COPY t TO STDOUT",
        "COPY t FROM STDIN",
        "NOTIFY c, 'x'",
        "CREATE TABLE x (a int)",
        "VACUUM t",
        "",
        "SELECT 'unterminated",
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
fn a_read_is_as_volatile_as_the_worst_that_it_calls() {
    let calls = |text: &str| read(text).statements[0].calls;
    for (text, expect) in [
        ("SELECT 1", Volatility::None),
        ("SELECT LOWER(a) FROM t", Volatility::Stable),
        ("SELECT lower('A')", Volatility::Immutable),
        ("SELECT audit() FROM t", Volatility::Volatile),
        ("SELECT * FROM v_audit", Volatility::Volatile),
        ("SELECT f(1)", Volatility::Unknown),
        ("SELECT * FROM nobody_knows", Volatility::Unknown),
        ("WITH x AS (SELECT 1) SELECT * FROM x", Volatility::None),
        (
            "WITH a AS (TABLE t), x (b) AS NOT MATERIALIZED ((SELECT now())) SELECT * FROM x, a",
            Volatility::Stable,
        ),
        // The name exists only in another schema.
        (
            "WITH x AS (SELECT 1) SELECT * FROM public.x",
            Volatility::Unknown,
        ),
        (
            "SELECT * FROM t WINDOW a AS (ORDER BY b), x AS (a)",
            Volatility::Stable,
        ),
        ("EXPLAIN SELECT audit() FROM t", Volatility::Volatile),
        (
            "EXPLAIN ANALYZE SELECT audit() FROM t",
            Volatility::Volatile,
        ),
    ] {
        assert_eq!(calls(text), expect, "{text}");
    }
    let blind = super::read(b"SELECT c FROM t", false, None);
    assert_eq!(blind.statements[0].calls, Volatility::Unknown);
    let nothing = super::read(b"SELECT 1", false, None);
    assert_eq!(nothing.statements[0].calls, Volatility::None);
}

#[test]
fn the_router_is_told_the_kind() {
    use StatementClass as Class;
    let read_only = TransactionModes {
        read_only: Some(true),
        isolation: None,
    };
    let serializable = TransactionModes {
        read_only: None,
        isolation: Some(evenkeel_policy::route::Isolation::Serializable),
    };
    for (text, kind) in [
        ("SELECT 1", Class::Read),
        ("VALUES (1)", Class::Read),
        ("EXPLAIN ANALYZE SELECT 1", Class::Read),
        ("COPY t TO STDOUT", Class::Read),
        ("DECLARE c CURSOR FOR SELECT 1", Class::Read),
        ("DECLARE c CURSOR WITH HOLD FOR SELECT 1", Class::Session),
        ("SELECT set_config('a.b', 'c', false)", Class::Setting),
        (
            "MERGE INTO t USING s ON true WHEN MATCHED THEN DELETE",
            Class::Write,
        ),
        ("COPY t FROM STDIN", Class::Write),
        ("COPY t TO '/tmp/x'", Class::Server),
        ("COMMIT PREPARED 'x'", Class::Write),
        ("CREATE INDEX ON t (a)", Class::Ddl),
        ("REINDEX TABLE t", Class::Ddl),
        ("BEGIN READ ONLY", Class::Begin(read_only)),
        (
            "BEGIN ISOLATION LEVEL SERIALIZABLE",
            Class::Begin(serializable),
        ),
        ("COMMIT", Class::EndTransaction),
        ("PREPARE TRANSACTION 'x'", Class::EndTransaction),
        ("SET TRANSACTION READ ONLY", Class::EndTransaction),
        ("SET TRANSACTION SNAPSHOT 'x'", Class::Session),
        (
            "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            Class::Session,
        ),
        ("SET TRANSACTION READ WRITE", Class::Session),
        ("SET transaction_isolation = 'serializable'", Class::Session),
        ("SET LOCAL transaction_read_only TO off", Class::Session),
        (
            "SELECT set_config('Transaction_Read_Only', 'off', true)",
            Class::Session,
        ),
        ("SET x.y = 1", Class::Setting),
        ("SET seed = 0.5", Class::Session),
        ("SET x.y FROM CURRENT", Class::Session),
        ("RESET ALL", Class::Setting),
        ("SHOW x", Class::Asks),
        ("LISTEN c", Class::Session),
        ("DISCARD ALL", Class::Session),
        ("LOCK t", Class::Lock),
        ("CALL p()", Class::Routine),
        ("DO 'begin end'", Class::Routine),
        ("EXECUTE p", Class::Unknown),
        ("EXPLAIN (COSTS off) EXECUTE p", Class::Unknown),
        ("SELCT 1", Class::Unknown),
    ] {
        assert_eq!(read(text).statements[0].kind, kind, "{text}");
    }
}

#[test]
fn what_may_write_is_said_to() {
    for (text, expect) in [
        ("SELECT * FROM t", false),
        ("SELECT * FROM t FOR UPDATE", false),
        ("SELECT audit()", true),
        ("SELECT f()", true),
        ("SELECT nextval('s')", true),
        (
            "WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x",
            true,
        ),
        ("SELECT 1 INTO y", true),
        ("INSERT INTO t VALUES (1)", true),
        ("SELECT 1; INSERT INTO t VALUES (1)", true),
        ("EXPLAIN ANALYZE DELETE FROM t", true),
        ("EXPLAIN DELETE FROM t", false),
        ("BEGIN", false),
        ("COMMIT", false),
        ("SET x.y = 1", false),
        ("LISTEN c", false),
        ("NOTIFY c", false),
        ("DO 'begin end'", true),
        ("CALL p()", true),
        ("EXECUTE p", true),
        ("COPY t FROM STDIN", true),
        ("CREATE TABLE x ()", true),
        ("REPACK t", true),
    ] {
        assert_eq!(read(text).writes, expect, "{text}");
    }
}

#[test]
fn ddl_changes_the_catalog_but_temporary_tables_do_not() {
    for (text, expect) in [
        ("CREATE VIEW v AS SELECT 1", true),
        ("ALTER TABLE t ADD a int", true),
        ("SELECT 1 INTO y", true),
        ("SELECT 1 INTO TEMP y", false),
        ("CREATE TEMP TABLE x (a int)", false),
        ("SELECT 1", false),
        ("INSERT INTO t VALUES (1)", false),
        ("SELECT 1; DROP FUNCTION f", true),
        ("DO 'begin end'", true),
        ("CALL p()", false),
    ] {
        let changes = read(text).catalog_change > CatalogChange::None;
        assert_eq!(changes, expect, "{text}");
    }
}

#[test]
fn hints_are_carried_along() {
    let hint = |text: &str| read(text).hint;
    assert_eq!(
        hint("/* evenkeel: primary */ SELECT 1"),
        Some(RoutingHint::Primary)
    );
    assert_eq!(
        hint("SELECT 1 -- evenkeel: replica"),
        Some(RoutingHint::Replica)
    );
    let server = Some(RoutingHint::Server(b"db2:5432".as_slice().into()));
    assert_eq!(hint("/* evenkeel: server=db2:5432 */ SELECT 1"), server);
    assert_eq!(hint("SELECT '/* evenkeel: primary */'"), None);
}

#[test]
fn more_calls_than_are_listed_prove_nothing() {
    let text = "SELECT now(), now(), now(), now(), now(), now(), now(), now(), now()";
    assert!(read(text).statements[0].traits.any(RoutingTraits::OBSCURE));
    assert!(read(text).writes);
}

#[test]
fn an_unreadable_text_goes_to_the_primary_and_binds_for_ever() {
    let analysis = TextAnalysis::unreadable();
    assert_eq!(analysis.statements[0].kind, StatementClass::Unknown);
    assert_eq!(analysis.effects[0].kind, EffectKind::Pin(Pin::Unknown));
    assert!(analysis.writes && analysis.catalog_change > CatalogChange::None);
}

/// Limit, not a measurement: an accident (an allocation per token, a second pass over every text)
/// would exceed it even in a debug build.
#[test]
fn a_point_select_is_read_in_little_time() {
    let text = b"SELECT c FROM sbtest1 WHERE id = $1";
    let begin = std::time::Instant::now();
    let rounds = 20_000_u32;
    for _ in 0..rounds {
        std::hint::black_box(super::read(
            std::hint::black_box(text),
            false,
            Some(&Catalog),
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
        "SET search_path TO a, \"B c\", E'x\\'y', $q$z$q$, -1.5, +0x1F -- evenkeel: primary",
        "SELECT pg_catalog.set_config('a.b', NULL, false), set_config($1, (f(2)), true) AS x",
        "DO LANGUAGE plpgsql $$ <<a>> BEGIN SET x = 1; EXECUTE 'y'; PERFORM f(1); END $$",
        "CREATE LOCAL TEMP TABLE x (a int) ON COMMIT DROP AS WITH y (b) AS (SELECT 1) TABLE y",
        "SAVEPOINT \"A\"; ROLLBACK TO a; SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
        "PREPARE p (int) AS SELECT U&\"\\0061\"(1); EXPLAIN ANALYZE CREATE TEMP TABLE x AS TABLE y",
    ] {
        for cut in 0..=text.len() {
            for part in [&text.as_bytes()[..cut], &text.as_bytes()[cut..]] {
                for byte in [b'\'', b'"', b'(', b')', b'\\', b'$', b',', b'.', 0, 0xff] {
                    let mut changed = part.to_vec();
                    if let Some(last) = changed.last_mut() {
                        *last = byte;
                    }
                    let _ = super::read(&changed, byte == b',', Some(&Catalog));
                }
                let _ = super::read(part, false, None);
            }
        }
    }
}
