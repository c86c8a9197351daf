//! The failures in a row: who saw them, and whether they are close enough together.

use std::collections::VecDeque;

use super::Settings;

/// Who saw a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Witness {
    Probe,
    Client,
}

/// The latest failures since the last success, `fall` of them at most, oldest first.
#[derive(Debug, Clone, Default)]
pub(super) struct Row {
    failures: VecDeque<(u64, Witness)>,
}

impl Row {
    pub(super) fn add(&mut self, now_ms: u64, witness: Witness, settings: &Settings) {
        self.expire(now_ms, settings);
        self.failures.push_back((now_ms, witness));
        while self.failures.len() > settings.fall() as usize {
            self.failures.pop_front();
        }
    }

    /// Clients' failures grow old; a probe's do not, the probe after it decides about them.
    pub(super) fn expire(&mut self, now_ms: u64, settings: &Settings) {
        let fresh = |at_ms: u64| now_ms.saturating_sub(at_ms) <= settings.window_ms();
        self.failures
            .retain(|&(at_ms, witness)| witness == Witness::Probe || fresh(at_ms));
    }

    pub(super) fn forget_clients(&mut self) {
        self.failures
            .retain(|&(_, witness)| witness == Witness::Probe);
    }

    pub(super) fn clear(&mut self) {
        self.failures.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.failures.is_empty()
    }

    pub(super) fn is_full(&self, settings: &Settings) -> bool {
        self.failures.len() >= settings.fall() as usize
    }

    /// For people: "2 probes and 1 connection failed: connection refused".
    pub(super) fn reason(&self, last: &str) -> String {
        let count = |of| self.failures.iter().filter(|&&(_, by)| by == of).count();
        let probes = counted(count(Witness::Probe), "probe", "probes");
        let clients = counted(
            count(Witness::Client),
            "client connection",
            "client connections",
        );
        let both: Vec<String> = [probes, clients].into_iter().flatten().collect();
        format!("{} failed: {last}", both.join(" and "))
    }
}

fn counted(count: usize, one: &str, many: &str) -> Option<String> {
    match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        _ => Some(format!("{count} {many}")),
    }
}
