//! Gives each test a database, or schema, of its own in the server that the tests of a program
//! share.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;

/// The name in servers that only one test uses: the lab's.
const LAB: &str = "sbtest";

thread_local! {
    /// Each test has a thread.
    static NAME: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Returns the name for the calling test; the first call creates it in the shared server, unless
/// the test has servers of its own.
pub(crate) fn name(create: impl FnOnce(&str)) -> &'static str {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    if let Some(name) = NAME.get() {
        return name;
    }
    let is_of_a_test = thread::current().name().is_some();
    assert!(
        is_of_a_test,
        "a thread that a test starts is given its login"
    );
    let name = format!("own_{}", COUNT.fetch_add(1, Relaxed));
    create(&name);
    let name = name.leak();
    NAME.set(Some(name));
    name
}

/// Returns the name if there is one by now.
pub(crate) fn known() -> Option<&'static str> {
    NAME.get()
}

/// Makes the calling test use the lab's database: it starts servers of its own.
pub(crate) fn is_the_labs() {
    NAME.set(Some(LAB));
}
