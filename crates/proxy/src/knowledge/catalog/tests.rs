//! Tables of what follows from what a server tells.

use super::*;

const VOLATILE_USER: u32 = 20_000;
const STABLE_USER: u32 = 20_001;

fn function(oid: u32, name: &str, declared: Volatility) -> Function {
    Function {
        oid,
        name: name.to_owned(),
        declared,
        parts: Vec::new(),
    }
}

fn relation(oid: u32, name: &str, kind: RelationKind) -> Relation {
    Relation {
        oid,
        name: name.to_owned(),
        kind,
        functions: Vec::new(),
        relations: Vec::new(),
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
    // Told before what they stand on, and in a circle, as policies may be.
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
