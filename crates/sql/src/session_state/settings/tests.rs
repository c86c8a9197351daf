//! Tests of settings, sets and scripts.

use evenkeel_policy::pins::Pin;
use evenkeel_wire::postgres::TransactionStatus;

use super::*;
use crate::session_state::analysis;

mod asking;
mod moving;
mod starting;
mod telling;

const REPORTS: [(&[u8], &[u8]); 6] = [
    (b"server_version", b"15.18"),
    (b"in_hot_standby", b"off"),
    (b"client_encoding", b"UTF8"),
    (b"standard_conforming_strings", b"on"),
    (b"DateStyle", b"ISO, MDY"),
    (b"TimeZone", b"Etc/UTC"),
];

/// Client, its server connection, and the state of both.
struct Scene {
    interner: Interner,
    on: ServerSessionState,
    session_state: SessionState,
    /// Result of the last `ready`.
    must_restore: bool,
}

impl Scene {
    fn new() -> Scene {
        Scene::with_startup(&[])
    }

    fn with_startup(startup: &[(&str, &str)]) -> Scene {
        let interner = Interner::new();
        let on = ServerSessionState::new(REPORTS, &interner);
        let bytes = startup
            .iter()
            .map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let startup = from_startup(bytes, &interner).unwrap();
        let reported = AcceptedSettings::default().greeting(&startup, &on, &interner);
        let session_state = SessionState::new(startup, reported, &on);
        Scene {
            interner,
            on,
            session_state,
            must_restore: false,
        }
    }

    /// Runs a text. A trailing `!` makes the last statement fail. `status` is the status after it.
    fn run(&mut self, text: &str, status: TransactionStatus) {
        let (text, fails) = match text.strip_suffix('!') {
            Some(text) => (text, true),
            None => (text, false),
        };
        let analysis = analysis::read(
            text.as_bytes(),
            self.session_state.reported.backslashes(),
            None,
        );
        self.session_state.sent(&analysis);
        let count = analysis.statements.len();
        for statement in 0..if fails { count - 1 } else { count } {
            self.session_state.succeeded(&analysis, statement);
        }
        if fails {
            self.session_state.failed(Some(&analysis));
        }
        self.must_restore = self
            .session_state
            .ready(status, &mut self.on, &self.interner);
        if status == TransactionStatus::Idle {
            self.session_state.end_deferred();
        }
    }

    fn script(&mut self, texts: &[&str]) {
        let mut open = false;
        for text in texts {
            let fails = text.ends_with('!');
            open |= text.contains("BEGIN");
            open &= !(text.contains("COMMIT") || *text == "ROLLBACK");
            self.run(
                text,
                match (open, fails) {
                    (false, _) => TransactionStatus::Idle,
                    (true, false) => TransactionStatus::InTransaction,
                    (true, true) => TransactionStatus::Failed,
                },
            );
        }
    }

    fn has(&self) -> String {
        shown(self.session_state.settings())
    }
}

fn shown(settings: &SettingSet) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let pairs: Vec<String> = settings
        .iter()
        .map(|(name, value)| format!("{}={}", text(name), text(value)))
        .collect();
    pairs.join(" ")
}

#[track_caller]
fn check(texts: &[&str], expect: &str) {
    let mut scene = Scene::new();
    scene.script(texts);
    assert_eq!(scene.has(), expect, "{texts:?}");
    assert_eq!(
        scene.on.settings(),
        scene.session_state.settings(),
        "{texts:?}"
    );
}

#[test]
fn settings_are_kept_when_their_transaction_commits() {
    check(&["SET a.b = 1"], "a.b=1");
    check(&["SET a.b = 1!"], "");
    check(
        &["SET a.b = 1", "SET a.b = 2", "SET c.d = 3"],
        "a.b=2 c.d=3",
    );
    check(&["BEGIN", "SET a.b = 1", "COMMIT"], "a.b=1");
    check(&["BEGIN", "SET a.b = 1"], "");
    check(&["BEGIN", "SET a.b = 1", "ROLLBACK"], "");
    check(&["BEGIN", "SET a.b = 1", "SELECT 1!", "COMMIT"], "");
    check(&["BEGIN", "SET a.b = 1", "COMMIT!"], "");
    check(&["BEGIN; SET a.b = 1; COMMIT"], "a.b=1");
    check(&["SELECT set_config('a.b', 'c', false)"], "a.b=c");
    check(&["SET LOCAL a.b = 1"], "");
    check(
        &[
            "BEGIN",
            "SET a.b = 1",
            "PREPARE TRANSACTION 'x'",
            "ROLLBACK",
        ],
        "a.b=1",
    );
}

#[test]
fn an_error_takes_back_what_its_text_did_since_the_last_commit_in_it() {
    check(&["SET a.b = 1; SELECT 1!"], "");
    check(&["SET a.b = 1; COMMIT; SET c.d = 2; SELECT 1!"], "a.b=1");
    check(&["BEGIN; SET a.b = 1; COMMIT; SET c.d = 2"], "a.b=1 c.d=2");
    check(&["SET a.b = 1; ROLLBACK; SET c.d = 2"], "c.d=2");
    check(&["SET a.b = 1; BEGIN", "ROLLBACK"], "");
}

#[test]
fn savepoints_take_back_what_came_after_them() {
    let nested = [
        "BEGIN",
        "SET a.b = 1",
        "SAVEPOINT s",
        "SET a.b = 2",
        "SAVEPOINT t",
        "SET c.d = 3",
    ];
    let and = |more: &[&'static str], expect| check(&[&nested[..], more].concat(), expect);
    and(&["COMMIT"], "a.b=2 c.d=3");
    and(&["ROLLBACK TO t", "COMMIT"], "a.b=2");
    and(&["ROLLBACK TO S", "COMMIT"], "a.b=1");
    and(&["SELECT 1!", "ROLLBACK TO s", "COMMIT"], "a.b=1");
    and(
        &["ROLLBACK TO s", "SET e.f = 4", "ROLLBACK TO s", "COMMIT"],
        "a.b=1",
    );
    and(&["RELEASE t", "COMMIT"], "a.b=2 c.d=3");
    and(&["RELEASE t", "ROLLBACK TO s", "COMMIT"], "a.b=1");
    and(
        &["SAVEPOINT s", "SET e.f = 4", "ROLLBACK TO s", "COMMIT"],
        "a.b=2 c.d=3",
    );
    and(
        &["SAVEPOINT s", "RELEASE s", "ROLLBACK TO s", "COMMIT"],
        "a.b=1",
    );
    and(&["ROLLBACK TO \"T\"!", "COMMIT"], "");
}

#[test]
fn a_reset_goes_back_to_what_the_client_began_with() {
    let mut scene = Scene::with_startup(&[("TimeZone", "Asia/Tokyo"), ("options", "-c a.b=s")]);
    assert_eq!(scene.has(), "a.b=s timezone=Asia/Tokyo");
    scene
        .on
        .restored(scene.session_state.settings().clone(), &scene.interner);
    scene.script(&["SET a.b = 1", "SET c.d = 2"]);
    assert_eq!(scene.has(), "a.b=1 c.d=2 timezone=Asia/Tokyo");
    scene.script(&["RESET a.b"]);
    assert_eq!(scene.has(), "a.b=s c.d=2 timezone=Asia/Tokyo");
    // The server does not know the startup message: the setting is reset there.
    assert_eq!(shown(scene.on.settings()), "c.d=2 timezone=Asia/Tokyo");
    scene.script(&["BEGIN", "RESET ALL", "ROLLBACK"]);
    assert_eq!(scene.has(), "a.b=s c.d=2 timezone=Asia/Tokyo");
    scene.script(&["RESET ALL"]);
    assert_eq!(scene.has(), "a.b=s timezone=Asia/Tokyo");
    assert!(scene.on.settings().is_empty());
}

#[test]
fn within_a_transaction_a_reset_goes_back_to_what_the_client_began_with_too() {
    let mut scene = Scene::with_startup(&[("timezone", "Asia/Tokyo"), ("a.b", "s")]);
    scene
        .on
        .restored(scene.session_state.settings().clone(), &scene.interner);
    let restored = |scene: &mut Scene, text: &str| {
        scene.run(text, TransactionStatus::InTransaction);
        let mut out = Vec::new();
        if scene.must_restore {
            scene.session_state.restore(&scene.on, &mut out);
        }
        String::from_utf8(out).unwrap()
    };
    assert_eq!(restored(&mut scene, "BEGIN"), "");
    assert_eq!(restored(&mut scene, "SAVEPOINT s"), "");
    assert_eq!(restored(&mut scene, "SET a.b = 1"), "");
    assert_eq!(
        restored(&mut scene, "RESET c.d; RESET a.b"),
        "SET \"a\".\"b\" TO 's';"
    );
    assert_eq!(restored(&mut scene, "SELECT 1"), "");
    assert_eq!(restored(&mut scene, "RESET a.b; SET a.b = 2"), "");
    let both = "SET \"a\".\"b\" TO 's';SET \"timezone\" TO 'Asia/Tokyo';";
    assert_eq!(restored(&mut scene, "RESET ALL"), both);
    assert_eq!(restored(&mut scene, "ROLLBACK TO s"), "");
    assert_eq!(restored(&mut scene, "RESET a.b"), "SET \"a\".\"b\" TO 's';");
    scene.run("COMMIT", TransactionStatus::Idle);
    assert!(!scene.must_restore);
    assert_eq!(scene.on.settings(), scene.session_state.settings());
    scene.run("RESET a.b", TransactionStatus::Idle);
    assert!(scene.must_restore);
}

#[test]
fn who_one_is_survives_reset_all_but_not_discard_all() {
    check(&["SET ROLE r", "SET a.b = 1", "RESET ALL"], "role=r");
    check(&["SET ROLE r", "SET a.b = 1", "DISCARD ALL"], "");
    check(
        &["SET ROLE r", "SET SESSION AUTHORIZATION u"],
        "session_authorization=u",
    );
    let both = ["SET SESSION AUTHORIZATION u", "SET ROLE r"];
    check(&both, "role=r session_authorization=u");
    check(&[&both[..], &["RESET SESSION AUTHORIZATION"]].concat(), "");
    check(
        &[&both[..], &["RESET ROLE"]].concat(),
        "session_authorization=u",
    );
    check(
        &[&both[..], &["DISCARD PLANS"]].concat(),
        "role=r session_authorization=u",
    );
}

#[test]
fn the_defaults_of_transactions_are_told_to_the_router() {
    let mut scene = Scene::new();
    assert_eq!(scene.session_state.transaction_defaults().read_only, None);
    scene.script(&[
        "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY, ISOLATION LEVEL SERIALIZABLE",
    ]);
    let modes = scene.session_state.transaction_defaults();
    assert_eq!(modes.read_only, Some(true));
    assert_eq!(
        modes.isolation,
        Some(evenkeel_policy::route::Isolation::Serializable)
    );
    scene.script(&["SET default_transaction_isolation = 'read committed'"]);
    let modes = scene.session_state.transaction_defaults();
    assert_eq!(
        modes.isolation,
        Some(evenkeel_policy::route::Isolation::Weaker)
    );
}

fn pins(texts: &[&str]) -> String {
    let mut scene = Scene::new();
    scene.script(texts);
    scene.session_state.pins.to_string()
}

#[test]
fn pins_are_taken_by_what_happened_and_ended_by_what_was_committed() {
    for (texts, expect) in [
        (&["LISTEN a"][..], "LISTEN"),
        (&["LISTEN a!"], ""),
        (&["SELECT pg_advisory_lock(1)!"], "advisory or named locks"),
        (&["gibberish!"], ""),
        (&["REPACK t"], "unknown session state"),
        (&["LISTEN a", "UNLISTEN *"], ""),
        (&["LISTEN a", "BEGIN", "UNLISTEN *", "ROLLBACK"], "LISTEN"),
        (
            &["LISTEN a", "BEGIN", "UNLISTEN *", "LISTEN b", "COMMIT"],
            "LISTEN",
        ),
        (
            &[
                "LISTEN a",
                "BEGIN",
                "SAVEPOINT s",
                "UNLISTEN *",
                "ROLLBACK TO s",
                "COMMIT",
            ],
            "LISTEN",
        ),
        (&["LISTEN a", "BEGIN", "UNLISTEN *"], "LISTEN"),
        (&["UNLISTEN *; LISTEN a"], "LISTEN"),
        (&["LISTEN a; UNLISTEN *"], ""),
        (&["PREPARE p AS SELECT 1"], "SQL PREPARE"),
        (&["PREPARE p AS SELECT 1", "DEALLOCATE p"], "SQL PREPARE"),
        (&["PREPARE p AS SELECT 1", "DEALLOCATE ALL"], ""),
        (&["SELECT set_config('a', $1, false)", "RESET ALL"], ""),
        (
            &[
                "SELECT pg_advisory_lock(1)",
                "SELECT pg_advisory_unlock_all()",
            ],
            "",
        ),
        (
            &[
                "SELECT pg_advisory_unlock_all()",
                "SELECT pg_advisory_lock(1)",
            ],
            "advisory or named locks",
        ),
        (
            &[
                "CREATE TEMP TABLE x (a int)",
                "SELECT nextval('s')",
                "DISCARD ALL",
            ],
            "",
        ),
        (
            &["SET log_statement = 'all'", "SET ROLE r", "SET a.b = 1"],
            "",
        ),
        (
            &["SET ROLE admin", "SET log_statement = 'all'"],
            "untracked settings",
        ),
        (
            &["BEGIN", "SET ROLE admin", "SET wal_compression = on"],
            "untracked settings",
        ),
    ] {
        assert_eq!(pins(texts), expect, "{texts:?}");
    }
}

#[test]
fn a_release_ends_neither_what_may_still_run_nor_anything_once_it_is_rolled_back() {
    for (texts, expect) in [
        (
            &[
                "LISTEN a",
                "BEGIN",
                "RESET ALL",
                "SAVEPOINT s",
                "SELECT set_config('a.b', $1, false)",
                "UNLISTEN *",
                "ROLLBACK TO s",
                "COMMIT",
                "RESET ALL",
            ][..],
            "LISTEN",
        ),
        (
            &[
                "BEGIN",
                "DECLARE c CURSOR FOR SELECT pg_advisory_lock(a) FROM t",
                "SELECT pg_advisory_unlock_all()",
                "FETCH c",
                "COMMIT",
            ],
            "advisory or named locks",
        ),
        (
            &[
                "BEGIN",
                "DECLARE c CURSOR FOR SELECT set_config('a.b', 'c', false)",
                "RESET ALL",
                "FETCH c",
                "COMMIT",
            ],
            "untracked values of settings",
        ),
    ] {
        assert_eq!(pins(texts), expect, "{texts:?}");
    }
}

#[test]
fn what_was_prepared_in_sql_binds_each_time_it_is_executed() {
    for (texts, expect) in [
        (
            &[
                "PREPARE l AS SELECT pg_advisory_lock($1)",
                "EXECUTE l(1)",
                "SELECT pg_advisory_unlock_all()",
                "EXECUTE l(2)",
                "DEALLOCATE ALL",
            ][..],
            "advisory or named locks",
        ),
        (
            &[
                "PREPARE p AS SELECT set_config('search_path', $1, false)",
                "RESET ALL",
                "EXECUTE p('evil'); DEALLOCATE ALL",
            ],
            "untracked values of settings",
        ),
        (
            &[
                "PREPARE l AS SELECT pg_advisory_lock($1), 1 / $2",
                "SELECT pg_advisory_unlock_all()",
                "EXECUTE l(2, 0)!",
                "DEALLOCATE ALL",
            ],
            "advisory or named locks",
        ),
        (
            &[
                "PREPARE l AS SELECT pg_advisory_lock($1)",
                "DEALLOCATE ALL",
                "SELECT pg_advisory_unlock_all()",
                "EXECUTE l(1)",
            ],
            "",
        ),
    ] {
        assert_eq!(pins(texts), expect, "{texts:?}");
    }
}

fn ready(scene: &mut Scene) -> bool {
    let Scene { interner, on, .. } = scene;
    scene
        .session_state
        .ready(TransactionStatus::Idle, on, interner)
}

#[test]
fn a_lock_taken_by_a_text_that_failed_outlives_a_release_that_was_under_way() {
    let mut scene = Scene::new();
    let unlock = analysis::read(b"SELECT pg_advisory_unlock_all()", false, None);
    let lock = analysis::read(b"SELECT pg_advisory_lock(1), 1/0", false, None);
    scene.session_state.sent(&unlock);
    scene.session_state.sent(&lock);
    scene.session_state.succeeded(&unlock, 0);
    assert!(!ready(&mut scene));
    scene.session_state.failed(Some(&lock));
    assert!(!ready(&mut scene));
    assert!(scene.session_state.pins.has(Pin::NamedLock));
}

#[test]
fn reset_all_ends_what_cannot_be_followed_but_for_roles() {
    let role = "SELECT set_config('role', $1, false)";
    for (texts, expect) in [
        (["SELECT set_config('a.b', $1, false)", "RESET ALL"], ""),
        ([role, "RESET ALL"], "untracked role"),
        ([role, "DISCARD ALL"], ""),
    ] {
        assert_eq!(pins(&texts), expect, "{texts:?}");
    }
}

#[test]
fn a_lock_taken_by_a_statement_that_failed_outlives_the_release_before_it_in_its_transaction() {
    let mut scene = Scene::new();
    scene.script(&[
        "BEGIN",
        "SELECT pg_advisory_unlock_all()",
        "SAVEPOINT s",
        "SELECT pg_advisory_lock(1), 1/0!",
        "ROLLBACK TO s",
        "COMMIT",
    ]);
    assert!(scene.session_state.pins.has(Pin::NamedLock));
}

#[test]
fn a_value_in_an_encoding_other_than_utf_8_binds() {
    let mut scene = Scene::new();
    scene.script(&["SET a.b = 'Ä'"]);
    assert_eq!(
        (scene.has().as_str(), scene.session_state.pins.is_empty()),
        ("a.b=Ä", true)
    );
    scene
        .session_state
        .reported
        .record_report(b"client_encoding", b"LATIN1", &scene.interner);
    scene.script(&["SET c.d = 'Ä'"]);
    assert_eq!(scene.has(), "a.b=Ä");
    assert!(scene.session_state.pins.has(Pin::Settings));
}

#[test]
fn more_settings_than_can_be_followed_bind() {
    let mut scene = Scene::new();
    let length = |scene: &Scene| {
        let settings = scene.session_state.settings().iter();
        settings.map(|(name, value)| name.len() + value.len()).sum()
    };
    for number in 0..2_000 {
        scene.run(&format!("SET a.b{number} = 'c'"), TransactionStatus::Idle);
    }
    let now: usize = length(&scene);
    assert!(scene.session_state.pins.has(Pin::Settings) && now <= 64 * 1024);
    let mut scene = Scene::new();
    let long = format!("SET a.b = '{}'", "c".repeat(60 * 1024));
    scene.run(&long, TransactionStatus::Idle);
    assert!(!scene.session_state.pins.has(Pin::Settings));
    scene.run("BEGIN; SET a.c = 'd'", TransactionStatus::InTransaction);
    assert!(!scene.session_state.pins.has(Pin::Settings));
    scene.run(&long, TransactionStatus::InTransaction);
    assert!(scene.session_state.pins.has(Pin::Settings));
}
