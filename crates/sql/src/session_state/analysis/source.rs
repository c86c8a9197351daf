//! The text of a statement that may pin, for people.

use crate::Dialect;

use super::{EffectKind, TextAnalysis};
use crate::session_state::PinSource;

impl TextAnalysis {
    /// Takes the text along, to be shown if it pins.
    pub fn name_source(&mut self, text: &[u8], dialect: Option<Dialect>) {
        let mut effects = self.effects.iter();
        if effects.any(|effect| effect.kind.may_pin()) {
            self.source = Some(PinSource::of(text, dialect, self.object.as_deref()));
        }
    }
}

impl EffectKind {
    /// Whether it may pin its session beyond the transaction.
    fn may_pin(&self) -> bool {
        match self {
            EffectKind::Pin(_)
            | EffectKind::PinOnSuccess(_)
            | EffectKind::Set { .. }
            | EffectKind::Prepare(_)
            | EffectKind::Execute(_) => true,
            EffectKind::Release(_)
            | EffectKind::Reset(_)
            | EffectKind::ResetAll
            | EffectKind::SetTransaction(_)
            | EffectKind::Commit
            | EffectKind::Rollback
            | EffectKind::Savepoint(_)
            | EffectKind::ReleaseSavepoint(_)
            | EffectKind::RollbackTo(_)
            | EffectKind::Deallocate(_)
            | EffectKind::DeallocateAll
            | EffectKind::SetUnknown(_)
            | EffectKind::Discard(_) => false,
        }
    }
}
