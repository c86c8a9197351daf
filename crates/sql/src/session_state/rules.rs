//! Rules of statements. Each dialect has a table of them, `analysis/rules.rs`: construct → class
//! for the router → what it leaves in the session → what ends that.

use evenkeel_policy::pins::{Pin, UnpinEvent};
use evenkeel_policy::route::StatementClass;

/// Rule of a kind of statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rule {
    /// Class for the router, unless more than the kind decides.
    pub(super) class: StatementClass,
    pub(super) leaves: Leaves,
}

/// State that a statement leaves or ends. State with a name or a value is an effect of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaves {
    /// No state.
    Nothing,
    /// State even if the statement fails.
    Always(&'static [Pin], Until),
    /// State if the statement succeeds.
    OnSuccess(&'static [Pin], Until),
    /// An event that ends state.
    Ends(UnpinEvent),
}

/// End of the state that a statement leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// A statement of the client.
    Event(UnpinEvent),
    /// The end of the connection.
    Closed,
}

/// Returns a rule.
pub(super) const fn rule(class: StatementClass, leaves: Leaves) -> Rule {
    Rule { class, leaves }
}

/// Checks that the state that a rule leaves ends as the rule says.
#[cfg(test)]
pub(super) fn check(rule: Rule) {
    use evenkeel_policy::pins::{Pins, ReleaseAction};
    let (Leaves::Always(pins, until) | Leaves::OnSuccess(pins, until)) = rule.leaves else {
        return;
    };
    let mut left = Pins::of(pins);
    match until {
        Until::Event(event) => {
            left.release(event);
            assert!(left.is_empty(), "{rule:?} leaves {left}");
        }
        Until::Closed => assert_eq!(left.release_action(), ReleaseAction::Close, "{rule:?}"),
    }
}
