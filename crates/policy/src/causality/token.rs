//! Tracks the writes that a session must see.

use super::position::Position;
use super::sample::Sample;

/// Writes that a session must see, as far as they are known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CausalityToken {
    epoch: u64,
    /// Time when the last reply to a write arrived.
    wrote_us: u64,
    wrote: LastWrite,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum LastWrite {
    /// No write: any server is suitable.
    #[default]
    Nothing,
    /// A write at an unknown position.
    Somewhere,
    /// Writes that all precede this position.
    At(Position),
}

/// Position that a server must have reached for the session to read there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequiredPosition<'a> {
    /// No particular position.
    Nothing,
    /// All transactions before this position.
    Position(&'a Position),
    /// All transactions that the primary has now, with the reason for which the position is
    /// unknown.
    Everything(&'static str),
}

impl CausalityToken {
    /// Creates the token of a session that has written nothing.
    #[must_use]
    pub fn new() -> CausalityToken {
        CausalityToken::default()
    }

    /// Creates the token of a session whose last write was at `until_us`.
    pub(super) fn written(until_us: u64, epoch: u64) -> CausalityToken {
        CausalityToken {
            epoch,
            wrote_us: until_us,
            wrote: LastWrite::Somewhere,
        }
    }

    /// Records that the session wrote, or may have. Must be called after the reply arrived and
    /// before it is forwarded. `epoch` is that of the connection that the session wrote on.
    pub fn wrote(&mut self, now_us: u64, epoch: u64) {
        // The reply may be from a connection of an earlier epoch: only what the current primary
        // kept counts.
        let epoch = epoch.max(self.epoch);
        *self = CausalityToken::written(now_us, epoch);
    }

    /// Assumes a write at the time when recording of writes began: the session may have written
    /// before.
    pub fn assume_writes_before(&mut self, writes_recorded_since_us: u64, epoch: u64) {
        if self.wrote_us < writes_recorded_since_us {
            self.wrote(writes_recorded_since_us, epoch);
        }
    }

    /// Records a write like [`CausalityToken::wrote`], with the position that the server reported.
    pub fn wrote_at(&mut self, position: &Position, now_us: u64, epoch: u64) {
        let is_known = match &mut self.wrote {
            LastWrite::Nothing => {
                self.wrote = LastWrite::At(position.clone());
                self.epoch = epoch;
                true
            }
            LastWrite::At(own) => self.epoch == epoch && own.merge(position),
            LastWrite::Somewhere => false,
        };
        self.wrote_us = self.wrote_us.max(now_us);
        if !is_known {
            self.wrote(now_us, epoch);
        }
    }

    /// Applies a newer sample of the primary's position. Must be called before a read; a sample
    /// without news is ignored.
    pub fn apply_sample(&mut self, sample: &Sample) {
        // A session may have connected to a primary before it was notified of the new epoch.
        let is_later = sample.queried_us > self.wrote_us;
        let is_news = match self.wrote {
            LastWrite::Nothing => false,
            // A later primary: any writes of the session that it has, it had at the sample. The
            // others are lost, and no read must wait for them.
            _ if sample.epoch != self.epoch => sample.epoch > self.epoch,
            LastWrite::Somewhere => true,
            LastWrite::At(_) => false,
        };
        if is_news && is_later {
            self.epoch = sample.epoch;
            self.wrote = LastWrite::At(sample.position.clone());
        }
    }

    /// Returns what a server must have reached while `epoch` is the current one.
    #[must_use]
    pub fn requires(&self, epoch: u64) -> RequiredPosition<'_> {
        match &self.wrote {
            LastWrite::Nothing => RequiredPosition::Nothing,
            _ if self.epoch != epoch => {
                RequiredPosition::Everything("the primary changed after this session's last write")
            }
            LastWrite::Somewhere => {
                RequiredPosition::Everything("position of this session's last write not known yet")
            }
            LastWrite::At(position) => RequiredPosition::Position(position),
        }
    }

    /// Returns whether the session wrote in an earlier epoch, and it is unknown which of its writes
    /// the present primary has.
    #[must_use]
    pub fn wrote_before_epoch(&self, epoch: u64) -> bool {
        self.epoch < epoch && !matches!(self.wrote, LastWrite::Nothing)
    }

    /// Drops the position if every server has reached it.
    pub fn drop_if_reached(&mut self, everywhere: &Position) {
        if let LastWrite::At(position) = &self.wrote
            && position.is_reached_by(everywhere)
        {
            self.wrote = LastWrite::Nothing;
        }
    }
}
