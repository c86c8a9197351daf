//! Tests of sets and of the SQL that turns one into another.

use super::*;

fn sql(from: &[(&str, &str)], to: &[(&str, &str)]) -> String {
    let interner = Interner::new();
    let mut out = Vec::new();
    difference(&set(&interner, from), &set(&interner, to), &mut out);
    String::from_utf8(out).unwrap()
}

fn set(interner: &Interner, pairs: &[(&str, &str)]) -> SettingSet {
    interner.of(pairs
        .iter()
        .map(|(name, value)| (name.as_bytes(), value.as_bytes())))
}

#[test]
fn equal_sets_are_the_same_one_however_they_came_about() {
    let interner = Interner::new();
    let one = set(&interner, &[("a", "1"), ("b", "2")]);
    let other = set(&interner, &[("b", "0"), ("a", "1"), ("b", "2")]);
    assert_eq!(one, other);
    let part = set(&interner, &[("a", "1")]);
    assert_ne!(one, part);
    assert_eq!(interner.with(&part, b"b", b"2"), one);
    assert_eq!(interner.with(&one, b"b", b"2"), one);
    assert_eq!(set(&interner, &[]), interner.empty());
    assert_eq!((one.get(b"a"), one.get(b"c")), (Some(&b"1"[..]), None));
}

#[test]
fn a_set_moves_to_another_worker() {
    let (here, there) = (Interner::new(), Interner::new());
    let set = set(&here, &[("a", "1"), ("b", "2")]);
    let moved = set.export();
    let arrived = std::thread::spawn(move || moved).join().unwrap();
    let arrived = there.import(&arrived);
    assert_ne!(arrived, set);
    assert_eq!(there.import(&set.export()), arrived);
    assert_eq!(shown(&arrived), "a=1 b=2");
}

#[test]
fn what_is_known_of_a_connection_moves_with_it() {
    let mut scene = Scene::new();
    scene.script(&["SET a.b = 1"]);
    scene
        .on
        .record_report(b"TimeZone", b"Asia/Tokyo", &scene.interner);
    let carried = scene.on.export();
    let carried = std::thread::spawn(move || carried).join().unwrap();
    let there = Interner::new();
    let arrived = ServerSessionState::import(&carried, &there);
    assert_eq!(shown(arrived.settings()), "a.b=1");
    assert_eq!(arrived.export(), scene.on.export());
}

#[test]
fn sets_that_nobody_has_any_more_are_forgotten() {
    let interner = Interner::new();
    for number in 0..10_000_u32 {
        let value = number.to_string();
        drop(set(&interner, &[("application_name", &value)]));
    }
    let debug = format!("{interner:?}");
    let held = debug.split("hashes: ").nth(1).unwrap();
    let held: String = held.chars().take_while(char::is_ascii_digit).collect();
    assert!(held.parse::<usize>().unwrap() <= 128, "{debug}");
}

#[test]
fn nothing_is_said_where_nothing_differs() {
    assert_eq!(sql(&[], &[]), "");
    let same = [("a", "1"), ("role", "r"), ("search_path", "x")];
    assert_eq!(sql(&same, &same), "");
}

#[test]
fn what_differs_is_set_or_reset() {
    assert_eq!(
        sql(
            &[("a.b", "1"), ("c", "2"), ("e", "3")],
            &[("c", "It's"), ("d", ""), ("e", "3")]
        ),
        "RESET \"a\".\"b\";SET \"c\" TO 'It''s';SET \"d\" TO '';"
    );
}

#[test]
fn who_one_is_comes_off_first_and_on_last_and_the_search_path_before_what_it_finds() {
    assert_eq!(
        sql(
            &[("role", "r"), ("session_authorization", "u"), ("x", "1")],
            &[
                ("role", "s"),
                ("session_authorization", "v"),
                ("search_path", "p"),
                ("default_text_search_config", "t")
            ],
        ),
        "RESET \"session_authorization\";RESET \"role\";SET \"search_path\" TO 'p';\
         SET \"default_text_search_config\" TO 't';RESET \"x\";\
         SET \"session_authorization\" TO 'v';SET \"role\" TO 's';"
    );
    assert_eq!(
        sql(&[("role", "r")], &[("role", "r"), ("x", "1")]),
        "RESET \"role\";SET \"x\" TO '1';SET \"role\" TO 'r';"
    );
}

#[test]
fn lists_of_names_are_set_name_by_name() {
    for (value, expect) in [
        ("a, \"B c\", d", "SET \"search_path\" TO 'a','B c','d';"),
        (
            "\"$user\", public",
            "SET \"search_path\" TO '$user','public';",
        ),
        ("\"a\"\"b\"", "SET \"search_path\" TO 'a\"b';"),
        ("\"a, b\"", "SET \"search_path\" TO 'a, b';"),
        ("\"\"", "SET \"search_path\" TO '';"),
        (
            "A",
            "SELECT pg_catalog.set_config('search_path','A',false);",
        ),
        ("", "SELECT pg_catalog.set_config('search_path','',false);"),
        (
            "a,,b",
            "SELECT pg_catalog.set_config('search_path','a,,b',false);",
        ),
        (
            "a b",
            "SELECT pg_catalog.set_config('search_path','a b',false);",
        ),
        (
            "a,",
            "SELECT pg_catalog.set_config('search_path','a,',false);",
        ),
        (
            "\"a",
            "SELECT pg_catalog.set_config('search_path','\"a',false);",
        ),
    ] {
        assert_eq!(sql(&[], &[("search_path", value)]), expect, "{value}");
    }
    assert_eq!(
        sql(&[], &[("datestyle", "ISO, DMY")]),
        "SET \"datestyle\" TO 'ISO, DMY';"
    );
}

#[test]
fn a_date_style_given_in_part_does_not_keep_the_rest_of_another() {
    assert_eq!(
        sql(&[("datestyle", "SQL, DMY")], &[("datestyle", "ISO")]),
        "RESET \"datestyle\";SET \"datestyle\" TO 'ISO';"
    );
    assert_eq!(
        sql(&[], &[("datestyle", "ISO")]),
        "SET \"datestyle\" TO 'ISO';"
    );
}

#[test]
fn values_are_written_in_ascii_and_mean_the_same_with_backslashes_on() {
    assert_eq!(
        sql(&[], &[("a.b", "x\\y'")]),
        "SET \"a\".\"b\" TO E'x\\\\y''';"
    );
    assert_eq!(
        sql(&[], &[("a.b", "Ä€😀")]),
        "SET \"a\".\"b\" TO E'\\U000000C4\\U000020AC\\U0001F600';"
    );
    assert_eq!(sql(&[], &[("a\".b", "x")]), "SET \"a\"\"\".\"b\" TO 'x';");
}
