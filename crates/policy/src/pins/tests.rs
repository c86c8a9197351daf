//! Tests of pins: a table of events and the pins that they end.

use super::*;

const RELEASES: [UnpinEvent; 16] = [
    UnpinEvent::TransactionEnded,
    UnpinEvent::AutocommitOn,
    UnpinEvent::XaEnded,
    UnpinEvent::CursorsClosed,
    UnpinEvent::CloseAll,
    UnpinEvent::LongDataUsed,
    UnpinEvent::UnlistenAll,
    UnpinEvent::UnlockNamed,
    UnpinEvent::UnlockTables,
    UnpinEvent::UnlockInstance,
    UnpinEvent::DeallocateAll,
    UnpinEvent::DiscardTemp,
    UnpinEvent::DiscardSequences,
    UnpinEvent::ResetAll,
    UnpinEvent::DiscardAll,
    UnpinEvent::ResetConnection,
];

fn ended_by(release: UnpinEvent) -> Vec<Pin> {
    let ended = |pin: &Pin| {
        let mut pins = Pins::of(&[*pin]);
        pins.release(release);
        pins.is_empty()
    };
    Pin::ALL.into_iter().filter(ended).collect()
}

fn survivors(release: UnpinEvent) -> String {
    let mut pins = Pins::of(&Pin::ALL);
    pins.release(release);
    pins.to_string()
}

#[test]
fn every_pin_stands_for_itself_and_has_a_text_of_its_own() {
    let mut texts: Vec<&str> = Pin::ALL.iter().map(|pin| pin.as_str()).collect();
    texts.sort_unstable();
    texts.dedup();
    assert_eq!(texts.len(), Pin::ALL.len());
    for pin in Pin::ALL {
        let alone: Vec<Pin> = Pins::of(&[pin]).iter().collect();
        assert_eq!(alone, [pin]);
    }
    assert!(
        Pin::ALL.is_sorted(),
        "shown in the order of their declaration"
    );
}

#[test]
fn the_end_of_a_transaction_ends_its_cursors_but_neither_held_ones_nor_locks_of_the_session() {
    let ended = ended_by(UnpinEvent::TransactionEnded);
    assert_eq!(ended, [Pin::Transaction, Pin::Cursor]);
}

#[test]
fn reset_all_releases_neither_a_lock_nor_a_role() {
    assert_eq!(
        ended_by(UnpinEvent::ResetAll),
        [Pin::UnlistedSettings, Pin::NamedSettings, Pin::Settings]
    );
}

#[test]
fn what_survives_a_reset_is_known() {
    assert_eq!(
        survivors(UnpinEvent::DiscardAll),
        "replication connection, transaction, random() seed, procedural language state, state \
         that the server cannot list, unknown session state"
    );
    assert_eq!(
        survivors(UnpinEvent::ResetConnection),
        "replication connection, XA transaction, global read lock, backup lock, state that the \
         server cannot list, unknown session state"
    );
}

#[test]
fn only_the_end_of_the_connection_ends_replication_and_what_cannot_be_told() {
    for release in RELEASES {
        let ended = ended_by(release);
        let is_for_ever =
            |pin: &Pin| matches!(pin, Pin::Replication | Pin::Unlisted | Pin::Unknown);
        assert!(!ended.iter().any(is_for_ever), "{release:?}");
    }
}

#[test]
fn every_other_pin_is_ended_by_something() {
    let mut ended: Vec<Pin> = RELEASES.into_iter().flat_map(ended_by).collect();
    ended.sort_unstable();
    ended.dedup();
    assert_eq!(ended.len(), Pin::ALL.len() - 3);
}

#[test]
fn a_connection_is_kept_reset_or_closed_by_what_still_binds_it() {
    let farewell = |pins: &[Pin]| Pins::of(pins).release_action();
    assert_eq!(farewell(&[]), ReleaseAction::Keep);
    let cleanable = [Pin::Transaction, Pin::NamedLock, Pin::TemporaryTable];
    assert_eq!(farewell(&cleanable), ReleaseAction::Reset);
    for pin in CANNOT_BE_CLEANED.iter() {
        let pins = [&cleanable[..], &[pin]].concat();
        assert_eq!(farewell(&pins), ReleaseAction::Close, "{pin:?}");
    }
}

#[test]
fn what_is_not_ended_by_a_reset_is_never_reset_for_another_client() {
    for survivors in [SURVIVES_DISCARD, SURVIVES_RESET] {
        for pin in survivors.iter() {
            // A transaction was rolled back before, and a seed is harmless.
            let is_harmless = matches!(pin, Pin::Transaction | Pin::RandomSeed);
            let farewell = Pins::of(&[pin]).release_action();
            assert_eq!(farewell == ReleaseAction::Close, !is_harmless, "{pin:?}");
        }
    }
}

#[test]
fn the_first_reason_is_the_one_that_is_shown() {
    let pins = Pins::of(&[Pin::Listen, Pin::TemporaryTable]);
    assert_eq!(pins.first(), Some("temporary tables"));
    assert_eq!(pins.to_string(), "temporary tables, LISTEN");
    assert_eq!(Pins::NONE.first(), None);
}
