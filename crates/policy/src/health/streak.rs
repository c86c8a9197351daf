//! Counts consecutive failures by source, within a time window.

use std::collections::VecDeque;

use super::HealthSettings;

/// Observer of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FailureSource {
    Probe,
    Client,
    /// Client whose connection worked.
    Answer,
}

/// Latest failures since the last success, at most `fall`, oldest first.
#[derive(Debug, Clone, Default)]
pub(super) struct FailureStreak {
    failures: VecDeque<(u64, FailureSource)>,
}

impl FailureStreak {
    pub(super) fn add(&mut self, now_ms: u64, witness: FailureSource, settings: &HealthSettings) {
        self.expire(now_ms, settings);
        self.failures.push_back((now_ms, witness));
        while self.failures.len() > settings.fall() as usize {
            self.failures.pop_front();
        }
    }

    /// Removes clients' failures that are too old. A probe's failure does not expire; the next
    /// probe decides about it.
    pub(super) fn expire(&mut self, now_ms: u64, settings: &HealthSettings) {
        let fresh = |at_ms: u64| now_ms.saturating_sub(at_ms) <= settings.window_ms();
        self.failures
            .retain(|&(at_ms, witness)| witness == FailureSource::Probe || fresh(at_ms));
    }

    pub(super) fn forget_clients(&mut self) {
        self.failures
            .retain(|&(_, witness)| witness == FailureSource::Probe);
    }

    /// Removes all failures except bad answers: a passed probe does not show that the server's
    /// answers to clients are good.
    pub(super) fn keep_answers(&mut self) {
        self.failures
            .retain(|&(_, witness)| witness == FailureSource::Answer);
    }

    pub(super) fn clear(&mut self) {
        self.failures.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.failures.is_empty()
    }

    pub(super) fn is_full(&self, settings: &HealthSettings) -> bool {
        self.failures.len() >= settings.fall() as usize
    }

    /// Returns a readable reason: "2 probes and 1 connection failed: connection refused".
    pub(super) fn reason(&self, last: &str) -> String {
        let count = |of| self.failures.iter().filter(|&&(_, by)| by == of).count();
        let probes = counted(count(FailureSource::Probe), "probe", "probes");
        let clients = counted(
            count(FailureSource::Client),
            "client connection",
            "client connections",
        );
        let answers = counted(count(FailureSource::Answer), "answer", "answers");
        let all: Vec<String> = [probes, clients, answers].into_iter().flatten().collect();
        format!("{} failed: {last}", all.join(" and "))
    }
}

fn counted(count: usize, one: &str, many: &str) -> Option<String> {
    match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        _ => Some(format!("{count} {many}")),
    }
}
