//! Effects of statements on their session: what the analyses of both dialects have in common.

use evenkeel_policy::pins::{Pin, Pins, UnpinEvent};
use evenkeel_policy::route::{self, RoutedStatement, RoutingTraits, StatementClass, Volatility};
use smallvec::{SmallVec, smallvec};

use super::rules::Leaves;
use crate::hint::HintComment;

/// Maximum effects of a tracked text, since each execution carries them.
pub(super) const EFFECTS_MAX: usize = 1_000;

/// Effects of a text, in the order of its statements; mostly none.
pub(super) type Effects<K> = SmallVec<[Effect<K>; 1]>;

/// Effect of a statement on its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect<K> {
    /// Index of the statement in the text, from 0.
    pub statement: u32,
    /// Kind of the effect.
    pub kind: K,
}

/// Kinds of effects of a dialect.
pub(super) trait PinEffect {
    /// Returns the effect that pins even if the statement fails.
    fn pin(pin: Pin) -> Self;

    /// Returns the effect that pins if the statement succeeds.
    fn pin_on_success(pin: Pin) -> Self;

    /// Returns the effect of an event that ends pins.
    fn release(event: UnpinEvent) -> Self;
}

/// Routing hint from a comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoutingHint {
    /// The primary.
    Primary,
    /// A replica.
    Replica,
    /// The server of that name.
    Server(Box<[u8]>),
}

impl RoutingHint {
    /// Resolves the hint for the router; `position` returns the index of the named server.
    #[must_use]
    pub fn resolve(&self, position: impl FnOnce(&[u8]) -> Option<usize>) -> route::ResolvedHint {
        match self {
            RoutingHint::Primary => route::ResolvedHint::Primary,
            RoutingHint::Replica => route::ResolvedHint::Replica,
            RoutingHint::Server(name) => route::ResolvedHint::Server(position(name)),
        }
    }

    /// Returns the hint of a comment.
    pub(super) fn of(hint: HintComment<'_>) -> Self {
        match hint {
            HintComment::Primary => RoutingHint::Primary,
            HintComment::Replica => RoutingHint::Replica,
            HintComment::Server(name) => RoutingHint::Server(name.into()),
        }
    }
}

/// Collector of the effects of one statement, with the dialect's own state `O`.
pub(super) struct EffectCollector<'a, K, O> {
    pub(super) list: &'a mut Effects<K>,
    statement: u32,
    /// Number of effects that were in the list before this statement.
    before: usize,
    /// Pins of this statement that are already in the list.
    pins: Pins,
    pins_on_success: Pins,
    pub(super) own: O,
}

impl<'a, K: PinEffect, O: Default> EffectCollector<'a, K, O> {
    /// Creates a collector for the statement of that index.
    pub(super) fn of(statement: usize, list: &'a mut Effects<K>) -> Self {
        Self {
            statement: u32::try_from(statement).unwrap_or(u32::MAX),
            before: list.len(),
            list,
            pins: Pins::NONE,
            pins_on_success: Pins::NONE,
            own: O::default(),
        }
    }

    /// Returns the effects of this statement.
    pub(super) fn of_statement(&self) -> &[Effect<K>] {
        self.list.get(self.before..).unwrap_or_default()
    }

    /// Returns the pins of this statement, and those that it causes if it succeeds.
    pub(super) fn pins(&self) -> (Pins, Pins) {
        (self.pins, self.pins_on_success)
    }

    /// Adds what a rule says.
    pub(super) fn add(&mut self, leaves: Leaves) {
        match leaves {
            Leaves::Nothing => {}
            Leaves::Always(pins, _) => pins.iter().for_each(|pin| self.pin(*pin)),
            Leaves::OnSuccess(pins, _) => pins.iter().for_each(|pin| self.pin_on_success(*pin)),
            Leaves::Ends(event) => self.push(K::release(event)),
        }
    }

    pub(super) fn push(&mut self, kind: K) {
        self.list.push(Effect {
            statement: self.statement,
            kind,
        });
    }

    /// Adds a pin, unless it is already in the list.
    pub(super) fn pin(&mut self, pin: Pin) {
        if !self.pins.has(pin) {
            self.pins.add(pin);
            self.push(K::pin(pin));
        }
    }

    /// Adds a pin that a failure of the statement undoes, unless the statement pins anyway.
    pub(super) fn pin_on_success(&mut self, pin: Pin) {
        if !self.pins.and(self.pins_on_success).has(pin) {
            self.pins_on_success.add(pin);
            self.push(K::pin_on_success(pin));
        }
    }
}

/// Returns the effects of one statement of a text.
pub(super) fn effects_of<K>(effects: &[Effect<K>], statement: usize) -> &[Effect<K>] {
    let statement = u32::try_from(statement).unwrap_or(u32::MAX);
    let begin = effects.partition_point(|effect| effect.statement < statement);
    let end = effects.partition_point(|effect| effect.statement <= statement);
    effects.get(begin..end).unwrap_or_default()
}

/// Returns the effects of a text that cannot be read.
pub(super) fn unknown_effects<K: PinEffect>() -> Effects<K> {
    smallvec![Effect {
        statement: 0,
        kind: K::pin(Pin::Unknown),
    }]
}

/// Returns the statements of a text that cannot be read.
pub(super) fn unknown_statements() -> SmallVec<[RoutedStatement; 1]> {
    smallvec![RoutedStatement {
        kind: StatementClass::Unknown,
        traits: RoutingTraits::OBSCURE,
        calls: Volatility::Unknown,
    }]
}

/// Returns whether a text is one read or write.
pub(super) fn is_one_plain(statements: &[RoutedStatement]) -> bool {
    let is_plain =
        |one: &RoutedStatement| matches!(one.kind, StatementClass::Read | StatementClass::Write);
    statements.len() == 1 && statements.iter().all(is_plain)
}

/// Returns whether a statement of that class may write, whatever its words are.
pub(super) fn is_writing_class(class: StatementClass) -> bool {
    matches!(
        class,
        StatementClass::Write
            | StatementClass::Ddl
            | StatementClass::Routine
            | StatementClass::Unknown
    )
}

/// Returns whether the words or the calls of a statement may write.
pub(super) fn has_writing_words(statement: &RoutedStatement) -> bool {
    const WRITING: RoutingTraits = RoutingTraits::WRITES
        .and(RoutingTraits::MAKES_TABLE)
        .and(RoutingTraits::SEQUENCE)
        .and(RoutingTraits::LARGE_OBJECT)
        .and(RoutingTraits::RUNS_TEXT)
        .and(RoutingTraits::OBSCURE);
    statement.traits.any(WRITING) || statement.calls >= Volatility::Volatile
}
