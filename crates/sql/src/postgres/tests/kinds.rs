//! Commands on transactions, sessions and settings.

use super::{Isolation, Setting, SettingName, SettingValue, TransactionModes, one};
use crate::postgres::Discard as Thrown;
use crate::postgres::StatementKind::*;

fn text_of(text: &str, span: crate::token::Span) -> &str {
    str::from_utf8(span.of(text.as_bytes())).unwrap()
}

#[test]
fn transactions_begin_with_modes() {
    let modes = |text: &str| match one(text).kind {
        Begin(modes) => modes,
        other => panic!("{text}: {other:?}"),
    };
    for text in [
        "BEGIN",
        "begin work",
        "BEGIN TRANSACTION",
        "start transaction;",
    ] {
        assert_eq!(modes(text), TransactionModes::default(), "{text}");
    }
    let read_only = modes("BEGIN READ ONLY");
    assert_eq!(read_only.read_only, Some(true));
    assert_eq!(modes("BEGIN READ WRITE").read_only, Some(false));
    let all = modes("START TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY, DEFERRABLE");
    assert_eq!(
        all,
        TransactionModes {
            read_only: Some(true),
            isolation: Some(Isolation::Serializable),
            deferrable: Some(true)
        }
    );
    let other = modes("BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE NOT DEFERRABLE");
    assert_eq!(other.isolation, Some(Isolation::RepeatableRead));
    assert_eq!(other.read_only, Some(false));
    assert_eq!(other.deferrable, Some(false));
    let committed = modes("begin isolation level read committed").isolation;
    assert_eq!(committed, Some(Isolation::ReadCommitted));
    let uncommitted = modes("begin isolation level read uncommitted").isolation;
    assert_eq!(uncommitted, Some(Isolation::ReadUncommitted));
    assert_eq!(one("BEGIN READ").kind, Unknown);
    assert_eq!(one("START").kind, Unknown);
}

#[test]
fn transactions_end_in_many_ways() {
    for (text, kind) in [
        ("COMMIT", Commit { chain: false }),
        ("END", Commit { chain: false }),
        ("end transaction", Commit { chain: false }),
        ("COMMIT WORK AND CHAIN", Commit { chain: true }),
        ("COMMIT AND NO CHAIN", Commit { chain: false }),
        ("ROLLBACK", Rollback { chain: false }),
        ("ABORT", Rollback { chain: false }),
        ("ROLLBACK TRANSACTION AND CHAIN", Rollback { chain: true }),
        ("COMMIT PREPARED 'x'", FinishPrepared),
        ("ROLLBACK PREPARED 'x'", FinishPrepared),
        ("PREPARE TRANSACTION 'x'", PrepareTransaction),
    ] {
        assert_eq!(one(text).kind, kind, "{text}");
    }
    let named = |text: &'static str| match one(text).kind {
        Savepoint(name) | Release(name) | RollbackTo(name) => text_of(text, name),
        other => panic!("{text}: {other:?}"),
    };
    assert_eq!(named("SAVEPOINT a"), "a");
    assert_eq!(named("RELEASE SAVEPOINT a"), "a");
    assert_eq!(named("RELEASE \"B\""), "\"B\"");
    assert_eq!(named("ROLLBACK TO a"), "a");
    assert_eq!(named("ABORT WORK TO SAVEPOINT a;"), "a");
}

#[test]
fn settings_are_told_with_their_literals() {
    let reported = |text: &str| match one(text).kind {
        Set(Setting { name, value, local }) => {
            let name = match name {
                SettingName::Written(span) => text_of(text, span).to_owned(),
                SettingName::Known(name) => format!("<{name}>"),
            };
            let value = match value {
                SettingValue::Default => "<default>",
                SettingValue::Literals(span) => text_of(text, span),
                SettingValue::Unknown => "<unknown>",
            };
            format!("{}{name} = {value}", if local { "local " } else { "" })
        }
        other => panic!("{text}: {other:?}"),
    };
    for (text, expect) in [
        ("SET a = 1", "a = 1"),
        ("set session a.b to 'x'", "a.b = 'x'"),
        ("SET LOCAL a TO on", "local a = on"),
        ("SET a = -1.5", "a = -1.5"),
        (
            "SET search_path TO a, \"B\", 'c' ;",
            "search_path = a, \"B\", 'c'",
        ),
        ("SET a TO DEFAULT", "a = <default>"),
        ("SET a FROM CURRENT", "a = <unknown>"),
        ("SET TIME ZONE 'UTC'", "<timezone> = 'UTC'"),
        ("SET LOCAL TIME ZONE -7", "local <timezone> = -7"),
        ("SET TIME ZONE LOCAL", "<timezone> = <default>"),
        (
            "SET TIME ZONE INTERVAL '1' HOUR TO MINUTE",
            "<timezone> = <unknown>",
        ),
        ("SET NAMES 'latin1'", "<client_encoding> = 'latin1'"),
        ("SET NAMES", "<client_encoding> = <default>"),
        ("SET SCHEMA 'x'", "<search_path> = 'x'"),
        ("SET ROLE r", "<role> = r"),
        ("SET LOCAL ROLE NONE", "local <role> = NONE"),
        ("SET role = r", "role = r"),
        ("SET SESSION AUTHORIZATION u", "<session_authorization> = u"),
        (
            "SET SESSION AUTHORIZATION DEFAULT",
            "<session_authorization> = <default>",
        ),
        ("SET XML OPTION DOCUMENT", "<xmloption> = DOCUMENT"),
        ("SET a = $1", "a = <unknown>"),
        ("SET a = f(1)", "a = <unknown>"),
    ] {
        assert_eq!(reported(text), expect, "{text}");
    }
    assert_eq!(one("SET CONSTRAINTS ALL DEFERRED").kind, SetConstraints);
    assert_eq!(one("SET").kind, Unknown);
}

#[test]
fn transaction_modes_are_no_settings() {
    let reported = |text: &str| match one(text).kind {
        SetTransaction {
            modes,
            session,
            snapshot,
        } => (modes.read_only, session, snapshot),
        other => panic!("{text}: {other:?}"),
    };
    assert_eq!(
        reported("SET TRANSACTION READ ONLY"),
        (Some(true), false, false)
    );
    assert_eq!(
        reported("SET SESSION TRANSACTION READ WRITE"),
        (Some(false), false, false)
    );
    assert_eq!(
        reported("SET TRANSACTION SNAPSHOT '1'"),
        (None, false, true)
    );
    let text = "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY";
    assert_eq!(reported(text), (Some(true), true, false));
}

#[test]
fn resets_and_shows_name_what_they_mean() {
    assert_eq!(one("RESET ALL").kind, ResetAll);
    let zone = SettingName::Known("timezone");
    assert_eq!(one("RESET TIME ZONE").kind, Reset(zone));
    assert_eq!(one("SHOW TIME ZONE").kind, Show(zone));
    let authorization = SettingName::Known("session_authorization");
    assert_eq!(
        one("RESET SESSION AUTHORIZATION").kind,
        Reset(authorization)
    );
    match one("RESET a.b").kind {
        Reset(SettingName::Written(span)) => assert_eq!(text_of("RESET a.b", span), "a.b"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_a_session_keeps_is_named() {
    let named = |text: &'static str| match one(text).kind {
        Prepare(name) | Execute(name) | Listen(name) | Declare { name, .. } => text_of(text, name),
        Deallocate(name) | Unlisten(name) | CloseCursor(name) => {
            name.map_or("*", |name| text_of(text, name))
        }
        other => panic!("{text}: {other:?}"),
    };
    for (text, expect) in [
        ("PREPARE p AS SELECT 1", "p"),
        ("PREPARE p(int, text) AS INSERT INTO t VALUES ($1)", "p"),
        ("EXECUTE \"P\"(1)", "\"P\""),
        ("DEALLOCATE p", "p"),
        ("DEALLOCATE PREPARE p", "p"),
        ("DEALLOCATE ALL", "*"),
        ("LISTEN c", "c"),
        ("UNLISTEN c", "c"),
        ("UNLISTEN *", "*"),
        ("CLOSE c", "c"),
        ("CLOSE ALL", "*"),
        ("DECLARE c CURSOR FOR SELECT 1", "c"),
    ] {
        assert_eq!(named(text), expect, "{text}");
    }
    let hold = |text: &str| matches!(one(text).kind, Declare { hold: true, .. });
    assert!(hold("DECLARE c BINARY CURSOR WITH HOLD FOR SELECT 1"));
    assert!(!hold("DECLARE c SCROLL CURSOR WITHOUT HOLD FOR SELECT 1"));
    assert!(!hold(
        "DECLARE c CURSOR FOR WITH hold AS (SELECT 1) SELECT 1"
    ));
    for (text, what) in [
        ("DISCARD ALL", Thrown::All),
        ("DISCARD PLANS", Thrown::Plans),
        ("DISCARD SEQUENCES", Thrown::Sequences),
        ("DISCARD TEMP", Thrown::Temp),
        ("DISCARD TEMPORARY;", Thrown::Temp),
    ] {
        assert_eq!(one(text).kind, Discard(what), "{text}");
    }
}

#[test]
fn copies_know_their_direction() {
    for (text, kind) in [
        ("COPY t FROM STDIN", CopyIn { from_client: true }),
        (
            "copy s.t (a, b) from stdin with (format csv)",
            CopyIn { from_client: true },
        ),
        ("COPY t FROM '/f'", CopyIn { from_client: false }),
        ("COPY t FROM PROGRAM 'p'", CopyIn { from_client: false }),
        (
            "COPY (SELECT * FROM t) TO STDOUT",
            CopyOut { to_client: true },
        ),
        ("COPY t TO 'x'", CopyOut { to_client: false }),
        ("COPY t", Unknown),
    ] {
        assert_eq!(one(text).kind, kind, "{text}");
    }
}

#[test]
fn other_commands_have_their_kinds() {
    for (text, kind) in [
        ("VACUUM FULL t", Maintenance),
        ("analyze", Maintenance),
        ("CREATE INDEX CONCURRENTLY i ON t (f(a))", Ddl),
        ("DROP TABLE t", Ddl),
        ("ALTER TABLE t ADD a int", Ddl),
        ("GRANT SELECT ON t TO u", Ddl),
        ("TRUNCATE t", Write),
        ("LOAD 'x'", Load),
        ("LOCK TABLE t IN SHARE MODE", Lock),
        ("FETCH 1 FROM c", Fetch),
        ("MOVE c", Fetch),
        ("NOTIFY c, 'p'", Notify),
        ("CALL p(1)", Call),
        ("DO $$ $$", Do),
        ("EXPLAIN SELECT 1", Explain { analyze: false }),
        (
            "EXPLAIN ANALYZE VERBOSE SELECT 1",
            Explain { analyze: true },
        ),
        ("WITH a AS (SELECT 1) INSERT INTO t SELECT 1", Write),
    ] {
        assert_eq!(one(text).kind, kind, "{text}");
    }
}

#[test]
fn an_option_of_explain_in_quotes_may_be_analyze() {
    for text in [
        "EXPLAIN (\"analyze\") SELECT 1",
        "EXPLAIN (VERBOSE, \"analyze\" true) SELECT 1",
        "EXPLAIN (U&\"\\0061nalyze\", COSTS off) SELECT 1",
    ] {
        assert_eq!(one(text).kind, Explain { analyze: true }, "{text}");
    }
    for text in [
        "EXPLAIN (VERBOSE) SELECT \"analyze\"",
        "EXPLAIN SELECT \"a\"",
    ] {
        assert_eq!(one(text).kind, Explain { analyze: false }, "{text}");
    }
}
