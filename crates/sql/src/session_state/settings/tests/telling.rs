//! Tests of ParameterStatus: values learnt from servers and sent to clients.

use evenkeel_wire::postgres::TransactionStatus;

use super::*;

impl Scene {
    /// Sends a report of the server while the client is on it.
    fn report(&mut self, name: &str, value: &str) -> bool {
        let (name, value) = (name.as_bytes(), value.as_bytes());
        self.on.record_report(name, value, &self.interner);
        self.session_state
            .reported
            .record_report(name, value, &self.interner)
    }
}

#[test]
fn a_report_gives_a_setting_the_servers_own_words() {
    let mut scene = Scene::new();
    assert!(scene.report("DateStyle", "SQL, MDY"));
    scene.script(&["SET datestyle = sql"]);
    assert_eq!(scene.has(), "datestyle=SQL, MDY");
    assert!(scene.report("DateStyle", "SQL, DMY"));
    scene.script(&["SET datestyle = dmy"]);
    assert_eq!(scene.has(), "datestyle=SQL, DMY");
    assert_eq!(scene.on.settings(), scene.session_state.settings());
}

#[test]
fn a_setting_that_a_function_has_made_is_learnt_from_its_report() {
    let mut scene = Scene::new();
    scene.report("TimeZone", "Asia/Tokyo");
    scene.script(&["SELECT hidden()"]);
    assert_eq!(scene.has(), "timezone=Asia/Tokyo");
    // A reset to the server's initial value without a statement: kept as a value of the session.
    scene.report("TimeZone", "Etc/UTC");
    scene.script(&["SELECT hidden()"]);
    assert_eq!(scene.has(), "timezone=Etc/UTC");
}

#[test]
fn what_is_local_to_a_transaction_is_reported_and_not_kept() {
    let mut scene = Scene::new();
    scene.run("BEGIN", TransactionStatus::InTransaction);
    assert!(scene.report("TimeZone", "Asia/Tokyo"));
    scene.run(
        "SET LOCAL timezone = 'Asia/Tokyo'",
        TransactionStatus::InTransaction,
    );
    assert!(scene.report("TimeZone", "Etc/UTC"));
    scene.run("COMMIT", TransactionStatus::Idle);
    assert_eq!(scene.has(), "");
}

#[test]
fn a_reset_is_explained_by_what_the_server_began_with() {
    let mut scene = Scene::with_startup(&[("timezone", "Asia/Tokyo")]);
    let wanted = scene
        .on
        .prepare(&scene.session_state, &scene.interner, &mut Vec::new());
    scene.report("TimeZone", "Asia/Tokyo");
    scene.on.restored(wanted.unwrap(), &scene.interner);
    assert!(scene.report("TimeZone", "Etc/UTC"));
    scene.script(&["RESET timezone"]);
    assert_eq!(scene.has(), "timezone=Asia/Tokyo");
    let mut out = Vec::new();
    let wanted = scene
        .on
        .prepare(&scene.session_state, &scene.interner, &mut out)
        .unwrap();
    assert_eq!(out, b"SET \"timezone\" TO 'Asia/Tokyo';");
    scene
        .on
        .record_report(b"TimeZone", b"Asia/Tokyo", &scene.interner);
    scene.on.restored(wanted, &scene.interner);
    assert_eq!(announced(&mut scene), "TimeZone=Asia/Tokyo");
    assert_eq!(announced(&mut scene), "");
}

fn announced(scene: &mut Scene) -> String {
    let mut announced = Vec::new();
    let Scene {
        interner,
        on,
        session_state,
        ..
    } = scene;
    let own = session_state.settings().clone();
    session_state
        .reported
        .catch_up(on, &own, interner, |name, value| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            announced.push(format!("{}={}", text(name), text(value)));
        });
    announced.join(" ")
}

#[test]
fn what_a_client_knows_or_need_not_know_is_not_told() {
    let mut scene = Scene::new();
    assert!(!scene.report("TimeZone", "Etc/UTC"), "known");
    assert!(!scene.report("in_hot_standby", "on"), "the server's own");
    assert!(!scene.report("server_version", "18.1"));
    assert!(scene.report("TimeZone", "Asia/Tokyo"));
    let others = [
        (&b"TimeZone"[..], &b"Asia/Tokyo"[..]),
        (b"in_hot_standby", b"on"),
        (b"server_version", b"16.1"),
        (b"default_transaction_read_only", b"on"),
        (b"client_encoding", b"LATIN1"),
    ];
    scene.on = ServerSessionState::new(others, &scene.interner);
    assert_eq!(announced(&mut scene), "client_encoding=LATIN1");
}

#[test]
fn a_server_with_other_defaults_is_made_to_look_like_the_one_that_greeted() {
    let mut scene = Scene::new();
    let others = [
        (&b"TimeZone"[..], &b"Europe/Rome"[..]),
        (b"DateStyle", b"ISO, MDY"),
    ];
    scene.on = ServerSessionState::new(others, &scene.interner);
    let mut out = Vec::new();
    let wanted = scene
        .on
        .prepare(&scene.session_state, &scene.interner, &mut out)
        .unwrap();
    assert_eq!(out, b"SET \"timezone\" TO 'Etc/UTC';");
    scene
        .on
        .record_report(b"TimeZone", b"Etc/UTC", &scene.interner);
    scene.on.restored(wanted, &scene.interner);
    assert_eq!(
        scene
            .on
            .prepare(&scene.session_state, &scene.interner, &mut out),
        None
    );
    assert_eq!(scene.has(), "");
}

#[test]
fn the_encoding_and_the_meaning_of_backslashes_are_those_last_told() {
    let mut scene = Scene::new();
    let reported = |scene: &Scene| {
        let reported = &scene.session_state.reported;
        (reported.backslashes(), reported.is_readable())
    };
    assert_eq!(reported(&scene), (false, true));
    scene.report("standard_conforming_strings", "off");
    assert_eq!(reported(&scene), (true, true));
    scene.report("client_encoding", "SJIS");
    assert_eq!(reported(&scene), (true, false));
    scene.report("client_encoding", "UTF8");
    assert_eq!(reported(&scene), (true, true));
}

#[test]
fn a_connection_that_was_cleaned_has_nothing() {
    let mut scene = Scene::new();
    scene.script(&["SET a.b = 1"]);
    scene
        .on
        .record_report(b"TimeZone", b"Etc/UTC", &scene.interner);
    scene.on.discarded(&scene.interner);
    assert!(scene.on.settings().is_empty());
    let mut out = Vec::new();
    assert!(
        scene
            .on
            .prepare(&scene.session_state, &scene.interner, &mut out)
            .is_some()
    );
    assert_eq!(out, b"SET \"a\".\"b\" TO '1';");
}

#[test]
fn a_reset_of_all_before_a_function_sets_it_again_is_seen_though_nothing_is_reported() {
    let mut scene = Scene::new();
    scene.report("TimeZone", "Asia/Tokyo");
    scene.script(&["SELECT hidden()", "RESET ALL; SELECT hidden()"]);
    assert_eq!(scene.has(), "timezone=Asia/Tokyo");
}

#[test]
fn a_value_already_reported_is_known_by_that_report() {
    let mut scene = Scene::new();
    scene.script(&["SET timezone = 'etc/utc'"]);
    assert_eq!(scene.has(), "timezone=Etc/UTC");
    assert_eq!(scene.on.settings(), scene.session_state.settings());
}

#[test]
fn a_report_from_within_a_chained_transaction_says_nothing_of_what_was_committed_before_it() {
    let mut scene = Scene::new();
    scene.run(
        "BEGIN; SET datestyle = 'SQL, DMY'",
        TransactionStatus::InTransaction,
    );
    scene.report("DateStyle", "German, DMY");
    let chained = "COMMIT AND CHAIN; SET datestyle = german";
    scene.run(chained, TransactionStatus::InTransaction);
    scene.report("DateStyle", "SQL, DMY");
    scene.run("ROLLBACK", TransactionStatus::Idle);
    assert_eq!(scene.has(), "datestyle=SQL, DMY");
    assert_eq!(scene.on.settings(), scene.session_state.settings());
}

#[test]
fn what_a_function_has_set_behind_a_reset_is_not_taken_back() {
    let mut scene = Scene::with_startup(&[("timezone", "Asia/Tokyo")]);
    let own = scene.session_state.settings().clone();
    scene.report("TimeZone", "Asia/Tokyo");
    scene.on.restored(own, &scene.interner);
    scene.report("TimeZone", "Pacific/Auckland");
    let text = "BEGIN; RESET ALL; SELECT hidden()";
    scene.run(text, TransactionStatus::InTransaction);
    assert!(!scene.must_restore);
    scene.run("COMMIT", TransactionStatus::Idle);
    assert_eq!(scene.has(), "timezone=Pacific/Auckland");
}

#[test]
fn what_texts_are_read_by_is_the_same_where_the_values_are() {
    let mut scene = Scene::new();
    let before = scene.session_state.parse_settings();
    scene.run("SET work_mem = '1MB'", TransactionStatus::Idle);
    assert_eq!(scene.session_state.parse_settings(), before);
    scene.report("TimeZone", "Europe/Berlin");
    scene.run("SET timezone = 'Europe/Berlin'", TransactionStatus::Idle);
    let berlin = scene.session_state.parse_settings();
    assert_ne!(berlin.literals, before.literals);
    assert_eq!(berlin.names, before.names);
    scene.run("SET array_nulls = off", TransactionStatus::Idle);
    assert_ne!(
        scene.session_state.parse_settings().literals,
        berlin.literals
    );
    scene.run("SET search_path = a", TransactionStatus::Idle);
    assert_ne!(scene.session_state.parse_settings().names, berlin.names);
    // `"$user"` in the search path is the session's current user.
    let here = scene.session_state.parse_settings();
    scene.run("SET SESSION AUTHORIZATION bob", TransactionStatus::Idle);
    assert_ne!(scene.session_state.parse_settings().names, here.names);
    scene.run("RESET SESSION AUTHORIZATION", TransactionStatus::Idle);
    scene.report("TimeZone", "Etc/UTC");
    scene.run("RESET ALL", TransactionStatus::Idle);
    assert_eq!(scene.session_state.parse_settings(), before);
}
