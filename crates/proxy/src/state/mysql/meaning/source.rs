//! The text of a statement that may pin, for people.

use evenkeel_wire::sql::Dialect;

use super::{Does, Meaning};
use crate::state::PinSource;

impl Meaning {
    /// Takes the text along, to be shown if it pins.
    pub(crate) fn name_source(&mut self, text: &[u8], dialect: Option<Dialect>) {
        let mut effects = self.effects.iter();
        if self.runs_routines || effects.any(|effect| effect.does.may_pin()) {
            self.source = Some(PinSource::of(text, dialect, None));
        }
    }
}

impl Does {
    /// Whether it may pin its session beyond the transaction.
    fn may_pin(&self) -> bool {
        match self {
            Does::Pin(_)
            | Does::PinOnSuccess(_)
            | Does::SetUser { .. }
            | Does::SetTimestamp(_)
            | Does::SetSwitch(..)
            | Does::Told(_)
            | Does::Collation
            | Does::Make(..)
            | Does::Unknown(_)
            | Does::Renames
            | Does::Prepare(..)
            | Does::Execute(_)
            | Does::SetsSeveral
            | Does::SetsWithin => true,
            Does::Release(_)
            | Does::Defaults(_)
            | Does::Track
            | Does::NextTransaction(_)
            | Does::Begin
            | Does::End
            | Does::Savepoint
            | Does::Unmake(..)
            | Does::InsertId
            | Does::InsertIdUnknown
            | Does::FoundRows
            | Does::Restores => false,
        }
    }
}
