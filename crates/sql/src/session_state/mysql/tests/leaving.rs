//! Tests what pins a client to its connection, and what removes the pins.

use evenkeel_policy::pins::Pins;
use evenkeel_policy::route::Volatility;

use super::*;

/// Runs texts of one client, and compares its pins after each.
#[track_caller]
fn check(steps: &[(&str, &str)]) {
    let mut scene = Scene::new(1, 1);
    for (text, expect) in steps {
        scene.run(0, text, 0);
        assert_eq!(scene.pins(0), *expect, "{text}");
    }
}

#[test]
fn transactions_bind_until_the_server_says_that_none_is_open() {
    check(&[
        ("BEGIN", "transaction"),
        ("SELECT c FROM t", "transaction"),
        ("COMMIT", ""),
    ]);
    check(&[
        (
            "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            "transaction",
        ),
        ("SELECT c FROM t", "transaction"),
        ("BEGIN", "transaction"),
        ("ROLLBACK", ""),
    ]);
}

#[test]
fn what_runs_behind_a_text_that_seemed_to_be_over_binds() {
    let mut scene = Scene::new(2, 1);
    let text = b"CREATE PROCEDURE p() SELECT 1; SELECT GET_LOCK('x', 0)";
    let on = &mut scene.core[0].on;
    let mut behind = |client: usize, error: Option<u16>| {
        let session_state = &mut scene.clients[client].session_state;
        let analysis = session_state.read(text, None);
        assert_eq!(analysis.form, TextForm::StoredProgram);
        session_state.sent(&analysis, on);
        session_state.succeeded(
            &analysis,
            0,
            &StatementReply::default(),
            on,
            &scene.interner,
        );
        assert!(session_state.pins.is_empty());
        match error {
            None => session_state.succeeded(
                &analysis,
                1,
                &StatementReply::default(),
                on,
                &scene.interner,
            ),
            Some(code) => session_state.failed(&analysis, code, on),
        }
        session_state.pins.has(Pin::Unknown)
    };
    // Comments, and texts that the server cannot parse either, have no effect.
    assert!(!behind(0, Some(1065)) && !behind(0, Some(1064)));
    assert!(behind(0, Some(1146)));
    assert!(behind(1, None));
}

/// Fails if the pin is removed when the status reports no open transaction.
#[test]
fn what_the_server_keeps_for_the_next_transaction_binds_until_that_is_over() {
    let mut scene = Scene::new(1, 1);
    let Client { session_state, .. } = &mut scene.clients[0];
    let on = &mut scene.core[0].on;
    let mut step = |text: &str, reported: &[u8], in_transaction: bool| {
        let analysis = session_state.read(text.as_bytes(), None);
        session_state.sent(&analysis, on);
        session_state.record_report(&Change::Characteristics(reported), &scene.interner);
        let status = status(in_transaction, true);
        let reply = StatementReply {
            status,
            ..StatementReply::default()
        };
        session_state.succeeded(&analysis, 0, &reply, on, &scene.interner);
        session_state.ready(Some(status), on, &scene.interner);
        (
            session_state.pins.to_string(),
            session_state.transaction_defaults().read_only,
        )
    };
    let read_only = b"SET TRANSACTION READ ONLY;";
    let (pins, defaults) = step("INSERT INTO t VALUES (1)", read_only, false);
    assert_eq!((pins.as_str(), defaults), ("transaction", Some(true)));
    let (pins, _) = step("BEGIN", b"START TRANSACTION READ ONLY;", true);
    assert_eq!(pins, "transaction");
    let (pins, defaults) = step("COMMIT", b"", false);
    assert_eq!((pins.as_str(), defaults), ("", None));
}

#[test]
fn what_ends_the_connection_binds_to_it() {
    for ends in ["COMMIT RELEASE", "ROLLBACK AND NO CHAIN RELEASE"] {
        check(&[("BEGIN", "transaction"), (ends, "unknown session state")]);
    }
    check(&[("BEGIN", "transaction"), ("COMMIT NO RELEASE", "")]);
    let settings = "untracked settings";
    check(&[
        ("SET completion_type = 'CHAIN'", ""),
        ("SET completion_type = 'RELEASE'", settings),
    ]);
}

#[test]
fn autocommit_off_binds_only_from_the_first_statement_to_the_end_of_its_transaction() {
    check(&[
        ("SET autocommit = 0", ""),
        ("SET @a = 1", ""),
        ("SELECT c FROM t", "transaction, autocommit off"),
        ("COMMIT", ""),
        // An error does not report whether a transaction is open.
        ("INSERT INTO twice VALUES (1)", "autocommit off"),
        ("ROLLBACK", ""),
        ("SET autocommit = 1", ""),
        ("SELECT c FROM t", ""),
    ]);
    check(&[
        ("SAVEPOINT s", ""),
        ("SET autocommit = 0", ""),
        ("RELEASE SAVEPOINT s", ""),
        ("ROLLBACK TO s", ""),
        ("SAVEPOINT s", "autocommit off"),
        ("COMMIT", ""),
    ]);
}

#[test]
fn things_with_names_bind_until_all_are_gone() {
    check(&[
        ("CREATE TEMPORARY TABLE x", "temporary tables"),
        ("CREATE TEMPORARY TABLE y", "temporary tables"),
        ("DROP TEMPORARY TABLE x", "temporary tables"),
        ("DROP TABLE y", ""),
    ]);
    check(&[
        ("CREATE TEMPORARY TABLE x", "temporary tables"),
        ("USE other", "temporary tables"),
        // Another table, so that the statement fails.
        ("DROP TEMPORARY TABLE x", "temporary tables"),
        ("USE app", "temporary tables"),
        ("DROP TEMPORARY TABLE x", ""),
    ]);
    check(&[
        ("CREATE TEMPORARY TABLE x", "temporary tables"),
        // Another table, which is not temporary.
        ("CREATE TABLE `app.x`", "temporary tables"),
        ("DROP TABLE `app.x`", "temporary tables"),
    ]);
    check(&[
        ("SELECT GET_LOCK('a', 1)", "advisory or named locks"),
        ("SELECT GET_LOCK('a', 1)", "advisory or named locks"),
        ("SELECT GET_LOCK('A', 1)", "advisory or named locks"),
        ("SELECT RELEASE_LOCK('a')", "advisory or named locks"),
        ("SELECT RELEASE_LOCK('a')", "advisory or named locks"),
        ("SELECT RELEASE_LOCK('A')", ""),
        ("SELECT GET_LOCK('a', 1)", "advisory or named locks"),
        ("SELECT RELEASE_ALL_LOCKS()", ""),
    ]);
}

#[test]
fn what_cannot_be_followed_binds_until_a_reset() {
    let variables = "untracked user variables";
    check(&[
        ("SELECT @a := 1, @b := 2", variables),
        ("SET @a = 1", variables),
        ("SET @b = 1", ""),
    ]);
    check(&[("SET @é = 1", variables), ("SET @a = 1", variables)]);
    let all = "temporary tables, advisory or named locks, SQL PREPARE, sequence values, untracked \
               user variables, unknown session state";
    check(&[("CALL p()", all), ("SELECT 1", all)]);
}

#[test]
fn a_variable_that_the_server_does_not_report_even_when_asked_binds() {
    for is_reported in [true, false] {
        let mut scene = Scene::new(1, 1);
        let session_state = &mut scene.clients[0].session_state;
        let on = &mut scene.core[0].on;
        let analysis = session_state.read(b"SET @@a_new_one = 5", None);
        session_state.sent(&analysis, on);
        let reply = StatementReply::default();
        session_state.succeeded(&analysis, 0, &reply, on, &scene.interner);
        session_state.ready(None, on, &scene.interner);
        assert!(session_state.pins.has(Pin::Settings));
        assert!(session_state.state_query(&scene.observed_reads).is_some());
        let queries = session_state.setting_queries(0);
        assert_eq!(queries, [b"SET @@session.a_new_one=@@session.a_new_one"]);
        if is_reported {
            let (name, value): (&[u8], &[u8]) = (b"a_new_one", b"5");
            let change = Change::Variable { name, value };
            session_state.record_report(&change, &scene.interner);
        }
        session_state.query_answered(on, &scene.interner);
        assert_eq!(session_state.pins.is_empty(), is_reported);
        let value = session_state.settings().get(b"a_new_one");
        assert_eq!(value.is_some(), is_reported);
    }
}

/// TO SEE THIS RED: drop a name that a lock of a computed name may have had.
#[test]
fn a_lock_is_held_until_the_server_has_released_as_many_as_it_gave() {
    let mut scene = Scene::new(1, 1);
    let session_state = &mut scene.clients[0].session_state;
    let on = &mut scene.core[0].on;
    let mut step = |text: &str, value: Option<bool>| {
        let analysis = session_state.read(text.as_bytes(), None);
        session_state.sent(&analysis, on);
        let reply = StatementReply {
            value,
            ..StatementReply::default()
        };
        session_state.succeeded(&analysis, 0, &reply, on, &scene.interner);
        session_state.pins.has(Pin::NamedLock)
    };
    assert!(!step("SELECT GET_LOCK('a', 0)", Some(false)), "not taken");
    assert!(step("SELECT GET_LOCK('a', 0)", None), "perhaps");
    assert!(step("SELECT RELEASE_LOCK('a')", None), "perhaps not");
    assert!(step("SELECT RELEASE_LOCK('a')", Some(false)), "not held");
    assert!(!step("SELECT RELEASE_LOCK(CONCAT('a'))", Some(true)));
    assert!(step("SELECT GET_LOCK('a', 0)", Some(true)));
    assert!(step("SELECT GET_LOCK(?, 0)", Some(true)));
    assert!(step("SELECT RELEASE_LOCK(?)", Some(true)), "of a");
    assert!(step("DO RELEASE_LOCK('a')", None), "not held any longer");
    assert!(!step("SELECT RELEASE_LOCK(?)", Some(true)));
    assert!(step("SELECT GET_LOCK(?, 0)", Some(true)));
    assert!(!step("SELECT RELEASE_ALL_LOCKS()", None));
}

struct Sets;

impl CatalogLookup for Sets {
    fn function(&self, _: &[u8]) -> Volatility {
        Volatility::Stable
    }

    fn relation(&self, _: &[u8]) -> Volatility {
        Volatility::Stable
    }

    fn call_pins(&self, _: &[u8]) -> Option<Pins> {
        let mut pins = Pins::NONE;
        pins.add(Pin::Settings);
        Some(pins)
    }
}

/// Fails if an EOF is taken for an OK that reports nothing.
#[test]
fn what_a_function_may_have_set_untold_is_asked_for_before_anybody_else_has_the_connection() {
    let mut scene = Scene::new(1, 1);
    let session_state = &mut scene.clients[0].session_state;
    let on = &mut scene.core[0].on;
    let analysis = session_state.read(b"SELECT f()", Some(&Sets));
    let mut run = |has_trackers, fails| {
        session_state.sent(&analysis, on);
        let reply = StatementReply {
            has_trackers,
            ..StatementReply::default()
        };
        match fails {
            true => session_state.failed(&analysis, 1644, on),
            false => session_state.succeeded(&analysis, 0, &reply, on, &scene.interner),
        }
        session_state.ready(None, on, &scene.interner);
        let pins = session_state.pins.has(Pin::Settings);
        let asks = session_state.state_query(&scene.observed_reads).is_some();
        let reported = Change::Variable {
            name: b"group_concat_max_len",
            value: b"4321",
        };
        session_state.record_report(&reported, &scene.interner);
        session_state.query_answered(on, &scene.interner);
        (pins, asks, session_state.pins.has(Pin::Settings))
    };
    assert_eq!(run(true, false), (false, false, false), "an OK");
    assert_eq!(run(false, false), (true, true, false), "an EOF");
    assert_eq!(run(false, true), (true, true, false), "an error");
    let own = session_state.settings().get(b"group_concat_max_len");
    assert_eq!(own, Some(b"4321".as_slice()), "it is the client's");
}

#[test]
fn a_change_that_no_text_explains_binds() {
    let mut scene = Scene::new(1, 1);
    let session_state = &mut scene.clients[0].session_state;
    let on = &mut scene.core[0].on;
    let analysis = session_state.read(b"INSERT INTO t VALUES (1)", None);
    session_state.sent(&analysis, on);
    session_state.record_report(&Change::State(true), &scene.interner);
    session_state.succeeded(
        &analysis,
        0,
        &StatementReply::default(),
        on,
        &scene.interner,
    );
    assert!(session_state.pins.has(Pin::Variables) && session_state.pins.has(Pin::TemporaryTable));
}

/// Texts are parsed for the oldest server, but each server reports variables in its own way.
#[test]
fn what_a_trigger_switches_at_the_newer_of_two_servers_binds() {
    for (version, binds) in [(101_119, false), (110_809, true)] {
        let mut scene = Scene::new(1, 1);
        let session_state = &mut scene.clients[0].session_state;
        let mut on = scene.core.remove(0).on.with_version(true, version);
        let analysis = session_state.read(b"INSERT INTO t VALUES (1)", None);
        session_state.sent(&analysis, &mut on);
        let (name, value) = (&b"autocommit"[..], &b"ON"[..]);
        session_state.record_report(&Change::Variable { name, value }, &scene.interner);
        session_state.succeeded(
            &analysis,
            0,
            &StatementReply::default(),
            &mut on,
            &scene.interner,
        );
        assert_eq!(session_state.pins.has(Pin::Settings), binds, "{version}");
    }
}

#[test]
fn variables_that_bind_let_go_as_the_server_tells() {
    let mut scene = Scene::new(1, 1);
    let mut hear = |name: &str, value: &str| {
        let (name, value) = (name.as_bytes(), value.as_bytes());
        let change = Change::Variable { name, value };
        scene.clients[0]
            .session_state
            .record_report(&change, &scene.interner);
        scene.clients[0].session_state.pins.to_string()
    };
    assert_eq!(hear("sql_log_bin", "OFF"), "sql_log_bin or gtid_next");
    assert_eq!(hear("gtid_next", "a:5"), "sql_log_bin or gtid_next");
    assert_eq!(hear("sql_log_bin", "ON"), "sql_log_bin or gtid_next");
    assert_eq!(hear("gtid_next", "AUTOMATIC"), "");
    assert_eq!(hear("session_track_schema", "OFF"), "unknown session state");
}

/// TO SEE THIS RED: let [`EffectKind::SetPinning`](super::super::EffectKind) pin always, or let
/// `profiling` be undone.
#[test]
fn variables_with_their_usual_values_again_bind_no_longer_unless_they_have_left_something() {
    let mut scene = Scene::new(1, 1);
    let mut run = |text: &str, reported: Option<(&str, &str)>| {
        let session_state = &mut scene.clients[0].session_state;
        let on = &mut scene.core[0].on;
        let analysis = session_state.read(text.as_bytes(), None);
        session_state.sent(&analysis, on);
        if let Some((name, value)) = reported {
            let (name, value) = (name.as_bytes(), value.as_bytes());
            let change = Change::Variable { name, value };
            session_state.record_report(&change, &scene.interner);
        }
        let reply = StatementReply::default();
        session_state.succeeded(&analysis, 0, &reply, on, &scene.interner);
        session_state.ready(Some(Status::AUTOCOMMIT), on, &scene.interner);
        session_state.pins.to_string()
    };
    let log = "sql_log_bin or gtid_next";
    assert_eq!(
        run("SET sql_log_bin = 0", Some(("sql_log_bin", "OFF"))),
        log
    );
    assert_eq!(run("SET sql_log_bin = 1", Some(("sql_log_bin", "ON"))), "");
    let own = "sql_auto_is_null";
    let settings = "untracked settings";
    assert_eq!(run("SET sql_auto_is_null = 1", Some((own, "ON"))), settings);
    assert_eq!(
        run("SET sql_auto_is_null = DEFAULT", Some((own, "OFF"))),
        ""
    );
    // SHOW PROFILES still shows the statements.
    assert_eq!(
        run("SET profiling = 1", Some(("profiling", "ON"))),
        settings
    );
    assert_eq!(
        run("SET profiling = 0", Some(("profiling", "OFF"))),
        settings
    );
    // A server that does not report the variable by its name.
    assert!(run("SET sql_log_bin = 0", None).contains(log));
    assert!(run("SET sql_log_bin = 1", None).contains(log));
}

#[test]
fn an_error_takes_back_what_was_not_run_and_keeps_what_may_have_been() {
    let after = |text: &str, code: u16| {
        let mut scene = Scene::new(1, 1);
        let session_state = &mut scene.clients[0].session_state;
        let on = &mut scene.core[0].on;
        let analysis = session_state.read(text.as_bytes(), None);
        session_state.sent(&analysis, on);
        session_state.failed(&analysis, code, on);
        session_state.ready(None, on, &scene.interner);
        session_state.pins.to_string()
    };
    assert_eq!(after("SELCT 1", 1064), "");
    assert_eq!(after("CREATE TEMPORARY TABLE x (a INT)", 1050), "");
    let locked = after("SELECT GET_LOCK('a', 1), f(2) FROM t", 1242);
    assert!(locked.contains("named locks"), "{locked}");
    assert_eq!(
        after("SELECT @a := (SELECT 1 UNION SELECT 2)", 1242),
        "untracked user variables"
    );
    assert_eq!(after("SET time_zone = 'x'", 1298), "");
    assert_eq!(
        after("SET time_zone = 'x', wait_timeout = 5", 1298),
        "transaction"
    );
    let global = "SET @@session.sql_mode = 'ANSI_QUOTES', @@global.gtid_mode = ON";
    assert_eq!(after(global, 1788), "transaction");
    let both = after("SET @a = 1, @@global.gtid_mode = ON", 1788);
    assert!(both.contains("user variables"), "{both}");
    assert!(after("BEGIN NOT ATOMIC SELECT 1; END", 1064).contains("unknown session state"));
    assert!(after("CALL p()", 1064).contains("temporary tables"));
    assert_eq!(after("SELECT 1", 1045), "");
    // The tables were not closed in time, but the lock is held.
    let locked = after("FLUSH TABLES WITH READ LOCK", 1205);
    assert!(locked.contains("global read lock"), "{locked}");
    // Unknown number of executed statements.
    for (text, pin) in [
        ("CALL p(); LOCK TABLES t WRITE; gibberish", "LOCK TABLES"),
        (
            "CALL p(); CREATE TEMPORARY TABLE x (a INT); gibberish",
            "temporary",
        ),
        ("CALL p(); SET timestamp = 1; gibberish", "settings"),
        ("CALL p(); SET @a = 1; gibberish", "user variables"),
        ("CALL p(); HANDLER t OPEN; gibberish", "HANDLER"),
        (
            "CALL p(); FLUSH TABLES WITH READ LOCK; gibberish",
            "read lock",
        ),
    ] {
        let pins = after(text, 1064);
        assert!(pins.contains(pin), "{text}: {pins}");
    }
}
