//! Tests of all forms of SET, and of `set_config`.

use super::super::ParsingChange::{self, Anything, Nothing, Texts, Values};
use super::{EffectKind, check, effects, read};

const SETTINGS: &str = "PinOnSuccess(Settings)";
const VALUES: &str = "PinOnSuccess(NamedSettings)";
const ROLE: &str = "PinOnSuccess(Role)";
const UNLISTED: &str = "PinOnSuccess(UnlistedSettings)";

#[test]
fn settings_are_named_in_lower_case_with_the_value_that_the_server_makes_of_it() {
    check(&[
        ("SET work_mem = '64MB'", &["work_mem = 64MB"]),
        ("set SESSION WORK_MEM to '64MB'", &["work_mem = 64MB"]),
        ("SET \"Work_Mem\" = 4096", &["work_mem = 4096"]),
        ("SET sort_mem = 4096", &["work_mem = 4096"]),
        ("SET my.Var = 'It''s'", &["my.var = It's"]),
        ("SET \"my\".\"var\" = x", &["my.var = x"]),
        ("SET a.b = E'x\\\\y\\n'", &["a.b = x\\y\n"]),
        ("SET a.b = 'x\\y'", &["a.b = x\\y"]),
        ("SET a.b = $$it's$$", &["a.b = it's"]),
        ("SET a.b = $q$$$x$q$", &["a.b = $$x"]),
        ("SET enable_seqscan = OFF", &["enable_seqscan = off"]),
        ("SET enable_seqscan TO True", &["enable_seqscan = true"]),
        ("SET extra_float_digits = -3", &["extra_float_digits = -3"]),
        ("SET extra_float_digits = +03", &["extra_float_digits = 3"]),
        ("SET seq_page_cost = 1.50", &["seq_page_cost = 1.50"]),
        ("SET DateStyle = ISO, DMY", &["datestyle = iso, dmy"]),
        ("SET datestyle TO 'ISO, DMY'", &["datestyle = ISO, DMY"]),
        (
            "SET search_path TO a, \"B c\", 'd', public /* x */",
            &["search_path = a, \"B c\", d, public"],
        ),
        (
            "SET search_path TO \"$user\", public",
            &["search_path = \"$user\", public"],
        ),
        ("SET search_path TO 'a, b'", &["search_path = \"a, b\""]),
        ("SET search_path TO ''", &["search_path = \"\""]),
        ("SET SCHEMA 'x'", &["search_path = x"]),
        ("SET NAMES 'latin1'", &["client_encoding = latin1"]),
        ("SET TIME ZONE 'Europe/Rome'", &["timezone = Europe/Rome"]),
        ("SET TIME ZONE -7", &["timezone = -7"]),
        ("SET TIME ZONE -7.5", &["timezone = -7.5"]),
        ("SET XML OPTION DOCUMENT", &["xmloption = document"]),
        ("SET ROLE app", &["role = app"]),
        ("SET SESSION ROLE \"App\"", &["role = App"]),
        ("SET ROLE NONE", &["role = none"]),
        (
            "SET SESSION AUTHORIZATION 'x'",
            &["session_authorization = x"],
        ),
        ("SET x.ünlaut = 1", &[SETTINGS, ROLE, UNLISTED]),
        ("SET a.b = 'Ärger'", &["a.b = Ärger"]),
    ]);
}

#[test]
fn back_to_the_beginning_is_a_reset() {
    check(&[
        ("SET a.b TO DEFAULT", &["reset a.b"]),
        ("SET TIME ZONE LOCAL", &["reset timezone"]),
        ("SET TIME ZONE DEFAULT", &["reset timezone"]),
        ("SET NAMES", &["reset client_encoding"]),
        (
            "SET SESSION AUTHORIZATION DEFAULT",
            &["reset session_authorization"],
        ),
        (
            "RESET SESSION AUTHORIZATION",
            &["reset session_authorization"],
        ),
        ("RESET Search_Path", &["reset search_path"]),
        ("RESET ROLE", &["reset role"]),
        ("RESET TIME ZONE", &["reset timezone"]),
        ("RESET ALL", &["ResetAll", "Release(ResetAll)"]),
    ]);
}

#[test]
fn what_is_local_to_the_transaction_follows_nobody() {
    check(&[
        ("SET LOCAL a.b = 1", &[]),
        ("SET LOCAL a.b FROM CURRENT", &[]),
        ("SET LOCAL ROLE x", &[]),
        ("SET LOCAL TIME ZONE INTERVAL '1' HOUR TO MINUTE", &[]),
        ("SELECT set_config('a.b', 'x', true)", &[]),
        ("SELECT set_config('a.b', $1, true)", &[]),
        (
            "SELECT set_config($1, f($2, 3), true), set_config('a', (x), TRUE) FROM t",
            &[],
        ),
        ("SELECT pg_catalog.\"set_config\"($1, $2, true)", &[]),
    ]);
    let modes = |text: &str| super::read(text).effects[0].kind.clone();
    for text in [
        "SET TRANSACTION READ ONLY",
        "SET LOCAL transaction_read_only = on",
        "SET transaction_read_only TO 'yes'",
        "SELECT set_config('transaction_read_only', 'on', false)",
    ] {
        let EffectKind::SetTransaction(modes) = modes(text) else {
            panic!("{text}: {:?}", effects(text));
        };
        assert_eq!(modes.read_only, Some(true), "{text}");
    }
}

#[test]
fn what_cannot_be_followed_binds() {
    check(&[
        ("SET a.b FROM CURRENT", &[VALUES]),
        ("SET TIME ZONE INTERVAL '1' HOUR TO MINUTE", &[VALUES]),
        ("SET a.b = 1e3", &[VALUES]),
        ("SET a.b = 0x1F", &[VALUES]),
        ("SET a.b = E'\\x41'", &[VALUES]),
        ("SET a.b = U&'\\0041'", &[VALUES]),
        ("SET a.b = 'x'\n'y'", &[VALUES]),
        ("SELECT set_config('a.b', $1, false)", &[VALUES]),
        ("SELECT set_config($1, $2, $3)", &[SETTINGS, UNLISTED, ROLE]),
        ("SELECT set_config('role', $1, false)", &[SETTINGS, ROLE]),
        ("SET ROLE FROM CURRENT", &[SETTINGS, ROLE]),
        ("SET role = U&'\\0041'", &[SETTINGS, ROLE]),
        ("SELECT set_config('a.b', 'c', false) FROM t", &[VALUES]),
        ("SELECT set_config('a', 'b', NOT true)", &[VALUES]),
        (
            "SELECT set_config('a', 'b', true), set_config('a', 'b', x)",
            &[VALUES],
        ),
        ("SELECT set_config('a', 'b', true OR false)", &[VALUES]),
        (
            "UPDATE pg_settings SET setting = 'x' WHERE name = 'work_mem'",
            &[SETTINGS, ROLE],
        ),
        (
            "EXPLAIN ANALYZE SELECT set_config('a', $1, false)",
            &[VALUES],
        ),
    ]);
}

#[test]
fn calls_of_set_config_with_literals_are_followed() {
    check(&[
        ("SELECT set_config('a.b', 'x', false)", &["a.b = x"]),
        (
            "SELECT pg_catalog.set_config('search_path', '', false)",
            &["search_path = "],
        ),
        (
            "SELECT set_config('Search_Path', 'a, \"B\"', false)",
            &["search_path = a, \"B\""],
        ),
        ("SELECT set_config('a.b', NULL, false)", &["reset a.b"]),
        (
            "SELECT set_config('a.b', 'x', true), set_config('c.d', E'\\'y', false) AS z",
            &["c.d = 'y"],
        ),
        (
            "SELECT set_config('seed', '0.5', false)",
            &["Pin(RandomSeed)"],
        ),
    ]);
}

#[test]
fn session_characteristics_are_defaults_of_the_session() {
    check(&[
        (
            "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
            &["default_transaction_read_only = on"],
        ),
        (
            "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ, \
             READ WRITE, NOT DEFERRABLE",
            &[
                "default_transaction_read_only = off",
                "default_transaction_isolation = repeatable read",
                "default_transaction_deferrable = off",
            ],
        ),
    ]);
}

#[test]
fn backslashes_escape_where_strings_do_not_conform() {
    let value = |text: &str| {
        let analysis = crate::session_state::analysis::read(text.as_bytes(), true, None);
        super::shown(&analysis.effects[0].kind)
    };
    assert_eq!(value("SET a.b = 'x\\'y'"), "a.b = x'y");
    assert_eq!(value("SET a.b = 'x\\\\y'"), "a.b = x\\y");
    assert_eq!(value("SET a.b = $$x\\y$$"), "a.b = x\\y");
}

#[test]
fn what_may_have_the_next_texts_read_otherwise_is_told() {
    let table: [(&str, ParsingChange); 24] = [
        ("SELECT 1", Nothing),
        ("SET work_mem = '1MB'", Nothing),
        ("SELECT set_config('a.b', $1, true)", Nothing),
        ("SET TIME ZONE 'UTC'", Values),
        ("SET LOCAL search_path = b", Values),
        ("SET ROLE b", Values),
        ("SET LOCAL DateStyle TO german", Values),
        ("SET \"array_nulls\" = off", Values),
        ("RESET intervalstyle", Values),
        ("SELECT set_config('TimeZone', 'UTC', true)", Values),
        ("SELECT set_config('timezone', $1, true), 1", Values),
        ("SELECT set_config($1, $2, true)", Anything),
        ("SELECT audit()", Anything),
        ("DO $$ BEGIN SET timezone TO 'UTC'; END $$", Anything),
        ("UPDATE pg_settings SET setting = 'off'", Anything),
        ("EXECUTE p", Anything),
        ("LOAD 'library'", Nothing),
        ("SET NAMES 'LATIN1'", Texts),
        ("SET LOCAL standard_conforming_strings = off", Texts),
        ("SELECT set_config('client_encoding', $1, true)", Texts),
        ("SELECT set_config('Client_Encoding', 'SJIS', false)", Texts),
        ("SET TIME ZONE 'UTC'; SET NAMES 'LATIN1'; SELECT 1", Texts),
        ("RESET ALL", Texts),
        ("DISCARD ALL", Texts),
    ];
    for (text, rereads) in table {
        assert_eq!(read(text).parsing_change, rereads, "{text}");
    }
}

#[test]
fn settings_whose_values_no_text_shows_are_named() {
    for (text, expect) in [
        ("SELECT set_config('App.tenant', $1, false)", "app.tenant"),
        (
            "SELECT set_config('a.b', $1, false), set_config('c', x, false)",
            "a.b c",
        ),
        ("SET a.b FROM CURRENT", "a.b"),
        (
            "DO $$ BEGIN SET a.b = 1; PERFORM set_config('c.d', x, false); END $$",
            "a.b c.d",
        ),
        ("SELECT set_config('a.b', $1, true)", ""),
        ("SELECT set_config($1, $2, false)", ""),
    ] {
        let analysis = read(text);
        let names = analysis
            .effects
            .iter()
            .filter_map(|effect| match &effect.kind {
                EffectKind::SetUnknown(name) => Some(String::from_utf8_lossy(name)),
                _ => None,
            });
        let names: Vec<_> = names.collect();
        assert_eq!(names.join(" "), expect, "{text}");
    }
}
