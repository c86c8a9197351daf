//! Tests of code that runs without being named, and of objects that a text defines.

use super::check;
use crate::session_state::analysis::{
    CatalogLookup, Pin, Pins, TextAnalysis, Volatility, analyze_with_doubts,
};

const SETTINGS: &str = "PinOnSuccess(Settings)";

/// Catalog in which an operator acquires a lock and an event trigger changes a setting.
struct Unnamed;

impl CatalogLookup for Unnamed {
    fn function(&self, _: &[u8]) -> Volatility {
        Volatility::Stable
    }

    fn relation(&self, _: &[u8]) -> Volatility {
        Volatility::Stable
    }

    fn implicit_pins(&self) -> Option<Pins> {
        Some(Pins::of(&[Pin::NamedLock]))
    }

    fn event_pins(&self) -> Option<Pins> {
        Some(Pins::of(&[Pin::Settings]))
    }
}

fn bound(text: &str, doubts_functions: bool) -> Pins {
    use crate::session_state::analysis::EffectKind::{Pin, PinOnSuccess};
    let analysis: TextAnalysis =
        analyze_with_doubts(text.as_bytes(), false, Some(&Unnamed), doubts_functions);
    let mut pins = Pins::NONE;
    for effect in &analysis.effects {
        if let Pin(pin) | PinOnSuccess(pin) = effect.kind {
            pins.add(pin);
        }
    }
    pins
}

#[test]
fn whatever_evaluates_anything_is_bound_by_operators_and_what_defines_by_event_triggers() {
    let lock = Pins::of(&[Pin::NamedLock]);
    let both = Pins::of(&[Pin::NamedLock, Pin::Settings]);
    for (text, expect) in [
        ("SELECT a === b FROM t", lock),
        ("VALUES (1)", lock),
        ("SELECT '1'::checked", lock),
        ("INSERT INTO t VALUES (1)", lock),
        ("EXPLAIN SELECT 1 === 2", lock),
        ("FETCH c", lock),
        ("EXECUTE p", lock),
        ("DO 'BEGIN NULL; END'", lock),
        ("SELECT 1", Pins::NONE),
        ("SELECT 'a', 2", Pins::NONE),
        ("BEGIN", Pins::NONE),
        ("COMMIT", Pins::NONE),
        ("SET a.b = 1", Pins::NONE),
        ("SHOW search_path", Pins::NONE),
        ("CREATE TABLE x (a int)", both),
        ("DROP TABLE x", both),
        ("SELECT 1 AS a INTO x", both),
        ("REFRESH MATERIALIZED VIEW x", both),
        ("EXPLAIN ANALYZE CREATE TABLE x AS SELECT 1", both),
        (
            "DO 'BEGIN CREATE TABLE x (a int); END'",
            both.and(Pins::of(&[Pin::TemporaryTable])),
        ),
    ] {
        assert_eq!(bound(text, false), expect, "{text}");
    }
    assert!(bound("SELECT 1 + 1", true).has(Pin::Listen));
}

#[test]
fn who_defines_what_will_leave_something_behind_is_bound() {
    check(&[
        (
            "CREATE OPERATOR === (leftarg = int, function = audit)",
            &[SETTINGS],
        ),
        (
            "CREATE EVENT TRIGGER x ON sql_drop EXECUTE FUNCTION public.audit()",
            &[SETTINGS],
        ),
        ("ALTER TABLE t ALTER a SET DEFAULT audit()", &[SETTINGS]),
        (
            "ALTER TABLE t ADD CHECK (set_config('a', 'b', false) > '')",
            &[
                "PinOnSuccess(UnlistedSettings)",
                SETTINGS,
                "PinOnSuccess(Role)",
            ],
        ),
        (
            "ALTER TABLE t ADD CHECK (set_config('a', 'b', true) > '')",
            &[],
        ),
        (
            "ALTER TABLE audited ALTER a TYPE bigint",
            &["PinOnSuccess(NamedLock)"],
        ),
        ("CREATE INDEX ON t (lower(a))", &[]),
        ("ALTER TABLE t ADD a int DEFAULT nextval('s')", &[]),
        (
            "CREATE FUNCTION audit_too() RETURNS int RETURN audit()",
            &[],
        ),
        ("DROP FUNCTION audit", &[]),
    ]);
}
