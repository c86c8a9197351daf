//! Tests the common greeting of several servers.

use super::*;

fn face(version: &[u8], capabilities: Capabilities) -> ServerGreeting {
    let version = Version::read(version);
    ServerGreeting {
        plugin: match version.mariadb {
            true => password::NATIVE,
            false => password::CACHING_SHA2,
        },
        version: Arc::new(version),
        capabilities,
        collation: 45,
        status: Status::AUTOCOMMIT,
    }
}

const MARIADB: Capabilities = Capabilities(
    Capabilities::SPOKEN.0 & !Capabilities::LONG_PASSWORD.0 & !Capabilities::QUERY_ATTRIBUTES.0,
);

const MYSQL: Capabilities = Capabilities(Capabilities::SPOKEN.0 & 0xffff_ffff);

#[test]
fn versions_are_read_with_and_without_the_old_beginning() {
    let old = Version::read(b"5.5.5-10.11.6-MariaDB-0+deb12u1-log");
    assert_eq!((old.mariadb, old.numbers), (true, (10, 11, 6)));
    let new = Version::read(b"11.8.3-MariaDB");
    assert_eq!((new.mariadb, new.numbers), (true, (11, 8, 3)));
    let mysql = Version::read(b"9.4.0-commercial");
    assert_eq!((mysql.mariadb, mysql.numbers), (false, (9, 4, 0)));
    assert_eq!(Version::read(b"").numbers, (0, 0, 0));
}

#[test]
fn a_client_is_offered_what_all_servers_can_do() {
    let poor = MARIADB.without(Capabilities::BULK);
    let greetings = [
        face(b"11.4.2-MariaDB", MARIADB),
        face(b"5.5.5-10.11.6-MariaDB", poor),
    ];
    let least = least(greetings.iter()).unwrap();
    assert_eq!(least.version.numbers, (10, 11, 6));
    let offered = least.offered(false);
    assert!(!offered.has(Capabilities::BULK) && offered.has(Capabilities::DEPRECATE_EOF));
    assert!(
        !offered.has(Capabilities::LONG_PASSWORD),
        "or nobody reads MariaDB's bits"
    );
    assert!(offered.has(Capabilities::EXTENDED_METADATA));
    assert!(!offered.has(Capabilities::SSL));
    assert!(least.offered(true).has(Capabilities::SSL));
}

#[test]
fn what_binds_a_client_to_one_server_is_never_offered() {
    let greetings = [face(b"9.4.0", Capabilities(u64::MAX))];
    let offered = least(greetings.iter()).unwrap().offered(true);
    for never in [
        Capabilities::COMPRESS,
        Capabilities::ZSTD,
        Capabilities::CACHE_METADATA,
        Capabilities::PROGRESS,
        Capabilities::OPTIONAL_METADATA,
    ] {
        assert!(!offered.has(never), "{never:?}");
    }
}

#[test]
fn the_first_server_decides_what_is_no_matter_of_less_or_more() {
    let greetings = [face(b"8.4.3", MYSQL), face(b"9.4.0", MYSQL)];
    let both = least(greetings.iter()).unwrap();
    assert_eq!(both.plugin, password::CACHING_SHA2);
    assert_eq!(&*both.version.text, b"8.4.3");
    assert!(least([].iter()).is_none());
}

#[test]
fn nobody_waits_for_a_server_that_is_away() {
    let greetings = ServerGreetings::default();
    greetings.mark_unavailable(7);
    assert!(matches!(
        greetings.lock().get(&7),
        Some(GreetingState::Unavailable(_))
    ));
    greetings.record(7, face(b"9.4.0", MYSQL));
    greetings.mark_unavailable(7);
    assert!(matches!(
        greetings.lock().get(&7),
        Some(GreetingState::Known(_))
    ));
}

#[test]
fn a_greeting_is_what_clients_read() {
    let least = least([face(b"9.4.0", MYSQL)].iter()).unwrap();
    let nonce = Nonce::of_random([7; 20]);
    let mut out = Vec::new();
    least.write((least.offered(false), 77), &nonce, &mut out);
    let payload = &out[4..];
    let read = evenkeel_wire::mysql::greeting::first(payload).unwrap();
    let evenkeel_wire::mysql::greeting::First::Greeting(read) = read else {
        panic!("{read:?}");
    };
    assert_eq!((read.version, read.connection), (&b"9.4.0"[..], 77));
    assert_eq!(read.nonce.whole().as_ref(), Some(nonce.bytes()));
}
