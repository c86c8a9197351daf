//! Tests the control plane with many servers: they come up, change and go down within wide limits.

#![expect(clippy::unwrap_used, reason = "a failed step of a test ends the test")]

use evenkeel_lab::scale::{Size, measure};

/// Times that the limits of a release build on a quiet machine are exceeded by: a build without
/// optimization is ten times slower, and other tests use the processors.
const FACTOR: f64 = 40.0;

#[track_caller]
fn check(size: Size) {
    let figures = measure(size, None).unwrap();
    for figure in &figures {
        println!("{figure}");
        assert!(!figure.is_missed(FACTOR), "{figure}");
    }
}

#[test]
fn a_service_of_a_thousand_servers_follows_their_changes() {
    let (services, servers) = (1, 1_000);
    check(Size { services, servers });
}

#[test]
fn two_hundred_services_of_three_servers_follow_their_changes() {
    let (services, servers) = (200, 3);
    check(Size { services, servers });
}
