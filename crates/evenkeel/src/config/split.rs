//! Reads `[service.split]` and `[service.failover]`.

use super::plan::{Consistency, FailoverPlan, SplitPlan};
use super::problem::Problems;
use super::reader::Table;

/// Keys that have an effect only if reads are routed to replicas.
const READS_KEYS: [&str; 5] = [
    "primary_reads",
    "consistency",
    "wait_ms",
    "stale_ms",
    "galera_wait",
];

/// Reads the table `[service.split]`.
pub(super) fn read(table: &Table<'_>, problems: &mut Problems) -> SplitPlan {
    let default = SplitPlan::default();
    let reads = table.flag("reads", problems).unwrap_or(default.reads);
    let primary_reads = table.flag("primary_reads", problems);
    let wait_ms = table.number("wait_ms", problems);
    let stale_ms = table.number("stale_ms", problems);
    let galera_wait = table.flag("galera_wait", problems);
    let consistency = match table.word("consistency", problems) {
        Some("global") => Consistency::Global,
        Some("eventual") => Consistency::Eventual,
        _ => default.consistency,
    };
    if !reads {
        idle_keys(table, problems);
    }
    SplitPlan {
        reads,
        primary_reads: primary_reads.unwrap_or(default.primary_reads),
        consistency,
        wait_ms: wait_ms.unwrap_or(default.wait_ms),
        stale_ms: stale_ms.unwrap_or(default.stale_ms),
        galera_wait: galera_wait.unwrap_or(default.galera_wait),
        lag_ms_max: default.lag_ms_max,
    }
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
pub(super) fn stays_at_primary(split: &SplitPlan, table: &Table<'_>, problems: &mut Problems) {
    if split.reads {
        let message = "`reads` has no effect: with `mode = \"session\"` everything goes to the \
                       primary";
        let help = "set `mode = \"transaction\"` in [service.pool], or remove it";
        problems.warning(&table.key_span("reads"), "W_NO_EFFECT", message, help);
    }
}

/// Reads the table `[service.failover]`.
pub(super) fn read_failover(table: &Table<'_>, problems: &mut Problems) -> FailoverPlan {
    let default = FailoverPlan::default();
    let wait_ms = table.number("wait_ms", problems);
    let queue_length = table.small_number("queue_length", problems);
    let resume_at_once = table.small_number("resume_at_once", problems);
    FailoverPlan {
        wait_ms: wait_ms.unwrap_or(default.wait_ms),
        queue_length: queue_length.unwrap_or(default.queue_length),
        resume_at_once: resume_at_once.unwrap_or(default.resume_at_once),
    }
}
