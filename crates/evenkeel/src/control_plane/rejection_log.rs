//! Logs rejected clients: one line for each reason, not for each client.

use evenkeel_proxy::counters::ServiceCounters;

/// Shortest interval between two logs of one service.
const LOG_INTERVAL_MS: u64 = 10_000;

const REASONS: [&str; 8] = [
    "no server available",
    "all connection attempts failed, including retries",
    "queue full (queue.length)",
    "timed out in the queue (queue.wait_ms)",
    "service limit reached (max_connections)",
    "PROXY header invalid, missing, or from a peer not listed in accept_proxy_from",
    "no route for the server name of TLS, no such name, or no ClientHello within hello_timeout_ms",
    "too many floods of HTTP/2 frames from their addresses (http2_floods_per_minute)",
];

/// Rejections of one service that were logged already.
#[derive(Debug, Default)]
pub(super) struct RejectionLog {
    reported: [u64; REASONS.len()],
    next_ms: u64,
}

impl RejectionLog {
    /// Returns the lines to log now.
    pub(super) fn new_lines(&mut self, now_ms: u64, counters: &ServiceCounters) -> Vec<String> {
        let totals = [
            &counters.no_server,
            &counters.connect_failed,
            &counters.queue_full,
            &counters.queue_timeout,
            &counters.over_limit,
            &counters.proxy_header,
            &counters.unrouted,
            &counters.flooding,
        ];
        self.lines(now_ms, totals.map(|tally| tally.get()))
    }

    fn lines(&mut self, now_ms: u64, totals: [u64; REASONS.len()]) -> Vec<String> {
        if now_ms < self.next_ms || totals == self.reported {
            return Vec::new();
        }
        let known = std::mem::replace(&mut self.reported, totals);
        self.next_ms = now_ms + LOG_INTERVAL_MS;
        let pairs = totals.iter().zip(known).zip(REASONS);
        pairs
            .map(|((total, known), reason)| (total.saturating_sub(known), reason))
            .filter(|(new, _)| *new > 0)
            .map(|(new, reason)| format!("clients rejected: {new}: {reason}"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_refusal_is_told_at_once_and_the_rest_after_a_while() {
        let mut rejections = RejectionLog::default();
        assert!(rejections.lines(0, [0; 8]).is_empty());
        let first = rejections.lines(1_000, [0, 0, 1, 0, 0, 0, 0, 0]);
        assert_eq!(first, ["clients rejected: 1: queue full (queue.length)"]);
        assert!(rejections.lines(2_000, [0, 0, 9, 0, 0, 0, 0, 0]).is_empty());
        let later = rejections.lines(11_000, [2, 0, 9, 0, 0, 0, 0, 0]);
        assert_eq!(later.len(), 2);
        assert!(later[1].contains(": 8:"), "{later:?}");
        assert!(
            rejections
                .lines(21_000, [2, 0, 9, 0, 0, 0, 0, 0])
                .is_empty()
        );
    }
}
