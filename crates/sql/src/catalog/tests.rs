//! Tests conclusions from the catalog that a server reports.

use super::*;
use crate::session_state::analysis::Body;

const VOLATILE_USER: u32 = 20_000;
const STABLE_USER: u32 = 20_001;

fn function(oid: u32, name: &str, declared: Volatility) -> Function {
    Function {
        oid,
        name: name.to_owned(),
        declared,
        parts: Vec::new(),
        body: Body::default(),
        takes_row: false,
    }
}

fn relation(oid: u32, name: &str, kind: RelationKind) -> Relation {
    Relation {
        oid,
        name: name.to_owned(),
        kind,
        functions: Vec::new(),
        relations: Vec::new(),
        changes: Changes::default(),
    }
}

fn builder() -> Builder {
    let mut builder = Builder::default();
    builder.function(function(VOLATILE_USER, "pay", Volatility::Volatile));
    builder.function(function(STABLE_USER, "look", Volatility::Stable));
    builder
}

fn view_of(oid: u32, name: &str, relations: &[u32]) -> Relation {
    Relation {
        relations: relations.to_vec(),
        ..relation(oid, name, RelationKind::View)
    }
}

#[test]
fn the_worst_function_of_a_name_counts() {
    let mut builder = builder();
    builder.function(function(20_002, "look", Volatility::Immutable));
    assert_eq!(builder.build(1).function(b"look"), Volatility::Stable);
    builder.function(function(20_003, "look", Volatility::Volatile));
    assert_eq!(builder.build(1).function(b"look"), Volatility::Volatile);
    assert_eq!(builder.build(1).function(b"other"), Volatility::Unknown);
    assert_eq!(
        builder.build(1).function(b"current_timestamp"),
        Volatility::Stable
    );
}

#[test]
fn random_is_harmless_unless_it_is_a_users() {
    let mut builder = builder();
    builder.function(function(1598, "random", Volatility::Volatile));
    assert_eq!(builder.build(1).function(b"random"), Volatility::Stable);
    builder.function(function(20_002, "random", Volatility::Volatile));
    assert_eq!(builder.build(1).function(b"random"), Volatility::Volatile);
}

#[test]
fn an_aggregate_is_as_bad_as_its_parts() {
    let mut builder = builder();
    for (oid, name, part) in [(1, "a", VOLATILE_USER), (2, "b", STABLE_USER), (3, "c", 7)] {
        builder.function(Function {
            parts: vec![part],
            ..function(oid, name, Volatility::Immutable)
        });
    }
    let catalog = builder.build(1);
    assert_eq!(catalog.function(b"a"), Volatility::Volatile);
    assert_eq!(catalog.function(b"b"), Volatility::Stable);
    assert_eq!(catalog.function(b"c"), Volatility::Unknown);
}

#[test]
fn a_view_is_as_bad_as_what_is_below_it_however_deep() {
    let mut builder = builder();
    // Reported before the objects that they depend on, and in a circle, as policies may be.
    builder.relation(view_of(1, "top", &[2]));
    builder.relation(view_of(2, "middle", &[1, 3]));
    let bottom = relation(3, "bottom", RelationKind::View);
    let functions = vec![VOLATILE_USER];
    builder.relation(Relation {
        functions,
        ..bottom
    });
    builder.relation(view_of(4, "good", &[5]));
    builder.relation(relation(5, "plain", RelationKind::Table));
    builder.relation(view_of(6, "gone", &[99]));
    let catalog = builder.build(1);
    for name in ["top", "middle", "bottom"] {
        assert_eq!(catalog.relation(name.as_bytes()), Volatility::Volatile);
    }
    assert_eq!(catalog.relation(b"good"), Volatility::Stable);
    assert_eq!(catalog.relation(b"plain"), Volatility::Stable);
    assert_eq!(catalog.relation(b"gone"), Volatility::Unknown);
    assert_eq!(catalog.relation(b"nobody"), Volatility::Unknown);
}

#[test]
fn a_name_that_a_table_and_a_sequence_share_is_the_primarys() {
    let mut builder = builder();
    builder.relation(relation(1, "t", RelationKind::Table));
    assert_eq!(builder.build(1).relation(b"t"), Volatility::Stable);
    builder.relation(relation(2, "t", RelationKind::PrimaryOnly));
    assert_eq!(builder.build(1).relation(b"t"), Volatility::Volatile);
}

#[test]
fn what_users_operators_call_is_implied_and_what_the_servers_call_is_not() {
    let mut builder = builder();
    builder.function(function(100, "own", Volatility::Volatile));
    builder.implied([100, STABLE_USER]);
    assert_eq!(builder.build(1).implied(), Volatility::Stable);
    builder.implied([VOLATILE_USER]);
    assert_eq!(builder.build(1).implied(), Volatility::Volatile);
}

fn with_body(oid: u32, name: &str, code: &str) -> Function {
    Function {
        body: Body::read("plpgsql", code.as_bytes()),
        ..function(oid, name, Volatility::Stable)
    }
}

fn changed_with(table: Relation, functions: &[u32], relations: &[u32]) -> Relation {
    Relation {
        changes: Changes {
            functions: functions.to_vec(),
            relations: relations.to_vec(),
        },
        ..table
    }
}

const LOCKS: &str = "advisory or named locks";

#[test]
fn a_function_binds_by_what_it_calls_however_deep_and_is_no_read() {
    let mut builder = Builder::default();
    builder.function(with_body(20_000, "outer", "BEGIN PERFORM inner_1(); END"));
    builder.function(with_body(
        20_001,
        "inner_1",
        "BEGIN PERFORM inner_2(), outer(); END",
    ));
    builder.function(with_body(
        20_002,
        "inner_2",
        "BEGIN PERFORM pg_advisory_lock(1); END",
    ));
    builder.function(with_body(
        20_003,
        "harmless",
        "BEGIN PERFORM pg_advisory_unlock(1); END",
    ));
    builder.function(Function {
        parts: vec![20_002],
        ..function(20_004, "total", Volatility::Immutable)
    });
    builder.function(function(2_880, "pg_advisory_lock", Volatility::Volatile));
    let catalog = builder.build(1);
    let bound = |name: &str| {
        catalog
            .call_pins(name.as_bytes())
            .map(|pins| pins.to_string())
    };
    for name in ["outer", "inner_1", "inner_2", "total"] {
        assert_eq!(bound(name).as_deref(), Some(LOCKS), "{name}");
        assert_eq!(catalog.function(name.as_bytes()), Volatility::Volatile);
    }
    assert_eq!(bound("harmless").as_deref(), Some(""));
    assert_eq!(catalog.function(b"harmless"), Volatility::Stable);
    assert_eq!(
        bound("pg_advisory_lock").as_deref(),
        Some(""),
        "by its text"
    );
    assert_eq!(bound("nobody"), None);
}

#[test]
fn who_writes_is_bound_by_triggers_of_what_is_changed_along_and_who_reads_by_views() {
    let mut builder = Builder::default();
    builder.function(with_body(
        20_000,
        "log",
        "BEGIN INSERT INTO logged VALUES (1); END",
    ));
    builder.function(with_body(
        20_001,
        "lock",
        "BEGIN PERFORM pg_advisory_lock(1); END",
    ));
    builder.function(function(1_574, "nextval", Volatility::Volatile));
    let table = |oid, name| relation(oid, name, RelationKind::Table);
    builder.relation(changed_with(table(1, "logged"), &[20_001], &[]));
    builder.relation(changed_with(table(2, "watched"), &[20_000], &[]));
    builder.relation(changed_with(table(3, "parent"), &[], &[2]));
    builder.relation(Relation {
        relations: vec![2],
        ..table(4, "partitioned")
    });
    builder.relation(view_of(5, "updatable", &[4]));
    builder.relation(Relation {
        functions: vec![20_001],
        ..relation(6, "locking", RelationKind::View)
    });
    builder.relation(view_of(7, "over_locking", &[6]));
    builder.relation(changed_with(table(8, "drawn"), &[1_574], &[]));
    builder.relation(table(9, "plain"));
    let catalog = builder.build(1);
    for (name, writing, reading) in [
        ("logged", LOCKS, ""),
        ("watched", LOCKS, ""),
        ("parent", LOCKS, ""),
        ("partitioned", LOCKS, ""),
        ("updatable", LOCKS, ""),
        ("locking", LOCKS, LOCKS),
        ("over_locking", LOCKS, LOCKS),
        ("drawn", "sequence values", ""),
        ("plain", "", ""),
    ] {
        let name = name.as_bytes();
        let found = (catalog.triggers(name), catalog.views(name));
        let found = (found.0.to_string(), found.1.to_string());
        assert_eq!(found, (writing.to_owned(), reading.to_owned()), "{name:?}");
    }
}

#[test]
fn functions_of_a_row_are_called_by_its_fields_unless_they_only_read() {
    let mut builder = Builder::default();
    for (oid, name, takes_row, declared) in [
        (20_000, "pays", true, Volatility::Volatile),
        (20_001, "tells", true, Volatility::Stable),
        (20_002, "pays_two", false, Volatility::Volatile),
        (1_000, "of_server", true, Volatility::Volatile),
    ] {
        builder.function(Function {
            takes_row,
            ..function(oid, name, declared)
        });
    }
    assert!(!Builder::default().build(1).has_row_functions());
    builder.function(Function {
        takes_row: true,
        ..with_body(20_003, "locks", "BEGIN PERFORM pg_advisory_lock(1); END")
    });
    let catalog = builder.build(1);
    assert!(catalog.has_row_functions());
    for (name, expect) in [
        ("pays", true),
        ("tells", false),
        ("pays_two", false),
        ("of_server", false),
        ("locks", true),
    ] {
        assert_eq!(catalog.is_row_function(name.as_bytes()), expect, "{name}");
    }
}

#[test]
fn relations_run_what_users_have_made_by_whatever_they_stand_on() {
    let mut builder = Builder::default();
    let table = |oid, name| relation(oid, name, RelationKind::Table);
    builder.relation(changed_with(table(1, "watched"), &[20_000], &[]));
    builder.relation(changed_with(table(2, "parent"), &[], &[1]));
    builder.relation(view_of(3, "updatable", &[1]));
    builder.relation(Relation {
        functions: vec![20_000],
        ..relation(4, "calling", RelationKind::View)
    });
    builder.relation(view_of(5, "over_calling", &[4]));
    builder.relation(changed_with(table(6, "drawn"), &[1_574], &[]));
    let catalog = builder.build(1);
    for (name, writing, reading) in [
        ("watched", true, false),
        ("parent", true, false),
        ("updatable", true, false),
        ("calling", true, true),
        ("over_calling", true, true),
        ("drawn", false, false),
    ] {
        let name = name.as_bytes();
        let found = (
            catalog.runs_code(name, true),
            catalog.runs_code(name, false),
        );
        assert_eq!(found, (writing, reading), "{name:?}");
    }
}

#[test]
fn operators_and_event_triggers_bind_by_code_that_users_can_replace() {
    let mut builder = Builder::default();
    builder.function(with_body(
        20_000,
        "lock",
        "BEGIN PERFORM pg_advisory_lock(1); END",
    ));
    builder.function(with_body(20_001, "same", "BEGIN RETURN $1 = $2; END"));
    builder.function(with_body(20_002, "make", "BEGIN DROP TABLE made; END"));
    builder.function(function(20_003, "of_library", Volatility::Volatile));
    builder.implied([20_003]);
    let catalog = builder.build(1);
    assert_eq!(
        (catalog.implicit_pins(), catalog.event_pins()),
        (None, None)
    );
    builder.implied([20_001]);
    assert_eq!(builder.build(1).implicit_pins(), Some(Pins::NONE));
    assert_eq!(builder.build(1).call_pins(b"make"), Some(Pins::NONE));
    builder.implied([20_000]);
    builder.event(20_000);
    let catalog = builder.build(1);
    for found in [
        catalog.implicit_pins(),
        catalog.event_pins(),
        catalog.call_pins(b"make"),
    ] {
        assert_eq!(found.map(|pins| pins.to_string()).as_deref(), Some(LOCKS));
    }
    assert_eq!(catalog.call_pins(b"same"), Some(Pins::NONE));
}

#[test]
fn what_may_run_anything_may_call_what_an_added_language_keeps() {
    const KEPT: &str = "procedural language state";
    let mut builder = Builder::default();
    builder.function(with_body(20_000, "runs", "BEGIN EXECUTE $1; END"));
    builder.function(with_body(20_001, "reads", "BEGIN RETURN 1; END"));
    let keeps = |catalog: &Catalog, name: &[u8]| {
        let pins = catalog.call_pins(name).map(|pins| pins.to_string());
        pins.is_some_and(|pins| pins.contains(KEPT))
    };
    let catalog = builder.build(1);
    assert!(!catalog.has_languages() && !keeps(&catalog, b"runs"));
    let handler = "plperl_call_handler";
    builder.function(function(20_002, handler, Volatility::Volatile));
    let catalog = builder.build(1);
    assert!(catalog.has_languages() && keeps(&catalog, b"runs") && !keeps(&catalog, b"reads"));
}
