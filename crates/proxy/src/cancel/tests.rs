//! Tests of cancel keys: where they lead, and where made-up ones do not.

use evenkeel_wire::postgres::startup::CancelKey;

use super::{
    CancelClaim, CancelRoute, Keyring, NUMBER_BITS, NUMBER_MIN, Place, SessionOwner, forwarded,
    instance_of,
};

fn keyring(instance: u16, generation: u32) -> Keyring {
    Keyring::new(instance, generation).unwrap()
}

fn owner() -> SessionOwner {
    SessionOwner {
        service: 1,
        user: "app".into(),
    }
}

const PLACE: Place = Place { worker: 0, slot: 3 };

#[track_caller]
fn claim(keyring: &Keyring, key: CancelKey<'_>) -> CancelClaim {
    match keyring.read(key) {
        CancelRoute::Here(claim) => claim,
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
fn a_key_leads_back_to_its_session_while_that_is_there() {
    for (instance, generation) in [(1, 0), (1_023, 7), (512, u32::MAX)] {
        let keyring = keyring(instance, generation);
        for (worker, slot) in PLACES {
            for minor in [0, 2] {
                let place = Place { worker, slot };
                let key = keyring.key(place, owner()).unwrap();
                let shown = keyring.show(&key, minor);
                let claim = claim(&keyring, shown.key());
                assert!(claim.fits(&key));
                assert_eq!(claim.place(), place);
                drop(key);
                let is_over = matches!(keyring.read(shown.key()), CancelRoute::Nobody);
                assert!(is_over || minor == 2);
            }
        }
    }
}

#[test]
fn keys_have_the_lengths_of_the_protocol_and_process_ids_of_no_process() {
    for instance in [1, 2, 511, 512, 1_023] {
        for generation in 0..4 {
            let keyring = keyring(instance, generation);
            let ends = [0, 1, (1 << NUMBER_BITS) - NUMBER_MIN - 1];
            for process in ends.map(|number| keyring.process(number)) {
                assert!(process.cast_signed() > 4_194_304, "{process}");
                assert_eq!(instance_of(process), instance);
            }
            let key = keyring.key(PLACE, owner()).unwrap();
            for (minor, length) in [(0, 4), (2, 32)] {
                let shown = keyring.show(&key, minor);
                assert_eq!(shown.key().secret.len(), length);
                assert!(shown.key().process.cast_signed() > 4_194_304);
            }
        }
    }
}

#[test]
fn thousands_of_logins_have_different_process_ids_also_at_peers_and_in_other_processes() {
    let keyrings = [(1, 0), (1, 1), (1, 2), (2, 0), (1_023, 0)];
    let keyrings = keyrings.map(|(instance, generation)| keyring(instance, generation));
    let mut seen = std::collections::HashSet::new();
    for _ in 0..20_000 {
        for keyring in &keyrings {
            // The session disconnects immediately: the next one has its location, but not its
            // number.
            let key = keyring.key(PLACE, owner()).unwrap();
            assert!(seen.insert(keyring.show(&key, 0).key().process));
        }
    }
}

#[test]
fn a_later_session_in_the_same_place_is_not_meant() {
    let keyring = keyring(1, 0);
    let place = Place { worker: 1, slot: 5 };
    let (before, now) = (
        keyring.key(place, owner()).unwrap(),
        keyring.key(place, owner()).unwrap(),
    );
    for minor in [0, 2] {
        let shown = keyring.show(&before, minor);
        assert!(!claim(&keyring, shown.key()).fits(&now));
    }
}

/// Returns the key with one bit changed, for each of its bits.
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
    let own = keyring.key(place, owner()).unwrap();
    for minor in [0, 2] {
        let shown = keyring.show(&own, minor);
        for (process, bytes) in forgeries(shown.key()) {
            let key = CancelKey {
                process,
                secret: &bytes,
            };
            let CancelRoute::Here(claim) = keyring.read(key) else {
                continue;
            };
            assert_eq!(minor, 0, "what the MAC covers is not even looked up");
            let is_there = claim.place == place && claim.fits(&own);
            assert!(!is_there, "{process:x} {bytes:x?}");
        }
    }
}

#[test]
fn lengths_that_we_give_to_nobody_are_nobodys() {
    let keyring = keyring(1, 0);
    let key = keyring.key(PLACE, owner()).unwrap();
    let process = keyring.show(&key, 0).key().process;
    for length in (0..=256).filter(|length| ![4, 32].contains(length)) {
        let secret = vec![7; length];
        let read = keyring.read(CancelKey {
            process,
            secret: &secret,
        });
        assert!(matches!(read, CancelRoute::Nobody), "{length}");
    }
    for process in [0, 1, 1_234, (1 << 22) - 1, 1 << 22, u32::MAX] {
        let of_server = CancelKey {
            process,
            secret: &[0; 4],
        };
        let read = keyring.read(of_server);
        assert!(
            matches!(read, CancelRoute::Nobody),
            "a server's own key: {process}"
        );
    }
}

#[test]
fn a_peers_key_is_passed_on_once() {
    let (ours, peers) = (keyring(1, 0), keyring(2, 0));
    for minor in [0, 2] {
        let own = peers.key(PLACE, owner()).unwrap();
        let shown = peers.show(&own, minor);
        let key = shown.key();
        assert!(matches!(ours.read(key), CancelRoute::Peer(2)));
        let marked = forwarded(key.secret);
        let marked = CancelKey {
            secret: &marked,
            ..key
        };
        assert!(claim(&peers, marked).fits(&own));
        assert!(matches!(ours.read(marked), CancelRoute::Nobody));
    }
}

#[test]
fn the_key_of_a_process_that_was_taken_over_from_is_told_from_ours() {
    let (old, new) = (keyring(1, 4), keyring(1, 5));
    for minor in [0, 2] {
        let own = old.key(PLACE, owner()).unwrap();
        let shown = old.show(&own, minor);
        assert!(matches!(new.read(shown.key()), CancelRoute::OtherProcess));
        assert!(matches!(old.read(shown.key()), CancelRoute::Here(_)));
    }
    // An earlier process with the same number has crashed: the number is in use again, but not its
    // keys.
    let again = keyring(1, 4);
    let own = old.key(PLACE, owner()).unwrap();
    let shown = old.show(&own, 2);
    assert!(matches!(again.read(shown.key()), CancelRoute::Nobody));
}

#[test]
fn secrets_do_not_repeat_and_are_not_shown() {
    let (one, other) = (keyring(1, 0), keyring(1, 0));
    let mut seen = std::collections::HashSet::new();
    for _ in 0..50 {
        assert!(seen.insert(one.secret().0) && seen.insert(other.secret().0));
    }
    let key = one.key(PLACE, owner()).unwrap();
    let shown = one.show(&key, 0);
    let words = format!("{:?}", one.read(shown.key()));
    assert!(!words.contains(&key.secret.0.to_string()), "{words}");
}

#[test]
fn a_process_id_leads_to_its_session_for_the_same_user_of_the_same_service() {
    let keyring = keyring(3, 1);
    let key = keyring.key(PLACE, owner()).unwrap();
    let process = keyring.process_of(&key);
    assert_eq!(keyring.show(&key, 0).key().process, process);
    assert!(keyring.session_of(process, &owner()).unwrap().fits(&key));
    for (service, user) in [(1, "other"), (2, "app")] {
        let user = user.into();
        let other = SessionOwner { service, user };
        assert!(keyring.session_of(process, &other).is_none());
    }
    // Of another process, of another instance, and of a server.
    for other in [process ^ 1 << 10, process ^ 1, 4_711] {
        assert!(keyring.session_of(other, &owner()).is_none(), "{other}");
    }
    drop(key);
    assert!(keyring.session_of(process, &owner()).is_none());
}
