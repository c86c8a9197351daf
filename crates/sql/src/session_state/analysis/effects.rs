//! Collects the effects of each kind of statement on the session.

use crate::facts::{Isolation, StatementTraits};
use crate::name::identifier;
use crate::postgres::{
    self, SetConfig, Setting, SettingName, SettingValue, StatementFacts, StatementKind,
    TransactionModes,
};
use crate::token::Span;
use evenkeel_policy::pins::Pin;
use evenkeel_policy::route::Volatility;

use super::super::effects;
use super::super::settings::values;
use super::{
    AnalysisContext, EffectKind, SequenceReads, SequenceUse, do_block, implicit_code, pins,
    routing, rules,
};

/// Collector of the effects of one statement.
pub(super) type EffectCollector<'a> = effects::EffectCollector<'a, EffectKind, OwnEffects>;

/// Notes of the collector besides the list of effects.
#[derive(Default)]
pub(super) struct OwnEffects {
    /// Use of sequences, which pins only if `lastval()` or `currval()` is read.
    pub(super) sequences: SequenceUse,
    /// True if called code may create temporary objects until the end of the transaction.
    pub(super) shadows_tables: bool,
    /// True if called code may change settings that affect parsing until the end of the
    /// transaction.
    pub(super) changes_parsing: bool,
    /// Setting, function, table or view that pins.
    pub(super) object: Option<Box<str>>,
}

impl EffectCollector<'_> {
    /// Records a call of `nextval()`.
    pub(super) fn draws_sequence(&mut self) {
        self.own.sequences.draws = true;
    }

    /// Records calls of `lastval()` or `currval()`.
    pub(super) fn reads_sequence(&mut self, reads: SequenceReads) {
        self.own.sequences.reads = self.own.sequences.reads.max(reads);
    }

    /// Returns the volatility of the statement. It is unknown if the statement may run code that
    /// was not read: the session may then be pinned, and a replica cannot serve all that follows.
    pub(super) fn volatility(&self, of_names: Volatility) -> Volatility {
        match self.pins().0.has(Pin::Code) {
            true => Volatility::Unknown,
            false => of_names,
        }
    }

    /// Returns whether temporary objects may now shadow others of the same names, even if only
    /// until the end of the transaction.
    pub(super) fn may_shadow_tables(&self, statement: &StatementFacts) -> bool {
        let (pins, on_success) = self.pins();
        let pins = pins.and(on_success);
        let is_run = statement.kind != (StatementKind::Explain { analyze: false });
        pins.has(Pin::TemporaryTable)
            || self.own.shadows_tables
            || is_run
                && statement
                    .traits
                    .any(StatementTraits::TEMPORARY.and(StatementTraits::OBSCURE))
    }

    /// Collects the effects of an object. If it is the first that pins, it is recorded as `object`.
    pub(super) fn of_object(&mut self, what: &str, name: &[u8], collect: impl FnOnce(&mut Self)) {
        let before = self.pins();
        collect(self);
        if self.own.object.is_none() && before != self.pins() {
            let name = String::from_utf8_lossy(name);
            self.own.object = Some(format!("{what} {name}").into());
        }
    }

    /// Records that a setting is set to a value that the text does not show. `None`: nor does it
    /// show the name, and no catalog lists the settings of users.
    pub(super) fn sets_unknown_value(&mut self, name: Option<&[u8]>) {
        match name {
            None => self.pin_on_success(Pin::UnlistedSettings),
            Some(b"seed") => self.pin(Pin::RandomSeed),
            Some(name) => {
                let set = EffectKind::SetUnknown(name.into());
                if self.of_statement().iter().all(|effect| effect.kind != set) {
                    self.push(set);
                }
            }
        }
    }
}

pub(super) fn collect(
    context: &AnalysisContext<'_>,
    statement: &StatementFacts,
    effects: &mut EffectCollector<'_>,
) {
    of_kind(context, statement, effects);
    if pins::may_be(context, statement) {
        pins::collect(context, statement, effects);
    }
    implicit_code::collect(context, statement, effects);
}

fn of_kind(
    context: &AnalysisContext<'_>,
    statement: &StatementFacts,
    effects: &mut EffectCollector<'_>,
) {
    let name = |span: Span| -> Box<[u8]> { identifier(span.of(context.text)).into() };
    match statement.kind {
        StatementKind::Select if statement.traits.any(StatementTraits::SETS_LITERALS) => {
            for call in postgres::set_configs(context.text, statement, context.backslashes) {
                set_config(context, call, effects);
            }
        }
        StatementKind::Commit { .. } | StatementKind::PrepareTransaction => {
            effects.push(EffectKind::Commit)
        }
        StatementKind::Rollback { .. } => effects.push(EffectKind::Rollback),
        StatementKind::Savepoint(span) => effects.push(EffectKind::Savepoint(name(span))),
        StatementKind::Release(span) => effects.push(EffectKind::ReleaseSavepoint(name(span))),
        StatementKind::RollbackTo(span) => effects.push(EffectKind::RollbackTo(name(span))),
        StatementKind::Set(setting) => set(context, setting, effects),
        StatementKind::SetTransaction { modes, session, .. } => {
            set_transaction(modes, session, effects)
        }
        StatementKind::Reset(setting) => reset(context, setting, effects),
        StatementKind::ResetAll => {
            effects.push(EffectKind::ResetAll);
        }
        StatementKind::Prepare(span) => effects.push(EffectKind::Prepare(name(span))),
        StatementKind::Execute(span) => effects.push(EffectKind::Execute(name(span))),
        StatementKind::Explain { .. } | StatementKind::Ddl => {
            let executed = postgres::executed(context.text, statement, context.backslashes);
            if let Some(span) = executed {
                effects.push(EffectKind::Execute(name(span)));
            }
        }
        StatementKind::Deallocate(Some(span)) => effects.push(EffectKind::Deallocate(name(span))),
        StatementKind::Deallocate(None) => {
            effects.push(EffectKind::DeallocateAll);
        }
        StatementKind::Discard(what) => effects.push(EffectKind::Discard(what)),
        StatementKind::Do => do_block::collect(context, statement, effects),
        // The server rejects a text that ends inside a string.
        StatementKind::Unknown if statement.traits.any(StatementTraits::BROKEN) => return,
        _ => {}
    }
    effects.add(rules::of(statement.kind).leaves);
}

fn set(context: &AnalysisContext<'_>, setting: Setting, effects: &mut EffectCollector<'_>) {
    let Some(name) = setting_name(context, setting.name) else {
        if !setting.local {
            pin_untracked(None, effects);
        }
        return;
    };
    if of_transaction(&name, effects, || value_word(context, setting.value)) {
        return;
    }
    match setting.value {
        _ if &*name == b"seed" => effects.pin(Pin::RandomSeed),
        _ if setting.local => {}
        SettingValue::Default => effects.push(EffectKind::Reset(name)),
        SettingValue::Unknown => pin_untracked(Some(&name), effects),
        SettingValue::Literals(span) => {
            let written = span.of(context.text);
            let values = postgres::set_values(written, context.backslashes);
            match values.map(|values| values::flattened(&name, &values)) {
                Some(value) => effects.push(EffectKind::Set { name, value }),
                None => pin_untracked(Some(&name), effects),
            }
        }
    }
}

/// Pins for an untrackable change of a setting that outlives its transaction. `None`: the name of
/// the setting is unknown, too.
fn pin_untracked(name: Option<&[u8]>, effects: &mut EffectCollector<'_>) {
    let collect = |effects: &mut EffectCollector<'_>| {
        effects.pin_on_success(values::pin_of_unknown(name));
        if name.is_none_or(values::is_role) {
            effects.pin_on_success(Pin::Role);
        }
        effects.sets_unknown_value(name);
    };
    match name {
        Some(name) => effects.of_object("setting", name, collect),
        None => collect(effects),
    }
}

fn reset(context: &AnalysisContext<'_>, setting: SettingName, effects: &mut EffectCollector<'_>) {
    match setting_name(context, setting) {
        Some(name) => effects.push(EffectKind::Reset(name)),
        None => pin_untracked(None, effects),
    }
}

fn set_config(context: &AnalysisContext<'_>, call: SetConfig, effects: &mut EffectCollector<'_>) {
    let text = |span: Span| postgres::string_value(span.of(context.text), context.backslashes);
    let name = text(call.name).and_then(|name| values::name(&name));
    let is_null = call.value.of(context.text).eq_ignore_ascii_case(b"null");
    let value = text(call.value);
    let Some(name) = name else {
        if !call.local {
            pin_untracked(None, effects);
        }
        return;
    };
    if of_transaction(&name, effects, || value.as_deref().map(<[u8]>::to_vec)) || call.local {
        return;
    }
    match value {
        _ if is_null => effects.push(EffectKind::Reset(name)),
        _ if &*name == b"seed" => effects.pin(Pin::RandomSeed),
        Some(value) => effects.push(EffectKind::Set {
            name,
            value: value.into(),
        }),
        None => pin_untracked(Some(&name), effects),
    }
}

/// Handles settings that each transaction resets: they are not tracked for the session. Returns
/// whether `name` is one.
fn of_transaction(
    name: &[u8],
    effects: &mut EffectCollector<'_>,
    value: impl Fn() -> Option<Vec<u8>>,
) -> bool {
    let mut modes = TransactionModes::default();
    match name {
        b"transaction_read_only" => modes.read_only = value().as_deref().and_then(values::boolean),
        b"transaction_isolation" => {
            let serializable = |value: Vec<u8>| value.eq_ignore_ascii_case(b"serializable");
            modes.isolation = value().map(|value| match serializable(value) {
                true => Isolation::Serializable,
                false => Isolation::ReadCommitted,
            });
        }
        b"transaction_deferrable" => {}
        _ => return false,
    }
    effects.push(EffectKind::SetTransaction(routing::modes(modes)));
    true
}

fn value_word(context: &AnalysisContext<'_>, value: SettingValue) -> Option<Vec<u8>> {
    let SettingValue::Literals(span) = value else {
        return None;
    };
    let values = postgres::set_values(span.of(context.text), context.backslashes)?;
    values.first().map(|value| value.to_vec())
}

/// Handles SET TRANSACTION; SET SESSION CHARACTERISTICS sets the defaults of later transactions.
fn set_transaction(modes: TransactionModes, session: bool, effects: &mut EffectCollector<'_>) {
    if !session {
        return effects.push(EffectKind::SetTransaction(routing::modes(modes)));
    }
    let on = |on: bool| -> &'static [u8] { if on { b"on" } else { b"off" } };
    let isolation = modes.isolation.map(|isolation| -> &'static [u8] {
        match isolation {
            Isolation::ReadUncommitted => b"read uncommitted",
            Isolation::ReadCommitted => b"read committed",
            Isolation::RepeatableRead => b"repeatable read",
            Isolation::Serializable => b"serializable",
        }
    });
    let settings: [(&[u8], Option<&[u8]>); 3] = [
        (b"default_transaction_read_only", modes.read_only.map(on)),
        (b"default_transaction_isolation", isolation),
        (b"default_transaction_deferrable", modes.deferrable.map(on)),
    ];
    for (name, value) in settings {
        if let Some(value) = value {
            effects.push(EffectKind::Set {
                name: name.into(),
                value: value.into(),
            });
        }
    }
}

pub(super) fn setting_name(context: &AnalysisContext<'_>, name: SettingName) -> Option<Box<[u8]>> {
    match name {
        SettingName::Known(name) => Some(name.as_bytes().into()),
        SettingName::Written(span) => values::written_name(span.of(context.text)),
    }
}
