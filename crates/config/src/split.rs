//! Reads `[service.split]`: the statements that go to replicas.

use crate::plan::SplitPlan;
use crate::problem::Problems;
use crate::reader::Table;
use crate::setting::Settings;

/// Keys that have an effect only if reads are routed to replicas.
const READS_KEYS: [&str; 5] = [
    "primary_reads",
    "consistency",
    "wait_ms",
    "stale_ms",
    "galera_wait",
];

/// Reads the table `[service.split]`.
pub(crate) fn read(table: &Table<'_>, problems: &mut Problems) -> SplitPlan {
    let split = SplitPlan::of(table, problems);
    if !split.reads {
        idle_keys(table, problems);
    }
    split
}

/// Reports the first key without an effect: one is enough, as all have the same reason.
fn idle_keys(table: &Table<'_>, problems: &mut Problems) {
    let given = |key: &&str| table.value(key).is_some();
    if let Some(key) = READS_KEYS.into_iter().find(given) {
        let message =
            format!("`{key}` has no effect: with `reads = false` everything goes to the primary");
        let help = "set `reads = true`, or remove it";
        problems.warning(&table.key_span(key), "W_NO_EFFECT", message, help);
    }
}

/// Reports keys without an effect in session mode, in which each client keeps a connection to the
/// primary.
pub(crate) fn stays_at_primary(split: &SplitPlan, table: &Table<'_>, problems: &mut Problems) {
    if split.reads {
        let message = "`reads` has no effect: with `mode = \"session\"` everything goes to the \
                       primary";
        let help = "set `mode = \"transaction\"` in [service.pool], or remove it";
        problems.warning(&table.key_span("reads"), "W_NO_EFFECT", message, help);
    }
}
