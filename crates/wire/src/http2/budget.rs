//! Work that a peer may cause without use: one budget for all kinds of floods (RFC 9113 §10.5).
//!
//! Each kind of work has a bucket: it holds up to a burst, and fills at a rate. Useful work costs
//! nothing: DATA and HEADERS that we send refill the buckets of the frames that acknowledge them.

use super::error::ConnectionError;

/// Amount of work of one kind that a peer may cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Immediately.
    pub burst: u32,
    /// Each second.
    pub per_second: u32,
}

/// Limits of the work that a peer may cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BudgetLimits {
    /// Streams that were reset, by either side: rapid reset (CVE-2023-44487), and resets that the
    /// peer provokes by faults (CVE-2025-8671). Two complete answers refill one: deadlines of
    /// gRPC's clients reset a part of many requests.
    pub resets: Rate,
    /// Streams over the limit of concurrent ones that were refused before the client acknowledged
    /// our SETTINGS: it may not know the limit (RFC 9113 §6.5.3).
    pub early: Rate,
    /// PING, PRIORITY, SETTINGS, RST_STREAM of closed streams, and frames of unknown types. A sent
    /// HEADERS or DATA frame refills one: gRPC's clients send a PING for DATA that they receive.
    pub control: Rate,
    /// DATA without data that does not end its stream (CVE-2019-9518).
    pub empty_data: Rate,
    /// WINDOW_UPDATE. A sent DATA frame refills four, of the stream and of the connection, unless
    /// the window made it short (CVE-2019-9511): the clients of gRPC's C core send them before they
    /// read the length of a message, and before the message. A request refills two, which such a
    /// client sends before the response.
    pub window_updates: Rate,
    /// CONTINUATION frames of one field block (CVE-2024-27316).
    pub continuations_max: u8,
    /// Time from the first to the last byte of a field block, in milliseconds.
    pub block_ms: u64,
    /// Time during which a peer may take no data that wait for it, in milliseconds
    /// (CVE-2019-9517).
    pub shut_window_ms: u64,
}

impl Default for BudgetLimits {
    fn default() -> Self {
        let rate = Rate {
            burst: 100,
            per_second: 10,
        };
        BudgetLimits {
            resets: rate,
            early: Rate {
                burst: 1_000,
                ..rate
            },
            control: rate,
            empty_data: rate,
            window_updates: rate,
            continuations_max: 8,
            block_ms: 10_000,
            shut_window_ms: 30_000,
        }
    }
}

/// Kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    Reset,
    Early,
    Control,
    EmptyData,
    WindowUpdate,
}

/// Work that a peer may still cause.
#[derive(Debug)]
pub(super) struct Budget {
    resets: Bucket,
    early: Bucket,
    control: Bucket,
    empty_data: Bucket,
    window_updates: Bucket,
}

impl Budget {
    pub(super) fn new(limits: &BudgetLimits) -> Self {
        Budget {
            resets: Bucket::full(limits.resets),
            early: Bucket::full(limits.early),
            control: Bucket::full(limits.control),
            empty_data: Bucket::full(limits.empty_data),
            window_updates: Bucket::full(limits.window_updates),
        }
    }

    /// Counts work. An error ends the connection.
    pub(super) fn charge(
        &mut self,
        work: Work,
        limits: &BudgetLimits,
        now_ms: u64,
    ) -> Result<(), ConnectionError> {
        let (bucket, rate, why) = match work {
            Work::Reset => (&mut self.resets, limits.resets, "too many reset streams"),
            Work::Early => (
                &mut self.early,
                limits.early,
                "too many streams before the acknowledgement of SETTINGS",
            ),
            Work::Control => (
                &mut self.control,
                limits.control,
                "too many PING, SETTINGS, PRIORITY or unknown frames",
            ),
            Work::EmptyData => (
                &mut self.empty_data,
                limits.empty_data,
                "too many empty DATA frames",
            ),
            Work::WindowUpdate => (
                &mut self.window_updates,
                limits.window_updates,
                "too many WINDOW_UPDATE frames",
            ),
        };
        let paid = bucket.take(rate, now_ms);
        paid.then_some(()).ok_or(ConnectionError::too_much(why))
    }

    /// Counts an answer that was sent to its end.
    #[inline]
    pub(super) fn answered(&mut self, limits: &BudgetLimits) {
        self.resets.refill(PIECE / 2, limits.resets.burst);
    }

    /// Counts a HEADERS frame that was sent.
    #[inline]
    pub(super) fn sent_head(&mut self, limits: &BudgetLimits) {
        self.control.refill(PIECE, limits.control.burst);
    }

    /// Counts a DATA frame that was sent, and not made short by the peer's window.
    #[inline]
    pub(super) fn sent_data(&mut self, limits: &BudgetLimits) {
        self.control.refill(PIECE, limits.control.burst);
        // The peer may acknowledge a large answer after it has received all of it.
        self.refill_window_updates(4);
    }

    /// Counts a request that is served.
    #[inline]
    pub(super) fn began(&mut self) {
        self.refill_window_updates(2);
    }

    fn refill_window_updates(&mut self, pieces: u64) {
        let thousandths = PIECE.saturating_mul(pieces);
        self.window_updates.refill(thousandths, u32::MAX);
    }
}

/// Thousandths of one piece of work.
const PIECE: u64 = 1_000;

/// Bucket of one kind of work.
#[derive(Debug)]
struct Bucket {
    /// Thousandths of a piece.
    level: u64,
    filled_ms: u64,
}

impl Bucket {
    fn full(rate: Rate) -> Self {
        Bucket {
            level: u64::from(rate.burst).saturating_mul(PIECE),
            filled_ms: 0,
        }
    }

    /// Takes one piece. Returns false if there is none.
    fn take(&mut self, rate: Rate, now_ms: u64) -> bool {
        let elapsed_ms = now_ms.saturating_sub(self.filled_ms);
        let full = u64::from(rate.burst).saturating_mul(PIECE);
        if self.level < full {
            let gained = elapsed_ms.saturating_mul(u64::from(rate.per_second));
            self.level = self.level.saturating_add(gained).min(full);
        }
        self.filled_ms = self.filled_ms.max(now_ms);
        let rest = self.level.checked_sub(PIECE);
        self.level = rest.unwrap_or(self.level);
        rest.is_some()
    }

    /// Adds thousandths of a piece, up to a number of pieces.
    #[inline]
    fn refill(&mut self, thousandths: u64, up_to: u32) {
        let up_to = u64::from(up_to).saturating_mul(PIECE);
        if self.level < up_to {
            self.level = self.level.saturating_add(thousandths).min(up_to);
        }
    }
}
