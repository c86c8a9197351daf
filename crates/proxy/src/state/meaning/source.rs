//! The text of a statement that may pin, for people.

use evenkeel_wire::sql::Dialect;

use super::{Does, Meaning};
use crate::state::PinSource;

impl Meaning {
    /// Takes the text along, to be shown if it pins.
    pub(crate) fn name_source(&mut self, text: &[u8], dialect: Option<Dialect>) {
        let mut effects = self.effects.iter();
        if effects.any(|effect| effect.does.may_pin()) {
            self.source = Some(PinSource::of(text, dialect, self.object.as_deref()));
        }
    }
}

impl Does {
    /// Whether it may pin its session beyond the transaction.
    fn may_pin(&self) -> bool {
        match self {
            Does::Pin(_)
            | Does::PinOnSuccess(_)
            | Does::Set { .. }
            | Does::Prepare(_)
            | Does::Execute(_) => true,
            Does::Release(_)
            | Does::Reset(_)
            | Does::ResetAll
            | Does::SetTransaction(_)
            | Does::Commit
            | Does::Rollback
            | Does::Savepoint(_)
            | Does::ReleaseSavepoint(_)
            | Does::RollbackTo(_)
            | Does::Deallocate(_)
            | Does::DeallocateAll
            | Does::Discard(_) => false,
        }
    }
}
