//! The text of a statement that may pin, for people.

use evenkeel_wire::sql::Dialect;

use super::{EffectKind, TextAnalysis};
use crate::session_state::PinSource;

impl TextAnalysis {
    /// Takes the text along, to be shown if it pins.
    pub(crate) fn name_source(&mut self, text: &[u8], dialect: Option<Dialect>) {
        let mut effects = self.effects.iter();
        if self.runs_routines || effects.any(|effect| effect.does.may_pin()) {
            self.source = Some(PinSource::of(text, dialect, None));
        }
    }
}

impl EffectKind {
    /// Whether it may pin its session beyond the transaction.
    fn may_pin(&self) -> bool {
        match self {
            EffectKind::Pin(_)
            | EffectKind::PinOnSuccess(_)
            | EffectKind::SetUser { .. }
            | EffectKind::SetTimestamp(_)
            | EffectKind::SetSwitch(..)
            | EffectKind::Told(_)
            | EffectKind::Collation
            | EffectKind::Make(..)
            | EffectKind::Unknown(_)
            | EffectKind::Renames
            | EffectKind::Prepare(..)
            | EffectKind::Execute(_)
            | EffectKind::SetsSeveral
            | EffectKind::SetsWithin => true,
            EffectKind::Release(_)
            | EffectKind::Defaults(_)
            | EffectKind::Track
            | EffectKind::NextTransaction(_)
            | EffectKind::Begin
            | EffectKind::End
            | EffectKind::Savepoint
            | EffectKind::Unmake(..)
            | EffectKind::InsertId
            | EffectKind::InsertIdUnknown
            | EffectKind::FoundRows
            | EffectKind::Restores => false,
        }
    }
}
