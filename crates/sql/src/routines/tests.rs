//! Tests conclusions from the routines that a server lists.

use evenkeel_policy::pins::Pin;

use super::*;

fn function(name: &str, access: &str, body: &str) -> Routine {
    Routine {
        name: name.to_owned(),
        is_function: true,
        access: access.to_owned(),
        body: Some(body.to_owned()),
        sql_mode: String::new(),
    }
}

fn view(name: &str, definition: &str) -> ViewDefinition {
    ViewDefinition {
        name: name.to_owned(),
        definition: Some(definition.to_owned()),
    }
}

fn of(routines: Vec<Routine>, views: Vec<ViewDefinition>) -> Routines {
    let listed = RoutineListing {
        mariadb: true,
        tables: vec!["T".to_owned(), "plain".to_owned()],
        views,
        routines,
        ..RoutineListing::default()
    };
    Routines::new(1, &listed)
}

#[test]
fn a_function_is_what_its_body_does_and_not_only_what_it_says() {
    let reads = "READS SQL DATA";
    let known = of(
        vec![
            function("reads", reads, "return (select count(*) from t)"),
            function("lies", reads, "begin update t set a = 1; return 1; end"),
            function("Says", "MODIFIES SQL DATA", "return 1"),
            function(
                "replaces",
                "NO SQL",
                "return replace('a', 'b', truncate(1, 1))",
            ),
            function("takes", reads, "return (select a from t for update)"),
            function("locks", reads, "return get_lock('a', 1)"),
            Routine {
                body: None,
                ..function("hidden", reads, "")
            },
        ],
        Vec::new(),
    );
    for (name, expected) in [
        ("reads", Volatility::Stable),
        ("READS", Volatility::Stable),
        ("lies", Volatility::Volatile),
        ("says", Volatility::Volatile),
        ("replaces", Volatility::Stable),
        ("takes", Volatility::Volatile),
        ("locks", Volatility::Volatile),
        ("hidden", Volatility::Unknown),
        ("nobody_knows", Volatility::Unknown),
    ] {
        assert_eq!(known.function(name.as_bytes()), expected, "{name}");
    }
}

#[test]
fn what_a_function_calls_counts_however_deep() {
    let calls = |name: &str, callee: &str| function(name, "NO SQL", &format!("return {callee}(1)"));
    let known = of(
        vec![
            calls("a", "b"),
            calls("b", "`C`"),
            function("c", "NO SQL", "begin delete from t; return 1; end"),
            calls("fine", "abs"),
            calls("round", "round_and_round"),
            calls("round_and_round", "round"),
        ],
        Vec::new(),
    );
    assert_eq!(known.function(b"a"), Volatility::Volatile);
    assert_eq!(known.function(b"fine"), Volatility::Stable);
    assert_eq!(known.function(b"round"), Volatility::Stable);
    let mut chain: Vec<_> = (0..40)
        .map(|at| calls(&format!("f{at}"), &format!("f{}", at + 1)))
        .collect();
    chain.push(function(
        "f40",
        "NO SQL",
        "begin delete from t; return 1; end",
    ));
    assert_eq!(of(chain, Vec::new()).function(b"f0"), Volatility::Volatile);
}

#[test]
fn a_view_is_the_worst_of_what_it_is_made_of() {
    let writes = function("w", "MODIFIES SQL DATA", "return 1");
    let known = of(
        vec![writes],
        vec![
            view("second", "select `a` from `d`.`first`"),
            view("first", "select `t`.`a` AS `a` from `d`.`t`"),
            view("writes", "select `d`.`w`() AS `w`"),
            view("over", "select * from `d`.`writes` join `d`.`first`"),
            view("unknown", "select * from `d`.`no_such_table`"),
            ViewDefinition {
                name: "hidden".to_owned(),
                definition: None,
            },
        ],
    );
    for (name, expected) in [
        ("t", Volatility::Stable),
        ("plain", Volatility::Stable),
        ("second", Volatility::Stable),
        ("writes", Volatility::Volatile),
        ("over", Volatility::Volatile),
        ("unknown", Volatility::Unknown),
        ("hidden", Volatility::Unknown),
        ("there_is_none", Volatility::Unknown),
        ("DUAL", Volatility::None),
    ] {
        assert_eq!(known.relation(name.as_bytes()), expected, "{name}");
    }
}

#[test]
fn what_routines_and_triggers_leave_in_the_session_is_known_by_their_bodies() {
    let mut listed = RoutineListing {
        routines: vec![
            function("sets", "NO SQL", "begin set @a = 1; return 1; end"),
            function("plain", "NO SQL", "return 1"),
        ],
        ..RoutineListing::default()
    };
    listed.triggers.push(Trigger {
        table: "Watched".to_owned(),
        body: "set @last = new.id".to_owned(),
        sql_mode: String::new(),
    });
    let known = Routines::new(1, &listed);
    assert!(
        known
            .call_pins(b"sets")
            .is_some_and(|pins| pins.has(Pin::Variables))
    );
    assert_eq!(known.call_pins(b"plain"), Some(Pins::NONE));
    assert_eq!(known.call_pins(b"nobody_knows"), None);
    assert!(known.triggers(b"watched").has(Pin::Variables));
    assert!(known.triggers(b"other").is_empty());
}

#[test]
fn what_binds_is_found_through_calls_views_and_triggers() {
    let no_sql = "NO SQL";
    let listed = RoutineListing {
        mariadb: true,
        tables: vec!["t".to_owned(), "u".to_owned()],
        views: vec![
            view("outer_view", "select * from inner_view"),
            view("inner_view", "select nests() from t"),
            view("plain_view", "select upper(a) from t"),
            view("over_through", "select * from through"),
            view("through", "select a from U"),
        ],
        routines: vec![
            function("nests", no_sql, "return calls()"),
            function("calls", no_sql, "return sets() + 1"),
            function("sets", no_sql, "begin set @a = 1; return 1; end"),
            function(
                "writes",
                no_sql,
                "begin insert into u values (1); return 1; end",
            ),
            function("asks", no_sql, "return hidden()"),
            function(
                "reads",
                no_sql,
                "return (select count(*) from `Outer_View`)",
            ),
            function("plain", no_sql, "return upper('a')"),
            Routine {
                body: None,
                ..function("hidden", no_sql, "")
            },
        ],
        triggers: vec![Trigger {
            table: "U".to_owned(),
            body: "set new.a = calls()".to_owned(),
            sql_mode: String::new(),
        }],
        ..RoutineListing::default()
    };
    let known = Routines::new(1, &listed);
    let variables = |pins: Pins| pins.has(Pin::Variables);
    for name in ["nests", "calls", "sets", "writes", "reads"] {
        assert!(
            known.call_pins(name.as_bytes()).is_some_and(variables),
            "{name}"
        );
    }
    assert_eq!(known.call_pins(b"plain"), Some(Pins::NONE));
    assert_eq!(known.call_pins(b"asks"), None);
    assert!(variables(known.triggers(b"u")) && known.triggers(b"t").is_empty());
    assert!(variables(known.views(b"outer_view")) && variables(known.views(b"INNER_VIEW")));
    assert!(known.views(b"plain_view").is_empty() && known.views(b"t").is_empty());
    assert!(known.triggers(b"plain_view").is_empty() && known.views(b"through").is_empty());
    assert!(variables(known.triggers(b"Through")) && variables(known.triggers(b"over_through")));
}
