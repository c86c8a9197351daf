//! Checks invariants for any bytes at the beginning of a PostgreSQL connection.

use evenkeel_wire::postgres::startup::{First, LENGTH_MAX, MINOR_MAX, first};
use evenkeel_wire::postgres::{Parsed, build};

/// Panics if reading `bytes` violates an invariant.
pub(crate) fn check(bytes: &[u8]) {
    match first(bytes) {
        Parsed::Frame(found, length) => {
            assert!(length <= bytes.len() && length <= LENGTH_MAX as usize);
            assert_eq!(first(&bytes[..length.max(1)]), Parsed::Frame(found, length));
            check_first(found, &bytes[..length]);
        }
        Parsed::Incomplete { need } => {
            assert!(need > bytes.len() && need <= LENGTH_MAX as usize);
            let longer = [bytes, &vec![0; need.saturating_sub(bytes.len())]].concat();
            let further = first(&longer);
            assert!(!matches!(further, Parsed::Incomplete { need } if need <= longer.len()));
        }
        Parsed::Invalid(fault) => {
            let longer = [bytes, b"\0user\0u\0\0"].concat();
            assert!(matches!(first(&longer), Parsed::Invalid(_)), "{fault}");
        }
    }
}

fn check_first(found: First<'_>, bytes: &[u8]) {
    match found {
        First::Startup(startup) => {
            let mut again = Vec::new();
            build::startup(&mut again, startup.minor, startup.parameters());
            assert_eq!(again, bytes, "written as it was read");
            assert!(startup.user().is_some_and(|user| !user.is_empty()));
            let _ = (startup.database(), startup.replication());
            for setting in startup.options().flatten() {
                assert!(!setting.name().is_empty());
                let _ = setting.value();
            }
            let mut out = Vec::new();
            let minor = build::negotiate_protocol_version(&mut out, &startup, MINOR_MAX);
            assert!(minor <= MINOR_MAX);
            assert_eq!(out.is_empty(), !startup.must_negotiate(MINOR_MAX));
        }
        First::Cancel(key) => {
            let mut again = Vec::new();
            build::cancel(&mut again, key);
            assert_eq!(again, bytes);
            assert!((4..=256).contains(&key.secret.len()));
        }
        First::DirectTls => assert!(bytes.is_empty()),
        First::SslRequest | First::GssEncRequest => assert_eq!(bytes.len(), 8),
    }
}
