//! Tests of cancel keys: where they lead, and where made-up ones do not.

use evenkeel_wire::postgres::startup::CancelKey;

use super::{Addressee, Claim, Keyring, Place, passed_on};

fn keyring(instance: u16, generation: u32) -> Keyring {
    Keyring::new(instance, generation).unwrap()
}

#[track_caller]
fn claim(keyring: &Keyring, key: CancelKey<'_>) -> Claim {
    match keyring.read(key) {
        Addressee::Here(claim) => claim,
        other => panic!("{other:?}"),
    }
}

const PLACES: [(u16, u32); 7] = [
    (0, 0),
    (1, 1),
    (63, 8_191),
    (64, 8_192),
    (130, 70_000),
    (1_023, 4_000_000),
    (7, 100),
];

#[test]
fn a_key_leads_back_to_its_session() {
    for (instance, generation) in [(1, 0), (1_023, 7), (512, u32::MAX)] {
        let keyring = keyring(instance, generation);
        for (worker, slot) in PLACES {
            for minor in [0, 2] {
                let place = Place { worker, slot };
                let secret = keyring.secret();
                let shown = keyring.show(place, secret, minor);
                let claim = claim(&keyring, shown.key());
                assert!(claim.fits(secret));
                assert!(claim.workers(1_024).any(|one| one == usize::from(worker)));
                assert!(claim.slots(5_000_000).any(|one| one == slot as usize));
                assert!(claim.slots(slot as usize).all(|one| one < slot as usize));
            }
        }
    }
}

#[test]
fn few_sessions_are_compared_and_in_the_newer_protocol_one() {
    let keyring = keyring(1, 0);
    let place = Place {
        worker: 3,
        slot: 9_000,
    };
    let short = claim(&keyring, keyring.show(place, keyring.secret(), 0).key());
    assert_eq!(short.workers(8).collect::<Vec<_>>(), [3]);
    assert_eq!(
        short.slots(20_000).collect::<Vec<_>>(),
        [808, 9_000, 17_192]
    );
    let long = claim(&keyring, keyring.show(place, keyring.secret(), 2).key());
    assert_eq!(long.workers(1_024).collect::<Vec<_>>(), [3]);
    assert_eq!(long.slots(20_000).collect::<Vec<_>>(), [9_000]);
    assert_eq!(
        long.slots(9_000).count(),
        0,
        "a worker with fewer slots has none"
    );
}

#[test]
fn keys_have_the_lengths_of_the_protocol_and_positive_numbers() {
    for instance in [1, 2, 511, 512, 1_023] {
        let keyring = keyring(instance, 3);
        for (worker, slot) in PLACES {
            let lengths = [(0, 4), (2, 32)];
            for (minor, length) in lengths {
                let shown = keyring.show(Place { worker, slot }, keyring.secret(), minor);
                assert!(shown.key().process.cast_signed() > 0);
                assert_eq!(shown.key().secret.len(), length);
            }
        }
    }
}

#[test]
fn a_later_session_in_the_same_place_is_not_meant() {
    let keyring = keyring(1, 0);
    let place = Place { worker: 1, slot: 5 };
    let (before, now) = (keyring.secret(), keyring.secret());
    for minor in [0, 2] {
        let shown = keyring.show(place, before, minor);
        assert!(!claim(&keyring, shown.key()).fits(now));
    }
}

/// The key with one bit changed, for each bit of it.
fn forgeries(key: CancelKey<'_>) -> impl Iterator<Item = (u32, Vec<u8>)> {
    let bits = 32 + key.secret.len() * 8;
    (0..bits).map(move |bit| {
        let mut secret = key.secret.to_vec();
        match bit.checked_sub(32) {
            None => (key.process ^ 1 << bit, secret),
            Some(bit) => {
                secret[bit / 8] ^= 1 << (bit % 8);
                (key.process, secret)
            }
        }
    })
}

#[test]
fn a_key_with_any_bit_changed_cancels_nothing_of_its_session() {
    let keyring = keyring(5, 1);
    let place = Place {
        worker: 2,
        slot: 77,
    };
    let secret = keyring.secret();
    for minor in [0, 2] {
        let shown = keyring.show(place, secret, minor);
        for (process, bytes) in forgeries(shown.key()) {
            let key = CancelKey {
                process,
                secret: &bytes,
            };
            let Addressee::Here(claim) = keyring.read(key) else {
                continue;
            };
            assert_eq!(minor, 0, "what the MAC covers is not even looked up");
            let is_there = claim.place == place && claim.fits(secret);
            assert!(!is_there, "{process:x} {bytes:x?}");
        }
    }
}

#[test]
fn lengths_that_we_give_to_nobody_are_nobodys() {
    let keyring = keyring(1, 0);
    let process = keyring.process(Place { worker: 0, slot: 0 });
    for length in (0..=256).filter(|length| ![4, 32].contains(length)) {
        let secret = vec![7; length];
        let read = keyring.read(CancelKey {
            process,
            secret: &secret,
        });
        assert!(matches!(read, Addressee::Nobody), "{length}");
    }
    let zero = CancelKey {
        process: 1234,
        secret: &[0; 4],
    };
    assert!(
        matches!(keyring.read(zero), Addressee::Nobody),
        "a server's own key"
    );
}

#[test]
fn a_peers_key_is_passed_on_once() {
    let (ours, peers) = (keyring(1, 0), keyring(2, 0));
    for minor in [0, 2] {
        let secret = peers.secret();
        let shown = peers.show(Place { worker: 0, slot: 3 }, secret, minor);
        let key = shown.key();
        assert!(matches!(ours.read(key), Addressee::Peer(2)));
        let marked = passed_on(key.secret);
        let marked = CancelKey {
            secret: &marked,
            ..key
        };
        assert!(claim(&peers, marked).fits(secret));
        assert!(matches!(ours.read(marked), Addressee::Nobody));
    }
}

#[test]
fn the_key_of_a_process_that_was_taken_over_from_is_told_from_ours() {
    let (old, new) = (keyring(1, 4), keyring(1, 5));
    for minor in [0, 2] {
        let shown = old.show(Place { worker: 0, slot: 3 }, old.secret(), minor);
        assert!(matches!(new.read(shown.key()), Addressee::OtherProcess));
        assert!(matches!(old.read(shown.key()), Addressee::Here(_)));
    }
    // One that has crashed left the same number behind, but not its keys.
    let again = keyring(1, 4);
    let shown = old.show(Place { worker: 0, slot: 3 }, old.secret(), 2);
    assert!(matches!(again.read(shown.key()), Addressee::Nobody));
}

#[test]
fn secrets_do_not_repeat_and_are_not_shown() {
    let (one, other) = (keyring(1, 0), keyring(1, 0));
    let mut seen = std::collections::HashSet::new();
    for _ in 0..50 {
        assert!(seen.insert(one.secret().0) && seen.insert(other.secret().0));
    }
    let secret = one.secret();
    let shown = one.show(Place { worker: 0, slot: 0 }, secret, 0);
    let words = format!("{:?}", one.read(shown.key()));
    assert!(!words.contains(&secret.0.to_string()), "{words}");
}
