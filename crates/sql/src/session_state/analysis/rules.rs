//! Rules of PostgreSQL's statements: one row for each kind.

use evenkeel_policy::pins::{Pin, UnpinEvent};
use evenkeel_policy::route::StatementClass as Class;

use super::super::rules::{Leaves, Rule, Until, rule};
use super::routing::{modes, requires_primary};
use crate::postgres::{Discard, StatementKind as Kind};

/// Returns the rule of a kind of statement.
#[rustfmt::skip]
pub(super) fn of(kind: Kind) -> Rule {
    use Leaves::{Ends, Nothing, OnSuccess};
    use Until::{Closed, Event};
    match kind {
        Kind::Empty => rule(Class::Empty, Nothing),
        Kind::Select
        | Kind::Explain { .. }
        | Kind::CopyOut { to_client: true }
        | Kind::Declare { hold: false, .. } => rule(Class::Read, Nothing),
        Kind::Write | Kind::CopyIn { .. } | Kind::FinishPrepared => rule(Class::Write, Nothing),
        Kind::Ddl | Kind::Maintenance => rule(Class::Ddl, Nothing),
        Kind::Lock => rule(Class::Lock, Nothing),
        Kind::Call | Kind::Do => rule(Class::Routine, Nothing),
        Kind::Show(_) => rule(Class::Asks, Nothing),
        Kind::Notify | Kind::CopyOut { to_client: false } => rule(Class::Server, Nothing),

        Kind::Begin(given) => rule(Class::Begin(modes(given)), Nothing),
        Kind::Commit { .. }
        | Kind::Rollback { .. }
        | Kind::Savepoint(_)
        | Kind::Release(_)
        | Kind::RollbackTo(_)
        | Kind::PrepareTransaction
        | Kind::SetConstraints => rule(Class::EndTransaction, Nothing),
        Kind::SetTransaction { snapshot: true, .. } => rule(Class::Session, Nothing),
        Kind::SetTransaction { session: true, .. } => rule(Class::Setting, Nothing),
        Kind::SetTransaction { modes, .. } if requires_primary(modes) => {
            rule(Class::Session, Nothing)
        }
        Kind::SetTransaction { .. } => rule(Class::EndTransaction, Nothing),

        Kind::Set(_) | Kind::Reset(_) => rule(Class::Setting, Nothing),
        Kind::ResetAll => rule(Class::Setting, Ends(UnpinEvent::ResetAll)),
        Kind::Listen(_) => {
            rule(Class::Session, OnSuccess(&[Pin::Listen], Event(UnpinEvent::UnlistenAll)))
        }
        Kind::Unlisten(None) => rule(Class::Session, Ends(UnpinEvent::UnlistenAll)),
        Kind::Declare { hold: true, .. } => {
            rule(Class::Session, OnSuccess(&[Pin::HeldCursor], Event(UnpinEvent::CloseAll)))
        }
        Kind::CloseCursor(None) => rule(Class::Session, Ends(UnpinEvent::CloseAll)),
        Kind::Deallocate(None) => rule(Class::Session, Ends(UnpinEvent::DeallocateAll)),
        Kind::Discard(Discard::All) => rule(Class::Session, Ends(UnpinEvent::DiscardAll)),
        Kind::Discard(Discard::Temp) => rule(Class::Session, Ends(UnpinEvent::DiscardTemp)),
        Kind::Discard(Discard::Sequences) => {
            rule(Class::Session, Ends(UnpinEvent::DiscardSequences))
        }
        Kind::Unlisten(Some(_))
        | Kind::Fetch
        | Kind::CloseCursor(Some(_))
        | Kind::Prepare(_)
        | Kind::Deallocate(Some(_))
        | Kind::Discard(Discard::Plans)
        | Kind::Load => rule(Class::Session, Nothing),

        // The prepared statement is not tracked: it may be a write.
        Kind::Execute(_) => rule(Class::Unknown, Nothing),
        Kind::Unknown => rule(Class::Unknown, OnSuccess(&[Pin::Unknown], Closed)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::rules::check;
    use super::*;

    #[test]
    fn what_a_statement_leaves_ends_as_its_rule_says() {
        let hold = Kind::Declare {
            name: crate::token::Span::default(),
            hold: true,
        };
        for kind in [
            Kind::Listen(crate::token::Span::default()),
            hold,
            Kind::Unknown,
        ] {
            assert!(matches!(of(kind).leaves, Leaves::OnSuccess(..)), "{kind:?}");
            check(of(kind));
        }
    }
}
