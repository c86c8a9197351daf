//! What binds a session to its connection, by what its statements call and make.

use evenkeel_policy::pins::{Pin, Release};
use evenkeel_wire::sql::facts::{Kind, Statement, Traits};
use evenkeel_wire::sql::postgres::{self, Tokens};
use evenkeel_wire::sql::token::{Kind as TokenKind, Word};

use super::effects::Effects;
use super::{Does, Reader};

/// Functions, by the beginnings of their names, that leave behind what only the end of the
/// connection takes away.
const FOR_EVER: [&[u8]; 7] = [
    b"dblink_connect",
    b"pg_backup_start",
    b"pg_start_backup",
    b"pg_copy_logical_replication_slot",
    b"pg_create_logical_replication_slot",
    b"pg_create_physical_replication_slot",
    b"pg_replication_origin_session_setup",
];

/// Traits that may bind.
const BINDING: Traits = Traits::TEMPORARY
    .and(Traits::ADVISORY_LOCK)
    .and(Traits::NEXT_VALUE)
    .and(Traits::SETS_UNKNOWN)
    .and(Traits::SEED);

/// Whether there is anything to look for.
pub(super) fn may_be(reader: &Reader<'_>, statement: &Statement) -> bool {
    let names = statement.functions.as_slice();
    if statement.traits == Traits::NONE && names.is_empty() {
        return false;
    }
    let traits = statement.traits;
    let analyzed = statement.kind == (Kind::Explain { analyze: true });
    traits.any(BINDING)
        || analyzed && traits.any(Traits::WRITES)
        || traits.any(Traits::OBSCURE)
        || names.iter().any(|name| {
            let written = name.name.of(reader.text);
            let written = written.strip_prefix(b"\"").unwrap_or(written);
            matches!(
                written.first(),
                Some(b'd' | b'D' | b'p' | b'P' | b's' | b'S')
            ) || reader.catalog.is_some()
        })
}

pub(super) fn collect(reader: &Reader<'_>, statement: &Statement, effects: &mut Effects<'_>) {
    let (text, backslashes) = (reader.text, reader.backslashes);
    let traits = statement.traits;
    let mut calls = true;
    match statement.kind {
        Kind::Explain { analyze: false } => return,
        Kind::Explain { analyze: true } if traits.any(Traits::WRITES) => {
            explained(reader, statement, effects)
        }
        Kind::Ddl => {
            let creation = postgres::creation(text, statement, backslashes);
            if traits.any(Traits::TEMPORARY) && !creation.drops_on_commit {
                effects.pin_on_success(Pin::TemporaryTable);
            }
            // What it only defines is not called.
            calls = creation.runs_query;
        }
        _ if traits.any(Traits::TEMPORARY) => effects.pin_on_success(Pin::TemporaryTable),
        _ => {}
    }
    if calls {
        called(reader, statement, effects);
    }
}

fn called(reader: &Reader<'_>, statement: &Statement, effects: &mut Effects<'_>) {
    let traits = statement.traits;
    if traits.any(Traits::NEXT_VALUE) {
        effects.pin(Pin::Sequence);
    }
    if traits.any(Traits::SEED) {
        effects.pin(Pin::Seed);
    }
    if traits.any(Traits::SETS_UNKNOWN) && !sets_locally(reader, statement) {
        effects.pin_on_success(Pin::Settings);
    }
    if traits.any(Traits::ADVISORY_LOCK) && statement.functions.is_cut() {
        effects.pin(Pin::NamedLock);
    }
    if traits.any(Traits::OBSCURE) {
        // A name written with escapes may be that of anything.
        effects.pin_on_success(Pin::Unknown);
    }
    let names = statement.functions.as_slice();
    let named = |name: &evenkeel_wire::sql::name::Name| name.name_in(reader.text);
    for name in names {
        function(reader, &named(name), effects);
    }
    // In which order a statement takes and gives back is not said.
    let takes = names.iter().any(|name| takes_lock(&named(name)));
    if statement.calls(reader.text, b"pg_advisory_unlock_all") && !takes {
        effects.push(Does::Release(Release::UnlockNamed));
    }
}

/// What a call of that name binds.
pub(super) fn function(reader: &Reader<'_>, name: &[u8], effects: &mut Effects<'_>) {
    if FOR_EVER.iter().any(|prefix| name.starts_with(prefix)) {
        effects.pin(Pin::Unknown);
    } else if takes_lock(name) {
        effects.pin(Pin::NamedLock);
    } else if name == b"set_limit" {
        // pg_trgm's: sets a setting.
        effects.pin_on_success(Pin::Settings);
    } else if let Some(catalog) = reader.catalog {
        for pin in catalog.binds(name).iter() {
            effects.pin(pin);
        }
    }
}

/// Whether it may take an advisory lock that outlives the transaction.
fn takes_lock(name: &[u8]) -> bool {
    let lock = name.starts_with(b"pg_advisory_lock");
    let attempt = name.starts_with(b"pg_try_advisory_lock");
    lock || attempt
}

/// Whether it sets nothing beyond its transaction; SET itself has been looked at before.
fn sets_locally(reader: &Reader<'_>, statement: &Statement) -> bool {
    if matches!(statement.kind, Kind::Set(_)) {
        return true;
    }
    let by_view = statement.names_table(reader.text, b"pg_settings");
    !by_view && postgres::sets_locally(reader.text, statement, reader.backslashes)
}

/// EXPLAIN ANALYZE of what makes something: CREATE TEMP TABLE … AS.
fn explained(reader: &Reader<'_>, statement: &Statement, effects: &mut Effects<'_>) {
    let mut tokens = Tokens::new(statement.span.of(reader.text), reader.backslashes);
    loop {
        let token = tokens.next_token();
        if token.kind == TokenKind::End {
            return;
        }
        if token.is(Word::of("temp")) || token.is(Word::of("temporary")) {
            effects.pin_on_success(Pin::TemporaryTable);
        }
    }
}
