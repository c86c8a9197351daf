//! Tests the settings that follow a client between connections, and the texts that restore them.

use evenkeel_wire::mysql::trackers::Trackers;

use super::*;

/// Returns the text that turns the first client's connection into that of the second.
#[track_caller]
fn between(first: &[&str], second: &[&str]) -> String {
    let mut scene = Scene::new(2, 2);
    for text in first {
        scene.run(0, text, 0);
    }
    for text in second {
        scene.run(1, text, 1);
    }
    let mut sql = Vec::new();
    let on = &scene.core[0].on;
    let wanted = &mut scene.clients[1].session_state;
    settings_diff(on, wanted, ResultReads::NONE, &mut sql);
    String::from_utf8(sql).unwrap()
}

#[test]
fn what_one_has_set_is_taken_back_for_the_next() {
    for (first, second, expect) in [
        (&["SELECT 1"][..], &["SELECT 1"][..], ""),
        (
            &["SET wait_timeout = 5"],
            &["SELECT 1"],
            "SET @@session.wait_timeout=DEFAULT",
        ),
        (
            &["SET time_zone = '+01:00', @a = 'x'"],
            &["SELECT 1"],
            "SET @`a`=x'',@`a`=NULL,@@session.time_zone='SYSTEM'",
        ),
        (
            &["SELECT 1"],
            &["SET @`b c` = 'it is', sql_mode = 'ANSI', @n = -5, @z = NULL, wait_timeout = 7"],
            "SET @@session.sql_mode='ANSI',\
             @`b c`=_utf8mb4'it is' COLLATE utf8mb4_general_ci,@`n`=-5,@`z`=NULL,\
             @@session.wait_timeout=7",
        ),
        (
            &["SET NAMES latin1"],
            &["SET NAMES utf8mb4 COLLATE utf8mb4_bin"],
            "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
        ),
        (
            &["SET autocommit = 0", "COMMIT"],
            &["SELECT 1"],
            "SET @@session.autocommit='ON'",
        ),
        (
            &["SET tx_isolation = 'SERIALIZABLE'"],
            &["SELECT 1"],
            "SET @@session.tx_isolation='REPEATABLE-READ'",
        ),
    ] {
        assert_eq!(between(first, second), expect, "{first:?} {second:?}");
    }
}

#[test]
fn strings_are_moved_with_their_character_set() {
    let of = |value: &[u8], client: &[u8], collation: &[u8]| {
        let literal = values::string_of_variable(value, client, collation);
        literal.map(|literal| String::from_utf8(literal).unwrap())
    };
    let utf8 = |value: &[u8]| of(value, b"utf8mb4", b"utf8mb4_bin");
    assert_eq!(
        utf8(b"it's").as_deref(),
        Some("_utf8mb4'it''s' COLLATE utf8mb4_bin")
    );
    assert_eq!(
        utf8("\\€".as_bytes()).as_deref(),
        Some("_utf8mb4 x'5ce282ac' COLLATE utf8mb4_bin")
    );
    assert_eq!(
        of(b"x", b"binary", b"binary").as_deref(),
        Some("_binary'x'")
    );
    // Only the server has the result of its conversion.
    assert_eq!(of("é".as_bytes(), b"latin1", b"utf8mb4_bin"), None);
    assert_eq!(of(b"x", b"utf8mb4", b"utf16_bin"), None);
}

#[test]
fn the_number_of_a_collation_is_given_to_the_server_which_names_it() {
    let mut scene = Scene::new(1, 1);
    scene.join_at(100_500, 33);
    let mut sql = Vec::new();
    let on = &mut scene.core[0].on;
    let session_state = &mut scene.clients[1].session_state;
    settings_diff(on, session_state, ResultReads::NONE, &mut sql);
    assert_eq!(
        String::from_utf8(sql).unwrap(),
        "SET @@session.character_set_client=33,@@session.character_set_results=33,\
         @@session.collation_connection=33"
    );
    let reported = [
        ("character_set_client", "utf8mb3"),
        ("character_set_results", "utf8mb3"),
        ("collation_connection", "utf8mb3_general_ci"),
    ];
    for (name, value) in reported {
        let (name, value) = (name.as_bytes(), value.as_bytes());
        on.record_report(&Change::Variable { name, value }, &scene.interner);
    }
    session_state.restored(on, &scene.interner);
    let collation = session_state.settings().get(b"collation_connection");
    assert_eq!(collation, Some(&b"utf8mb3_general_ci"[..]));
    assert!(!session_state.restore_failed(&scene.interner));
}

#[test]
fn a_number_that_the_server_does_not_know_is_its_own_collation_and_not_a_client_s() {
    let mut scene = Scene::new(1, 1);
    scene.join(1_057);
    let on = &mut scene.core[0].on;
    let (name, value) = (b"collation_connection", b"latin1_bin");
    on.record_report(&Change::Variable { name, value }, &scene.interner);
    let session_state = &mut scene.clients[1].session_state;
    assert!(session_state.restore_failed(&scene.interner));
    let collation = session_state.settings().get(b"collation_connection");
    assert_eq!(collation, Some(&b"utf8mb4_general_ci"[..]));
}

#[test]
fn a_client_without_a_schema_gets_no_connection_that_has_one() {
    let mut scene = Scene::new(1, 1);
    scene.run(0, "SELECT 1", 0);
    let fresh: Vec<_> = Model::default().fresh().collect();
    let begin = InitialSettings {
        collation: 0,
        schema: None,
        mariadb: true,
        version: MARIADB,
    };
    let mut session_state = SessionState::new(fresh, begin, &scene.interner);
    let found = settings_diff(
        &scene.core[0].on,
        &mut session_state,
        ResultReads::NONE,
        &mut Vec::new(),
    );
    assert_eq!(found, SettingsDiff::Unfit);
}

/// Runs a client's statement about trackers; `row` has the values that the server reports
/// afterwards.
fn set_trackers(scene: &mut Scene, text: &str, row: [&str; 4]) {
    let session_state = &mut scene.clients[0].session_state;
    let on = &mut scene.core[0].on;
    let analysis = session_state.read(text.as_bytes(), None);
    assert_eq!(analysis.form, TextForm::Trackers, "{text}");
    session_state.show_trackers(false);
    session_state.sent(&analysis, on);
    session_state.succeeded(
        &analysis,
        0,
        &StatementReply::default(),
        on,
        &scene.interner,
    );
    let back = session_state.restore_trackers(MARIADB, false);
    assert!(back.query.is_some(), "{text}");
    let row = ["utf8mb4"].into_iter().chain(row);
    let row = row.map(|value| Some(value.as_bytes()));
    session_state.trackers_restored(row, on, &scene.interner);
    assert!(!scene.is_bound(0), "{text}");
}

#[test]
fn the_trackers_that_a_client_sees_are_those_that_it_asked_for() {
    let mut scene = Scene::new(1, 1);
    let variable = Change::Variable {
        name: b"sql_mode",
        value: b"",
    };
    let changes = [variable, Change::Schema(b"a"), Change::State(true)];
    let seen = |scene: &Scene| changes.map(|change| scene.clients[0].session_state.keeps(&change));
    assert_eq!(seen(&scene), [false, true, false]);
    for (row, expect) in [
        (["*", "ON", "OFF", "OFF"], [true, true, false]),
        (["*", "0", "1", "OFF"], [true, false, true]),
        (["a, SQL_MODE", "OFF", "ON", "STATE"], [true, false, true]),
        (["", "OFF", "ON", "OFF"], [false, false, true]),
    ] {
        set_trackers(&mut scene, "SET session_track_schema = @a", row);
        assert_eq!(seen(&scene), expect, "{row:?}");
    }
    let sql = scene.clients[0].session_state.show_trackers(false);
    assert_eq!(
        String::from_utf8(sql).unwrap(),
        "SET @@session.session_track_system_variables=x'',@@session.session_track_schema=0,\
         @@session.session_track_state_change=1,@@session.session_track_transaction_info='OFF'"
    );
}

/// Fails if variables that were not reported count as not set.
#[test]
fn what_is_set_with_trackers_is_asked_for_and_binds_if_nobody_tells_it() {
    for (reported, is_bound) in [
        (&["sql_mode", "wait_timeout"][..], false),
        (&["sql_mode"], true),
    ] {
        let mut scene = Scene::new(1, 1);
        let session_state = &mut scene.clients[0].session_state;
        let on = &mut scene.core[0].on;
        let text = b"SET session_track_schema = 1, sql_mode = CONCAT('', ''), wait_timeout = 5";
        let analysis = session_state.read(text, None);
        session_state.show_trackers(false);
        session_state.sent(&analysis, on);
        assert!(
            session_state.pins.has(Pin::Settings),
            "nobody else gets the connection"
        );
        session_state.succeeded(
            &analysis,
            0,
            &StatementReply::default(),
            on,
            &scene.interner,
        );
        let back = session_state.restore_trackers(MARIADB, false);
        let reports = back
            .reports
            .iter()
            .map(|text| String::from_utf8_lossy(text));
        assert_eq!(
            reports.collect::<Vec<_>>(),
            [
                "SET @@session.sql_mode=@@session.sql_mode",
                "SET @@session.wait_timeout=@@session.wait_timeout"
            ]
        );
        for name in reported {
            let (name, value) = (name.as_bytes(), &b"5"[..]);
            session_state.record_report(&Change::Variable { name, value }, &scene.interner);
        }
        let row = ["utf8mb4", "", "ON", "OFF", "OFF"].map(|value| Some(value.as_bytes()));
        session_state.trackers_restored(row.into_iter(), on, &scene.interner);
        assert_eq!(scene.is_bound(0), is_bound, "{reported:?}");
    }
}

/// MariaDB 11 reports the collation only, if that is named first.
#[test]
fn a_client_that_wants_the_character_set_is_told_that_of_the_collation() {
    let mut scene = Scene::new(1, 1);
    let row = ["character_set_connection", "ON", "OFF", "OFF"];
    set_trackers(&mut scene, "SET session_track_schema = @a", row);
    let session_state = &mut scene.clients[0].session_state;
    let state = b"\x00\x20\x14collation_connection\x0alatin1_bin";
    let mut tracker = Trackers::new(state).next().unwrap();
    assert!(session_state.shows(&mut tracker));
    let (name, value) = (&b"character_set_connection"[..], &b"latin1"[..]);
    assert_eq!(tracker.change, Change::Variable { name, value });
}

#[test]
fn a_carried_connection_is_what_it_was() {
    let mut scene = Scene::new(1, 1);
    scene.run(0, "SET @a = 1, time_zone = '+02:00'", 0);
    let on = &scene.core[0].on;
    let carried = on.export();
    let other = Interner::new();
    let found = ServerSessionState::import(&carried, &other);
    assert_eq!(found.export(), carried);
    assert_eq!(found.settings().get(b"@a"), Some(&b"1"[..]));
    assert_eq!(found.schema(), Some(&b"app"[..]));
}

#[test]
fn a_reset_forgets_all_but_the_schema() {
    let mut scene = Scene::new(1, 1);
    for text in ["SET @a = 1", "CREATE TEMPORARY TABLE x", "SELECT @b := 2"] {
        scene.run(0, text, 0);
    }
    assert!(scene.is_bound(0));
    let fresh: Vec<_> = Model::default().fresh().collect();
    let on = &mut scene.core[0].on;
    on.apply_reset(fresh, &scene.interner);
    scene.clients[0]
        .session_state
        .apply_reset(on, &scene.interner);
    assert!(!scene.is_bound(0));
    assert_eq!(scene.clients[0].session_state.settings().get(b"@a"), None);
    assert_eq!(scene.clients[0].session_state.schema(), Some(&b"app"[..]));
    // The server's current defaults were not reported.
    let mut sql = Vec::new();
    let session_state = &mut scene.clients[0].session_state;
    settings_diff(
        &scene.core[0].on,
        session_state,
        ResultReads::NONE,
        &mut sql,
    );
    let sql = String::from_utf8(sql).unwrap();
    assert!(
        sql.starts_with("SET @@session.sql_mode='STRICT_TRANS_TABLES',"),
        "{sql}"
    );
    assert!(sql.contains("@@session.time_zone='SYSTEM'"), "{sql}");
}

#[test]
fn a_statement_that_sets_for_itself_alone_sets_nothing() {
    let mut scene = Scene::new(1, 1);
    scene.run(0, "SET time_zone = '+01:00'", 0);
    let session_state = &mut scene.clients[0].session_state;
    let on = &mut scene.core[0].on;
    let text = b"SET STATEMENT time_zone = '+02:00', max_statement_time = 5 FOR SELECT 1";
    let analysis = session_state.read(text, None);
    session_state.sent(&analysis, on);
    for (name, value) in [
        (b"time_zone".as_slice(), b"+02:00".as_slice()),
        (b"max_statement_time", b"5"),
    ] {
        let change = Change::Variable { name, value };
        on.record_report(&change, &scene.interner);
        session_state.record_report(&change, &scene.interner);
    }
    session_state.succeeded(
        &analysis,
        0,
        &StatementReply::default(),
        on,
        &scene.interner,
    );
    for settings in [session_state.settings(), on.settings()] {
        assert_eq!(settings.get(b"time_zone"), Some(&b"+01:00"[..]));
        assert_eq!(settings.get(b"max_statement_time"), None);
    }
}

#[test]
fn how_texts_are_read_follows_the_sql_mode_and_the_character_set() {
    let mut scene = Scene::new(1, 1);
    scene.run(0, "SET sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'", 0);
    let modes = scene.clients[0].session_state.modes();
    assert!(modes.ansi_quotes && modes.no_backslash_escapes);
    scene.run(0, "SET NAMES gbk", 0);
    let analysis = scene.clients[0].session_state.read(b"SELECT 1", None);
    assert_eq!(analysis, TextAnalysis::unreadable());
}

/// Fails if the collation id is taken for the name of a character set.
#[test]
fn no_text_is_read_in_a_character_set_of_a_number_that_hides_ascii() {
    let mut scene = Scene::new(0, 1);
    for (number, is_read) in [
        (28, false),
        (13, false),
        (84, false),
        (1_052, false),
        (33, true),
    ] {
        scene.join(number);
        let session_state = &scene.clients.last().unwrap().session_state;
        assert_eq!(session_state.dialect().is_some(), is_read, "{number}");
        let then = number.to_string();
        let then = session_state.dialect_in(b"", then.as_bytes());
        assert_eq!(then.is_some(), is_read, "{number}");
    }
}

/// Fails if a versioned comment is taken to have the same effect on all servers.
#[test]
fn a_comment_for_some_versions_binds_at_a_server_of_another_version() {
    for (version, text, is_bound) in [
        (MARIADB, "SELECT 1 /*M!101200 , GET_LOCK('a', 0) */", false),
        (110_809, "SELECT 1 /*M!110000 , GET_LOCK('a', 0) */", true),
        (110_809, "SELECT 1 /*!40101 , 2 */", false),
        (
            110_809,
            "EXECUTE IMMEDIATE 'SELECT 1 /*M!110000 , 2 */'",
            true,
        ),
    ] {
        let mut scene = Scene::new(1, 1);
        let fresh = Model::default();
        let on = ServerSessionState::new(fresh.fresh(), None, &scene.interner);
        let mut on = on.with_version(true, version);
        let session_state = &mut scene.clients[0].session_state;
        let analysis = session_state.read(text.as_bytes(), None);
        session_state.sent(&analysis, &mut on);
        assert_eq!(scene.is_bound(0), is_bound, "{text}");
    }
    let scene = Scene::new(1, 1);
    let prepares = b"PREPARE p FROM 'SELECT 1 /*M!110000 , 2 */'";
    let analysis = scene.clients[0].session_state.read(prepares, None);
    let kind = &analysis.effects[0].kind;
    assert!(matches!(kind, EffectKind::Prepare(_, pins) if pins.has(Pin::Unknown)));
}
