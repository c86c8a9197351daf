//! What a session must see.

use super::position::Position;
use super::sample::Sample;

/// What a session must see, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CausalityToken {
    epoch: u64,
    /// When the last answer to a write came.
    wrote_us: u64,
    wrote: LastWrite,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum LastWrite {
    /// Nothing: any server will do.
    #[default]
    Nothing,
    /// Something; where that is in the log is not known.
    Somewhere,
    /// Something, which is all before this.
    At(Position),
}

/// What a server must have for the session to read there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequiredPosition<'a> {
    /// Nothing in particular.
    Nothing,
    /// All before this.
    Position(&'a Position),
    /// All that the primary has now; why that is not known nearer.
    Everything(&'static str),
}

impl CausalityToken {
    /// A session that has written nothing.
    #[must_use]
    pub fn new() -> CausalityToken {
        CausalityToken::default()
    }

    /// That of a session whose last write was at that time.
    pub(super) fn written(until_us: u64, epoch: u64) -> CausalityToken {
        CausalityToken {
            epoch,
            wrote_us: until_us,
            wrote: LastWrite::Somewhere,
        }
    }

    /// The session wrote, or may have: to be called when the answer has come and before it is sent
    /// on. `epoch` is the one of the connection that it wrote on.
    pub fn wrote(&mut self, now_us: u64, epoch: u64) {
        // The answer of a connection of an earlier epoch: what counts is what the current one kept.
        let epoch = epoch.max(self.epoch);
        *self = CausalityToken::written(now_us, epoch);
    }

    /// Writes are noted since then only: before that the session may have written.
    pub fn assume_writes_before(&mut self, noted_since_us: u64, epoch: u64) {
        if self.wrote_us < noted_since_us {
            self.wrote(noted_since_us, epoch);
        }
    }

    /// As [`Token::wrote`], and the server told the position.
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

    /// Takes a newer sample of the primary's position into account. To be called before a read; a
    /// sample that says nothing new is ignored.
    pub fn settle(&mut self, sample: &Sample) {
        // A session may have got its connection to a primary before it heard that its time begins.
        let is_later = sample.asked_us > self.wrote_us;
        let is_news = match self.wrote {
            LastWrite::Nothing => false,
            // A later primary: whatever of the session's writes it has, it had by then. The rest is
            // lost, and nobody must wait for it.
            _ if sample.epoch != self.epoch => sample.epoch > self.epoch,
            LastWrite::Somewhere => true,
            LastWrite::At(_) => false,
        };
        if is_news && is_later {
            self.epoch = sample.epoch;
            self.wrote = LastWrite::At(sample.position.clone());
        }
    }

    /// What a server must have, while `epoch` is the current one.
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

    /// Whether the session wrote when another server was the primary, and what the present one has
    /// of that is not known.
    #[must_use]
    pub fn is_of_earlier(&self, epoch: u64) -> bool {
        self.epoch < epoch && !matches!(self.wrote, LastWrite::Nothing)
    }

    /// Forgets what every server has.
    pub fn forget(&mut self, everywhere: &Position) {
        if let LastWrite::At(position) = &self.wrote
            && position.is_reached_by(everywhere)
        {
            self.wrote = LastWrite::Nothing;
        }
    }
}
