//! Rules of MySQL's statements: one row for each kind.

use evenkeel_policy::pins::{Pin, UnpinEvent};
use evenkeel_policy::route::{StatementClass as Class, TransactionModes};

use crate::mysql::{StatementKind as Kind, VariableScope};
use crate::session_state::rules::{Leaves, Rule, Until, rule};

/// Returns the rule of a kind of statement.
#[rustfmt::skip]
pub(super) fn of(kind: Kind) -> Rule {
    use Leaves::{Always, Ends, Nothing, OnSuccess};
    use Until::{Closed, Event};
    match kind {
        Kind::Empty => rule(Class::Empty, Nothing),
        Kind::Select | Kind::Show | Kind::Explain { .. } => rule(Class::Read, Nothing),
        Kind::Write | Kind::LoadData { .. } => rule(Class::Write, Nothing),
        Kind::Ddl | Kind::Maintenance => rule(Class::Ddl, Nothing),
        Kind::Call | Kind::Do => rule(Class::Routine, Nothing),
        Kind::Kill { .. } | Kind::KillOther => rule(Class::Server, Nothing),

        Kind::Begin { read_only, .. } => {
            let modes = TransactionModes { read_only, isolation: None };
            rule(Class::Begin(modes), Nothing)
        }
        Kind::Commit(ending) | Kind::Rollback(ending) if ending.chain => {
            rule(Class::Begin(TransactionModes::default()), Nothing)
        }
        Kind::Commit(_)
        | Kind::Rollback(_)
        | Kind::Savepoint(_)
        | Kind::Release(_)
        | Kind::RollbackTo(_) => rule(Class::EndTransaction, Nothing),
        Kind::Xa => rule(Class::Unknown, Nothing),

        Kind::Set | Kind::Use(_) => rule(Class::Setting, Nothing),
        Kind::SetTransaction { scope: VariableScope::Session, .. } => rule(Class::Setting, Nothing),
        Kind::SetTransaction { scope: VariableScope::Global, .. } => rule(Class::Server, Nothing),
        // The statement pins to the connection on which the transaction will run.
        Kind::SetTransaction { scope: VariableScope::Implicit, .. } => {
            rule(Class::Session, Nothing)
        }
        // No other session may get the connection, and no reset undoes the role.
        Kind::SetRole => rule(Class::Session, OnSuccess(&[Pin::Role, Pin::Unknown], Closed)),

        Kind::LockTables => {
            rule(Class::Lock, OnSuccess(&[Pin::TableLock], Event(UnpinEvent::UnlockTables)))
        }
        // MySQL may hold the lock although it fails to close the tables.
        Kind::Flush { lock: true } => {
            rule(Class::Lock, Always(&[Pin::GlobalReadLock], Event(UnpinEvent::UnlockTables)))
        }
        Kind::UnlockTables => rule(Class::Session, Ends(UnpinEvent::UnlockTables)),
        Kind::Flush { lock: false } => rule(Class::Server, Nothing),
        Kind::LockInstance => rule(Class::Lock, Nothing),
        Kind::UnlockInstance
        | Kind::Handler
        | Kind::Prepare(_)
        | Kind::Deallocate(_)
        | Kind::GetDiagnostics => rule(Class::Session, Nothing),

        Kind::Execute(_) => rule(Class::Unknown, Nothing),
        Kind::Unknown => rule(Class::Unknown, Always(&[Pin::Unknown], Closed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session_state::rules::check;

    #[test]
    fn what_a_statement_leaves_ends_as_its_rule_says() {
        let flush = Kind::Flush { lock: true };
        for kind in [Kind::LockTables, flush, Kind::SetRole, Kind::Unknown] {
            let leaves = of(kind).leaves;
            assert!(
                !matches!(leaves, Leaves::Nothing | Leaves::Ends(_)),
                "{kind:?}"
            );
            check(of(kind));
        }
    }
}
