//! The text of a statement that may pin, for people.

use crate::Dialect;

use super::{EffectKind, TextAnalysis};
use crate::session_state::PinSource;

impl TextAnalysis {
    /// Takes the text along, to be shown if it pins.
    pub fn name_source(&mut self, text: &[u8], dialect: Option<Dialect>) {
        let mut effects = self.effects.iter();
        if self.runs_routines || effects.any(|effect| effect.kind.may_pin()) {
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
            | EffectKind::SetPinning(..)
            | EffectKind::SetUser { .. }
            | EffectKind::ComputeUser(_)
            | EffectKind::TakeLock(_)
            | EffectKind::SetTimestamp(_)
            | EffectKind::SetSwitch(..)
            | EffectKind::SetVariable(_)
            | EffectKind::SetCharset
            | EffectKind::Create(..)
            | EffectKind::CreateUnknown(_)
            | EffectKind::RenameTables
            | EffectKind::Prepare(..)
            | EffectKind::Execute(_)
            | EffectKind::SetSeveral
            | EffectKind::SetByRoutine => true,
            EffectKind::Release(_)
            | EffectKind::GiveLock(_)
            | EffectKind::SetDefault(_)
            | EffectKind::SetTracker
            | EffectKind::NextTransaction(_)
            | EffectKind::Begin
            | EffectKind::End
            | EffectKind::Savepoint
            | EffectKind::Drop(..)
            | EffectKind::InsertId
            | EffectKind::InsertIdUnknown
            | EffectKind::FoundRows
            | EffectKind::RestoreVariables => false,
        }
    }
}
