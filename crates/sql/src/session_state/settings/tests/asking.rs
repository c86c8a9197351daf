//! Tests of questions about settings, and of their answers.

use evenkeel_policy::pins::Pins;

use super::super::held_state::{HeldState, ReportedSetting};
use super::*;

fn question(scene: &Scene) -> String {
    let mut out = Vec::new();
    scene.session_state.question(&scene.on).write(&mut out);
    String::from_utf8(out).unwrap()
}

fn answer(scene: &mut Scene, settings: &[(&str, &str)]) {
    let settings = settings.iter().map(|(name, value)| ReportedSetting {
        name: name.as_bytes().into(),
        value: value.as_bytes().into(),
        is_privileged: false,
    });
    let held = HeldState {
        settings: settings.collect(),
        ..HeldState::default()
    };
    let question = scene.session_state.question(&scene.on);
    let (state, interner) = (&mut scene.session_state, &scene.interner);
    state.answered(&question, &held, &mut scene.on, interner);
}

fn after(texts: &[&str]) -> Scene {
    let mut scene = Scene::new();
    scene.script(texts);
    scene
}

const NAMED: &str = "SELECT set_config('app.x', 'y' || 1, false)";

#[test]
fn only_a_setting_without_a_name_in_its_text_is_looked_for_in_the_list_of_all() {
    let value = |name: &str| format!("('5','{name}',pg_catalog.current_setting('{name}',true))");
    assert_eq!(
        question(&after(&[NAMED])),
        format!("VALUES {}", value("app.x"))
    );
    let both = "SELECT set_config('work_mem', $1, false), set_config('a.b', $2, false)";
    let values = format!("VALUES {},{}", value("a.b"), value("work_mem"));
    assert_eq!(question(&after(&[both])), values);
    let path = question(&after(&["SELECT set_config('search_path', $1, false)"]));
    assert!(path.contains("pg_my_temp_schema") && path.contains(&value("search_path")));
    assert!(!path.contains("pg_settings"), "{path}");
    for text in [
        "SELECT set_config('app.' || 'x', 'y', false)",
        "SELECT set_config('app.x', $1, false), set_config($2, $3, false)",
        // The login user may not set it, perhaps.
        "SELECT set_config('log_statement', $1, false)",
        "SELECT set_config('role', $1, false)",
        "UPDATE pg_settings SET setting = '1MB' WHERE name = 'work_mem'",
    ] {
        let asked = question(&after(&[text]));
        assert!(asked.contains("pg_settings"), "{text}: {asked}");
    }
    let with_role = question(&after(&["SET ROLE a", NAMED]));
    assert!(with_role.contains("pg_settings"), "{with_role}");
}

#[test]
fn the_value_of_a_named_setting_follows_and_the_others_stay_as_they_were() {
    let mut scene = after(&["SET work_mem TO '1MB'", NAMED]);
    answer(&mut scene, &[("app.x", "y1")]);
    assert_eq!(scene.has(), "app.x=y1 work_mem=1MB");
    assert_eq!(scene.on.settings(), scene.session_state.settings());
    assert_eq!(scene.session_state.pins, Pins::NONE);
    // An answered name is not asked for again.
    scene.script(&["SELECT set_config('app.z', $1, false)"]);
    assert!(!question(&scene).contains("app.x"));
}

#[test]
fn a_value_that_cannot_be_read_is_asked_for_until_it_can() {
    let mut scene = after(&[NAMED]);
    scene
        .session_state
        .reported
        .record_report(b"client_encoding", b"LATIN1", &scene.interner);
    answer(&mut scene, &[("app.x", "\u{e9}")]);
    assert!(scene.session_state.pins.has(Pin::Settings));
    assert!(question(&scene).contains("current_setting('app.x'"));
}

#[test]
fn the_modes_of_a_transaction_are_not_asked_for() {
    let mut scene = after(&["SELECT set_config('transaction_isolation', $1, false)"]);
    assert!(!question(&scene).contains("current_setting"));
    answer(&mut scene, &[]);
    assert_eq!(scene.session_state.pins, Pins::NONE);
}

#[test]
fn texts_are_parsed_by_unknown_settings_only_if_one_of_them_is_of_that_kind() {
    let is_unknown = |text| after(&[text]).session_state.has_unknown_parse_settings();
    assert!(!is_unknown(NAMED));
    assert!(is_unknown("SELECT set_config('search_path', $1, false)"));
    assert!(is_unknown("SELECT set_config('DateStyle', $1, false)"));
    assert!(is_unknown("SELECT set_config($1, $2, false)"));
}
